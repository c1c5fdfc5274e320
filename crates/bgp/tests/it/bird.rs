//! BIRD 2.

use std::fmt::Write as _;

use crate::lab::{Host, Program};
use crate::router::{Seen, Setup};

pub fn start(host: &Host, setup: &Setup) -> Vec<Program> {
    let (node, router) = (setup.node(), setup.router());
    let mut text = String::from("router id 10.0.0.2;\nprotocol device { scan time 1; }\n");
    text.push_str("protocol static announced { ipv4;\n");
    for prefix in setup.prefixes() {
        writeln!(text, "  route {prefix} blackhole;").unwrap();
    }
    let passive = if setup.active { "off" } else { "on" };
    let restart = if setup.graceful_restart { "on" } else { "off" };
    writeln!(
        text,
        "}}\nprotocol bgp node {{\n  local {router} as {};\n  neighbor {node} as {};\n  \
        passive {passive}; connect delay time 1; connect retry time 2;\n  \
        hold time 9; error wait time 1, 2; graceful restart {restart};\n  \
        ipv4 {{ import all; export where source = RTS_STATIC; extended next hop on; }};\n  \
        ipv6 {{ import all; export none; }};",
        setup.asn, setup.node_asn
    )
    .unwrap();
    if let Some(password) = &setup.password {
        writeln!(text, "  password \"{password}\";").unwrap();
    }
    if setup.gtsm {
        text.push_str("  ttl security on;\n");
    }
    text.push_str("}\n");
    let config = host.file("bird.conf", &text);
    let control = socket(host);
    let pid = host.folder().join("bird.pid");
    let arguments = [
        "-f",
        "-c",
        &config,
        "-s",
        &control,
        "-P",
        pid.to_str().unwrap(),
    ];
    vec![host.start("bird", &arguments)]
}

fn socket(host: &Host) -> String {
    host.folder().join("bird.ctl").to_str().unwrap().to_owned()
}

fn birdc(host: &Host, command: &str) -> String {
    host.ask("birdc", &["-s", &socket(host), command])
}

pub fn refresh(host: &Host) {
    birdc(host, "reload in node");
}

pub fn end_session(host: &Host) {
    birdc(host, "disable node");
}

pub fn route(host: &Host, prefix: &str) -> Option<Seen> {
    let text = birdc(host, &format!("show route {prefix} protocol node all"));
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name));
        line.map(|line| line.trim_start_matches(':').trim().to_owned())
    };
    let path = value("BGP.as_path")?;
    let groups = |name| {
        let text = value(name).unwrap_or_default();
        let one = |it: &str| -> Vec<u32> {
            let numbers = it.split(',').map(|it| it.trim().trim_end_matches(')'));
            numbers.flat_map(str::parse).collect()
        };
        text.split('(').skip(1).map(one).collect::<Vec<_>>()
    };
    let communities = groups("BGP.community");
    let next_hop = value("BGP.next_hop").unwrap_or_default();
    Some(Seen {
        next_hop: next_hop
            .split_whitespace()
            .next()
            .and_then(|it| it.parse().ok()),
        local_preference: value("BGP.local_pref").and_then(|it| it.parse().ok()),
        path: path.split_whitespace().flat_map(str::parse).collect(),
        communities: communities
            .iter()
            .map(|it| (u16::try_from(it[0]).unwrap(), u16::try_from(it[1]).unwrap()))
            .collect(),
        large_communities: groups("BGP.large_community")
            .iter()
            .map(|it| (it[0], it[1], it[2]))
            .collect(),
    })
}
