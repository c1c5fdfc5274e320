//! Changes of a Service of which one write is refused, whichever and however: what serves goes on
//! serving, other ports follow their NodePorts, and once the cloud takes it all is as wanted.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall_testkit::build::{ServiceBuilder, number};
use landfall_testkit::exoscale::{Call, Fault};
use landfall_testkit::svc;
use serde_json::{Value, json};

use crate::crash::of_cloud;
use crate::rig::{Rig, key, short};

/// How the Service is changed; the function takes the id of a second instance pool.
type Edit = (&'static str, fn(&str) -> ServiceBuilder);

const LONG: Duration = Duration::from_secs(1800);
/// For another instance pool a port is interrupted, so it is tried again after an hour only.
const LONG_FOR_POOLS: Duration = Duration::from_secs(3700);
const STATUSES: [u16; 9] = [400, 401, 403, 404, 409, 422, 429, 500, 503];

fn service(ports: [(u16, u16); 2]) -> ServiceBuilder {
    let service = svc("web").annotated(&key("description"), "x");
    ports
        .into_iter()
        .fold(service, |service, (port, node_port)| {
            let service = service.named_port(&format!("p{port}"), port);
            service.node_port(node_port)
        })
}

fn before() -> ServiceBuilder {
    service([(80, 30_080), (443, 30_443)])
}

const EDITS: [Edit; 6] = [
    ("port", |_| service([(8080, 30_080), (443, 30_443)])),
    ("options", |_| {
        let service = service([(80, 31_000), (443, 30_443)]);
        service.annotated(&key("service-strategy"), "source-hash")
    }),
    ("name", |_| before().annotated(&key("name"), "renamed")),
    ("description", |_| {
        before().annotated(&key("description"), "")
    }),
    ("check", |_| {
        before().annotated(&key("service-healthcheck-interval"), "20s")
    }),
    ("pool", |pool| {
        before().annotated(&key("service-instancepool-id"), pool)
    }),
];

/// A Service that serves, and a second instance pool.
async fn scene() -> (Rig, String) {
    let mut rig = Rig::new();
    let pool = rig.sim.add_pool("spare");
    rig.apply(before()).await;
    rig.forget();
    (rig, pool)
}

/// A write, without ids that change.
fn kind(call: &Call) -> (String, String) {
    let body: Value = serde_json::from_slice(&call.body).unwrap_or_default();
    (short(&call.line()), body["port"].to_string())
}

/// From now on the n-th write from now is answered so, and every like it; whether it came.
fn refuse(rig: &Rig, nth: usize, status: u16) -> Arc<Mutex<Option<(String, String)>>> {
    let refused = Arc::new(Mutex::new(None));
    let (chosen, mut count) = (refused.clone(), 0);
    rig.sim.on_call(move |call| {
        if !call.is_write() {
            return None;
        }
        let mut chosen = chosen.lock().unwrap();
        if chosen.is_none() && count == nth {
            *chosen = Some(kind(call));
        }
        count += 1;
        let hit = chosen.as_ref() == Some(&kind(call));
        hit.then(|| Fault::Status {
            code: status,
            body: json!({"message": "refused by the test"}).to_string(),
            retry_after: None,
        })
    });
    refused
}

/// The number of writes of a change that nothing disturbs, and what is there then.
async fn undisturbed(edit: Edit) -> (usize, Value) {
    let (mut rig, pool) = scene().await;
    rig.apply(edit.1(&pool)).await;
    assert_eq!(rig.refusal(), "", "{}", edit.0);
    (rig.writes().len(), of_cloud(&rig))
}

async fn attack(edit: Edit, nth: usize, status: u16, wanted: &Value) -> Vec<String> {
    let (mut rig, pool) = scene().await;
    let published = rig.published("web");
    let refused = refuse(&rig, nth, status);
    rig.apply(edit.1(&pool)).await;
    let came = refused.lock().unwrap().clone();
    let Some((line, refused_port)) = came else {
        return vec!["never came".to_owned()];
    };
    if edit.0 == "pool" && line.starts_with("DELETE") && status == 404 {
        // It says that the NLB service is gone, while the list has it: that ends in NotConverging.
        return Vec::new();
    }
    let mut problems = Vec::new();
    // Another port follows the Service, unless just that is refused.
    rig.edit("web", |row| row.ports[1].node_port = Some(number(31_443)))
        .await;
    rig.wait(Duration::from_secs(240)).await;
    // An NLB service changes its pool only by being created again, which may be what is refused.
    let may_lack = |port: u64| line.starts_with("POST") && refused_port == port.to_string();
    let has = |port: u64| rig.ports().contains(&port);
    let follows = may_lack(443) || (has(443) && rig.service(443)["target-port"] == 31_443);
    let is_update = line == "PUT /load-balancer/LB/service/SERVICE";
    let passes = matches!(status, 400 | 403 | 404 | 422);
    if passes && !is_update && !follows {
        problems.push("port 443 does not follow".to_owned());
    }
    if rig.published("web") != published {
        problems.push("the address is not published any more".to_owned());
    }
    if !has(443) && !may_lack(443) {
        problems.push("port 443 is gone".to_owned());
    }
    if edit.0 != "port" && !has(80) && !may_lack(80) {
        problems.push("port 80 is gone".to_owned());
    }
    rig.edit("web", |row| row.ports[1].node_port = Some(number(30_443)))
        .await;
    rig.sim.heal();
    let long = if edit.0 == "pool" {
        LONG_FOR_POOLS
    } else {
        LONG
    };
    rig.wait(long).await;
    rig.settle().await;
    if of_cloud(&rig) != *wanted {
        problems.push(format!("at last {:#}", of_cloud(&rig)));
    }
    if !rig.refusal().is_empty() || !rig.is_programmed() {
        problems.push(format!("at last {}", rig.refusal()));
    }
    rig.delete("web").await;
    rig.settle().await;
    if !rig.sim.load_balancers().is_empty() {
        problems.push("something is left".to_owned());
    }
    problems
}

async fn attack_all(edits: &[Edit]) {
    let mut failures = Vec::new();
    for edit in edits {
        let (writes, wanted) = undisturbed(*edit).await;
        assert!(writes > 0, "{}", edit.0);
        for (nth, status) in (0..writes).flat_map(|nth| STATUSES.map(|status| (nth, status))) {
            let problems = attack(*edit, nth, status, &wanted).await;
            if !problems.is_empty() {
                failures.push(format!(
                    "{} {nth} {status}: {}",
                    edit.0,
                    problems.join("; ")
                ));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_of_a_new_port_stops_nothing_else() {
    attack_all(&EDITS[..1]).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_of_options_stops_nothing_else() {
    attack_all(&EDITS[1..2]).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_of_the_name_or_description_stops_nothing_else() {
    attack_all(&EDITS[2..4]).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_of_a_health_check_stops_nothing_else() {
    attack_all(&EDITS[4..5]).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_of_another_instance_pool_stops_nothing_else() {
    attack_all(&EDITS[5..]).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_of_a_new_load_balancer_leaves_nothing_behind() {
    for (nth, status) in (0..3).flat_map(|nth| STATUSES.map(|status| (nth, status))) {
        let mut rig = Rig::new();
        let refused = refuse(&rig, nth, status);
        rig.apply(before()).await;
        assert!(refused.lock().unwrap().is_some(), "{nth}");
        assert!(!rig.is_programmed(), "{nth} {status}");
        rig.sim.heal();
        rig.wait(LONG).await;
        rig.settle().await;
        assert_eq!(rig.ports(), [80, 443], "{nth} {status}");
        assert!(rig.is_programmed(), "{nth} {status}");
        rig.delete("web").await;
        assert!(rig.sim.load_balancers().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_of_a_removal_is_tried_again() {
    for (nth, status) in (0..3).flat_map(|nth| STATUSES.map(|status| (nth, status))) {
        let mut rig = Rig::new();
        rig.apply(before()).await;
        let refused = refuse(&rig, nth, status);
        rig.delete("web").await;
        assert!(refused.lock().unwrap().is_some(), "{nth}");
        rig.sim.heal();
        rig.wait(LONG).await;
        rig.settle().await;
        assert!(rig.sim.load_balancers().is_empty(), "{nth} {status}");
        assert!(rig.cluster.service("web").is_none(), "{nth} {status}");
    }
}
