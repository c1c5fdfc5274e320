//! What can be said of a Service in the observed state. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use landfall_model::dialect::openstack::{LOAD_BALANCER_ADDRESS, LOAD_BALANCER_ID};
use landfall_model::provider::ProviderStatus;
use landfall_model::status::{IngressAddress, IpMode, RECORD};
use landfall_model::{Code, Intent, Reason, Severity};

use crate::fares::Trouble;
use crate::notices::in_error;
use crate::objects::{LoadBalancer, OperatingStatus, Provisioning};
use crate::observed::{Found, Goal, Observed};
use crate::plan::is_as_wanted;
use crate::record;
use crate::record::{Record, is_given};
use crate::settings::Settings;
use crate::target::{Target, fingerprint, further_v4, is_floating};

/// How far the Service is: the first load balancer, and that of the second family.
pub(crate) fn status(intent: &Intent, have: &Observed, settings: &Settings) -> ProviderStatus {
    let mut standing = of_one(intent, have, settings);
    let lacking = have.lacking.as_ref();
    // An error is for planning to report.
    let reported = lacking.filter(|reason| reason.severity != Severity::Error);
    standing.remarks.extend(reported.cloned());
    for part in &have.beside {
        let second = of_one(&part.intent, &part.have, settings);
        add(&mut standing.notices, second.notices);
        let Goal::Exists(target) = &part.have.goal else {
            continue;
        };
        add(&mut standing.remarks, second.remarks);
        if second.ingress.is_empty() && second.waiting.is_empty() {
            let family = target.choice.family();
            standing.waiting.push(Reason::info(
                Code::Progressing,
                format!("there is no {family} address yet"),
            ));
        }
        add(&mut standing.waiting, second.waiting);
        add(&mut standing.ingress, second.ingress);
        let records = (standing.marks.get(RECORD), second.marks.get(RECORD));
        if let (Some(first), Some(second)) = records {
            let record = record::with_beside(first, second);
            standing.marks.insert(RECORD.to_owned(), record);
        }
    }
    let records = (intent.marks.get(RECORD), standing.marks.get(RECORD));
    if let (Some(before), Some(now)) = records
        && record::is_refreshed(before, now)
    {
        standing.deferred_marks = &[RECORD];
    }
    standing
}

/// Adds what is not there.
fn add<T: PartialEq>(all: &mut Vec<T>, more: Vec<T>) {
    for one in more {
        if !all.contains(&one) {
            all.push(one);
        }
    }
}

fn of_one(intent: &Intent, have: &Observed, settings: &Settings) -> ProviderStatus {
    let Goal::Exists(target) = &have.goal else {
        return ProviderStatus {
            notices: have.notices.clone(),
            ..ProviderStatus::default()
        };
    };
    let mut standing = ProviderStatus {
        remarks: target.reasons.clone(),
        notices: have.notices.clone(),
        ..ProviderStatus::default()
    };
    let Found::One {
        balancer, owner, ..
    } = &have.found
    else {
        standing.marks = kept_marks(intent, &have.found);
        standing.waiting.extend(have.resting.clone());
        let reported = have
            .resting
            .clone()
            .map(|it| ("SyncLoadBalancerFailed", it));
        standing.notices.extend(reported);
        return standing;
    };
    // Until it is joined it is not said to be the Service's.
    let joined =
        *owner || !have.features.tags() || balancer.tags.contains(&have.names.load_balancer);
    let address = address(have, target, balancer, *owner)
        .or_else(|| kept_vip(intent, balancer))
        .filter(|_| joined);
    match balancer.provisioning_status {
        Provisioning::PendingCreate => {
            standing.waiting.push(Reason::info(
                Code::Progressing,
                format!("Octavia is creating load balancer {}", balancer.id),
            ));
        }
        Provisioning::Error => standing.waiting.push(in_error(&balancer.id, *owner)),
        status if status.is_pending() => standing.waiting.extend(have.stuck.clone()),
        _ => standing.waiting.extend(no_traffic(have, balancer, *owner)),
    }
    if target.listeners.iter().any(|it| it.pending) {
        standing.waiting.push(Reason::info(
            Code::Progressing,
            "the certificate of a Secret is not in Barbican yet",
        ));
    }
    standing.marks = marks(intent, have, target, balancer, *owner, address);
    let open = is_open(intent, &standing);
    // The address of another's load balancer serves others before this Service has its ports there.
    if let Some(address) = address.filter(|_| *owner || open) {
        standing.ingress = ingress(intent, have, target, address, settings);
        standing.remarks.extend(private(have, target, balancer));
    }
    if address.is_some() && !open {
        standing.waiting.push(Reason::info(
            Code::Progressing,
            format!("load balancer {} does not serve the ports yet", balancer.id),
        ));
    }
    standing
}

