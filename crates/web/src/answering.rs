//! What is done for an answer to a client, so that a panic of it is distinguished from others.
//! Knows no route.

use tokio::task::JoinError;

tokio::task_local! {
    /// Set where a client is answered.
    static ANSWERING: ();
}

/// Returns whether what calls this answers a client of the admin endpoint, for a panic hook: that
/// ends alone.
pub fn is_answering() -> bool {
    ANSWERING.try_with(|()| ()).is_ok()
}

/// Answers a client.
pub(crate) fn answers<F: Future>(answer: F) -> impl Future<Output = F::Output> {
    ANSWERING.scope((), answer)
}

/// Does a part of an answer on a thread that may be kept busy, where the task is not known.
pub(crate) async fn on_a_thread<T: Send + 'static>(
    part: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    tokio::task::spawn_blocking(|| ANSWERING.sync_scope((), part)).await
}
