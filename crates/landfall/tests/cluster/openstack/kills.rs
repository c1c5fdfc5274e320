//! The controller is killed at random moments, as by `kill -9`, on the real OpenStack. The next one
//! brings everything to the end that an undisturbed one would have come to, leaks nothing, and
//! touches nothing of others.
//!
//! `LANDFALL_KILLS=100` goes on until there were that many kills. What a run is to do stands at its
//! beginning: `LANDFALL_SEED=N` does it again, as far as real time allows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use landfall_testkit::stack::{Mark, Service, Stack};
use serde_json::{Value, json};

use super::picture::{Picture, word};
use super::scene::{LOOK, SOON, Scene};
use crate::bed::{address, condition};
use crate::replica::Replica;

/// So many kills are enough, once a round has ended.
const KILLS: usize = 14;

/// So late a controller is killed, even where it takes fewer steps than thought.
const AT_LEAST_THEN: Duration = Duration::from_secs(10);

/// What people do in a round, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Create,
    AddPort,
    Timeout,
    Share,
    Address,
    Unshare,
    Delete,
}

const ROUND: [Act; 7] = [
    Act::Create,
    Act::AddPort,
    Act::Timeout,
    Act::Share,
    Act::Unshare,
    Act::Address,
    Act::Delete,
];

/// Both layouts of security groups, in turn.
const LAYOUTS: [&str; 2] = ["perService", "perCluster"];

/// Objects of another owner in the project, which must not be touched.
struct ForeignObjects {
    balancer: Value,
    listener: Value,
    pool: Value,
    floating_ip: Value,
    group: Value,
}

/// What the Services ask for.
#[derive(Default)]
struct Specs {
    /// The ports of each Service that is there.
    ports: BTreeMap<&'static str, Vec<u16>>,
    /// Milliseconds, of the first one.
    timeout: u64,
    /// The floating IP that is asked for.
    address: Option<String>,
}

struct Story {
    scene: Scene,
    foreign_objects: ForeignObjects,
    /// A floating IP that was made by hand, to be asked for.
    spare: Value,
    layout: &'static str,
    specs: Specs,
    dice: Dice,
    controller: Option<Replica>,
}

/// Numbers that look random, and are the same for the same seed (`SplitMix64`).
struct Dice(u64);

// === impl Dice ===

impl Dice {
    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn moment(&mut self, within: Duration) -> Duration {
        let most = u64::try_from(within.as_millis()).unwrap();
        Duration::from_millis(self.number() % most)
    }

    fn one_in(&mut self, chances: u64) -> bool {
        self.number().is_multiple_of(chances)
    }
}

// === impl Act ===

impl Act {
    /// About how many steps it takes.
    fn steps(self) -> u64 {
        match self {
            Self::Create => 6,
            Self::Share | Self::Delete => 3,
            Self::AddPort | Self::Address | Self::Unshare => 2,
            Self::Timeout => 1,
        }
    }
}

// === impl Story ===

impl Story {
    async fn begin(dice: Dice) -> Self {
        let scene = Scene::open("kills").await;
        let foreign_objects = ForeignObjects::make(&scene).await;
        let spare = floating_ip(&scene, &json!({"description": "spare"})).await;
        Self {
            scene,
            foreign_objects,
            spare,
            layout: LAYOUTS[0],
            specs: Specs::default(),
            dice,
            controller: None,
        }
    }

    /// A round in one layout of security groups. How often the controller was killed in it.
    async fn round(&mut self, layout: &'static str) -> usize {
        self.layout = layout;
        self.scene.configure(layout);
        let mut kills = 0;
        for act in ROUND {
            kills += self.kill_during(act).await;
        }
        self.controller.take().unwrap().stop().await;
        kills
    }

    fn name(&self) -> String {
        format!("kube_service_c1_{}_web", self.scene.bed.namespace)
    }

