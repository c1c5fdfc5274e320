//! `landfall controller`, and `landfall up` beside a cluster: facts from the API server, reports to it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use landfall_engine::leadership::{Role, Times};
use landfall_kube::lease::{Election, LeaseConfig, WriteGuard, identity};
use landfall_kube::{Connection, Health, KubeReports, Origin, SourceConfig, Sources, access};
use landfall_model::reason::{Code, Reason};
use landfall_model::rows::Fact;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cli::{ControllerArgs, LeaseArgs, ServeClusterArgs};
use crate::fleet::Fleet;
use crate::instance::{Instance, Lifetime, Options};
use crate::signals::Stop;

/// From one giving back of unused memory to the next, in the long run. It takes about a millisecond.
const GIVE_BACK_EVERY: Duration = Duration::from_secs(60);

/// Runs the command.
pub async fn run(args: ControllerArgs) -> anyhow::Result<()> {
    let grace = args.run.grace();
    let times = args.lease.times()?;
    let mut options = Options {
        fleet: Fleet::read(&args.instances).await?,
        pools: Vec::new(),
        fallback_pool: false,
        records_accepted: false,
        admin: args.admin,
        workers: args.run.threads(),
        admin_names: args.run.admin_name,
    };
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "landfall".to_owned());
    let identity = identity(&host);
    let connection = connect(&args.cluster, &identity).await?;
    judge_rights(
        &connection,
        [access::to_watch(), access::to_report()].concat(),
    )
    .await?;
    let origin = args.cluster.origin();
    options.fleet.learn_cluster(&connection, &origin).await?;
    let stop = Stop::watch(grace)?;
    if !args.leader_elect {
        let instance =
            on_cluster(options, connection, &identity, WriteGuard::always(), None).await?;
        let outcome = tokio::select! {
            () = stop.asked() => Ok(()),
            () = instance.broken() => Err(loop_ended()),
        };
        instance.stop(grace).await;
        return outcome;
    }
    let namespace = args
        .namespace
        .unwrap_or_else(|| connection.namespace().to_owned());
    judge_rights(&connection, access::to_elect(&namespace, &args.lease_name)).await?;
    let lease = LeaseConfig {
        name: args.lease_name,
        times,
        ..LeaseConfig::new(&namespace, &identity)
    };
    let tasks = TaskTracker::new();
    let election = Election::start(connection.clone(), lease, &tasks);
    let (guard, role) = (election.guard(), election.role());
    let instance = on_cluster(options, connection, &identity, guard, Some(role)).await?;
    instance.tell_serving(election.serving());
    let outcome = tokio::select! {
        biased;
        () = stop.asked() => Ok(()),
        () = instance.broken() => Err(loop_ended()),
    };
    // First nothing is written any more, then the Lease passes on, then another replica serves, and
    // only then nothing new is accepted here.
    instance.stop_after(grace, election.hand_over()).await;
    tasks.close();
    tasks.wait().await;
    outcome
}

/// Why a process ends whose control loop has ended by itself.
pub fn loop_ended() -> anyhow::Error {
    anyhow::anyhow!("the control loop ended unexpectedly; the log says why, and this is a bug")
}

/// Starts an instance whose facts come from an API server.
pub async fn on_cluster(
    options: Options,
    connection: Connection,
    identity: &str,
    guard: WriteGuard,
    role: Option<watch::Receiver<Role>>,
) -> anyhow::Result<Instance> {
    let lifetime = Lifetime::default();
    let Lifetime { tasks, cancel } = &lifetime;
    let reports = KubeReports::new(connection.clone(), guard, identity, tasks, cancel);
    Instance::start(
        options,
        lifetime.clone(),
        Arc::new(reports),
        role,
        |facts, lifetime| {
            let Lifetime { tasks, cancel } = lifetime;
            let config = SourceConfig::default();
            let sources = Sources::start(&connection, config, facts.clone(), tasks, cancel);
            tasks.spawn(tell_health(sources.health(), facts, cancel.clone()));
            tasks.spawn(give_back(cancel.clone()));
        },
    )
    .await
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
                    format!("{what} can't be followed: {why}"),
                )
                .remedy("what is known goes on being served; changes are seen once it is back")
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
            tracing::warn!(%error, server = connection.server(), "rights could not be checked yet");
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
            Err(why) => anyhow::bail!("the election's times: {why}"),
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
