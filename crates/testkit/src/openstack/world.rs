//! The whole simulated cloud as one value, and the way of a request through it. No sockets, no
//! waiting.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::net::IpAddr;

use bytes::Bytes;
use http::Method;
use ipnet::IpNet;
use serde_json::Value;
use tokio::time::Instant;

use super::clock::{Clock, Dice};
use super::log::Call;
use super::octavia::{Balancer, Fate, Listener, Monitor, Pool};
use super::settings::Settings;
use super::table::Table;
use super::wire::{Ask, Handled, Reply, Row, Service, parse_query, text};
use super::{barbican, keystone, neutron, octavia};

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
    pub secrets: BTreeSet<String>,
    pub containers: BTreeSet<String>,
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
        let mut world = Self {
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
            secrets: BTreeSet::new(),
            containers: BTreeSet::new(),
            foreign: BTreeSet::new(),
            log: Vec::new(),
            forgotten: 0,
        };
        world.external_network = world.add_network("ext", true);
        world.external_subnet =
            world.add_subnet(&world.external_network.clone(), "ext4", start.external, &[]);
        world.network = world.add_network("net1", false);
        world.subnet = world.add_subnet(&world.network.clone(), "sub4", start.tenant, &[]);
        world
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

    /// Answers a request as it came in.
    pub fn handle(&mut self, request: &http::Request<Bytes>, url: &str) -> Reply {
        self.settle_due();
        let Some((service, base)) = self.service_of(url) else {
            return Reply::empty(404);
        };
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let header = |name: &str| request.headers().get(name)?.to_str().ok();
        let body = request.body();
        if body.len() > self.settings.body_limit {
            return too_large();
        }
        let token = header("x-auth-token");
        let parts = path.get(base..).unwrap_or_default().split('/');
        let mut ask = Ask {
            method: request.method(),
            path: parts.filter(|part| !part.is_empty()).collect(),
            query: parse_query(query),
            body: Value::Null,
            token,
            if_match: header("if-match"),
            project: String::new(),
            url: path.to_owned(),
        };
        if let Some(answer) = self.answer_open(service, &ask) {
            return answer;
        }
        if service != Service::Identity {
            let known = token.and_then(|token| self.tokens.get(token));
            match known {
                Some((until, project)) if *until > Instant::now() => {
                    ask.project.clone_from(project);
                }
                _ => return keystone::unauthorized(),
            }
        }
        if !body.is_empty() {
            match serde_json::from_slice(body) {
                Ok(value) => ask.body = value,
                Err(error) => return broken_body(service, &error),
            }
        }
        let handled = self.dispatch(service, &ask);
        handled.unwrap_or_else(|refusal| refusal)
    }

    /// What needs no token: the versions documents.
    fn answer_open(&self, service: Service, ask: &Ask<'_>) -> Option<Reply> {
        let root = ask.method == Method::GET;
        match service {
            Service::Identity if root && ask.path.len() < 2 => {
                Some(keystone::versions(self, ask.path.first().copied()))
            }
            Service::LoadBalancer if root && ask.path.is_empty() => Some(octavia::versions(self)),
            Service::Network if root && ask.path.is_empty() => Some(neutron::versions(self)),
            Service::KeyManager if root && ask.path.is_empty() => Some(barbican::versions(self)),
            _ => None,
        }
    }

    /// Hands the request to its service, the token being good.
    pub fn dispatch(&mut self, service: Service, ask: &Ask<'_>) -> Handled {
        match service {
            Service::Identity => keystone::handle(self, ask),
            Service::Network => neutron::handle(self, ask),
            Service::LoadBalancer => octavia::handle(self, ask),
            Service::KeyManager => barbican::handle(self, ask),
        }
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

fn too_large() -> Reply {
    // oslo.middleware answers by webob, as a page.
    let page =
        b"<html>\n <head>\n  <title>413 Request Entity Too Large</title>\n </head>\n</html>\n";
    Reply {
        status: 413,
        body: Bytes::from_static(page),
        headers: vec![("content-type", "text/html; charset=UTF-8".to_owned())],
    }
}

fn broken_body(service: Service, error: &serde_json::Error) -> Reply {
    match service {
        Service::LoadBalancer => Reply::balancer(400, "Request is not in valid JSON format"),
        Service::Network => Reply::network(
            400,
            "HTTPBadRequest",
            format!("The server could not comply with the request since it is malformed: {error}"),
        ),
        Service::Identity | Service::KeyManager => {
            Reply::identity(400, "Bad Request", "Malformed JSON in request body.")
        }
    }
}
