//! What `landfall controller`, and `landfall up` for a cluster, run: facts from the API server,
//! reports to it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use landfall_engine::leadership::{Role, Times};
use landfall_files::Snapshot;
use landfall_kube::lease::{Election, LeaseConfig, WriteGuard, identity};
use landfall_kube::{ApiError, Connection, Origin, access};

use tokio_util::task::TaskTracker;

use crate::assembly::{Instance, Options};
use crate::cli::{ElectionArgs, LeaseArgs, ServeClusterArgs};
use crate::last_known::{CarriedInstance, LastKnownStore};
use crate::signals::Stop;

use super::announce::announce;

mod candidacy;
mod carry;
mod start;

use candidacy::follow_candidacy;
use carry::Ends;
pub use start::on_cluster;
use start::{On, start};

/// The namespace that the manifests of `deploy/` are for.
const SHIPPED_NAMESPACE: &str = "landfall-system";

/// From one look for that namespace to the next.
const LOOK: Duration = Duration::from_secs(2);

/// What fails where there is no way to the API server.
const CONNECTING: &str = "connecting to the cluster";

/// What serves the Services of a cluster.
pub struct ServeCluster {
    pub options: Options,
    pub cluster: ServeClusterArgs,
    pub election: ElectionArgs,
    /// Where what is served is remembered.
    pub state: Option<PathBuf>,
    /// What people know this process by.
    pub host: String,
    pub grace: Duration,
    /// Whether people start it by hand: as no part of the cluster, and to read what it prints.
    pub by_hand: bool,
}

// === impl ServeCluster ===

impl ServeCluster {
    /// Serves until a stop is asked for, or something ends that must not.
    pub async fn run(self, stop: Stop) -> anyhow::Result<()> {
        let times = self.election.lease.times()?;
        let mut options = self.options.clone();
        options.instances = options.instances.in_cluster();
        let identity = identity(&self.host);
        let connecting = stop.unless_asked(connect(&self.cluster, &identity));
        let Some(connection) = connecting.await.transpose()? else {
            return Ok(());
        };
        let name = self.election.lease_name.clone();
        let namespace = stop.unless_asked(self.namespace(&connection));
        let Some(namespace) = namespace.await.transpose()? else {
            return Ok(());
        };
        let lease = format!("{namespace}/{name}");
        let memory = self
            .state
            .as_ref()
            .filter(|_| options.instances.serves_here());
        let memory = memory
            .map(|folder| LastKnownStore::new(folder, &connection, &options.instances, &lease));
        let last = match &memory {
            Some(memory) => memory.last().await,
            None => None,
        };
        // What was served last is served without credentials, too.
        if last.is_none() {
            let established = stop.unless_asked(connection.established()).await;
            let Some(()) = established.transpose().context(CONNECTING)? else {
                return Ok(());
            };
        }
        let mut rights = [access::to_watch(), access::to_report()].concat();
        if self.election.leader_elect {
            rights.extend(access::to_elect(&namespace, &name));
        }
        let lease = LeaseConfig {
            name,
            times,
            carries: last.is_some(),
            // Another replica may work before this one can.
            able: false,
            ..LeaseConfig::new(&namespace, &identity)
        };
        let tasks = TaskTracker::new();
        let election = self.election.leader_elect;
        let election = election.then(|| Election::start(connection.clone(), lease, &tasks));
        let ends = Ends {
            stop,
            grace: self.grace,
            role: election.as_ref().map(Election::role),
            memory,
        };
        let access = ApiAccess {
            connection,
            identity,
            origin: self.cluster.origin(),
            rights,
            guard: election
                .as_ref()
                .map_or_else(WriteGuard::always, Election::guard),
        };
        let deposed = deposed(election.as_ref());
        let started = tokio::select! {
            biased;
            started = access.begin(options, last, &ends) => started?,
            () = deposed => return Err(election_ended()),
        };
        let Some(instance) = started else {
            return Ok(());
        };
        let outcome = self.serve(instance, election, &ends, &tasks).await;
        tasks.close();
        tasks.wait().await;
        outcome
    }

