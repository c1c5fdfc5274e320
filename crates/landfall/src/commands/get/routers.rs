//! `landfall get peers` and `landfall get routes`: what a running speaker does with routers.

use std::io::Write as _;

use anyhow::bail;
use landfall_model::reason::Code;
use landfall_model::view::{InstanceView, PeerView, RouteView};
use serde::Serialize;

use crate::admin::client::Admin;
use crate::cli::{GetArgs, GetOutput, Kind};
use crate::table;

/// Why there may be nothing to show, beside that there is nothing.
const NO_SPEAKER: &str = "what answers is no speaker: name one by --admin";

/// Runs the command.
pub async fn run(args: &GetArgs) -> anyhow::Result<()> {
    if args.cluster.is_meant() {
        bail!(
            "sessions are known to speakers only: ask one of them with --admin, at {} of its node",
            crate::cli::DEFAULT_SPEAKER_ADMIN
        );
    }
    let view: InstanceView = Admin::at(&args.instance).get("/api/v1/instance").await?;
    let mut routes = view.routes;
    if let Some(namespace) = &args.namespace {
        let is_in = |it: &RouteView| it.services.iter().any(|key| key.namespace() == namespace);
        routes.retain(is_in);
    }
    let wide = args.output == Some(GetOutput::Wide);
    let text = match (args.output, args.kind) {
        (None | Some(GetOutput::Wide), Kind::Routes) => list_routes(&routes),
        (None | Some(GetOutput::Wide), _) => {
            let invalid = view.problems.iter();
            let invalid = invalid.filter(|it| it.code == Code::InvalidResource);
            let mut parts = vec![list_peers(&view.peers, wide)];
            parts.extend(invalid.map(ToString::to_string));
            parts.join("\n")
        }
        (Some(format), Kind::Routes) => rendered(format, &routes)?,
        (Some(format), _) => rendered(format, &view.peers)?,
    };
    writeln!(std::io::stdout(), "{}", text.trim_end())?;
    Ok(())
}

fn rendered<T: Serialize>(format: GetOutput, items: &[T]) -> anyhow::Result<String> {
    Ok(match format {
        GetOutput::Yaml => serde_saphyr::to_string(&items)?,
        GetOutput::Json | GetOutput::Wide => serde_json::to_string_pretty(items)?,
    })
}

/// One line per router, and a line below for what is wrong.
fn list_peers(peers: &[PeerView], wide: bool) -> String {
    if peers.is_empty() {
        return format!("no BGPPeer is for this node, or {NO_SPEAKER}");
    }
    let mut header = vec![
        "PEER", "NODE", "ADDRESS", "AS", "STATE", "FOR", "SENT", "RECEIVED", "BFD",
    ];
    if wide {
        header.extend(["LOCAL ADDRESS", "LOCAL AS", "UPDATES", "KEEPALIVES"]);
    }
    let rows = peers.iter().map(|peer| {
        let bfd = peer.bfd.as_ref().map_or("-", |bfd| bfd.state.as_str());
        let mut row = vec![
            peer.name.clone(),
            peer.node.clone(),
            format!("{}:{}", peer.address, peer.port),
            peer.remote_asn.clone(),
            peer.state.clone(),
            format!("{}s", peer.state_seconds),
            format!("{}/{}", peer.prefixes_sent, peer.prefixes_wanted),
            peer.prefixes_received.to_string(),
            bfd.to_owned(),
        ];
        if wide {
            let local = peer.local_address.map(|address| address.to_string());
            let messages = &peer.messages;
            row.extend([
                local.unwrap_or_default(),
                peer.local_asn.to_string(),
                format!("{}/{}", messages.updates_sent, messages.updates_received),
                format!(
                    "{}/{}",
                    messages.keepalives_sent, messages.keepalives_received
                ),
            ]);
        }
        row
    });
    let mut text = table::render(&header, rows.collect());
    for problem in peers.iter().filter_map(|peer| peer.problem.as_ref()) {
        text.push('\n');
        text.push_str(&problem.to_string());
    }
    text
}

fn list_routes(routes: &[RouteView]) -> String {
    if routes.is_empty() {
        return format!("no prefix is announced to a router, or {NO_SPEAKER}");
    }
    let header = [
        "PREFIX",
        "NODE",
        "PEER",
        "STATE",
        "LOCALPREF",
        "COMMUNITIES",
        "SERVICES",
    ];
    let rows = routes.iter().map(|route| {
        let state = if route.established {
            "Sent"
        } else {
            "NoSession"
        };
        let preference = route.local_preference.map(|it| it.to_string());
        let services: Vec<String> = route.services.iter().map(ToString::to_string).collect();
        vec![
            route.prefix.clone(),
            route.node.clone(),
            route.peer.clone(),
            state.to_owned(),
            preference.unwrap_or_else(|| "-".to_owned()),
            route.communities.join(","),
            services.join(","),
        ]
    });
    table::render(&header, rows.collect())
}

#[cfg(test)]
mod tests {
    use landfall_model::ServiceKey;
    use landfall_model::reason::{Code, Reason};

    use super::*;

    #[test]
    fn a_session_that_is_down_is_listed_with_what_can_be_done() {
        let problem = Reason::warning(Code::NotAnnounced, "BGPPeer tor: no session")
            .remedy("start BGP on the router");
        let peer = PeerView {
            name: "tor".to_owned(),
            node: "n1".to_owned(),
            address: "192.0.2.1".to_owned(),
            port: 179,
            remote_asn: "64500".to_owned(),
            state: "Idle".to_owned(),
            prefixes_wanted: 2,
            problem: Some(problem),
            ..PeerView::default()
        };
        let text = list_peers(&[peer], false);
        let mut lines = text.lines().skip(1);
        let row = lines.next().unwrap();
        assert!(
            row.contains("192.0.2.1:179") && row.contains("0/2"),
            "{text}"
        );
        assert!(
            lines.next().unwrap().contains("start BGP on the router"),
            "{text}"
        );
    }

    #[test]
    fn a_route_is_listed_with_its_communities_and_services() {
        let route = RouteView {
            prefix: "192.0.2.1/32".to_owned(),
            peer: "tor".to_owned(),
            established: true,
            communities: vec!["64500:1".to_owned(), "large:64500:1:2".to_owned()],
            services: vec![ServiceKey::new("shop", "web")],
            ..RouteView::default()
        };
        let text = list_routes(&[route]);
        for part in [
            "192.0.2.1/32",
            "Sent",
            "64500:1,large:64500:1:2",
            "shop/web",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}