/// Whether a load balancer, by what Octavia says of it, serves no client.
pub(crate) fn serves_none(balancer: &LoadBalancer) -> bool {
    balancer.admin_state_up == Some(false) || balancer.operating_status == OperatingStatus::Error
}

/// Why a load balancer that takes changes carries no traffic for the Service. How one fares that
/// others use does not show how the Service's own members do: its pools do.
fn no_traffic(have: &Observed, balancer: &LoadBalancer, owner: bool) -> Option<Reason> {
    if balancer.admin_state_up == Some(false) {
        let message = format!(
            "load balancer {} is switched off: its admin_state_up is false",
            balancer.id
        );
        let reason = Reason::error(Code::LoadBalancerFailed, message);
        return Some(reason.remedy("`openstack loadbalancer set --enable` switches it on"));
    }
    let id = &balancer.id;
    let name = &balancer.name;
    let mut others = have.names.of_others(name, &balancer.tags);
    let alone = owner && others.next().is_none();
    let message = match &have.trouble {
        Some(Trouble::SwitchedOff(listener)) => {
            let message = format!(
                "listener {listener} of load balancer {id} or its pool is switched off: its \
                admin_state_up is false"
            );
            let reason = Reason::error(Code::LoadBalancerFailed, message);
            return Some(
                reason.remedy("`openstack loadbalancer listener set --enable` switches it on"),
            );
        }
        // Octavia reports the load balancer as ERROR for one such pool.
        Some(Trouble::InPart) => return None,
        _ if alone && serves_none(balancer) => {
            format!("Octavia reports that load balancer {id} reaches no member")
        }
        Some(Trouble::NoMember) => {
            format!(
                "Octavia reports that the Service's pools in load balancer {id} reach no member"
            )
        }
        None => return None,
    };
    let reason = Reason::warning(Code::NoHealthyMembers, message);
    Some(reason.remedy("`openstack loadbalancer status show` shows each member"))
}

/// Whether the load balancer was ever seen as the Service wants it. What publishes an address
/// already served before we looked.
fn is_open(intent: &Intent, standing: &ProviderStatus) -> bool {
    let spec = intent.load_balancer.as_ref();
    let published = spec.is_some_and(|spec| !spec.address.held.is_empty());
    let record = standing.marks.get(RECORD).and_then(|it| Record::parse(it));
    published || record.is_some_and(|it| it.token != "-")
}

/// The address that clients connect to; `None`: not yet.
fn address(
    have: &Observed,
    target: &Target,
    balancer: &LoadBalancer,
    owner: bool,
) -> Option<IpAddr> {
    if balancer.provisioning_status == Provisioning::PendingCreate {
        return None;
    }
    if !is_floating(target, balancer) || further_v4(target, balancer).is_some() {
        return balancer.vip_address;
    }
    let view = &have.addressing;
    if let Some(attached) = &view.attached {
        return Some(attached.floating_ip_address);
    }
    // Where there is no external network, the VIP is all there is. A Service that shares a load
    // balancer does not look for one.
    let nowhere =
        owner && view.network.is_none() && view.problem.is_none() && view.requested.is_none();
    balancer
        .vip_address
        .filter(|_| nowhere && view.spare.is_none())
}

/// The VIP of a Service that has published it so far: clients know it until there is a floating IP.
fn kept_vip(intent: &Intent, balancer: &LoadBalancer) -> Option<IpAddr> {
    let held = &intent.load_balancer.as_ref()?.address.held;
    balancer.vip_address.filter(|vip| held.contains(vip))
}

fn ingress(
    intent: &Intent,
    have: &Observed,
    target: &Target,
    address: IpAddr,
    settings: &Settings,
) -> Vec<IngressAddress> {
    let spec = intent.load_balancer.as_ref();
    let named = |hostname: String| {
        vec![IngressAddress {
            hostname: Some(hostname),
            ..IngressAddress::default()
        }]
    };
    if let Some(hostname) = spec.and_then(|spec| spec.hostname.clone()) {
        return named(hostname);
    }
    let proxied = target
        .listeners
        .iter()
        .any(|it| it.pool.protocol.sends_proxy_header());
    if proxied && target.choice.ingress_hostname {
        let suffix = &settings.conf.ingress_hostname_suffix;
        // Colons can't stand in a name; nip.io and its like take dashes for them.
        let label = address.to_string().replace(':', "-");
        return named(format!("{label}.{suffix}"));
    }
    let mode = if proxied { IpMode::Proxy } else { IpMode::Vip };
    let mut addresses = vec![address];
    if target.choice.families.len() > 1 {
        addresses.extend(further(have, target));
    }
    addresses
        .into_iter()
        .map(|ip| IngressAddress {
            ip: Some(ip),
            ip_mode: Some(mode),
            ..IngressAddress::default()
        })
        .collect()
}

