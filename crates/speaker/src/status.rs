//! The status objects of this node: one `ServiceL2Status` and one `ServiceBGPStatus` for each
//! Service that it announces so. They are written by a task for each kind, so that no announcement
//! waits for the API server.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use landfall_engine::report::{OwnKind, OwnObject, OwnReport, Owner, ReportError, Version};
use landfall_metallb::{ServiceBgpStatus, ServiceL2Status};
use landfall_model::ServiceKey;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tracing::warn;

use crate::decide::Announces;

/// Changes are gathered for this long: owners change several times while nodes come and go.
const GATHER: Duration = Duration::from_secs(1);

/// The time after the first failure in a row, and the longest.
const RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// After this time without a change the objects are read again: a person may have deleted one. The
/// nodes of a cluster do so at different times.
const SOONEST_REREAD: Duration = Duration::from_mins(8);
const SPREAD: Duration = Duration::from_mins(4);

/// The label with the node.
pub(crate) const NODE: &str = "metallb.io/node";

/// What this node is to say: nothing yet, or where it announces each Service.
pub type Desired = Option<Arc<BTreeMap<ServiceKey, Announces>>>;

/// What a status object says.
pub trait Said: PartialEq + Sized + Send + Sync + 'static {
    /// Its kind in CamelCase.
    const KIND: &'static str;
    /// Its name in paths.
    const PLURAL: &'static str;
    /// How names of objects begin.
    const PREFIX: &'static str;

    /// Makes what is said of a Service that a node announces; `through`: on which interfaces, or to
    /// which routers.
    fn new(node: &str, service: ServiceKey, through: BTreeSet<String>) -> Self;

    /// Reads `status`. `None` while it is not written completely.
    fn read(status: &Value) -> Option<Self>;

    /// Returns `status`.
    fn status(&self) -> Value;

    /// Returns the labels of the object.
    fn labels(&self) -> BTreeMap<&'static str, String>;
}

/// Writes the status objects of one kind of a node.
#[derive(Debug)]
pub struct Statuses<R, S> {
    reporter: Arc<R>,
    node: Arc<str>,
    /// The namespace of the resources.
    namespace: String,
    /// What the objects disappear with.
    owner: Option<Owner>,
    /// Services that this node took over, and of which others may still say something.
    taken: BTreeSet<ServiceKey>,
    says: PhantomData<S>,
}

// === impl Statuses ===

impl<R: OwnReport, S: Said> Statuses<R, S> {
    /// Nothing is read or written yet.
    pub fn new(reporter: Arc<R>, node: &str, namespace: &str, owner: Option<Owner>) -> Self {
        Self {
            reporter,
            node: node.into(),
            namespace: namespace.to_owned(),
            owner,
            taken: BTreeSet::new(),
            says: PhantomData,
        }
    }

    /// Writes what is desired until its sender is gone. `desired`: of what `known` is, worked out
    /// once for all changes that are gathered. What another process deleted or changed meanwhile is
    /// written again after a while.
    pub async fn run<T>(mut self, mut known: watch::Receiver<T>, desired: impl Fn(&T) -> Desired) {
        let mut retry = RETRY;
        loop {
            let reread = SOONEST_REREAD + SPREAD.mul_f64(fastrand::f64());
            match tokio::time::timeout(reread, known.changed()).await {
                Ok(Ok(())) => tokio::time::sleep(GATHER).await,
                Ok(Err(_)) => return,
                Err(_) => {}
            }
            loop {
                let wanted = desired(&known.borrow_and_update());
                let Some(wanted) = wanted else {
                    break;
                };
                match self.settle(&wanted).await {
                    Ok(()) => {
                        retry = RETRY;
                        break;
                    }
                    Err(error) => warn!(%error, "the status of announced Services is not written"),
                }
                tokio::time::sleep(retry).await;
                retry = (retry * 2).min(LONGEST_RETRY);
            }
        }
    }

