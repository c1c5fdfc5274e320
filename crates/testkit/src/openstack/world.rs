//! The whole simulated cloud as one value. No sockets, no waiting.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::Value;
use tokio::time::Instant;

use super::clock::{Clock, Dice};
use super::load_balancers::{Balancer, Fate, Listener, Monitor, Pool};
use super::log::Call;
use super::settings::Settings;
use super::table::Table;
use super::wire::{Row, Service, text};

/// What decides how a locked load balancer ends: the write ("create", "update", "delete",
/// "listener", ...) and the load balancer's id.
pub(super) type Fates = Box<dyn FnMut(&str, &str) -> Fate + Send>;

/// All state.
pub(super) struct World {
    pub settings: Settings,
    pub clock: Clock,
    pub dice: Dice,
    pub project: String,
    pub external_network: String,
    pub external_subnet: String,
    pub network: String,
    pub subnet: String,
    /// Base URLs by service; the first of a service is the one in the catalog.
    pub bases: Vec<(Service, String)>,
    pub tokens: HashMap<String, (Instant, String)>,
    pub networks: Table<Row>,
    pub subnets: Table<Row>,
    pub ports: Table<Row>,
    pub floating_ips: Table<Row>,
    pub groups: Table<Row>,
    pub rules: Table<Row>,
    pub rules_by_group: HashMap<String, Vec<String>>,
    pub taken: HashSet<(String, IpAddr)>,
    pub ports_by_device: HashMap<String, Vec<String>>,
    pub balancers: Table<Balancer>,
    pub listeners: Table<Listener>,
    pub pools: Table<Pool>,
    pub monitors: Table<Monitor>,
    pub member_count: HashMap<String, usize>,
    /// When locked load balancers settle.
    pub due: BTreeMap<(Instant, u64), String>,
    pub serial: u64,
    pub next_fates: VecDeque<Fate>,
    pub fates: Option<Fates>,
    pub secrets: BTreeMap<String, Row>,
    pub containers: BTreeMap<String, Row>,
    pub foreign: BTreeSet<String>,
    pub log: Vec<Call>,
    /// How many calls of the log are no longer asked for.
    pub forgotten: usize,
}

/// How to begin; see `Sim::with`.
#[derive(Debug, Clone)]
pub struct Start {
    /// Seed of all ids.
    pub seed: u64,
    /// Seconds since 1970 at the beginning; the machine's clock if none.
    pub epoch: Option<i64>,
    /// Addresses of the tenant's subnet S.
    pub tenant: IpNet,
    /// Addresses of the external network's subnet.
    pub external: IpNet,
}

impl Default for Start {
    fn default() -> Self {
        let net = |first: [u8; 4], length| IpNet::new_assert(IpAddr::from(first), length);
        Self {
            seed: 1,
            epoch: None,
            tenant: net([10, 0, 0, 0], 24),
            external: net([198, 18, 0, 0], 16),
        }
    }
}

impl World {
    pub fn new(start: &Start) -> Self {
        let mut dice = Dice::new(start.seed);
        let project = dice.uuid().replace('-', "");
        Self {
            settings: Settings::default(),
            clock: Clock::new(start.epoch),
            dice,
            project,
            external_network: String::new(),
            external_subnet: String::new(),
            network: String::new(),
            subnet: String::new(),
            bases: vec![
                (Service::Identity, "http://identity.sim/v3".to_owned()),
                (Service::Network, "http://network.sim".to_owned()),
                (Service::LoadBalancer, "http://load-balancer.sim".to_owned()),
                (Service::KeyManager, "http://key-manager.sim".to_owned()),
            ],
            tokens: HashMap::new(),
            networks: Table::default(),
            subnets: Table::default(),
            ports: Table::default(),
            floating_ips: Table::default(),
            groups: Table::default(),
            rules: Table::default(),
            rules_by_group: HashMap::new(),
            taken: HashSet::new(),
            ports_by_device: HashMap::new(),
            balancers: Table::default(),
            listeners: Table::default(),
            pools: Table::default(),
            monitors: Table::default(),
            member_count: HashMap::new(),
            due: BTreeMap::new(),
            serial: 0,
            next_fates: VecDeque::new(),
            fates: None,
            secrets: BTreeMap::new(),
            containers: BTreeMap::new(),
            foreign: BTreeSet::new(),
            log: Vec::new(),
            forgotten: 0,
        }
    }

    /// Which service an URL is for, and the length of its base.
    pub fn service_of(&self, url: &str) -> Option<(Service, usize)> {
        let fits = |base: &str| {
            let rest = url.strip_prefix(base)?;
            (rest.is_empty() || rest.starts_with(['/', '?'])).then_some(base.len())
        };
        // The catalog's identity URL ends in /v3, but its root must answer, too.
        let hits = self.bases.iter().filter_map(|(service, base)| {
            let base = base.strip_suffix("/v3").unwrap_or(base);
            Some((*service, fits(base)?))
        });
        hits.max_by_key(|(_, length)| *length)
    }

    pub fn base(&self, service: Service) -> &str {
        let found = self.bases.iter().find(|(of, _)| *of == service);
        found.map_or("", |(_, base)| base)
    }

    /// A number that grows.
    pub fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Whether objects of that project are ours to see.
    pub fn visible(row: &Row, project: &str) -> bool {
        text(row, "project_id") == project || row.get("shared") == Some(&Value::Bool(true))
    }
}
