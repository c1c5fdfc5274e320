//! What a node does for the addresses of one Service, and why not more: for people, from the same
//! facts and by the same functions that decide. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use landfall_l2::driver::View as Announced;
use landfall_l2::election::NotAnnounced;
use landfall_l2::fsm::State;
use landfall_metallb::Config;
use landfall_model::ServiceKey;
use landfall_model::reason::{Code, Reason};
use landfall_model::rows::ServiceRow;
use landfall_model::view::AnnouncementView;

use crate::board::Board;
use crate::routes::{Withheld, is_for};
use crate::routing::Router;

/// A Service, with what one node or each of a cluster does for it.
#[derive(Clone, Debug)]
pub struct Explained {
    /// The Service.
    pub row: Arc<ServiceRow>,
    /// Each address by each protocol and, where there are several, each router.
    pub announcements: Vec<AnnouncementView>,
    /// What concerns all of it.
    pub reasons: Vec<Reason>,
}

/// What a node knows.
pub(crate) struct Known<'a> {
    pub(crate) node: &'a str,
    pub(crate) config: &'a Config,
    pub(crate) board: &'a Board,
    pub(crate) router: &'a Router,
    /// What answers for addresses; `None`: the node is only imagined.
    pub(crate) announced: Option<&'a Announced>,
}

/// Returns what a node does for a Service.
pub(crate) fn explain(known: &Known<'_>, row: &Arc<ServiceRow>) -> Explained {
    let addresses = known.board.addresses_of(&row.key);
    let announcements = addresses.iter().flat_map(|address| {
        let by_bgp = known.bgp(&row.key, *address);
        known.layer2(*address).into_iter().chain(by_bgp)
    });
    let announcements: Vec<_> = announcements.collect();
    let why = announcements.is_empty().then(|| nothing(row, addresses));
    let of_routers = known.router.routing().problems.iter().cloned();
    Explained {
        row: Arc::clone(row),
        reasons: why.into_iter().chain(of_routers).collect(),
        announcements,
    }
}

/// Returns why there is nothing to say of single addresses.
fn nothing(row: &ServiceRow, addresses: &[IpAddr]) -> Reason {
    let message = if row.status.ingress.is_empty() {
        "it has no address yet"
    } else if addresses.is_empty() {
        "no address of it is in an IPAddressPool and delivered by the nodes"
    } else {
        "there is no L2Advertisement, no BGPAdvertisement and no BGPPeer"
    };
    let remedy = if row.status.ingress.is_empty() {
        "see what the controller says of it: its conditions and events"
    } else if addresses.is_empty() {
        "an address that is published with ipMode Proxy is announced by speakers that serve it \
         (dataPlane: landfall)"
    } else {
        "create an L2Advertisement, or a BGPAdvertisement and a BGPPeer"
    };
    Reason::warning(Code::NotAnnounced, message).remedy(remedy)
}

// === impl Known ===

