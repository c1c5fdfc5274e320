//! `landfall adopt`: what a controller that started now would take over from
//! cloud-provider-openstack, what it would write, and, with `--apply`, one run of it.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;

use jiff::Timestamp;
use landfall_engine::select::Ownership;
use landfall_engine::{World, resolve};
use landfall_files::Loaded;
use landfall_kube::activity::{self, LatestEvent};
use landfall_kube::{Connection, lease};
use landfall_model::ServiceKey;
use landfall_model::intent::Intent;
use landfall_model::plan::{PlannedKind, PlannedStep};
use landfall_model::provider::Provider as _;
use landfall_model::reason::{Reason, Severity};
use landfall_model::rows::Fact;
use landfall_model::status::ConditionType;
use serde::Serialize;
use tokio::task::JoinSet;

use crate::backend::{Adopted, Backend, Mode};
use crate::cli::{AdoptArgs, AdoptFrom, ChosenArgs, TextOutput};
use crate::dry_run;
use crate::instances::Instances;
use crate::text::counted;

use apply::Turn;

mod apply;
mod metallb;

/// Said on standard error, whatever is printed.
const WARNING: &str = "two controllers must never work on the same Services: stop the \
                      other one's first (cloud-provider-openstack: \
                      --controllers=*,-service-lb-controller; Exoscale's: \
                      loadBalancer.disabled in its file)";

/// The Lease of cloud-provider-openstack, and of other cloud controller managers.
const REFERENCE: (&str, &str) = ("kube-system", "cloud-controller-manager");
/// What their Service controllers call themselves in events.
const COMPONENT: &str = "service-controller";

/// What is taken over, Service by Service.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Survey {
    /// What is wrong with manifests or cluster as a whole.
    problems: Vec<Reason>,
    services: Vec<Takeover>,
}

/// What is taken over for one Service.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Takeover {
    service: ServiceKey,
    /// The instance that would serve it.
    instance: String,
    /// What is in the cloud for it already.
    adopted: Vec<Adopted>,
    /// What would be written to the cloud.
    steps: Vec<PlannedStep>,
    /// What has to end first in the cloud: more than this can't be said until then.
    waits: Vec<PlannedStep>,
    reasons: Vec<Reason>,
}

/// Runs the command; says whether every Service can be served as it is.
pub async fn run(args: AdoptArgs) -> anyhow::Result<bool> {
    if let Some(AdoptFrom::MetalLb(args)) = args.from {
        return metallb::run(args).await;
    }
    let mut instances = Instances::read(&args.instances).await?;
    instances.ensure_active()?;
    writeln!(std::io::stderr(), "warning: {WARNING}")?;
    for setup in instances.active() {
        setup.log_warnings();
        setup.check().await?;
    }
    let loaded = if args.filename.is_empty() {
        let connection = args.cluster.connect().await?;
        let origin = args.cluster.origin();
        instances.learn_cluster(&connection, &origin).await?;
        for line in [reference(&connection).await, written(&connection).await] {
            writeln!(std::io::stderr(), "{line}")?;
        }
        args.cluster.load(&instances.resources()).await?
    } else {
        dry_run::read(args.filename.clone(), args.recursive).await?
    };
    let survey = survey(&instances, loaded, &args.chosen).await?;
    let text = match args.output {
        TextOutput::Text => describe(&survey),
        TextOutput::Json => serde_json::to_string_pretty(&survey)?,
    };
    writeln!(std::io::stdout(), "{}", text.trim_end())?;
    let sound = survey.problems.iter().all(|it| !is_error(it))
        && survey.services.iter().all(|it| !it.is_refused());
    if !args.apply {
        return Ok(sound);
    }
    anyhow::ensure!(
        !instances.serves_here(),
        "--apply would also begin to serve Services on this machine, for which landfall.yaml has \
        an instance; start landfall controller where it should run"
    );
    let keys = survey.services.into_iter();
    let keys = keys.filter(|it| !it.is_refused()).map(|it| it.service);
    let turn = Turn {
        cluster: &args.cluster,
        lease: &args.lease,
        output: args.output,
        chosen: &args.chosen,
        condition: ConditionType::Programmed,
        held: "a controller of Landfall that holds it takes over by itself",
    };
    Ok(turn.run(instances, &keys.collect::<Vec<_>>()).await? && sound)
}

/// What is known of another controller that may be at work, by its Lease.
async fn reference(connection: &Connection) -> String {
    let (namespace, name) = REFERENCE;
    match lease::holder(connection, namespace, name).await {
        Ok(Some(holder)) if holder.is_active(Timestamp::now()) => format!(
            "warning: a cloud controller manager is at work: {} renewed the Lease \
            {namespace}/{name} at {}; make sure that its Service controller is off",
            holder.identity, holder.renewed
        ),
        Ok(_) => format!("note: no process holds the Lease {namespace}/{name}"),
        Err(error) => format!(
            "note: whether a cloud controller manager is at work is not known, because the Lease \
            {namespace}/{name} can't be read: {error}"
        ),
    }
}

/// What is known of another Service controller that may be at work, by its events: unlike the Lease
/// they are those of that one controller alone.
async fn written(connection: &Connection) -> String {
    match activity::latest_event(connection, COMPONENT).await {
        Ok(Some(LatestEvent {
            reason,
            service,
            at,
        })) => format!(
            "warning: a cloud controller manager reported {reason} on {service} at {at:.0}; go on \
            only if its Service controller was stopped after that"
        ),
        Ok(None) => {
            "note: there is no recent event of a cloud controller manager on a Service".to_owned()
        }
        Err(error) => format!(
            "note: whether a cloud controller manager works on Services is not known, because \
            events can't be read: {error}"
        ),
    }
}

