//! The cluster as the API server has it: what was written, in order, and which node it makes the
//! owner of an address. The order of nodes is written again here, not taken from what is tested.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use landfall_model::ServiceKey;
use landfall_model::rows::{Endpoint, Fact, ResourceKind};
use landfall_model::wire;
use landfall_testkit::build::endpoint;
use landfall_testkit::{node, slice, svc};
use serde_json::json;
use sha2::{Digest as _, Sha256};

const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// The number of a Service whose addresses another host has.
pub const FOREIGN_HOST: usize = 200;

/// A Service as it is now.
#[derive(Clone, Debug)]
pub struct Service {
    /// Its addresses; the first decides which node owns all.
    pub addresses: Vec<IpAddr>,
    /// `externalTrafficPolicy: Local`.
    pub is_local: bool,
    /// Nodes with an endpoint.
    pub endpoints: BTreeSet<usize>,
}

/// Everything that was written.
pub struct Cluster {
    pub services: BTreeMap<usize, Service>,
    pub excluded: BTreeSet<usize>,
    count: usize,
    /// Each change since the begin.
    log: Vec<Fact>,
    orders: BTreeMap<IpAddr, Vec<usize>>,
}

pub fn name(node: usize) -> String {
    format!("node-{node}")
}

fn address_of(node: usize) -> String {
    format!("10.0.{}.{}", node / 256, node % 256)
}

/// The addresses that a Service of this number may have.
pub fn addresses(number: usize) -> Vec<IpAddr> {
    let v4 = IpAddr::from([192, 0, 2, number as u8]);
    let v6 = IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, number as u16]);
    match number % 3 {
        0 => vec![v4],
        1 => vec![v6],
        _ => vec![v4, v6],
    }
}

// === impl Cluster ===

impl Cluster {
    pub fn new(count: usize) -> Self {
        Self {
            services: BTreeMap::new(),
            excluded: BTreeSet::new(),
            count,
            log: Vec::new(),
            orders: BTreeMap::new(),
        }
    }

    /// What a list returns: the end of it is that everything is known.
    pub fn list(&self) -> Vec<Fact> {
        let pool: wire::IpAddressPool = serde_json::from_value(json!({
            "metadata": {"name": "lan", "namespace": "metallb-system"},
            "spec": {"addresses": ["192.0.2.0/24", "2001:db8::/64"]},
        }))
        .unwrap();
        let advertisement: wire::Resource = serde_json::from_value(json!({
            "apiVersion": "metallb.io/v1beta1", "kind": "L2Advertisement",
            "metadata": {"name": "all", "namespace": "metallb-system"}, "spec": {},
        }))
        .unwrap();
        let advertisement = advertisement.into_row(ResourceKind::L2Advertisement);
        let mut facts = vec![
            Fact::Pool(Arc::new(pool.into_row().unwrap())),
            Fact::Resource(Arc::new(advertisement.unwrap())),
        ];
        facts.extend((0..self.count).map(|node| self.node(node)));
        let services = self.services.iter();
        facts.extend(services.flat_map(|(number, it)| Self::facts(*number, it)));
        facts.push(Fact::Synced);
        facts
    }

    fn node(&self, number: usize) -> Fact {
        let mut row = node(&name(number), &address_of(number));
        if self.excluded.contains(&number) {
            row = row.labelled(EXCLUDED, "");
        }
        Fact::Node(row.row())
    }

    fn facts(number: usize, service: &Service) -> [Fact; 2] {
        let name = format!("web-{number}");
        let mut row = svc(&name).port(80);
        for address in &service.addresses {
            row = row.holding(&address.to_string());
        }
        if service.is_local {
            row = row.local();
        }
        let mut endpoints = slice(&name).port("", 8080);
        for node in &service.endpoints {
            endpoints = endpoints.endpoint(Endpoint {
                node: Some(self::name(*node).into()),
                ..endpoint("10.1.0.9")
            });
        }
        [Fact::Service(row.row()), Fact::Slice(endpoints.row())]
    }

    pub fn put(&mut self, number: usize, service: Service) {
        let first = service.addresses[0];
        for address in &service.addresses {
            self.orders.insert(*address, order(first, self.count));
        }
        self.log.extend(Self::facts(number, &service));
        self.services.insert(number, service);
    }

    pub fn delete(&mut self, number: usize) {
        if self.services.remove(&number).is_some() {
            let key = |name| ServiceKey::new("default", name);
            let name = format!("web-{number}");
            self.log.push(Fact::ServiceGone(key(&name)));
            self.log.push(Fact::SliceGone(key(&format!("{name}-1"))));
        }
    }

    /// Puts the label on a node that keeps it from being elected, or takes it away.
    pub fn exclude(&mut self, node: usize, is_excluded: bool) {
        let changed = if is_excluded {
            self.excluded.insert(node)
        } else {
            self.excluded.remove(&node)
        };
        if changed {
            self.log.push(self.node(node));
        }
    }

    /// The number of changes so far.
    pub fn end(&self) -> usize {
        self.log.len()
    }

    /// The changes since this many.
    pub fn since(&self, seen: usize) -> Vec<Fact> {
        self.log[seen..].to_vec()
    }

    pub fn held(&self) -> impl Iterator<Item = IpAddr> {
        self.services.values().flat_map(|it| it.addresses.clone())
    }

    /// The nodes that may own an address if they are alive, the best first.
    pub fn candidates(&self, address: IpAddr) -> Vec<usize> {
        let mut services = self.services.values();
        let Some(service) = services.find(|it| it.addresses.contains(&address)) else {
            return Vec::new();
        };
        if service.endpoints.is_empty() {
            return Vec::new();
        }
        let may = |node: &usize| {
            !self.excluded.contains(node) && (!service.is_local || service.endpoints.contains(node))
        };
        let order = self.orders[&address].iter().copied();
        order.filter(may).collect()
    }
}

/// MetalLB's order: by SHA-256 of `NODE#FIRST_ADDRESS`.
fn order(first: IpAddr, count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|node| {
        let mut text = name(*node);
        write!(text, "#{first}").unwrap();
        Sha256::digest(text.as_bytes())
    });
    order
}
