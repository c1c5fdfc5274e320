//! `landfall check`: manifests and annotations judged, with file and line.

use std::collections::BTreeSet;
use std::io::Write as _;

use landfall_model::reason::{Reason, Severity};
use serde::Serialize;

use crate::cli::{CheckArgs, TextOutput};
use crate::config;
use crate::planning::{self, Outlook};

/// What `check -o json` prints.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Verdict<'a> {
    services: usize,
    errors: usize,
    warnings: usize,
    findings: &'a [Finding],
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
    let loaded = if args.filename.is_empty() && args.cluster.is_meant() {
        args.cluster.load().await?
    } else {
        planning::read(args.filename, args.recursive).await?
    };
    let config = config::read(args.config.as_deref()).await?;
    let outlook = planning::from_nothing(&config, loaded, &args.pools).await;
    let findings = findings(&outlook);
    let count = |severity| {
        findings
            .iter()
            .filter(|it| it.reason.severity == severity)
            .count()
    };
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let mut out = std::io::stdout();
    match args.output {
        TextOutput::Text => {
            for finding in &findings {
                let Reason { severity, code, .. } = &finding.reason;
                let about = finding
                    .service
                    .as_ref()
                    .map(|service| format!(" ({service})"));
                writeln!(
                    out,
                    "{severity} {code}: {}{}",
                    finding.reason,
                    about.unwrap_or_default()
                )?;
            }
            writeln!(
                out,
                "{} Services: {errors} errors, {warnings} warnings",
                outlook.plans.len()
            )?;
        }
        TextOutput::Json => {
            let services = outlook.plans.len();
            let verdict = Verdict {
                services,
                errors,
                warnings,
                findings: &findings,
            };
            writeln!(out, "{}", serde_json::to_string_pretty(&verdict)?)?;
        }
    }
    Ok(errors == 0)
}

/// Every finding once, by place.
fn findings(outlook: &Outlook) -> Vec<Finding> {
    let about_files = outlook.problems.iter().map(|reason| Finding {
        service: None,
        reason: reason.clone(),
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
