//! What things cost on a real OpenStack, counted in the access logs of its services. Prints;
//! refuses only what misses the goals by calls: time is the machine's as much as ours.

use std::time::{Duration, Instant};

use landfall_openstack::Groups;
use landfall_testkit::build::ServiceBuilder;
use landfall_testkit::stack::{Call, Mark, Stack};
use landfall_testkit::{node, svc};

use crate::rig::Rig;
use crate::rig::real::{Real, wait_for};
use crate::rig::stage::Stage;

const TIMEOUT: Duration = Duration::from_secs(420);

/// Node ports are each Service's own, as a cluster gives them.
fn three_ports(name: &str, number: u16, first: u16) -> ServiceBuilder {
    let node_port = 30_000 + number * 10;
    svc(name)
        .named_port("a", first)
        .node_port(node_port)
        .named_port("b", 443)
        .node_port(node_port + 1)
        .named_port("c", 9000)
        .node_port(node_port + 2)
}

fn mark() -> Mark {
    wait_for(async { Stack::shared().await.mark().await.unwrap() })
}

/// The controller's calls since then, from the access logs.
fn calls(rig: &Rig, mark: &Mark) -> Vec<Call> {
    let Stage::Real(real) = &rig.sim else {
        return Vec::new();
    };
    let (project, mark) = (real.project().clone(), mark.clone());
    wait_for(async move { project.calls_since(&mark, "landfall/").await.unwrap() })
}

fn print(title: &str, calls: &[Call], time: Option<Duration>) {
    println!("== {title}: {} calls, {time:?}", calls.len());
    for (route, count) in Call::count(calls) {
        println!("{count:5} {route}");
    }
}

fn is_poll(call: &Call) -> bool {
    call.route() == "GET /v2/lbaas/loadbalancers"
}

/// Whether members name their subnet. Octavia's worker asks Neutron for the subnet of every member
/// of the load balancer that names one, at every change of members.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Members {
    InSubnet,
    InNetwork,
}

async fn rig(conf: &str, groups: Groups, ports: bool, members: Members) -> Rig {
    let project = wait_for(async { Stack::shared().await.project("cost").await.unwrap() });
    let mut rig = Rig::in_real(Real::within(project, "amphora"), conf);
    rig.settings.groups = groups;
    if members == Members::InNetwork {
        rig.settings.conf.subnet_id = None;
        rig.settings.conf.network_id = Some(rig.sim.network());
    }
    let names: Vec<_> = (0..80_u8)
        .map(|n| (format!("n{n}"), format!("10.0.9.{}", n + 1)))
        .collect();
    if ports {
        let Stage::Real(real) = &rig.sim else {
            return rig;
        };
        let project = real.project().clone();
        let wanted: Vec<_> = names
            .iter()
            .map(|(name, address)| (name.clone(), address.parse().unwrap()))
            .collect();
        let made = wait_for(async move { project.nodes(&wanted).await.unwrap() });
        for one in made {
            let row = node(&one.name, &one.address.to_string());
            let row = row.with(|row| row.provider_id = Some(one.provider_id.as_str().into()));
            rig.cluster.put_node(row.row());
        }
    } else {
        for (name, address) in names {
            rig.cluster.put_node(node(&name, &address).row());
        }
    }
    rig.start();
    rig.settle().await;
    rig
}

#[tokio::test]
async fn real_cost_of_a_service_with_groups_at_80_nodes() {
    let mut rig = rig(
        "manage-security-groups=true",
        Groups::PerCluster,
        true,
        Members::InSubnet,
    )
    .await;
    for (number, name) in [(1, "first"), (2, "second")] {
        let since = mark();
        let begun = Instant::now();
        rig.cluster.apply(&three_ports(name, number, 80).row());
        until(&rig, || rig.published(name).len() == 1).await;
        let time = begun.elapsed();
        rig.settle().await;
        let all = calls(&rig, &since);
        print(&format!("create {name}"), &all, Some(time));
        let counted = all
            .iter()
            .filter(|call| !is_poll(call) && call.route() != "PUT /v2.0/ports/{id}");
        println!("without polls and attachments: {}", counted.count());
    }
    rig.kill();
}

#[tokio::test]
async fn real_cost_of_a_node_of_a_port_and_of_a_restart_where_members_name_their_subnet() {
    node_port_and_restart(Members::InSubnet).await;
}

#[tokio::test]
async fn real_cost_of_a_node_of_a_port_and_of_a_restart_where_members_name_none() {
    node_port_and_restart(Members::InNetwork).await;
}

