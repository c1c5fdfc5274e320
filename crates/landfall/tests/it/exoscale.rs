//! An instance on Exoscale: the real binary against the simulated cloud.

use std::fs;
use std::net::Ipv4Addr;

use landfall_testkit::exoscale::{KEY, SECRET, Served, Sim, ZONE};
use serde_json::{Value, json};

use crate::lab::Lab;
use crate::process::{self, Ended};

const UID: &str = "0d6f7a52-1c1e-4a5e-8f5b-2a7c9d4e6b10";
const GONE: &str = "6f1b5d1c-8a70-4f5c-9d0e-0b8f9a1c2d3e";
const CONFIG: [&str; 2] = ["--config", "landfall.yaml"];

/// A lab whose manifests are a cluster's, on a zone with one instance pool.
struct Scene {
    lab: Lab,
    sim: Sim,
    served: Served,
    pool: String,
}

/// A Service as a cluster has it.
fn service(name: &str, uid: &str, annotations: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n  namespace: default\n  \
         uid: {uid}\n  annotations: {{{annotations}}}\nspec:\n  type: LoadBalancer\n  \
         ports: [{{name: http, port: 80, nodePort: 30080}}]\n"
    )
}

impl Scene {
    async fn set() -> Self {
        let sim = Sim::new();
        sim.configure(|settings| settings.polls = 1);
        let pool = sim.add_pool("web");
        let instance = sim.add_instance("node-a", Ipv4Addr::new(192, 0, 2, 1), Some(&pool));
        let served = sim.serve(0).await.unwrap();
        let lab = Lab::new().options(&CONFIG);
        lab.write(
            "nodes.yaml",
            &format!(
                "apiVersion: v1\nkind: Node\nmetadata: {{name: node-a}}\n\
                 spec: {{providerID: \"exoscale://{instance}\"}}\nstatus:\n  \
                 addresses: [{{type: InternalIP, address: 10.0.0.1}}]\n  \
                 conditions: [{{type: Ready, status: \"True\"}}]\n"
            ),
        );
        let scene = Self {
            lab,
            sim,
            served,
            pool,
        };
        scene.key(KEY, SECRET);
        scene.zone(ZONE);
        scene
    }

    fn put(&self, name: &str, text: &str) {
        fs::write(self.lab.path(name), text).unwrap();
    }

    fn key(&self, key: &str, secret: &str) {
        let text = json!({"api_key": key, "api_secret": secret}).to_string();
        self.put("credentials.json", &text);
    }

    fn zone(&self, zone: &str) {
        let config = format!(
            "instances:\n- name: cloud\n  default: true\n  provider:\n    kind: exoscale\n    \
             zone: {zone}\n    apiEndpoint: {}\n    credentialsFile: credentials.json\n    \
             clusterName: shop\n",
            self.served.endpoint
        );
        self.put("landfall.yaml", &config);
    }

    async fn run(&self, command: &[&str], more: &[&str]) -> Ended {
        let arguments = [command, &CONFIG[..], more, &["-f"]].concat();
        self.lab.landfall(&arguments, &[&self.lab.folder()]).await
    }

    async fn check(&self) -> Ended {
        let arguments = ["check", "--connect", "--config", "landfall.yaml"];
        self.lab.landfall(&arguments, &[]).await
    }

    /// Lets `up` fail to start; hands over what it said.
    async fn fails(&self) -> String {
        let folder = self.lab.folder();
        let folder = folder.to_str().unwrap();
        let up = ["up", "--admin", "127.0.0.1:0", "--state", "state", "-f"];
        let arguments = [&up[..], &[folder], &CONFIG].concat();
        let program = process::program(&self.lab.path("."), &arguments);
        let ended = process::run(program, "").await;
        assert_eq!(ended.code(), Some(1), "{}", ended.stderr);
        ended.stderr
    }

