//! A cluster in memory: it stores Services and status objects, and every role that follows it gets
//! the same facts. It records which role wrote what.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};

use landfall_engine::report::{Event, Found, OwnKind, OwnObject, OwnReport, Version};
use landfall_engine::{Report, ReportError};
use landfall_model::provider::{
    Applied, Provider, ProviderError, ProviderProfile, ProviderStatus, ProviderStep,
};
use landfall_model::rows::{Fact, ServiceRow};
use landfall_model::status::{IngressAddress, ServiceStatus};
use landfall_model::{Intent, Plan, Reason, ServiceKey, Uid};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};

/// The cluster. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Cluster(Arc<Mutex<Contents>>, watch::Sender<u64>);

#[derive(Debug, Default)]
struct Contents {
    services: BTreeMap<ServiceKey, Arc<ServiceRow>>,
    followers: Vec<mpsc::Sender<Fact>>,
    /// Status objects by name, with the identity that wrote them.
    objects: BTreeMap<String, (String, serde_json::Value)>,
    /// Identities that wrote to Services.
    service_writers: BTreeSet<String>,
    /// Events by the identity that sent them.
    events: Vec<(String, String)>,
    /// Writes of status objects that fail, by identity.
    refused: BTreeMap<String, u32>,
}

/// What one identity may write with.
#[derive(Debug)]
pub struct Client {
    cluster: Cluster,
    identity: String,
}

/// A provider that assigns one address after the other.
#[derive(Debug)]
pub struct Counting {
    profile: ProviderProfile,
    held: Mutex<BTreeMap<Uid, u8>>,
}

/// A step of [`Counting`].
#[derive(Clone, Debug, Serialize)]
pub struct Assign(Uid, Option<u8>);

// === impl Cluster ===

impl Cluster {
    pub fn new() -> Self {
        Self(Arc::default(), watch::Sender::new(0))
    }

    fn with<T>(&self, change: impl FnOnce(&mut Contents) -> T) -> T {
        let result = change(&mut self.0.lock().unwrap());
        self.1.send_modify(|number| *number += 1);
        result
    }

    /// Waits until something holds.
    pub async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let mut changes = self.1.subscribe();
        let wait = async {
            while !holds() {
                changes.changed().await.unwrap();
            }
        };
        let limit = std::time::Duration::from_secs(3600);
        let waited = tokio::time::timeout(limit, wait).await;
        assert!(waited.is_ok(), "it never held that {what}: {:?}", self.0);
    }

    /// Says that something beside the cluster has changed.
    pub fn touch(&self) {
        self.1.send_modify(|number| *number += 1);
    }

    /// Returns the facts as of now and all that follow.
    pub fn follow(&self) -> mpsc::Receiver<Fact> {
        let (sender, facts) = mpsc::channel(1024);
        self.with(|contents| {
            for row in contents.services.values() {
                sender.try_send(Fact::Service(row.clone())).unwrap();
            }
            sender.try_send(Fact::Synced).unwrap();
            contents.followers.push(sender);
        });
        facts
    }

    pub fn client(&self, identity: &str) -> Client {
        Client {
            cluster: self.clone(),
            identity: identity.to_owned(),
        }
    }

    pub fn put(&self, row: &Arc<ServiceRow>) {
        self.with(|contents| contents.put(row));
    }

    /// Returns the addresses that all Services publish.
    pub fn published(&self) -> BTreeSet<IpAddr> {
        let contents = self.0.lock().unwrap();
        let rows = contents.services.values();
        let ingress = rows.flat_map(|row| row.status.ingress.clone());
        ingress.filter_map(|entry| entry.ip).collect()
    }

    pub fn service_writers(&self) -> BTreeSet<String> {
        self.0.lock().unwrap().service_writers.clone()
    }

    pub fn events_of(&self, identity: &str) -> Vec<String> {
        let contents = self.0.lock().unwrap();
        let events = contents.events.iter().filter(|(by, _)| by == identity);
        events.map(|(_, event)| event.clone()).collect()
    }

    /// Returns the status objects by name, with their writers.
    pub fn objects(&self) -> BTreeMap<String, (String, serde_json::Value)> {
        self.0.lock().unwrap().objects.clone()
    }

    /// Lets the next writes of an identity's own objects fail.
    pub fn refuse(&self, identity: &str, times: u32) {
        self.with(|contents| contents.refused.insert(identity.to_owned(), times));
    }
}

// === impl Contents ===

impl Contents {
    fn put(&mut self, row: &Arc<ServiceRow>) {
        self.services.insert(row.key.clone(), row.clone());
        self.followers.retain(|follower| {
            let sent = follower.try_send(Fact::Service(row.clone()));
            !matches!(sent, Err(mpsc::error::TrySendError::Closed(_)))
        });
    }
}

// === impl Client ===

impl Client {
    fn change(&self, service: &ServiceRow, change: impl FnOnce(&mut ServiceRow)) {
        self.cluster.with(|contents| {
            contents.service_writers.insert(self.identity.clone());
            let row = contents.services.get(&service.key).unwrap();
            let mut row = ServiceRow::clone(row);
            change(&mut row);
            contents.put(&Arc::new(row));
        });
    }
}

