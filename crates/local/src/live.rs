//! What the data plane is doing at this moment, for people and for the conditions.

use std::collections::BTreeMap;

use landfall_model::Uid;
use landfall_model::listener::{Listener, ListenerKey, Member};
use landfall_model::view::{
    Health, ListenerView, MeasuredView, MemberView, TimesView, TrafficView,
};
use landfall_proxy::breaks::Break;
use landfall_proxy::counters::{Refusal, Span};
use landfall_proxy::pool::{MemberStatus, Reach};
use landfall_proxy::shortage::Shortage;
use landfall_proxy::{ListenerId, ListenerState};

use crate::carrier::Listeners;
use crate::observed::Opened;

/// The members of a Service, per listener.
pub(crate) type Members = BTreeMap<ListenerKey, Reach>;

/// Counts the members that serve, per listener. Of a listener on two addresses the worse counts.
pub fn members(all: &Listeners, service: &Uid) -> Members {
    let mut counts = Members::new();
    let names = all.state().names(service);
    for id in names {
        let Some(state) = all.find(service, id) else {
            continue;
        };
        let members = state.pool().reach();
        let worst = counts.get(&id.key);
        if worst.is_none_or(|worst| members.serving <= worst.serving) {
            counts.insert(id.key, members);
        }
    }
    counts
}

/// The listeners of a Service: one row per key, whatever the number of its addresses.
pub fn listeners(all: &Listeners, service: &Uid) -> Vec<ListenerView> {
    let mut views: BTreeMap<ListenerKey, ListenerView> = BTreeMap::new();
    for (id, opened) in all.state().listeners(service) {
        let live = all.find(service, id);
        let one = view(id, &opened, live.as_deref());
        match views.get_mut(&id.key) {
            None => drop(views.insert(id.key, one)),
            Some(merged) => merge(merged, one),
        }
    }
    views.into_values().collect()
}

fn view(id: ListenerId, opened: &Opened, live: Option<&ListenerState>) -> ListenerView {
    let listener: &Listener = &opened.listener;
    ListenerView {
        addresses: vec![id.address],
        key: id.key,
        name: listener.name.clone(),
        mode: listener.mode.as_str().to_owned(),
        problem: opened.problem.clone(),
        traffic: live.map(listener_traffic).unwrap_or_default(),
        measured: live.and_then(measured),
        algorithm: listener.pool.algorithm,
        proxy_protocol: listener.pool.proxy_protocol,
        monitor: listener.pool.monitor.clone(),
        allowed: listener.allowed.clone(),
        connection_limit: listener.connection_limit,
        affinity: listener.pool.affinity,
        members: match live {
            Some(live) => members_of(live, listener),
            None => listener.pool.members.iter().map(cut_off).collect(),
        },
    }
}

fn listener_traffic(live: &ListenerState) -> TrafficView {
    let totals = live.counters().totals();
    TrafficView {
        open: u64::from(live.gate().open()),
        connections: totals.connections,
        failed: totals.refused.iter().sum(),
        bytes_in: totals.bytes_in,
        bytes_out: totals.bytes_out,
        health_changes: 0,
    }
}

/// What a listener counted beside its traffic, if anything.
fn measured(live: &ListenerState) -> Option<Box<MeasuredView>> {
    let totals = live.counters().totals();
    let classes = ["1xx", "2xx", "3xx", "4xx", "5xx"];
    let measured = MeasuredView {
        responses: named(classes.into_iter().zip(totals.responses)),
        refused: named(
            Refusal::ALL
                .map(Refusal::as_str)
                .into_iter()
                .zip(totals.refused),
        ),
        local_failures: named(
            Shortage::ALL
                .map(Shortage::as_str)
                .into_iter()
                .zip(totals.local_failures),
        ),
        broken: named(Break::ALL.map(Break::as_str).into_iter().zip(totals.broken)),
        waiting: live.pool().waiting() as u64,
        times: Span::ALL
            .into_iter()
            .filter_map(|span| {
                let times = live.counters().times(span)?;
                let buckets = span.bounds().iter().copied().zip(times.buckets);
                let times = TimesView {
                    buckets: buckets.collect(),
                    sum: times.micros,
                    count: times.count,
                };
                Some((span.as_str(), times))
            })
            .collect(),
    };
    (measured != MeasuredView::default()).then(|| Box::new(measured))
}