async fn node_port_and_restart(members: Members) {
    const SERVICES: u16 = 10;
    let mut rig = rig("", Groups::PerCluster, false, members).await;
    let begun = Instant::now();
    for number in 0..SERVICES {
        let service = three_ports(&format!("s{number}"), number, 80);
        rig.cluster.apply(&service.row());
    }
    let all_there = || (0..SERVICES).all(|n| rig.published(&format!("s{n}")).len() == 1);
    until(&rig, all_there).await;
    println!("== 10 Services made in {:?}", begun.elapsed());
    rig.settle().await;

    rig.cluster.forget_events();
    let since = mark();
    let begun = Instant::now();
    rig.cluster.put_node(node("n80", "10.0.9.81").row());
    // That members follow is no event: the pools show it.
    loop {
        let picture = rig.picture().await;
        if picture.members.values().all(|it| it.len() == 81) {
            break;
        }
        assert!(begun.elapsed() < TIMEOUT, "{:?}", picture.members);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let time = begun.elapsed();
    let seen = calls(&rig, &since);
    print("one node more for 10 Services", &seen, Some(time));
    rig.settle().await;
    let picture = rig.picture().await;
    let full = picture.members.values().filter(|it| it.len() == 81).count();
    println!(
        "pools with 81 members: {full} of {}; calls in all: {}",
        picture.pools.len(),
        calls(&rig, &since).len()
    );

    let since = mark();
    let begun = Instant::now();
    rig.cluster.apply(&three_ports("s0", 0, 8080).row());
    let mut active = None;
    while active.is_none() && begun.elapsed() < TIMEOUT {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let listeners = rig.looker().listeners(None).await.unwrap();
        let found = listeners.iter().find(|it| it.protocol_port == 8080);
        let Some(id) = found.and_then(|it| it.default_pool_id.clone()) else {
            continue;
        };
        let members = rig.looker().members(&id).await.unwrap();
        if members.len() == 81 && found.is_some_and(is_active) {
            active = Some(begun.elapsed());
        }
    }
    println!(
        "== a port's number changed: the new listener has its members and is ACTIVE after \
        {active:?}"
    );
    rig.settle().await;
    print("a port's number changed", &calls(&rig, &since), None);

    let since = mark();
    let writes = rig.cluster.writes();
    rig.restart().await;
    let seen = calls(&rig, &since);
    print("restart with 10 converged Services", &seen, None);
    assert!(!seen.iter().any(Call::is_write), "{seen:#?}");
    assert_eq!(rig.cluster.writes(), writes);
    rig.kill();
}

#[tokio::test]
async fn real_cost_of_a_service_with_three_ports_at_a_thousand_nodes() {
    const NODES: u32 = 1000;
    let project = wait_for(async { Stack::shared().await.project("large").await.unwrap() });
    let mut rig = Rig::in_real(Real::within(project, "amphora"), "");
    rig.settings.conf.subnet_id = None;
    rig.settings.conf.network_id = Some(rig.sim.network());
    for number in 0..NODES {
        let address = format!("10.0.{}.{}", 16 + number / 250, 1 + number % 250);
        rig.cluster
            .put_node(node(&format!("worker-{number:04}"), &address).row());
    }
    rig.start();
    let since = mark();
    let begun = Instant::now();
    rig.cluster.apply(&three_ports("large", 1, 80).row());
    let full = loop {
        rig.wait(Duration::from_secs(2)).await;
        let picture = rig.picture().await;
        let full = picture.members.values().filter(|it| it.len() == 1000);
        let idle = picture
            .balancers
            .iter()
            .all(|it| it.provisioning_status == landfall_openstack::objects::Provisioning::Active);
        if (full.count() == 3 && idle) || begun.elapsed() > 3 * TIMEOUT {
            break picture;
        }
    };
    let time = begun.elapsed();
    rig.settle().await;
    let all = calls(&rig, &since);
    print("create with 1,000 nodes and 3 ports", &all, Some(time));
    // It takes so long that audits come in between: they only read.
    let writes = all.iter().filter(|call| call.is_write()).count();
    println!("writes: {writes}");
    let sizes: Vec<usize> = full.members.values().map(Vec::len).collect();
    assert_eq!(sizes, [1000, 1000, 1000], "{:?}", rig.cluster.events());
    assert_eq!(writes, 5, "{all:#?}");
    assert_eq!(rig.published("large").len(), 1);
    rig.kill();
}

fn is_active(listener: &landfall_openstack::objects::Listener) -> bool {
    listener.provisioning_status == landfall_openstack::objects::Provisioning::Active
}

async fn until(rig: &Rig, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(
            begun.elapsed() < TIMEOUT,
            "{:?} {:?}",
            rig.cluster.events(),
            rig.cluster.messages("SyncLoadBalancerFailed")
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
