//! Random Services, and what people do to them and to the cloud, from a seed.

use std::collections::BTreeMap;

use http::Method;
use landfall_model::dialect::openstack::LOAD_BALANCER_ID;
use landfall_model::{Protocol, Uid};
use landfall_testkit::build::ServiceBuilder;
use landfall_testkit::openstack::Service;
use landfall_testkit::svc;
use serde_json::{Value, json};

use crate::addresses::INTERNAL;
use crate::image::text;
use crate::rig::Rig;

/// Numbers that a seed decides (splitmix64).
pub struct Dice(u64);

/// What the user of a Service asks for.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    name: String,
    generation: u32,
    ports: Vec<(Protocol, u16)>,
    annotations: BTreeMap<&'static str, String>,
    ranges: Vec<String>,
    plain: bool,
}

/// A cluster in the making, and what is done to it.
pub struct Story {
    pub dice: Dice,
    /// The Services that there should be.
    pub shapes: BTreeMap<String, Shape>,
    pub nodes: BTreeMap<String, String>,
    born: u32,
    /// What was done, printed with a failure.
    pub reported: Vec<String>,
}

const PORTS: [(Protocol, u16); 6] = [
    (Protocol::Tcp, 80),
    (Protocol::Tcp, 443),
    (Protocol::Tcp, 8080),
    (Protocol::Udp, 53),
    (Protocol::Tcp, 53),
    (Protocol::Udp, 443),
];
const OPTIONS: [(&str, &[&str]); 6] = [
    (INTERNAL, &["true"]),
    (
        "loadbalancer.openstack.org/enable-health-monitor",
        &["true", "false"],
    ),
    ("loadbalancer.openstack.org/proxy-protocol", &["true", "v2"]),
    (
        "loadbalancer.openstack.org/lb-method",
        &["LEAST_CONNECTIONS", "SOURCE_IP"],
    ),
    (
        "loadbalancer.openstack.org/timeout-client-data",
        &["60000", "300000"],
    ),
    (
        "loadbalancer.openstack.org/health-monitor-delay",
        &["7", "11"],
    ),
];

// === impl Dice ===

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.roll() % end.max(1) as u64).unwrap()
    }

    /// True once in so many times.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let at = self.below(of.len());
        of.get(at)
    }
}

// === impl Shape ===

impl Shape {
    /// The Service, alone or where it asked to be.
    pub fn build(&self, alone: bool) -> ServiceBuilder {
        let place = u16::try_from(self.name.bytes().map(usize::from).sum::<usize>() % 10).unwrap();
        let mut service = svc(&self.name);
        for (protocol, port) in &self.ports {
            let udp = u16::from(*protocol == Protocol::Udp) * 500;
            service = service
                .any_port(&format!("p{port}-{udp}"), *protocol, *port)
                .node_port(30000 + place * 100 + port % 97 + udp / 5 * 10);
        }
        for (key, value) in &self.annotations {
            if !(alone && *key == LOAD_BALANCER_ID) {
                service = service.annotated(key, value);
            }
        }
        let uid = Uid::new(&format!("uid-{}-{}", self.name, self.generation));
        service.with(|row| {
            row.uid = uid;
            row.source_ranges.clone_from(&self.ranges);
            row.wants_load_balancer = !self.plain;
        })
    }

    /// The load balancer that it names.
    pub fn given(&self) -> Option<&str> {
        self.annotations.get(LOAD_BALANCER_ID).map(String::as_str)
    }

    /// It wants no floating IP.
    pub fn is_internal(&self) -> bool {
        self.annotations.contains_key(INTERNAL)
    }

    /// It wants no load balancer at all.
    pub fn is_plain(&self) -> bool {
        self.plain
    }

    fn random(dice: &mut Dice, name: &str, generation: u32) -> Self {
        let mut shape = Self {
            name: name.to_owned(),
            generation,
            ..Self::default()
        };
        shape.roll_ports(dice);
        for _ in 0..3 {
            shape.roll_option(dice);
        }
        shape
    }

