//! Everything that is watched, together: facts into one channel, `Synced` once all is known, and
//! how the connection fares.

use std::sync::Arc;
use std::time::Instant;

use landfall_engine::leadership::Role;
use landfall_model::rows::Fact;
use landfall_model::view::SecretsView;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::SourceConfig;
use crate::connect::Connection;
use crate::health::{Health, HealthReport};
use crate::secrets::SecretsTask;
use crate::watch::{Kind, Listings, Renewal, Watcher, answered};

/// What is running. The facts end when it is cancelled.
#[derive(Debug)]
pub struct Sources {
    health: watch::Receiver<Health>,
    secrets: watch::Receiver<SecretsView>,
}

// === impl Sources ===

impl Sources {
    /// Starts to watch. Every task is the tracker's, and ends when cancelled. `role`: whenever
    /// another term begins in which this replica leads, everything but Secrets is listed again, and
    /// then [`Fact::Current`] is sent, behind the Secrets that are named for the first time.
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
        let resources = config.resources.kinds.iter().map(|kind| Kind::Resources {
            kind: *kind,
            namespace: config.resources.namespace.clone(),
        });
        for kind in [Kind::Slices, Kind::Nodes, Kind::Namespaces]
            .into_iter()
            .chain(resources)
        {
            let (renewal, listings) = Renewal::when(ask.subscribe());
            awaited.push(listings);
            start(kind, facts.clone(), renewal, Some(listed.clone()));
        }
        let (answer, known) = oneshot::channel();
        let task = SecretsTask::new(connection.clone(), config, facts.clone(), report, answer);
        let secrets = task.counts();
        tasks.spawn(task.run(from_services, listed, cancel.clone()));
        let first = report_synced(awaited.clone(), known, facts);
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
async fn report_synced(
    mut awaited: Vec<Listings>,
    secrets: oneshot::Receiver<()>,
    facts: mpsc::Sender<Fact>,
) {
    // A watch ends without an answer only when it is cancelled.
    if all_answered(&mut awaited, 0).await && secrets.await.is_ok() {
        let _receiver_closed = facts.send(Fact::Synced).await;
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

/// Has everything listed again when this replica comes to lead: what the leader before has written
/// must be known before anything else is. Within a term there was no other one.
async fn renew(
    mut role: watch::Receiver<Role>,
    ask: watch::Sender<u64>,
    mut awaited: Vec<Listings>,
    facts: mpsc::Sender<Fact>,
) {
    let (mut reported, mut asked) = (None, None);
    loop {
        let now = *role.borrow_and_update();
        let Role::Leading { term } = now else {
            if role.changed().await.is_err() {
                return;
            }
            continue;
        };
        if reported != Some(term) {
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
                    reported = Some(term);
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
