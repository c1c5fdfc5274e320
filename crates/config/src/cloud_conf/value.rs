//! The types of values, with the rules of the reference's parser. Errors say what would be right.

use std::time::Duration;

/// `true`, `yes`, `on`, `1` and their opposites, in any case.
pub(super) fn flag(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err("neither true nor false; write one of them".to_owned()),
    }
}

/// A whole number from 0 up, decimal or `0x` hexadecimal. Zeros in front do not make it octal.
pub(super) fn count(text: &str) -> Result<u32, String> {
    let text = text.trim();
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    // A sign is no digit, though Rust would take a `+`.
    let digits = digits.strip_prefix('+').map_or(digits, |_| "");
    let parsed = u32::from_str_radix(digits, radix);
    parsed.map_err(|_| {
        "not a whole number from 0 up; write digits, such as 3, or hexadecimal ones, such as 0x3"
            .to_owned()
    })
}

/// A whole number, decimal or `0x` hexadecimal, where all below zero say the same as zero.
pub(super) fn at_least_none(text: &str) -> Result<u32, String> {
    let text = text.trim();
    match text.strip_prefix('-') {
        Some(digits) if digits.starts_with(|first: char| first.is_ascii_digit()) => {
            count(digits).map(|_| 0)
        }
        _ => count(text.strip_prefix('+').unwrap_or(text)),
    }
    .map_err(|_| {
        "not a whole number; write digits, such as 3, or hexadecimal ones, such as 0x3".to_owned()
    })
}

const UNITS: [(&str, u128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];
/// What a duration of Go can hold: 292 years.
const LONGEST: u128 = i64::MAX.cast_unsigned() as u128;

/// A duration as Go writes it: numbers, each with a unit. Only `0` may stand without one.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let unreadable = || {
        "not a time; write numbers with the units h, m, s or ms, such as 30s or 1m30s".to_owned()
    };
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(unreadable());
    }
    let mut nanoseconds: u128 = 0;
    while !rest.is_empty() {
        let (whole, behind) = split(rest, |letter| letter.is_ascii_digit());
        let (fraction, behind) = match behind.strip_prefix('.') {
            Some(behind) => split(behind, |letter| letter.is_ascii_digit()),
            None => ("", behind),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(unreadable());
        }
        let (unit, next) = split(behind, |letter| letter != '.' && !letter.is_ascii_digit());
        if unit.is_empty() {
            return Err(format!(
                "a time needs a unit; write {text}s for {text} seconds"
            ));
        }
        let Some((_, unit)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(unreadable());
        };
        let too_long = || "too long a time; the maximum is 292 years".to_owned();
        let number = |digits: &str| match digits {
            "" => Ok(0),
            // So many digits that none of these products can overflow.
            digits => digits.parse::<u64>().map_err(|_| too_long()),
        };
        // Digits below a nanosecond's share of an hour change nothing.
        let fraction = fraction.get(..18).unwrap_or(fraction);
        let places = 10_u128.pow(u32::try_from(fraction.len()).unwrap_or(0));
        nanoseconds += u128::from(number(whole)?) * unit;
        nanoseconds += u128::from(number(fraction)?) * unit / places;
        if nanoseconds > LONGEST {
            return Err(too_long());
        }
        rest = next;
    }
    if negative && nanoseconds > 0 {
        return Err("a time can't be negative".to_owned());
    }
    Ok(Duration::from_nanos(
        u64::try_from(nanoseconds).unwrap_or(u64::MAX),
    ))
}

fn split(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|letter| !belongs(letter)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn flags_are_read_in_every_case() {
        for text in ["true", "True", "YES", "on", "1"] {
            assert_eq!(flag(text), Ok(true), "{text}");
        }
        for text in ["false", "No", "OFF", "0"] {
            assert_eq!(flag(text), Ok(false), "{text}");
        }
        for text in ["", "t", "2", "enabled", " true"] {
            assert!(flag(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn counts_are_decimal_or_hexadecimal() {
        for (text, expected) in [("0", 0), ("3", 3), ("010", 10), ("0x1F", 31), (" 7 ", 7)] {
            assert_eq!(count(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "-1",
            "+1",
            "0x",
            "0x+1",
            "1.5",
            "three",
            "4294967296",
            "1_000",
        ] {
            assert!(count(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn numbers_below_zero_are_as_good_as_zero() {
        for (text, expected) in [("-1", 0), ("-0x10", 0), ("0", 0), ("+2", 2), (" 7 ", 7)] {
            assert_eq!(at_least_none(text), Ok(expected), "{text}");
        }
        for text in ["", "-", "--1", "-+1", "+-1", "1.5", "two", "- 1"] {
            assert!(at_least_none(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn durations_are_those_of_go() {
        for (text, milliseconds) in [
            ("5s", 5_000),
            ("1m30s", 90_000),
            ("500ms", 500),
            ("1.5h", 5_400_000),
            (".5s", 500),
            ("1.s", 1_000),
            ("30s1m", 90_000),
            ("0", 0),
            ("-0", 0),
            ("+2s", 2_000),
            ("3000us", 3),
            ("3000µs", 3),
        ] {
            assert_eq!(
                duration(text),
                Ok(Duration::from_millis(milliseconds)),
                "{text}"
            );
        }
    }

    #[test]
    fn a_bare_number_names_the_fix() {
        assert_eq!(
            duration("5").unwrap_err(),
            "a time needs a unit; write 5s for 5 seconds"
        );
        for text in [
            "", "s", "5 s", "5S", "1d", "five", ".s", "-", "--5s", "5s ", "ÿs",
        ] {
            assert!(
                duration(text).unwrap_err().starts_with("not a time"),
                "{text:?}"
            );
        }
        assert_eq!(duration("-5s").unwrap_err(), "a time can't be negative");
        for text in ["2562048h", "9223372036854775808ns", "99999999999999999999h"] {
            assert!(
                duration(text).unwrap_err().starts_with("too long"),
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_them_panic(
            text in prop_oneof![any::<String>(), "[-+]?([0-9.]{0,30}(ns|us|ms|s|m|h|x|é)?){0,4}"],
        ) {
            let _ = (flag(&text), count(&text), at_least_none(&text), duration(&text));
        }

        #[test]
        fn whole_seconds_are_read_as_such(seconds in 0..9_000_000_000_u64) {
            prop_assert_eq!(duration(&format!("{seconds}s")), Ok(Duration::from_secs(seconds)));
            let (hours, left) = (seconds / 3600, seconds % 3600);
            let text = format!("{hours}h{}m{}s", left / 60, left % 60);
            prop_assert_eq!(duration(&text), Ok(Duration::from_secs(seconds)));
        }
    }
}
