//! `landfall explain`: one Service from spec to members, with every reason on the way.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use landfall_model::listener::{AllowedSources, Check, Monitor};
use landfall_model::reason::Reason;
use landfall_model::view::{ListenerView, MemberView, ServiceView};

use crate::admin::client::Admin;
use crate::cli::{ExplainArgs, TextOutput};
use crate::instances::Instances;
use crate::table;

use super::get;

/// Runs the command.
pub async fn run(args: ExplainArgs) -> anyhow::Result<()> {
    let view = if args.cluster.is_meant() {
        let instances = Instances::read(&args.instances).await?;
        let instances = instances.in_cluster_as(&args.instances);
        args.cluster.service(instances, &args.service).await?
    } else {
        let path = format!(
            "/api/v1/services/{}/{}",
            args.service.namespace(),
            args.service.name()
        );
        Admin::at(&args.instance).get(&path).await?
    };
    let text = match args.output {
        TextOutput::Text => explain(&view),
        TextOutput::Json => serde_json::to_string_pretty(&view)?,
    };
    writeln!(std::io::stdout(), "{}", text.trim_end())?;
    Ok(())
}

/// The whole story of one Service.
pub fn explain(service: &ServiceView) -> String {
    let mut text = format!("{}: {}\n", service.key, get::state(service));
    if let Some(origin) = &service.origin {
        let _ = writeln!(text, "  from {origin}");
    }
    spec(&mut text, service);
    addresses(&mut text, service);
    announcements(&mut text, service);
    for listener in &service.listeners {
        self::listener(&mut text, listener);
    }
    if !service.left_out.is_empty() {
        text.push_str("\nEndpoints left out\n");
        for endpoint in &service.left_out {
            let name = endpoint.name.as_deref().map(|name| format!(" ({name})"));
            let _ = writeln!(
                text,
                "  {}{}: {}",
                endpoint.endpoint,
                name.unwrap_or_default(),
                endpoint.reason.message
            );
        }
    }
    if !service.pending.is_empty() {
        text.push_str("\nPending steps\n");
        for step in &service.pending {
            let _ = writeln!(text, "  {} because {}", step.step, step.because);
        }
    }
    text
}

fn spec(text: &mut String, service: &ServiceView) {
    text.push_str("\nConditions\n");
    for condition in &service.status.conditions {
        let mark = if condition.status { "yes" } else { "NO " };
        let short = condition.kind.as_str().trim_start_matches("landfall.dev/");
        let _ = writeln!(
            text,
            "  {mark} {short}: {} ({})",
            condition.message, condition.reason
        );
    }
    for reason in &service.reasons {
        self::reason(text, reason);
    }
}

fn reason(text: &mut String, reason: &Reason) {
    let mut head = format!("  {} {}: ", reason.severity, reason.code);
    if let Some(origin) = &reason.origin {
        let _ = write!(head, "{origin}: ");
    }
    if let Some(field) = &reason.field {
        let _ = write!(head, "{field}: ");
    }
    if let Some(value) = &reason.value {
        let _ = write!(head, "{value:?}: ");
    }
    let _ = writeln!(text, "{head}{}", reason.message);
    if !reason.remedy.is_empty() {
        let _ = writeln!(text, "      {}", reason.remedy);
    }
}

fn addresses(text: &mut String, service: &ServiceView) {
    let _ = writeln!(text, "\nAddress\n  {}", get::address(service));
    let Some(spec) = &service.address else {
        return;
    };
    let families: Vec<_> = spec.families.iter().map(|family| family.as_str()).collect();
    let _ = writeln!(
        text,
        "  families: {} ({:?})",
        families.join(", "),
        spec.policy
    );
    if !spec.requested.is_empty() {
        let requested: Vec<_> = spec.requested.iter().map(ToString::to_string).collect();
        let _ = writeln!(
            text,
            "  requested: {} by {}",
            requested.join(", "),
            spec.requested_by
        );
    }
    if let Some(pool) = &spec.pool {
        let _ = writeln!(text, "  only from the pool {pool}");
    }
    if let Some(key) = &spec.sharing_key {
        let _ = writeln!(text, "  may be shared with Services of the key {key:?}");
    }
}

/// What each node does for each address, by each protocol.
fn announcements(text: &mut String, service: &ServiceView) {
    if service.announcements.is_empty() {
        return;
    }
    text.push_str("\nAnnounced\n");
    let rows = service.announcements.iter().map(|it| {
        let mark = if it.announced { "yes" } else { "NO" };
        let reason = it.reason.as_ref().map(|reason| format!(" ({reason})"));
        let reason = reason.unwrap_or_default();
        let dash = || "-".to_owned();
        vec![
            format!("  {mark}"),
            it.node.clone(),
            it.protocol.clone(),
            it.prefix.clone().unwrap_or_else(|| it.address.to_string()),
            it.peer.clone().unwrap_or_else(dash),
            format!("{}{reason}", it.message),
        ]
    });
    let header = ["  ", "NODE", "PROTOCOL", "ADDRESS", "PEER", "DETAIL"];
    let _ = writeln!(text, "{}", table::render(&header, rows.collect()));
}

