//! How many calls a cloud gets, and how long changes take: Landfall against a simulated cloud in
//! virtual time, beside the shape of cloud-provider-openstack.
//!
//! The reference's column is computed from formulas that were fitted to counts of a real Octavia's
//! access log (three TCP ports, monitors off): its creation costs 17 + 3 per port + 3 per node with
//! security groups, a node that comes 30.6 calls per Service, a restart 10 per Service. It has no
//! audit; one check of each Service costs it 10 calls. A creation at 1,000 nodes it never ends: its
//! one request is larger than Octavia reads.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark's output is its purpose"
)]

#[path = "../tests/scenarios/cluster.rs"]
#[expect(dead_code, reason = "scenarios need more of it")]
mod cluster;
#[path = "../tests/scenarios/rig.rs"]
#[expect(dead_code, reason = "scenarios need more of it")]
mod rig;

use std::time::Duration;

use landfall_openstack::Groups;
use landfall_testkit::build::ServiceBuilder;
use landfall_testkit::openstack::{Settle, Sim, Start};
use landfall_testkit::svc;
use tokio::time::Instant;

use rig::Rig;

/// A line of the table.
struct Line {
    what: String,
    reference: String,
    ours: f64,
    goal: f64,
    unit: &'static str,
    note: String,
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let lines = runtime.block_on(async {
        let mut lines = Vec::new();
        let only = std::env::args().nth(1).unwrap_or_default();
        for (nodes, goal) in [(80, 6.0), (300, 6.0), (1_000, 10.0), (5_000, 30.0)] {
            if only == "quick" && nodes > 80 {
                continue;
            }
            lines.push(create(nodes, goal).await);
        }
        lines.push(audit(100).await);
        lines.extend(node_added(10, 80, Duration::from_secs(1), 20.0).await);
        lines.extend(node_added(100, 80, Duration::from_secs(5), 30.0).await);
        lines.push(restart(1_000).await);
        lines.push(port_edited().await);
        lines
    });
    println!(
        "{:<58} {:>12} {:>10} {:>8}  unit",
        "what", "reference", "Landfall", "goal"
    );
    let mut missed = 0;
    for line in &lines {
        let mark = if line.ours <= line.goal {
            ""
        } else {
            "  MISSED"
        };
        missed += usize::from(line.ours > line.goal);
        println!(
            "{:<58} {:>12} {:>10.1} {:>8.1}  {}{mark}{}",
            line.what, line.reference, line.ours, line.goal, line.unit, line.note
        );
    }
    println!("{} of {} goals met", lines.len() - missed, lines.len());
}

fn service(index: usize) -> ServiceBuilder {
    let base = u16::try_from(30_000 + index * 3).unwrap_or(30_000);
    svc(&format!("web-{index:04}"))
        .named_port("a", 80)
        .node_port(base)
        .named_port("b", 443)
        .node_port(base + 1)
        .named_port("c", 8080)
        .node_port(base + 2)
}

fn world(conf: &str, nodes: usize) -> Rig {
    let start = Start {
        tenant: "10.0.0.0/16".parse().unwrap(),
        external: "198.18.0.0/16".parse().unwrap(),
        ..Start::default()
    };
    let mut rig = Rig::in_world(Sim::with(&start), conf);
    rig.settings.groups = Groups::PerCluster;
    for index in 0..nodes.saturating_sub(2) {
        let (high, low) = (index / 250 + 16, index % 250 + 2);
        rig.add_node(&format!("node-{index}"), &format!("10.0.{high}.{low}"));
    }
    rig
}

/// Calls that are no checks of a busy load balancer, no login, and no port that gets its group.
fn counted(rig: &Rig) -> usize {
    let calls = rig.calls();
    let first_roster = calls.iter().any(|call| is_roster(call));
    let rest = calls.iter().filter(|call| {
        !is_roster(call) && !call.contains("/auth/tokens") && !call.starts_with("PUT /v2.0/ports/")
    });
    rest.count() + usize::from(first_roster)
}

fn is_roster(call: &str) -> bool {
    call.starts_with("GET /v2/lbaas/loadbalancers?")
}

async fn create(nodes: usize, goal: f64) -> Line {
    let mut rig = world("manage-security-groups=true", nodes);
    // The node group is there from the first Service on.
    rig.apply(service(0)).await;
    rig.forget();
    rig.apply(service(1)).await;
    let picture = rig.picture().await;
    assert_eq!(picture.members_at(80).len(), nodes);
    let reference = match nodes {
        1_000.. => "never".to_owned(),
        nodes => (17 + 9 + 3 * nodes).to_string(),
    };
    Line {
        what: format!("create, 3 ports, security groups, {nodes} nodes"),
        reference,
        ours: counted(&rig) as f64,
        goal,
        unit: "calls",
        note: format!(
            "  (+ {} polls)",
            rig.calls().iter().filter(|it| is_roster(it)).count()
        ),
    }
}

