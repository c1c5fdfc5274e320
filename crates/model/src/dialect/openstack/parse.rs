//! Rows and values of the dialect of cloud-provider-openstack, with the fallbacks of the reference.

use std::time::Duration;

use super::PREFIX;
use crate::dialect::given::{Given, put};
use crate::dialect::options::{ForwardedHeaders, ModeChoice, PortOptions, ServiceOptions};
use crate::dialect::value::Refusal;
use crate::dialect::{AnnotationError, DialectId, Effect, OptionRow, Outcome, Text};
use crate::listener::ProxyProtocol;
use crate::reason::Severity;

/// Where `cloud.conf` may say otherwise than the documentation.
pub(super) const THE_DEFAULT: &str = "the default";

/// Returns a row about something that only OpenStack has.
pub(super) const fn extension(
    name: &'static str,
    takes: &'static str,
    summary: &'static str,
    example: &'static str,
    severity: Severity,
    why: &'static str,
    set: fn(&mut ServiceOptions, Text<'_>) -> Result<Outcome, AnnotationError>,
) -> OptionRow {
    OptionRow {
        name,
        takes,
        default: "none",
        summary,
        example,
        effect: Effect::Extension {
            of: DialectId::OpenStack,
            set,
            severity,
            why,
        },
    }
}

/// A text, even an empty one.
pub(super) fn text(
    slot: &mut Option<Given<String>>,
    text: Text<'_>,
) -> Result<Outcome, AnnotationError> {
    put(slot, text, text.value.trim().to_owned())
}

/// A text; an empty one is as good as none.
pub(super) fn some(
    slot: &mut Option<Given<String>>,
    text: Text<'_>,
) -> Result<Outcome, AnnotationError> {
    if text.value.trim().is_empty() {
        return Ok(Outcome::Nothing);
    }
    put(slot, text, text.value.trim().to_owned())
}

/// Words with commas between them.
pub(super) fn list(
    slot: &mut Option<Given<Vec<String>>>,
    text: Text<'_>,
) -> Result<Outcome, AnnotationError> {
    let words = text.value.split(',').map(str::trim);
    let words: Vec<String> = words
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect();
    if words.is_empty() {
        return Ok(Outcome::Nothing);
    }
    put(slot, text, words)
}

/// Only `true` and `false`; the reference takes anything else for the default.
pub(super) fn boolean(text: Text<'_>, default: &'static str) -> Result<bool, AnnotationError> {
    match text.value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(AnnotationError::Replaced {
            refusal: Refusal::new(
                "neither true nor false",
                "write true or false in lower case",
            ),
            by: default,
        }),
    }
}

/// A whole number; the reference takes anything else for the default.
pub(super) fn integer(text: Text<'_>, default: &'static str) -> Result<i64, AnnotationError> {
    text.value.parse().map_err(|_| AnnotationError::Replaced {
        refusal: Refusal::new(
            "not a whole number",
            "write digits only: units such as s or min are not understood by this option",
        ),
        by: default,
    })
}

/// The reference passes numbers on unchecked, and Octavia refuses those out of bounds.
pub(super) fn within<T: TryFrom<i64>>(
    number: i64,
    least: i64,
    most: i64,
) -> Result<T, AnnotationError> {
    let refusal = || {
        Refusal::new(
            "out of the bounds of Octavia's API",
            format!("write a number from {least} to {most}"),
        )
    };
    if !(least..=most).contains(&number) {
        return Err(refusal().into());
    }
    T::try_from(number).map_err(|_| refusal().into())
}

/// What Octavia takes; other providers validate for themselves.
pub(super) fn timeout(text: Text<'_>, default: &'static str) -> Result<Duration, AnnotationError> {
    within(integer(text, default)?, 0, 2_073_600_000).map(Duration::from_millis)
}

pub(super) fn seconds(text: Text<'_>, least: i64) -> Result<Duration, AnnotationError> {
    of_monitor(text, least, i64::from(i32::MAX)).map(Duration::from_secs)
}

/// A number of a monitor, which does no harm without a monitor.
pub(super) fn of_monitor<T: TryFrom<i64>>(
    text: Text<'_>,
    least: i64,
    most: i64,
) -> Result<T, AnnotationError> {
    within(integer(text, THE_DEFAULT)?, least, most).map_err(|complaint| match complaint {
        AnnotationError::Invalid(refusal) => AnnotationError::OfMonitor(refusal),
        other => other,
    })
}

pub(super) fn proxy_protocol(
    port: &mut PortOptions,
    text: Text<'_>,
) -> Result<Outcome, AnnotationError> {
    let version = match text.value {
        "true" | "v1" => Some(ProxyProtocol::V1),
        "v2" => Some(ProxyProtocol::V2),
        "false" | "off" | "" => None,
        _ => {
            return Err(AnnotationError::Replaced {
                refusal: Refusal::new("not a version of the PROXY protocol", "write v1 or v2"),
                by: "off",
            });
        }
    };
    put(&mut port.proxy_protocol, text, version)
}

/// `true` turns one header on, and with it the mode that reads requests.
pub(super) fn forwarded(
    port: &mut PortOptions,
    text: Text<'_>,
    header: fn(&mut ForwardedHeaders) -> &mut bool,
) -> Result<Outcome, AnnotationError> {
    if !boolean(text, "false")? {
        return Ok(Outcome::Nothing);
    }
    let mut outcome = Outcome::Nothing;
    match &port.mode {
        None => outcome = put(&mut port.mode, text, ModeChoice::Http)?,
        Some(mode) if mode.value.reads_requests() => {}
        Some(mode) => {
            return Err(AnnotationError::Overridden {
                by: mode.annotation.clone(),
            });
        }
    }
    let given = port.forwarded_headers.get_or_insert_with(|| {
        outcome = Outcome::Decided;
        Given {
            value: ForwardedHeaders::NONE,
            annotation: text.annotation.to_owned(),
        }
    });
    let on = header(&mut given.value);
    // The three keys of this dialect add up; what another dialect has chosen stands.
    if given.annotation.starts_with(PREFIX) {
        *on = true;
    }
    if *on {
        Ok(outcome)
    } else {
        Err(AnnotationError::Overridden {
            by: given.annotation.clone(),
        })
    }
}