fn is_error(reason: &Reason) -> bool {
    reason.severity == Severity::Error
}

/// Reads every Service that an instance on OpenStack would serve. All are read at the same time,
/// so that they share the lists of the cloud.
async fn survey(
    instances: &Instances,
    loaded: Loaded,
    chosen: &ChosenArgs,
) -> anyhow::Result<Survey> {
    let mut world = World::default();
    for fact in loaded.facts {
        world.apply(fact);
    }
    for pool in instances.pools() {
        world.apply(Fact::Pool(Arc::new(pool)));
    }
    let classes = instances.classes();
    let providers = Arc::new(instances.detached(Mode::ReadOnly));
    let references: Vec<&Backend> = providers.iter().collect();
    let claims = landfall_engine::claims(&world, &classes, &references);
    for (provider, claims) in providers.iter().zip(claims) {
        provider.restore_claims(&claims);
    }
    let mut services = Vec::new();
    let mut looking = JoinSet::new();
    for row in world.services().filter(|row| chosen.choose(row)) {
        let namespace = world.namespace(row.key.namespace());
        let belongs = classes.validate(&row, namespace.map(AsRef::as_ref));
        let Ownership::Ours(instance) = belongs else {
            continue;
        };
        let provider = instance.of(&providers);
        let Some(provider) = provider.filter(|provider| provider.reads_a_cloud()) else {
            continue;
        };
        let name = classes.name(instance).map(str::to_owned);
        let mut takeover = Takeover::of(row.key.clone(), name.unwrap_or_default());
        match resolve(&row, &world, provider.profile()) {
            Ok(intent) => {
                let providers = providers.clone();
                looking.spawn(async move {
                    if let Some(provider) = instance.of(&providers) {
                        takeover.look(provider, &intent).await;
                    }
                    takeover
                });
            }
            Err(reasons) => {
                takeover.reasons = reasons;
                services.push(takeover);
            }
        }
    }
    while let Some(takeover) = looking.join_next().await {
        services.push(takeover?);
    }
    services.sort_by(|one, other| one.service.cmp(&other.service));
    for takeover in &mut services {
        let Some(row) = world.service(&takeover.service) else {
            continue;
        };
        for reason in &mut takeover.reasons {
            if let (None, Some(field)) = (&reason.origin, &reason.field) {
                reason.origin = row.origin_of(field);
            }
        }
    }
    Ok(Survey {
        problems: loaded.reasons,
        services,
    })
}

// === impl Takeover ===

impl Takeover {
    fn of(service: ServiceKey, instance: String) -> Self {
        Self {
            service,
            instance,
            adopted: Vec::new(),
            steps: Vec::new(),
            waits: Vec::new(),
            reasons: Vec::new(),
        }
    }

    /// Asks the cloud, and changes nothing.
    async fn look(&mut self, provider: &Backend, intent: &Intent) {
        self.reasons.extend(intent.remarks.clone());
        let observed = match provider.observe(intent).await {
            Ok(observed) => observed,
            Err(error) => {
                self.reasons.push(Reason {
                    severity: Severity::Error,
                    ..error.reason
                });
                return;
            }
        };
        self.adopted = observed.adopted();
        match provider.plan(intent, &observed) {
            Ok(plan) => {
                let lines = plan.describe().into_iter();
                (self.waits, self.steps) = lines.partition(|line| line.kind == PlannedKind::Wait);
            }
            Err(reasons) => self.reasons.extend(reasons),
        }
        let standing = provider.status(intent, &observed);
        for reason in standing.waiting.into_iter().chain(standing.remarks) {
            if !self.reasons.contains(&reason) {
                self.reasons.push(reason);
            }
        }
    }

    /// Whether the spec can't be had as it stands.
    fn is_refused(&self) -> bool {
        self.reasons.iter().any(is_error)
    }

    /// Whether a controller would find everything as it wants it.
    fn is_free(&self) -> bool {
        !self.adopted.is_empty()
            && self.steps.is_empty()
            && self.waits.is_empty()
            && !self.is_refused()
    }
}

/// The survey for people.
fn describe(survey: &Survey) -> String {
    let mut text = String::new();
    for problem in &survey.problems {
        let _ = writeln!(text, "{}: {problem}", problem.severity);
    }
    for takeover in &survey.services {
        let _ = writeln!(text, "{} ({})", takeover.service, takeover.instance);
        for Adopted { kind, id, name } in &takeover.adopted {
            let _ = writeln!(text, "  takes over {kind} {name} ({id})");
        }
        if takeover.is_free() {
            text.push_str("  writes nothing to the cloud\n");
        }
        for step in takeover.waits.iter().chain(&takeover.steps) {
            let _ = writeln!(text, "  {}\n      because {}", step.step, step.because);
        }
        for reason in &takeover.reasons {
            let _ = writeln!(text, "  {}: {reason}", reason.severity);
        }
    }
    let services = &survey.services;
    let free = services.iter().filter(|it| it.is_free()).count();
    let steps = services.iter().flat_map(|it| &it.steps);
    let steps = steps.filter(|line| line.kind.is_change()).count();
    let others = services.iter().filter(|it| !it.steps.is_empty()).count();
    let _ = write!(
        text,
        "{}, {free} taken over with no write, {} for {}",
        counted(services.len(), "Service"),
        counted(steps, "step"),
        counted(others, "other")
    );
    let unclear = services.len() - free - others;
    if unclear > 0 {
        let verb = if unclear == 1 { "is" } else { "are" };
        let _ = write!(
            text,
            "; {unclear} {verb} undetermined, for the reasons above"
        );
    }
    text.push('\n');
    text
}
