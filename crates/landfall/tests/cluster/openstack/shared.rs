//! Two clusters of one name in one project of the real OpenStack, each with an API server and a
//! controller of its own. A Service of the one uses the load balancer of the other's: whatever
//! becomes of the owner, that Service stays untouched and served.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use landfall_testkit::stack::{Project, Service};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::picture::{Picture, word};
use super::scene::{LOOK, SOON, Scene, orphans};
use crate::bed::{Bed, address, text};
use crate::replica::Replica;

const INTERNAL: &str = "service.beta.kubernetes.io/openstack-internal-load-balancer";
const NAMED: &str = "loadbalancer.openstack.org/load-balancer-id";
const TLS: &str = "loadbalancer.openstack.org/default-tls-container-ref";

const PROGRAMMED: &str = "landfall.dev/Programmed";

/// The port of the Service that shares.
const SHARED: u16 = 8080;

/// Both clusters, and what their controllers do.
struct Two {
    scene: Scene,
    guests: Bed,
    owner: Option<Replica>,
    guest: Replica,
}

/// One that looks again and again at what serves the shared port.
struct Watch {
    ends: Arc<AtomicBool>,
    looking: JoinHandle<Vec<String>>,
}

// === impl Two ===

impl Two {
    async fn open() -> Self {
        let scene = Scene::open("shared").await;
        let guests = Bed::second("guests").await;
        let nodes = [("node-x", [10, 0, 0, 21]), ("node-y", [10, 0, 0, 22])];
        scene.add_nodes(&guests, &nodes).await;
        scene.configure("perService");
        scene.configure_for(&guests, "perService");
        let owner = Some(scene.controller());
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let admin = free.local_addr().unwrap();
        drop(free);
        let config = guests.cluster.directory().join("landfall.yaml");
        let arguments = ["--leader-elect=false", "--config", text(&config)];
        let guest = Replica::spawn(&guests, "guest", admin, &arguments);
        Self {
            scene,
            guests,
            owner,
            guest,
        }
    }

    /// Annotates a Service; without a value the annotation is taken away.
    async fn annotate(bed: &Bed, service: &str, key: &str, value: Option<&str>) {
        let change = value.map_or_else(|| format!("{key}-"), |value| format!("{key}={value}"));
        bed.run(&["annotate", "--overwrite", "service", service, &change])
            .await;
    }

