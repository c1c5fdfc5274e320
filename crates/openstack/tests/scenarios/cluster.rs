//! A cluster in memory: what an API server would keep of Services and Nodes, through crashes of the
//! controller.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use landfall_engine::report::Event;
use landfall_engine::{Report, ReportError};
use landfall_model::listener::Certificate;
use landfall_model::marks::managed_annotations;
use landfall_model::rows::{Fact, NodeRow, SecretRow, ServiceRow, SliceRow};
use landfall_model::status::ServiceStatus;
use landfall_model::{ServiceKey, Uid};
use tokio::sync::mpsc;

/// The cluster. Copies are the same cluster.
#[derive(Clone, Default)]
pub struct Cluster(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    services: BTreeMap<ServiceKey, ServiceRow>,
    nodes: BTreeMap<Arc<str>, Arc<NodeRow>>,
    secrets: BTreeMap<ServiceKey, Arc<SecretRow>>,
    slices: BTreeMap<ServiceKey, Arc<SliceRow>>,
    events: Vec<(String, Event)>,
    writes: usize,
    /// So many times the status can't be written.
    refusals: usize,
    watch: Option<mpsc::UnboundedSender<Fact>>,
    version: u64,
    blade: Option<Blade>,
}

/// Decides what becomes of a write that does not succeed.
type Blade = Box<dyn FnMut() -> Option<Mishap> + Send>;

/// What becomes of a write that never ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// It never arrives.
    Before,
    /// It is carried out, and no answer comes.
    After,
}

/// What becomes of a write that does not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// It never ends.
    Never(Halt),
    /// It is refused.
    Refused,
    /// It is carried out, and the answer is an error.
    Lost,
}

// === impl Cluster ===

impl Cluster {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// A watch from now on, beginning with what is there.
    pub fn watch(&self) -> mpsc::UnboundedReceiver<Fact> {
        #[expect(
            clippy::disallowed_methods,
            reason = "a test's watch must never wait for its reader"
        )]
        let (report, reported) = mpsc::unbounded_channel();
        for fact in self.facts() {
            report.send(fact).unwrap();
        }
        self.state().watch = Some(report);
        reported
    }

    /// Everything that is there, as a watch begins.
    pub fn facts(&self) -> Vec<Fact> {
        let state = self.state();
        let nodes = state.nodes.values().cloned().map(Fact::Node);
        let secrets = state.secrets.values().cloned().map(Fact::Secret);
        let slices = state.slices.values().cloned().map(Fact::Slice);
        let services = state.services.values().cloned().map(Arc::new);
        let services = services.map(Fact::Service);
        let all = nodes.chain(secrets).chain(slices).chain(services);
        all.chain([Fact::Synced]).collect()
    }

    /// Creates or replaces a Service, as `kubectl apply` would: status, marks and finalizer stay.
    pub fn apply(&self, row: &ServiceRow) {
        let mut state = self.state();
        let mut row = row.clone();
        // Each has a time: this one was there before any load balancer.
        row.created.get_or_insert(jiff::Timestamp::UNIX_EPOCH);
        if let Some(old) = state
            .services
            .get(&row.key)
            .filter(|old| old.uid == row.uid)
        {
            row.status.clone_from(&old.status);
            row.finalized = old.finalized;
            for key in managed_annotations() {
                if let (Some(value), false) =
                    (old.annotations.get(key), row.annotations.contains_key(key))
                {
                    row.annotations.insert(key.to_owned(), value.clone());
                }
            }
        }
        state.put(row);
    }

    /// Changes a Service.
    pub fn edit(&self, name: &str, change: impl FnOnce(&mut ServiceRow)) {
        let mut state = self.state();
        let mut row = state.services[&ServiceKey::new("default", name)].clone();
        change(&mut row);
        state.put(row);
    }

    /// Deletes a Service: it goes when its finalizer has gone.
    pub fn delete(&self, name: &str) {
        let mut state = self.state();
        let key = ServiceKey::new("default", name);
        let mut row = state.services[&key].clone();
        if row.finalized {
            row.deleting = true;
            state.put(row);
        } else {
            state.remove(&key);
        }
    }

    pub fn put_node(&self, node: Arc<NodeRow>) {
        let mut state = self.state();
        state.nodes.insert(node.name.clone(), node.clone());
        state.report(Fact::Node(node));
    }

    pub fn put_slice(&self, slice: Arc<SliceRow>) {
        let mut state = self.state();
        state.slices.insert(slice.key.clone(), slice.clone());
        state.report(Fact::Slice(slice));
    }

    pub fn remove_slice(&self, name: &str) {
        let mut state = self.state();
        let key = ServiceKey::new("default", name);
        state.slices.remove(&key);
        state.report(Fact::SliceGone(key));
    }

    /// A Secret of type `kubernetes.io/tls` in the namespace `default`.
    pub fn put_secret(&self, name: &str, chain: &str, key: &str) {
        let mut row = SecretRow::clone(&landfall_testkit::build::secret(name));
        row.certificate = Ok(Arc::new(Certificate {
            source: row.key.to_string(),
            chain_pem: chain.as_bytes().to_vec(),
            key_pem: key.as_bytes().to_vec(),
        }));
        let row = Arc::new(row);
        let mut state = self.state();
        state.secrets.insert(row.key.clone(), row.clone());
        state.report(Fact::Secret(row));
    }

    pub fn remove_secret(&self, name: &str) {
        let mut state = self.state();
        let key = ServiceKey::new("default", name);
        state.secrets.remove(&key);
        state.report(Fact::SecretGone(key));
    }

    pub fn remove_node(&self, name: &str) {
        let mut state = self.state();
        state.nodes.remove(name);
        state.report(Fact::NodeGone(name.into()));
    }

    /// A Service as it is; `None`: it is gone.
    pub fn service(&self, name: &str) -> Option<ServiceRow> {
        self.state()
            .services
            .get(&ServiceKey::new("default", name))
            .cloned()
    }

    /// All Services.
    pub fn services(&self) -> Vec<ServiceRow> {
        self.state().services.values().cloned().collect()
    }

    /// Reasons of events so far, with the Service's name: `web EnsuredLoadBalancer`.
    pub fn events(&self) -> Vec<String> {
        let state = self.state();
        let events = state.events.iter();
        events
            .map(|(service, event)| format!("{service} {}", event.reason))
            .collect()
    }

    /// The messages of events with a reason.
    pub fn messages(&self, reason: &str) -> Vec<String> {
        let state = self.state();
        let events = state
            .events
            .iter()
            .filter(|(_, event)| event.reason == reason);
        events.map(|(_, event)| event.message.clone()).collect()
    }

    pub fn forget_events(&self) {
        self.state().events.clear();
    }

    /// How often something was written here.
    pub fn writes(&self) -> usize {
        self.state().writes
    }

    /// Lets writes hang, as a controller sees them that is killed meanwhile, or fail.
    pub fn on_write(&self, decide: impl FnMut() -> Option<Mishap> + Send + 'static) {
        self.state().blade = Some(Box::new(decide));
    }

    /// A write that may fail or never end.
    async fn write(
        &self,
        write: impl FnOnce() -> Result<(), ReportError>,
    ) -> Result<(), ReportError> {
        let failed = Err(ReportError::Failed {
            what: "object",
            why: "simulated".to_owned(),
        });
        let mishap = self.state().blade.as_mut().and_then(|decide| decide());
        match mishap {
            None => write(),
            Some(Mishap::Never(Halt::Before)) => std::future::pending().await,
            Some(Mishap::Never(Halt::After)) => {
                drop(write());
                std::future::pending().await
            }
            Some(Mishap::Refused) => failed,
            Some(Mishap::Lost) => write().and(failed),
        }
    }

    /// Refuses to write the status so many times.
    pub fn refuse_status(&self, times: usize) {
        self.state().refusals = times;
    }

    fn update(
        &self,
        service: &ServiceRow,
        what: &'static str,
        change: impl FnOnce(&mut ServiceRow),
    ) -> Result<(), ReportError> {
        let mut state = self.state();
        state.writes += 1;
        let current = state
            .services
            .get(&service.key)
            .filter(|it| it.uid == service.uid);
        let Some(mut row) = current.cloned() else {
            return Err(ReportError::Conflict { what });
        };
        change(&mut row);
        if row.deleting && !row.finalized {
            state.remove(&row.key);
        } else {
            state.put(row);
        }
        Ok(())
    }
}

