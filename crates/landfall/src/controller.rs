//! `landfall controller`, and `landfall up` beside a cluster: facts from the API server, reports to
//! it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use landfall_engine::leadership::{Role, Times};
use landfall_engine::metrics::Metrics;
use landfall_kube::lease::{Election, LeaseConfig, WriteGuard, identity};
use landfall_kube::{Connection, Health, KubeReports, Origin, SourceConfig, Sources, access};
use landfall_model::reason::{Code, Reason};
use landfall_model::rows::Fact;
use landfall_model::view::SecretsView;
use landfall_web::token::TokenFile;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cli::{ControllerArgs, LeaseArgs, ServeClusterArgs};
use crate::fleet::Fleet;
use crate::instance::{Ground, Instance, Lead, Lifetime, Options, descriptors};
use crate::served::{Carried, Memory};
use crate::signals::Stop;

mod carry;
mod turns;

use carry::Ends;
use turns::take_turns;

/// From one giving back of unused memory to the next, in the long run. It takes about a
/// millisecond.
const GIVE_BACK_EVERY: Duration = Duration::from_secs(60);

/// Runs the command.
pub async fn run(args: ControllerArgs) -> anyhow::Result<()> {
    let grace = args.run.grace();
    let times = args.lease.times()?;
    // First, so that no signal of these ends the process while it waits for credentials.
    let stop = Stop::watch(grace)?;
    let mut options = Options {
        fleet: Fleet::read(&args.instances).await?.in_cluster(),
        pools: Vec::new(),
        fallback_pool: false,
        admin: args.admin,
        workers: args.run.threads(),
        access_log: args.run.access_log.clone(),
        admin_token: args.run.admin_token_file.map(TokenFile::new),
        admin_names: args.run.admin_name,
    };
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "landfall".to_owned());
    let identity = identity(&host);
    let connecting = stop.unless_asked(connect(&args.cluster, &identity));
    let Some(connection) = connecting.await.transpose()? else {
        return Ok(());
    };
    let origin = args.cluster.origin();
    let namespace = args
        .namespace
        .unwrap_or_else(|| connection.namespace().to_owned());
    let mut rights = [access::to_watch(), access::to_report()].concat();
    if args.leader_elect {
        rights.extend(access::to_elect(&namespace, &args.lease_name));
    }
    let lease = format!("{namespace}/{}", args.lease_name);
    let memory = args.state.filter(|_| options.fleet.serves_here());
    let memory = memory.map(|folder| Memory::new(&folder, &connection, &options.fleet, &lease));
    // What is to be known of the cluster before anything of it is written.
    let prepare = || async {
        judge_rights(&connection, rights.clone()).await?;
        let mut fleet = options.fleet.clone();
        fleet.learn_cluster(&connection, &origin).await?;
        Ok(fleet)
    };
    let last = match &memory {
        Some(memory) => memory.last().await,
        None => None,
    };
    let lease = LeaseConfig {
        name: args.lease_name,
        times,
        carries: last.is_some(),
        // Another replica may work before this one can.
        able: false,
        ..LeaseConfig::new(&namespace, &identity)
    };
    let tasks = TaskTracker::new();
    let election = args
        .leader_elect
        .then(|| Election::start(connection.clone(), lease, &tasks));
    let ends = Ends {
        stop,
        grace,
        role: election.as_ref().map(Election::role),
        memory,
    };
    let prepared = if let Some(last) = last {
        let carried = Carried::start(&options, last, connection.server(), args.leader_elect);
        ends.carry(carried.await?, &connection, prepare).await?
    } else {
        ends.begin(prepare).await?
    };
    let Some((fleet, ground)) = prepared else {
        return Ok(());
    };
    options.fleet = fleet;
    let mut on = On {
        ground,
        memory: ends.memory.clone(),
        role: ends.role.clone(),
    };
    let guard = election.as_ref().map(Election::guard);
    let guard = guard.unwrap_or_else(WriteGuard::always);
    let starting = async |on: &On| {
        let guard = guard.clone();
        start(&options, &connection, &identity, guard, on).await
    };
    let Some(instance) = ends.started(&mut on, starting).await? else {
        return Ok(());
    };
    drop(on);
    let outcome = serve(instance, election, times, &ends, &tasks).await;
    tasks.close();
    tasks.wait().await;
    outcome
}

