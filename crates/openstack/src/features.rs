//! What a version of Octavia and a provider of it can do.

use crate::client::ApiVersion;
use crate::settings::OVN;

/// What can be asked of a load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    version: ApiVersion,
    /// Carried by OVN's driver, which can less.
    pub ovn: bool,
}

// === impl Features ===

impl Features {
    /// Of a version, and of the provider of a load balancer.
    pub fn new(version: ApiVersion, provider: &str) -> Self {
        Self {
            version,
            ovn: provider == OVN,
        }
    }

    fn since(self, minor: u16) -> bool {
        self.version >= ApiVersion::new(2, minor)
    }

    /// Timeouts of listeners.
    pub fn timeouts(self) -> bool {
        self.since(1) && !self.ovn
    }

    /// Tags.
    pub fn tags(self) -> bool {
        self.since(5)
    }

    /// Flavors.
    pub fn flavors(self) -> bool {
        self.since(6) && !self.ovn
    }

    /// Batches of members that are added to those that are there.
    pub fn additive(self) -> bool {
        self.since(11)
    }

    /// Prefixes that may connect to a listener.
    pub fn allowed_cidrs(self) -> bool {
        self.since(12) && !self.ovn
    }

    /// Availability zones.
    pub fn zones(self) -> bool {
        self.since(14) && !self.ovn
    }

    /// Ciphers of listeners.
    pub fn tls_ciphers(self) -> bool {
        self.since(15)
    }

    /// Versions of TLS of listeners.
    pub fn tls_versions(self) -> bool {
        self.since(17)
    }

    /// ALPN of listeners.
    pub fn alpn(self) -> bool {
        self.since(20)
    }

    /// HTTP monitors for this kind of listener.
    pub fn http_monitor(self, udp: bool) -> bool {
        !self.ovn && (!udp || self.since(16))
    }

    /// Version 2 of the PROXY protocol.
    pub fn proxy_v2(self) -> bool {
        self.since(22) && !self.ovn
    }

    /// SCTP.
    pub fn sctp(self) -> bool {
        self.since(23)
    }

    /// More than one VIP.
    pub fn additional_vips(self) -> bool {
        self.since(26)
    }

    /// The version, for messages.
    pub fn version(self) -> ApiVersion {
        self.version
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_come_with_versions_and_ovn_lacks_some() {
        let at = |minor, provider| Features::new(ApiVersion::new(2, minor), provider);
        assert!(!at(0, "amphora").timeouts() && at(1, "amphora").timeouts());
        assert!(!at(27, "ovn").timeouts() && !at(27, "ovn").allowed_cidrs());
        assert!(!at(15, "amphora").http_monitor(true) && at(15, "amphora").http_monitor(false));
        assert!(at(26, "ovn").additional_vips() && !at(25, "ovn").additional_vips());
        assert!(at(5, "ovn").tags() && !at(4, "amphora").tags());
    }
}
