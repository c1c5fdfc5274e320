//! What this replica serves on this machine, remembered for a start: it is served until the API
//! server has sent everything, which may be unavailable by then, or become so amid its first
//! answers.
//!
//! The file is there exactly as long as this replica serves, or no other one was seen to: a process
//! that finds it at a start was the last one. It is a copy of facts, never a record of claims.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use landfall_engine::claims;
use landfall_engine::instance::InstanceId;
use landfall_engine::leadership::Role;
use landfall_engine::report::{Event, Report, ReportError};
use landfall_engine::{EngineHandle, World};
use landfall_files::{About, Snapshot, SnapshotFile, StateError};
use landfall_kube::{Connection, access};
use landfall_model::ServiceKey;
use landfall_model::reason::{Code, Reason};
use landfall_model::rows::{Fact, ResourceKind, ServiceRow, SliceRow};
use landfall_model::status::ServiceStatus;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::assembly::{Instance, Lead, Options, StartState};
use crate::backend::Backend;
use crate::instances::Instances;
use crate::lifetime::Lifetime;

/// Changes within this time are remembered together.
const DEBOUNCE: Duration = Duration::from_secs(1);

/// On average so many bytes a second are written, and no more.
const BYTES_PER_SECOND: u64 = 512 * 1024;

/// After a failure it is tried again this much later, changes or not.
const AGAIN: Duration = Duration::from_secs(10);

/// From one look for the API server to the next.
const LOOK: Duration = Duration::from_secs(1);

/// The name under which problems of the source are reported.
const API_SERVER: &str = "API server";

/// Remembers what is served.
#[derive(Clone, Debug)]
pub struct LastKnownStore {
    file: Arc<Mutex<SnapshotFile>>,
    cluster: String,
    configuration: String,
}

/// What goes on being served until the API server answers.
#[derive(Debug)]
pub struct CarriedInstance(Instance);

/// Writes nothing: there is no API server to write to.
#[derive(Debug)]
struct NoReports;

// === impl LastKnownStore ===

impl LastKnownStore {
    /// Will remember in this directory what `instances` serves of a cluster; `lease` distinguishes
    /// it from others that serve the same cluster.
    pub fn new(folder: &Path, connection: &Connection, instances: &Instances, lease: &str) -> Self {
        Self {
            file: Arc::new(Mutex::new(SnapshotFile::at(folder))),
            cluster: connection.cluster().to_owned(),
            configuration: format!("{lease} {}", instances.described_here()),
        }
    }

    /// Returns what this replica served last, if that was of this cluster and with this
    /// configuration. Whatever is wrong with it is logged, and stops nothing.
    pub async fn last(&self) -> Option<Snapshot> {
        let snapshot = match self.blocking(SnapshotFile::read).await {
            Ok(snapshot) => snapshot?,
            Err(error) => {
                tracing::warn!(%error, "the last known state is missing");
                return None;
            }
        };
        let about = &snapshot.about;
        let why = if about.cluster != self.cluster {
            "it is of another cluster"
        } else if about.configuration != self.configuration {
            "it is of another configuration"
        } else {
            return Some(snapshot);
        };
        tracing::warn!(why, written = %about.written, "the last known state is not usable");
        None
    }

    /// Follows what is served until cancelled.
    pub async fn follow(
        self,
        handle: EngineHandle<Backend>,
        role: Option<watch::Receiver<Role>>,
        facts: mpsc::Sender<Fact>,
        cancel: CancellationToken,
    ) {
        let following = self.follow_for_ever(handle, role, facts);
        cancel.run_until_cancelled(following).await;
    }

    async fn follow_for_ever(
        &self,
        handle: EngineHandle<Backend>,
        mut role: Option<watch::Receiver<Role>>,
        facts: mpsc::Sender<Fact>,
    ) {
        let mut changes = handle.store.changes();
        let mut kept: Option<String> = None;
        let mut failing = false;
        // What an earlier life left stays until another replica is seen to serve.
        let mut served = true;
        loop {
            let stands_by = role
                .as_mut()
                .is_some_and(|role| *role.borrow_and_update() == Role::Standby);
            changes.borrow_and_update();
            let mut pause = DEBOUNCE;
            let outcome = if stands_by {
                kept = None;
                if std::mem::take(&mut served) {
                    self.forget().await
                } else {
                    Ok(())
                }
            } else if handle.store.read(|pages| pages.at_work && pages.synced) {
                served = true;
                match self.keep(&handle, &mut kept).await {
                    Ok(bytes) => {
                        pause += Duration::from_secs(bytes / BYTES_PER_SECOND);
                        Ok(())
                    }
                    Err(error) => Err(error),
                }
            } else {
                Ok(())
            };
            if let Err(error) = &outcome {
                served = true;
                kept = None;
                tracing::debug!(%error, "the last known state is not stored");
            }
            if (outcome.is_err() || failing)
                && facts.send(problem(outcome.as_ref().err())).await.is_err()
            {
                return;
            }
            failing = outcome.is_err();
            tokio::time::sleep(pause).await;
            tokio::select! {
                news = changes.changed() => if news.is_err() {
                    return;
                },
                () = role_changed(role.as_mut()) => {}
                () = tokio::time::sleep(AGAIN), if failing => {}
            }
        }
    }

