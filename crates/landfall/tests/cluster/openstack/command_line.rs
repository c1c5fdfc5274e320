//! The command line of cloud-provider-openstack's deployment, on the simulated cloud.

use serde_json::Value;

use crate::bed::{Bed, address, text};
use crate::network::Range;
use crate::replica::{Replica, landfall, printed};
use crate::simulated::{self, Simulated};

const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  ports: [{name: web, port: 80}]
";

/// What else the reference's manifest has, and what a platform has to add.
const REFERENCE: [&str; 5] = [
    "--v=1",
    "--cloud-provider=openstack",
    "--use-service-account-credentials=false",
    "--bind-address=127.0.0.1",
    "--controllers=service-lb-controller",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_references_command_line_serves_a_cluster_and_marks_what_it_makes_with_its_id() {
    let cloud = Simulated::start().await;
    let sim = &cloud.sim;
    let bed = Bed::open("shop").await;
    bed.kubectl().apply(&simulated::nodes()).await.unwrap();
    let kubeconfig = bed.kubeconfig();
    let home = bed.cluster.directory();
    bed.write("cloud.conf", &cloud.conf("", ""));
    let cloud = ["--cloud-config", "cloud.conf", "--cluster-name", "c1"];
    bed.apply(SERVICE).await;
    let key = format!("{}/web", bed.namespace);

    // Before: what would be done, for an operator with read access.
    let explain = || {
        let mut command = landfall(home);
        command
            .args(["explain", &key, "--kubeconfig", text(&kubeconfig)])
            .args(cloud);
        command
    };
    let reported = printed(explain()).await;
    assert!(reported.contains("Pending steps"), "{reported}");
    assert!(reported.contains("create load balancer"), "{reported}");
    assert_eq!(sim.writes().len(), 0);

    let range = Range::claim();
    let arguments = [&cloud[..], &REFERENCE].concat();
    let replica = Replica::spawn(&bed, "openstack", range.admin(1), &arguments);
    bed.programmed(&["web"]).await;
    assert!(replica.said("--bind-address has no effect: "));
    let service = bed.service("web").await;
    let floating_ip = &sim.floating_ips()[0]["floating_ip_address"];
    assert_eq!(address(&service), floating_ip.as_str());
    let balancer = &sim.load_balancers()[0];
    let name = format!("kube_service_c1_{}_web", bed.namespace);
    assert_eq!(balancer["name"], name);
    let system = bed.kubectl().get(&["namespace", "kube-system"]).await;
    let system = system.unwrap();
    let id = system["metadata"]["uid"].as_str().unwrap();
    let marked = |tag: &Value| tag.as_str().is_some_and(|tag| tag.contains(id));
    let tags = balancer["tags"].as_array().unwrap();
    assert!(tags.iter().any(marked), "{id}: {tags:?}");

    // After: nothing more is to be done, for an operator with read access.
    let reported = printed(explain()).await;
    assert!(!reported.contains("Pending steps"), "{reported}");
    let named = format!("{{name: web, namespace: {}}}\n", bed.namespace);
    bed.write("web.yaml", &SERVICE.replace("{name: web}\n", &named));
    let mut plan = landfall(home);
    plan.args(["plan", "-f", "web.yaml", "--kubeconfig", text(&kubeconfig)])
        .args(cloud);
    let reported = printed(plan).await;
    let settled = "0 steps for 1 Service, 1 of them unchanged; planned against the cluster";
    assert!(reported.contains(settled), "{reported}");

    bed.run(&["delete", "service", "web", "--timeout=60s"])
        .await;
    assert_eq!(sim.load_balancers().len(), 0);
    assert_eq!(sim.floating_ips().len(), 0);
    replica.stop().await;
}
