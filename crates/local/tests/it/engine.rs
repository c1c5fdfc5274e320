//! The provider under the engine, with a data plane that carries traffic and a source whose writes
//! fail when a test says so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use landfall_engine::backoff::Backoff;
use landfall_engine::report::Event;
use landfall_engine::{Classes, Engine, EngineConfig, Report, ReportError};
use landfall_local::Local;
use landfall_model::marks::managed_annotations;
use landfall_model::rows::{Fact, ServiceRow};
use landfall_model::status::{HELD_ADDRESSES, ServiceStatus};
use landfall_model::{ServiceKey, Uid};
use landfall_testkit::svc;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::ownership::{Machine, server};

/// Nothing here takes this long, however busy the machine.
const LONGEST: Duration = Duration::from_secs(30);

/// The source's side: what is written comes back as a fact.
struct Source {
    rows: Mutex<BTreeMap<ServiceKey, ServiceRow>>,
    facts: mpsc::Sender<Fact>,
    /// Services whose status can't be written.
    failing: Mutex<BTreeSet<ServiceKey>>,
    /// Attempts that failed.
    failed: Mutex<BTreeMap<ServiceKey, usize>>,
    /// Every status that was written.
    statuses: Mutex<Vec<(ServiceKey, ServiceStatus)>>,
}

struct Lab {
    machine: Machine,
    source: Arc<Source>,
    cancel: CancellationToken,
    _wakes: mpsc::Sender<Uid>,
    task: tokio::task::JoinHandle<()>,
}

impl Source {
    async fn change(
        &self,
        key: &ServiceKey,
        change: impl FnOnce(&mut ServiceRow),
    ) -> Result<(), ReportError> {
        let fact = {
            let mut rows = self.rows.lock().unwrap();
            let Some(row) = rows.get_mut(key) else {
                return Ok(());
            };
            change(row);
            if row.deleting && !row.finalized {
                rows.remove(key);
                Fact::ServiceGone(key.clone())
            } else {
                Fact::Service(Arc::new(row.clone()))
            }
        };
        self.facts.send(fact).await.unwrap();
        Ok(())
    }

    /// Fails, and counts it, where the test says so.
    fn fail(&self, key: &ServiceKey, what: &'static str) -> Result<(), ReportError> {
        if !self.failing.lock().unwrap().contains(key) {
            return Ok(());
        }
        let mut failed = self.failed.lock().unwrap();
        *failed.entry(key.clone()).or_default() += 1;
        Err(ReportError::Failed {
            what,
            why: "the test says so".to_owned(),
        })
    }
}

impl Report for Source {
    async fn add_finalizer(
        &self,
        row: &ServiceRow,
        status: Option<&ServiceStatus>,
    ) -> Result<(), ReportError> {
        self.fail(&row.key, "finalizer")?;
        if let Some(status) = status {
            let written = (row.key.clone(), status.clone());
            self.statuses.lock().unwrap().push(written);
        }
        self.change(&row.key, |row| {
            row.finalized = true;
            if let Some(status) = status {
                put_status(row, status);
            }
        })
        .await
    }

    async fn remove_finalizer(&self, row: &ServiceRow) -> Result<(), ReportError> {
        self.fail(&row.key, "finalizer")?;
        self.change(&row.key, |row| row.finalized = false).await
    }

    async fn write_status(
        &self,
        row: &ServiceRow,
        status: &ServiceStatus,
    ) -> Result<(), ReportError> {
        self.fail(&row.key, "status")?;
        let written = (row.key.clone(), status.clone());
        self.statuses.lock().unwrap().push(written);
        self.change(&row.key, |row| put_status(row, status)).await
    }

    async fn event(&self, _row: &ServiceRow, _event: &Event) {}
}

fn put_status(row: &mut ServiceRow, status: &ServiceStatus) {
    for mark in managed_annotations() {
        row.annotations.remove(mark);
    }
    row.annotations.extend(status.marks.clone());
    row.status = status.clone();
}

impl Lab {
    async fn start(address: &str) -> Self {
        let machine = Machine::start(address);
        let (facts, receiver) = mpsc::channel(1024);
        let (wakes, woken) = mpsc::channel(16);
        let source = Arc::new(Source {
            rows: Mutex::default(),
            facts,
            failing: Mutex::default(),
            failed: Mutex::default(),
            statuses: Mutex::default(),
        });
        let quick = Duration::from_millis(5);
        let config = EngineConfig {
            now: || Timestamp::UNIX_EPOCH,
            audit_every: Duration::from_millis(50),
            backoff: Backoff {
                first: quick,
                longest: quick,
            },
            ..EngineConfig::new(Classes::only("local"))
        };
        let providers: Vec<Arc<Local>> = vec![machine.local.clone()];
        let engine = Engine::new(config, providers, source.clone());
        let cancel = CancellationToken::new();
        let task = tokio::spawn(engine.run(receiver, woken, cancel.clone()));
        let pool = landfall_model::rows::PoolRow {
            name: "default".to_owned(),
            addresses: vec![format!("{address}/32")],
            auto_assign: true,
            ..landfall_model::rows::PoolRow::default()
        };
        source.facts.send(Fact::Pool(Arc::new(pool))).await.unwrap();
        source.facts.send(Fact::Synced).await.unwrap();
        Self {
            machine,
            source,
            cancel,
            _wakes: wakes,
            task,
        }
    }

