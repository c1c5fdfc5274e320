//! How much one Service and one namespace may ask for, so that no one takes what all need.

use crate::reason::{Code, Reason};

/// Watches of Secrets may take this part of all descriptors: each is a connection of its own.
const WATCHES: u64 = 8;

/// Where these are less than what is asked for, a namespace may have this part of them.
const NAMESPACE: usize = 4;

/// The memory that all Services of one namespace may take: 20,000 of usual size, each with its
/// status, the version that was accepted and a Secret. That is far more than the largest namespaces
/// that Kubernetes is tested with need (5,000 Services), so that it is no option.
pub const BYTES_OF_SERVICES: usize = 72 << 20;

/// The memory that all EndpointSlices of one namespace may take, those of Services without a load
/// balancer as well: 40,000 slices with 150,000 endpoints, which are as many pods as Kubernetes is
/// tested with.
pub const BYTES_OF_SLICES: usize = 32 << 20;

/// Returns what is reported on a Service of which endpoints are left out, because its namespace is
/// at the limit of [`BYTES_OF_SLICES`]. The text has no number that endpoints change: it stands in
/// the status.
pub fn endpoints_left_out() -> Reason {
    Reason::warning(
        Code::LimitReached,
        format!(
            "endpoints of the Service are left out: the EndpointSlices of the namespace take more \
             than {} MiB of memory",
            BYTES_OF_SLICES >> 20
        ),
    )
    .remedy(
        "remove Services with a selector, those without a load balancer as well, or run fewer \
         pods; endpoints are read again within minutes",
    )
}

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

    /// Returns them as they are in a process that may open so many files.
    #[must_use]
    pub fn within_files(self, files: u64) -> Self {
        let watches = usize::try_from(files / WATCHES).unwrap_or(usize::MAX);
        if watches >= self.secrets {
            return self;
        }
        let each = (watches / NAMESPACE).max(1);
        Self {
            secrets: watches.max(1),
            secrets_per_namespace: self.secrets_per_namespace.min(each),
            ..self
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_watched_within_an_eighth_of_the_descriptors() {
        let within = |limits: Limits, files| {
            let limits = limits.within_files(files);
            (limits.secrets, limits.secrets_per_namespace)
        };
        let usual = Limits::default();
        assert_eq!(within(usual, 1 << 20), (4096, 256));
        assert_eq!(within(usual, 20_000), (2500, 256));
        assert_eq!(within(usual, 1024), (128, 32));
        assert_eq!(within(usual, 16), (2, 1));
        assert_eq!(within(usual, 0), (1, 1));
        // What is asked for counts where there is room for it.
        let asked = Limits {
            secrets: 100,
            secrets_per_namespace: 90,
            ..usual
        };
        assert_eq!(within(asked, 1024), (100, 90));
        assert_eq!(within(asked, 256), (32, 8));
    }
}
