//! Everything that is watched, together: facts into one channel, `Synced` once all is known, and
//! how the connection fares.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_engine::leadership::Role;
use landfall_model::limits::Limits;
use landfall_model::rows::{Fact, METALLB_NAMESPACE};
use landfall_model::view::SecretsView;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connect::Connection;
use crate::secrets::SecretsTask;
use crate::watch::{Kind, Listings, Renewal, Watcher, answered};

/// How the API server is watched.
#[derive(Clone, Debug)]
pub struct SourceConfig {
    /// Where MetalLB's `IPAddressPools` are; `None`: they are not watched.
    pub pool_namespace: Option<String>,
    /// Whether lists may be streamed where the server offers it.
    pub streaming: bool,
    /// Objects per page where lists are not streamed.
    pub page: u32,
    /// The server ends a watch within this long.
    pub longest_watch: Duration,
    /// A watch without a word for this long is broken. Servers send a bookmark every minute or so.
    pub longest_silence: Duration,
    /// From one look to the next for a kind that does not exist or may not be read.
    pub look_again: Duration,
    /// How long a Service is held back for a Secret that it has only just named.
    pub secret_patience: Duration,
    /// After this long of failures what was known of a kind stands in for a list of it.
    pub stands_in_after: Duration,
    /// How many Secrets are watched.
    pub limits: Limits,
}

/// What is running. The facts end when it is cancelled.
#[derive(Debug)]
pub struct Sources {
    health: watch::Receiver<Health>,
    secrets: watch::Receiver<SecretsView>,
}

/// What can't be followed at the moment, and why. While something can't, facts about it are as old
/// as the failure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    failing: BTreeMap<String, String>,
}

/// A handle for watches to tell how they fare.
#[derive(Clone, Debug)]
pub(crate) struct HealthReport(Arc<watch::Sender<Health>>);

// === impl SourceConfig ===

impl Default for SourceConfig {
    fn default() -> Self {
        Self {
            pool_namespace: Some(METALLB_NAMESPACE.to_owned()),
            streaming: true,
            page: 500,
            longest_watch: Duration::from_secs(600),
            longest_silence: Duration::from_secs(180),
            look_again: Duration::from_secs(60),
            secret_patience: Duration::from_secs(3),
            stands_in_after: Duration::from_secs(30),
            limits: Limits::default(),
        }
    }
}

// === impl Sources ===

impl Sources {
    /// Starts to watch. Every task is the tracker's, and ends when cancelled. `role`: whenever
    /// another term begins in which this replica leads, everything but Secrets is listed anew, and
    /// then [`Fact::Current`] is told, behind the Secrets that are named for the first time.
    pub fn start(
        connection: &Connection,
        config: SourceConfig,
        facts: mpsc::Sender<Fact>,
        role: Option<watch::Receiver<Role>>,
        tasks: &TaskTracker,
        cancel: &CancellationToken,
    ) -> Self {
        let config = Arc::new(config);
        let (sender, health) = watch::channel(Health::default());
        let report = HealthReport(Arc::new(sender));
        let ask = watch::Sender::new(0);
        let (renewal, listed) = Renewal::when(ask.subscribe());
        let mut awaited: Vec<Listings> = vec![listed.clone()];
        let start = |kind: Kind, facts: mpsc::Sender<Fact>, renewal: Renewal, beside| {
            let watcher = Watcher::new(
                connection.clone(),
                config.clone(),
                kind,
                facts,
                report.clone(),
                renewal,
                beside,
            );
            tasks.spawn(watcher.run(cancel.clone()));
        };
        let (services, from_services) = mpsc::channel(64);
        start(Kind::Services, services.clone(), renewal, None);
        let pools = config.pool_namespace.clone();
        let pools = pools.map(|namespace| Kind::Pools { namespace });
        for kind in [Kind::Slices, Kind::Nodes, Kind::Namespaces]
            .into_iter()
            .chain(pools)
        {
            let (renewal, listings) = Renewal::when(ask.subscribe());
            awaited.push(listings);
            start(kind, facts.clone(), renewal, Some(listed.clone()));
        }
        let (answer, known) = oneshot::channel();
        let task = SecretsTask::new(connection.clone(), config, facts.clone(), report, answer);
        let secrets = task.counts();
        tasks.spawn(task.run(from_services, listed, cancel.clone()));
        let first = tell_synced(awaited.clone(), known, facts);
        tasks.spawn(cancel.clone().run_until_cancelled_owned(first));
        if let Some(role) = role {
            // Behind all facts about Services, which are the last to arrive.
            let renewing = renew(role, ask, awaited, services);
            tasks.spawn(cancel.clone().run_until_cancelled_owned(renewing));
        }
        Self { health, secrets }
    }

