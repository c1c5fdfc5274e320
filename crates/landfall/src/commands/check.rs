//! `landfall check`: validates manifests and annotations, with file and line.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;

use clap::error::ErrorKind;
use landfall_model::reason::{Reason, Severity};
use serde::Serialize;

use crate::backend::{CloudReport, Mode};
use crate::cli::{CheckArgs, Cli, TextOutput};
use crate::dry_run::{self, DryRunReport};
use crate::instances::Instances;
use crate::text::counted;

/// What `check -o json` prints.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Verdict<'a> {
    services: usize,
    errors: usize,
    warnings: usize,
    findings: &'a [Finding],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    clouds: &'a [CloudReport],
}

/// A reason and the Service that it is about.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Finding {
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<String>,
    #[serde(flatten)]
    reason: Reason,
}

/// Runs the command; says whether there were no errors.
pub async fn run(args: CheckArgs) -> anyhow::Result<bool> {
    if args.filename.is_empty() && args.instances.is_default() && !args.cluster.is_meant() {
        let missing = "give --filename <PATH>, --kubeconfig <FILE> or --config <FILE>";
        Cli::refused("check", ErrorKind::MissingRequiredArgument, missing).exit();
    }
    let instances = Instances::read(&args.instances).await?;
    let (instances, loaded) = if args.filename.is_empty() && args.cluster.is_meant() {
        let instances = instances.in_cluster_as(&args.instances);
        let loaded = args.cluster.load(&instances.resources()).await?;
        (instances, loaded)
    } else {
        let loaded = dry_run::read(args.filename, args.recursive).await?;
        (instances, loaded)
    };
    let mut clouds = Vec::new();
    if args.connect {
        for setup in instances.active() {
            clouds.push(setup.survey().await);
        }
    }
    // What can't be asked is not asked again for each Service.
    let unusable = clouds.iter().any(|cloud| cloud.problem.is_some());
    let mode = if args.connect && !unusable {
        Mode::ReadOnly
    } else {
        Mode::Offline
    };
    let providers = instances.detached(mode);
    let outlook = dry_run::from_nothing(&instances, &providers, loaded, &args.pools).await;
    let problems = clouds
        .iter()
        .flat_map(|cloud| cloud.problem.iter().chain(&cloud.findings).cloned());
    let about_files = instances
        .on_clouds()
        .flat_map(|setup| setup.warnings().to_vec());
    let findings = findings(about_files.chain(problems), &outlook);
    let verdict = Verdict::of(outlook.plans.len(), &findings, &clouds);
    let text = match args.output {
        TextOutput::Text => verdict.describe(),
        TextOutput::Json => serde_json::to_string_pretty(&verdict)? + "\n",
    };
    write!(std::io::stdout(), "{text}")?;
    Ok(verdict.errors == 0)
}

// === impl Verdict ===

impl<'a> Verdict<'a> {
    fn of(services: usize, findings: &'a [Finding], clouds: &'a [CloudReport]) -> Self {
        let count = |severity| {
            let of_it = |it: &&Finding| it.reason.severity == severity;
            findings.iter().filter(of_it).count()
        };
        Self {
            services,
            errors: count(Severity::Error),
            warnings: count(Severity::Warning),
            findings,
            clouds,
        }
    }

    /// The verdict for people.
    fn describe(&self) -> String {
        let mut text = String::new();
        for Finding { service, reason } in self.findings {
            let Reason { severity, code, .. } = reason;
            let about = service.as_ref().map(|service| format!(" ({service})"));
            let about = about.unwrap_or_default();
            let _ = writeln!(text, "{severity} {code}: {reason}{about}");
        }
        for cloud in self.clouds.iter().filter(|cloud| cloud.problem.is_none()) {
            let _ = writeln!(text, "{}", cloud.text);
        }
        let _ = writeln!(
            text,
            "{}: {}, {}",
            counted(self.services, "Service"),
            counted(self.errors, "error"),
            counted(self.warnings, "warning")
        );
        text
    }
}

/// Every finding once, by place.
fn findings(about_files: impl Iterator<Item = Reason>, outlook: &DryRunReport) -> Vec<Finding> {
    let about_files = about_files.chain(outlook.problems.iter().cloned());
    let about_files = about_files.map(|reason| Finding {
        service: None,
        reason,
    });
    let about_services = outlook.plans.iter().flat_map(|plan| {
        plan.reasons.iter().map(|reason| Finding {
            service: Some(plan.service.to_string()),
            reason: reason.clone(),
        })
    });
    let mut findings: Vec<Finding> = about_files.chain(about_services).collect();
    let place = |finding: &Finding| {
        let origin = finding.reason.origin.as_ref();
        origin.map(|origin| (origin.file.to_string(), origin.line))
    };
    findings.sort_by_key(|finding| (place(finding), std::cmp::Reverse(finding.reason.severity)));
    let mut seen = BTreeSet::new();
    findings.retain(|finding| seen.insert((finding.service.clone(), finding.reason.to_string())));
    findings
}