async fn audit(services: usize) -> Line {
    let mut rig = world("", 80);
    for index in 0..services {
        rig.cluster.apply(&service(index).row());
    }
    rig.start();
    rig.settle().await;
    rig.wait(Duration::from_secs(400)).await;
    rig.forget();
    rig.wait(Duration::from_secs(180)).await;
    Line {
        what: format!("audit of {services} converged Services"),
        reference: (10 * services).to_string(),
        ours: rig.calls().len() as f64,
        goal: 6.0,
        unit: "calls",
        note: String::new(),
    }
}

async fn node_added(services: usize, nodes: usize, settle: Duration, seconds: f64) -> [Line; 2] {
    let mut rig = world("", nodes);
    for index in 0..services {
        rig.cluster.apply(&service(index).row());
    }
    rig.start();
    rig.settle().await;
    // One node before, so that ids are known.
    rig.add_node("first", "10.0.200.1");
    rig.settle().await;
    rig.sim.configure(|it| it.settle = Settle::all(settle));
    rig.add_node("second", "10.0.200.2");
    rig.settle().await;
    rig.forget();
    let started = Instant::now();
    rig.add_node("third", "10.0.200.3");
    let mut took = Duration::ZERO;
    for _ in 0..2_000 {
        rig.wait(Duration::from_millis(500)).await;
        let before = rig.writes().len();
        if before >= 3 * services {
            took = started.elapsed();
            break;
        }
    }
    rig.settle().await;
    let what = format!(
        "one node more, {services} Services of {nodes} nodes, settle {} s",
        settle.as_secs()
    );
    let calls = rig.calls().len() as f64 / services as f64;
    [
        Line {
            what: what.clone(),
            reference: "30.6".to_owned(),
            ours: calls,
            goal: 3.4,
            unit: "calls per Service",
            note: String::new(),
        },
        Line {
            what,
            reference: if services == 10 {
                "293".to_owned()
            } else {
                "2930".to_owned()
            },
            ours: (took + settle).as_secs_f64(),
            goal: seconds,
            unit: "s",
            note: String::new(),
        },
    ]
}

async fn restart(services: usize) -> Line {
    let mut rig = world("", 80);
    for index in 0..services {
        rig.cluster.apply(&service(index).row());
    }
    rig.start();
    rig.settle().await;
    rig.settle().await;
    rig.forget();
    rig.sim
        .configure(|it| it.latency = Duration::from_millis(100));
    let started = Instant::now();
    rig.start();
    let before = rig.sim.call_count();
    let mut last = (before, started);
    for _ in 0..200 {
        rig.wait(Duration::from_millis(100)).await;
        if rig.sim.call_count() != last.0 {
            last = (rig.sim.call_count(), Instant::now());
        }
    }
    assert_eq!(rig.writes(), Vec::<String>::new());
    Line {
        what: format!("restart with {services} converged Services"),
        reference: (10 * services + 5).to_string(),
        ours: (last.0 - before) as f64,
        goal: 20.0,
        unit: "calls",
        note: format!(
            "  (in {:.1} s at 100 ms per call)",
            (last.1 - started).as_secs_f64()
        ),
    }
}

async fn port_edited() -> Line {
    let settle = Duration::from_secs(5);
    let mut rig = world("", 80);
    rig.apply(service(0)).await;
    rig.sim.configure(|it| it.settle = Settle::all(settle));
    // A first change, so that the pace of this cloud is known.
    rig.edit("web-0000", |row| {
        row.annotations.insert(
            "landfall.dev/timeout-client-data".to_owned(),
            "70s".to_owned(),
        );
    })
    .await;
    let started = Instant::now();
    rig.cluster.edit("web-0000", |row| {
        row.ports[0].port = 8081.try_into().unwrap();
    });
    let mut took = Duration::ZERO;
    for _ in 0..600 {
        rig.wait(Duration::from_millis(100)).await;
        let picture = rig.picture().await;
        let listener = picture.listeners.iter().find(|it| it.protocol_port == 8081);
        let pool = listener.and_then(|it| it.default_pool_id.as_ref());
        let served = pool.is_some_and(|pool| !picture.members[pool.as_str()].is_empty());
        if served {
            took = started.elapsed();
            break;
        }
    }
    Line {
        what: "a port's number edited: members behind the new port".to_owned(),
        reference: "12 to 15 s".to_owned(),
        ours: (took + settle).as_secs_f64() / settle.as_secs_f64(),
        goal: 3.0,
        unit: "settles",
        note: String::new(),
    }
}
