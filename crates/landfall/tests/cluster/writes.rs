//! What each change costs at the API server, by its audit log: patches and events together.

use std::fmt::Write as _;

use crate::bed::{Bed, only, writes};
use crate::network::Range;
use crate::replica::Replica;
use crate::selection::at_rest;
use crate::traffic::Backend;

/// Services that a restart finds as it left them.
const CONVERGED: usize = 50;

fn service(name: &str, ports: &[u16], range: &Range, spec: &str) -> String {
    let mut text = format!(
        "---\napiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n  annotations: \
         {{landfall.dev/endpoints: \"{}\"}}\nspec:\n  type: LoadBalancer\n  \
         allocateLoadBalancerNodePorts: false\n{spec}  ports:\n",
        range.member(1)
    );
    for port in ports {
        let _ = writeln!(text, "  - {{name: p{port}, port: {port}}}");
    }
    text
}

/// Carries a change out, waits until nothing is left to do, and returns what was written for it.
async fn cost(bed: &Bed, replica: &Replica, change: impl Future<Output = ()>) -> usize {
    let audit = bed.cluster.audit();
    change.await;
    at_rest(replica).await;
    let written = writes(&audit);
    for entry in &written {
        eprintln!("  {} {} {}", entry.verb, entry.resource, entry.name);
    }
    written.len()
}

#[tokio::test]
async fn a_new_service_costs_three_writes_an_edit_two_and_the_rest_none() {
    let bed = Bed::open("costs").await;
    let range = Range::claim();
    let _backend = Backend::start("one", range.member(1)).await;
    let _another = Backend::start("two", range.member(2)).await;
    let config = only(&range.pool());
    let replica = Replica::alone(&bed, range.admin(1), &config).await;
    let apply = async |text: String, done: &'static str| {
        bed.apply(&text).await;
        bed.programmed(&["web"]).await;
        bed.event("web", done).await;
    };
    let one = service("web", &[8080], &range, "");
    let made = cost(&bed, &replica, apply(one, "EnsuredLoadBalancer")).await;
    assert_eq!(made, 3, "a new Service");
    let ranges = "  loadBalancerSourceRanges: [127.0.0.0/8]\n";
    for (what, most, text) in [
        (
            "more ports",
            2,
            service("web", &[8080, 8081, 8082], &range, ""),
        ),
        ("fewer ports", 2, service("web", &[8081], &range, "")),
        ("source ranges", 2, service("web", &[8081], &range, ranges)),
    ] {
        let edited = cost(&bed, &replica, apply(text, "EnsuredLoadBalancer")).await;
        assert!(edited <= most, "{what}: {edited}");
    }
    let annotate = async |annotation: String| {
        let arguments = ["annotate", "--overwrite", "service", "web", &annotation];
        bed.run(&arguments).await;
    };
    let option = annotate("landfall.dev/connection-limit=7".to_owned());
    let edited = cost(&bed, &replica, option).await;
    assert!(edited <= 2, "an option: {edited}");
    let both = format!(
        "landfall.dev/endpoints={},{}",
        range.member(1),
        range.member(2)
    );
    // The version that is accepted is recorded, and this annotation is a part of it. Members that
    // EndpointSlices name are not.
    let edited = cost(&bed, &replica, annotate(both)).await;
    assert!(edited <= 1, "an annotation that names members: {edited}");
    let label = async {
        bed.run(&["label", "service", "web", "team=shop"]).await;
    };
    assert_eq!(cost(&bed, &replica, label).await, 0, "a label");

    let mut many = String::new();
    let names: Vec<String> = (0..CONVERGED).map(|number| format!("s{number}")).collect();
    for name in &names {
        many += &service(name, &[8080, 8081, 8082], &range, "");
    }
    let all = async {
        bed.apply(&many).await;
        for name in &names {
            bed.programmed(&[name]).await;
            bed.event(name, "EnsuredLoadBalancer").await;
        }
    };
    let made = cost(&bed, &replica, all).await;
    assert_eq!(made, 3 * CONVERGED, "{CONVERGED} Services of three ports");
    replica.stop().await;
    let audit = bed.cluster.audit();
    let replica = Replica::alone(&bed, range.admin(1), &config).await;
    at_rest(&replica).await;
    assert_eq!(writes(&audit), [], "a restart");

    let delete = async {
        bed.run(&["delete", "service", "web"]).await;
        bed.event("web", "DeletedLoadBalancer").await;
    };
    assert_eq!(cost(&bed, &replica, delete).await, 2, "a deletion");
    replica.stop().await;
}