impl Report for Client {
    async fn add_finalizer(
        &self,
        service: &ServiceRow,
        status: Option<&ServiceStatus>,
    ) -> Result<(), ReportError> {
        self.change(service, |row| {
            row.finalized = true;
            if let Some(status) = status {
                row.status.clone_from(status);
            }
        });
        Ok(())
    }

    async fn remove_finalizer(&self, service: &ServiceRow) -> Result<(), ReportError> {
        self.change(service, |row| {
            row.finalized = false;
            row.status = ServiceStatus::default();
        });
        Ok(())
    }

    async fn write_status(
        &self,
        service: &ServiceRow,
        status: &ServiceStatus,
    ) -> Result<(), ReportError> {
        self.change(service, |row| row.status.clone_from(status));
        Ok(())
    }

    async fn event(&self, _: &ServiceRow, _: &Event) {}
}

impl OwnReport for Client {
    async fn write_own<S: Serialize + Sync>(
        &self,
        object: &OwnObject,
        status: &S,
    ) -> Result<Version, ReportError> {
        let status = serde_json::to_value(status).unwrap();
        self.cluster.with(|contents| {
            if let Some(left) = contents.refused.get_mut(&self.identity)
                && *left > 0
            {
                *left -= 1;
                return Err(ReportError::Failed {
                    what: "write the status object",
                    why: "refused".to_owned(),
                });
            }
            let written = (self.identity.clone(), status);
            contents.objects.insert(object.name.clone(), written);
            Ok(Version::default())
        })
    }

    async fn delete_own(&self, object: &OwnObject, _: &Version) -> Result<(), ReportError> {
        self.cluster
            .with(|contents| drop(contents.objects.remove(&object.name)));
        Ok(())
    }

    async fn delete_matching(&self, _: &OwnKind, _: &str) -> Result<(), ReportError> {
        Ok(())
    }

    async fn list_own<S: DeserializeOwned + Send>(
        &self,
        _: &OwnKind,
        _: &str,
    ) -> Result<Vec<Found<S>>, ReportError> {
        let objects = self.cluster.with(|contents| contents.objects.clone());
        let own = objects
            .into_iter()
            .filter(|(_, (by, _))| *by == self.identity);
        Ok(own
            .map(|(name, (_, status))| Found {
                name,
                version: Version::default(),
                status: serde_json::from_value(status).ok(),
            })
            .collect())
    }

    async fn own_event(&self, _: &ServiceKey, _: &Uid, event: &Event) {
        self.cluster.with(|contents| {
            let sent = (self.identity.clone(), event.message.clone());
            contents.events.push(sent);
        });
    }
}

// === impl Counting ===

impl Counting {
    pub fn new() -> Self {
        Self {
            profile: ProviderProfile {
                provider: "counting",
                ..ProviderProfile::default()
            },
            held: Mutex::default(),
        }
    }

    /// Assigns another address to a Service, as an administrator may.
    pub fn move_to(&self, service: &Uid, number: u8) {
        self.held.lock().unwrap().insert(service.clone(), number);
    }
}

impl std::fmt::Display for Assign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(service, number) = self;
        write!(f, "assign {number:?} to {service}")
    }
}

impl ProviderStep for Assign {
    fn kind(&self) -> &'static str {
        "assign"
    }
}

impl Provider for Counting {
    type Observed = Option<u8>;
    type Step = Assign;

    fn profile(&self) -> &ProviderProfile {
        &self.profile
    }

    async fn observe(&self, want: &Intent) -> Result<Option<u8>, ProviderError> {
        Ok(self.held.lock().unwrap().get(&want.uid).copied())
    }

    fn plan(&self, want: &Intent, have: &Option<u8>) -> Result<Plan<Assign>, Vec<Reason>> {
        let mut plan = Plan::default();
        let last = |uid: &Uid| u8::try_from(uid.as_str().len()).unwrap_or(u8::MAX);
        match (&want.load_balancer, have) {
            (Some(_), None) => plan.push(
                Assign(want.uid.clone(), Some(last(&want.uid))),
                "it has none",
            ),
            (None, Some(_)) => plan.push(Assign(want.uid.clone(), None), "it is not wanted"),
            (Some(_), Some(_)) | (None, None) => {}
        }
        Ok(plan)
    }

    async fn apply(&self, step: &Assign) -> Result<Applied, ProviderError> {
        let Assign(service, number) = step;
        let mut held = self.held.lock().unwrap();
        match number {
            Some(number) => drop(held.insert(service.clone(), *number)),
            None => drop(held.remove(service)),
        }
        Ok(Applied::Done)
    }

    fn status(&self, _: &Intent, have: &Option<u8>) -> ProviderStatus {
        ProviderStatus {
            ingress: have.iter().map(|it| ingress(*it)).collect(),
            ..ProviderStatus::default()
        }
    }

    async fn audit(&self) -> Result<Vec<Uid>, ProviderError> {
        Ok(self.held.lock().unwrap().keys().cloned().collect())
    }
}

fn ingress(number: u8) -> IngressAddress {
    IngressAddress {
        ip: Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, number))),
        ..IngressAddress::default()
    }
}