    /// An NLB as a controller makes it, with a port 80.
    fn made(&self, name: &str, uid: &str, cluster: Option<&str>) -> String {
        let nlb = self.sim.add_load_balancer(name);
        self.sim
            .add_service(&nlb, &format!("{uid}-80"), 80, &self.pool);
        if let Some(cluster) = cluster {
            let labels = json!({"landfall-cluster": cluster, "landfall-service-uid": uid,
                "landfall-namespace": "default", "landfall-service": name});
            self.sim.edit_load_balancer(&nlb, "labels", labels);
        }
        nlb
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_gets_a_load_balancer_is_counted_and_leaves_nothing_behind() {
    let mut scene = Scene::set().await;
    scene.lab.write("web.yaml", &service("web", UID, ""));
    let planned = scene.run(&["plan"], &[]).await.good();
    assert!(planned.contains("create load balancer"), "{planned}");
    assert!(scene.sim.load_balancers().is_empty());

    scene.lab.start().await;
    let web = scene.lab.ready("default/web").await;
    let all = scene.sim.load_balancers();
    let held: Vec<String> = web.status.addresses().map(|it| it.to_string()).collect();
    assert_eq!(json!(held), json!([all[0]["ip"]]));
    let metrics = scene.lab.text("/metrics").await;
    let made = "landfall_cloud_calls_total{instance=\"cloud\",method=\"POST\",\
                resource=\"load-balancer\",outcome=\"ok\"} 1";
    assert!(metrics.contains(made), "{metrics}");
    scene.lab.remove("web.yaml");
    scene.lab.gone("default/web").await;
    assert!(scene.sim.load_balancers().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_reference_made_is_shown_as_taken_over_without_a_write() {
    let scene = Scene::set().await;
    let name = format!("k8s-{UID}");
    let nlb = scene.made(&name, UID, None);
    let found = scene.sim.load_balancers();
    let id = found[0]["services"][0]["id"].as_str().unwrap().to_owned();
    scene
        .sim
        .edit_service(&nlb, &id, "target-port", json!(30_080));
    let check = json!({"mode": "tcp", "port": 30_080, "interval": 10, "timeout": 5, "retries": 1});
    scene.sim.edit_service(&nlb, &id, "healthcheck", check);
    let before = scene.sim.load_balancers();
    let named = format!("service.beta.kubernetes.io/exoscale-loadbalancer-id: {nlb}");
    scene.lab.write("web.yaml", &service("web", UID, &named));
    let reported = scene.run(&["adopt"], &[]).await.good();
    let line = format!("  takes over load balancer {name} ({nlb})\n");
    assert!(reported.contains(&line), "{reported}");
    let summary = "1 Service, 1 taken over with no write, 0 steps for 0 others\n";
    assert!(reported.ends_with(summary), "{reported}");
    assert_eq!(scene.sim.load_balancers(), before);
    assert!(scene.sim.writes().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_cluster_has_leaked_is_deleted_and_nothing_of_others() {
    let scene = Scene::set().await;
    scene.lab.write("web.yaml", &service("web", UID, ""));
    scene.made("web", UID, Some("shop"));
    scene.made("theirs", GONE, Some("other"));
    scene.made(&format!("k8s-{GONE}"), GONE, None);
    let mixed = scene.made("mixed", GONE, Some("shop"));
    scene.sim.add_service(&mixed, "by-hand", 22, &scene.pool);
    let kept = scene.sim.load_balancers();
    let leaked = scene.made("gone", GONE, Some("shop"));
    let ended = scene.run(&["orphans"], &["-o", "json"]).await;
    assert_eq!(ended.code(), Some(1), "{}", ended.stderr);
    let reported: Value = serde_json::from_str(&ended.stdout).unwrap();
    let orphans = reported["orphans"].as_array().unwrap();
    let ids: Vec<&Value> = orphans.iter().map(|it| &it["id"]).collect();
    assert_eq!(ids, [&json!(leaked)]);
    assert!(scene.sim.writes().is_empty());
    let reported = scene.run(&["orphans"], &["--delete", "--yes"]).await;
    let reported = reported.good();
    assert!(
        reported.ends_with("1 deleted, 0 could not be\n"),
        "{reported}"
    );
    assert_eq!(scene.sim.load_balancers(), kept);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_stops_the_start_is_named_and_found_by_check() {
    let scene = Scene::set().await;
    let good = scene.check().await.good();
    assert!(good.contains(&scene.served.endpoint), "{good}");

    scene.key("EXOwrong", "wrong-word");
    for said in [scene.fails().await, scene.check().await.stdout] {
        for word in [ZONE, "API key"] {
            assert!(said.contains(word), "{word}: {said}");
        }
        assert!(!said.contains("wrong-word"), "{said}");
    }
    scene.key(KEY, SECRET);
    scene.sim.configure(|settings| settings.clock_ahead = 7200);
    for said in [scene.fails().await, scene.check().await.stdout] {
        assert!(said.contains("clock"), "{said}");
    }
    scene.sim.configure(|settings| settings.clock_ahead = 0);
    scene.zone("nowhere-1");
    for said in [scene.fails().await, scene.check().await.stdout] {
        assert!(said.contains("nowhere-1"), "{said}");
    }
    scene.zone(ZONE);
    fs::remove_file(scene.lab.path("credentials.json")).unwrap();
    let said = scene.fails().await;
    assert!(said.contains("credentials.json"), "{said}");
    assert!(scene.sim.writes().is_empty());
}
