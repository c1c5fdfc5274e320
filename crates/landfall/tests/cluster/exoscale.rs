//! The examples of docs/exoscale.md by kubectl alone, on a real API server: two replicas, of which
//! one leads, and the simulated Exoscale.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use landfall_testkit::exoscale::{KEY, SECRET, Served, Sim, ZONE};
use serde_json::{Value, json};

use crate::bed::{Bed, DEADLINE, LOOK, address, text};
use crate::replica::{Replica, landfall, printed};

/// The manifests as people find them.
const MANIFESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/exoscale");
const PREFIX: &str = "service.beta.kubernetes.io/exoscale-loadbalancer-";
const SERVICES: [&str; 4] = ["nginx", "ingress", "udp-echo", "external"];

fn free() -> SocketAddr {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap()
}

/// The NLB with this address.
fn balancer(sim: &Sim, service: &Value) -> Value {
    let held = address(service).unwrap();
    let mut all = sim.load_balancers().into_iter();
    all.find(|it| it["ip"] == held).unwrap()
}

fn annotation<'a>(service: &'a Value, name: &str) -> &'a str {
    let value = &service["metadata"]["annotations"][format!("{PREFIX}{name}")];
    value.as_str().unwrap_or_default()
}

/// What there is at a port of an NLB, without what the cloud adds.
fn at(nlb: &Value, port: u16) -> Value {
    let services = nlb["services"].as_array().unwrap();
    let found = services.iter().find(|it| it["port"] == port).unwrap();
    let check = &found["healthcheck"];
    json!({
        "protocol": found["protocol"],
        "target": found["target-port"],
        "strategy": found["strategy"],
        "pool": found["instance-pool"]["id"],
        "check": [check["mode"], check["port"], check["uri"]],
        "times": [check["interval"], check["timeout"], check["retries"]],
    })
}

