//! What differs between two versions of a listener, in words for a plan.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use landfall_model::listener::{Listener, Member};

/// Returns one clause per difference; empty when nothing differs that has an effect.
pub fn between(before: &Listener, after: &Listener) -> Vec<String> {
    let mut changes = members(&before.pool.members, &after.pool.members);
    let mut compare = |name: &str, differs: bool| {
        if differs {
            changes.push(format!("{name} changes"));
        }
    };
    compare("name", before.name != after.name);
    compare(
        "certificate",
        before.mode.certificates() != after.mode.certificates(),
    );
    compare("TLS options", before.tls != after.tls);
    compare("redirect", before.redirect != after.redirect);
    compare("TLS to members", before.pool.tls != after.pool.tls);
    compare("HTTP options", before.mode.http() != after.mode.http());
    compare("allowed sources", before.allowed != after.allowed);
    compare(
        "trusted PROXY sources",
        before.accept_proxy_from != after.accept_proxy_from,
    );
    compare("timeouts", before.timeouts != after.timeouts);
    compare(
        "session affinity",
        before.pool.affinity != after.pool.affinity,
    );
    compare("monitor", before.pool.monitor != after.pool.monitor);
    if before.mode.as_str() != after.mode.as_str() {
        changes.push(format!(
            "mode {} -> {}",
            before.mode.as_str(),
            after.mode.as_str()
        ));
    }
    if before.pool.algorithm != after.pool.algorithm {
        let (before, after) = (before.pool.algorithm, after.pool.algorithm);
        changes.push(format!("algorithm {before} -> {after}"));
    }
    if before.pool.proxy_protocol != after.pool.proxy_protocol {
        let name = |listener: &Listener| {
            listener
                .pool
                .proxy_protocol
                .map_or("off".to_owned(), |it| format!("{it:?}"))
        };
        changes.push(format!(
            "PROXY protocol {} -> {}",
            name(before),
            name(after)
        ));
    }
    if before.connection_limit != after.connection_limit {
        let name = |limit: Option<u32>| limit.map_or("none".to_owned(), |it| it.to_string());
        let (before, after) = (name(before.connection_limit), name(after.connection_limit));
        changes.push(format!("connection limit {before} -> {after}"));
    }
    if before.source_limits != after.source_limits {
        changes.push("limits of sources".to_owned());
    }
    if before.pool.protection != after.pool.protection {
        changes.push("limits of members".to_owned());
    }
    if before.drain != after.drain {
        changes.push(format!(
            "drain time {:?} -> {:?}",
            before.drain, after.drain
        ));
    }
    changes
}

/// Returns whether two versions of a listener differ in nothing but their members.
pub fn of_members_only(before: &Listener, after: &Listener) -> bool {
    let mut same = before.clone();
    same.pool.members.clone_from(&after.pool.members);
    same == *after
}

fn members(before: &[Member], after: &[Member]) -> Vec<String> {
    let index = |members: &[Member]| -> BTreeMap<SocketAddr, Member> {
        members
            .iter()
            .map(|member| (member.address, member.clone()))
            .collect()
    };
    let (before, after) = (index(before), index(after));
    let joins = after.keys().filter(|address| !before.contains_key(address));
    let leaves = before.keys().filter(|address| !after.contains_key(address));
    let mut changes: Vec<String> = joins.map(|address| format!("+{address}")).collect();
    changes.extend(leaves.map(|address| format!("-{address}")));
    for (address, new) in &after {
        let Some(old) = before.get(address) else {
            continue;
        };
        if old.weight != new.weight {
            changes.push(format!("{address} weight {} -> {}", old.weight, new.weight));
        }
        if old.backup != new.backup {
            let role = if new.backup {
                "a backup"
            } else {
                "no backup any more"
            };
            changes.push(format!("{address} is {role}"));
        }
        if old.draining != new.draining {
            let state = if new.draining {
                "drains"
            } else {
                "serves again"
            };
            changes.push(format!("{address} {state}"));
        }
        if (&old.name, &old.node) != (&new.name, &new.node) {
            changes.push(format!("{address} is another pod or on another node"));
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use landfall_model::listener::{Algorithm, Protocol, ProxyProtocol};

    use super::*;

    fn listener(members: &[&str]) -> Listener {
        let mut listener = Listener::new(Protocol::Tcp, 80.try_into().unwrap());
        listener.pool.members = members
            .iter()
            .map(|member| Member::new(member.parse().unwrap()))
            .collect();
        listener
    }

    #[test]
    fn equal_listeners_do_not_differ() {
        assert!(between(&listener(&["10.0.0.1:80"]), &listener(&["10.0.0.1:80"])).is_empty());
    }

    #[test]
    fn members_and_options_are_named() {
        let before = listener(&["10.0.0.1:80", "10.0.0.2:80"]);
        let mut after = listener(&["10.0.0.2:80", "10.0.0.3:80"]);
        after.pool.members[0].weight = 5;
        after.pool.algorithm = Algorithm::SourceIp;
        after.pool.proxy_protocol = Some(ProxyProtocol::V2);
        assert_eq!(
            between(&before, &after),
            [
                "+10.0.0.3:80",
                "-10.0.0.1:80",
                "10.0.0.2:80 weight 1 -> 5",
                "algorithm ROUND_ROBIN -> SOURCE_IP",
                "PROXY protocol off -> V2",
            ]
        );
    }
}
