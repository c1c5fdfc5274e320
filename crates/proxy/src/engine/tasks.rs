//! Connections that are more than bytes passing by: TLS that ends here, and HTTP. Each is a task of the
//! worker's runtime, from the accept to the end.

use std::sync::Arc;

use landfall_sys::stream::Stream;
use tokio::net::TcpStream;

use crate::counters::Refusal;
use crate::dial::dial;
use crate::http::{self, Front};
use crate::inbound::Inbound;
use crate::listener::{ListenerConfig, ListenerState, Place};
use crate::relay;

/// A connection that a task takes over.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) front: Option<Arc<Front>>,
    pub(super) config: Arc<ListenerConfig>,
    pub(super) inbound: Inbound,
    pub(super) place: Place,
}

// === impl Task ===

impl Task {
    /// Serves the connection until it ends, or is cut.
    pub(super) async fn run(self, stream: Stream, listener: Arc<ListenerState>) {
        let stream = match TcpStream::from_std(stream.into()) {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(listener = %listener.id(), %error, "a connection cannot be watched");
                return;
            }
        };
        let cut = listener.cut().clone();
        let place = self.place;
        tokio::select! {
            biased;
            () = cut.cancelled() => {}
            () = serve(self.front, &self.config, self.inbound, stream, &listener) => {}
        }
        drop(place);
    }
}

async fn serve(
    front: Option<Arc<Front>>,
    config: &ListenerConfig,
    inbound: Inbound,
    stream: TcpStream,
    listener: &ListenerState,
) {
    let Some(termination) = &config.termination else {
        if let Some(front) = front {
            http::serve(front, stream, inbound, &[]).await;
        }
        return;
    };
    let within = config.listener.timeouts.client_data;
    let stream = match termination.accept(stream, within).await {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(listener = %listener.id(), client = %inbound.client, %error, "no TLS");
            listener.counters().mine().refused(Refusal::Tls);
            return;
        }
    };
    if let Some(front) = front {
        http::serve(front, stream, inbound, &[]).await;
        return;
    }
    match dial(listener, config, inbound.client).await {
        Some(dialed) => relay::run(listener, config, &inbound, stream, dialed).await,
        None => listener.counters().mine().refused(Refusal::NoMember),
    }
}
