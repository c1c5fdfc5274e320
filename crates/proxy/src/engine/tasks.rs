//! Connections that are more than bytes passing by: TLS that ends here, and HTTP. Each is a task of the
//! worker's runtime, from the accept to the end.

use std::pin::Pin;
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
    if config.termination.is_some() {
        // A box of its own: what a handshake needs is gone when it is over.
        let secured = Box::pin(secure(front, config, inbound, stream, listener)).await;
        if let Some(rest) = secured {
            rest.await;
        }
    } else if let Some(front) = front {
        http::serve(front, stream, inbound, &[]).await;
    }
}

/// What is left to do with a connection.
type Rest<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Ends TLS, and tells how the connection goes on then.
async fn secure<'a>(
    front: Option<Arc<Front>>,
    config: &'a ListenerConfig,
    inbound: Inbound,
    stream: TcpStream,
    listener: &'a ListenerState,
) -> Option<Rest<'a>> {
    let termination = config.termination.as_ref()?;
    let within = config.listener.timeouts.client_data;
    let stream = match termination.accept(stream, within).await {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(listener = %listener.id(), client = %inbound.client, %error, "no TLS");
            listener.counters().mine().refused(Refusal::Tls);
            return None;
        }
    };
    if let Some(front) = front {
        return Some(http::serve(front, stream, inbound, &[]));
    }
    let Some(dialed) = dial(listener, config, inbound.client).await else {
        listener.counters().mine().refused(Refusal::NoMember);
        return None;
    };
    Some(Box::pin(async move {
        relay::run(listener, config, &inbound, stream, dialed).await;
    }))
}
