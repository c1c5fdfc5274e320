//! Annotations as values: Go's durations and numbers, the words of the API, texts. Pure.
//!
//! Each is refused for itself, so that a mistake in one keeps no other from being applied.

use landfall_model::dialect::{ExoscaleOptions, Given};
use landfall_model::{Code, Reason};

use crate::objects::{HealthcheckMode, Id, Strategy};

/// The most characters of names, descriptions and paths.
const MAX_TEXT: usize = 255;

/// A value; `None`: there is no annotation.
pub(crate) type Parsed<T> = Result<Option<T>, Box<Reason>>;

/// Returns how an instance is chosen.
pub(crate) fn strategy(options: &ExoscaleOptions) -> Parsed<Strategy> {
    parse(options.strategy.as_ref(), |text| {
        let word = Strategy::from(text.to_owned());
        let known = !matches!(word, Strategy::Other(_));
        known
            .then_some(word)
            .ok_or("write round-robin, source-hash or maglev-hash".to_owned())
    })
}

/// Returns the kind of health check.
pub(crate) fn mode(options: &ExoscaleOptions) -> Parsed<HealthcheckMode> {
    parse(options.healthcheck_mode.as_ref(), |text| {
        let word = HealthcheckMode::from(text.to_owned());
        let known = !matches!(word, HealthcheckMode::Other(_));
        known
            .then_some(word)
            .ok_or("write tcp, http or https".to_owned())
    })
}

/// Returns the port that is checked. As in Go, what is beyond 16 bits is cut off, and zero is as
/// good as absent.
pub(crate) fn port(options: &ExoscaleOptions) -> Parsed<u16> {
    let port = parse(options.healthcheck_port.as_ref(), |text| {
        let number = integer(text)?;
        u16::try_from(number.rem_euclid(1 << 16)).map_err(|why| why.to_string())
    });
    Ok(port?.filter(|port| *port != 0))
}

/// Returns the seconds between two checks.
pub(crate) fn interval(options: &ExoscaleOptions) -> Parsed<u32> {
    let given = options.healthcheck_interval.as_ref();
    parse(given, |text| within(seconds(text)?, 10, (5, 300), " s"))
}

/// Returns the seconds until a check fails.
pub(crate) fn timeout(options: &ExoscaleOptions) -> Parsed<u32> {
    let given = options.healthcheck_timeout.as_ref();
    parse(given, |text| within(seconds(text)?, 2, (2, 60), " s"))
}

/// Returns how many checks must fail before an instance is down.
pub(crate) fn retries(options: &ExoscaleOptions) -> Parsed<u32> {
    let given = options.healthcheck_retries.as_ref();
    parse(given, |text| within(integer(text)?, 1, (1, 20), ""))
}

/// Returns a text of at least `min` characters.
pub(crate) fn text(given: Option<&Given<String>>, min: usize) -> Parsed<String> {
    parse(given, |text| {
        let fits = (min..=MAX_TEXT).contains(&text.chars().count());
        fits.then(|| text.to_owned())
            .ok_or_else(|| format!("write {min} to {MAX_TEXT} characters"))
    })
}

/// Returns a text that is as good as absent if it is empty.
pub(crate) fn some_text(given: Option<&Given<String>>) -> Parsed<String> {
    Ok(text(given, 0)?.filter(|text| !text.is_empty()))
}

/// Returns an id.
pub(crate) fn id(given: Option<&Given<String>>) -> Parsed<Id> {
    parse(given, |text| {
        Id::parse(text).ok_or_else(|| "write a UUID, or remove it".to_owned())
    })
}

/// Returns why an annotation is refused.
fn refusal(given: &Given<String>, remedy: impl Into<String>) -> Reason {
    Reason::error(Code::InvalidAnnotation, "not a value of this option")
        .at_annotation(&given.annotation)
        .value(given.value.as_str())
        .remedy(remedy)
}

