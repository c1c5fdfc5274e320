//! Numbers that a dialect accepts because the API of one provider does: refused here for providers
//! whose API does not validate them.

use std::fmt::Display;
use std::time::Duration;

use landfall_model::dialect::show_duration;
use landfall_model::{Code, Reason};

use super::ResolveContext;
use super::findings::Findings;
use super::layers::Choice;

/// Longest timeout of a listener, and what stands for none at all.
const A_DAY: Duration = Duration::from_hours(24);
const AN_HOUR: Duration = Duration::from_hours(1);
const MILLISECOND: Duration = Duration::from_millis(1);

/// A timeout of a listener. Where the default is not to wait, zero means that; else it means
/// never.
pub(super) fn timeout(
    scene: &ResolveContext<'_>,
    choice: &Choice<'_, Duration>,
    default: Duration,
    findings: &mut Findings<'_>,
) -> Duration {
    let time = *choice.take(findings);
    if scene.profile.validates_numbers {
        return time;
    }
    if time.is_zero() && !default.is_zero() {
        return A_DAY;
    }
    if time > A_DAY {
        refuse(
            scene,
            choice,
            show_duration(time),
            format!("write at most {}", show_duration(A_DAY)),
            findings,
        );
    }
    time
}

/// How many connections may be open at once.
pub(super) fn connection_limit(
    scene: &ResolveContext<'_>,
    choice: &Choice<'_, Option<u32>>,
    findings: &mut Findings<'_>,
) -> Option<u32> {
    let limit = *choice.take(findings);
    if limit == Some(0) && !scene.profile.validates_numbers {
        let remedy = "write a number of at least 1, or -1 for no limit".to_owned();
        refuse(scene, choice, 0, remedy, findings);
    }
    limit
}

/// A time of a monitor.
pub(super) fn of_monitor(
    scene: &ResolveContext<'_>,
    choice: &Choice<'_, Duration>,
    findings: &mut Findings<'_>,
) -> Duration {
    let time = *choice.take(findings);
    if !scene.profile.validates_numbers && !(MILLISECOND..=AN_HOUR).contains(&time) {
        let (least, most) = (show_duration(MILLISECOND), show_duration(AN_HOUR));
        let remedy = format!("write a time from {least} to {most}");
        refuse(scene, choice, show_duration(time), remedy, findings);
    }
    time
}

fn refuse<T>(
    scene: &ResolveContext<'_>,
    choice: &Choice<'_, T>,
    value: impl Display,
    remedy: String,
    findings: &mut Findings<'_>,
) {
    let provider = scene.profile.provider;
    let reason = Reason::error(
        Code::InvalidAnnotation,
        format!("the provider {provider} does not support {value} here"),
    )
    .remedy(remedy);
    findings.push(findings.at(reason, &choice.given.annotation));
}
