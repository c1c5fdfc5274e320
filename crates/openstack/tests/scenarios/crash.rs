//! The controller dies at a write, before it arrives or after it was carried out: for every write
//! of every flow. The process that starts next ends where an undisturbed run ends, leaves nothing
//! behind, and touches nothing of others.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use landfall_model::dialect::openstack::LOAD_BALANCER_ID;
use landfall_model::rows::{Family, FamilyPolicy};
use landfall_openstack::Groups;
use landfall_testkit::build::{ServiceBuilder, number};
use landfall_testkit::openstack::{Fault, Sim, Start};
use landfall_testkit::svc;
use serde_json::Value;

use crate::cluster::{Halt, Mishap};
use crate::foreign_objects;
use crate::image::{self, Detail};
use crate::rig::Rig;

/// What people do.
type Act = fn(&mut Rig);

struct Flow {
    conf: &'static str,
    groups: Groups,
    nodes: u8,
    body_limit: Option<usize>,
    /// Done in peace.
    before: &'static [Act],
    /// While the controller carries these out, it dies.
    acts: &'static [Act],
}

/// Counts writes, and ends the controller at one of them.
#[derive(Clone, Default)]
struct Axe(Arc<Mutex<AxeState>>);

#[derive(Default)]
struct AxeState {
    writes: usize,
    strike: Option<(usize, Halt)>,
    struck: bool,
}

/// How a run ended.
struct End {
    writes: usize,
    struck: bool,
    picture: Value,
    services: Value,
    problems: Vec<String>,
}

const GROUPS: &str = "manage-security-groups=true";

const CALM: Flow = Flow {
    conf: GROUPS,
    groups: Groups::PerService,
    nodes: 2,
    body_limit: None,
    before: &[],
    acts: &[],
};

// === impl Axe ===

impl Axe {
    fn at_write(&self) -> Option<Halt> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.struck {
            return Some(Halt::Before);
        }
        let number = state.writes;
        state.writes += 1;
        let (at, how) = state.strike?;
        state.struck = at == number;
        state.struck.then_some(how)
    }

    fn struck(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).struck
    }

    fn writes(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).writes
    }

    /// From now on, at the write of this number.
    fn raise(&self, rig: &Rig, strike: Option<(usize, Halt)>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).strike = strike;
        let axe = self.clone();
        rig.sim.on_call(move |call| {
            let halt = if call.is_write() {
                axe.at_write()
            } else {
                axe.struck().then_some(Halt::Before)
            };
            halt.map(|halt| match halt {
                Halt::Before => Fault::HangBefore,
                Halt::After => Fault::HangAfter,
            })
        });
        let axe = self.clone();
        rig.cluster
            .on_write(move || axe.at_write().map(Mishap::Never));
    }

    fn lower(rig: &Rig) {
        rig.sim.heal();
        rig.cluster.on_write(|| None);
    }
}

// === impl Flow ===

impl Flow {
    async fn run(&self, strike: Option<(usize, Halt)>) -> End {
        let start = Start {
            epoch: Some(1_800_000_000),
            ..Start::default()
        };
        let mut rig = Rig::in_world(Sim::with(&start), self.conf);
        rig.settings.groups = self.groups;
        rig.body_limit = self.body_limit;
        for node in 2..self.nodes {
            rig.add_node(&format!("n{node}"), &format!("10.0.0.{}", node + 10));
        }
        let ports = rig.sim.ports();
        let of_node = ports.iter().find(|it| it["name"] == "a");
        foreign_objects::settle_in(&rig.sim, of_node.and_then(|it| it["id"].as_str()));
        let foreign = rig.sim.snapshot_foreign();
        let mut problems = Vec::new();
        rig.start();
        rest(&rig, None).await;
        for act in self.before {
            act(&mut rig);
            rest(&rig, None).await;
        }
        let axe = Axe::default();
        axe.raise(&rig, strike);
        for act in self.acts {
            act(&mut rig);
            rest(&rig, Some(&axe)).await;
            if axe.struck() {
                rig.kill();
                // What was killed is gone before the next one starts.
                rig.wait(Duration::from_millis(10)).await;
                Axe::lower(&rig);
                rig.start();
                rest(&rig, None).await;
            }
        }
        Axe::lower(&rig);
        problems.extend(image::wrong_addresses(&rig));
        let (picture, services) = (
            image::of_cloud(&rig.sim, Detail::Names),
            image::of_services(&rig),
        );
        for service in rig.cluster.services() {
            rig.cluster.delete(service.key.name());
        }
        rest(&rig, None).await;
        let left = image::of_cloud(&rig.sim, Detail::Names);
        if !image::is_bare(&left) || !rig.cluster.services().is_empty() {
            problems.push(format!("left behind: {left:#}"));
        }
        if rig.sim.snapshot_foreign() != foreign {
            problems.push("something of others was touched".to_owned());
        }
        End {
            writes: axe.writes(),
            struck: axe.struck(),
            picture,
            services,
            problems,
        }
    }

