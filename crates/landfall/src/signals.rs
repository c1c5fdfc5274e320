//! When a stop is asked for: SIGINT or SIGTERM; a second one ends the process at once.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Exit status after a second signal: 128 + SIGINT.
const IMPATIENT: i32 = 130;

/// Tells when a stop is asked for.
#[derive(Clone, Debug)]
pub struct Stop(CancellationToken);

// === impl Stop ===

impl Stop {
    /// From now on the first SIGINT or SIGTERM asks for a stop, and a second one ends the process.
    /// Before that either of them ends it: right as long as there is nothing to end in order.
    pub fn watch() -> Self {
        let asked = CancellationToken::new();
        let (Ok(mut interrupt), Ok(mut terminate)) = (
            signal(SignalKind::interrupt()),
            signal(SignalKind::terminate()),
        ) else {
            tracing::error!("signals can't be received; only SIGKILL will stop this process");
            return Self(asked);
        };
        let stop = Self(asked.clone());
        // It lives exactly as long as the process, so nobody needs its handle.
        tokio::spawn(async move {
            tokio::select! {
                _ = interrupt.recv() => tracing::info!("interrupted; stopping"),
                _ = terminate.recv() => tracing::info!("asked to terminate; stopping"),
            }
            asked.cancel();
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            std::process::exit(IMPATIENT);
        });
        stop
    }

    /// Returns once a stop was asked for, at once if that is so already.
    pub async fn asked(&self) {
        self.0.cancelled().await;
    }
}