fn listener(text: &mut String, listener: &ListenerView) {
    let name = match listener.name.as_str() {
        "" => String::new(),
        name => format!(" ({name})"),
    };
    let _ = writeln!(text, "\nListener {}{name}", listener.key);
    if let Some(problem) = &listener.problem {
        reason(text, problem);
    }
    let _ = writeln!(
        text,
        "  {} on {}; {} open, {} served, {} failed{}",
        listener.mode,
        listener
            .addresses
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", "),
        listener.traffic.open,
        listener.traffic.connections,
        listener.traffic.failed,
        get::refused(listener)
            .map(|reasons| format!(" ({reasons})"))
            .unwrap_or_default()
    );
    if let Some(measured) = &listener.measured {
        if !measured.local_failures.is_empty() {
            let causes = get::counts(&measured.local_failures);
            let _ = writeln!(text, "  failed on this machine: {causes}");
        }
        if measured.waiting > 0 {
            let waiting = measured.waiting;
            let _ = writeln!(text, "  {waiting} waiting for a member below its limit");
        }
    }
    if let AllowedSources::Only(prefixes) = &listener.allowed {
        let prefixes: Vec<_> = prefixes.iter().map(ToString::to_string).collect();
        let _ = writeln!(text, "  only clients from {}", prefixes.join(", "));
    }
    let _ = writeln!(text, "\n  Pool: {}", pool(listener));
    if listener.members.is_empty() {
        text.push_str("    no member\n");
        return;
    }
    let rows = listener.members.iter().map(member).collect();
    let header = [
        "    MEMBER",
        "NAME",
        "HEALTH",
        "WEIGHT",
        "OPEN",
        "SERVED",
        "DETAIL",
    ];
    let _ = writeln!(text, "{}", table::render(&header, rows));
}

fn pool(listener: &ListenerView) -> String {
    let mut text = listener.algorithm.to_string();
    if let Some(affinity) = listener.affinity {
        let _ = write!(
            text,
            ", a client keeps its member for {}",
            span(affinity.timeout)
        );
    }
    if let Some(version) = listener.proxy_protocol {
        let _ = write!(text, ", PROXY {version:?} to members");
    }
    match &listener.monitor {
        Some(monitor) => {
            let _ = write!(text, ", {}", self::monitor(monitor));
        }
        None => text.push_str(", members are not checked"),
    }
    text
}

fn monitor(monitor: &Monitor) -> String {
    let what = match &monitor.check {
        Check::Tcp => "TCP connect".to_owned(),
        Check::Http {
            method,
            path,
            codes,
        } => {
            let scheme = if monitor.tls { "HTTPS" } else { "HTTP" };
            let host = monitor.host.as_ref();
            let host = host.map_or_else(String::new, |host| format!(" of {host}"));
            let body = monitor.body.as_ref();
            let body = body.map_or_else(String::new, |body| format!(" and {body:?} in the body"));
            let method = method.as_str();
            format!("{scheme} {method} {path}{host}, expects {codes}{body}")
        }
        Check::Grpc { service } if service.is_empty() => "gRPC health".to_owned(),
        Check::Grpc { service } => format!("gRPC health of {service}"),
        Check::UdpConnect => "UDP datagram".to_owned(),
    };
    format!(
        "checked every {} by {what}; up after {} successful, down after {} failed",
        span(monitor.delay),
        monitor.max_retries,
        monitor.max_retries_down
    )
}

fn member(member: &MemberView) -> Vec<String> {
    let backup = if member.backup { " (backup)" } else { "" };
    vec![
        format!("    {}", member.address),
        member.name.clone().unwrap_or_default(),
        member.health.as_str().to_owned(),
        format!("{}{backup}", member.weight),
        member.traffic.open.to_string(),
        member.traffic.connections.to_string(),
        member.detail.clone(),
    ]
}

fn span(duration: Duration) -> String {
    format!("{duration:?}")
}

#[cfg(test)]
mod tests {
    use landfall_model::status::ServiceStatus;
    use landfall_model::view::AnnouncementView;
    use landfall_model::{ServiceKey, Uid};

    use super::*;

    #[test]
    fn each_node_and_router_has_a_line_with_what_is_announced_and_why_not() {
        let said =
            |node: &str, peer: Option<&str>, announced, reason: Option<&str>| AnnouncementView {
                node: node.to_owned(),
                protocol: "bgp".to_owned(),
                address: [192, 0, 2, 1].into(),
                prefix: peer.map(|_| "192.0.2.0/24".to_owned()),
                peer: peer.map(str::to_owned),
                announced,
                reason: reason.map(str::to_owned),
                message: "in words".to_owned(),
            };
        let service = ServiceView {
            key: ServiceKey::new("shop", "web"),
            uid: Uid::new("1"),
            class: None,
            origin: None,
            status: ServiceStatus::default(),
            reasons: Vec::new(),
            address: None,
            announcements: vec![
                said("node-1", Some("tor"), true, None),
                said("node-2", None, false, Some("noLocalEndpoints")),
            ],
            listeners: Vec::new(),
            left_out: Vec::new(),
            pending: Vec::new(),
            removing: false,
        };
        let text = explain(&service);
        let line = |node: &str| text.lines().find(|it| it.contains(node)).unwrap();
        let first = line("node-1");
        assert!(
            first.contains("yes") && first.contains("192.0.2.0/24"),
            "{text}"
        );
        assert!(first.contains("tor"), "{text}");
        let second = line("node-2");
        assert!(
            second.contains("NO") && second.contains("(noLocalEndpoints)"),
            "{text}"
        );
    }
}
