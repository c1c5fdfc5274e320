//! What `landfall.yaml` says of the access log.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Millionths in one.
const MILLION: u32 = 1_000_000;

/// A line for each request, connection and UDP flow when it ends. The command line takes
/// precedence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AccessLogConfig {
    /// The file that gets the lines; `-` is standard output. A file that was moved away is created
    /// again.
    #[schemars(with = "String", length(min = 1))]
    pub file: PathBuf,
    /// The format of lines.
    #[serde(default)]
    pub format: AccessLogFormat,
    /// The fraction of lines that is written; of lines about failures, each Service has 10 per
    /// second in addition.
    #[schemars(with = "f64", range(min = 0, max = 1))]
    #[serde(default)]
    pub sample: Share,
    /// Log the part of targets after `?`, which may hold secrets.
    #[serde(default)]
    pub query: bool,
}

/// The formats of the access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AccessLogFormat {
    /// One JSON object per line, with all fields.
    #[default]
    Json,
    /// The common log format.
    Common,
    /// The common log format with `Referer` and `User-Agent`.
    Combined,
}

/// A number from 0 to 1, in millionths: configurations are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Share(u32);

/// A number that is no share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write a number from 0 to 1")]
pub struct NoShare;

// === impl Share ===

impl Default for Share {
    fn default() -> Self {
        Self(MILLION)
    }
}

impl TryFrom<f64> for Share {
    type Error = NoShare;

    #[expect(clippy::cast_sign_loss, reason = "it is from 0 to 1")]
    fn try_from(number: f64) -> Result<Self, NoShare> {
        if !(0.0..=1.0).contains(&number) {
            return Err(NoShare);
        }
        Ok(Self((number * f64::from(MILLION)).round() as u32))
    }
}

impl From<Share> for f64 {
    fn from(share: Share) -> Self {
        Self::from(share.0) / Self::from(MILLION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{Config, parse};

    fn with(log: &str) -> Result<Config, String> {
        let text = format!("instances: [{{name: a, provider: local}}]\naccessLog: {log}\n");
        parse("landfall.yaml", &text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_is_enough_and_all_can_be_said() {
        let log = with("{file: '-'}").unwrap().access_log.unwrap();
        let usual = AccessLogConfig {
            file: "-".into(),
            format: AccessLogFormat::Json,
            sample: Share::default(),
            query: false,
        };
        assert_eq!(log, usual);
        let text = "{file: /var/log/access.log, format: combined, sample: 0.01, query: true}";
        let config = with(text).unwrap();
        let log = config.access_log.clone().unwrap();
        assert_eq!((log.format, log.query), (AccessLogFormat::Combined, true));
        assert!((f64::from(log.sample) - 0.01).abs() < f64::EPSILON);
        // What is written is read.
        let written = serde_json::to_string(&config).unwrap();
        assert_eq!(parse("landfall.yaml", &written).unwrap(), config);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_place() {
        for (log, part) in [
            ("{}", "file"),
            ("{file: ''}", "accessLog.file"),
            ("{file: '-', sample: 2}", "from 0 to 1"),
            ("{file: '-', sample: -0.1}", "from 0 to 1"),
            ("{file: '-', sample: .nan}", "from 0 to 1"),
            ("{file: '-', format: apache}", "apache"),
            ("{file: '-', colour: red}", "colour"),
        ] {
            let error = with(log).unwrap_err();
            assert!(error.starts_with("landfall.yaml"), "{error}");
            assert!(error.contains(part), "{log}: {error}");
        }
    }
}
