//! A start over a cluster that has everything already.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::bed::{Bed, address, condition, only, writes};
use crate::network::Range;
use crate::replica::Replica;
use crate::traffic::{Backend, ask};

const SERVICES: usize = 1000;

/// What traffic may take to flow to all of them, on a machine that does other things too.
const DEADLINE: Duration = Duration::from_mins(2);

/// Every Service of the namespace, with everything that the API server knows of it.
async fn services(bed: &Bed) -> Vec<Value> {
    let list = bed.kubectl().get(&["-n", &bed.namespace, "services"]).await;
    list.unwrap()["items"].as_array().unwrap().clone()
}

/// Waits until traffic flows to all of them; returns them. A replica is ready when it has handled
/// each Service once, and a listener may still be on its way then.
async fn programmed(bed: &Bed) -> Vec<Value> {
    let is_programmed =
        |service: &Value| condition(service, "Programmed").is_some_and(|it| it.0 == "True");
    let began = Instant::now();
    loop {
        let services = services(bed).await;
        let Some(waiting) = services.iter().find(|service| !is_programmed(service)) else {
            return services;
        };
        assert!(began.elapsed() < DEADLINE, "no traffic: {waiting:#}");
    }
}

#[tokio::test]
async fn a_restart_with_a_thousand_services_writes_nothing_and_moves_no_address() {
    let bed = Bed::open("many").await;
    let range = Range::claim();
    let _backend = Backend::start("one", range.member(1)).await;
    let mut list = String::new();
    for number in 0..SERVICES {
        let _ = write!(
            list,
            "---\napiVersion: v1\nkind: Service\nmetadata:\n  name: web-{number}\n  annotations: \
             {{landfall.dev/endpoints: \"{}\"}}\nspec:\n  type: LoadBalancer\n  \
             allocateLoadBalancerNodePorts: false\n  ports: [{{port: 8080}}]\n",
            range.member(1)
        );
    }
    let began = Instant::now();
    bed.apply(&list).await;
    eprintln!("{SERVICES} Services applied after {:?}", began.elapsed());
    let began = Instant::now();
    let replica = Replica::alone(&bed, range.admin(1), &only(&range.pool())).await;
    eprintln!("all of them handled after {:?}", began.elapsed());
    let before = programmed(&bed).await;
    assert_eq!(before.len(), SERVICES);

    let mut replica = Some(replica);
    for killed in [true, false] {
        let ended = replica.take().expect("it runs");
        if killed {
            ended.kill().await;
        } else {
            ended.stop().await;
        }
        let audit = bed.cluster.audit();
        let began = Instant::now();
        replica = Some(Replica::alone(&bed, range.admin(1), &only(&range.pool())).await);
        eprintln!("ready again after {:?} (killed: {killed})", began.elapsed());
        assert_eq!(writes(&audit), []);
        // The same to the last byte, resource versions included.
        assert_eq!(services(&bed).await, before);
    }
    for service in before.iter().step_by(97) {
        let address = address(service).unwrap().parse().unwrap();
        let answer = ask(SocketAddr::new(address, 8080)).await.unwrap();
        assert_eq!(answer, "one");
    }
}