    /// Creates a Service or edits its spec, as the API server does.
    async fn edit(&self, row: &ServiceRow) {
        let row = {
            let mut rows = self.source.rows.lock().unwrap();
            let mut row = row.clone();
            if let Some(before) = rows.get(&row.key) {
                row.finalized = before.finalized;
                row.status = before.status.clone();
                let marks = before.annotations.iter();
                let marks = marks.filter(|(key, _)| managed_annotations().any(|it| it == *key));
                row.annotations
                    .extend(marks.map(|(key, value)| (key.clone(), value.clone())));
            }
            rows.insert(row.key.clone(), row.clone());
            Arc::new(row)
        };
        self.source.facts.send(Fact::Service(row)).await.unwrap();
    }

    fn fail(&self, name: &str, fails: bool) {
        let key = key(name);
        let mut failing = self.source.failing.lock().unwrap();
        if fails {
            failing.insert(key);
        } else {
            failing.remove(&key);
        }
    }

    fn failed(&self, name: &str) -> usize {
        let failed = self.source.failed.lock().unwrap();
        failed.get(&key(name)).copied().unwrap_or(0)
    }

    async fn until(&self, what: &str, met: impl Fn() -> bool) {
        let wait = async {
            while !met() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let met = tokio::time::timeout(LONGEST, wait).await;
        assert!(met.is_ok(), "never: {what}; {:?}", self.machine.owners());
    }

    async fn until_owners(&self, expected: &[(u16, &str)]) {
        let expected: BTreeMap<u16, Uid> = expected
            .iter()
            .map(|(port, name)| (*port, uid(name)))
            .collect();
        let what = format!("{expected:?}");
        self.until(&what, || self.machine.owners() == expected)
            .await;
    }

    /// What a client reads at a port.
    async fn receive(&self, port: u16) -> String {
        let address = self.machine.id(port).socket_address();
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    async fn stop(self) {
        self.cancel.cancel();
        self.task.await.unwrap();
    }
}

fn key(name: &str) -> ServiceKey {
    svc(name).row().key.clone()
}

fn uid(name: &str) -> Uid {
    svc(name).row().uid.clone()
}

/// A Service that publishes another name with each port, so that each edit writes a status.
async fn sharing(name: &'static str, port: u16) -> Arc<ServiceRow> {
    svc(name)
        .port(port)
        .annotated(
            "landfall.dev/hostname",
            &format!("{name}-{port}.example.com"),
        )
        .annotated("landfall.dev/sharing-key", "k")
        .annotated("landfall.dev/endpoints", &server(name).await.to_string())
        .row()
}

#[tokio::test]
async fn two_services_swap_a_port_while_a_status_can_not_be_written() {
    let lab = Lab::start("127.78.2.1").await;
    lab.edit(&*sharing("a", 8081).await).await;
    lab.edit(&*sharing("b", 8082).await).await;
    lab.until_owners(&[(8081, "a"), (8082, "b")]).await;
    lab.fail("a", true);
    lab.edit(&*sharing("a", 8083).await).await;
    lab.until("a status fails", || lab.failed("a") > 0).await;
    lab.edit(&*sharing("b", 8081).await).await;
    lab.until_owners(&[(8083, "a"), (8081, "b")]).await;
    lab.edit(&*sharing("a", 8082).await).await;
    let before = lab.failed("a");
    lab.until("it fails again", || lab.failed("a") > before + 2)
        .await;
    lab.fail("a", false);
    lab.until_owners(&[(8082, "a"), (8081, "b")]).await;
    assert_eq!(
        (lab.receive(8082).await, lab.receive(8081).await),
        ("a".to_owned(), "b".to_owned())
    );
    lab.stop().await;
}

#[tokio::test]
async fn an_audit_opens_a_listener_that_the_data_plane_lost() {
    let lab = Lab::start("127.78.2.2").await;
    lab.edit(&*sharing("a", 8081).await).await;
    lab.until_owners(&[(8081, "a")]).await;
    let id = lab.machine.id(8081);
    let lost = lab.machine.proxy.find(id).unwrap();
    assert!(lab.machine.proxy.close(id, &uid("a")).await);
    lab.until("it is open again", || {
        let found = lab.machine.proxy.find(id);
        found.is_some_and(|found| !Arc::ptr_eq(&found, &lost))
    })
    .await;
    assert_eq!(lab.receive(8081).await, "a");
    lab.stop().await;
}

#[tokio::test]
async fn nothing_listens_on_an_address_whose_claim_can_not_be_written() {
    let lab = Lab::start("127.78.2.3").await;
    lab.fail("a", true);
    lab.edit(&*sharing("a", 8081).await).await;
    lab.until("it fails often", || lab.failed("a") > 5).await;
    assert_eq!(lab.machine.owners(), BTreeMap::new());
    lab.fail("a", false);
    lab.until_owners(&[(8081, "a")]).await;
    lab.stop().await;
}

#[tokio::test]
async fn the_address_of_a_deleted_service_is_free_once_its_finalizer_is_off() {
    let lab = Lab::start("127.78.2.4").await;
    lab.edit(&svc("a").port(8081).row()).await;
    lab.until_owners(&[(8081, "a")]).await;
    lab.edit(&svc("b").port(8082).row()).await;
    lab.fail("a", true);
    lab.source
        .change(&key("a"), |row| row.deleting = true)
        .await
        .unwrap();
    lab.until_owners(&[]).await;
    let before = lab.failed("a");
    lab.until("the finalizer stays", || lab.failed("a") > before + 5)
        .await;
    assert_eq!(lab.machine.owners(), BTreeMap::new(), "b must wait");
    lab.fail("a", false);
    lab.until_owners(&[(8082, "b")]).await;
    lab.stop().await;
}

#[tokio::test]
async fn an_address_behind_a_name_is_on_record_from_the_first_status_on() {
    let lab = Lab::start("127.78.2.5").await;
    let named = svc("a")
        .port(8081)
        .annotated("landfall.dev/hostname", "web.example.com")
        .row();
    lab.edit(&named).await;
    lab.until_owners(&[(8081, "a")]).await;
    let statuses = lab.source.statuses.lock().unwrap().clone();
    assert!(!statuses.is_empty());
    for (_, status) in &statuses {
        assert_eq!(status.marks[HELD_ADDRESSES], "127.78.2.5");
        assert_eq!(status.addresses().count(), 0, "{status:?}");
        assert_eq!(
            status.ingress[0].hostname.as_deref(),
            Some("web.example.com")
        );
    }
    lab.stop().await;
}

#[tokio::test]
async fn no_node_may_deliver_around_the_listener() {
    let lab = Lab::start("127.78.2.6").await;
    lab.edit(&svc("a").port(8081).row()).await;
    lab.until_owners(&[(8081, "a")]).await;
    let statuses = lab.source.statuses.lock().unwrap().clone();
    for (_, status) in &statuses {
        let mode = landfall_model::status::IpMode::Proxy;
        assert_eq!(status.ingress[0].ip_mode, Some(mode));
    }
    lab.stop().await;
}

#[tokio::test]
async fn an_address_that_had_to_be_given_up_wakes_the_service_that_waits_for_it() {
    gives_up_an_address("127.78.2.7", None).await;
}

#[tokio::test]
async fn an_address_behind_a_name_that_had_to_be_given_up_wakes_the_service_that_waits() {
    gives_up_an_address("127.78.2.17", Some("web.example.com")).await;
}

async fn gives_up_an_address(address: &str, hostname: Option<&str>) {
    let lab = Lab::start(address).await;
    let with_key = |name: &str, port, key: &str| {
        let service = svc(name).port(port);
        let service = match hostname {
            Some(hostname) => service.annotated("landfall.dev/hostname", hostname),
            None => service,
        };
        service.annotated("landfall.dev/sharing-key", key).row()
    };
    lab.edit(&with_key("a", 8081, "k")).await;
    lab.edit(&with_key("b", 8082, "k")).await;
    lab.until_owners(&[(8081, "a"), (8082, "b")]).await;
    // The port is b's, and there is no other address.
    lab.edit(&with_key("c", 8082, "k")).await;
    let is_refused = || {
        let rows = lab.source.rows.lock().unwrap();
        let conditions = &rows[&key("c")].status.conditions;
        let accepted = conditions.iter().find(|it| !it.status);
        accepted.is_some_and(|it| it.reason != landfall_model::Code::Progressing)
    };
    lab.until("c is refused", is_refused).await;
    // Another key leaves the others alone.
    lab.edit(&with_key("b", 8082, "other")).await;
    lab.until_owners(&[(8081, "a"), (8082, "c")]).await;
    lab.stop().await;
}
