//! What a plain (unquoted) scalar means.
//!
//! Kubernetes' tools read YAML 1.1 here: `yes` and `on` are truth values, `0x1F`, `0o17` and `017`
//! are numbers. Following them matters less for what is accepted than for what is refused: where
//! kubectl would refuse an unquoted `on` as an annotation, so do we.

/// A plain scalar, resolved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Resolved {
    /// Nothing.
    Null,
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A whole number beyond `i64`.
    BigInt(u64),
    /// A number that is not whole, or beyond every integer.
    Float(f64),
    /// Everything else.
    Text,
}

/// Resolves a plain scalar.
pub(super) fn resolve(text: &str) -> Resolved {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Resolved::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "y" | "Y" | "on" | "On" | "ON" => {
            Resolved::Bool(true)
        }
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "n" | "N" | "off" | "Off" | "OFF" => {
            Resolved::Bool(false)
        }
        ".nan" | ".NaN" | ".NAN" => Resolved::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Resolved::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Resolved::Float(f64::NEG_INFINITY),
        _ => number(text).unwrap_or(Resolved::Text),
    }
}

fn number(text: &str) -> Option<Resolved> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let digits = digits.replace('_', "");
    match whole(&digits) {
        Some(magnitude) => Some(signed(negative, magnitude)),
        None => fraction(&digits).map(|size| Resolved::Float(if negative { -size } else { size })),
    }
}

fn whole(digits: &str) -> Option<u64> {
    let prefixes = [("0x", 16), ("0X", 16), ("0o", 8), ("0b", 2), ("0B", 2)];
    for (prefix, radix) in prefixes {
        if let Some(rest) = digits.strip_prefix(prefix) {
            // `from_str_radix` would take a second sign.
            let plain = rest.starts_with(|c: char| c.is_ascii_hexdigit());
            return plain.then(|| u64::from_str_radix(rest, radix).ok())?;
        }
    }
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let legacy_octal = digits.len() > 1 && digits.starts_with('0');
    u64::from_str_radix(digits, if legacy_octal { 8 } else { 10 }).ok()
}

fn signed(negative: bool, magnitude: u64) -> Resolved {
    match (negative, i64::try_from(magnitude)) {
        (false, Ok(number)) => Resolved::Int(number),
        (true, Ok(number)) => Resolved::Int(-number),
        (false, Err(_)) => Resolved::BigInt(magnitude),
        (true, Err(_)) => Resolved::Float(-(magnitude as f64)),
    }
}

fn fraction(digits: &str) -> Option<f64> {
    let written_as_number = digits.bytes().any(|byte| byte.is_ascii_digit())
        && digits
            .bytes()
            .all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte));
    written_as_number.then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_mean_what_kubectl_takes_them_for() {
        let cases = [
            ("", Resolved::Null),
            ("~", Resolved::Null),
            ("null", Resolved::Null),
            ("yes", Resolved::Bool(true)),
            ("Off", Resolved::Bool(false)),
            ("80", Resolved::Int(80)),
            ("-1", Resolved::Int(-1)),
            ("+7", Resolved::Int(7)),
            ("1_000", Resolved::Int(1000)),
            ("0x1F", Resolved::Int(31)),
            ("0o17", Resolved::Int(15)),
            ("017", Resolved::Int(15)),
            ("0b11", Resolved::Int(3)),
            ("0", Resolved::Int(0)),
            ("18446744073709551615", Resolved::BigInt(u64::MAX)),
            ("1.5", Resolved::Float(1.5)),
            ("-1e3", Resolved::Float(-1000.0)),
            (".5", Resolved::Float(0.5)),
            ("099", Resolved::Float(99.0)),
            (".inf", Resolved::Float(f64::INFINITY)),
        ];
        for (text, expected) in cases {
            assert_eq!(resolve(text), expected, "{text:?}");
        }
    }

    #[test]
    fn what_only_looks_like_a_number_is_a_text() {
        for text in [
            "1.2.3.4",
            "10.0.0.0/8",
            "30s",
            "v1",
            "-",
            "+",
            ".",
            "--1",
            "0x",
            "0x-1",
            "1-2",
            "e3",
            "Null!",
            "yes please",
            "2026-01-01",
        ] {
            assert_eq!(resolve(text), Resolved::Text, "{text:?}");
        }
    }
}
