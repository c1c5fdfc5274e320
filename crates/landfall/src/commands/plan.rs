//! `landfall plan`: the exact steps that manifests would cause.

use std::fmt::Write as _;
use std::io::Write as _;

use anyhow::Context as _;
use landfall_engine::dry_run::ServicePlan;
use landfall_model::reason::Severity;

use crate::admin::client::{Admin, AskError};
use crate::backend::Mode;
use crate::cli::{PlanArgs, TextOutput};
use crate::dry_run::{self, Against, DryRunReport};
use crate::instances::Instances;
use crate::manifests;
use crate::text::counted;

/// Runs the command; says whether every spec can be had.
pub async fn run(args: PlanArgs) -> anyhow::Result<bool> {
    let text = manifests::concatenated(&args.filename, args.recursive).await?;
    if args.cluster.is_meant() {
        let instances = Instances::read(&args.instances).await?;
        let mut instances = instances.in_cluster_as(&args.instances);
        let connection = args.cluster.connect().await?;
        let origin = args.cluster.origin();
        instances.learn_cluster(&connection, &origin).await?;
        let cluster = args.cluster.load(&instances.resources()).await?;
        let mut outlook = dry_run::on_cluster(&instances, cluster, text.loaded(), args.prune).await;
        text.place(&mut outlook);
        return print(&outlook, args.output);
    }
    let path = if args.prune {
        "/api/v1/plan?prune=true"
    } else {
        "/api/v1/plan"
    };
    let asked: Result<DryRunReport, AskError> =
        if args.pools.is_empty() && args.instances.is_default() {
            Admin::at(&args.instance).post(path, text.joined()).await
        } else {
            Err(AskError::Unreachable {
                address: String::new(),
                why: String::new(),
            })
        };
    let outlook = match asked {
        Ok(mut outlook) => {
            text.place(&mut outlook);
            outlook
        }
        Err(AskError::Unreachable { .. }) => {
            let instances = Instances::read(&args.instances).await?;
            let (sandboxes, loaded) = (instances.detached(Mode::ReadOnly), text.loaded());
            let mut outlook =
                dry_run::from_nothing(&instances, &sandboxes, loaded, &args.pools).await;
            text.place(&mut outlook);
            outlook
        }
        Err(error) => return Err(error).context("connecting to the running instance"),
    };
    print(&outlook, args.output)
}

fn print(outlook: &DryRunReport, output: TextOutput) -> anyhow::Result<bool> {
    let text = match output {
        TextOutput::Text => describe(outlook),
        TextOutput::Json => serde_json::to_string_pretty(outlook)?,
    };
    writeln!(std::io::stdout(), "{}", text.trim_end())?;
    let reasons = outlook
        .plans
        .iter()
        .flat_map(|plan| &plan.reasons)
        .chain(&outlook.problems);
    Ok(reasons
        .into_iter()
        .all(|reason| reason.severity < Severity::Error))
}

/// The plan for people.
pub fn describe(outlook: &DryRunReport) -> String {
    let mut text = String::new();
    for problem in &outlook.problems {
        let _ = writeln!(text, "{}: {problem}", problem.severity);
    }
    let against = match outlook.against {
        Against::Instance => "the running instance",
        Against::Cluster => "the cluster",
        Against::Nothing => "nothing",
    };
    let (idle, busy): (Vec<&ServicePlan>, Vec<&ServicePlan>) = outlook
        .plans
        .iter()
        .partition(|plan| plan.steps.is_empty() && plan.reasons.is_empty());
    for plan in busy {
        let _ = writeln!(text, "{}", plan.service);
        for step in &plan.steps {
            let _ = writeln!(text, "  {}\n      because {}", step.step, step.because);
        }
        for reason in &plan.reasons {
            let _ = writeln!(text, "  {}: {reason}", reason.severity);
        }
    }
    let steps = outlook.plans.iter().flat_map(|plan| &plan.steps);
    let steps = steps.filter(|line| line.kind.is_change()).count();
    let _ = writeln!(
        text,
        "{} for {}, {} of them unchanged; planned against {against}",
        counted(steps, "step"),
        counted(outlook.plans.len(), "Service"),
        idle.len()
    );
    text
}
