//! The elections of MetalLB beside our own, for a cluster that goes from one to the other. Pure.
//!
//! MetalLB elects for each Service alone, by its first address. We elect for each address, among
//! all Services that have it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use landfall_engine::World;
use landfall_l2::election::{self, Node, Rules, Service};
use landfall_metallb::Config;
use landfall_model::ServiceKey;
use landfall_model::rows::ResourceKind;

use crate::board::{Board, BoardAdvertisement, ServiceFacts};
use crate::layer2;

/// Everything that elections depend on.
#[derive(Clone, Debug)]
pub struct Electorate {
    config: Config,
    nodes: Vec<Node>,
    advertisements: Vec<BoardAdvertisement>,
    services: Vec<(ServiceKey, ServiceFacts)>,
    rules: Rules,
}

// === impl Electorate ===

impl Electorate {
    /// Takes Services, nodes and resources as they are. `alive`: the nodes with a speaker; `None`:
    /// all of them have one.
    pub fn new(world: &World, alive: Option<&BTreeSet<&str>>, rules: Rules) -> Self {
        let resources: Vec<_> = world.resources(&ResourceKind::ALL).cloned().collect();
        let (config, _) = Config::build(world.pools(), &resources, &Config::default());
        let rows: Vec<_> = world.nodes().cloned().collect();
        let every: BTreeSet<&str> = rows.iter().map(|row| &*row.name).collect();
        let alive = alive.unwrap_or(&every);
        let nodes = rows.iter().map(|row| layer2::node(row, alive, None, false));
        let services = world.services().filter_map(|row| {
            let facts = layer2::service(&config, world, &row, None)?;
            Some((row.key.clone(), facts))
        });
        Self {
            nodes: nodes.collect(),
            advertisements: layer2::advertisements(&config, &rows, &BTreeMap::new()),
            services: services.collect(),
            rules,
            config,
        }
    }

    /// The resources in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the node from which MetalLB announces each Service that has an address of a pool;
    /// `None`: from no node.
    pub fn metallb(&self) -> BTreeMap<ServiceKey, Option<String>> {
        let elect = |facts: &ServiceFacts| {
            let first_address = *facts.addresses.first()?;
            let places = facts.advertisements.first()?.iter();
            let applying = places.filter_map(|place| self.advertisements.get(*place));
            let service = Service {
                first_address,
                has_sharing_key: facts.has_sharing_key,
                is_local: facts.is_local,
                has_endpoints: facts.has_endpoints,
                endpoint_nodes: &facts.endpoint_nodes,
                advertisements: applying.map(|it| &it.election).collect(),
            };
            let election = election::elect(first_address, &[service], &self.nodes, self.rules);
            election.owner().map(str::to_owned)
        };
        let services = self.services.iter();
        services
            .map(|(key, facts)| (key.clone(), elect(facts)))
            .collect()
    }

    /// Returns the node from which our speakers announce each address; `None`: from no node.
    pub fn landfall(&self) -> BTreeMap<IpAddr, Option<String>> {
        // Which node the Board is of makes no difference to the owner of an address.
        let mut board = Board::new("", self.rules);
        board.set_advertisements(self.advertisements.clone(), self.services.iter().cloned());
        board.set_nodes(self.nodes.clone());
        let addresses = self.services.iter().flat_map(|(_, facts)| &facts.addresses);
        addresses
            .map(|address| (*address, board.owner(*address).map(str::to_owned)))
            .collect()
    }
}