/// Serves until a stop is asked for, and hands over.
async fn serve(
    instance: Instance,
    election: Option<Election>,
    times: Times,
    ends: &Ends,
    tasks: &TaskTracker,
) -> anyhow::Result<()> {
    if let Some(election) = &election {
        instance.tell_serving(election.serving());
        let book = instance.handle().book.clone();
        let changes = book.changes();
        let works = move || book.read(|pages| pages.at_work);
        let (role, able) = (election.role(), election.able());
        tasks.spawn(take_turns(times, works, changes, role, able));
    }
    let outcome = tokio::select! {
        biased;
        () = ends.stop.asked() => Ok(()),
        () = instance.broken() => Err(loop_ended()),
    };
    let Some(election) = election else {
        instance.stop(ends.grace).await;
        return outcome;
    };
    // First nothing is written any more, then the Lease passes on, then another replica serves, and
    // only then nothing new is accepted here.
    let handed_over = async {
        let role = election.role();
        election.hand_over().await;
        if *role.borrow() == Role::Standby {
            ends.forget().await;
        }
    };
    instance.stop_after(ends.grace, handed_over).await;
    outcome
}

/// What an instance is started with, beside its connection.
#[derive(Debug, Default)]
struct On {
    ground: Ground,
    memory: Option<Memory>,
    role: Option<watch::Receiver<Role>>,
}

/// Why a process ends whose control loop or data plane has ended by itself.
pub fn loop_ended() -> anyhow::Error {
    anyhow::anyhow!(
        "the control loop or the data plane ended unexpectedly; this is a bug, see the log"
    )
}

/// Starts an instance whose facts come from an API server.
pub async fn on_cluster(
    options: Options,
    connection: Connection,
    identity: &str,
    guard: WriteGuard,
    role: Option<watch::Receiver<Role>>,
) -> anyhow::Result<Instance> {
    let on = On {
        role,
        ..On::default()
    };
    start(&options, &connection, identity, guard, &on).await
}

async fn start(
    options: &Options,
    connection: &Connection,
    identity: &str,
    guard: WriteGuard,
    on: &On,
) -> anyhow::Result<Instance> {
    let role = on.role.clone();
    let lead = role.clone().map(|role| Lead {
        role,
        confirmed: true,
    });
    let lifetime = Lifetime::default();
    let Lifetime { tasks, cancel } = &lifetime;
    // What is started here ends with an attempt that fails.
    let failed = cancel.clone().drop_guard();
    let limits = options.fleet.limits().within_files(descriptors());
    let reports = KubeReports::new(connection.clone(), guard, identity, tasks, cancel);
    let (mut told, mut secrets) = (None, None);
    let started = Instance::start_on(
        on.ground.again()?,
        options.clone(),
        lifetime.clone(),
        Arc::new(reports),
        lead,
        |facts, lifetime| {
            let Lifetime { tasks, cancel } = lifetime;
            let config = SourceConfig {
                limits,
                ..SourceConfig::default()
            };
            let (told_to, role) = (facts.clone(), role.clone());
            let sources = Sources::start(connection, config, told_to, role, tasks, cancel);
            told = Some(facts.clone());
            secrets = Some(sources.secrets());
            tasks.spawn(tell_health(sources.health(), facts, cancel.clone()));
            tasks.spawn(give_back(cancel.clone()));
        },
    );
    let instance = started.await?;
    drop(failed.disarm());
    instance.close_what_is_gone();
    if let Some(secrets) = secrets {
        let counting = count_secrets(secrets, instance.handle().metrics.clone());
        let cancel = cancel.clone();
        tasks.spawn(async move { cancel.run_until_cancelled(counting).await });
    }
    if let (Some(memory), Some(facts)) = (on.memory.clone(), told) {
        let handle = instance.handle().clone();
        tasks.spawn(memory.follow(handle, role, facts, cancel.clone()));
    }
    Ok(instance)
}