impl Known<'_> {
    fn row(&self, protocol: &str, address: IpAddr, said: Said) -> AnnouncementView {
        AnnouncementView {
            node: self.node.to_owned(),
            protocol: protocol.to_owned(),
            address,
            prefix: None,
            peer: None,
            announced: said.announced,
            reason: said.reason.map(str::to_owned),
            message: said.message,
        }
    }

    /// Returns what the node does for an address by ARP and Neighbour Discovery; `None`: no
    /// resource asks for that.
    fn layer2(&self, address: IpAddr) -> Option<AnnouncementView> {
        if self.config.l2_advertisements().is_empty() {
            return None;
        }
        let said = match self.board.why_not(address) {
            None => self.elected(address),
            Some(why) => Said::not(Some(why.as_str()), self.not_elected(address, why)),
        };
        Some(self.row("layer2", address, said))
    }

    fn elected(&self, address: IpAddr) -> Said {
        let Some(announced) = self.announced else {
            return Said::yes("is elected to answer");
        };
        let Some(status) = announced.addresses.get(&address) else {
            return Said::not(None, "is elected, and about to answer");
        };
        match status.state {
            State::Announcing => Said::yes(format!("answers on {}", status.interfaces.join(", "))),
            State::Probing => Said::not(None, "is elected, and asks whether a host has it"),
            State::Waiting => Said::not(
                Some("announceFailed"),
                "is elected, and none of the interfaces is on this node and up",
            ),
            State::Conflicted => {
                let host = status.conflict.map(|it| format!(" {}", it.mac));
                let host = host.unwrap_or_default();
                let message = format!("is elected, and another host{host} has the address");
                Said::not(Some("addressConflict"), message)
            }
        }
    }

    fn not_elected(&self, address: IpAddr, why: NotAnnounced) -> String {
        let text = match why {
            NotAnnounced::NotOwner => {
                return match self.board.owner(address) {
                    Some(owner) => format!("node {owner} is elected"),
                    None => "no node is elected".to_owned(),
                };
            }
            NotAnnounced::NoEndpoints => "no endpoint of the Service is ready",
            NotAnnounced::NoLocalEndpoints => {
                "externalTrafficPolicy is Local, and no endpoint on this node is ready"
            }
            NotAnnounced::NoMatchingAdvertisement => {
                "no L2Advertisement for its pool selects the Service and this node"
            }
            NotAnnounced::SharedAddressWithServiceSelector => {
                "the Service may share its address, and an L2Advertisement selects Services"
            }
            NotAnnounced::NotAMember => "no live speaker of this node is known",
            NotAnnounced::NodeNetworkUnavailable => {
                "the condition NetworkUnavailable of this node is true"
            }
            NotAnnounced::NodeLabeledExcludeBalancers => {
                "a label excludes this node from load balancers"
            }
            NotAnnounced::NotAbleToServe => {
                "this node is not ready, or none of its interfaces announces"
            }
        };
        text.to_owned()
    }

    /// Returns what the node does for an address by BGP, router by router; empty: no resource asks
    /// for that.
    fn bgp(&self, key: &ServiceKey, address: IpAddr) -> Vec<AnnouncementView> {
        let all = self.config.bgp_advertisements();
        let routing = self.router.routing();
        if all.is_empty() && routing.peers.is_empty() {
            return Vec::new();
        }
        let said = |said| vec![self.row("bgp", address, said)];
        let offering = match self.router.offered(key) {
            None => return said(Said::not(None, "this node is not known")),
            Some(Err(why)) => return said(Said::not(Some(why.reason()), why.to_string())),
            Some(Ok(offering)) => offering,
        };
        let facts = self.board.facts(key);
        if facts.is_some_and(|it| it.unserved.contains(&address)) {
            let why = Withheld::NotServed;
            return said(Said::not(Some(why.reason()), why.to_string()));
        }
        if routing.peers.is_empty() {
            return said(Said::not(None, "no BGPPeer selects this node"));
        }
        let mut rows = Vec::new();
        for name in routing.peers.keys() {
            let for_it = |place: &usize| {
                let advertised = all.get(*place);
                advertised.is_some_and(|it| is_for(&it.of.advertisement, name))
            };
            let around = |prefix: &IpNet| prefix.contains(&address);
            let prefixes = offering.prefixes.iter();
            let prefixes = prefixes.filter(|(prefix, place)| around(prefix) && for_it(place));
            let prefixes: BTreeSet<IpNet> = prefixes.map(|(prefix, _)| *prefix).collect();
            let row = |prefix: Option<&IpNet>, said| AnnouncementView {
                prefix: prefix.map(ToString::to_string),
                peer: Some(name.to_string()),
                ..self.row("bgp", address, said)
            };
            rows.extend(prefixes.iter().map(|it| {
                let message = if routing.is_leaving {
                    "announced, with the request to prefer other nodes"
                } else {
                    "announced"
                };
                row(Some(it), Said::yes(message))
            }));
            if prefixes.is_empty() {
                let message = "no BGPAdvertisement of the address is for this router";
                rows.push(row(
                    None,
                    Said::not(Some("noMatchingAdvertisement"), message),
                ));
            }
        }
        rows
    }
}

/// What is said of an address.
struct Said {
    announced: bool,
    reason: Option<&'static str>,
    message: String,
}

// === impl Said ===

impl Said {
    fn yes(message: impl Into<String>) -> Self {
        Self {
            announced: true,
            reason: None,
            message: message.into(),
        }
    }

    fn not(reason: Option<&'static str>, message: impl Into<String>) -> Self {
        Self {
            announced: false,
            reason,
            message: message.into(),
        }
    }
}
