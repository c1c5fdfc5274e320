//! Versions of Octavia's API: they say which fields it knows.

use std::fmt;

use serde_json::Value;

/// A version of an API, such as 2.27.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApiVersion {
    /// Changes with the paths.
    pub major: u16,
    /// Grows with each field.
    pub minor: u16,
}

// === impl ApiVersion ===

impl ApiVersion {
    /// A version by its numbers.
    pub const fn new(major: u16, minor: u16) -> Self {
        Self { major, minor }
    }

    /// Reads `v2.27`; `v2` is 2.0.
    pub fn parse(id: &str) -> Option<Self> {
        let number = id.strip_prefix('v')?;
        let (major, minor) = number.split_once('.').unwrap_or((number, "0"));
        Some(Self {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
        })
    }

    /// The highest of a version document.
    pub(super) fn highest(document: &Value) -> Option<Self> {
        let versions = document.get("versions")?.as_array()?;
        let ids = versions.iter().filter_map(|version| version["id"].as_str());
        ids.filter_map(Self::parse).max()
    }
}

impl fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_highest_version_counts_wherever_it_stands() {
        let document =
            json!({"versions": [{"id": "v1"}, {"id": "v2.9"}, {"id": "v2.10"}, {"id": "v2.0"}]});
        assert_eq!(ApiVersion::highest(&document), Some(ApiVersion::new(2, 10)));
        assert!(ApiVersion::new(2, 10) > ApiVersion::new(2, 9));
        assert_eq!(ApiVersion::new(2, 10).to_string(), "2.10");
    }

    #[test]
    fn a_document_without_versions_is_no_version() {
        for document in [
            json!({}),
            json!({"versions": []}),
            json!({"versions": [{"id": "latest"}, {"id": "v2.x"}, {}]}),
            json!("<html>"),
        ] {
            assert_eq!(ApiVersion::highest(&document), None, "{document}");
        }
    }
}
