//! Limits of one Service or one namespace, as `landfall.yaml` states them.

use landfall_model::limits::Limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Limits of one Service or one namespace. New objects beyond a limit are refused with
/// `LimitReached`; existing ones stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Ports of one Service; default: 1000.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports_per_service: Option<u32>,
    /// Members of one Service, of all its ports together; default: 10000.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub members_per_service: Option<u32>,
    /// Secrets with certificates that one Service names; default: 64.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificates_per_service: Option<u32>,
    /// Open listeners of the Services of one namespace. Default: any number with manifests, in a
    /// cluster half of what the file descriptors of the process allow.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports_per_namespace: Option<u32>,
    /// Secrets that are watched for the Services of one namespace; default: 256.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secrets_per_namespace: Option<u32>,
    /// Secrets that are watched in all; default: 4096, and at most an eighth of the file
    /// descriptors that the process may open.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secrets: Option<u32>,
}

// === impl LimitsConfig ===

impl LimitsConfig {
    /// The limits; `listeners` is how many a namespace may have where nothing is said.
    pub fn limits(&self, listeners: Option<usize>) -> Limits {
        let usual = Limits::default();
        let or = |given: Option<u32>, usual: usize| {
            given.map_or(usual, |given| usize::try_from(given).unwrap_or(usize::MAX))
        };
        Limits {
            ports_per_service: or(self.ports_per_service, usual.ports_per_service),
            members_per_service: or(self.members_per_service, usual.members_per_service),
            certificates_per_service: or(
                self.certificates_per_service,
                usual.certificates_per_service,
            ),
            ports_per_namespace: match self.ports_per_namespace {
                Some(_) => Some(or(self.ports_per_namespace, usize::MAX)),
                None => listeners,
            },
            secrets_per_namespace: or(self.secrets_per_namespace, usual.secrets_per_namespace),
            secrets: or(self.secrets, usual.secrets),
        }
    }

    /// Returns the key of a limit of 0, which would permit nothing.
    pub(crate) fn zero(&self) -> Option<&'static str> {
        let all = [
            ("portsPerService", self.ports_per_service),
            ("membersPerService", self.members_per_service),
            ("certificatesPerService", self.certificates_per_service),
            ("portsPerNamespace", self.ports_per_namespace),
            ("secretsPerNamespace", self.secrets_per_namespace),
            ("secrets", self.secrets),
        ];
        let found = all.into_iter().find(|(_, given)| *given == Some(0));
        found.map(|(key, _)| key)
    }

    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
