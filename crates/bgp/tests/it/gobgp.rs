//! GoBGP.

use std::fmt::Write as _;

use serde_json::Value;

use crate::lab::{Host, NODE, Program};
use crate::router::{Seen, Setup};

pub fn start(host: &Host, setup: &Setup) -> Vec<Program> {
    let node = setup.node();
    let mut text = format!(
        "[global.config]\nas = {}\nrouter-id = \"10.0.0.2\"\n\
        [[neighbors]]\n[neighbors.config]\nneighbor-address = \"{node}\"\npeer-as = {}\n",
        setup.asn, setup.node_asn
    );
    if let Some(password) = &setup.password {
        writeln!(text, "auth-password = \"{password}\"").unwrap();
    }
    let passive = !setup.active;
    writeln!(
        text,
        "[neighbors.transport.config]\npassive-mode = {passive}"
    )
    .unwrap();
    text.push_str("[neighbors.timers.config]\nhold-time = 9\nconnect-retry = 2\n");
    if setup.gtsm {
        text.push_str("[neighbors.ttl-security.config]\nenabled = true\nttl-min = 255\n");
    }
    if setup.graceful_restart {
        text.push_str("[neighbors.graceful-restart.config]\nenabled = true\nrestart-time = 60\n");
    }
    for family in ["ipv4-unicast", "ipv6-unicast"] {
        writeln!(
            text,
            "[[neighbors.afi-safis]]\n[neighbors.afi-safis.config]\nafi-safi-name = \"{family}\""
        )
        .unwrap();
        if setup.graceful_restart {
            text.push_str("[neighbors.afi-safis.mp-graceful-restart.config]\nenabled = true\n");
        }
    }
    let config = host.file("gobgpd.toml", &text);
    let program = host.start("gobgpd", &["-f", &config, "--api-hosts", "127.0.0.1:50051"]);
    let mut added = 0;
    let prefixes: Vec<_> = setup.prefixes().collect();
    while added < prefixes.len() {
        let end = (added + 200).min(prefixes.len());
        let lines = prefixes[added..end].iter();
        let script: Vec<_> = lines
            .map(|it| format!("gobgp global rib add {it} -a ipv4 >/dev/null"))
            .collect();
        // The first one waits for the program to listen.
        let wait = "until gobgp global >/dev/null 2>&1; do sleep 0.1; done; ";
        host.sh(&format!("{wait}{}", script.join("; ")));
        added = end;
    }
    vec![program]
}

pub fn end_session(host: &Host) {
    host.ask("gobgp", &["neighbor", NODE, "disable"]);
}

pub fn route(host: &Host, prefix: &str) -> Option<Seen> {
    let family = if prefix.contains(':') { "ipv6" } else { "ipv4" };
    let text = host.ask("gobgp", &["-j", "global", "rib", "-a", family, prefix]);
    let found: Value = serde_json::from_str(&text).ok()?;
    let path = found.get(prefix)?.get(0)?;
    let attributes = path["attrs"].as_array()?;
    let attribute = |kind: u64| attributes.iter().find(|it| it["type"] == kind);
    let number = |it: &Value| it.as_u64().map(|it| u32::try_from(it).unwrap());
    let list = |it: Option<&Value>, key: &str| -> Vec<Value> {
        let list = it.and_then(|it| it[key].as_array().cloned());
        list.unwrap_or_default()
    };
    let segments = list(attribute(2), "as_paths");
    let next_hop = attribute(14)
        .or(attribute(3))
        .and_then(|it| it["nexthop"].as_str());
    let communities = list(attribute(8), "communities");
    let large = list(attribute(32), "value");
    Some(Seen {
        next_hop: next_hop.and_then(|it| it.parse().ok()),
        local_preference: attribute(5).and_then(|it| number(&it["value"])),
        path: segments
            .iter()
            .flat_map(|it| list(Some(it), "asns"))
            .filter_map(|it| number(&it))
            .collect(),
        communities: communities
            .iter()
            .filter_map(number)
            .map(|it| ((it >> 16) as u16, it as u16))
            .collect(),
        large_communities: large
            .iter()
            .map(|it| {
                let part = |name: &str| number(&it[name]).unwrap();
                (part("ASN"), part("LocalData1"), part("LocalData2"))
            })
            .collect(),
    })
}