impl State {
    fn put(&mut self, mut row: ServiceRow) {
        self.version += 1;
        row.resource_version = Some(self.version.to_string().into());
        self.report(Fact::Service(Arc::new(row.clone())));
        self.services.insert(row.key.clone(), row);
    }

    fn remove(&mut self, key: &ServiceKey) {
        self.services.remove(key);
        self.report(Fact::ServiceGone(key.clone()));
    }

    fn report(&self, fact: Fact) {
        if let Some(watch) = &self.watch {
            // A controller that was killed does not listen.
            let _ = watch.send(fact);
        }
    }
}

impl Report for Cluster {
    async fn add_finalizer(
        &self,
        service: &ServiceRow,
        status: Option<&ServiceStatus>,
    ) -> Result<(), ReportError> {
        let finalize = |row: &mut ServiceRow| {
            row.finalized = true;
            if let Some(status) = status {
                publish(row, status);
            }
        };
        self.write(|| self.update(service, "finalizer", finalize))
            .await
    }

    async fn remove_finalizer(&self, service: &ServiceRow) -> Result<(), ReportError> {
        let release = |row: &mut ServiceRow| {
            row.finalized = false;
            publish(row, &ServiceStatus::default());
        };
        let write = || self.update(service, "finalizer", release);
        match self.write(write).await {
            Err(ReportError::Conflict { .. }) => Ok(()),
            outcome => outcome,
        }
    }

    async fn write_status(
        &self,
        service: &ServiceRow,
        status: &ServiceStatus,
    ) -> Result<(), ReportError> {
        {
            let mut state = self.state();
            if state.refusals > 0 {
                state.refusals -= 1;
                let why = "forbidden".to_owned();
                return Err(ReportError::Failed {
                    what: "status",
                    why,
                });
            }
        }
        let change = |row: &mut ServiceRow| publish(row, status);
        self.write(|| self.update(service, "status", change)).await
    }

    async fn event(&self, service: &ServiceRow, event: &Event) {
        let name = service.key.name().to_owned();
        self.state().events.push((name, event.clone()));
    }
}

fn publish(row: &mut ServiceRow, status: &ServiceStatus) {
    for key in row.status.marks.keys() {
        row.annotations.remove(key);
    }
    for (key, value) in &status.marks {
        row.annotations.insert(key.clone(), value.clone());
    }
    row.status = status.clone();
}

/// The UID that the builders give a Service.
#[expect(dead_code, reason = "for scenarios that speak of UIDs")]
pub fn uid(name: &str) -> Uid {
    Uid::new(&format!("uid-{name}"))
}