    /// Kills the controller before and after every write.
    async fn crash_everywhere(&self, name: &str) {
        let calm = self.run(None).await;
        assert!(
            calm.writes > 0 && calm.problems.is_empty(),
            "{name}: {:#?} {:#}",
            calm.problems,
            calm.services
        );
        let mut kills = 0;
        let mut failures = Vec::new();
        for write in 0..calm.writes {
            for how in [Halt::Before, Halt::After] {
                let mut end = self.run(Some((write, how))).await;
                assert!(end.struck, "{name}: write {write} never came");
                kills += 1;
                if end.picture != calm.picture {
                    let text = difference(&calm.picture, &end.picture);
                    end.problems.push(format!("another cloud:\n{text}"));
                }
                if end.services != calm.services {
                    let text = difference(&calm.services, &end.services);
                    end.problems.push(format!("another status:\n{text}"));
                }
                let text = end.problems.join("\n");
                if !text.is_empty() {
                    failures.push(format!("killed {how:?} write {write}: {text}"));
                }
            }
        }
        println!("{name}: {kills} kills at {} writes", calm.writes);
        assert!(failures.is_empty(), "{name}: {}", failures.join("\n\n"));
    }
}

/// Waits until nothing is asked any more, or the axe has struck.
async fn rest(rig: &Rig, axe: Option<&Axe>) {
    let mut quiet = 0;
    for _ in 0..600 {
        let before = (rig.sim.call_count(), rig.cluster.writes());
        rig.wait(Duration::from_secs(1)).await;
        if axe.is_some_and(Axe::struck) {
            return;
        }
        let same = before == (rig.sim.call_count(), rig.cluster.writes());
        quiet = if same { quiet + 1 } else { 0 };
        if quiet >= 12 {
            return;
        }
    }
}

/// The lines that two pictures do not have in common.
pub fn difference(one: &Value, other: &Value) -> String {
    let (one, other) = (format!("{one:#}"), format!("{other:#}"));
    let only = |these: &str, those: &str, sign: char| {
        let mut there: Vec<&str> = those.lines().collect();
        let mut text = String::new();
        for line in these.lines() {
            match there.iter().position(|it| *it == line) {
                Some(at) => drop(there.swap_remove(at)),
                None => text.push_str(&format!("{sign} {}\n", line.trim())),
            }
        }
        text
    };
    only(&one, &other, '-') + &only(&other, &one, '+')
}

fn web() -> ServiceBuilder {
    svc("web")
        .named_port("a", 80)
        .node_port(30080)
        .named_port("b", 443)
        .node_port(30443)
        .annotated("loadbalancer.openstack.org/enable-health-monitor", "true")
}

fn apply(rig: &Rig, service: ServiceBuilder) {
    rig.cluster.apply(&service.row());
}

fn make(rig: &mut Rig) {
    apply(rig, web());
}

fn make_internal(rig: &mut Rig) {
    let key = "service.beta.kubernetes.io/openstack-internal-load-balancer";
    apply(rig, web().annotated(key, "true"));
}

fn move_port(rig: &mut Rig) {
    rig.cluster
        .edit("web", |row| row.ports[0].port = number(81));
}

fn turn_udp(rig: &mut Rig) {
    rig.cluster.edit("web", |row| {
        row.ports[0].protocol = landfall_model::Protocol::Udp;
    });
}

fn turn_proxy(rig: &mut Rig) {
    rig.cluster.edit("web", |row| {
        let key = "loadbalancer.openstack.org/proxy-protocol";
        row.annotations.insert(key.to_owned(), "true".to_owned());
    });
}

fn narrow(rig: &mut Rig) {
    rig.cluster.edit("web", |row| {
        row.source_ranges = vec!["192.0.2.0/24".to_owned(), "198.51.100.0/24".to_owned()];
    });
}

fn new_node(rig: &mut Rig) {
    rig.add_node("c", "10.0.0.6");
}

fn lose_node(rig: &mut Rig) {
    rig.cluster.remove_node("b");
}

fn share(rig: &mut Rig) {
    let id = rig.annotation("web", LOAD_BALANCER_ID).unwrap();
    let service = svc("guest")
        .port(8080)
        .node_port(31080)
        .annotated(LOAD_BALANCER_ID, &id)
        .annotated("loadbalancer.openstack.org/enable-health-monitor", "true");
    apply(rig, service);
}

fn delete_web(rig: &mut Rig) {
    rig.cluster.delete("web");
}

fn delete_guest(rig: &mut Rig) {
    rig.cluster.delete("guest");
}

fn no_load_balancer(rig: &mut Rig) {
    rig.cluster
        .edit("web", |row| row.wants_load_balancer = false);
}

fn make_next(rig: &mut Rig) {
    let uid = landfall_model::Uid::new("uid-next");
    let service = svc("web").port(90).node_port(30090);
    apply(rig, service.with(|row| row.uid = uid));
}

