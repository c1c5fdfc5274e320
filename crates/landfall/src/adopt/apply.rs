//! `landfall adopt --apply`: a controller that runs until it has taken over.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context as _;
use landfall_kube::lease::{Election, LeaseConfig, identity};
use landfall_kube::{Connection, access};
use landfall_model::ServiceKey;
use landfall_model::rows::Fact;
use landfall_model::status::{ConditionType, ServiceStatus};
use landfall_model::view::InstanceView;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::cli::{AdoptArgs, ClusterArgs, TextOutput};
use crate::controller;
use crate::fleet::Fleet;
use crate::instance::{Instance, Options};
use crate::platform::Platform;

/// How long the Lease of a controller that is gone may still be held.
const ELECTED_WITHIN: Duration = Duration::from_secs(60);
/// From one look at what the API server has to the next.
const LOOK: Duration = Duration::from_secs(1);

/// Takes over `keys`; says whether that is done.
pub(super) async fn run(
    args: &AdoptArgs,
    fleet: Fleet,
    keys: Vec<ServiceKey>,
) -> anyhow::Result<bool> {
    let here = |platform: &Platform| matches!(platform, Platform::Local(_));
    anyhow::ensure!(
        !fleet.sandboxes().iter().any(here),
        "--apply would begin to serve Services on this machine, too, for which landfall.yaml has an instance; \
         start landfall controller where it is to run"
    );
    let identity = identity("landfall-adopt");
    let agent = format!("landfall/{} ({identity})", env!("CARGO_PKG_VERSION"));
    let connection = Connection::new(args.cluster.origin(), &agent)
        .await
        .context("connecting to the cluster")?;
    let namespace = args.namespace.as_deref();
    let namespace = namespace.unwrap_or(connection.namespace()).to_owned();
    let rights = [
        access::to_watch(),
        access::to_report(),
        access::to_elect(&namespace, &args.lease_name),
    ];
    let missing = access::missing(&connection, rights.concat()).await?;
    let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
    anyhow::ensure!(
        missing.is_empty(),
        "this identity may not: {}",
        missing.join(", ")
    );
    let tasks = TaskTracker::new();
    let lease = LeaseConfig {
        name: args.lease_name.clone(),
        ..LeaseConfig::new(&namespace, &identity)
    };
    let election = Election::start(connection.clone(), lease, &tasks);
    let done = match elected(&election).await {
        Ok(()) => take_over(args, fleet, connection, &identity, &election, &keys).await,
        Err(error) => Err(error.context(format!(
            "the Lease {} in {namespace} could not be had; a controller of Landfall that holds it takes over \
             by itself",
            args.lease_name
        ))),
    };
    election.release().await;
    tasks.close();
    tasks.wait().await;
    done
}

async fn elected(election: &Election) -> anyhow::Result<()> {
    let mut leading = election.leading();
    let leads = leading.wait_for(|leads| *leads);
    tokio::time::timeout(ELECTED_WITHIN, leads).await??;
    Ok(())
}

async fn take_over(
    args: &AdoptArgs,
    fleet: Fleet,
    connection: Connection,
    identity: &str,
    election: &Election,
    keys: &[ServiceKey],
) -> anyhow::Result<bool> {
    let options = Options {
        fleet,
        pools: Vec::new(),
        fallback_pool: false,
        admin: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        admin_names: Vec::new(),
        workers: None,
    };
    let (guard, leading) = (election.guard(), election.leading());
    let instance =
        controller::on_cluster(options, connection, identity, guard, Some(leading)).await?;
    let deadline = Instant::now() + Duration::from_secs(args.timeout);
    let outcome = follow(args, &instance, keys, deadline).await;
    instance.stop(Duration::ZERO).await;
    outcome
}

/// Waits until everything is done here and written there, or time is up; says what came of it.
async fn follow(
    args: &AdoptArgs,
    instance: &Instance,
    keys: &[ServiceKey],
    deadline: Instant,
) -> anyhow::Result<bool> {
    let left = deadline.saturating_duration_since(Instant::now());
    // A failure is that time is up, which the picture after it shows.
    let _ = instance
        .wait_until(left, |view| keys.iter().all(|key| is_done(view, key)))
        .await;
    let mut unwritten = unwritten(&args.cluster, keys).await?;
    while !unwritten.is_empty() && Instant::now() < deadline {
        tokio::time::sleep(LOOK).await;
        unwritten = self::unwritten(&args.cluster, keys).await?;
    }
    let view = instance.wait_until(LOOK, |_| true).await?;
    // Standard output is one JSON document, where it is JSON.
    let mut out: Box<dyn Write + Send> = match args.output {
        TextOutput::Text => Box::new(std::io::stdout()),
        TextOutput::Json => Box::new(std::io::stderr()),
    };
    for key in &unwritten {
        writeln!(out, "{key} is not taken over yet")?;
        let service = view.services.iter().find(|it| it.key == *key);
        for reason in service.iter().flat_map(|it| &it.reasons) {
            writeln!(out, "  {}: {reason}", reason.severity)?;
        }
    }
    let taken = keys.len() - unwritten.len();
    writeln!(
        out,
        "{taken} of {} Services are taken over; start landfall controller with the same options now",
        keys.len()
    )?;
    Ok(unwritten.is_empty())
}

/// Nothing is left to do for a Service, or it is gone.
fn is_done(view: &InstanceView, key: &ServiceKey) -> bool {
    let mut services = view.services.iter();
    let service = services.find(|it| it.key == *key);
    view.ready && service.is_none_or(|it| it.pending.is_empty() && is_programmed(&it.status))
}

fn is_programmed(status: &ServiceStatus) -> bool {
    status
        .condition(ConditionType::Programmed)
        .is_some_and(|it| it.status)
}

/// Those of which the API server does not say yet that they are ours.
async fn unwritten(cluster: &ClusterArgs, keys: &[ServiceKey]) -> anyhow::Result<Vec<ServiceKey>> {
    let loaded = cluster.load().await?;
    let rows = loaded.facts.iter().filter_map(|fact| match fact {
        Fact::Service(row) if !is_programmed(&row.status) => Some(&row.key),
        _ => None,
    });
    Ok(rows.filter(|key| keys.contains(key)).cloned().collect())
}
