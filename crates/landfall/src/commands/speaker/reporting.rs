//! The objects in which a speaker says what it does.

use std::sync::Arc;
use std::time::Duration;

use landfall_engine::report::Owner;
use landfall_kube::{ApiError, Connection, OwnReports, own_pod};
use landfall_metallb::{ServiceBgpStatus, ServiceL2Status};
use landfall_speaker::leftovers::Leftovers;
use landfall_speaker::routing::Routing;
use landfall_speaker::session_states::SessionStates;
use landfall_speaker::sessions::{Sessions, announces};
use landfall_speaker::status::{Desired, Statuses};
use landfall_speaker::task::Outputs;

use crate::lifetime::Lifetime;

/// From one attempt to read the own Pod to the next.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// Where they are written.
pub struct Reporting {
    /// To the API server.
    pub connection: Connection,
    /// Writes them.
    pub reporter: Arc<OwnReports>,
    /// The namespace of the resources.
    pub namespace: String,
    /// The sessions with routers.
    pub sessions: Arc<Sessions>,
}

// === impl Reporting ===

impl Reporting {
    /// Starts to write them, once it is known what they disappear with, and to delete those of
    /// nodes that are gone.
    pub fn start(self, node: &str, outputs: &Outputs, lifetime: &Lifetime) {
        let (layer2, bgp) = (outputs.desired.clone(), outputs.routing.clone());
        let (view, node) = (outputs.view.clone(), node.to_owned());
        let reporting = async move {
            let (node, namespace) = (&*node, &self.namespace);
            // What is owned from another namespace is taken for orphaned, and deleted.
            let owner = if self.connection.namespace() == namespace {
                owner(&self.connection).await
            } else {
                None
            };
            let reporter = || Arc::clone(&self.reporter);
            let of_layer2: Statuses<_, ServiceL2Status> =
                Statuses::new(reporter(), node, namespace, owner.clone());
            let of_bgp: Statuses<_, ServiceBgpStatus> =
                Statuses::new(reporter(), node, namespace, owner.clone());
            let by_bgp =
                |routing: &Option<Arc<Routing>>| Some(Arc::new(announces(routing.as_ref()?)));
            let of_sessions = SessionStates::new(reporter(), node, namespace, owner);
            let leftovers = Leftovers::new(reporter(), node, namespace);
            tokio::join!(
                of_layer2.run(layer2, Desired::clone),
                of_bgp.run(bgp, by_bgp),
                of_sessions.run(Arc::clone(&self.sessions)),
                leftovers.run(view),
            );
        };
        let cancel = lifetime.cancel.clone();
        let tasks = &lifetime.tasks;
        tasks.spawn(cancel.run_until_cancelled_owned(reporting));
    }
}

/// The `DaemonSet` of the own Pod. `None`: there is none, or this process may not know it. What is
/// written without an owner stays when the `DaemonSet` is deleted; that is better than no status.
async fn owner(connection: &Connection) -> Option<Owner> {
    let pod = std::env::var("LANDFALL_POD_NAME").ok()?;
    loop {
        match own_pod::owner(connection, &pod).await {
            Ok(owner) => return owner,
            Err(error) if is_final(&error) => {
                tracing::warn!(%error, pod, "status objects get no owner");
                return None;
            }
            Err(error) => tracing::warn!(%error, pod, "the owner of this Pod is not known yet"),
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// Returns whether asking again would give the same answer.
fn is_final(error: &ApiError) -> bool {
    matches!(
        error,
        ApiError::Denied { .. } | ApiError::Refused { code: 404, .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_right_to_read_its_pod_a_speaker_writes_its_status_all_the_same() {
        let (what, message) = ("get pods".to_owned(), "no".to_owned());
        assert!(is_final(&ApiError::Denied {
            what: what.clone(),
            message: message.clone()
        }));
        let refused = |code| ApiError::Refused {
            what: what.clone(),
            code,
            reason: String::new(),
            message: message.clone(),
            retry_after: None,
        };
        assert!(is_final(&refused(404)));
        assert!(!is_final(&refused(429)) && !is_final(&refused(503)));
        assert!(!is_final(&ApiError::Timeout(Duration::from_secs(15))));
    }
}
