//! What one machine without a cluster announces by BGP: the addresses that it serves, to the
//! routers that manifests describe. Pure.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use landfall_metallb::Config;
use landfall_model::ServiceKey;
use landfall_model::reason::Reason;
use landfall_model::rows::{Cooling, PoolOrigin, PoolRow, ResourceKind, ResourceRow, ServiceRow};
use serde_json::json;

use crate::board::ServiceFacts;
use crate::peers::desired;
use crate::routes::{Offered, Offers, OwnNode, offers};
use crate::routing::Routing;

/// The resources that decide something here.
pub const RESOURCES: &[ResourceKind] = &[
    ResourceKind::BfdProfile,
    ResourceKind::BgpAdvertisement,
    ResourceKind::BgpPeer,
    ResourceKind::Community,
];

/// One machine.
#[derive(Clone, Debug)]
pub struct Machine {
    name: Arc<str>,
    config: Config,
    problems: Vec<Reason>,
}

// === impl Machine ===

impl Machine {
    /// A machine that knows no router.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            config: Config::default(),
            problems: Vec::new(),
        }
    }

    /// Takes address pools, wherever they are written, and resources. Where no `BGPAdvertisement`
    /// is among them, each address is announced to each router.
    pub fn take(&mut self, pools: &[Arc<PoolRow>], resources: &[Arc<ResourceRow>]) {
        let pools = pools.iter().map(|row| {
            // An advertisement chooses among the pools that it knows: those of a source.
            Arc::new(PoolRow {
                origin: PoolOrigin::Source,
                ..PoolRow::clone(row)
            })
        });
        let pools: Vec<_> = pools.collect();
        let mut resources = resources.to_vec();
        let advertises = |row: &Arc<ResourceRow>| row.kind == ResourceKind::BgpAdvertisement;
        if !resources.iter().any(advertises) {
            resources.push(Arc::new(everything()));
        }
        let (config, findings) = Config::build(&pools, &resources, &self.config);
        self.config = config;
        self.problems = findings.reasons();
    }

    /// What is wrong with the resources, with the object named in the message.
    pub fn problems(&self) -> &[Reason] {
        &self.problems
    }

    /// Whether there is a router.
    pub fn has_peers(&self) -> bool {
        self.config.peers().next().is_some()
    }

    /// Returns what is announced of Services, each with the addresses at which it is served.
    /// `router_id`: where a peer names none. Routes that are as they were in `before` are the same
    /// object.
    pub fn routing(
        &self,
        services: &[(Arc<ServiceRow>, Vec<IpAddr>)],
        router_id: Ipv4Addr,
        before: &Routing,
    ) -> Routing {
        // No label is known of the machine: a peer that selects nodes is for others.
        let node = OwnNode {
            name: Arc::clone(&self.name),
            labels: BTreeMap::new(),
            network_unavailable: false,
            is_unhealthy: false,
            excluded: false,
        };
        let (found, findings) = self.config.peers_on(&node.labels);
        let mut peers = BTreeMap::new();
        for (key, peer) in found {
            let profile = peer.bfd_profile.as_deref();
            let profile = profile.and_then(|name| self.config.bfd_profile(name));
            let spec = desired(peer, profile, key.namespace(), router_id);
            peers.insert(key.name().into(), spec);
        }
        let mut all = Offers::new(&self.config, peers.keys());
        for (row, addresses) in services {
            let facts = ServiceFacts {
                addresses: addresses.clone(),
                has_endpoints: true,
                ..ServiceFacts::default()
            };
            let offered = Offered {
                uid: row.uid.clone(),
                offers: offers(&self.config, &node, row, &facts),
            };
            all.set(&row.key, Some(offered));
        }
        let problems = self.problems.iter().cloned();
        Routing {
            union: all.unite(&before.union),
            peers,
            is_leaving: false,
            is_unready: false,
            problems: problems.chain(findings.reasons()).collect(),
        }
    }
}

/// Returns an advertisement of all pools to all routers.
fn everything() -> ResourceRow {
    ResourceRow {
        kind: ResourceKind::BgpAdvertisement,
        api_version: "metallb.io/v1beta1".to_owned(),
        key: ServiceKey::new("metallb-system", "everything"),
        uid: None,
        generation: None,
        created: None,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        spec: json!({}),
        accepted: None,
        cooling: Cooling::default(),
        source: None,
    }
}