    /// How many Secrets are watched, for metrics.
    pub fn secrets(&self) -> watch::Receiver<SecretsView> {
        self.secrets.clone()
    }

    /// How the connection fares, for readiness.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.health.clone()
    }
}

/// Says when everything is known for the first time.
async fn tell_synced(
    mut awaited: Vec<Listings>,
    secrets: oneshot::Receiver<()>,
    facts: mpsc::Sender<Fact>,
) {
    // A watch ends without an answer only when it is cancelled.
    if all_answered(&mut awaited, 0).await && secrets.await.is_ok() {
        let _unheard = facts.send(Fact::Synced).await;
    }
}

async fn all_answered(listings: &mut [Listings], question: u64) -> bool {
    for listings in listings {
        if !answered(listings, question).await {
            return false;
        }
    }
    true
}

/// Has everything listed anew when this replica comes to lead: what the leader before has written
/// must be known before anything else is. Within a term there was no other one.
async fn renew(
    mut role: watch::Receiver<Role>,
    ask: watch::Sender<u64>,
    mut awaited: Vec<Listings>,
    facts: mpsc::Sender<Fact>,
) {
    let (mut told, mut asked) = (None, None);
    loop {
        let now = *role.borrow_and_update();
        let Role::Leading { term } = now else {
            if role.changed().await.is_err() {
                return;
            }
            continue;
        };
        if told != Some(term) {
            let began = Instant::now();
            // What was asked since the term began holds for all of it, however often it is
            // interrupted: to ask again would break off what is being listed.
            let question = match asked {
                Some((of, question)) if of == term => question,
                _ => {
                    ask.send_modify(|times| *times += 1);
                    *ask.borrow()
                }
            };
            asked = Some((term, question));
            tokio::select! {
                all = all_answered(&mut awaited, question) => {
                    let fact = Fact::Current { term };
                    if !all || facts.send(fact).await.is_err() {
                        return;
                    }
                    let took_ms = began.elapsed().as_millis();
                    tracing::info!(took_ms, "listed all objects again");
                    told = Some(term);
                }
                changed = role.changed() => if changed.is_err() {
                    return;
                } else {
                    continue;
                }
            }
        }
        if role.changed().await.is_err() {
            return;
        }
    }
}

// === impl Health ===

impl Health {
    /// Whether everything is followed.
    pub fn is_connected(&self) -> bool {
        self.failing.is_empty()
    }

    /// What is not followed, with the reason.
    pub fn failing(&self) -> impl Iterator<Item = (&str, &str)> {
        self.failing
            .iter()
            .map(|(what, why)| (what.as_str(), why.as_str()))
    }
}

// === impl HealthReport ===

impl HealthReport {
    pub(crate) fn failed(&self, kind: &Kind, why: String) {
        let what = name(kind);
        self.0.send_if_modified(|health| {
            if health.failing.get(&what) == Some(&why) {
                return false;
            }
            health.failing.insert(what, why);
            true
        });
    }

    pub(crate) fn recovered(&self, kind: &Kind) {
        self.0
            .send_if_modified(|health| health.failing.remove(&name(kind)).is_some());
    }
}

fn name(kind: &Kind) -> String {
    match kind {
        Kind::Secret(key) => format!("Secret {key}"),
        other => other.resource(),
    }
}