    /// Does what people do, with kubectl.
    async fn act(&mut self, act: Act) {
        let bed = &self.scene.bed;
        let specs = &mut self.specs;
        match act {
            Act::Create => {
                specs.timeout = 50_000;
                specs.address = None;
                specs.ports.insert("web", vec![80, 443]);
                bed.apply(&service("web", &[80, 443], "")).await;
            }
            Act::AddPort => {
                specs.ports.insert("web", vec![80, 443, 8443]);
                let port = r#"[{"op": "add", "path": "/spec/ports/-",
                    "value": {"name": "p8443", "port": 8443}}]"#;
                bed.run(&["patch", "service", "web", "--type=json", "-p", port])
                    .await;
            }
            Act::Timeout => {
                specs.timeout = 300_000;
                let annotation = "loadbalancer.openstack.org/timeout-client-data=300000";
                bed.run(&["annotate", "service", "web", annotation]).await;
            }
            Act::Share => {
                specs.ports.insert("second", vec![81]);
                let picture = Picture::of(self.scene.project()).await;
                let mut balancers = picture.balancers.iter();
                let own = balancers.find(|it| it["id"] != self.foreign_objects.balancer["id"]);
                let id = word(own.unwrap(), "id");
                let named = format!("loadbalancer.openstack.org/load-balancer-id: {id}");
                bed.apply(&service("second", &[81], &named)).await;
            }
            Act::Address => {
                let wanted = word(&self.spare, "floating_ip_address").to_owned();
                let patch = json!({"spec": {"loadBalancerIP": wanted}}).to_string();
                specs.address = Some(wanted);
                bed.run(&["patch", "service", "web", "-p", &patch]).await;
            }
            Act::Unshare => {
                specs.ports.remove("second");
                bed.run(&["delete", "service", "second", "--wait=false"])
                    .await;
            }
            Act::Delete => {
                specs.ports.remove("web");
                bed.run(&["delete", "service", "web", "--wait=false"]).await;
            }
        }
    }

    /// Does it, kills the controller meanwhile, perhaps its successor, too, and waits until the
    /// last one has applied the specs. How often it killed.
    async fn kill_during(&mut self, act: Act) -> usize {
        let mut controller = match self.controller.take() {
            Some(controller) => controller,
            None => self.scene.controller(),
        };
        controller.ready_within(SOON).await;
        let mark = Stack::shared().await.mark().await.unwrap();
        // Some way into the step after so many.
        let steps = usize::try_from(self.dice.number() % (act.steps() + 1)).unwrap();
        let moment = self.dice.moment(Duration::from_millis(900));
        let again = self.dice.one_in(3);
        let later = self.dice.moment(Duration::from_secs(3));
        let before = controller.applied();
        let kill = async {
            let began = Instant::now();
            while controller.applied() < before + steps && began.elapsed() < AT_LEAST_THEN {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            tokio::time::sleep(moment).await;
            controller.kill().await;
        };
        tokio::join!(self.act(act), kill);
        let writes = self.writes_since(&mark).await;
        let mut kills = 1;
        if again {
            let successor = self.scene.controller();
            tokio::time::sleep(later).await;
            successor.kill().await;
            kills += 1;
        }
        let began = Instant::now();
        let last = self.scene.controller();
        self.settle(act).await;
        let all = self.writes_since(&mark).await;
        self.controller = Some(last);
        let twice = if again {
            format!(", and its successor after {later:?}")
        } else {
            String::new()
        };
        eprintln!(
            "{act:?}: killed {moment:?} after step {steps}, with {writes} of {all} writes \
            made{twice}; settled {:?} after the last start",
            began.elapsed()
        );
        kills
    }

    async fn writes_since(&self, mark: &Mark) -> usize {
        let calls = self.scene.project().calls_since(mark, "landfall/").await;
        let calls = calls.unwrap();
        calls.iter().filter(|call| call.is_write()).count()
    }

    /// Waits until everything is as the specs ask.
    async fn settle(&self, act: Act) {
        let began = Instant::now();
        loop {
            let problems = self.problems().await;
            if problems.is_empty() {
                return;
            }
            assert!(began.elapsed() < SOON, "after {act:?}: {problems:#?}");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// What differs from the specs.
    async fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let picture = Picture::of(self.scene.project()).await;
        self.foreign_objects.validate(&picture);
        let list = ["-n", &self.scene.bed.namespace, "services"];
        let services = self.scene.bed.kubectl().get(&list).await.unwrap();
        let services: Vec<Value> = services["items"].as_array().unwrap().clone();
        let names: BTreeSet<&str> = services
            .iter()
            .map(|it| word(&it["metadata"], "name"))
            .collect();
        if names != self.specs.ports.keys().copied().collect() {
            problems.push(format!("there are the Services {names:?}"));
        }
        self.validate_balancers(&picture, &services, &mut problems);
        self.validate_floating_ips(&picture, &services, &mut problems);
        self.validate_groups(&picture, &services, &mut problems);
        problems
    }

    /// One load balancer, with what all Services want of it; none without a Service.
    fn validate_balancers(
        &self,
        picture: &Picture,
        services: &[Value],
        problems: &mut Vec<String>,
    ) {
        let own = picture
            .balancers
            .iter()
            .filter(|it| it["id"] != self.foreign_objects.balancer["id"]);
        let own: Vec<&Value> = own.collect();
        let wanted = usize::from(!self.specs.ports.is_empty());
        if own.len() != wanted {
            problems.push(format!("{} load balancers", own.len()));
            return;
        }
        // One of each is of another owner.
        let (listeners, pools) = (picture.listeners.len() - 1, picture.pools.len() - 1);
        let wanted = self.specs.ports.values().map(Vec::len).sum::<usize>();
        if listeners != wanted || pools != wanted {
            problems.push(format!(
                "{listeners} listeners and {pools} pools for {wanted} ports"
            ));
        }
        let Some(balancer) = own.first() else {
            return;
        };
        if balancer["name"] != self.name() || balancer["provisioning_status"] != "ACTIVE" {
            problems.push(format!(
                "{} is {}",
                balancer["name"], balancer["provisioning_status"]
            ));
        }
        let tagged = |service: &&str| {
            let tag = format!("kube_service_c1_{}_{service}", self.scene.bed.namespace);
            let tags = balancer["tags"].as_array().unwrap();
            tags.contains(&json!(tag))
        };
        let users: Vec<&str> = ["web", "second"].into_iter().filter(tagged).collect();
        if users.len() != self.specs.ports.len() {
            problems.push(format!("it is marked for {users:?}"));
        }
        for service in services {
            self.validate_ports(picture, balancer, service, problems);
        }
    }

    /// A listener for each port, with each node behind it.
    fn validate_ports(
        &self,
        picture: &Picture,
        balancer: &Value,
        service: &Value,
        problems: &mut Vec<String>,
    ) {
        let name = word(&service["metadata"], "name");
        let programmed = condition(service, "Programmed");
        if programmed.as_ref().is_none_or(|(truth, _)| truth != "True") {
            problems.push(format!("{name} is {programmed:?}"));
        }
        let listeners = picture.listeners_of(balancer);
        for port in service["spec"]["ports"].as_array().into_iter().flatten() {
            let mut found = listeners
                .iter()
                .filter(|it| it["protocol_port"] == port["port"]);
            let Some(listener) = found.next() else {
                problems.push(format!("{name} has no listener for {}", port["port"]));
                continue;
            };
            let timeout = if name == "web" {
                self.specs.timeout
            } else {
                50_000
            };
            if listener["timeout_client_data"] != timeout {
                problems.push(format!("{name} has {}", listener["timeout_client_data"]));
            }
            let members = picture.pool_of(listener)["members"].clone();
            let members: BTreeSet<(String, u64)> = members
                .as_array()
                .into_iter()
                .flatten()
                .map(|it| {
                    let port = it["protocol_port"].as_u64().unwrap_or_default();
                    (word(it, "address").to_owned(), port)
                })
                .collect();
            let node_port = port["nodePort"].as_u64().unwrap_or_default();
            let nodes = self.scene.nodes.iter();
            let wanted = nodes.map(|node| (node.address.to_string(), node_port));
            if members != wanted.collect() {
                problems.push(format!("{name} has members {members:?}"));
            }
        }
    }

    /// One floating IP that leads to the load balancer, which is what is published; and none that
    /// leads nowhere but the spare one.
    fn validate_floating_ips(
        &self,
        picture: &Picture,
        services: &[Value],
        problems: &mut Vec<String>,
    ) {
        let spare = &self.spare["id"];
        if !picture.floating_ips.iter().any(|it| it["id"] == *spare) {
            problems.push("the floating IP that was made by hand is gone".to_owned());
        }
        let (idle, used): (Vec<&Value>, Vec<&Value>) = picture
            .floating_ips
            .iter()
            .filter(|it| it["id"] != self.foreign_objects.floating_ip["id"])
            .partition(|it| it["port_id"].is_null());
        if idle.iter().any(|it| it["id"] != *spare) {
            problems.push(format!("a floating IP leads nowhere: {idle:?}"));
        }
        let wanted = usize::from(!self.specs.ports.is_empty());
        if used.len() != wanted {
            problems.push(format!("{} floating IPs are in use", used.len()));
        }
        let Some(floating_ip) = used.first() else {
            return;
        };
        let held = word(floating_ip, "floating_ip_address");
        if self.specs.address.as_deref().is_some_and(|it| it != held) {
            problems.push(format!("{held} is in use"));
        }
        for service in services {
            if address(service) != Some(held) {
                let published = &service["status"]["loadBalancer"];
                problems.push(format!("{held} is held, and published {published}"));
            }
        }
    }

    /// Exactly the NodePorts are opened on every node.
    fn validate_groups(&self, picture: &Picture, services: &[Value], problems: &mut Vec<String>) {
        let own = picture
            .groups
            .iter()
            .filter(|it| it["id"] != self.foreign_objects.group["id"]);
        let (shared, single): (Vec<&Value>, Vec<&Value>) =
            own.partition(|it| word(it, "name").starts_with("landfall-nodes-"));
        let ports_of = |service: &Value| -> BTreeSet<u64> {
            let ports = service["spec"]["ports"].as_array().into_iter().flatten();
            ports.filter_map(|it| it["nodePort"].as_u64()).collect()
        };
        let everywhere = |group: &Value| picture.guarded_by(group) == self.scene.nodes.len();
        let per_service = self.layout == "perService";
        let wanted = if per_service { services.len() } else { 0 };
        if single.len() != wanted || shared.len() > 1 {
            problems.push(format!(
                "{} groups of Services, {} of the cluster",
                single.len(),
                shared.len()
            ));
        }
        if per_service {
            for service in services {
                let uid = word(&service["metadata"], "uid");
                let mut own = single.iter().filter(|it| word(it, "name").contains(uid));
                let opened = own.next().is_some_and(|group| {
                    Picture::opened(group) == ports_of(service) && everywhere(group)
                });
                if !opened {
                    problems.push(format!("ports of {uid} are not opened by its group"));
                }
            }
        }
        let all: BTreeSet<u64> = if per_service {
            BTreeSet::new()
        } else {
            services.iter().flat_map(ports_of).collect()
        };
        let right = match shared.first() {
            Some(group) => Picture::opened(group) == all && (all.is_empty() || everywhere(group)),
            None => all.is_empty(),
        };
        if !right {
            let opened = shared.first().map(|it| Picture::opened(it));
            problems.push(format!(
                "the cluster's group opens {opened:?} instead of {all:?}"
            ));
        }
    }
}

// === impl ForeignObjects ===

impl ForeignObjects {
    async fn make(scene: &Scene) -> Self {
        let project = scene.project();
        // As another cluster of our name in the same project would have it.
        let name = format!("kube_service_c1_{}_web", scene.bed.namespace);
        let pool = json!({"name": "theirs", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN",
            "members": [{"address": "10.0.0.90", "protocol_port": 30090}]});
        let listener = json!({"name": "theirs", "protocol": "TCP", "protocol_port": 80,
            "tags": [name],
            "default_pool": pool});
        let body = json!({"loadbalancer": {
            "name": name, "vip_subnet_id": project.subnet_id, "listeners": [listener],
            "description": format!(
                "Kubernetes external service {}/web from cluster c1", scene.bed.namespace
            ),
            "tags": [name, "kube_cluster_id_00000000-0000-4000-8000-000000000000"],
        }});
        let path = "/v2/lbaas/loadbalancers";
        let made = project.post(Service::LoadBalancer, path, body).await;
        let made = made.unwrap();
        let id = word(&made["loadbalancer"], "id");
        let balancer = project.wait_for_load_balancer(id, "ACTIVE", SOON).await;
        let body = json!({"description": "theirs", "port_id": balancer.unwrap()["vip_port_id"]});
        let floating_ip = floating_ip(scene, &body).await;
        let body = json!({"security_group": {"name": "theirs"}});
        let path = "/v2.0/security-groups";
        let group = project.post(Service::Network, path, body).await.unwrap();
        let group = &group["security_group"];
        // As they are once everything has come to rest.
        let mut picture = Picture::of(project).await;
        picture.groups.retain(|it| it["id"] == group["id"]);
        picture
            .floating_ips
            .retain(|it| it["id"] == floating_ip["id"]);
        Self {
            balancer: picture.balancers.remove(0),
            listener: picture.listeners.remove(0),
            pool: picture.pools.remove(0),
            floating_ip: picture.floating_ips.remove(0),
            group: picture.groups.remove(0),
        }
    }

    /// Whether all of it is to the last byte as it was, times of changes included.
    fn validate(&self, picture: &Picture) {
        let Self {
            balancer,
            listener,
            pool,
            floating_ip,
            group,
        } = self;
        for (before, now) in [
            (balancer, &picture.balancers),
            (listener, &picture.listeners),
            (pool, &picture.pools),
            (floating_ip, &picture.floating_ips),
            (group, &picture.groups),
        ] {
            let found = now.iter().find(|it| it["id"] == before["id"]);
            assert_eq!(
                found,
                Some(before),
                "an object of another owner was touched"
            );
        }
    }
}

/// Makes a floating IP by hand.
async fn floating_ip(scene: &Scene, body: &Value) -> Value {
    let project = scene.project();
    let mut body = body.clone();
    body["floating_network_id"] = json!(project.external_network_id);
    let body = json!({"floatingip": body});
    let path = "/v2.0/floatingips";
    let mut made = project.post(Service::Network, path, body).await.unwrap();
    made["floatingip"].take()
}

fn service(name: &str, ports: &[u16], annotation: &str) -> String {
    let ports = ports
        .iter()
        .map(|port| format!("  - {{name: p{port}, port: {port}}}\n"));
    let ports: String = ports.collect();
    format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n  annotations: \
        {{{annotation}}}\nspec:\n  type: LoadBalancer\n  ports:\n{ports}"
    )
}

fn of_environment<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_random_moments_it_comes_to_the_same_end_and_leaks_nothing() {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let seed = of_environment("LANDFALL_SEED").unwrap_or(now.as_secs());
    let wanted = of_environment("LANDFALL_KILLS").unwrap_or(KILLS);
    eprintln!("LANDFALL_SEED={seed} LANDFALL_KILLS={wanted}");
    let mut story = Story::begin(Dice(seed)).await;
    let mut kills = 0;
    for layout in LAYOUTS.into_iter().cycle() {
        kills += story.round(layout).await;
        if kills >= wanted {
            break;
        }
    }
    eprintln!("{kills} kills");
    story.scene.close().await;
}