    /// Waits until the conditions of a Service report all of these; nothing: it is served.
    async fn reported(bed: &Bed, name: &str, parts: &[&str]) {
        let began = Instant::now();
        loop {
            let service = bed.service(name).await;
            let conditions = service["status"]["conditions"].as_array();
            let conditions: Vec<&Value> = conditions.into_iter().flatten().collect();
            let unmet = conditions.iter().filter(|it| it["status"] != "True");
            let said: Vec<&str> = unmet.map(|it| word(it, "message")).collect();
            let said = said.join("; ");
            let mut serving = conditions.iter().filter(|it| it["status"] == "True");
            let is_programmed = serving.any(|it| it["type"] == PROGRAMMED);
            let met = if parts.is_empty() {
                said.is_empty() && is_programmed
            } else {
                parts.iter().all(|part| said.contains(part))
            };
            if met {
                return;
            }
            assert!(began.elapsed() < SOON, "{name}: {parts:?} in {service:#}");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// What the Service that shares is served by: ids, and the sources that reach it.
    async fn shared_part(&self) -> String {
        let picture = Picture::of(self.scene.project()).await;
        let listener = at(&picture.listeners, SHARED).expect("the shared port is served");
        let balancer = word(&listener["loadbalancers"][0], "id");
        let balancers = picture.balancers.iter();
        let mut balancers = balancers.filter(|it| it["id"] == balancer);
        let port = &balancers.next().unwrap()["vip_port_id"];
        let mut floating_ips = picture.floating_ips.iter();
        let floating_ip = floating_ips.find(|it| it["port_id"] == *port);
        let floating_ip = floating_ip.expect("a floating IP leads there");
        format!(
            "{balancer} {} {} {} {} {}",
            word(floating_ip, "floating_ip_address"),
            word(listener, "id"),
            word(listener, "protocol"),
            listener["allowed_cidrs"],
            word(listener, "default_pool_id")
        )
    }

    /// A Service whose finalizer is taken off by hand, with its controller away, leaves a load
    /// balancer behind that nothing owns.
    async fn abandon(&mut self, name: &str) {
        self.owner.take().unwrap().stop().await;
        let bed = &self.scene.bed;
        let bare = "{\"metadata\":{\"finalizers\":null}}";
        bed.run(&["patch", "service", name, "--type=merge", "-p", bare])
            .await;
        bed.run(&["delete", "service", name, "--timeout=60s"]).await;
        self.owner = Some(self.scene.controller());
    }
}

// === impl Watch ===

impl Watch {
    fn over(project: &Arc<Project>) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let (project, ended) = (project.clone(), ends.clone());
        let looking = tokio::spawn(async move {
            let mut broken = Vec::new();
            let mut looks = 0_usize;
            while !ended.load(Ordering::SeqCst) {
                looks += 1;
                broken.extend(fault(&project).await);
                tokio::time::sleep(LOOK).await;
            }
            eprintln!("looked {looks} times at what serves port {SHARED}");
            assert!(looks > 20, "{looks}");
            broken
        });
        Self { ends, looking }
    }

    /// What was ever seen to be wrong.
    async fn end(self) -> Vec<String> {
        self.ends.store(true, Ordering::SeqCst);
        self.looking.await.unwrap()
    }
}

/// Why a client of the shared port would not be served now.
async fn fault(project: &Project) -> Option<String> {
    let list = async |name: &str| {
        let path = format!("/v2/lbaas/{name}");
        project
            .list(Service::LoadBalancer, &path, name)
            .await
            .unwrap()
    };
    let listeners = list("listeners").await;
    let Some(listener) = at(&listeners, SHARED) else {
        return Some("no listener".to_owned());
    };
    let states = ["ACTIVE", "PENDING_UPDATE"];
    if listener["admin_state_up"] != true
        || !states.contains(&word(listener, "provisioning_status"))
    {
        return Some(format!("{listener}"));
    }
    let balancers = list("loadbalancers").await;
    let of = &listener["loadbalancers"][0]["id"];
    let balancer = balancers.iter().find(|it| it["id"] == *of);
    let Some(balancer) = balancer else {
        return Some("no load balancer".to_owned());
    };
    if !states.contains(&word(balancer, "provisioning_status")) {
        return Some(format!("{balancer}"));
    }
    let pool = word(listener, "default_pool_id");
    let path = format!("/v2/lbaas/pools/{pool}/members");
    let members = project.get(Service::LoadBalancer, &path).await;
    let members = members.map_or(Value::Null, |mut it| it["members"].take());
    if members.as_array().is_none_or(|all| all.len() < 2) {
        return Some(format!("{members}"));
    }
    let path = "/v2.0/floatingips";
    let floating_ips = project.list(Service::Network, path, "floatingips").await;
    let leads = |it: &Value| it["port_id"] == balancer["vip_port_id"];
    let reached = floating_ips.unwrap().iter().any(leads);
    (!reached).then(|| "no floating IP".to_owned())
}

fn at(listeners: &[Value], port: u16) -> Option<&Value> {
    listeners.iter().find(|it| it["protocol_port"] == port)
}

/// The addresses of the members that serve a port.
async fn members(project: &Project, port: u16) -> Vec<String> {
    let picture = Picture::of(project).await;
    let pool = word(at(&picture.listeners, port).unwrap(), "default_pool_id");
    let pool = picture.pools.iter().find(|it| it["id"] == pool).unwrap();
    let members = pool["members"].as_array().unwrap().iter();
    let mut addresses: Vec<String> = members.map(|it| word(it, "address").to_owned()).collect();
    addresses.sort();
    addresses
}

/// A secret that is no certificate.
async fn no_certificate(project: &Project) -> String {
    let body = json!({
        "name": "note", "payload": "no certificate", "payload_content_type": "text/plain",
    });
    let made = project.post(Service::KeyManager, "/v1/secrets", body).await;
    word(&made.unwrap(), "secret_ref").to_owned()
}

fn service(name: &str, port: u16, annotations: &BTreeMap<&str, &str>) -> String {
    let annotations = json!(annotations);
    format!(
        "---\napiVersion: v1\nkind: Service\n\
         metadata: {{name: {name}, annotations: {annotations}}}\n\
         spec:\n  type: LoadBalancer\n  ports: [{{port: {port}}}]\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_cluster_of_the_same_name_uses_stays_untouched_and_served() {
    let mut two = Two::open().await;
    let bare = BTreeMap::new();
    let both = service("web", 80, &bare) + &service("left", 81, &bare);
    two.scene.bed.apply(&both).await;
    two.scene.programmed(&["web", "left"]).await;
    let picture = Picture::of(two.scene.project()).await;
    let web = at(&picture.listeners, 80).unwrap();
    let id = word(&web["loadbalancers"][0], "id").to_owned();
    let left = at(&picture.listeners, 81).unwrap();
    let left = word(&left["loadbalancers"][0], "id").to_owned();
    let names = BTreeMap::from([(NAMED, id.as_str())]);
    two.guests.apply(&service("guest", SHARED, &names)).await;
    Two::reported(&two.guests, "guest", &[]).await;
    let published = two.guests.service("guest").await;
    let published = address(&published).unwrap().to_owned();
    let owner = two.scene.bed.service("web").await;
    assert_eq!(address(&owner), Some(published.as_str()));
    let before = two.shared_part().await;
    let watch = Watch::over(two.scene.project());

    // Internal on and off, for the Service that shares and for the owner.
    Two::annotate(&two.guests, "guest", INTERNAL, Some("true")).await;
    Two::reported(&two.guests, "guest", &["can't share"]).await;
    Two::annotate(&two.scene.bed, "web", INTERNAL, Some("true")).await;
    Two::reported(&two.scene.bed, "web", &["can't become internal"]).await;
    assert_eq!(two.shared_part().await, before);
    Two::annotate(&two.guests, "guest", INTERNAL, None).await;
    Two::reported(&two.guests, "guest", &[]).await;
    Two::annotate(&two.scene.bed, "web", INTERNAL, None).await;
    Two::reported(&two.scene.bed, "web", &[]).await;
    assert_eq!(two.shared_part().await, before);

    // A certificate that Octavia refuses, and a node in between.
    let reference = no_certificate(two.scene.project()).await;
    Two::annotate(&two.guests, "guest", TLS, Some(&reference)).await;
    Two::reported(&two.guests, "guest", &[TLS]).await;
    let node = [("node-z", [10, 0, 0, 23])];
    two.scene.add_nodes(&two.guests, &node).await;
    let began = Instant::now();
    while members(two.scene.project(), SHARED).await.len() < 3 {
        assert!(began.elapsed() < SOON, "the node is no member");
        tokio::time::sleep(LOOK).await;
    }
    assert_eq!(two.shared_part().await, before);

    // What the owner's cluster has lost goes, and nothing else.
    two.abandon("left").await;
    let reported = orphans(&two.scene.bed).await;
    assert!(
        reported.contains(&left) && !reported.contains(&id),
        "{reported}"
    );
    assert!(reported.ends_with(", 0 could not be\n"), "{reported}");
    let reported = orphans(&two.guests).await;
    assert!(reported.starts_with("0 orphans among "), "{reported}");
    assert_eq!(two.shared_part().await, before);

    // The owner goes; then there is nothing of it to be found.
    two.scene.delete(&["web"]).await;
    for bed in [&two.scene.bed, &two.guests] {
        let reported = orphans(bed).await;
        assert!(reported.starts_with("0 orphans among "), "{reported}");
    }
    assert_eq!(two.shared_part().await, before);
    Two::annotate(&two.guests, "guest", TLS, None).await;
    Two::reported(&two.guests, "guest", &[]).await;
    let now = two.guests.service("guest").await;
    assert_eq!(address(&now), Some(published.as_str()));
    assert_eq!(two.shared_part().await, before);
    let broken = watch.end().await;
    assert_eq!(broken, Vec::<String>::new());

    // The last one to leave takes everything along.
    let delete = ["delete", "service", "guest", "--timeout=900s"];
    two.guests.run(&delete).await;
    let picture = gone(two.scene.project()).await;
    assert_eq!(picture.count(), 0, "{:#?}", picture.balancers);
    two.owner.take().unwrap().stop().await;
    two.guest.stop().await;
    two.scene.close().await;
}

/// What is left once deleted load balancers have gone.
async fn gone(project: &Project) -> Picture {
    const LONG: Duration = Duration::from_secs(120);
    let began = Instant::now();
    loop {
        let picture = Picture::of(project).await;
        if picture.count() == 0 || began.elapsed() > LONG {
            return picture;
        }
        tokio::time::sleep(LOOK).await;
    }
}