    fn roll_ports(&mut self, dice: &mut Dice) {
        self.ports.clear();
        for _ in 0..=dice.below(3) {
            let port = PORTS[dice.below(PORTS.len())];
            if !self.ports.contains(&port) {
                self.ports.push(port);
            }
        }
    }

    fn roll_option(&mut self, dice: &mut Dice) {
        if dice.once_in(4) {
            self.ranges = match dice.below(3) {
                0 => Vec::new(),
                1 => vec!["192.0.2.0/24".to_owned()],
                _ => vec!["192.0.2.0/25".to_owned(), "198.51.100.0/24".to_owned()],
            };
            return;
        }
        let (key, values) = OPTIONS[dice.below(OPTIONS.len())];
        if dice.once_in(3) {
            self.annotations.remove(key);
        } else if let Some(value) = dice.pick(values) {
            self.annotations.insert(key, (*value).to_owned());
        }
    }
}

// === impl Story ===

impl Story {
    pub fn new(seed: u64) -> Self {
        let node = |name: &str, address: &str| (name.to_owned(), address.to_owned());
        Self {
            dice: Dice::new(seed ^ 0x0057_0127),
            shapes: BTreeMap::new(),
            nodes: BTreeMap::from([node("a", "10.0.0.4"), node("b", "10.0.0.5")]),
            born: 0,
            reported: Vec::new(),
        }
    }

    /// One action of a user.
    pub fn go_on(&mut self, rig: &mut Rig) {
        match self.dice.below(16) {
            0..=2 => self.create(rig),
            3..=6 => self.change(rig),
            7 => self.flip_type(rig),
            8 | 9 => self.delete(rig),
            10 => self.node(rig),
            _ => self.tamper(rig),
        }
    }

    /// A Service that is not there yet.
    pub fn create(&mut self, rig: &mut Rig) {
        let name = ["w0", "w1", "w2"][self.dice.below(3)];
        if rig.cluster.service(name).is_some() {
            return;
        }
        self.born += 1;
        let mut shape = Shape::random(&mut self.dice, name, self.born);
        if self.dice.once_in(3) {
            let owners = self.shapes.values().filter(|it| it.given().is_none());
            let ids = owners.filter_map(|it| rig.annotation(&it.name, LOAD_BALANCER_ID));
            let ids: Vec<String> = ids.collect();
            if let Some(id) = self.dice.pick(&ids) {
                shape.annotations.insert(LOAD_BALANCER_ID, id.clone());
            }
        }
        self.reported.push(format!("create {shape:?}"));
        rig.cluster.apply(&shape.build(false).row());
        self.shapes.insert(name.to_owned(), shape);
    }

    fn some(&mut self) -> Option<String> {
        let names: Vec<String> = self.shapes.keys().cloned().collect();
        self.dice.pick(&names).cloned()
    }

    fn change(&mut self, rig: &mut Rig) {
        let Some(name) = self.some() else { return };
        let Some(shape) = self.shapes.get_mut(&name) else {
            return;
        };
        if self.dice.once_in(3) {
            shape.roll_ports(&mut self.dice);
        } else {
            shape.roll_option(&mut self.dice);
        }
        self.reported.push(format!("change {shape:?}"));
        rig.cluster.apply(&shape.build(false).row());
    }

    fn flip_type(&mut self, rig: &mut Rig) {
        let Some(name) = self.some() else { return };
        let Some(shape) = self.shapes.get_mut(&name) else {
            return;
        };
        shape.plain = !shape.plain;
        self.reported.push(format!("type {name} {}", shape.plain));
        rig.cluster.apply(&shape.build(false).row());
    }

    fn delete(&mut self, rig: &mut Rig) {
        let Some(name) = self.some() else { return };
        self.shapes.remove(&name);
        self.reported.push(format!("delete {name}"));
        rig.cluster.delete(&name);
    }

