//! `landfall get`: what a running instance holds, as kubectl would list it.

use std::collections::BTreeMap;
use std::io::Write as _;

use landfall_model::reason::{Code, Reason, Severity};
use landfall_model::status::ConditionType;
use landfall_model::view::{Health, InstanceView, ListenerView, ServiceView};
use serde_json::Value;

use crate::admin::client::Admin;
use crate::cli::{ClusterArgs, GetArgs, GetOutput, Kind};
use crate::cluster::Known;
use crate::{config, table};

mod routers;

/// Runs the command.
pub async fn run(args: GetArgs) -> anyhow::Result<()> {
    if args.kind != Kind::Services {
        return routers::run(&args).await;
    }
    let asked = AnswerSource::of(&args).await?;
    let text = match args.output {
        None | Some(GetOutput::Wide) => {
            let mut view = asked.view().await?;
            for problem in shortages(&view) {
                writeln!(std::io::stderr(), "Warning: {problem}")?;
            }
            if let Some(namespace) = &args.namespace {
                view.services
                    .retain(|service| service.key.namespace() == namespace);
            }
            if view.services.is_empty() {
                "no Services of type LoadBalancer".to_owned()
            } else {
                list(&view.services, args.output.is_some())
            }
        }
        Some(format) => {
            let mut services = asked.services().await?;
            if let (Some(namespace), Some(items)) = (
                &args.namespace,
                services.get_mut("items").and_then(Value::as_array_mut),
            ) {
                items.retain(|item| {
                    item.pointer("/metadata/namespace").and_then(Value::as_str) == Some(namespace)
                });
            }
            match format {
                GetOutput::Yaml => serde_saphyr::to_string(&services)?,
                GetOutput::Json | GetOutput::Wide => serde_json::to_string_pretty(&services)?,
            }
        }
    };
    writeln!(std::io::stdout(), "{}", text.trim_end())?;
    Ok(())
}

/// What the process is short of: it turns clients of any Service away.
fn shortages(view: &InstanceView) -> impl Iterator<Item = &Reason> {
    let problems = view.problems.iter();
    problems.filter(|problem| problem.code == Code::Overloaded)
}

/// The source of the answer.
enum AnswerSource {
    Instance(Box<Admin>),
    Cluster(ClusterArgs, Known),
}

// === impl AnswerSource ===

impl AnswerSource {
    async fn of(args: &GetArgs) -> anyhow::Result<Self> {
        if !args.cluster.is_meant() {
            return Ok(Self::Instance(Box::new(Admin::at(&args.instance))));
        }
        let config = config::read(args.config.as_deref()).await?;
        Ok(Self::Cluster(args.cluster.clone(), Known::outline(&config)))
    }

    async fn view(&self) -> anyhow::Result<InstanceView> {
        match self {
            Self::Instance(admin) => Ok(admin.get("/api/v1/instance").await?),
            Self::Cluster(cluster, known) => cluster.view(known).await,
        }
    }

    async fn services(&self) -> anyhow::Result<Value> {
        match self {
            Self::Instance(admin) => Ok(admin.get("/api/v1/services").await?),
            Self::Cluster(cluster, known) => cluster.services_json(known).await,
        }
    }
}

/// One line per Service.
pub fn list(services: &[ServiceView], wide: bool) -> String {
    let mut header = vec!["SERVICE", "ADDRESS", "PORTS", "HEALTHY", "STATE"];
    let refuses = services
        .iter()
        .any(|service| !all_refused(service).is_empty());
    if wide {
        header.extend(["ALGORITHM", "OPEN", "CONNECTIONS", "REASON"]);
        header.extend(refuses.then_some("REFUSED"));
    }
    let rows = services.iter().map(|service| {
        let mut row = vec![
            service.key.to_string(),
            address(service),
            ports(service),
            healthy(service),
            state(service).to_owned(),
        ];
        if wide {
            let listeners = &service.listeners;
            let algorithm = listeners
                .first()
                .map(|listener| listener.algorithm.to_string());
            let open: u64 = listeners.iter().map(|listener| listener.traffic.open).sum();
            let connections: u64 = listeners
                .iter()
                .map(|listener| listener.traffic.connections)
                .sum();
            row.extend([
                algorithm.unwrap_or_default(),
                open.to_string(),
                connections.to_string(),
                worst_reason(service),
            ]);
            row.extend(refuses.then(|| all_refused(service)));
        }
        row
    });
    table::render(&header, rows.collect())
}

/// How many members are healthy, of how many; `-` where nothing that was asked knows how any fares.
fn healthy(service: &ServiceView) -> String {
    let (healthy, total) = service.healthy_of_total();
    let mut members = service.listeners.iter().flat_map(|it| &it.members);
    if total > 0 && members.all(|it| it.health == Health::Unknown) {
        return "-".to_owned();
    }
    format!("{healthy}/{total}")
}

/// The addresses that clients use, or `<pending>`.
pub fn address(service: &ServiceView) -> String {
    let entries = &service.status.ingress;
    if entries.is_empty() {
        return "<pending>".to_owned();
    }
    let names = entries.iter().filter_map(|entry| {
        entry
            .hostname
            .clone()
            .or_else(|| entry.ip.map(|address| address.to_string()))
    });
    names.collect::<Vec<_>>().join(",")
}

/// Front ports as `80/TCP,53/UDP`.
pub fn ports(service: &ServiceView) -> String {
    let keys: Vec<_> = service
        .listeners
        .iter()
        .map(|listener| listener.key.to_string())
        .collect();
    if keys.is_empty() {
        "<none>".to_owned()
    } else {
        keys.join(",")
    }
}

/// One word for how far a Service is.
pub fn state(service: &ServiceView) -> &'static str {
    let met = |kind| {
        service
            .status
            .condition(kind)
            .is_some_and(|condition| condition.status)
    };
    if service.removing {
        "Deleting"
    } else if service.status.conditions.is_empty() {
        "Waiting"
    } else if !met(ConditionType::Accepted) {
        // An edit was refused, and the version before it is served.
        if met(ConditionType::Programmed) {
            "ServingPreviousVersion"
        } else {
            "Rejected"
        }
    } else if met(ConditionType::Programmed) {
        "Ready"
    } else if met(ConditionType::Addressed) {
        "NoTraffic"
    } else {
        "Pending"
    }
}

/// What a listener turned away, by reason; `None`: nothing.
pub fn refused(listener: &ListenerView) -> Option<String> {
    let refused = &listener.measured.as_ref()?.refused;
    (!refused.is_empty()).then(|| counts(refused))
}

/// Named counts as `3 no_member, 2 share`.
pub fn counts(named: &BTreeMap<String, u64>) -> String {
    let counts = named.iter().map(|(name, count)| format!("{count} {name}"));
    counts.collect::<Vec<_>>().join(", ")
}

/// What each listener of a Service turned away.
fn all_refused(service: &ServiceView) -> String {
    let listeners = service.listeners.iter();
    let refused = listeners.filter_map(|listener| {
        let reasons = refused(listener)?;
        Some(format!("{}: {reasons}", listener.key))
    });
    refused.collect::<Vec<_>>().join("; ")
}

fn worst_reason(service: &ServiceView) -> String {
    let reported = service.reasons.iter();
    // Of equally severe ones the first.
    let worst = reported
        .filter(|reason| reason.severity > Severity::Info)
        .rev()
        .max_by_key(|reason| reason.severity);
    worst
        .map(|reason| reason.code.to_string())
        .unwrap_or_default()
}