/// The addresses beside the first one. Where clients are outside, an IPv4 one is that of a floating
/// IP, or none.
fn further(have: &Observed, target: &Target) -> Vec<IpAddr> {
    let Found::One { balancer, .. } = &have.found else {
        return Vec::new();
    };
    let further = balancer.additional_vips.iter();
    let further = further.filter_map(|vip| vip.ip_address);
    let private = further_v4(target, balancer).filter(|_| !target.choice.internal);
    let reached = |address: IpAddr| match private {
        Some(private) if private == address => {
            let attached = have.addressing.attached.as_ref();
            attached.map(|it| it.floating_ip_address)
        }
        _ => Some(address),
    };
    further.filter_map(reached).collect()
}

/// That there is no floating IP for the further address, and no network for one.
fn private(have: &Observed, target: &Target, balancer: &LoadBalancer) -> Option<Reason> {
    let private = further_v4(target, balancer).filter(|_| !target.choice.internal)?;
    let view = &have.addressing;
    let some = view.attached.is_some() || view.requested.is_some() || view.spare.is_some();
    if some || view.network.is_some() || view.problem.is_some() {
        return None;
    }
    Some(
        Reason::warning(
            Code::NoAddressOfFamily,
            format!(
                "the IPv4 address {private} is private and is not published: there is no network \
                for a floating IP"
            ),
        )
        .at("spec.ipFamilies")
        .remedy("name the network in floating-network-id, or mark the Service as internal"),
    )
}

/// The marks that outlive a load balancer that is gone.
const KEPT: [&str; 3] = [LOAD_BALANCER_ADDRESS, LOAD_BALANCER_ID, RECORD];

/// While nothing is found, what is written stays: it says which load balancer served, so that no
/// other is taken for it.
fn kept_marks(intent: &Intent, found: &Found) -> BTreeMap<String, String> {
    match found {
        Found::Refused(_) => intent.marks.clone(),
        _ => intent
            .marks
            .iter()
            .filter(|(key, _)| KEPT.contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
    }
}

fn marks(
    intent: &Intent,
    have: &Observed,
    target: &Target,
    balancer: &LoadBalancer,
    owner: bool,
    address: Option<IpAddr>,
) -> BTreeMap<String, String> {
    let mut marks = BTreeMap::new();
    // A Service that names its own has the name from a controller that was there before.
    let named = intent.extensions.openstack.load_balancer.as_ref();
    let other = have.in_vain.as_ref();
    let names_it = named.is_some_and(|it| it.value == balancer.id.as_str());
    let given = !owner && is_given(intent) && (names_it || other.is_some());
    if !given {
        // What a user wrote in its place stays, and is reported rather than fought over.
        let id = other.map_or_else(|| balancer.id.to_string(), |it| it.value.clone());
        marks.insert(LOAD_BALANCER_ID.to_owned(), id);
    }
    if let Some(address) = address {
        marks.insert(LOAD_BALANCER_ADDRESS.to_owned(), address.to_string());
    }
    let before = Record::of(intent);
    // What is still to be changed is not vouched for: the next process has to read it.
    let seen = !have.assumed && is_as_wanted(have, target, balancer, owner);
    let needs = target.listeners.iter().any(|it| it.pending);
    let certified = needs || !have.certificates.there.is_empty();
    let record = match (&balancer.updated_at, before) {
        (Some(token), _) if seen => Record {
            balancer: balancer.id.to_string(),
            token: token.replace(' ', "T"),
            fingerprint: fingerprint(&target.listeners),
            given,
            certified,
        },
        (_, Some(before)) if before.balancer == balancer.id.as_str() => Record {
            certified: before.certified || certified,
            ..before
        },
        _ => Record {
            balancer: balancer.id.to_string(),
            token: "-".to_owned(),
            fingerprint: "-".to_owned(),
            given,
            certified,
        },
    };
    marks.insert(RECORD.to_owned(), record.to_string());
    marks
}