/// An Octavia that gives a load balancer one address, and an IPv6 subnet.
fn older_octavia(rig: &mut Rig) {
    rig.sim.configure(|settings| settings.api_minor = 25);
    let cidr = "2001:db8::/64".parse().unwrap();
    rig.sim.add_subnet(&rig.sim.network(), "sub6", cidr, &[]);
}

fn make_dual(rig: &mut Rig) {
    let both = [Family::V4, Family::V6];
    apply(rig, web().families(&both, FamilyPolicy::RequireDualStack));
}

#[tokio::test(start_paused = true)]
async fn a_crash_while_two_load_balancers_are_made_or_go_is_made_good() {
    let flow = Flow {
        before: &[older_octavia],
        acts: &[make_dual],
        ..CALM
    };
    flow.crash_everywhere("create, two families").await;
    let flow = Flow {
        before: &[older_octavia, make],
        acts: &[make_dual, make],
        ..CALM
    };
    flow.crash_everywhere("one family, two, one").await;
    let flow = Flow {
        before: &[older_octavia, make_dual],
        acts: &[delete_web],
        ..CALM
    };
    flow.crash_everywhere("delete, two families").await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_while_making_a_load_balancer_with_a_group_of_its_own_is_made_good() {
    let flow = Flow {
        acts: &[make],
        ..CALM
    };
    flow.crash_everywhere("create, a group per Service").await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_while_making_a_load_balancer_with_the_group_of_all_is_made_good() {
    let flow = Flow {
        acts: &[make],
        groups: Groups::PerCluster,
        ..CALM
    };
    flow.crash_everywhere("create, a group per cluster").await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_while_making_a_load_balancer_piece_by_piece_is_made_good() {
    let flow = Flow {
        acts: &[make],
        conf: "manage-security-groups=true\nprovider-requires-serial-api-calls=true",
        ..CALM
    };
    flow.crash_everywhere("create, piece by piece").await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_while_making_what_no_request_holds_is_made_good() {
    let flow = Flow {
        acts: &[make],
        nodes: 40,
        body_limit: Some(4096),
        conf: "",
        ..CALM
    };
    flow.crash_everywhere("create, oversize").await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_while_a_port_moves_is_made_good() {
    for groups in [Groups::PerService, Groups::PerCluster] {
        let flow = Flow {
            before: &[make],
            acts: &[move_port],
            groups,
            ..CALM
        };
        flow.crash_everywhere("update, port").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_while_protocols_change_is_made_good() {
    let flow = Flow {
        before: &[make],
        acts: &[turn_udp],
        ..CALM
    };
    flow.crash_everywhere("update, TCP to UDP").await;
    let flow = Flow {
        before: &[make],
        acts: &[turn_proxy],
        ..CALM
    };
    flow.crash_everywhere("update, PROXY").await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_while_source_ranges_change_is_made_good() {
    let flow = Flow {
        before: &[make],
        acts: &[narrow],
        ..CALM
    };
    flow.crash_everywhere("update, source ranges").await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_while_nodes_come_and_go_is_made_good() {
    for groups in [Groups::PerService, Groups::PerCluster] {
        let flow = Flow {
            before: &[make],
            acts: &[new_node, lose_node],
            groups,
            ..CALM
        };
        flow.crash_everywhere("update, nodes").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_while_a_load_balancer_is_shared_is_made_good() {
    let flow = Flow {
        before: &[make],
        acts: &[share],
        ..CALM
    };
    flow.crash_everywhere("share").await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_while_a_load_balancer_is_unshared_is_made_good() {
    for groups in [Groups::PerService, Groups::PerCluster] {
        let flow = Flow {
            before: &[make, share],
            acts: &[delete_guest],
            groups,
            ..CALM
        };
        flow.crash_everywhere("unshare, the guest leaves").await;
        let flow = Flow {
            before: &[make, share],
            acts: &[delete_web, delete_guest],
            groups,
            ..CALM
        };
        flow.crash_everywhere("unshare, the owner leaves first")
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_while_a_load_balancer_is_deleted_is_made_good() {
    for conf in [GROUPS, "manage-security-groups=true\ncascade-delete=false"] {
        for groups in [Groups::PerService, Groups::PerCluster] {
            let flow = Flow {
                before: &[make],
                acts: &[delete_web],
                conf,
                groups,
                ..CALM
            };
            flow.crash_everywhere("delete").await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_while_a_service_stops_wanting_one_is_made_good() {
    let flow = Flow {
        before: &[make],
        acts: &[no_load_balancer, make],
        ..CALM
    };
    flow.crash_everywhere("type, and back").await;
    let flow = Flow {
        before: &[make],
        acts: &[delete_web, make_next],
        ..CALM
    };
    flow.crash_everywhere("delete, and recreate").await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_while_the_floating_ip_comes_and_goes_is_made_good() {
    let flow = Flow {
        acts: &[make, make_internal, make],
        ..CALM
    };
    flow.crash_everywhere("external, internal, external").await;
}
