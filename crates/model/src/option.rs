//! Everything that a Service can ask of a provider beside ports and members.

/// Defines [`OptionId`], its names and the list of all of them from one table.
macro_rules! option_ids {
    ($($id:ident: $name:literal,)+) => {
        /// An option, whichever dialect or field of the Service asked for it.
        ///
        /// Each provider states in a `match` without `_` how it supports each of them, so that a
        /// new option does not compile until all providers have answered.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[expect(missing_docs, reason = "the table of the dialect landfall.dev documents them")]
        pub enum OptionId {
            $($id,)+
        }

        impl OptionId {
            /// All options.
            pub const ALL: &[Self] = &[$(Self::$id,)+];

            /// Returns the name under `landfall.dev/`, or the place in the manifest.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$id => $name,)+
                }
            }
        }
    };
}

option_ids! {
    Addresses: "addresses",
    AddressPool: "address-pool",
    AddressCount: "address-count",
    SharingKey: "sharing-key",
    Hostname: "hostname",
    Endpoints: "endpoints",
    TargetType: "target-type",
    Algorithm: "algorithm",
    Mode: "mode",
    TlsSecret: "tls-secret",
    ForwardedHeaders: "forwarded-headers",
    TrustedHops: "trusted-hops",
    MemberProtocol: "member-protocol",
    ProxyProtocol: "proxy-protocol",
    AcceptProxyProtocolFrom: "accept-proxy-protocol-from",
    ConnectionLimit: "connection-limit",
    TimeoutClientData: "timeout-client-data",
    TimeoutMemberConnect: "timeout-member-connect",
    TimeoutMemberData: "timeout-member-data",
    TimeoutTcpInspect: "timeout-tcp-inspect",
    Drain: "drain",
    SourceRanges: "source-ranges",
    Monitor: "monitor",
    MonitorMethod: "monitor-method",
    MonitorPath: "monitor-path",
    MonitorCodes: "monitor-codes",
    MonitorDelay: "monitor-delay",
    MonitorTimeout: "monitor-timeout",
    MonitorMaxRetries: "monitor-max-retries",
    MonitorMaxRetriesDown: "monitor-max-retries-down",
    MonitorPort: "monitor-port",
    MemberWeights: "member-weights",
    BackupMembers: "backup-members",
    SourceConnectionLimit: "source-connection-limit",
    SourceConnectionRate: "source-connection-rate",
    SourceRequestRate: "source-request-rate",
    MemberConnectionLimit: "member-connection-limit",
    MemberQueue: "member-queue",
    MemberQueueTimeout: "member-queue-timeout",
    SlowStart: "slow-start",
    OutlierDetection: "outlier-detection",
    RetryBudget: "retry-budget",
    TlsMinimumVersion: "tls-minimum-version",
    TlsStrictNames: "tls-strict-names",
    HttpsRedirect: "https-redirect",
    MemberTls: "member-tls",
    MemberCaSecret: "member-ca-secret",
    MemberServerName: "member-server-name",
    MemberClientSecret: "member-client-secret",
    MonitorHost: "monitor-host",
    MonitorBody: "monitor-body",
    MonitorGrpcService: "monitor-grpc-service",
    ExternalIps: "spec.externalIPs",
    ExternalTrafficPolicy: "spec.externalTrafficPolicy",
    InternalTrafficPolicy: "spec.internalTrafficPolicy",
    ProtocolSctp: "spec.ports[].protocol",
    SessionAffinity: "spec.sessionAffinity",
    TrafficDistribution: "spec.trafficDistribution",
}

impl OptionId {
    /// Returns the option that a field of a Service asks for: `spec.externalIPs`.
    pub fn of_field(place: &str) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|option| option.name() == place && place.starts_with("spec."))
    }

    /// Returns the option that an annotation `landfall.dev/NAME` asks for.
    pub fn of_annotation(name: &str) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|option| option.name() == name && !name.starts_with("spec."))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::dialect::{DIALECTS, is_portable};

    #[test]
    fn every_option_of_an_annotation_is_one_row_of_the_portable_dialect() {
        let dialects = DIALECTS.iter().filter(|it| is_portable(it.prefix));
        let rows: Vec<_> = dialects.flat_map(|dialect| dialect.rows).collect();
        for row in &rows {
            let option = row.effect.option().unwrap();
            assert_eq!(option.name(), row.name);
            assert_eq!(OptionId::of_annotation(row.name), Some(option));
        }
        let names: BTreeSet<_> = rows.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), rows.len());
        let annotations = OptionId::ALL
            .iter()
            .filter(|it| !it.name().starts_with("spec."));
        assert_eq!(annotations.count(), rows.len());
    }

    #[test]
    fn a_field_is_found_by_its_place() {
        let found = OptionId::of_field("spec.externalIPs");
        assert_eq!(found, Some(OptionId::ExternalIps));
        assert_eq!(OptionId::of_field("drain"), None);
        assert_eq!(OptionId::of_field("spec.clusterIP"), None);
    }
}
