//! `landfall adopt --apply`: a controller that runs until it has taken over.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context as _;
use landfall_engine::AUDIT_EVERY;
use landfall_kube::lease::{Election, LeaseConfig, identity};
use landfall_kube::{Connection, CustomResources, access};
use landfall_model::ServiceKey;
use landfall_model::rows::Fact;
use landfall_model::status::{ConditionType, ServiceStatus};
use landfall_model::view::InstanceView;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::assembly::{Instance, Options};
use crate::cli::{ApplyArgs, ChosenArgs, ClusterArgs, TextOutput};
use crate::commands::serve_cluster;
use crate::instances::Instances;
use crate::text::counted;

/// How long the Lease of a controller that is gone may still be held.
const ELECTED_WITHIN: Duration = Duration::from_secs(60);
/// From one check of what the API server has to the next.
const LOOK: Duration = Duration::from_secs(1);

/// One run with `--apply`.
pub(super) struct Turn<'a> {
    pub(super) cluster: &'a ClusterArgs,
    pub(super) lease: &'a ApplyArgs,
    pub(super) output: TextOutput,
    pub(super) chosen: &'a ChosenArgs,
    /// What a Service meets that is taken over.
    pub(super) condition: ConditionType,
    /// What to do about the Lease if another process holds it.
    pub(super) held: &'static str,
}

/// What this process writes with while it holds the Lease.
pub(super) struct Holder {
    pub(super) connection: Connection,
    pub(super) identity: String,
    pub(super) election: Election,
    tasks: TaskTracker,
}

// === impl Holder ===

impl Holder {
    /// Lets another process have the Lease.
    pub(super) async fn end(self) {
        self.election.release().await;
        self.tasks.close();
        self.tasks.wait().await;
    }
}

// === impl Turn ===

impl Turn<'_> {
    /// Takes over `keys`; says whether that is done.
    pub(super) async fn run(
        &self,
        instances: Instances,
        keys: &[ServiceKey],
    ) -> anyhow::Result<bool> {
        let holder = self.begin().await?;
        let done = self.take_over(instances, &holder, keys).await;
        holder.end().await;
        done
    }

    /// Waits for the Lease, with all rights that a controller needs.
    pub(super) async fn begin(&self) -> anyhow::Result<Holder> {
        let args = self.lease;
        let identity = identity("landfall-adopt");
        let agent = format!("landfall/{} ({identity})", env!("CARGO_PKG_VERSION"));
        let connection = Connection::new(self.cluster.origin(), &agent)
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
        let holder = Holder {
            election: Election::start(connection.clone(), lease, &tasks),
            connection,
            identity,
            tasks,
        };
        if let Err(error) = elected(&holder.election).await {
            holder.end().await;
            return Err(error.context(format!(
                "the Lease {} in {namespace} is held by another process; {}",
                args.lease_name, self.held
            )));
        }
        Ok(holder)
    }

    async fn take_over(
        &self,
        instances: Instances,
        holder: &Holder,
        keys: &[ServiceKey],
    ) -> anyhow::Result<bool> {
        let options = Options {
            instances,
            pools: Vec::new(),
            fallback_pool: false,
            admin: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            admin_names: Vec::new(),
            admin_token: None,
            workers: None,
            access_log: crate::cli::AccessLogArgs::default(),
            chosen: self.chosen.clone(),
            audit_every: AUDIT_EVERY,
            webhook: None,
        };
        let (guard, role) = (holder.election.guard(), holder.election.role());
        let connection = holder.connection.clone();
        let instance =
            serve_cluster::on_cluster(options, connection, &holder.identity, guard, Some(role));
        let instance = instance.await?;
        let deadline = Instant::now() + Duration::from_secs(self.lease.timeout);
        let outcome = self.follow(&instance, keys, deadline).await;
        instance.stop(Duration::ZERO).await;
        outcome
    }

    /// Waits until everything is done here and written there, or time is up; says what came of it.
    async fn follow(
        &self,
        instance: &Instance,
        keys: &[ServiceKey],
        deadline: Instant,
    ) -> anyhow::Result<bool> {
        let left = deadline.saturating_duration_since(Instant::now());
        let met = self.condition;
        let all_done = |view: &InstanceView| keys.iter().all(|key| is_done(view, key, met));
        // A failure is that time is up, which the picture after it shows.
        let _ = instance.wait_until(left, all_done).await;
        let mut unwritten = self.unwritten(keys).await?;
        while !unwritten.is_empty() && Instant::now() < deadline {
            tokio::time::sleep(LOOK).await;
            unwritten = self.unwritten(keys).await?;
        }
        // What began of its own in between ends soon.
        let view = match instance.wait_until(LOOK, all_done).await {
            Ok(view) => view,
            Err(_) => instance.wait_until(LOOK, |_| true).await?,
        };
        // Standard output is one JSON document, where it is JSON.
        let mut out: Box<dyn Write + Send> = match self.output {
            TextOutput::Text => Box::new(std::io::stdout()),
            TextOutput::Json => Box::new(std::io::stderr()),
        };
        let left = undone(&view, keys, &unwritten, met);
        for key in &left {
            writeln!(out, "{key} is not taken over yet")?;
            let service = view.services.iter().find(|it| it.key == **key);
            for reason in service.iter().flat_map(|it| &it.reasons) {
                writeln!(out, "  {}: {reason}", reason.severity)?;
            }
        }
        let taken = keys.len() - left.len();
        writeln!(
            out,
            "{taken} of {} taken over; start landfall controller with the same options now",
            counted(keys.len(), "Service")
        )?;
        Ok(left.is_empty())
    }

    /// Those of which the API server does not say yet that they are ours.
    async fn unwritten(&self, keys: &[ServiceKey]) -> anyhow::Result<Vec<ServiceKey>> {
        let loaded = self.cluster.load(&CustomResources::default()).await?;
        let rows = loaded.facts.iter().filter_map(|fact| match fact {
            Fact::Service(row) if !meets(&row.status, self.condition) => Some(&row.key),
            _ => None,
        });
        Ok(rows.filter(|key| keys.contains(key)).cloned().collect())
    }
}

