//! Status objects of nodes that are gone: their speakers can delete them no longer. One speaker
//! does it for all, a while after a node went.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use landfall_engine::report::{Found, OwnKind, OwnObject, OwnReport, ReportError};
use landfall_metallb::{ServiceBgpStatus, ServiceL2Status};
use landfall_model::ServiceKey;
use serde_json::Value;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::session_states;
use crate::status::{self, Said, name_of};
use crate::task::SpeakerView;

/// So long after a node went, at the earliest: its machine may come back under the same name.
const GONE: Duration = Duration::from_secs(60);

/// After a failure: nothing depends on them.
const RETRY: Duration = Duration::from_mins(9);

/// One that is longer may be more than fits into a request.
const LONGEST_SELECTOR: usize = 16 * 1024;

/// Values of labels are no longer; names of nodes may be.
const LONGEST_LABEL: usize = 63;

/// Deletes status objects of nodes that are gone.
#[derive(Debug)]
pub struct Leftovers<R> {
    reporter: Arc<R>,
    own: Arc<str>,
    /// The namespace of the resources.
    namespace: String,
}

/// A kind of objects that speakers write.
struct Written {
    kind: OwnKind,
    /// The label with the node.
    label: &'static str,
    /// Returns the name that a speaker gave an object which says this.
    name: fn(&Value) -> Option<String>,
}

// === impl Leftovers ===

impl<R: OwnReport> Leftovers<R> {
    /// Nothing is deleted yet. `own`: the node.
    pub fn new(reporter: Arc<R>, own: &str, namespace: &str) -> Self {
        Self {
            reporter,
            own: own.into(),
            namespace: namespace.to_owned(),
        }
    }

    /// Deletes them whenever nodes went, while this node is the first of those that run a speaker.
    pub async fn run(self, mut view: watch::Receiver<Arc<SpeakerView>>) {
        let mut swept = None;
        loop {
            let before = Arc::clone(&view.borrow_and_update());
            if !before.is_first || swept.as_ref() == Some(&before.nodes) {
                if view.changed().await.is_err() {
                    return;
                }
                continue;
            }
            tokio::time::sleep(GONE).await;
            match self.sweep(&before.nodes, &view).await {
                Ok(0) => {}
                Ok(count) => info!(count, "status objects of nodes that are gone are deleted"),
                Err(error) => {
                    warn!(%error, "status objects of nodes that are gone stay for now");
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
            }
            swept = Some(Arc::clone(&before.nodes));
        }
    }

    /// Deletes what speakers said of all nodes but these and those in the view, and returns how
    /// many objects that were. A node that comes back meanwhile keeps what is still there of it.
    ///
    /// # Errors
    /// The API server can't be asked, or refuses a deletion. What else was deleted is so.
    pub async fn sweep(
        &self,
        before: &BTreeSet<Arc<str>>,
        view: &watch::Receiver<Arc<SpeakerView>>,
    ) -> Result<usize, ReportError> {
        let mut count = 0;
        let mut failed = None;
        // Before nodes are known, each would be taken for gone.
        if !before.contains(&self.own) {
            return Ok(count);
        }
        for written in self.kinds() {
            let selector = selector(written.label, before);
            let found = self.reporter.list_own::<Value>(&written.kind, &selector);
            for found in found.await? {
                let Found {
                    name,
                    version,
                    status: Some(status),
                } = found
                else {
                    continue;
                };
                let is_gone = |node: &str| {
                    let now = view.borrow();
                    let is_there = now.nodes.contains(node) || now.members.contains(node);
                    !is_there && !before.contains(node)
                };
                let node = status.get("node").and_then(Value::as_str);
                // MetalLB's speakers leave objects of these kinds, too, under other names.
                if !node.is_some_and(is_gone) || (written.name)(&status).as_deref() != Some(&name) {
                    continue;
                }
                let object = OwnObject {
                    kind: written.kind.clone(),
                    name,
                    labels: std::collections::BTreeMap::new(),
                    owner: None,
                };
                match self.reporter.delete_own(&object, &version).await {
                    Ok(()) => count += 1,
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
        }
        failed.map_or(Ok(count), Err)
    }

    fn kinds(&self) -> [Written; 3] {
        [
            Written {
                kind: status::kind::<ServiceL2Status>(&self.namespace),
                label: status::NODE,
                name: of_service::<ServiceL2Status>,
            },
            Written {
                kind: status::kind::<ServiceBgpStatus>(&self.namespace),
                label: status::NODE,
                name: of_service::<ServiceBgpStatus>,
            },
            Written {
                kind: session_states::kind(&self.namespace),
                label: session_states::NODE,
                name: of_session,
            },
        ]
    }
}

/// Returns what selects the objects of other nodes, and maybe some of these.
fn selector(label: &str, nodes: &BTreeSet<Arc<str>>) -> String {
    let names = nodes.iter().map(|name| &**name);
    // One that no label can have would make all of it invalid.
    let names: Vec<&str> = names.filter(|it| it.len() <= LONGEST_LABEL).collect();
    let selector = format!("{label},{label} notin ({})", names.join(","));
    if names.is_empty() || selector.len() > LONGEST_SELECTOR {
        return label.to_owned();
    }
    selector
}

fn of_service<S: Said>(status: &Value) -> Option<String> {
    let text = |field| status.get(field).and_then(Value::as_str);
    let service = ServiceKey::new(text("serviceNamespace")?, text("serviceName")?);
    Some(name_of(S::PREFIX, text("node")?, &service.to_string()))
}

fn of_session(status: &Value) -> Option<String> {
    let text = |field| status.get(field).and_then(Value::as_str);
    let (node, peer) = (text("node")?, text("peer")?);
    Some(name_of(session_states::PREFIX, node, peer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_whose_name_no_label_can_have_does_not_spoil_what_is_asked_for() {
        let long: Arc<str> = "n".repeat(64).into();
        let nodes = |names: &[&Arc<str>]| names.iter().map(|it| Arc::clone(it)).collect();
        let short: Arc<str> = "n".repeat(63).into();
        let asked = selector("node", &nodes(&[&long, &short]));
        assert_eq!(asked, format!("node,node notin ({short})"));
        assert_eq!(selector("node", &nodes(&[&long])), "node");
    }
}
