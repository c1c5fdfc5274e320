//! How much one Service and one namespace may ask for, so that no one takes what all need.

/// Limits of `landfall.yaml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Ports of one Service.
    pub ports_per_service: usize,
    /// Members of one Service, those of all its ports together.
    pub members_per_service: usize,
    /// Secrets that one Service names.
    pub certificates_per_service: usize,
    /// Open listeners of the Services of one namespace; `None`: as many as there can be.
    pub ports_per_namespace: Option<usize>,
    /// Secrets that are watched for the Services of one namespace.
    pub secrets_per_namespace: usize,
    /// Secrets that are watched in all.
    pub secrets: usize,
}

// === impl Limits ===

impl Limits {
    /// None at all, for what a cloud limits by itself.
    pub const NONE: Self = Self {
        ports_per_service: usize::MAX,
        members_per_service: usize::MAX,
        certificates_per_service: usize::MAX,
        ports_per_namespace: None,
        secrets_per_namespace: usize::MAX,
        secrets: usize::MAX,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            ports_per_service: 1000,
            members_per_service: 10_000,
            certificates_per_service: 64,
            ports_per_namespace: None,
            secrets_per_namespace: 256,
            secrets: 4096,
        }
    }
}
