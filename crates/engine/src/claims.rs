//! What is on record: what a process that starts assumes of the Services that it finds. Pure.
//!
//! A claim is read from the Service alone: its status, its annotations, its spec. Whether its
//! newest version can be served plays no part in it, so that nothing which is wrong with a Service,
//! or with what it refers to, takes its address away.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use landfall_model::dialect;
use landfall_model::intent::Claim;
use landfall_model::listener::ListenerKey;
use landfall_model::provider::Provider;
use landfall_model::rows::{OwnershipFields, ServiceRow};
use landfall_model::status::{ACCEPTED_VERSION, ConditionType, HELD_ADDRESSES};
use landfall_model::wire::{accepted_annotations, accepted_from_text};
use landfall_model::{Code, Reason, ServiceKey, Uid};

use crate::held::{self, addresses};
use crate::instance::InstanceId;
use crate::parallel;
use crate::resolve::backend_key;
use crate::select::{Classes, Ownership};
use crate::world::World;

/// Everything that is on record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedClaims {
    /// The claims of each provider instance, in the order of the instances, and for each the one
    /// that counts first.
    pub claims: Vec<Vec<Claim>>,
    /// Addresses that stand in the status of a Service and that another one holds.
    pub forfeited: BTreeMap<Uid, Vec<LostClaim>>,
}

/// An address on record that another Service holds, without sharing it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostClaim {
    /// Which one.
    pub address: IpAddr,
    /// The Service that holds it.
    pub holder: ServiceKey,
}

/// A claim and what decides between two claims on one address.
pub(crate) struct Candidate {
    rank: Rank,
    claim: Claim,
}

/// Of two Services with one address on record the lower rank keeps it: the one that is served
/// already, for what works goes on working; that asks for this very address; that is older. Then
/// the order of names decides.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    not_programmed: bool,
    asks_for_another: bool,
    age_unknown: bool,
    created: Option<jiff::Timestamp>,
    service: ServiceKey,
    uid: Uid,
}

/// The sharing key of all that other controllers publish: they may have one address on several
/// Services. No annotation gives it to a Service of ours.
const OF_OTHERS: &str = "\0other controllers";

/// Returns the claims of each provider instance, in the order of the instances.
pub fn claims<P: Provider>(
    world: &World,
    classes: &Classes,
    providers: &[impl Deref<Target = P>],
) -> Vec<Vec<Claim>> {
    on_record(world, classes, providers).claims
}

/// Returns what is on record, each address with one Service unless Services share it.
pub fn on_record<P: Provider>(
    world: &World,
    classes: &Classes,
    providers: &[impl Deref<Target = P>],
) -> RecordedClaims {
    let keys: Vec<ServiceKey> = world.keys().collect();
    let found = parallel::map(&keys, parallel::SERVICES, |key| {
        let row = world.service(key)?;
        candidate(&row, world, classes)
    });
    settle_all(found.into_iter().flatten(), providers)
}

/// Returns what a Service claims by its record, and which instance has charge of it.
pub(crate) fn candidate(
    row: &ServiceRow,
    world: &World,
    classes: &Classes,
) -> Option<(InstanceId, Candidate)> {
    let namespace = world.namespace(row.key.namespace());
    let instance = classes.holder_on_record(row, namespace.map(AsRef::as_ref))?;
    Some((instance, Candidate::of(row, claim(row)?)))
}

/// Decides between claims on one address.
pub(crate) fn settle_all<P: Provider>(
    found: impl Iterator<Item = (InstanceId, Candidate)>,
    providers: &[impl Deref<Target = P>],
) -> RecordedClaims {
    let mut candidates: Vec<Vec<Candidate>> = providers.iter().map(|_| Vec::new()).collect();
    for (instance, candidate) in found {
        if let Some(candidates) = instance.of_mut(&mut candidates) {
            candidates.push(candidate);
        }
    }
    let mut record = RecordedClaims::default();
    for (provider, mut candidates) in providers.iter().zip(candidates) {
        candidates.sort_by(|one, other| one.rank.cmp(&other.rank));
        let claims = candidates.into_iter().map(|candidate| candidate.claim);
        record.claims.push(if provider.profile().takes_pools {
            settle(claims, &mut record.forfeited)
        } else {
            // Which address a Service may have is the cloud's decision.
            claims.collect()
        });
    }
    record
}

/// Returns the claims of those Services that no instance serves.
pub fn foreign_claims<'a>(
    services: impl Iterator<Item = &'a Arc<ServiceRow>>,
    world: &World,
    classes: &Classes,
) -> BTreeMap<ServiceKey, Claim> {
    let claims = services.filter_map(|row| {
        let claim = foreign_claim(row, world, classes)?;
        Some((claim.service.clone(), claim))
    });
    claims.collect()
}

/// Returns the claim of such a Service; `None` for any other one.
pub(crate) fn foreign_claim(row: &ServiceRow, world: &World, classes: &Classes) -> Option<Claim> {
    let namespace = world.namespace(row.key.namespace());
    let belongs = classes.validate(row, namespace.map(AsRef::as_ref));
    if classes.has_lost(row, belongs) {
        return claim(row);
    }
    may_publish_for_others(belongs, &row.into()).then(|| published_by_others(row))
}

/// Whether what a Service publishes is there because another controller serves it. What is left of
/// ours on a Service that gave up its type is cleared away.
pub(crate) fn may_publish_for_others(belongs: Ownership, service: &OwnershipFields<'_>) -> bool {
    let is_ours = matches!(belongs, Ownership::Ours(_));
    service.published && !is_ours && (service.wants_load_balancer || !service.reported)
}

