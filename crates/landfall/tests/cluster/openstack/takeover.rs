//! From cloud-provider-openstack to Landfall on the simulated cloud: `adopt`, `adopt --apply`, and
//! `orphans` with the cluster's id.

use std::process::Command;

use landfall_testkit::openstack::Service;
use serde_json::{Value, json};

use crate::bed::{Bed, text};
use crate::replica::{landfall, printed};
use crate::simulated::{self, Simulated};

fn service(name: &str, node_port: u16, annotations: &str) -> String {
    format!(
        "---\n\
        apiVersion: v1\n\
        kind: Service\n\
        metadata: {{name: {name}, annotations: {{{annotations}}}}}\n\
        spec:\n  \
        type: LoadBalancer\n  \
        ports: [{{name: web, port: 80, nodePort: {node_port}}}]\n"
    )
}

/// What the Service controller of cloud-provider-openstack says.
const EVENT: &str = "
apiVersion: v1
kind: Event
metadata: {name: web.1}
involvedObject: {apiVersion: v1, kind: Service, namespace: NAMESPACE, name: web}
reason: EnsuredLoadBalancer
message: Ensured load balancer
type: Normal
source: {component: service-controller}
firstTimestamp: 2026-01-02T03:04:05Z
lastTimestamp: 2026-01-02T03:04:05Z
";

fn id(object: &Value) -> &str {
    object["id"].as_str().unwrap()
}

/// A command that reads cluster and cloud as the administrator.
fn command(bed: &Bed, arguments: &[&str]) -> Command {
    let mut command = landfall(bed.cluster.directory());
    command
        .args(arguments)
        .args(["--kubeconfig", text(bed.cluster.admin())])
        .args(["--cloud-config", "cloud.conf", "--cluster-name", "c1"]);
    command
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_taken_over_with_its_addresses_and_only_what_no_service_owns_is_an_orphan() {
    let cloud = Simulated::start().await;
    let sim = &cloud.sim;
    let bed = Bed::open("shop").await;
    bed.kubectl().apply(&simulated::nodes()).await.unwrap();
    bed.write("cloud.conf", &cloud.conf("", ""));
    let differing = "loadbalancer.openstack.org/timeout-client-data: \"60000\"";
    bed.apply(&(service("web", 30080, "") + &service("api", 30081, differing)))
        .await;
    let (web, _) = cloud.reference_makes("c1", (&bed.namespace, "web"), 30080);
    let (api, _) = cloud.reference_makes("c1", (&bed.namespace, "api"), 30081);
    let before = sim.load_balancer(id(&web));
    let addresses = sim.floating_ips();

    // To look changes nothing, and finds that the reference was at work.
    let looked = command(&bed, &["adopt"]).output().unwrap();
    let warned = String::from_utf8(looked.stderr).unwrap();
    let none = "no recent event of a cloud controller manager";
    assert!(warned.contains(none), "{warned}");
    bed.apply(&EVENT.replace("NAMESPACE", &bed.namespace)).await;
    let looked = command(&bed, &["adopt"]).output().unwrap();
    let warned = String::from_utf8(looked.stderr).unwrap();
    let at_work = format!(
        "a cloud controller manager reported EnsuredLoadBalancer on {}/web at \
         2026-01-02T03:04:05Z; go on only if",
        bed.namespace
    );
    assert!(warned.contains(&at_work), "{warned}");
    let reported = String::from_utf8(looked.stdout).unwrap();
    // The one that differs also gets the marks of the cluster with its change.
    let summary = "2 Services, 1 taken over with no write, 2 steps for 1 other\n";
    assert!(reported.ends_with(summary), "{reported}");
    assert!(sim.writes().is_empty());

    let apply = [
        "adopt",
        "--apply",
        "--timeout",
        "60",
        "--namespace",
        "default",
    ];
    let reported = printed(command(&bed, &apply)).await;
    assert!(
        reported.contains("2 of 2 Services taken over"),
        "{reported}"
    );
    let writes = sim.writes();
    assert_eq!(writes.len(), 2, "{writes:?}");
    assert_eq!(sim.load_balancer(id(&web)), before);
    let listener = &sim.load_balancer(id(&api))["listeners"][0];
    assert_eq!(listener["timeout_client_data"], 60000);
    assert_eq!(sim.floating_ips(), addresses);
    let published = bed.service("web").await;
    let address = &published["status"]["loadBalancer"]["ingress"][0]["ip"];
    assert_eq!(*address, addresses[0]["floating_ip_address"]);
    let reported = printed(command(&bed, &["adopt"])).await;
    let summary = "2 Services, 2 taken over with no write, 0 steps for 0 others\n";
    assert!(reported.ends_with(summary), "{reported}");

    // A Service that is still being cleared away owns its load balancer, until that is done.
    bed.run(&["delete", "service", "api", "--wait=false"]).await;
    let reported = printed(command(&bed, &["orphans"])).await;
    assert!(reported.starts_with("0 orphans among 2 load"), "{reported}");
    assert!(reported.ends_with("; 2 Services\n"), "{reported}");

    // What is marked by this cluster is its own under whatever name; by another cluster, never.
    let system = bed.kubectl().get(&["namespace", "kube-system"]).await;
    let system = system.unwrap();
    let own = system["metadata"]["uid"].as_str().unwrap();
    for (name, id) in [
        ("kube_service_old_a_b", own),
        ("kube_service_c1_a_c", "else"),
    ] {
        let tags = [format!("kube_cluster_id_{id}")];
        let body = json!({"name": name, "vip_subnet_id": sim.subnet(), "tags": tags});
        let path = "/v2/lbaas/loadbalancers";
        cloud.make(Service::LoadBalancer, path, "loadbalancer", &body);
    }
    let reported = printed(command(&bed, &["orphans", "--delete", "--yes"])).await;
    assert!(
        reported.contains("deleted load balancer kube_service_old_a_b"),
        "{reported}"
    );
    assert!(
        reported.ends_with("1 deleted, 0 could not be\n"),
        "{reported}"
    );
    assert_eq!(sim.writes().len(), 3);
}
