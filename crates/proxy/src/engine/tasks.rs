//! Connections that are more than bytes passing by: TLS that begins or ends here, with or without
//! HTTP in it. Each is a task of the worker's runtime, from the accept to the end.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use super::client_socket::ClientSocket;
use crate::counters::{Refusal, Span};
use crate::dial::dial;
use crate::http::{self, ClientStream, Front};
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
    /// Serves the connection until it ends. The engine ends it when it is cut.
    pub(super) async fn run(self, stream: ClientSocket, listener: Arc<ListenerState>) {
        let place = self.place;
        serve(self.front, &self.config, self.inbound, stream, &listener).await;
        drop(place);
    }
}

async fn serve(
    front: Option<Arc<Front>>,
    config: &ListenerConfig,
    inbound: Inbound,
    stream: ClientSocket,
    listener: &ListenerState,
) {
    if config.termination.is_some() {
        // A box of its own: what a handshake needs is gone when it is over.
        let secured = Box::pin(secure(front, config, inbound, stream, listener)).await;
        if let Some(rest) = secured {
            rest.await;
        }
    } else if let Some(rest) = pass(config, inbound, stream, listener).await {
        rest.await;
    }
}

/// What is left to do with a connection.
type Rest<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Ends TLS, and returns how the connection goes on then.
async fn secure<'a>(
    front: Option<Arc<Front>>,
    config: &'a ListenerConfig,
    inbound: Inbound,
    stream: ClientSocket,
    listener: &'a ListenerState,
) -> Option<Rest<'a>> {
    let termination = config.termination.as_ref()?;
    let within = config.listener.timeouts.client_data;
    let stream = match termination.accept(stream, within).await {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(listener = %listener.id(), client = %inbound.client, %error, "no TLS");
            listener.refuse(inbound.client, Refusal::Tls);
            return None;
        }
    };
    if let Some(front) = front {
        return Some(http::serve(front, stream, inbound, &[], ()));
    }
    pass(config, inbound, stream, listener).await
}

/// Finds a member, and passes bytes between it and the client.
async fn pass<'a, C: ClientStream>(
    config: &'a ListenerConfig,
    inbound: Inbound,
    stream: C,
    listener: &'a ListenerState,
) -> Option<Rest<'a>> {
    let mut note = listener.note(inbound.client);
    let chosen = Instant::now();
    let dialed = match dial(listener, config, &inbound).await {
        Ok(dialed) => dialed,
        Err(refusal) => {
            listener.counters().mine().refused(refusal);
            if let Some(note) = &mut note {
                note.facts().end = refusal.as_str();
            }
            return None;
        }
    };
    let counters = listener.counters().mine();
    counters.took(Span::Connect, chosen.elapsed());
    Some(Box::pin(async move {
        relay::run(listener, config, stream, dialed, note).await;
        let counters = listener.counters().mine();
        counters.took(Span::Connection, chosen.elapsed());
    }))
}
