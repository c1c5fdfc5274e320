//! The controller is killed before and after every write, to the cloud and to the cluster: the next
//! one completes what it began, and nothing is left behind or touched that is of others.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use landfall_testkit::build::{ServiceBuilder, number};
use landfall_testkit::exoscale::Fault;
use landfall_testkit::svc;
use serde_json::{Value, json};

use crate::cluster::{Halt, Mishap};
use crate::rig::{Rig, key, web};

/// What people do.
type Act = fn(&mut Rig);

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
    cloud: Value,
    services: Value,
    problems: Vec<String>,
}

// === impl Axe ===

impl Axe {
    fn state(&self) -> std::sync::MutexGuard<'_, AxeState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn at_write(&self) -> Option<Halt> {
        let mut state = self.state();
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
        self.state().struck
    }

    /// From now on, at the write of this number.
    fn raise(&self, rig: &Rig, strike: Option<(usize, Halt)>) {
        self.state().strike = strike;
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

/// Waits until nothing is asked any more, or the axe has struck.
async fn rest(rig: &Rig, axe: Option<&Axe>) {
    let mut quiet = 0;
    for _ in 0..900 {
        let before = (rig.sim.calls().len(), rig.cluster.writes());
        rig.wait(Duration::from_secs(1)).await;
        if axe.is_some_and(Axe::struck) {
            return;
        }
        let same = before == (rig.sim.calls().len(), rig.cluster.writes());
        quiet = if same { quiet + 1 } else { 0 };
        if quiet >= 15 {
            return;
        }
    }
}

/// The cloud without what is chosen at random.
pub fn of_cloud(rig: &Rig) -> Value {
    let mut all: Vec<Value> = rig.sim.load_balancers();
    for nlb in &mut all {
        for field in ["id", "ip", "created-at"] {
            nlb[field] = Value::Null;
        }
        let services = nlb["services"].as_array_mut().unwrap();
        for service in services.iter_mut() {
            service["id"] = Value::Null;
        }
        services.sort_by_key(|it| (it["port"].as_u64(), it["protocol"].to_string()));
    }
    all.sort_by_key(|it| it["name"].to_string());
    Value::Array(all)
}

/// What the Services say, without what is chosen at random.
pub fn of_services(rig: &Rig) -> Value {
    let services = rig.cluster.services().into_iter().map(|row| {
        let conditions = row.status.conditions.iter();
        let conditions: Vec<_> = conditions
            .map(|it| format!("{} {} {}", it.kind.as_str(), it.status, it.reason))
            .collect();
        let keys: Vec<_> = row.annotations.keys().collect();
        json!({
            "name": row.key.name(), "conditions": conditions, "annotations": keys,
            "addresses": row.status.ingress.len(), "finalized": row.finalized,
        })
    });
    services.collect()
}

async fn run(before: &[Act], acts: &[Act], strike: Option<(usize, Halt)>) -> End {
    let mut rig = Rig::new();
    let others = [
        rig.sim.add_load_balancer("others"),
        rig.sim.add_load_balancer("shared"),
    ];
    let pool = rig.pool.clone();
    for nlb in &others {
        rig.sim.add_service(nlb, "ssh", 22, &pool);
    }
    let foreign = rig.sim.load_balancers();
    rig.start();
    rest(&rig, None).await;
    for act in before {
        act(&mut rig);
        rest(&rig, None).await;
    }
    let axe = Axe::default();
    axe.raise(&rig, strike);
    for act in acts {
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
    let (cloud, services) = (of_cloud(&rig), of_services(&rig));
    for service in rig.cluster.services() {
        rig.cluster.delete(service.key.name());
    }
    rest(&rig, None).await;
    let mut problems = Vec::new();
    if !rig.cluster.services().is_empty() {
        problems.push("Services are left".to_owned());
    }
    if rig.sim.load_balancers() != foreign {
        let left = of_cloud(&rig);
        problems.push(format!("left behind, or of others: {left:#}"));
    }
    let writes = axe.state().writes;
    End {
        writes,
        struck: axe.struck(),
        cloud,
        services,
        problems,
    }
}

/// Kills the controller before and after every write.
async fn crash_everywhere(before: &[Act], acts: &[Act]) {
    let calm = run(before, acts, None).await;
    assert!(calm.writes > 0);
    assert_eq!(calm.problems, Vec::<String>::new());
    let mut failures = Vec::new();
    for write in 0..calm.writes {
        for how in [Halt::Before, Halt::After] {
            let mut end = run(before, acts, Some((write, how))).await;
            assert!(end.struck, "write {write} never came");
            if end.cloud != calm.cloud {
                end.problems.push(format!("another cloud: {:#}", end.cloud));
            }
            if end.services != calm.services {
                end.problems
                    .push(format!("another status: {:#}", end.services));
            }
            if !end.problems.is_empty() {
                failures.push(format!("killed {how:?} write {write}: {:#?}", end.problems));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

fn two(name: &str) -> ServiceBuilder {
    let service = svc(name).named_port("a", 80).node_port(30_080);
    service.named_port("b", 443).node_port(30_443)
}

fn apply(rig: &Rig, service: ServiceBuilder) {
    rig.cluster.apply(&service.row());
}

fn make(rig: &mut Rig) {
    apply(rig, two("web").annotated(&key("description"), "x"));
}

fn make_named(rig: &mut Rig) {
    let service = web().annotated(&key("name"), "custom");
    apply(rig, service.annotated(&key("service-name"), "front"));
}

fn move_port(rig: &mut Rig) {
    rig.cluster
        .edit("web", |row| row.ports[0].port = number(8080));
}

fn tune(rig: &mut Rig) {
    rig.cluster.edit("web", |row| {
        row.ports[0].node_port = Some(number(31_000));
        row.annotations.remove(&key("description"));
        row.annotations.insert(key("name"), "renamed".to_owned());
        row.annotations
            .insert(key("service-strategy"), "source-hash".to_owned());
    });
}

fn other_pool(rig: &mut Rig) {
    let pool = rig.sim.add_pool("next");
    rig.cluster.edit("web", move |row| {
        row.annotations.insert(key("service-instancepool-id"), pool);
    });
}

fn share(rig: &mut Rig) {
    let service = two("guest").annotated(&key("external"), "true");
    apply(rig, service.annotated(&key("name"), "shared"));
}

fn share_named(rig: &mut Rig) {
    let service = web().annotated(&key("external"), "true");
    let service = service.annotated(&key("service-name"), "front");
    apply(rig, service.annotated(&key("name"), "shared"));
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

#[tokio::test(start_paused = true)]
async fn a_crash_while_a_load_balancer_is_created_is_repaired() {
    crash_everywhere(&[], &[make]).await;
    crash_everywhere(&[], &[make_named]).await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_while_a_load_balancer_is_changed_is_repaired() {
    crash_everywhere(&[make], &[move_port]).await;
    crash_everywhere(&[make], &[tune]).await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_while_the_instance_pool_changes_is_repaired() {
    crash_everywhere(&[make], &[other_pool]).await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_while_a_load_balancer_is_deleted_is_repaired() {
    crash_everywhere(&[make], &[delete_web]).await;
    crash_everywhere(&[make], &[no_load_balancer, make]).await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_while_the_load_balancer_of_others_is_used_is_repaired() {
    crash_everywhere(&[], &[share]).await;
    crash_everywhere(&[], &[share_named]).await;
    crash_everywhere(&[share], &[delete_guest]).await;
    crash_everywhere(&[share_named], &[delete_web]).await;
}
