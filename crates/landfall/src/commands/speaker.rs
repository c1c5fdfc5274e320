//! `landfall speaker`: announces addresses of a cluster from one node.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use landfall_kube::{Connection, CustomResources, OwnReports, SourceConfig, Sources};
use landfall_l2::driver::{Announcer, Config as AnnouncerConfig, Report};
use landfall_l2::election::Rules;
use landfall_l2::interfaces::{CONTAINER_NETWORKS, Exclusions};
use landfall_membership::driver::{Config as MembershipConfig, Membership, View, Wanted};
use landfall_membership::machine::Settings;
use landfall_membership::seal::Keys;
use landfall_model::rows::{Fact, ResourceKind};
use landfall_speaker::decide::{Decider, RESOURCES};
use landfall_speaker::task::{Parts, Speaker};
use landfall_web::token::TokenFile;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::admin::speaker::SpeakerApi;
use crate::assembly::{facts, watched};
use crate::cli::{MembershipWay, SpeakerArgs};
use crate::config;
use crate::lifetime::Lifetime;
use crate::signals::Stop;
use crate::{panics, unused_memory};

mod health;
mod keys;
mod leases;
mod peers;
mod plane;
mod reporting;

/// How long a stop may take: what is served here is served by other nodes then.
const GRACE: Duration = Duration::from_secs(2);

/// Runs the command.
pub async fn run(args: SpeakerArgs) -> anyhow::Result<()> {
    let stop = Stop::watch(GRACE)?;
    let config = config::read(args.config.as_deref()).await?;
    let namespace = args.metallb_namespace.clone();
    let namespace = namespace.unwrap_or_else(|| config.metallb_namespace().to_owned());
    let (keys, secret) = keys::read(&args.membership_key_file).await?;
    let exclusions = exclusions(&args.exclude_interface)?;
    let admin = TcpListener::bind(args.admin)
        .await
        .with_context(|| format!("opening the admin endpoint at {}", args.admin))?;
    let connection = connect(&args).await?;

    panics::end_of_process(stop.failed().clone());
    // Each ends by itself, in the order of a stop.
    let (members, announcing, others) = <(Lifetime, Lifetime, Lifetime)>::default();
    let (announcer, reports) = announce(&exclusions, &announcing)?;
    let mut decider = decider(&args)?;
    let mut prepared = None;
    if let Some(plane) = plane::of(&config, &args) {
        decider = decider.serving(plane);
        prepared = Some(plane::prepare(&args, &config, &secret).await?);
    }
    let healthy = health::follow(args.data_plane_health.clone(), &others);
    let healthy = stop.unless_asked(healthy).await.flatten();
    let membership = join(&args, &connection, keys.clone(), &decider, &members).await?;
    let keys = keys::follow(args.membership_key_file.clone(), keys, membership.clone());
    others
        .tasks
        .spawn(others.cancel.clone().run_until_cancelled_owned(keys));

    let (facts, sources) = follow(&connection, &namespace, args.admin, &others).await?;
    let Lifetime { tasks, cancel } = &others;
    let reporter = own_reports(&connection, &args.node_name, &others);
    let parts = Parts {
        node: args.node_name.as_str().into(),
        facts,
        membership: membership.clone(),
        port: args.membership_port,
        announcer,
        reports,
        exclusions,
        reporter: Arc::clone(&reporter),
    };
    let (speaker, outputs) = Speaker::new(parts, decider);
    let (carrying, of_reporter) = (Lifetime::default(), Arc::clone(&reporter));
    let running = prepared.map(|it| it.run(&outputs, of_reporter, &carrying));
    let served = running.as_ref().map(|it| it.seen.view.clone());
    let speaker = speaker.beside(served).while_healthy(healthy);
    let sessions = peers::start(&connection, &args, &outputs, &reporter, &others);
    tasks.spawn(watched(speaker.run(cancel.clone()), stop.failed().clone()));
    let reporting = reporting::Reporting {
        connection,
        reporter,
        namespace,
        sessions: Arc::clone(&sessions),
    };
    reporting.start(&args.node_name, &outputs, &others);
    let (health, of_api) = (sources.health(), Arc::clone(&sessions));
    let api = SpeakerApi::new(&outputs, health, membership, of_api, &args.node_name);
    let api = api.serving(running.as_ref().map(|it| it.seen.clone()));
    let drain = args.drain_time;
    let (options, api) = (web_options(args), Arc::new(api));
    tasks.spawn(landfall_web::serve(admin, api, options, cancel.clone()));
    tasks.spawn(unused_memory::give_back(cancel.clone()));

    let outcome = end_of(&stop).await;
    // Routers go over to others first, while everything here goes on.
    sessions.end(drain).await;
    // The others take over before this node is silent: what still arrives here is forwarded.
    members.end().await;
    announcing.end().await;
    if let Some(running) = running {
        running.end().await;
    }
    others.end().await;
    outcome
}

/// Starts to announce: nothing yet.
fn announce(
    exclusions: &Exclusions,
    lifetime: &Lifetime,
) -> anyhow::Result<(Announcer, mpsc::Receiver<Report>)> {
    let config = AnnouncerConfig {
        exclusions: exclusions.clone(),
        ..AnnouncerConfig::default()
    };
    Announcer::start(config, &lifetime.tasks, lifetime.cancel.clone()).context(
        "starting to announce; if the program may not have the capability, the image has lost the \
         attributes of its files (docs/bare-metal.md, Installing)",
    )
}