    /// Makes what is there what is wanted. What is so already is not written. It is read each
    /// time: while this node was cut off, another one may have deleted what it wrote.
    ///
    /// # Errors
    /// The API server can't be asked, or refuses a write, which ends it; or the first deletion that
    /// failed, because it was refused or another process wrote the object: the others are made.
    pub async fn settle(
        &mut self,
        wanted: &BTreeMap<ServiceKey, Announces>,
    ) -> Result<(), ReportError> {
        let written = self.read().await?;
        self.taken.retain(|key| wanted.contains_key(key));
        let named = wanted.iter().map(|(key, announces)| {
            let status = S::new(&self.node, key.clone(), announces.through.clone());
            (self.name(key), (key, status, announces))
        });
        let named: BTreeMap<_, _> = named.collect();
        let mut outcome = Ok(());
        for (name, (version, _)) in &written {
            if !named.contains_key(name) {
                let object = self.object(name, None);
                outcome = outcome.and(self.reporter.delete_own(&object, version).await);
            }
        }
        for (name, (service, status, announces)) in named {
            let there = written.get(&name);
            if there.is_some_and(|(_, said)| *said == status) {
                continue;
            }
            // Even if the answer is lost: the object may be there, and is no news then.
            if there.is_none() && announces.took_over {
                self.taken.insert(service.clone());
            }
            let object = self.object(&name, Some(&status));
            self.reporter.write_own(&object, &status.status()).await?;
        }
        for service in self.taken.clone() {
            let (kind, others) = (self.kind(), self.of_others(&service));
            match self.reporter.delete_matching(&kind, &others).await {
                Ok(()) => drop(self.taken.remove(&service)),
                failed => outcome = outcome.and(failed),
            }
        }
        outcome
    }

    async fn read(&self) -> Result<BTreeMap<String, (Version, S)>, ReportError> {
        let selector = format!("{NODE}={}", self.node);
        let kind = self.kind();
        let found = self.reporter.list_own::<Value>(&kind, &selector);
        let found = found.await?.into_iter();
        // One without a status that can be read is not what is wanted, whatever is wanted.
        let nothing = || S::new("", ServiceKey::new("", ""), BTreeSet::new());
        let read = found.map(|it| {
            let status = it.status.and_then(|status| S::read(&status));
            (it.name, (it.version, status.unwrap_or_else(nothing)))
        });
        Ok(read.collect())
    }

    fn name(&self, key: &ServiceKey) -> String {
        name_of(S::PREFIX, &self.node, &key.to_string())
    }

    fn kind(&self) -> OwnKind {
        kind::<S>(&self.namespace)
    }

    fn object(&self, name: &str, status: Option<&S>) -> OwnObject {
        let labels = status.map(S::labels).unwrap_or_default();
        OwnObject {
            kind: self.kind(),
            name: name.to_owned(),
            labels: labels
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect(),
            owner: self.owner.clone(),
        }
    }

    /// Selects what other nodes say of a Service.
    fn of_others(&self, service: &ServiceKey) -> String {
        format!(
            "metallb.io/service-name={},metallb.io/service-namespace={},metallb.io/node!={}",
            service.name(),
            service.namespace(),
            self.node
        )
    }
}

/// Returns the name of the object that says something of `what` on a node: the same each time, so
/// that a restart finds what is there.
pub(crate) fn name_of(prefix: &str, node: &str, what: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(format!("{node}#{what}"));
    let mut name = prefix.to_owned();
    for byte in hash.finalize().iter().take(8) {
        // Writing into a string cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    name
}

/// Returns a kind of status objects, in the namespace of the resources.
pub(crate) fn kind<S: Said>(namespace: &str) -> OwnKind {
    OwnKind {
        api_version: "metallb.io/v1beta1",
        kind: S::KIND,
        plural: S::PLURAL,
        whole: Some("metallb.io/v1alpha1"),
        namespace: Some(namespace.to_owned()),
    }
}

// === impl Said ===

impl Said for ServiceL2Status {
    const KIND: &'static str = "ServiceL2Status";
    const PLURAL: &'static str = "servicel2statuses";
    const PREFIX: &'static str = "l2-";

    fn new(node: &str, service: ServiceKey, interfaces: BTreeSet<String>) -> Self {
        Self {
            node: node.to_owned(),
            service,
            interfaces,
        }
    }

    fn read(status: &Value) -> Option<Self> {
        Self::read(status)
    }

    fn status(&self) -> Value {
        self.status()
    }

    fn labels(&self) -> BTreeMap<&'static str, String> {
        self.labels()
    }
}

impl Said for ServiceBgpStatus {
    const KIND: &'static str = "ServiceBGPStatus";
    const PLURAL: &'static str = "servicebgpstatuses";
    const PREFIX: &'static str = "bgp-";

    fn new(node: &str, service: ServiceKey, peers: BTreeSet<String>) -> Self {
        Self {
            node: node.to_owned(),
            service,
            peers,
        }
    }

    fn read(status: &Value) -> Option<Self> {
        Self::read(status)
    }

    fn status(&self) -> Value {
        self.status()
    }

    fn labels(&self) -> BTreeMap<&'static str, String> {
        self.labels()
    }
}
