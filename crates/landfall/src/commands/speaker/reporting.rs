//! The objects in which a speaker says what it does.

use std::sync::Arc;
use std::time::Duration;

use landfall_engine::report::Owner;
use landfall_kube::{Connection, OwnReports, own_pod};
use landfall_metallb::{ServiceBgpStatus, ServiceL2Status};
use landfall_speaker::leftovers::Leftovers;
use landfall_speaker::routing::Routing;
use landfall_speaker::session_states::SessionStates;
use landfall_speaker::sessions::{Sessions, announces};
use landfall_speaker::status::{Desired, Statuses};
use landfall_speaker::task::Outputs;

/// From one attempt to read the own Pod to the next.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// Where they are written, and by which node.
pub struct Reporting {
    /// To the API server.
    pub connection: Connection,
    /// Writes them.
    pub reporter: Arc<OwnReports>,
    /// The name of the node.
    pub node: String,
    /// The namespace of the resources.
    pub namespace: String,
    /// The sessions with routers.
    pub sessions: Arc<Sessions>,
}

// === impl Reporting ===

impl Reporting {
    /// Writes them, once it is known what they disappear with, and deletes those of nodes that are
    /// gone.
    pub fn run(self, outputs: &Outputs) -> impl Future<Output = ()> + Send + use<> {
        let (layer2, bgp) = (outputs.desired.clone(), outputs.routing.clone());
        let view = outputs.view.clone();
        async move {
            let (node, namespace) = (&self.node, &self.namespace);
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
        }
    }
}

/// The `DaemonSet` of the own Pod.
async fn owner(connection: &Connection) -> Option<Owner> {
    let pod = std::env::var("LANDFALL_POD_NAME").ok()?;
    loop {
        match own_pod::owner(connection, &pod).await {
            Ok(owner) => return owner,
            Err(error) => tracing::warn!(%error, pod, "the owner of this Pod is not known yet"),
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}