fn own_reports(connection: &Connection, node: &str, lifetime: &Lifetime) -> Arc<OwnReports> {
    let Lifetime { tasks, cancel } = lifetime;
    let connection = connection.clone();
    let reports = OwnReports::new(connection, "landfall.dev/speaker", node, tasks, cancel);
    Arc::new(reports)
}

/// Follows the cluster, and this machine where its admin endpoint answers at all addresses: none of
/// these may be a member at its port.
async fn follow(
    connection: &Connection,
    namespace: &str,
    admin: SocketAddr,
    lifetime: &Lifetime,
) -> anyhow::Result<(mpsc::Receiver<Fact>, Sources)> {
    let mut sources = None;
    let everywhere = admin.ip().is_unspecified();
    let source = |facts_to, Lifetime { tasks, cancel }: &Lifetime| {
        let source = source_config(namespace);
        let started = Sources::start(connection, source, facts_to, None, tasks, cancel);
        sources = Some(started);
    };
    let facts = facts::start(lifetime, Vec::new(), everywhere, None, source).await;
    Ok((facts, sources.context("no source was started")?))
}

fn web_options(args: SpeakerArgs) -> landfall_web::Options {
    landfall_web::Options {
        names: landfall_web::guard::Names::new(args.admin_name),
        token: args.admin_token_file.map(TokenFile::new),
    }
}

/// Waits until a signal asks for a stop, or the loop has ended by itself, or anything has panicked.
async fn end_of(stop: &Stop) -> anyhow::Result<()> {
    tokio::select! {
        () = stop.asked() => Ok(()),
        () = stop.failed().cancelled() => Err(anyhow::anyhow!(
            "a part of the speaker ended unexpectedly; this is a bug, see the log"
        )),
    }
}

async fn connect(args: &SpeakerArgs) -> anyhow::Result<Connection> {
    let agent = format!(
        "landfall-speaker/{} ({})",
        env!("CARGO_PKG_VERSION"),
        args.node_name
    );
    Connection::begin(args.cluster.origin(), &agent)
        .await
        .context("connecting to the cluster")
}

fn source_config(namespace: &str) -> SourceConfig {
    let kinds = RESOURCES.iter().copied();
    SourceConfig {
        resources: CustomResources {
            namespace: namespace.to_owned(),
            kinds: kinds.chain([ResourceKind::IpAddressPool]).collect(),
        },
        // A speaker that knew too little would be elected by the others, and be silent.
        needs_access: true,
        ..SourceConfig::default()
    }
}

fn decider(args: &SpeakerArgs) -> anyhow::Result<Decider> {
    let mut session = [0; 8];
    aws_lc_rs::rand::fill(&mut session)
        .map_err(|_| anyhow::anyhow!("the system gives no random numbers"))?;
    let rules = Rules {
        ignore_exclude_label: args.ignore_exclude_lb,
        must_be_able_to_serve: args.require_able_nodes,
    };
    let session = u64::from_be_bytes(session);
    let decider = Decider::new(&args.node_name, session, rules).at(args.node_address);
    let decider = match args.membership {
        MembershipWay::Nodes => decider.assuming_all_alive(),
        MembershipWay::Udp | MembershipWay::Lease => decider,
    };
    Ok(if args.ignore_cordon {
        decider.ignoring_cordon()
    } else {
        decider
    })
}

async fn join(
    args: &SpeakerArgs,
    connection: &Connection,
    keys: Keys,
    decider: &Decider,
    lifetime: &Lifetime,
) -> anyhow::Result<Membership> {
    let address = SocketAddr::new(args.node_address, args.membership_port);
    let config = MembershipConfig {
        name: args.node_name.as_str().into(),
        bind: address,
        address,
        settings: Settings::default(),
    };
    let wanted = Wanted {
        keys,
        seeds: BTreeMap::new(),
        metadata: decider.metadata().encode().into(),
    };
    let Lifetime { tasks, cancel } = lifetime;
    Ok(match args.membership {
        MembershipWay::Udp => Membership::start(config, wanted, tasks, cancel.clone()).await?,
        MembershipWay::Lease => {
            let (node, duration) = (&args.node_name, args.lease_duration);
            leases::join(connection, node, duration, wanted, lifetime).await
        }
        MembershipWay::Nodes => {
            let (membership, feed) = Membership::fed(wanted, View::default(), address);
            let cancel = cancel.clone();
            tasks.spawn(async move {
                cancel.cancelled().await;
                drop(feed);
            });
            membership
        }
    })
}

fn exclusions(patterns: &[String]) -> anyhow::Result<Exclusions> {
    let exclusions = if patterns.is_empty() {
        Exclusions::new(CONTAINER_NETWORKS)
    } else {
        Exclusions::new(patterns)
    };
    exclusions.context("--exclude-interface")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_of_container_networks_are_excluded_unless_others_are_named() {
        let usual = exclusions(&[]).unwrap();
        assert!(usual.matches("lo") && usual.matches("veth12") && !usual.matches("eth0"));
        let own = exclusions(&["^eth1$".to_owned()]).unwrap();
        assert!(own.matches("eth1") && !own.matches("veth12"));
        assert!(exclusions(&["(".to_owned()]).is_err());
    }
}