/// What another controller publishes. How it lets Services share is not known here.
fn published_by_others(row: &ServiceRow) -> Claim {
    Claim {
        service: row.key.clone(),
        uid: row.uid.clone(),
        addresses: row.status.addresses().collect(),
        requested: Vec::new(),
        sharing_key: Some(OF_OTHERS.to_owned()),
        backend_key: String::new(),
        ports: Vec::new(),
    }
}

/// Returns what a Service holds by its record; `None`: nothing.
pub fn claim(row: &ServiceRow) -> Option<Claim> {
    // What is still published there was given back before the finalizer went.
    if row.deleting && !row.finalized {
        return None;
    }
    let addresses = addresses(&row.status);
    if addresses.is_empty() {
        return None;
    }
    // What is served is the version that was accepted, and so are the terms on which it shares.
    let text = row.status.marks.get(ACCEPTED_VERSION);
    let newest = text.and_then(|text| accepted_annotations(text, row));
    let accepted = match newest {
        Some(_) => None,
        None => accepted(row).and_then(Result::ok),
    };
    let row = accepted.as_ref().unwrap_or(row);
    let annotations = newest.as_ref().unwrap_or(&row.annotations);
    let options = dialect::options(annotations, &row.ports);
    let requested = if let Some(given) = options.addresses.into_iter().next() {
        given.value
    } else {
        let field = row.load_balancer_ip.as_deref();
        let address = field.and_then(|text| dialect::address(text.trim()).ok());
        address.into_iter().collect()
    };
    let ports = row.ports.iter();
    Some(Claim {
        service: row.key.clone(),
        uid: row.uid.clone(),
        addresses,
        requested,
        sharing_key: options.sharing_key.map(|given| given.value),
        backend_key: backend_key(row),
        ports: ports
            .map(|port| ListenerKey {
                protocol: port.protocol,
                port: port.port,
            })
            .collect(),
    })
}

/// Returns the version of a Service that was accepted last, where it is on record; an error where
/// the record can't be read.
pub fn accepted(row: &ServiceRow) -> Option<Result<ServiceRow, Reason>> {
    let text = row.status.marks.get(ACCEPTED_VERSION)?;
    Some(accepted_from_text(text, row).map_err(|reason| *reason))
}

/// Returns what is wrong with the record of a Service.
pub fn complaints(row: &ServiceRow) -> Vec<Reason> {
    let text = row.status.marks.get(HELD_ADDRESSES);
    let bad = text
        .into_iter()
        .flat_map(|text| held::words(text))
        .filter_map(Result::err);
    let complaint = |word: &str| {
        Reason::warning(
            Code::InvalidAddress,
            format!(
                "{word:?} is not an IP address, so the record of this Service's claims is \
                    incomplete"
            ),
        )
        .at_annotation(HELD_ADDRESSES)
        .value(word)
        .remedy("leave this annotation to the program that writes it")
    };
    bad.map(complaint).collect()
}

/// Gives each address to the first that claims it and to those that share it.
fn settle(
    claims: impl Iterator<Item = Claim>,
    forfeited: &mut BTreeMap<Uid, Vec<LostClaim>>,
) -> Vec<Claim> {
    let mut settled: Vec<Claim> = Vec::new();
    let mut holders: BTreeMap<IpAddr, Vec<usize>> = BTreeMap::new();
    for mut claim in claims {
        for address in std::mem::take(&mut claim.addresses) {
            let others = holders.get(&address).into_iter().flatten();
            let mut others = others.filter_map(|index| settled.get(*index));
            match others.find(|other| !may_share(&claim, other)) {
                None => claim.addresses.push(address),
                Some(other) => forfeited
                    .entry(claim.uid.clone())
                    .or_default()
                    .push(LostClaim {
                        address,
                        holder: other.service.clone(),
                    }),
            }
        }
        if claim.addresses.is_empty() {
            continue;
        }
        for address in &claim.addresses {
            holders.entry(*address).or_default().push(settled.len());
        }
        settled.push(claim);
    }
    settled
}

/// Whether two Services may have one address: by the same key, to the same backends, on ports that
/// differ.
fn may_share(one: &Claim, other: &Claim) -> bool {
    let key = |claim: &Claim| claim.sharing_key.clone().filter(|key| !key.is_empty());
    let ports: BTreeSet<&ListenerKey> = one.ports.iter().collect();
    key(one).is_some()
        && key(one) == key(other)
        && one.backend_key == other.backend_key
        && other.ports.iter().all(|port| !ports.contains(port))
}

// === impl Candidate ===

impl Candidate {
    fn of(row: &ServiceRow, claim: Claim) -> Self {
        let requested = &claim.requested;
        let asks = !requested.is_empty()
            && requested
                .iter()
                .all(|address| claim.addresses.contains(address));
        let programmed = row.status.condition(ConditionType::Programmed);
        Self {
            rank: Rank {
                not_programmed: !programmed.is_some_and(|condition| condition.status),
                asks_for_another: !asks,
                age_unknown: row.created.is_none(),
                created: row.created,
                service: row.key.clone(),
                uid: row.uid.clone(),
            },
            claim,
        }
    }
}

// === impl LostClaim ===

impl LostClaim {
    /// Returns the message for the Service that lost it. A Service of another namespace is not
    /// named: the reader may not look there.
    pub fn reason(&self, loser: &ServiceKey) -> Reason {
        let Self { address, holder } = self;
        let holder = if holder.namespace() == loser.namespace() {
            holder.to_string()
        } else {
            "a Service of another namespace".to_owned()
        };
        Reason::warning(
            Code::AddressInUse,
            format!("{address} was in the status of this Service and of {holder}, which keeps it"),
        )
        .remedy(format!(
            "no action is needed unless clients use {address} for this Service: it gets another \
            address"
        ))
    }
}

#[cfg(test)]
mod tests;
