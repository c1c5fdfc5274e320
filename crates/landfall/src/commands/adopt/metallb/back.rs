//! `landfall adopt metallb --back`: Services as MetalLB left them, so that it goes on from there.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use landfall_files::Loaded;
use landfall_kube::KubeReports;
use landfall_l2::election::Rules;
use landfall_model::ServiceKey;
use landfall_model::dialect::metallb::ALLOCATED_FROM_POOL;
use landfall_model::rows::ServiceRow;
use landfall_model::status::{
    ConditionType, HELD_ADDRESSES, IngressAddress, IpMode, ServiceStatus,
};
use landfall_speaker::comparison::Electorate;
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::obstacles::{self, Obstacle};
use super::survey::instance_of;
use super::{Scene, Turn, refuse};
use crate::cli::{AdoptMetalLbArgs, ChosenArgs, TextOutput};
use crate::dry_run;
use crate::text::counted;

/// What is given back.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct GiveBack {
    /// What has to change before.
    first: Vec<Obstacle>,
    services: Vec<Given>,
    /// What is to be done afterwards.
    next: Vec<Obstacle>,
}

/// A Service that is given back.
#[derive(Debug, Serialize)]
struct Given {
    service: ServiceKey,
    addresses: Vec<IpAddr>,
    #[serde(skip)]
    row: Arc<ServiceRow>,
}

/// Shows what would be given back and, with `--apply`, gives it back.
pub async fn run(args: &AdoptMetalLbArgs, scene: Scene, loaded: Loaded) -> anyhow::Result<bool> {
    let given = survey(&scene, loaded);
    let text = match args.output {
        TextOutput::Text => describe(&given),
        TextOutput::Json => serde_json::to_string_pretty(&given)?,
    };
    writeln!(std::io::stdout(), "{}", text.trim_end())?;
    let is_sound = given.first.iter().all(|it| !it.blocks);
    if !args.apply {
        return Ok(is_sound);
    }
    refuse(given.first.iter().filter(|it| it.blocks))?;
    let chosen = ChosenArgs::default();
    let turn = Turn {
        cluster: &args.cluster,
        lease: &args.lease,
        output: args.output,
        chosen: &chosen,
        condition: ConditionType::Addressed,
        held: "stop Landfall's controllers: kubectl -n landfall-system scale deployment landfall \
               --replicas=0",
    };
    let holder = turn.begin().await?;
    let (tasks, cancel) = (TaskTracker::new(), CancellationToken::new());
    let reports = KubeReports::new(
        holder.connection.clone(),
        holder.election.guard(),
        &holder.identity,
        &tasks,
        &cancel,
    );
    let mut failed = 0;
    for Given { service, row, .. } in &given.services {
        if let Err(error) = reports.hand_back(row, &left(row)).await {
            failed += 1;
            writeln!(std::io::stderr(), "{service} is not given back: {error}")?;
        }
    }
    cancel.cancel();
    tasks.close();
    tasks.wait().await;
    holder.end().await;
    writeln!(
        std::io::stderr(),
        "{} of {} given back",
        given.services.len() - failed,
        counted(given.services.len(), "Service")
    )?;
    Ok(failed == 0)
}

fn survey(scene: &Scene, loaded: Loaded) -> GiveBack {
    let (world, providers) = dry_run::recalled(&scene.instances, loaded.facts);
    let classes = scene.instances.classes();
    let ours = world.services().filter(|row| is_ours(row));
    let rows = ours.filter(|row| instance_of(row, &world, &classes, &providers).is_some());
    let rows: Vec<Arc<ServiceRow>> = rows.collect();
    let electorate = Electorate::new(&world, None, Rules::default());
    let given = rows.iter().map(|row| Given {
        service: row.key.clone(),
        addresses: left(row).addresses().collect(),
        row: row.clone(),
    });
    GiveBack {
        first: obstacles::back(&rows, &electorate, &world),
        services: given.collect(),
        next: obstacles::start_again(&scene.installed),
    }
}

/// Whether anything of ours is on a Service. The finalizer alone may be another controller's.
fn is_ours(row: &ServiceRow) -> bool {
    !row.status.conditions.is_empty() || row.recorded.is_some()
}

/// Returns what stays in the status: addresses and the note of the pool, as MetalLB writes them.
fn left(row: &ServiceRow) -> ServiceStatus {
    let mut ingress = row.status.ingress.clone();
    if let Some(held) = row.status.marks.get(HELD_ADDRESSES) {
        let held = held.split(',').filter_map(|text| text.trim().parse().ok());
        let entry = |address: IpAddr| IngressAddress {
            ip: Some(address),
            ip_mode: Some(IpMode::Vip),
            ..IngressAddress::default()
        };
        ingress = held.map(entry).collect();
    }
    let marks = row.status.marks.iter();
    let marks = marks.filter(|(key, _)| *key == ALLOCATED_FROM_POOL);
    ServiceStatus {
        ingress,
        marks: marks
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
        ..ServiceStatus::default()
    }
}

fn describe(given: &GiveBack) -> String {
    let mut text = String::new();
    for Given {
        service, addresses, ..
    } in &given.services
    {
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let keeps = if addresses.is_empty() {
            "no address".to_owned()
        } else {
            addresses.join(", ")
        };
        let _ = writeln!(
            text,
            "{service}\n  keeps {keeps}, without finalizer and conditions"
        );
    }
    for (title, all) in [
        ("first:", &given.first),
        (
            "then landfall adopt metallb --back --apply, and afterwards:",
            &given.next,
        ),
    ] {
        if !all.is_empty() {
            let _ = writeln!(text, "{title}");
        }
        for Obstacle { what, remedy, .. } in all {
            let _ = writeln!(text, "  {what}\n      {remedy}");
        }
    }
    let count = counted(given.services.len(), "Service");
    let _ = writeln!(text, "{count} to give back, with one write each");
    text
}

#[cfg(test)]
mod tests {
    use landfall_model::status::INSTANCE;
    use landfall_testkit::svc;

    use super::*;

    #[test]
    fn addresses_and_the_name_of_the_pool_stay_and_nothing_else() {
        let row = svc("web").holding("192.0.2.1").with(|row| {
            let marks = [(ALLOCATED_FROM_POOL, "lan"), (INSTANCE, "metal")];
            let marks = marks.map(|(key, value)| (key.to_owned(), value.to_owned()));
            row.status.marks = marks.into();
        });
        let row = row.row();
        let left = left(&row);
        assert_eq!(left.ingress, row.status.ingress);
        assert_eq!(left.marks.len(), 1);
        assert_eq!(left.marks[ALLOCATED_FROM_POOL], "lan");
        assert!(left.conditions.is_empty());
    }

    #[test]
    fn an_address_behind_a_name_is_published_again() {
        let row = svc("web").with(|row| {
            row.status.ingress = vec![IngressAddress {
                hostname: Some("web.example.com".to_owned()),
                ..IngressAddress::default()
            }];
            let held = "192.0.2.1,2001:db8::1".to_owned();
            row.status.marks = [(HELD_ADDRESSES.to_owned(), held)].into();
        });
        let addresses: Vec<String> = left(&row.row())
            .addresses()
            .map(|it| it.to_string())
            .collect();
        assert_eq!(addresses, ["192.0.2.1", "2001:db8::1"]);
    }

    #[test]
    fn a_service_that_another_controller_holds_is_not_ours() {
        assert!(!is_ours(&svc("web").with(|row| row.finalized = true).row()));
    }
}
