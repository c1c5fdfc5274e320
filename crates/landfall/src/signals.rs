//! When a stop is asked for: SIGINT or SIGTERM; a second one ends the process at once.

use tokio::signal::unix::{SignalKind, signal};

/// Exit status after a second signal: 128 + SIGINT.
const IMPATIENT: i32 = 130;

/// Returns at the first SIGINT or SIGTERM. From then on a second one ends the process.
pub async fn stop_asked() {
    let (Ok(mut interrupt), Ok(mut terminate)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    ) else {
        tracing::error!("signals can't be received; only SIGKILL will stop this process");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => tracing::info!("interrupted; stopping"),
        _ = terminate.recv() => tracing::info!("asked to terminate; stopping"),
    }
    // It lives exactly as long as the process, so nobody needs its handle.
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        std::process::exit(IMPATIENT);
    });
}