    /// Writes what is served now, if it is something else than before. Returns how much was
    /// written.
    async fn keep(
        &self,
        handle: &EngineHandle<Backend>,
        kept: &mut Option<String>,
    ) -> Result<u64, StateError> {
        let Some(world) = handle.world().await else {
            return Ok(0);
        };
        let here = served_here(handle);
        let about = About {
            written: Timestamp::now(),
            cluster: self.cluster.clone(),
            configuration: self.configuration.clone(),
        };
        let before = kept.clone();
        let (print, bytes) = self
            .blocking(move |file| {
                let facts = facts_of(&world, &here);
                let snapshot = Snapshot { about, facts };
                let print = snapshot.print();
                if before.as_ref() == Some(&print) {
                    return Ok((print, 0));
                }
                let content = snapshot.encode();
                file.write(&content)?;
                Ok((print, content.len() as u64))
            })
            .await?;
        *kept = Some(print);
        Ok(bytes)
    }

    /// Remembers nothing any more: another replica serves.
    pub async fn forget(&self) -> Result<(), StateError> {
        self.blocking(SnapshotFile::remove).await
    }

    async fn blocking<T: Default + Send + 'static>(
        &self,
        work: impl FnOnce(&mut SnapshotFile) -> Result<T, StateError> + Send + 'static,
    ) -> Result<T, StateError> {
        let file = self.file.clone();
        let done = tokio::task::spawn_blocking(move || {
            work(&mut file.lock().unwrap_or_else(PoisonError::into_inner))
        });
        // It fails only where the runtime goes down.
        done.await.unwrap_or_else(|_| Ok(T::default()))
    }
}

async fn role_changed(role: Option<&mut watch::Receiver<Role>>) {
    let followed = match role {
        Some(role) => role.changed().await.is_ok(),
        None => false,
    };
    if !followed {
        std::future::pending::<()>().await;
    }
}

fn problem(error: Option<&StateError>) -> Fact {
    let reason = |error: &StateError| {
        Reason::warning(Code::StateNotWritten, error.to_string())
            .remedy("make room or correct the permissions; it is retried")
    };
    Fact::SourceProblems {
        part: "state directory".into(),
        reasons: error.map(reason).into_iter().collect(),
    }
}

/// The Services that an instance on this machine serves.
fn served_here(handle: &EngineHandle<Backend>) -> BTreeSet<ServiceKey> {
    let is_here = |instance: Option<InstanceId>| {
        let provider = instance.and_then(|it| it.of(&handle.providers));
        provider.is_some_and(|provider| provider.is_in_process())
    };
    handle.store.read(|pages| {
        let here = pages.records.iter().filter(|(_, it)| is_here(it.instance));
        here.map(|(key, _)| key.clone()).collect()
    })
}

/// Returns the facts on which Services are served: of those that have an address on record.
fn facts_of(world: &World, services: &BTreeSet<ServiceKey>) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut namespaces = BTreeSet::new();
    for pool in world.pools() {
        facts.push(Fact::Pool(pool.clone()));
    }
    let resources = world.resources(&ResourceKind::ALL);
    let others = resources.filter(|row| row.kind != ResourceKind::IpAddressPool);
    facts.extend(others.cloned().map(Fact::Resource));
    for node in world.nodes() {
        facts.push(Fact::Node(node.clone()));
    }
    for key in services {
        let Some(row) = world.service(key) else {
            continue;
        };
        if row.deleting || claims::claim(&row).is_none() {
            continue;
        }
        if namespaces.insert(key.shared_namespace().clone())
            && let Some(namespace) = world.namespace(key.namespace())
        {
            facts.push(Fact::Namespace(namespace.clone()));
        }
        let slices = world.slices_of(key);
        let slices = slices.map(|slice| without_cluster_ips(slice, world));
        facts.extend(slices.map(|slice| Fact::Slice(Arc::new(slice))));
        // Annotations are stored as they are.
        let named = world.cluster_ips_named_by(&row);
        if !named.is_empty() {
            facts.push(Fact::ClusterIps(key.clone(), named));
        }
        facts.push(Fact::Service(row));
    }
    facts
}

