//! Which member gets a connection: weights, backups, algorithms, session affinity.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use landfall_model::view::{Health, ServiceView};

use crate::backend::{self, Backend};
use crate::client::{self, Talk};
use crate::lab::Lab;
use crate::manifest::svc;
use crate::view::{at, health_of, is_ready, listener};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn weights_and_backups_decide_which_member_gets_a_connection() {
    let lab = Lab::new();
    let [a, b, mut c, d]: [Backend; 4] = backend::pods(&lab, &["a", "b", "c", "d"])
        .await
        .try_into()
        .unwrap();
    let endpoints = |c: &str| {
        let (a, b, d) = (a.address, b.address, d.address);
        format!("{a} weight=3, {b}, {c} weight=0, {d} backup")
    };
    let service = svc("web")
        .tcp(8080)
        .option("monitor", "tcp")
        .option("monitor-delay", "200ms")
        .option("monitor-max-retries-down", "1");
    let text = service
        .clone()
        .option("endpoints", &endpoints(&c.address.to_string()));
    lab.write("web.yaml", &text.yaml());
    let lab = lab.started().await;
    let web = lab.ready("default/web").await;
    let target = at(&web, 8080);
    let names = client::roll_call(target, 40).await;
    let count = |names: &[String], name: &str| names.iter().filter(|it| *it == name).count();
    assert_eq!(
        (count(&names, "a"), count(&names, "b")),
        (30, 10),
        "{names:?}"
    );

    // No member with a weight is left: only the backup serves ...
    c.stop().await;
    let (mut a, mut b) = (a, b);
    a.stop().await;
    b.stop().await;
    let all_down = |service: &ServiceView| {
        [a.address, b.address]
            .iter()
            .all(|address| health_of(service, *address) == Some(Health::Down))
    };
    lab.until("default/web", "has lost its members", all_down)
        .await;
    assert_eq!(client::roll_call(target, 4).await, ["d"; 4]);
    assert!(is_ready(&lab.service("default/web").await));
    // ... until one comes back.
    b.start().await;
    let up = |service: &ServiceView| health_of(service, b.address) == Some(Health::Up);
    lab.until("default/web", "has one back", up).await;
    assert_eq!(client::roll_call(target, 4).await, ["b"; 4]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_keeps_its_member_with_session_affinity() {
    let lab = Lab::new();
    let pods = backend::pods(&lab, &["a", "b", "c"]).await;
    let members: Vec<SocketAddr> = pods.iter().map(|it| it.address).collect();
    let service = svc("web").tcp(8080).members(&members);
    let sticky = service.clone().spec("sessionAffinity: ClientIP");
    let sticky = sticky.spec("sessionAffinityConfig: {clientIP: {timeoutSeconds: 600}}");
    lab.write("web.yaml", &sticky.yaml());
    let lab = lab.started().await;
    let web = lab.ready("default/web").await;
    let affinity = listener(&web, 8080).affinity.expect("it was asked for");
    assert_eq!(affinity.timeout, Duration::from_secs(600));
    let target = at(&web, 8080);
    let from = async |last: u8| {
        let mut talk = Talk::from(lab.ranges.client(last), target).await.unwrap();
        talk.say("hello").await.unwrap().name
    };
    let mut met = BTreeSet::new();
    for last in 1..=6 {
        let name = from(last).await;
        for _ in 0..4 {
            assert_eq!(from(last).await, name);
        }
        met.insert(name);
    }
    assert_eq!(met.len(), 3, "clients spread over all members");
    lab.write("web.yaml", &service.yaml());
    lab.settled().await;
    let mut met = BTreeSet::new();
    for _ in 0..3 {
        met.insert(from(1).await);
    }
    assert_eq!(met.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_source_meets_the_same_member_by_its_hash() {
    let lab = Lab::new();
    let pods = backend::pods(&lab, &["a", "b", "c"]).await;
    let members: Vec<SocketAddr> = pods.iter().map(|it| it.address).collect();
    let service = svc("web")
        .tcp(8080)
        .members(&members)
        .option("algorithm", "SOURCE_IP");
    lab.write("web.yaml", &service.yaml());
    let lab = lab.started().await;
    let target = at(&lab.ready("default/web").await, 8080);
    let mut met = BTreeSet::new();
    for last in 1..=30 {
        let source = lab.ranges.client(last);
        let mut names = BTreeSet::new();
        for _ in 0..3 {
            let mut talk = Talk::from(source, target).await.unwrap();
            names.insert(talk.say("hello").await.unwrap().name);
        }
        assert_eq!(names.len(), 1, "{source} met {names:?}");
        met.extend(names);
    }
    assert_eq!(met.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fewest_connections_decide_where_they_last() {
    let lab = Lab::new();
    let pods = backend::pods(&lab, &["a", "b"]).await;
    let members = [pods[0].address, pods[1].address];
    let service = svc("web").tcp(8080).members(&members);
    let service = service.option("algorithm", "LEAST_CONNECTIONS");
    lab.write("web.yaml", &service.yaml());
    let lab = lab.started().await;
    let target = at(&lab.ready("default/web").await, 8080);
    let mut kept = Vec::new();
    for _ in 0..6 {
        let mut talk = Talk::to(target).await.unwrap();
        let name = talk.say("hello").await.unwrap().name;
        kept.push((name, talk));
    }
    assert_eq!((pods[0].open(), pods[1].open()), (3, 3));
    kept.retain(|(name, _)| name == "a");
    let even = |service: &ServiceView| listener(service, 8080).traffic.open == 3;
    lab.until("default/web", "has seen three go", even).await;
    for _ in 0..3 {
        let mut talk = Talk::to(target).await.unwrap();
        let said = talk.say("hello").await.unwrap();
        assert_eq!(said.name, "b");
        kept.push((said.name, talk));
    }
}

/// Says to a test that it runs in a network namespace of its own.
const WITHIN: &str = "LANDFALL_TEST_NAMESPACE";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_root_an_address_that_the_machine_gets_later_is_no_way_to_the_admin_endpoint() {
    if std::env::var_os(WITHIN).is_none() {
        let name = "members::as_root_an_address_that_the_machine_gets_later_is_no_way_to_the_\
                    admin_endpoint";
        let ended = Command::new("unshare")
            .args([
                "--net",
                "sh",
                "-euc",
                "ip link set lo up; exec \"$@\"",
                "net",
            ])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(WITHIN, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&ended.stdout);
        assert!(text.contains("1 passed"), "as root? {text}");
        return;
    }
    let lab = Lab::new().also(&["--admin", "0.0.0.0:9640"]);
    let service = svc("web")
        .tcp(8080)
        .option("endpoints", "10.88.0.7:9640, 10.88.0.8:9640");
    lab.write("web.yaml", &service.yaml());
    let lab = lab.started().await;
    let members = |service: &ServiceView| {
        let members = service.listeners.iter().flat_map(|it| &it.members);
        members.map(|it| it.address.to_string()).collect::<Vec<_>>()
    };
    let has = |wanted: &'static [&str]| move |service: &ServiceView| members(service) == wanted;
    lab.until(
        "default/web",
        "has both",
        has(&["10.88.0.7:9640", "10.88.0.8:9640"]),
    )
    .await;
    let address = ["address", "add", "10.88.0.7/32", "dev", "lo"];
    assert!(Command::new("ip").args(address).status().unwrap().success());
    lab.until("default/web", "lost it", has(&["10.88.0.8:9640"]))
        .await;
}
