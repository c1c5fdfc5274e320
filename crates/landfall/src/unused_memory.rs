//! Memory that a process in a cluster does not use at present goes back to the kernel.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::debug;

/// From one time to the next, in the long run. It takes about a millisecond.
const EVERY: Duration = Duration::from_secs(60);

/// Gives unused memory back: often at first, after whole lists were read, and then from time to
/// time.
pub(crate) async fn give_back(cancel: CancellationToken) {
    let mut pause = Duration::from_secs(1);
    while cancel
        .run_until_cancelled(tokio::time::sleep(pause))
        .await
        .is_some()
    {
        landfall_sys::memory::give_back();
        // Only those of the start: what is used later is rarely used for the last time, and reading
        // it again from a disk may fail.
        if pause < EVERY
            && let Err(error) = landfall_sys::memory::give_back_program()
        {
            debug!(%error, "pages of the program stay in memory");
        }
        pause = (pause * 2).min(EVERY);
    }
}