/// Shows in the metrics how many Secrets are watched.
async fn count_secrets(mut secrets: watch::Receiver<SecretsView>, metrics: Arc<Metrics>) {
    loop {
        metrics.secrets(*secrets.borrow_and_update());
        if secrets.changed().await.is_err() {
            return;
        }
    }
}

/// Gives memory back that nobody uses: often at first, when whole lists have just gone through, and
/// then from time to time.
async fn give_back(cancel: CancellationToken) {
    let mut pause = Duration::from_secs(1);
    while cancel
        .run_until_cancelled(tokio::time::sleep(pause))
        .await
        .is_some()
    {
        landfall_sys::memory::give_back();
        pause = (pause * 2).min(GIVE_BACK_EVERY);
    }
}

/// Shows as a problem what can't be followed at the moment.
async fn tell_health(
    mut health: watch::Receiver<Health>,
    facts: mpsc::Sender<Fact>,
    cancel: CancellationToken,
) {
    loop {
        let failing: Vec<Reason> = health
            .borrow_and_update()
            .failing()
            .map(|(what, why)| {
                Reason::warning(
                    Code::ChangesNoticedLate,
                    format!("{what} can't be watched: {why}"),
                )
                .remedy("the last known state is served; changes are applied once it is back")
            })
            .collect();
        let told = Fact::SourceProblems {
            part: "API server".into(),
            reasons: failing,
        };
        if facts.send(told).await.is_err() {
            return;
        }
        if !matches!(
            cancel.run_until_cancelled(health.changed()).await,
            Some(Ok(()))
        ) {
            return;
        }
    }
}

/// A missing right is one clear error at the start, not a failure of each Service. A server that
/// can't be asked yet is no error: it is waited for.
async fn judge_rights(connection: &Connection, rights: Vec<access::Right>) -> anyhow::Result<()> {
    match access::missing(connection, rights).await {
        Ok(missing) if missing.is_empty() => Ok(()),
        Ok(missing) => {
            let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
            anyhow::bail!(
                "this identity may not: {}; bind it to the roles of deploy/rbac.yaml",
                missing.join(", ")
            )
        }
        Err(error) => {
            tracing::warn!(%error, server = connection.server(), "permissions could not be checked \
                yet");
            Ok(())
        }
    }
}

// === impl LeaseArgs ===

impl LeaseArgs {
    /// The times of the election; what is not given follows from the Lease's duration.
    fn times(&self) -> anyhow::Result<Times> {
        let usual = Times::of_lease(self.lease_duration);
        let times = Times {
            lease: self.lease_duration,
            renew_deadline: self.renew_deadline.unwrap_or(usual.renew_deadline),
            retry: self.retry_period.unwrap_or(usual.retry),
        };
        match times.judge() {
            Ok(()) => Ok(times),
            Err(why) => anyhow::bail!("invalid times of the election: {why}"),
        }
    }
}

// === impl ServeClusterArgs ===

impl ServeClusterArgs {
    /// Where the way to the API server is described.
    pub fn origin(&self) -> Origin {
        match (&self.kubeconfig, &self.context) {
            (None, None) => Origin::Infer,
            (path, context) => Origin::Kubeconfig {
                path: path.clone(),
                context: context.clone(),
            },
        }
    }
}

/// A connection under this process's own identity, which every write carries.
pub async fn connect(cluster: &ServeClusterArgs, identity: &str) -> anyhow::Result<Connection> {
    let agent = format!("landfall/{} ({identity})", env!("CARGO_PKG_VERSION"));
    Connection::new(cluster.origin(), &agent)
        .await
        .context("connecting to the cluster")
}