/// Leaves out endpoints that are no members because they are cluster IPs: of those only what
/// annotations name is remembered.
fn without_cluster_ips(mut slice: SliceRow, world: &World) -> SliceRow {
    let is_cluster_ip = |address: IpAddr| world.is_cluster_ip(address.to_canonical());
    slice.endpoints.retain(|it| !is_cluster_ip(it.address));
    slice
}

// === impl CarriedInstance ===

impl CarriedInstance {
    /// Serves what was served last. `beside`: other replicas may be on this machine.
    pub async fn start(
        options: &Options,
        snapshot: Snapshot,
        server: &str,
        beside: bool,
    ) -> anyhow::Result<Self> {
        let Snapshot { about, facts } = snapshot;
        let age = Timestamp::now().duration_since(about.written);
        tracing::warn!(
            server,
            written = %about.written,
            age_seconds = age.as_secs(),
            "the last known state is served until all objects were read from the API server"
        );
        let written = about.written;
        let reason = Reason::warning(
            Code::LastKnownState,
            format!(
                "{server} has not answered completely since the start; the state of {written} is \
                served"
            ),
        )
        .remedy("later changes are applied once it has; ports that terminate TLS are closed");
        let reported = Fact::SourceProblems {
            part: API_SERVER.into(),
            reasons: vec![reason],
        };
        let options = Options {
            instances: options.instances.without_clouds(),
            ..options.clone()
        };
        let lead = beside.then(|| Lead {
            role: watch::Sender::new(Role::Leading { term: 1 }).subscribe(),
            confirmed: false,
        });
        let start = Instance::start_on(
            StartState::default(),
            options,
            Lifetime::default(),
            Arc::new(NoReports),
            lead,
            |sender, lifetime| {
                let cancel = lifetime.cancel.clone();
                let incomplete = Fact::PoolsIncomplete {
                    part: API_SERVER.into(),
                    incomplete: true,
                };
                let first = [Fact::SecretsUnavailable, reported, incomplete];
                let all = first.into_iter().chain(facts).chain([Fact::Synced]);
                lifetime.tasks.spawn(async move {
                    for fact in all {
                        if sender.send(fact).await.is_err() {
                            return;
                        }
                    }
                    // The end of the facts would be the end of the control loop.
                    cancel.cancelled().await;
                });
            },
        );
        Ok(Self(start.await?))
    }

    /// Returns once the API server answers.
    pub async fn until_answered(&self, connection: &Connection) {
        if let Err(error) = connection.established().await {
            tracing::warn!(%error, "the API server can't be asked yet");
        }
        while !access::answers(connection).await {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Returns once the control loop has ended although nothing asked it to.
    pub async fn broken(&self) {
        self.0.broken().await;
    }

    /// Ends the control plane. Traffic goes on, and another one can be started on it.
    pub async fn let_go(self) -> StartState {
        self.0.let_go().await
    }

    /// Ends all of it.
    pub async fn stop(self, grace: Duration) {
        self.0.stop(grace).await;
    }
}

// === impl NoReports ===

impl NoReports {
    fn refusal(what: &'static str) -> ReportError {
        ReportError::Failed {
            what,
            why: "the API server does not answer".to_owned(),
        }
    }
}

impl Report for NoReports {
    async fn add_finalizer(
        &self,
        _service: &ServiceRow,
        _status: Option<&ServiceStatus>,
    ) -> Result<(), ReportError> {
        Err(Self::refusal("finalizer"))
    }

    async fn remove_finalizer(&self, _service: &ServiceRow) -> Result<(), ReportError> {
        Err(Self::refusal("finalizer"))
    }

    /// Takes what changes no address: conditions are for the page here. An address that is not on
    /// record may not be used.
    async fn write_status(
        &self,
        service: &ServiceRow,
        status: &ServiceStatus,
    ) -> Result<(), ReportError> {
        let addresses = |status: &ServiceStatus| -> BTreeSet<_> { status.addresses().collect() };
        if addresses(status).is_subset(&addresses(&service.status)) {
            Ok(())
        } else {
            Err(Self::refusal("status"))
        }
    }

    async fn event(&self, _service: &ServiceRow, _event: &Event) {}
}

/// Does something although it may fail, again and again.
pub async fn until_done<T, F: Future<Output = anyhow::Result<T>>>(work: impl Fn() -> F) -> T {
    loop {
        match work().await {
            Ok(done) => return done,
            Err(error) => {
                let error = format!("{error:#}");
                tracing::error!(
                    error,
                    "only the last known state is served; the start is retried soon"
                );
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

#[cfg(test)]
mod tests;
