//! The survey for people. Pure.

use std::fmt::Write as _;

use super::obstacles::Obstacle;
use super::survey::{Kept, Survey, Takeover};
use crate::text::counted;

/// Returns the survey as lines. `assumed`: the configuration that it supposes.
pub fn describe(survey: &Survey, assumed: Option<&str>) -> String {
    let mut text = String::new();
    for problem in &survey.problems {
        let _ = writeln!(text, "{}: {problem}", problem.severity);
    }
    for takeover in &survey.services {
        service(&mut text, takeover);
    }
    obstacles(&mut text, "first:", &survey.first);
    obstacles(
        &mut text,
        "then landfall adopt metallb --apply, and afterwards:",
        &survey.next,
    );
    if let Some(assumed) = assumed {
        let _ = writeln!(
            text,
            "with this landfall.yaml, as none was named by --config:"
        );
        for line in assumed.lines() {
            let _ = writeln!(text, "  {line}");
        }
    }
    summary(&mut text, survey);
    text
}

fn service(text: &mut String, takeover: &Takeover) {
    let _ = writeln!(text, "{} ({})", takeover.service, takeover.instance);
    for kept in &takeover.addresses {
        let _ = writeln!(text, "  {}", address(kept, takeover));
    }
    if takeover.addresses.is_empty() {
        text.push_str("  has no address\n");
    }
    if !takeover.addresses.is_empty() && !takeover.announced_by.is_empty() {
        let elected = takeover
            .addresses
            .iter()
            .find_map(|it| it.metallb_elects.as_ref());
        let nodes: Vec<&String> = takeover.announced_by.iter().collect();
        if nodes != elected.into_iter().collect::<Vec<_>>() {
            let nodes: Vec<&str> = nodes.iter().map(|it| it.as_str()).collect();
            let _ = writeln!(text, "  MetalLB announces it from {} now", nodes.join(", "));
        }
    }
    for step in &takeover.steps {
        let _ = writeln!(text, "  {}\n      because {}", step.step, step.because);
    }
    for reason in &takeover.reasons {
        let _ = writeln!(text, "  {}: {reason}", reason.severity);
    }
}

/// Returns what becomes of one address: `keeps 192.0.2.1 of pool lan, announced from n1`.
fn address(kept: &Kept, takeover: &Takeover) -> String {
    let stays = takeover.after.contains(&kept.address);
    let mut text = format!("{} {}", if stays { "keeps" } else { "loses" }, kept.address);
    if let Some(pool) = &kept.pool {
        let _ = write!(text, " of pool {pool}");
    }
    let node = |node: &Option<String>| node.clone().unwrap_or_else(|| "no node".to_owned());
    let (before, after) = (node(&kept.metallb_elects), node(&kept.landfall_elects));
    if before == after {
        let _ = write!(text, ", announced from {before}");
    } else {
        let _ = write!(
            text,
            ", announced from {before} by MetalLB, from {after} by Landfall"
        );
    }
    text
}

fn obstacles(text: &mut String, title: &str, obstacles: &[Obstacle]) {
    if obstacles.is_empty() {
        return;
    }
    let _ = writeln!(text, "{title}");
    for Obstacle { what, remedy, .. } in obstacles {
        let _ = writeln!(text, "  {what}\n      {remedy}");
    }
}

fn summary(text: &mut String, survey: &Survey) {
    let services = &survey.services;
    let count = |which: &dyn Fn(&&Takeover) -> bool| services.iter().filter(which).count();
    let moved = count(&|it| it.moves);
    let changed = count(&|it| it.changes_node());
    let done = count(&|it| it.taken_over);
    let written = count(&|it| !it.taken_over && !it.addresses.is_empty() && !it.is_refused());
    let _ = writeln!(
        text,
        "{}: {moved} would lose an address, {changed} would be announced from another node, {done} \
         taken over already; --apply writes the status of {} and an annotation of {}",
        counted(services.len(), "Service"),
        counted(written, "other"),
        counted(survey.pools.len(), "pool"),
    );
}
