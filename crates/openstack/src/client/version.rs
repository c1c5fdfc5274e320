//! Versions of Octavia's API: they say which fields it knows.

use std::fmt;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::ApiError;

/// A version of an API, such as 2.27.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApiVersion {
    /// Changes with the paths.
    pub major: u16,
    /// Grows with each field.
    pub minor: u16,
}

/// The version that was asked for last, and when.
#[derive(Debug, Default)]
pub(super) struct LastVersion(Mutex<Option<(Instant, ApiVersion)>>);

/// For so long a version is believed: an Octavia that was upgraded meanwhile can do more.
const LASTING: Duration = Duration::from_secs(3600);

// === impl LastVersion ===

impl LastVersion {
    /// Returns the version, and asks for it where it is not known or was asked for long ago. One
    /// that is known holds as long as no other can be had; an error is not kept.
    pub(super) async fn get(
        &self,
        ask: impl AsyncFnOnce() -> Result<ApiVersion, ApiError>,
    ) -> Result<ApiVersion, ApiError> {
        let mut last = self.0.lock().await;
        let known = *last;
        if let Some((at, version)) = known
            && at.elapsed() < LASTING
        {
            return Ok(version);
        }
        let version = match (ask().await, known) {
            (Err(error), Some((_, version))) => {
                tracing::debug!(%error, %version, "the version can't be asked for again");
                version
            }
            (asked, _) => asked?,
        };
        *last = Some((Instant::now(), version));
        Ok(version)
    }
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
