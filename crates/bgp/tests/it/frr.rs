//! FRR: zebra, which knows the interfaces and installs routes, and bgpd.

use std::fmt::Write as _;

use serde_json::Value;

use crate::lab::{Host, Program};
use crate::router::{Seen, Setup};

pub fn start(host: &Host, setup: &Setup) -> Vec<Program> {
    let folder = host.folder().to_str().unwrap();
    let (node, link) = if setup.unnumbered {
        ("eth0", " interface")
    } else if setup.by_range {
        ("nodes", "")
    } else {
        (setup.node(), "")
    };
    let group = if setup.by_range {
        "neighbor nodes peer-group\n "
    } else {
        ""
    };
    let mut text = format!(
        "log stdout\nrouter bgp {}\n bgp router-id 10.0.0.2\n no bgp ebgp-requires-policy\n \
        no bgp network import-check\n no bgp default ipv4-unicast\n \
        {group}neighbor {node}{link} remote-as {}\n neighbor {node} timers 3 9\n \
        neighbor {node} timers connect 2\n",
        setup.asn, setup.node_asn
    );
    if setup.extended_next_hop {
        writeln!(text, " neighbor {node} capability extended-nexthop").unwrap();
    }
    if setup.by_range {
        text.push_str(" bgp listen range 10.0.0.0/24 peer-group nodes\n");
    } else if !setup.active {
        writeln!(text, " neighbor {node} passive").unwrap();
    }
    if let Some(password) = &setup.password {
        writeln!(text, " neighbor {node} password {password}").unwrap();
    }
    if setup.gtsm {
        writeln!(text, " neighbor {node} ttl-security hops 1").unwrap();
    }
    if setup.graceful_restart {
        text.push_str(" bgp graceful-restart\n");
    }
    text.push_str(" address-family ipv4 unicast\n");
    for prefix in setup.prefixes() {
        writeln!(text, "  network {prefix}").unwrap();
    }
    writeln!(text, "  neighbor {node} activate\n exit-address-family").unwrap();
    writeln!(
        text,
        " address-family ipv6 unicast\n  neighbor {node} activate"
    )
    .unwrap();
    text.push_str(" exit-address-family\n");
    let config = host.file("bgpd.conf", &text);
    let api = format!("{folder}/zserv.api");
    let run = |name: &str, config: &str, more: &[&str]| {
        let program = format!("/usr/lib/frr/{name}");
        let pid = format!("{folder}/{name}.pid");
        let common = ["-f", config, "-z", &api, "-i", &pid];
        let arguments = [&common[..], &["--vty_socket", folder], more].concat();
        host.start(&program, &arguments)
    };
    let of_zebra = host.file("zebra.conf", "log stdout\n");
    // It drops the rights of root before it opens its socket.
    host.sh(&format!("chown -R frr:frr {folder}"));
    let zebra = run("zebra", &of_zebra, &["-u", "frr", "-g", "frr"]);
    host.sh(&format!(
        "timeout 20 sh -c 'until [ -S {api} ]; do sleep 0.05; done'"
    ));
    vec![
        run("bgpd", &config, &["-S", "-u", "root", "-g", "root"]),
        zebra,
    ]
}

fn vtysh(host: &Host, command: &str) -> String {
    let folder = host.folder().to_str().unwrap();
    host.ask(
        "vtysh",
        &["--vty_socket", folder, "-d", "bgpd", "-c", command],
    )
}

pub fn refresh(host: &Host) {
    vtysh(host, "clear bgp * soft in");
}

pub fn end_session(host: &Host) {
    vtysh(host, "clear bgp *");
}

pub fn route(host: &Host, prefix: &str) -> Option<Seen> {
    let family = if prefix.contains(':') { "ipv6" } else { "ipv4" };
    let text = vtysh(host, &format!("show bgp {family} unicast {prefix} json"));
    let found: Value = serde_json::from_str(&text).ok()?;
    let path = found.get("paths")?.get(0)?;
    let numbers = |text: &Value| -> Vec<Vec<u32>> {
        let text = text.as_str().unwrap_or_default();
        let one = |it: &str| it.split(':').map(|it| it.parse().unwrap_or(0)).collect();
        let named = text.replace("graceful-shutdown", "65535:0");
        named.split_whitespace().map(one).collect()
    };
    let communities = numbers(&path["community"]["string"]);
    let large = numbers(&path["largeCommunity"]["string"]);
    let as_path = path["aspath"]["string"].as_str().unwrap_or_default();
    let number = |it: &Value| it.as_u64().map(|it| u32::try_from(it).unwrap());
    Some(Seen {
        next_hop: path["nexthops"][0]["ip"]
            .as_str()
            .and_then(|it| it.parse().ok()),
        local_preference: number(&path["locPrf"]),
        path: as_path.split_whitespace().flat_map(str::parse).collect(),
        communities: communities
            .iter()
            .map(|it| (u16::try_from(it[0]).unwrap(), u16::try_from(it[1]).unwrap()))
            .collect(),
        large_communities: large.iter().map(|it| (it[0], it[1], it[2])).collect(),
    })
}
