//! The name of an image: where it is, and its tag.

use std::fmt;
use std::str::FromStr;

use anyhow::bail;

/// `REPOSITORY:TAG`. Without a tag it is our version: `latest` names no image in particular.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    repository: String,
    tag: String,
}

/// No engine takes this for a registry, so a cluster that lacks the image says so instead
/// of fetching an image of another publisher.
pub const REPOSITORY: &str = "localhost/landfall";

/// What is in the image.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Longest tag.
const TAG: usize = 128;

// === impl Name ===

impl Name {
    /// The part after the last colon.
    pub fn tag(&self) -> &str {
        &self.tag
    }
}

impl Default for Name {
    fn default() -> Self {
        Self {
            repository: REPOSITORY.to_owned(),
            tag: VERSION.to_owned(),
        }
    }
}

impl FromStr for Name {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        // A colon before the last slash belongs to a port.
        let path_from = text.rfind('/').map_or(0, |slash| slash + 1);
        let (repository, tag) = match text.rfind(':').filter(|colon| *colon >= path_from) {
            Some(colon) => (
                text.get(..colon).unwrap_or_default(),
                text.get(colon + 1..).unwrap_or_default(),
            ),
            None => (text, VERSION),
        };
        let mut parts = repository.split('/');
        let host_or_part = parts.next().unwrap_or_default();
        let host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
        let part =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_".contains(&byte);
        let has_path = repository.contains('/');
        let host_fits = if has_path {
            host_or_part.bytes().all(host)
        } else {
            host_or_part.bytes().all(part)
        };
        if host_or_part.is_empty()
            || !host_fits
            || parts.any(|name| name.is_empty() || !name.bytes().all(part))
        {
            bail!(
                "{repository:?} is no repository: lower-case letters, digits, '.', '-' and '_' \
                between slashes, as in {REPOSITORY}"
            );
        }
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if tag.is_empty()
            || tag.len() > TAG
            || !tag
                .bytes()
                .all(|byte| letter(byte) || b".-".contains(&byte))
            || !tag.bytes().next().is_some_and(letter)
        {
            bail!("{tag:?} is no tag: at most {TAG} letters, digits, '.', '-' and '_'");
        }
        Ok(Self {
            repository: repository.to_owned(),
            tag: tag.to_owned(),
        })
    }
}

impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.repository, self.tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> String {
        text.parse::<Name>()
            .map_or_else(|error| error.to_string(), |name| name.to_string())
    }

    #[test]
    fn a_name_may_have_a_port_and_needs_no_tag() {
        assert_eq!(Name::default().to_string(), parsed(REPOSITORY));
        assert_eq!(parsed("landfall"), format!("landfall:{VERSION}"));
        assert_eq!(
            parsed("registry.example.com:5000/net/landfall:v1_x"),
            "registry.example.com:5000/net/landfall:v1_x"
        );
        assert_eq!(parsed("host:5000/a"), format!("host:5000/a:{VERSION}"));
    }

    #[test]
    fn what_no_registry_takes_is_refused() {
        for text in [
            "",
            ":1",
            "a//b",
            "/a",
            "Upper",
            "a/Upper",
            "a b",
            "a:",
            "a:.x",
            "a:b c",
            "a@sha256:1",
        ] {
            assert!(
                parsed(text).contains(" is no "),
                "{text:?}: {}",
                parsed(text)
            );
        }
        assert!(parsed(&format!("a:{}", "x".repeat(129))).contains("is no tag"));
    }
}
