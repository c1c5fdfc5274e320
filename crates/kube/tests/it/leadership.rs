//! Of several replicas one writes, and never two.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use landfall_engine::leadership::{Role, Times};
use landfall_engine::report::Report;
use landfall_kube::lease::identity;
use landfall_kube::{Election, KubeReports, LeaseConfig};
use landfall_model::rows::ServiceRow;
use landfall_model::status::{IngressAddress, ServiceStatus};
use landfall_model::{ServiceKey, Uid};
use landfall_testkit::cluster::{AuditEntry, Cluster, Options};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::support::{Relay, cluster, connect, connect_by, install, service};

/// Short, so that tests are. Leases are counted in whole seconds.
const TIMES: Times = Times {
    lease: Duration::from_secs(3),
    renew_deadline: Duration::from_millis(1800),
    retry: Duration::from_millis(400),
};

const DEADLINE: Duration = Duration::from_secs(30);

fn config(name: &str, identity: &str) -> LeaseConfig {
    LeaseConfig {
        name: name.to_owned(),
        times: TIMES,
        ..LeaseConfig::new("landfall-system", identity)
    }
}

async fn leads(election: &Election, wanted: bool) {
    let mut leading = election.leading();
    let reached = leading.wait_for(|leads| *leads == wanted);
    tokio::time::timeout(DEADLINE, reached)
        .await
        .expect("the lead passes in time")
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_three_leads_and_hands_over_at_once_when_it_stops() {
    let cluster = Cluster::start(Options::default()).await.unwrap();
    install(&cluster).await;
    let tasks = TaskTracker::new();
    let mut running = Vec::new();
    for name in ["a", "b", "c"] {
        let connection = connect(&cluster, &format!("landfall/{name}")).await;
        let mut config = LeaseConfig::new("landfall-system", &identity(name));
        // Long enough that no replica gets the Lease because it expires, nor because it has waited:
        // the first one need not.
        config.times = Times {
            lease: Duration::from_secs(600),
            retry: Duration::from_secs(1),
            ..Times::default()
        };
        running.push(Election::start(connection, config, &tasks));
    }
    for left in (1..=3).rev() {
        let first = async {
            loop {
                let leader = running
                    .iter()
                    .position(|election| *election.leading().borrow());
                if let Some(leader) = leader {
                    return leader;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let leader = tokio::time::timeout(Duration::from_secs(10), first)
            .await
            .unwrap();
        let count = running
            .iter()
            .filter(|election| *election.leading().borrow())
            .count();
        assert_eq!((count, running.len()), (1, left));
        running.remove(leader).release().await;
    }
    let lease = cluster
        .kubectl()
        .get(&["-n", "landfall-system", "lease", "landfall"])
        .await
        .unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], "");
    assert_eq!(lease["spec"]["leaseTransitions"], 3);
    let at = ["-n", "landfall-system", "lease", "landfall-led"];
    cluster.kubectl().get(&at).await.expect("the marker stays");
}

/// Returns how long after making the Lease of this name a replica led, by the API server's log.
async fn waited(cluster: &Cluster, name: &str) -> Duration {
    let audit = cluster.audit();
    let tasks = TaskTracker::new();
    let agent = format!("landfall/{name}");
    let connection = connect(cluster, &agent).await;
    let election = Election::start(connection, config(name, &identity(name)), &tasks);
    leads(&election, true).await;
    let written = |verb: &str| -> jiff::Timestamp {
        let mut entries = audit.entries().unwrap().into_iter();
        let entry = entries.find(|it| it.user_agent == agent && it.verb == verb);
        entry.unwrap().received.parse().unwrap()
    };
    let (made, led) = (written("create"), written("update"));
    election.release().await;
    led.duration_since(made).unsigned_abs()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_waits_for_a_leader_where_any_sign_of_one_is_left() {
    let cluster = cluster().await;
    allow_any_lease(cluster).await;
    // A replica has led by this name before: its marker stays when its Lease is deleted.
    let marker = "apiVersion: coordination.k8s.io/v1\nkind: Lease\n\
                  metadata: {name: marked-led, namespace: landfall-system}";
    cluster.kubectl().apply(marker).await.unwrap();
    // Or both are gone, and a Service is served.
    let namespace = cluster.namespace("held").await.unwrap();
    let finalizers = "finalizers: [service.kubernetes.io/load-balancer-cleanup]";
    let held = service(&namespace, "held", "");
    let held = held.replace("metadata: {", &format!("metadata: {{{finalizers}, "));
    cluster.kubectl().apply(&held).await.unwrap();
    let (after_marker, after_service) =
        tokio::join!(waited(cluster, "marked"), waited(cluster, "unmarked"));
    let least = TIMES.renew_deadline;
    assert!(
        after_marker >= least && after_service >= least,
        "{after_marker:?}, {after_service:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_cut_off_has_stopped_before_another_begins() {
    let cluster = cluster().await;
    let kubectl = cluster.kubectl();
    allow_any_lease(cluster).await;
    let tasks = TaskTracker::new();
    let relay = Relay::to(cluster).await;
    let first = connect_by(relay.kubeconfig(), "landfall/first").await;
    let first = Election::start(first, config("cut", &identity("first")), &tasks);
    leads(&first, true).await;
    let second = connect(cluster, "landfall/second").await;
    let second = Election::start(second, config("cut", &identity("second")), &tasks);
    relay.cut();
    let mut led = second.leading();
    let led = led.wait_for(|leads| {
        // Read in the moment in which the other one begins.
        assert!(!*leads || !*first.leading().borrow());
        *leads
    });
    tokio::time::timeout(DEADLINE, led)
        .await
        .expect("another leads in time")
        .unwrap();
    relay.repair();
    // It finds out that it has lost, and does not take the Lease back.
    let lease = kubectl
        .get(&["-n", "landfall-system", "lease", "cut"])
        .await
        .unwrap();
    assert!(
        lease["spec"]["holderIdentity"]
            .as_str()
            .unwrap()
            .starts_with("second_"),
        "{lease}"
    );
    assert!(!*first.leading().borrow());
    second.release().await;
    leads(&first, true).await;
    first.release().await;
}

async fn has_role(election: &Election, what: &str, wanted: impl Fn(Role) -> bool) {
    let mut role = election.role();
    let reached = role.wait_for(|role| wanted(*role));
    tokio::time::timeout(DEADLINE, reached)
        .await
        .unwrap_or_else(|_| panic!("never {what}"))
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_lost_its_lease_carries_until_the_next_one_says_that_it_serves() {
    let cluster = cluster().await;
    allow_any_lease(cluster).await;
    let tasks = TaskTracker::new();
    let relay = Relay::to(cluster).await;
    let first = connect_by(relay.kubeconfig(), "landfall/first").await;
    let first = Election::start(first, config("carry", &identity("first")), &tasks);
    leads(&first, true).await;
    assert_eq!(*first.role().borrow(), Role::Leading { term: 1 });
    let second = connect(cluster, "landfall/second").await;
    let second = Election::start(second, config("carry", &identity("second")), &tasks);
    relay.cut();
    leads(&second, true).await;
    relay.repair();
    assert_eq!(*first.role().borrow(), Role::Carrying);
    let at = ["-n", "landfall-system", "lease", "carry"];
    let lease = cluster.kubectl().get(&at).await.unwrap();
    // Said, and not left out: a holder that says nothing is taken to serve after a while.
    assert_eq!(lease["metadata"]["annotations"]["landfall.dev/serving"], "");
    second.serving().send_replace(true);
    has_role(&first, "stands by", |role| role == Role::Standby).await;

    // Back again: the second one goes only when the first serves.
    let handing = tokio::spawn(second.hand_over());
    has_role(&first, "leads again", |role| {
        role == Role::Leading { term: 2 }
    })
    .await;
    assert!(!handing.is_finished(), "no replica serves yet");
    first.serving().send_replace(true);
    tokio::time::timeout(DEADLINE, handing)
        .await
        .expect("it is seen")
        .unwrap();
    first.release().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_can_not_work_neither_takes_the_lease_nor_keeps_it() {
    let cluster = cluster().await;
    allow_any_lease(cluster).await;
    let tasks = TaskTracker::new();
    let first = connect(cluster, "landfall/first").await;
    let unable = LeaseConfig {
        able: false,
        ..config("unable", &identity("first"))
    };
    let first = Election::start(first, unable, &tasks);
    let second = connect(cluster, "landfall/second").await;
    let second = Election::start(second, config("unable", &identity("second")), &tasks);
    // It came later, and waits for as long as a Lease that is not there is waited for.
    leads(&second, true).await;
    assert!(!*first.leading().borrow());
    first.able().send_replace(true);
    second.able().send_replace(false);
    leads(&first, true).await;
    assert_eq!(*second.role().borrow(), Role::Carrying);
    first.release().await;
    // Free, and another one takes it sooner or later: this one does when it is able again.
    let third = connect(cluster, "landfall/third").await;
    let third = Election::start(third, config("unable", &identity("third")), &tasks);
    leads(&third, true).await;
    assert!(!*second.leading().borrow());
    third.release().await;
    second.able().send_replace(true);
    leads(&second, true).await;
    second.release().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_recreates_its_deleted_lease_and_never_stops_leading() {
    let cluster = cluster().await;
    allow_any_lease(cluster).await;
    let tasks = TaskTracker::new();
    let first = connect(cluster, "landfall/first").await;
    let first = Election::start(first, config("deleted", &identity("first")), &tasks);
    leads(&first, true).await;
    first.serving().send_replace(true);
    let second = connect(cluster, "landfall/second").await;
    let second = Election::start(second, config("deleted", &identity("second")), &tasks);
    let mut role = first.role();
    role.mark_unchanged();
    let at = ["-n", "landfall-system", "lease", "deleted"];
    cluster
        .kubectl()
        .run(&["-n", "landfall-system", "delete", "lease", "deleted"])
        .await
        .unwrap();
    let back = async {
        loop {
            if let Ok(lease) = cluster.kubectl().get(&at).await {
                return lease;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let lease = tokio::time::timeout(DEADLINE, back).await.unwrap();
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap();
    assert!(holder.starts_with("first_"), "{lease}");
    assert_eq!(
        lease["metadata"]["annotations"]["landfall.dev/serving"],
        holder
    );
    assert!(!role.has_changed().unwrap());
    assert!(!*second.leading().borrow());
    second.release().await;
    first.release().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_in_a_lease_is_waited_for_and_what_is_not_ours_in_it_stays() {
    let cluster = cluster().await;
    allow_any_lease(cluster).await;
    let tasks = TaskTracker::new();
    let first = connect(cluster, "landfall/first").await;
    let first = Election::start(first, config("nonsense", &identity("first")), &tasks);
    leads(&first, true).await;
    let nonsense = r#"{"metadata": {"labels": {"team": "net"}}, "spec": {"holderIdentity": "?!",
        "leaseDurationSeconds": 1, "leaseTransitions": 2147483647}}"#;
    cluster
        .kubectl()
        .run(&[
            "-n",
            "landfall-system",
            "patch",
            "lease",
            "nonsense",
            "--type=merge",
            "-p",
            nonsense,
        ])
        .await
        .unwrap();
    has_role(&first, "carries", |role| role == Role::Carrying).await;
    has_role(&first, "leads again", |role| {
        role == Role::Leading { term: 2 }
    })
    .await;
    let at = ["-n", "landfall-system", "lease", "nonsense"];
    let lease = cluster.kubectl().get(&at).await.unwrap();
    assert_eq!(lease["metadata"]["labels"]["team"], "net");
    assert_eq!(lease["spec"]["leaseTransitions"], 2_147_483_647);
    first.release().await;
}

/// A replica that writes as fast as it may.
struct Replica {
    /// Writes that came through.
    written: Arc<AtomicU64>,
    relay: Relay,
    election: Option<Election>,
    writer: JoinHandle<()>,
    tasks: TaskTracker,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Replica {
    async fn start(cluster: &Cluster, name: String, service: Arc<ServiceRow>) -> Self {
        let relay = Relay::to(cluster).await;
        // A runtime of its own, so that it can end like a process: at once, and all of it.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build();
        let runtime = runtime.unwrap();
        let (kubeconfig, agent) = (relay.kubeconfig().to_owned(), format!("landfall/{name}"));
        let (tasks, cancel) = (TaskTracker::new(), CancellationToken::new());
        let own_tasks = tasks.clone();
        let written = Arc::new(AtomicU64::new(0));
        let counted = written.clone();
        let started = runtime.spawn(async move {
            let connection = connect_by(&kubeconfig, &agent).await;
            let election = Election::start(
                connection.clone(),
                config("churn", &identity(&name)),
                &own_tasks,
            );
            let reports =
                KubeReports::new(connection, election.guard(), &name, &own_tasks, &cancel);
            let writer = tokio::spawn(async move {
                for number in 0u32.. {
                    let ip = Some(std::net::Ipv4Addr::from(0xc612_0000 + number % 0xffff).into());
                    let entry = IngressAddress {
                        ip,
                        ..IngressAddress::default()
                    };
                    let status = ServiceStatus {
                        ingress: vec![entry],
                        conditions: Vec::new(),
                        ..ServiceStatus::default()
                    };
                    // A refusal for want of the lead costs nothing, and comes most of the time.
                    if reports.write_status(&service, &status).await.is_ok() {
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            });
            (election, writer)
        });
        let (election, writer) = started.await.unwrap();
        Self {
            written,
            relay,
            election: Some(election),
            writer,
            tasks,
            runtime: Some(runtime),
        }
    }

    fn leads(&self) -> bool {
        self.election
            .as_ref()
            .is_some_and(|election| *election.leading().borrow())
    }

    fn count(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// As `kill -9` does.
    fn kill(mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    /// As a signal does that asks.
    async fn stop(mut self) {
        self.writer.abort();
        let _ended = (&mut self.writer).await;
        if let Some(election) = self.election.take() {
            election.release().await;
        }
        self.tasks.close();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_stopped_or_cut_off_never_do_two_write() {
    let cluster = Cluster::start(Options::default()).await.unwrap();
    install(&cluster).await;
    allow_any_lease(&cluster).await;
    let namespace = cluster.namespace("churn").await.unwrap();
    cluster
        .kubectl()
        .apply(&service(&namespace, "web", ""))
        .await
        .unwrap();
    let object = cluster
        .kubectl()
        .get(&["-n", &namespace, "service", "web"])
        .await
        .unwrap();
    let uid = Uid::new(object["metadata"]["uid"].as_str().unwrap());
    let row = landfall_testkit::svc("web")
        .in_namespace(&namespace)
        .with(|row| {
            row.key = ServiceKey::new(&namespace, "web");
            row.uid = uid;
            row.resource_version = Some("1".into());
        });
    let row = row.row();
    let audit = cluster.audit();
    let mut replicas = Vec::new();
    for number in 0..3 {
        replicas.push(Replica::start(&cluster, format!("replica-{number}"), row.clone()).await);
    }
    for round in 0..12 {
        let before: Vec<u64> = replicas.iter().map(Replica::count).collect();
        let found = async {
            loop {
                let mut numbered = replicas.iter().zip(&before).enumerate();
                // Not only leads but does something with it.
                let busy =
                    numbered.find(|(_, (it, before))| it.leads() && it.count() > *before + 2);
                if let Some((leader, _)) = busy {
                    return leader;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let leader = tokio::time::timeout(DEADLINE, found)
            .await
            .expect("a replica leads in time");
        let leader = replicas.remove(leader);
        let name = format!("replica-{}", 3 + round);
        match round % 3 {
            0 => leader.kill(),
            1 => leader.stop().await,
            _ => {
                leader.relay.cut();
                leads(leader.election.as_ref().unwrap(), false).await;
                leader.relay.repair();
                // It stands for election again, behind the new one.
                replicas.push(leader);
                continue;
            }
        }
        replicas.push(Replica::start(&cluster, name, row.clone()).await);
    }
    for replica in replicas {
        replica.stop().await;
    }
    let mut writes: Vec<AuditEntry> = audit
        .entries()
        .unwrap()
        .into_iter()
        .filter(|entry| entry.resource == "services/status" && entry.code == 200)
        .collect();
    writes.sort_by(|one, other| one.received.cmp(&other.received));
    let mut turns: Vec<&str> = writes
        .iter()
        .map(|entry| entry.user_agent.as_str())
        .collect();
    turns.dedup();
    let lease = cluster
        .kubectl()
        .get(&["-n", "landfall-system", "lease", "churn"])
        .await
        .unwrap();
    let acquired = lease["spec"]["leaseTransitions"].as_u64().unwrap();
    // Eight have ended and do not return. The four that were cut off may have come back first.
    assert!(
        writes.len() >= 36 && turns.len() >= 9,
        "{} writes, turns {turns:?}",
        writes.len()
    );
    // Two that wrote at the same time would have taken more turns than the Lease has.
    assert!(
        turns.len() as u64 <= acquired,
        "{acquired} terms, but turns {turns:?}"
    );
    for pair in writes.windows(2) {
        if pair[0].user_agent != pair[1].user_agent {
            assert!(
                pair[0].answered <= pair[1].received,
                "at the same time: {pair:?}"
            );
        }
    }
}

/// Each test has a Lease of its own; the manifests grant but one.
async fn allow_any_lease(cluster: &Cluster) {
    // Two that create it at once would refuse each other.
    static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let role = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: leases, namespace: landfall-system}
rules: [{apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, update]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: leases, namespace: landfall-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: leases}
subjects: [{kind: ServiceAccount, name: landfall, namespace: landfall-system}]
";
    let _turn = TURN.lock().await;
    cluster.kubectl().apply(role).await.unwrap();
}
