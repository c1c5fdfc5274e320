//! The provider under the engine, with a source that is a map.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use landfall_engine::report::Event;
use landfall_engine::{Classes, Engine, EngineConfig, Report, ReportError};
use landfall_model::ServiceKey;
use landfall_model::rows::{Fact, ServiceRow};
use landfall_model::status::ServiceStatus;
use landfall_testkit::{slice, svc};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::mock::{Crash, Mock, SECRET};
use crate::provider::Toy;

/// No scenario takes longer; the clock is the test's.
const LONGEST: Duration = Duration::from_secs(3600);

/// The cluster: what is written comes back as a fact.
#[derive(Clone, Default)]
struct Cluster(Arc<Inner>);

#[derive(Default)]
struct Inner {
    rows: Mutex<BTreeMap<ServiceKey, ServiceRow>>,
    facts: Mutex<Option<mpsc::Sender<Fact>>>,
}

/// A running engine.
struct Process {
    task: tokio::task::JoinHandle<()>,
    _wakes: mpsc::Sender<landfall_model::Uid>,
}

impl Cluster {
    async fn change(&self, key: &ServiceKey, change: impl FnOnce(&mut ServiceRow)) {
        let fact = {
            let mut rows = self.0.rows.lock().unwrap();
            let Some(row) = rows.get_mut(key) else {
                return;
            };
            change(row);
            if row.deleting && !row.finalized {
                rows.remove(key);
                Fact::ServiceGone(key.clone())
            } else {
                Fact::Service(Arc::new(row.clone()))
            }
        };
        self.send(fact).await;
    }

    async fn send(&self, fact: Fact) {
        let facts = self.0.facts.lock().unwrap().clone();
        if let Some(facts) = facts {
            let _sent = facts.send(fact).await;
        }
    }

    /// Creates a Service, or changes its ports.
    async fn apply(&self, port: u16) {
        let row = svc("web").port(port).row();
        self.0
            .rows
            .lock()
            .unwrap()
            .entry(row.key.clone())
            .or_insert_with(|| ServiceRow::clone(&row));
        self.change(&row.key, |it| it.ports.clone_from(&row.ports))
            .await;
        let slice = slice("web").port("", 8080).ready("10.0.0.1").row();
        self.send(Fact::Slice(slice)).await;
    }

    async fn delete(&self) {
        let key = svc("web").row().key.clone();
        self.change(&key, |row| row.deleting = true).await;
    }

    fn row(&self) -> Option<ServiceRow> {
        self.0.rows.lock().unwrap().values().next().cloned()
    }

    /// Starts a process that knows nothing but the cluster.
    async fn start(&self, mock: &Mock) -> Process {
        let (facts, receiver) = mpsc::channel(64);
        let (wakes, woken) = mpsc::channel(1);
        let rows: Vec<_> = self.0.rows.lock().unwrap().values().cloned().collect();
        *self.0.facts.lock().unwrap() = Some(facts.clone());
        let config = EngineConfig {
            now: || Timestamp::UNIX_EPOCH,
            ..EngineConfig::new(Classes::only("toy"))
        };
        let toy = Arc::new(Toy::new(mock.transport(), SECRET));
        let engine = Engine::new(config, vec![toy], Arc::new(self.clone()));
        let task = tokio::spawn(engine.run(receiver, woken, CancellationToken::new()));
        let slice = slice("web").port("", 8080).ready("10.0.0.1").row();
        self.send(Fact::Slice(slice)).await;
        for row in rows {
            self.send(Fact::Service(Arc::new(row))).await;
        }
        self.send(Fact::Synced).await;
        Process {
            task,
            _wakes: wakes,
        }
    }
}

impl Report for Cluster {
    async fn add_finalizer(
        &self,
        row: &ServiceRow,
        status: Option<&ServiceStatus>,
    ) -> Result<(), ReportError> {
        self.change(&row.key, |row| {
            row.finalized = true;
            row.status = status.cloned().unwrap_or_else(|| row.status.clone());
        })
        .await;
        Ok(())
    }

    async fn remove_finalizer(&self, row: &ServiceRow) -> Result<(), ReportError> {
        self.change(&row.key, |row| row.finalized = false).await;
        Ok(())
    }

    async fn write_status(
        &self,
        row: &ServiceRow,
        status: &ServiceStatus,
    ) -> Result<(), ReportError> {
        self.change(&row.key, |row| row.status = status.clone())
            .await;
        Ok(())
    }

    async fn event(&self, _row: &ServiceRow, _event: &Event) {}
}

impl Process {
    async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}

async fn until(what: &str, met: impl Fn() -> bool) {
    let wait = async {
        while !met() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let met = tokio::time::timeout(LONGEST, wait).await;
    assert!(met.is_ok(), "never: {what}");
}

/// Whether one load balancer serves this port alone, and its address is published.
fn serves(mock: &Mock, cluster: &Cluster, port: u16) -> bool {
    let running = mock.running();
    let ports: Vec<_> = running.iter().map(|it| it[0]["port"].as_u64()).collect();
    let published = cluster.row().is_some_and(|row| {
        let ingress = &row.status.ingress;
        ingress.first().is_some_and(|it| it.ip.is_some())
    });
    ports == [Some(u64::from(port))] && mock.count() == 1 && published
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_is_created_edited_and_deleted() {
    let (mock, cluster) = (Mock::default(), Cluster::default());
    let process = cluster.start(&mock).await;
    cluster.apply(80).await;
    until("it serves", || serves(&mock, &cluster, 80)).await;
    cluster.apply(81).await;
    until("it serves the new port", || serves(&mock, &cluster, 81)).await;
    cluster.delete().await;
    until("it is gone", || {
        mock.count() == 0 && cluster.row().is_none()
    })
    .await;
    assert_eq!(mock.writes(), 3, "each change is one request");
    process.kill().await;
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_fails_is_repeated() {
    let (mock, cluster) = (Mock::default(), Cluster::default());
    mock.fail_next();
    let process = cluster.start(&mock).await;
    cluster.apply(80).await;
    until("it serves", || serves(&mock, &cluster, 80)).await;
    assert_eq!(mock.writes(), 2);
    process.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_before_or_after_any_write_leaves_one_load_balancer_and_then_none() {
    for write in 1..=3 {
        for crash in [Crash::Before(write), Crash::After(write)] {
            let (mock, cluster) = (Mock::default(), Cluster::default());
            mock.crash_at(crash);
            let process = cluster.start(&mock).await;
            let life = async {
                cluster.apply(80).await;
                until("it serves", || serves(&mock, &cluster, 80)).await;
                cluster.apply(81).await;
                until("it serves the new port", || serves(&mock, &cluster, 81)).await;
                cluster.delete().await;
                until("it is gone", || {
                    mock.count() == 0 && cluster.row().is_none()
                })
                .await;
            };
            let other = async {
                mock.crashed().await;
                process.kill().await;
                // The cloud goes on by itself.
                mock.finish_all();
                cluster.start(&mock).await
            };
            let ((), second) = tokio::join!(life, other);
            let repeated = usize::from(matches!(crash, Crash::Before(_)));
            assert_eq!(mock.writes(), 3 + repeated, "write {write}");
            second.kill().await;
        }
    }
}