async fn elected(election: &Election) -> anyhow::Result<()> {
    let mut leading = election.leading();
    let leads = leading.wait_for(|leads| *leads);
    tokio::time::timeout(ELECTED_WITHIN, leads).await??;
    Ok(())
}

/// What is not done here or not written there. What an earlier run has written there says nothing
/// of this one.
fn undone<'a>(
    view: &InstanceView,
    keys: &'a [ServiceKey],
    unwritten: &[ServiceKey],
    met: ConditionType,
) -> Vec<&'a ServiceKey> {
    let keys = keys.iter();
    keys.filter(|key| unwritten.contains(key) || !is_done(view, key, met))
        .collect()
}

/// Nothing is left to do for a Service, or it is gone.
fn is_done(view: &InstanceView, key: &ServiceKey, met: ConditionType) -> bool {
    let mut services = view.services.iter();
    let service = services.find(|it| it.key == *key);
    view.ready && service.is_none_or(|it| it.pending.is_empty() && meets(&it.status, met))
}

fn meets(status: &ServiceStatus, condition: ConditionType) -> bool {
    status.condition(condition).is_some_and(|it| it.status)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use landfall_model::plan::{PlannedKind, PlannedStep};
    use landfall_model::status::Condition;
    use landfall_model::view::ServiceView;
    use landfall_model::{Code, Uid};

    use super::*;

    const MET: ConditionType = ConditionType::Programmed;

    fn view(pending: &[&str], is_programmed: bool, ready: bool) -> InstanceView {
        let programmed = Condition {
            kind: ConditionType::Programmed,
            status: is_programmed,
            reason: Code::Progressing,
            message: String::new(),
            last_transition_time: Timestamp::default(),
            observed_generation: None,
        };
        let step = |step: &&str| PlannedStep {
            step: (*step).to_owned(),
            because: String::new(),
            kind: PlannedKind::Change,
            detail: serde_json::Value::Null,
        };
        InstanceView {
            ready,
            services: vec![ServiceView {
                key: ServiceKey::new("default", "web"),
                uid: Uid::new("1"),
                class: None,
                origin: None,
                status: ServiceStatus {
                    conditions: vec![programmed],
                    ..ServiceStatus::default()
                },
                reasons: Vec::new(),
                address: None,
                listeners: Vec::new(),
                announcements: Vec::new(),
                left_out: Vec::new(),
                pending: pending.iter().map(step).collect(),
                removing: false,
            }],
            ..InstanceView::default()
        }
    }

    #[test]
    fn what_was_written_by_an_earlier_run_is_not_taken_over_by_this_one() {
        let keys = [ServiceKey::new("default", "web")];
        let left = |view: &InstanceView, unwritten: &[ServiceKey]| {
            undone(view, &keys, unwritten, MET).len()
        };
        let done = view(&[], true, true);
        assert_eq!(left(&done, &[]), 0);
        assert_eq!(left(&done, &keys), 1, "not written");
        assert_eq!(
            left(&view(&["create a listener"], true, true), &[]),
            1,
            "not done"
        );
        assert_eq!(left(&view(&[], false, true), &[]), 1, "not programmed");
        assert_eq!(left(&view(&[], true, false), &[]), 1, "not read");
        // One that is gone needs nothing any more.
        let gone = InstanceView {
            services: Vec::new(),
            ..done
        };
        assert_eq!(left(&gone, &[]), 0);
    }
}
