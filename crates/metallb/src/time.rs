//! Times as Kubernetes writes them: Go's notation, `1m30s`.

use std::str::FromStr;
use std::time::Duration;

use jiff::SignedDuration;

/// A time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GoDuration(pub(crate) Duration);

/// The remedy for a text that can't be read.
pub(crate) const REMEDY: &str = "write numbers with units, such as 90s, 1m30s or 500ms";

impl FromStr for GoDuration {
    type Err = ();

    /// Reads a time that is not negative. A bare `0` needs no unit.
    fn from_str(text: &str) -> Result<Self, ()> {
        if text == "0" {
            return Ok(Self(Duration::ZERO));
        }
        // The library also reads ISO 8601, spaces and long names, which other readers of these
        // objects do not.
        let of_go = |it: char| it.is_ascii_digit() || ".hmsunµ".contains(it);
        let time: Option<SignedDuration> = text.parse().ok().filter(|_| text.chars().all(of_go));
        let time = time.and_then(|time| Duration::try_from(time).ok());
        time.map(Self).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_times_are_read_and_other_notations_are_not() {
        for (text, millis) in [
            ("0", Some(0)),
            ("0s", Some(0)),
            ("90s", Some(90_000)),
            ("1m30s", Some(90_000)),
            ("1m30.5s", Some(90_500)),
            ("500ms", Some(500)),
            ("1h", Some(3_600_000)),
            ("90", None),
            ("", None),
            ("-3s", None),
            ("PT90S", None),
            ("1 minute", None),
            ("1d", None),
            ("s", None),
        ] {
            let read = text.parse::<GoDuration>().ok();
            let read = read.map(|time| time.0.as_millis());
            assert_eq!(read, millis, "{text:?}");
        }
    }
}