fn named(counts: impl Iterator<Item = (&'static str, u64)>) -> BTreeMap<String, u64> {
    let counts = counts.filter(|(_, count)| *count > 0);
    counts
        .map(|(name, count)| (name.to_owned(), count))
        .collect()
}

fn members_of(live: &ListenerState, listener: &Listener) -> Vec<MemberView> {
    let named = |status: &MemberStatus| {
        listener
            .pool
            .members
            .iter()
            .find(|member| member.address == status.address)
    };
    let view = |status: &MemberStatus| {
        let member = named(status);
        let text = |text: &std::sync::Arc<str>| text.to_string();
        MemberView {
            address: status.address,
            name: member.and_then(|member| member.name.as_ref().map(text)),
            node: member.and_then(|member| member.node.as_ref().map(text)),
            weight: status.weight,
            backup: status.backup,
            health: health(status),
            detail: detail(status, member.is_some_and(|member| member.draining)),
            traffic: TrafficView {
                open: u64::from(status.open),
                connections: status.totals.connections,
                failed: status.totals.connect_failures,
                bytes_in: status.totals.bytes_in,
                bytes_out: status.totals.bytes_out,
                health_changes: status.transitions,
            },
        }
    };
    live.pool().status().iter().map(view).collect()
}

/// A member of a listener that is not open: no client reaches it.
fn cut_off(member: &Member) -> MemberView {
    MemberView {
        address: member.address,
        name: member.name.as_ref().map(ToString::to_string),
        node: member.node.as_ref().map(ToString::to_string),
        weight: member.weight,
        backup: member.backup,
        health: Health::Down,
        detail: "the listener is not open".to_owned(),
        traffic: TrafficView::default(),
    }
}

/// Why no client should be sent to a member that serves.
fn failure(status: &MemberStatus) -> Option<std::sync::Arc<str>> {
    status.left_out.clone().or_else(|| status.failing.clone())
}

fn health(status: &MemberStatus) -> Health {
    if status.leaving {
        return Health::Draining;
    }
    if status.serves && failure(status).is_some() {
        return Health::Failing;
    }
    if !status.checked {
        return Health::Unchecked;
    }
    match status.health {
        landfall_proxy::Health::Unknown => Health::Unknown,
        landfall_proxy::Health::Up => Health::Up,
        landfall_proxy::Health::Down => Health::Down,
    }
}

fn detail(status: &MemberStatus, terminating: bool) -> String {
    if terminating {
        "terminating: existing connections continue".to_owned()
    } else if status.leaving && status.weight == 0 {
        "being removed: existing connections continue".to_owned()
    } else if let Some(left_out) = status.left_out.as_ref().filter(|_| status.serves) {
        left_out.to_string()
    } else if let Some(failure) = status.failing.as_ref().filter(|_| status.serves) {
        format!("connections fail: {failure}")
    } else if status.backup && !status.serves {
        "backup: waits until every other member is down".to_owned()
    } else {
        status.cause.to_string()
    }
}

/// Adds the same listener on another address: counts add up, and the worse health shows.
fn merge(into: &mut ListenerView, other: ListenerView) {
    into.addresses.extend(other.addresses);
    if into.problem.is_none() {
        into.problem = other.problem;
    }
    add(&mut into.traffic, other.traffic);
    if let Some(measured) = other.measured {
        into.measured.get_or_insert_default().add(*measured);
    }
    for member in other.members {
        match into
            .members
            .iter_mut()
            .find(|it| it.address == member.address)
        {
            None => into.members.push(member),
            Some(known) => {
                add(&mut known.traffic, member.traffic);
                if matches!(member.health, Health::Down | Health::Failing) {
                    known.health = member.health;
                    known.detail = member.detail;
                }
            }
        }
    }
}

fn add(into: &mut TrafficView, other: TrafficView) {
    into.open += other.open;
    into.connections += other.connections;
    into.failed += other.failed;
    into.bytes_in += other.bytes_in;
    into.bytes_out += other.bytes_out;
    into.health_changes += other.health_changes;
}
