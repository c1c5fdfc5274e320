//! What Kubernetes accepts as a name. Each check answers with the rule that was broken.

/// A rule, in words that complete "it must ...".
pub(super) type Rule = &'static str;

const LABEL: Rule = "must be a DNS label: at most 63 lower-case letters, digits and '-', with a \
                     letter or digit at both ends";
const SUBDOMAIN: Rule = "must be a DNS name: at most 253 lower-case letters, digits, '-' and '.', \
                         with a letter or digit at both ends of each part";
const QUALIFIED: Rule = "must be a name of at most 63 letters, digits, '-', '_' and '.', with a \
                         letter or digit at both ends, after an optional DNS name and '/'";
const LABEL_VALUE: Rule = "must be empty or at most 63 letters, digits, '-', '_' and '.', with a \
                           letter or digit at both ends";
const PORT_NAME: Rule = "must be a port name: at most 15 lower-case letters, digits and single \
                         '-', with a letter somewhere and no '-' at either end";

/// A DNS label (RFC 1123).
pub(super) fn dns_label(text: &str) -> Result<(), Rule> {
    if is_dns_label(text) {
        Ok(())
    } else {
        Err(LABEL)
    }
}

/// DNS labels joined by dots (RFC 1123 subdomain).
pub(super) fn dns_subdomain(text: &str) -> Result<(), Rule> {
    if text.len() <= 253 && text.split('.').all(is_dns_part) {
        Ok(())
    } else {
        Err(SUBDOMAIN)
    }
}

/// A key of labels and annotations, a class, an application protocol: `[prefix/]name`.
pub(super) fn qualified(text: &str) -> Result<(), Rule> {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    let prefix_is_fine = prefix.is_none_or(|prefix| dns_subdomain(prefix).is_ok());
    if prefix_is_fine && is_loose_name(name) {
        Ok(())
    } else {
        Err(QUALIFIED)
    }
}

/// The value of a label.
pub(super) fn label_value(text: &str) -> Result<(), Rule> {
    if text.is_empty() || is_loose_name(text) {
        Ok(())
    } else {
        Err(LABEL_VALUE)
    }
}

/// The name of a container port (RFC 6335, section 5.1).
pub(super) fn port_name(text: &str) -> Result<(), Rule> {
    let bytes = text.as_bytes();
    let fine = (1..=15).contains(&bytes.len())
        && is_dns_part(text)
        && bytes.iter().any(u8::is_ascii_lowercase)
        && !text.contains("--");
    if fine { Ok(()) } else { Err(PORT_NAME) }
}

fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && is_dns_part(text)
}

/// A part of a DNS name, of any length: Kubernetes limits the parts of a subdomain only together.
fn is_dns_part(text: &str) -> bool {
    let is_edge = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(is_edge)
        && bytes.last().is_some_and(is_edge)
        && bytes.iter().all(|byte| is_edge(byte) || *byte == b'-')
}

fn is_loose_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn validate(check: fn(&str) -> Result<(), Rule>, good: &[&str], bad: &[&str]) {
        for text in good {
            assert_eq!(check(text), Ok(()), "{text:?} should be accepted");
        }
        for text in bad {
            assert!(check(text).is_err(), "{text:?} should be refused");
        }
    }

    #[test]
    fn dns_labels_are_short_lower_case_and_without_dots() {
        let longest = "a".repeat(63);
        let too_long = "a".repeat(64);
        validate(
            dns_label,
            &["a", "9", "web-1", "1web", &longest],
            &["", "-a", "a-", "A", "a.b", "a_b", "ä", &too_long],
        );
    }

    #[test]
    fn dns_names_are_labels_joined_by_dots() {
        validate(
            dns_subdomain,
            &["a", "web.shop", "a.b-c.d"],
            &["", ".", "a..b", ".a", "a.", "A.b", &"a.".repeat(127)],
        );
    }

    #[test]
    fn qualified_names_have_at_most_one_prefix() {
        validate(
            qualified,
            &[
                "app",
                "App_1.x",
                "landfall.dev/local",
                "example.com/My.Name",
            ],
            &["", "/", "a/", "/a", "a/b/c", "UPPER.com/x", "x/-a", "x y"],
        );
    }

    #[test]
    fn label_values_may_be_empty() {
        validate(
            label_value,
            &["", "a", "A.b_c-1"],
            &["-a", "a-", "a b", "a/b"],
        );
    }

    #[test]
    fn port_names_hold_a_letter_and_no_double_dash() {
        validate(
            port_name,
            &["http", "p8080", "8080a", "a-b-c"],
            &["", "8080", "a--b", "-a", "a-", "Http", "sixteen-letters-"],
        );
    }
}