fn parse<T>(
    given: Option<&Given<String>>,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Parsed<T> {
    let Some(given) = given else {
        return Ok(None);
    };
    let refuse = |remedy| Box::new(refusal(given, remedy));
    read(&given.value).map(Some).map_err(refuse)
}

/// A number in bounds; zero is not sent, and then `default` holds in the cloud.
fn within(number: i64, default: u32, bounds: (u32, u32), unit: &str) -> Result<u32, String> {
    if number == 0 {
        return Ok(default);
    }
    let (min, max) = bounds;
    let fits = u32::try_from(number).ok();
    fits.filter(|number| (min..=max).contains(number))
        .ok_or_else(|| format!("Exoscale takes {min}{unit} to {max}{unit}"))
}

/// A number as Go's `strconv.Atoi` reads it.
fn integer(text: &str) -> Result<i64, String> {
    let why = || "write a whole number".to_owned();
    text.parse().map_err(|_| why())
}

/// The whole seconds of a duration as Go's `time.ParseDuration` reads it.
fn seconds(text: &str) -> Result<i64, String> {
    const UNITS: [(&str, u128); 8] = [
        ("ns", 1),
        ("us", 1_000),
        ("\u{b5}s", 1_000),
        ("\u{3bc}s", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("m", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ];
    let why = || "write numbers with units, such as 10s, 1m30s or 1500ms".to_owned();
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(why());
    }
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let (number, behind) = rest.split_at(rest.find(|c| !is_number(c)).ok_or_else(why)?);
        let (unit, next) = behind.split_at(behind.find(is_number).unwrap_or(behind.len()));
        let (_, nanoseconds) = UNITS.iter().find(|it| it.0 == unit).ok_or_else(why)?;
        let part = parts(number, *nanoseconds).ok_or_else(why)?;
        total = total.checked_add(part).ok_or_else(why)?;
        rest = next;
    }
    // Go's durations have 63 bits.
    let nanoseconds = i64::try_from(total).map_err(|_| why())?;
    let seconds = nanoseconds / 1_000_000_000;
    Ok(if negative { -seconds } else { seconds })
}

/// A decimal number of units in nanoseconds, cut toward zero.
fn parts(number: &str, unit: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let whole = if whole.is_empty() {
        0
    } else {
        whole.parse::<u64>().ok()?
    };
    let mut sum = u128::from(whole).checked_mul(unit)?;
    let mut place = unit;
    for digit in fraction.bytes() {
        place /= 10;
        sum = sum.checked_add(u128::from(digit - b'0') * place)?;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_go_in_whole_seconds() {
        for (text, expected) in [
            ("10s", 10),
            ("1m30s", 90),
            ("1.5m", 90),
            ("1500ms", 1),
            ("900ms", 0),
            ("+5s", 5),
            ("-5s", -5),
            ("0", 0),
            (".5m", 30),
            ("1h", 3600),
            ("2s500ms", 2),
        ] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for text in [
            "", "10", "10 s", "1d", " 10s", "s", "1..5s", ".s", "-", "1e3s", "9999999h",
        ] {
            assert!(seconds(text).is_err(), "{text:?}");
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "as options are given")]
    fn some(value: &str) -> Option<Given<String>> {
        Some(Given {
            value: value.to_owned(),
            annotation: "a".to_owned(),
        })
    }

    #[test]
    fn a_port_is_cut_to_16_bits_and_zero_is_none() {
        for (text, expected) in [
            ("31000", Some(31_000)),
            ("65616", Some(80)),
            ("-1", Some(65_535)),
            ("007", Some(7)),
            ("0", None),
        ] {
            let options = ExoscaleOptions {
                healthcheck_port: some(text),
                ..ExoscaleOptions::default()
            };
            assert_eq!(port(&options), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_refused_names_the_annotation_the_value_and_what_would_do() {
        let options = ExoscaleOptions {
            strategy: some("least-conn"),
            healthcheck_interval: some("10"),
            healthcheck_timeout: some("90s"),
            healthcheck_retries: some("0x1"),
            name: some(""),
            load_balancer: some("abc"),
            ..ExoscaleOptions::default()
        };
        let refused = [
            strategy(&options).map(drop),
            interval(&options).map(drop),
            timeout(&options).map(drop),
            retries(&options).map(drop),
            text(options.name.as_ref(), 1).map(drop),
            id(options.load_balancer.as_ref()).map(drop),
        ];
        for result in refused {
            let reason = result.unwrap_err();
            assert_eq!(reason.code, Code::InvalidAnnotation);
            assert_eq!(reason.field.as_deref(), Some("metadata.annotations[a]"));
            assert!(reason.value.is_some() && !reason.remedy.is_empty());
        }
        let none = ExoscaleOptions::default();
        assert_eq!(strategy(&none), Ok(None));
        let zero = ExoscaleOptions {
            healthcheck_timeout: some("900ms"),
            ..none
        };
        assert_eq!(timeout(&zero), Ok(Some(2)), "zero is not sent");
    }
}