    fn node(&mut self, rig: &mut Rig) {
        if self.nodes.len() > 1 && self.dice.once_in(2) {
            let names: Vec<String> = self.nodes.keys().cloned().collect();
            if let Some(name) = self.dice.pick(&names) {
                self.nodes.remove(name);
                self.reported.push(format!("lose node {name}"));
                rig.cluster.remove_node(name);
            }
            return;
        }
        self.born += 1;
        let (name, address) = (
            format!("n{}", self.born),
            format!("10.0.0.{}", 100 + self.born),
        );
        self.reported.push(format!("gain node {name}"));
        rig.add_node(&name, &address);
        self.nodes.insert(name, address);
    }

    /// One change in the cloud by hand.
    fn tamper(&mut self, rig: &Rig) {
        let sim = &rig.sim;
        let foreign = sim.snapshot_foreign();
        let ours = |rows: Vec<Value>| -> Vec<Value> {
            let ours = rows.into_iter();
            ours.filter(|it| !foreign.contains_key(text(it, "id")))
                .collect()
        };
        let mut balancers = ours(sim.load_balancers());
        // Others are no more free to change what Octavia is at work on.
        balancers.retain(|it| it["provisioning_status"] == "ACTIVE");
        let kind = self.dice.below(10);
        let floating = ours(sim.floating_ips());
        if kind == 0 {
            if let Some(it) = self.dice.pick(&floating) {
                self.reported
                    .push(format!("remove floating IP {}", it["id"]));
                sim.delete(text(it, "id"));
            }
            return;
        }
        if kind == 1 {
            if let Some(it) = self.dice.pick(&floating) {
                self.reported
                    .push(format!("detach floating IP {}", it["id"]));
                let path = format!("/v2.0/floatingips/{}", text(it, "id"));
                let body = json!({"floatingip": {"port_id": null}});
                drop(sim.hand(Service::Network, &Method::PUT, &path, body));
            }
            return;
        }
        if kind == 2 {
            let mut groups = ours(sim.security_groups());
            groups.retain(|it| it["name"] != "default");
            let Some(group) = self.dice.pick(&groups) else {
                return;
            };
            let rules = group["security_group_rules"].as_array().cloned();
            if let Some(rule) = self.dice.pick(&rules.unwrap_or_default()) {
                self.reported.push(format!("remove rule {}", rule["id"]));
                sim.delete(text(rule, "id"));
            }
            return;
        }
        let Some(balancer) = self.dice.pick(&balancers) else {
            return;
        };
        let listeners = balancer["listeners"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let pools = balancer["pools"].as_array().cloned().unwrap_or_default();
        let id = text(balancer, "id");
        let listener = self.dice.pick(&listeners);
        let pool = self.dice.pick(&pools);
        let of = |it: Option<&Value>| it.map(|it| text(it, "id").to_owned()).unwrap_or_default();
        let (what, done) = match kind {
            3 if self.dice.once_in(3) => ("remove balancer", sim.delete(id)),
            3 | 4 => ("remove listener", sim.delete(&of(listener))),
            5 => ("remove pool", sim.delete(&of(pool))),
            6 => {
                let monitor = pool.map(|it| text(it, "healthmonitor_id").to_owned());
                ("remove monitor", sim.delete(&monitor.unwrap_or_default()))
            }
            7 => (
                "edit listener",
                sim.edit(&of(listener), |row| {
                    row.insert("connection_limit".to_owned(), json!(7));
                }),
            ),
            8 => {
                let path = format!("/v2/lbaas/pools/{}/members", of(pool));
                let body = json!({"members": []});
                let done = sim.hand(Service::LoadBalancer, &Method::PUT, &path, body);
                ("empty pool", done.is_ok())
            }
            _ => {
                sim.set_status(id, "ERROR");
                ("break balancer", true)
            }
        };
        self.reported.push(format!("{what} of {id}: {done}"));
    }
}
