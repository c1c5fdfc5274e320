//! What can be said of a Service in the observed state. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use landfall_model::provider::Standing;
use landfall_model::status::{
    IngressAddress, IpMode, LOAD_BALANCER_ADDRESS, LOAD_BALANCER_ID, RECORD,
};
use landfall_model::{Code, Intent, Reason};

use crate::address::is_floating;
use crate::objects::{LoadBalancer, Provisioning};
use crate::observe::{in_error, is_given};
use crate::observed::{Found, Goal, Observed, Target};
use crate::plan::is_as_wanted;
use crate::record::Record;
use crate::settings::Settings;
use crate::wanted::fingerprint;

/// How far the Service is.
pub(crate) fn standing(intent: &Intent, have: &Observed, settings: &Settings) -> Standing {
    let Goal::Exists(target) = &have.goal else {
        return Standing {
            notices: have.notices.clone(),
            ..Standing::default()
        };
    };
    let mut standing = Standing {
        remarks: target.reasons.clone(),
        notices: have.notices.clone(),
        ..Standing::default()
    };
    let Found::One {
        balancer, owner, ..
    } = &have.found
    else {
        standing.marks = kept_marks(intent, &have.found);
        return standing;
    };
    // Until it is joined it is not said to be the Service's.
    let joined =
        *owner || !have.features.tags() || balancer.tags.contains(&have.names.load_balancer);
    let address = address(have, target, balancer).filter(|_| joined);
    match balancer.provisioning_status {
        Provisioning::PendingCreate => {
            standing.waiting.push(Reason::info(
                Code::Progressing,
                format!("Octavia is making load balancer {}", balancer.id),
            ));
        }
        Provisioning::Error => standing.waiting.push(in_error(&balancer.id, *owner)),
        _ => {}
    }
    if let Some(address) = address {
        standing.ingress = ingress(intent, target, balancer, address, settings);
    }
    standing.marks = marks(intent, have, target, balancer, *owner, address);
    standing
}

/// The address that clients connect to; `None`: not yet.
fn address(have: &Observed, target: &Target, balancer: &LoadBalancer) -> Option<IpAddr> {
    if balancer.provisioning_status == Provisioning::PendingCreate {
        return None;
    }
    if !is_floating(target, balancer) {
        return balancer.vip_address;
    }
    let view = &have.addressing;
    if let Some(attached) = &view.attached {
        return Some(attached.floating_ip_address);
    }
    // Where there is no external network, the VIP is all there is.
    let nowhere = view.network.is_none() && view.problem.is_none() && view.requested.is_none();
    balancer
        .vip_address
        .filter(|_| nowhere && view.spare.is_none())
}

fn ingress(
    intent: &Intent,
    target: &Target,
    balancer: &LoadBalancer,
    address: IpAddr,
    settings: &Settings,
) -> Vec<IngressAddress> {
    let wish = intent.load_balancer.as_ref();
    let named = |hostname: String| {
        vec![IngressAddress {
            hostname: Some(hostname),
            ..IngressAddress::default()
        }]
    };
    if let Some(hostname) = wish.and_then(|wish| wish.hostname.clone()) {
        return named(hostname);
    }
    let proxied = target
        .listeners
        .iter()
        .any(|it| it.pool.protocol.starts_with("PROXY"));
    if proxied && target.choice.ingress_hostname {
        let suffix = &settings.conf.ingress_hostname_suffix;
        // Colons can't stand in a name; nip.io and its like take dashes for them.
        let label = address.to_string().replace(':', "-");
        return named(format!("{label}.{suffix}"));
    }
    let mode = if proxied { IpMode::Proxy } else { IpMode::Vip };
    let further = balancer
        .additional_vips
        .iter()
        .filter_map(|vip| vip.ip_address);
    let mut addresses = vec![address];
    addresses.extend(further.filter(|_| target.choice.families.len() > 1));
    addresses
        .into_iter()
        .map(|ip| IngressAddress {
            ip: Some(ip),
            ip_mode: Some(mode),
            ..IngressAddress::default()
        })
        .collect()
}

/// While nothing is found, what is written stays, unless it is about to be replaced.
fn kept_marks(intent: &Intent, found: &Found) -> BTreeMap<String, String> {
    match found {
        Found::Refused(_) => intent.marks.clone(),
        _ => intent
            .marks
            .iter()
            .filter(|(key, _)| *key == LOAD_BALANCER_ADDRESS || *key == RECORD)
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
    // Who names the Service's own has the name from a controller that was there before.
    let given = !owner
        && is_given(intent)
        && intent
            .cloud
            .load_balancer
            .as_ref()
            .is_some_and(|it| it.value == balancer.id.as_str());
    if !given {
        marks.insert(LOAD_BALANCER_ID.to_owned(), balancer.id.to_string());
    }
    if let Some(address) = address {
        marks.insert(LOAD_BALANCER_ADDRESS.to_owned(), address.to_string());
    }
    let before = Record::of(intent);
    // What is still to be changed is not vouched for: whoever comes after us has to look.
    let seen = !have.assumed && is_as_wanted(have, target, balancer, owner);
    let record = match (&balancer.updated_at, before) {
        (Some(token), _) if seen => Record {
            balancer: balancer.id.to_string(),
            token: token.replace(' ', "T"),
            fingerprint: fingerprint(&target.listeners),
            given,
        },
        (_, Some(before)) if before.balancer == balancer.id.as_str() => before,
        _ => Record {
            balancer: balancer.id.to_string(),
            token: "-".to_owned(),
            fingerprint: "-".to_owned(),
            given,
        },
    };
    marks.insert(RECORD.to_owned(), record.to_string());
    marks
}