/// Nodes that are instances of a pool.
async fn add_nodes(bed: &Bed, sim: &Sim, pool: &str) {
    for (number, name) in (1..).zip(["node-a", "node-b"]) {
        let instance = sim.add_instance(name, Ipv4Addr::new(192, 0, 2, number), Some(pool));
        let manifest = format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n\
             spec: {{providerID: \"exoscale://{instance}\"}}\nstatus:\n  \
             addresses: [{{type: InternalIP, address: 10.0.0.{number}}}]\n  \
             conditions: [{{type: Ready, status: \"True\"}}]\n"
        );
        bed.kubectl().apply(&manifest).await.unwrap();
    }
}

fn replica(bed: &Bed, name: &str) -> Replica {
    let config = bed.cluster.directory().join("landfall.yaml");
    Replica::spawn(bed, name, free(), &["--config", text(&config)])
}

/// A cluster whose nodes are the instances of a pool, that pool, and a configuration.
async fn open(name: &str) -> (Bed, Sim, String, Served) {
    let bed = Bed::open(name).await;
    let sim = Sim::new();
    sim.configure(|settings| settings.polls = 1);
    let pool = sim.add_pool("web");
    add_nodes(&bed, &sim, &pool).await;
    let served = sim.serve(0).await.unwrap();
    let key = json!({"api_key": KEY, "api_secret": SECRET}).to_string();
    let credentials = bed.write("credentials.json", &key);
    let config = format!(
        "instances:\n- name: exoscale\n  default: true\n  provider:\n    kind: exoscale\n    \
         zone: {ZONE}\n    apiEndpoint: {}\n    credentialsFile: {}\n",
        served.endpoint,
        text(&credentials)
    );
    bed.write("landfall.yaml", &config);
    (bed, sim, pool, served)
}

/// What a command prints that reads cluster and cloud as the administrator.
async fn run(bed: &Bed, arguments: &[&str]) -> String {
    let mut command = landfall(bed.cluster.directory());
    command
        .args(arguments)
        .args(["--kubeconfig", text(bed.cluster.admin())])
        .args(["--config", "landfall.yaml"]);
    printed(command).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_examples_for_exoscale_become_what_they_promise_with_two_replicas() {
    let (bed, sim, pool, _served) = open("exoscale").await;
    let shared = sim.add_load_balancer("shared");
    sim.add_service(&shared, "ssh", 22, &pool);
    let of_others = sim.load_balancers();
    let mut first = replica(&bed, "first");
    first.ready().await;
    let mut second = replica(&bed, "second");
    second.ready().await;

    for name in SERVICES {
        let manifest = format!("{MANIFESTS}/{name}.yaml");
        bed.run(&["apply", "-f", &manifest]).await;
    }
    bed.programmed(&SERVICES).await;
    assert_eq!(sim.load_balancers().len(), 4);
    for name in SERVICES {
        let service = bed.service(name).await;
        let nlb = balancer(&sim, &service);
        assert_eq!(annotation(&service, "id"), nlb["id"].as_str().unwrap());
        assert_eq!(annotation(&service, "service-instancepool-id"), pool);
        let ingress = &service["status"]["loadBalancer"]["ingress"];
        assert_eq!(*ingress, json!([{"ip": nlb["ip"], "ipMode": "VIP"}]));
    }

    let service = bed.service("nginx").await;
    let nlb = balancer(&sim, &service);
    let uid = service["metadata"]["uid"].as_str().unwrap();
    assert_eq!(nlb["name"], format!("k8s-{uid}"));
    assert_eq!(nlb["services"][0]["name"], format!("{uid}-80"));
    let node_port = &service["spec"]["ports"][0]["nodePort"];
    let expected = json!({"protocol": "tcp", "target": node_port, "strategy": "round-robin",
        "pool": pool, "check": ["tcp", node_port, null], "times": [10, 5, 1]});
    assert_eq!(at(&nlb, 80), expected);

    let service = bed.service("ingress").await;
    let nlb = balancer(&sim, &service);
    let texts = (&nlb["name"], &nlb["description"]);
    assert_eq!(texts, (&json!("ingress"), &json!("Ingress of the shop")));
    let health_port = &service["spec"]["healthCheckNodePort"];
    assert!(health_port.as_u64().is_some_and(|it| it > 0));
    for (index, port) in [(0, 80), (1, 443)] {
        let node_port = &service["spec"]["ports"][index]["nodePort"];
        let expected = json!({"protocol": "tcp", "target": node_port, "strategy": "source-hash",
            "pool": pool, "check": ["http", health_port, "/healthz"], "times": [10, 3, 2]});
        assert_eq!(at(&nlb, port), expected);
    }

    let service = bed.service("udp-echo").await;
    let node_port = &service["spec"]["ports"][0]["nodePort"];
    let expected = json!({"protocol": "udp", "target": node_port, "strategy": "round-robin",
        "pool": pool, "check": ["tcp", 31_621, null], "times": [10, 5, 1]});
    assert_eq!(at(&balancer(&sim, &service), 8080), expected);

    let nlb = balancer(&sim, &bed.service("external").await);
    assert_eq!(
        (&nlb["id"], &nlb["name"]),
        (&json!(shared), &json!("shared"))
    );
    assert_eq!(nlb["services"].as_array().unwrap().len(), 2);

    // The leader dies in the middle of a change; the other one goes on, and makes nothing twice.
    let before: Vec<Value> = sim
        .load_balancers()
        .iter()
        .map(|it| it["id"].clone())
        .collect();
    let patch = r#"[{"op": "replace", "path": "/spec/ports/0/port", "value": 8000}]"#;
    bed.run(&["patch", "service", "nginx", "--type=json", "-p", patch])
        .await;
    first.kill().await;
    let began = std::time::Instant::now();
    loop {
        let nlb = balancer(&sim, &bed.service("nginx").await);
        let services = nlb["services"].as_array().unwrap();
        let ports: Vec<&Value> = services.iter().map(|it| &it["port"]).collect();
        if ports == [&json!(8000)] {
            break;
        }
        assert!(began.elapsed() < DEADLINE, "{ports:?}");
        tokio::time::sleep(LOOK).await;
    }
    let after: Vec<Value> = sim
        .load_balancers()
        .iter()
        .map(|it| it["id"].clone())
        .collect();
    assert_eq!(after, before);

    let delete = ["delete", "service", "--timeout=60s"];
    bed.run(&[&delete[..], &SERVICES].concat()).await;
    assert_eq!(sim.load_balancers(), of_others);
    second.stop().await;
}

const WEB: &str = "
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  ports: [{name: web, port: 80, nodePort: 30080}]
";

/// Makes what the controller of Exoscale makes of the Service, as it leaves it.
async fn reference_makes(bed: &Bed, sim: &Sim, pool: &str) {
    let service = bed.service("web").await;
    let uid = service["metadata"]["uid"].as_str().unwrap();
    let id = sim.add_load_balancer(&format!("k8s-{uid}"));
    let made = sim.add_service(&id, &format!("{uid}-80"), 80, pool);
    sim.edit_service(&id, &made, "target-port", json!(30_080));
    let check = json!({"mode": "tcp", "port": 30_080, "interval": 10, "timeout": 5, "retries": 1});
    sim.edit_service(&id, &made, "healthcheck", check);
    let annotations = [
        format!("{PREFIX}id={id}"),
        format!("{PREFIX}service-instancepool-id={pool}"),
    ];
    let annotate = ["annotate", "service", "web"];
    let annotations = annotations.each_ref().map(String::as_str);
    bed.run(&[&annotate[..], &annotations].concat()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_exoscales_controller_made_is_taken_over_without_a_write_to_the_cloud() {
    let (bed, sim, pool, _served) = open("takeover").await;
    bed.apply(WEB).await;
    reference_makes(&bed, &sim, &pool).await;
    let before = sim.load_balancers();

    let apply = [
        "adopt",
        "--apply",
        "--timeout",
        "60",
        "--namespace",
        "default",
    ];
    let reported = run(&bed, &apply).await;
    assert!(reported.contains("1 of 1 Service taken over"), "{reported}");
    assert!(sim.writes().is_empty(), "{:#?}", sim.writes());
    assert_eq!(sim.load_balancers(), before);
    let published = bed.service("web").await;
    assert_eq!(address(&published), before[0]["ip"].as_str());

    // Only what carries the UID of this cluster is an orphan of it.
    let system = bed.kubectl().get(&["namespace", "kube-system"]).await;
    let own = system.unwrap()["metadata"]["uid"].clone();
    let another = "77777777-7777-4777-8777-777777777777";
    for (name, cluster) in [("leaked", own), ("other", json!(another))] {
        let id = sim.add_load_balancer(name);
        let labels = json!({"landfall-cluster": cluster, "landfall-service-uid": another,
            "landfall-namespace": "gone", "landfall-service": "gone"});
        sim.edit_load_balancer(&id, "labels", labels);
    }
    let reported = run(&bed, &["orphans", "--delete", "--yes"]).await;
    assert!(
        reported.contains("deleted load balancer leaked"),
        "{reported}"
    );
    let left = sim.load_balancers();
    let left: Vec<&str> = left.iter().filter_map(|it| it["name"].as_str()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(!left.contains(&"leaked"), "{left:?}");
}