    /// The namespace of the Lease.
    async fn namespace(&self, connection: &Connection) -> anyhow::Result<String> {
        if let Some(namespace) = &self.election.namespace {
            return Ok(namespace.clone());
        }
        let own = connection.namespace();
        if !self.by_hand || !self.election.leader_elect {
            return Ok(own.to_owned());
        }
        connection.established().await.context(CONNECTING)?;
        loop {
            match access::has_namespace(connection, SHIPPED_NAMESPACE).await {
                Ok(true) => return Ok(SHIPPED_NAMESPACE.to_owned()),
                Ok(false) => return Ok(own.to_owned()),
                Err(error @ (ApiError::Denied { .. } | ApiError::Unauthorized { .. })) => {
                    return Err(error).context("looking for the namespace of the Lease");
                }
                // As with rights, a server that can't be asked yet is waited for.
                Err(error) => tracing::warn!(%error, "the namespace of the Lease is not known yet"),
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Serves until a stop is asked for, and hands over.
    async fn serve(
        &self,
        instance: Instance,
        election: Option<Election>,
        ends: &Ends,
        tasks: &TaskTracker,
    ) -> anyhow::Result<()> {
        if let Some(election) = &election {
            instance.report_serving(election.serving());
            let store = instance.handle().store.clone();
            let changes = store.changes();
            let works = move || store.read(|pages| pages.at_work);
            let (role, able) = (election.role(), election.able());
            let times = self.election.lease.times()?;
            tasks.spawn(follow_candidacy(times, works, changes, role, able));
        }
        if self.by_hand {
            ends.stop.unless_asked(announce(&instance)).await;
        }
        let outcome = over(
            ends.stop.asked(),
            instance.broken(),
            deposed(election.as_ref()),
        )
        .await;
        if outcome.is_err() {
            ends.stop.failed().cancel();
        }
        let Some(election) = election else {
            instance.stop(ends.grace).await;
            return outcome;
        };
        // First nothing is written any more, then the Lease passes on, then another replica
        // serves, and only then nothing new is accepted here.
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
}

/// The connection to the API server, and what is to be requested and written there.
struct ApiAccess {
    connection: Connection,
    identity: String,
    origin: Origin,
    rights: Vec<access::Right>,
    guard: WriteGuard,
}

// === impl ApiAccess ===

impl ApiAccess {
    /// Learns what is to be known of the cluster before anything of it is written, and starts an
    /// instance. Meanwhile what was served last is carried. `None`: a stop was asked for.
    async fn begin(
        &self,
        mut options: Options,
        last: Option<Snapshot>,
        ends: &Ends,
    ) -> anyhow::Result<Option<Instance>> {
        let connection = &self.connection;
        let instances = options.instances.clone();
        let prepare = || async {
            validate_rights(connection, self.rights.clone()).await?;
            let mut instances = instances.clone();
            instances.learn_cluster(connection, &self.origin).await?;
            Ok(instances)
        };
        let prepared = if let Some(last) = last {
            let elects = ends.role.is_some();
            let carried = CarriedInstance::start(&options, last, connection.server(), elects);
            ends.carry(carried.await?, connection, prepare).await?
        } else {
            ends.begin(prepare).await?
        };
        let Some((instances, start_state)) = prepared else {
            return Ok(None);
        };
        options.instances = instances;
        let mut on = On {
            start_state,
            memory: ends.memory.clone(),
            role: ends.role.clone(),
        };
        let starting = async |on: &On| {
            let guard = self.guard.clone();
            start(&options, connection, &self.identity, guard, on).await
        };
        ends.started(&mut on, starting).await
    }
}

/// Waits for what ends a process that serves, and says whether it is an error.
async fn over(
    asked: impl Future<Output = ()>,
    broken: impl Future<Output = ()>,
    deposed: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    tokio::select! {
        biased;
        () = asked => Ok(()),
        () = broken => Err(loop_ended()),
        () = deposed => Err(election_ended()),
    }
}

/// Returns once the candidacy has ended although nothing asked it to.
fn deposed(election: Option<&Election>) -> impl Future<Output = ()> + use<> {
    let ended = election.map(Election::ended);
    async move {
        match ended {
            Some(ended) => ended.cancelled().await,
            None => std::future::pending().await,
        }
    }
}

/// Why a process ends that does not stand for election any more.
fn election_ended() -> anyhow::Error {
    anyhow::anyhow!("the election ended unexpectedly; the log says why, and this is a bug")
}

/// Why a process ends whose control loop or data plane has ended by itself.
pub fn loop_ended() -> anyhow::Error {
    anyhow::anyhow!(
        "the control loop or the data plane ended unexpectedly; this is a bug, see the log"
    )
}

/// A missing right is one clear error at the start, not a failure of each Service. A server that
/// can't be asked yet is no error: it is waited for.
async fn validate_rights(
    connection: &Connection,
    rights: Vec<access::Right>,
) -> anyhow::Result<()> {
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
        match times.validate() {
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

/// A connection under this process's own identity, which every write carries. Credentials are not
/// waited for.
async fn connect(cluster: &ServeClusterArgs, identity: &str) -> anyhow::Result<Connection> {
    let agent = format!("landfall/{} ({identity})", env!("CARGO_PKG_VERSION"));
    let connection = Connection::begin(cluster.origin(), &agent).await;
    connection.context(CONNECTING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_whose_election_has_ended_ends_with_an_error_unless_it_was_to_stop() {
        let never = std::future::pending::<()>;
        let error = over(never(), never(), async {}).await.unwrap_err();
        assert!(
            error.to_string().starts_with("the election ended"),
            "{error}"
        );
        assert!(over(async {}, async {}, async {}).await.is_ok());
        let alone = deposed(None);
        assert!(over(never(), async {}, alone).await.is_err());
    }
}
