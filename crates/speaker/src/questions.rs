//! Questions of people to the loop of a speaker, which answers them between two changes.

use landfall_model::ServiceKey;
use tokio::sync::{mpsc, oneshot};

use crate::explain::Explained;

/// So many may wait.
const WAITING: usize = 8;

/// What this node does for a Service, and why not more.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) key: ServiceKey,
    pub(crate) answer: oneshot::Sender<Option<Explained>>,
}

/// Asks the loop of a speaker.
#[derive(Clone, Debug)]
pub struct Questions(mpsc::Sender<Question>);

/// Returns what asks, and what the loop receives.
pub(crate) fn channel() -> (Questions, mpsc::Receiver<Question>) {
    let (asking, asked) = mpsc::channel(WAITING);
    (Questions(asking), asked)
}

// === impl Questions ===

impl Questions {
    /// Returns what the node does for a Service; `None`: there is no such Service, or the loop has
    /// ended.
    pub async fn explain(&self, key: &ServiceKey) -> Option<Explained> {
        let (answer, answered) = oneshot::channel();
        let key = key.clone();
        self.0.send(Question { key, answer }).await.ok()?;
        answered.await.ok()?
    }
}
