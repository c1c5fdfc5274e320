//! What a Service wants of the load balancer of its second family, as a spec of its own. Pure.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};

use landfall_model::intent::{AddressSpec, NodeTarget};
use landfall_model::listener::{AllowedSources, Pool};
use landfall_model::provider::Target;
use landfall_model::rows::{Family, FamilyPolicy};
use landfall_model::status::RECORD;
use landfall_model::{Intent, Listener, LoadBalancerSpec, Member, Protocol};

use crate::features::Features;
use crate::names::uid_beside;
use crate::record;

/// What a Service wants of its second load balancer alone; `None`: nothing.
pub(crate) fn derived(intent: &Intent, family: Family, spec: Option<LoadBalancerSpec>) -> Intent {
    let mut extensions = intent.extensions.clone();
    extensions.openstack.load_balancer = None;
    extensions.openstack.port = None;
    let record = record::beside(intent).map(|text| (RECORD.to_owned(), text.to_owned()));
    Intent {
        service: intent.service.clone(),
        uid: uid_beside(&intent.uid, family),
        created: intent.created,
        load_balancer: spec,
        extensions,
        marks: record.into_iter().collect(),
        remarks: Vec::new(),
    }
}

/// The spec with everything in the second family; and whether nodes, or pods, have addresses of it.
/// Where none has, members keep those that they have, as far as load balancers can translate.
pub(crate) fn in_family(
    spec: &LoadBalancerSpec,
    family: Family,
    features: Features,
) -> (bool, LoadBalancerSpec) {
    let of = |addresses: &[IpAddr]| -> Vec<IpAddr> {
        let all = addresses.iter().copied();
        all.filter(|it| Family::of(*it) == family).collect()
    };
    let mut moved = HashMap::new();
    let mut nodes = Vec::new();
    for node in &spec.nodes {
        if let Some((address, others)) = of(&node.others).split_first() {
            moved.insert(node.address, *address);
            nodes.push(NodeTarget {
                address: *address,
                others: others.to_vec(),
                ..node.clone()
            });
        }
    }
    if moved.is_empty() {
        nodes.clone_from(&spec.nodes);
    }
    let pods = spec.target == Target::Pod;
    let fits = |member: &Member| Family::of(member.address.ip()) == family;
    let mut members = spec.listeners.iter().flat_map(|it| &it.pool.members);
    let own = if pods {
        members.any(fits)
    } else {
        !moved.is_empty()
    };
    let member = |member: &Member, translated: bool| {
        if translated || pods {
            return Some(member.clone()).filter(|it| translated || fits(it));
        }
        let address = moved.get(&member.address.ip())?;
        Some(Member {
            address: SocketAddr::new(*address, member.address.port()),
            ..member.clone()
        })
    };
    let listeners = spec.listeners.iter().map(|listener| {
        let translated = !own && translates(listener, features);
        let members = listener.pool.members.iter();
        Listener {
            allowed: allowed(&listener.allowed, family),
            pool: Pool {
                members: members.filter_map(|it| member(it, translated)).collect(),
                ..listener.pool.clone()
            },
            ..listener.clone()
        }
    });
    let spec = LoadBalancerSpec {
        address: AddressSpec {
            families: vec![family],
            policy: FamilyPolicy::SingleStack,
            requested: of(&spec.address.requested),
            held: of(&spec.address.held),
            ..spec.address.clone()
        },
        listeners: listeners.collect(),
        nodes,
        ..spec.clone()
    };
    (own, spec)
}

/// Whether members of another family than the VIP's can serve the listener: a proxy makes new
/// connections.
pub(crate) fn translates(listener: &Listener, features: Features) -> bool {
    listener.key.protocol == Protocol::Tcp && !features.ovn
}

/// Why a new load balancer would have members that it can't reach.
pub(crate) fn unreachable(
    spec: &LoadBalancerSpec,
    family: Family,
    own: bool,
    features: Features,
) -> Option<String> {
    if features.ovn && spec.target == Target::Pod {
        return Some("member-subnet-id names a subnet of the other family".to_owned());
    }
    let mut untranslated = spec.listeners.iter().filter(|it| !translates(it, features));
    let listener = untranslated.next().filter(|_| !own)?;
    let why = if features.ovn {
        "the provider ovn".to_owned()
    } else {
        format!("port {}", listener.key)
    };
    let kind = match spec.target {
        Target::Pod => "pod",
        Target::Node => "node",
    };
    Some(format!(
        "no {kind} has an {family} address, and {why} needs members of the VIP's family"
    ))
}

fn allowed(allowed: &AllowedSources, family: Family) -> AllowedSources {
    let AllowedSources::Only(prefixes) = allowed else {
        return allowed.clone();
    };
    let fits = prefixes
        .iter()
        .filter(|prefix| Family::of(prefix.addr()) == family);
    let fits: BTreeSet<_> = fits.copied().collect();
    // None at all would be read as all clients; of the other family, they let in none.
    AllowedSources::Only(if fits.is_empty() {
        prefixes.clone()
    } else {
        fits
    })
}
