//! What the operator has configured.

use std::collections::BTreeMap;
use std::fmt;

use landfall_config::cloud_conf::{ClassConf, CloudConf, LoadBalancerConf};
use landfall_model::dialect::openstack::{LOAD_BALANCER_ADDRESS, LOAD_BALANCER_ID};
use landfall_model::dialect::{DialectId, Given, MonitorChoice, PortOptions, Vocabulary};
use landfall_model::happening::Happening;
use landfall_model::limits::Limits;
use landfall_model::listener::Algorithm;
use landfall_model::option::OptionId;
use landfall_model::provider::{ProviderProfile, Support, Target};
use landfall_model::reach::{MemberRules, Setting};
use landfall_model::status::RECORD;

/// What the operator has configured for one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `--cluster-name`: part of every name.
    pub cluster: String,
    /// What distinguishes this cluster from every other: the UID of its namespace `kube-system`.
    pub cluster_id: Option<String>,
    /// `[LoadBalancer]` of `cloud.conf`.
    pub conf: LoadBalancerConf,
    /// `[LoadBalancerClass "..."]` of `cloud.conf`.
    pub classes: BTreeMap<String, ClassConf>,
    /// Whether a Service whose source ranges can't be enforced is not exposed.
    pub strict_source_ranges: bool,
    /// How security groups are laid out, where they are managed.
    pub groups: Groups,
    /// Whether Services that prefer two families get an address of the second one.
    pub prefer_dual_stack: bool,
    /// What members of Services are that do not say.
    pub target: Target,
    /// Which pods may be members.
    pub members: MemberRules,
    /// The most pods that are members of one Service, those of all its ports together.
    pub members_per_service: usize,
}

/// How security groups are laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Groups {
    /// One group for the cluster, on every node; each Service has rules in it.
    #[default]
    PerCluster,
    /// One group per Service, on the nodes that are its members, as cloud-provider-openstack has
    /// it.
    PerService,
}

/// What Octavia calls its driver for virtual networks.
pub const OVN: &str = "ovn";

// === impl Settings ===

impl Settings {
    /// From `cloud.conf`, with everything else as by default.
    pub fn new(conf: &CloudConf, cluster: &str) -> Self {
        Self {
            cluster: cluster.to_owned(),
            cluster_id: None,
            conf: conf.load_balancer.clone(),
            classes: conf.classes.clone(),
            strict_source_ranges: true,
            groups: Groups::default(),
            prefer_dual_stack: true,
            target: Target::Node,
            members: MemberRules::default(),
            members_per_service: Limits::default().members_per_service,
        }
    }

    /// The same with rules for pods as members, and with limits.
    #[must_use]
    pub fn within(self, members: MemberRules, limits: Limits) -> Self {
        Self {
            members,
            members_per_service: limits.members_per_service,
            ..self
        }
    }

    /// What the provider can do, and what holds where a Service says nothing.
    pub fn profile(&self) -> ProviderProfile {
        ProviderProfile {
            provider: "openstack",
            target: self.target,
            vocabulary: Vocabulary {
                dialects: &[
                    DialectId::Landfall,
                    DialectId::OpenStack,
                    DialectId::Kubernetes,
                ],
                ignores_others: "addresses come from the networks of the cloud, and \
                                 cloud-provider-openstack does not read it either",
                extension: Some(DialectId::OpenStack),
            },
            event_reason: Happening::reason,
            predecessor_mark: Some(LOAD_BALANCER_ID),
            completes_families: true,
            validates_numbers: true,
            udp_timeouts: true,
            keeps_unset: true,
            takes_pools: false,
            resources: &[],
            immediate: false,
            marks: &[RECORD, LOAD_BALANCER_ID, LOAD_BALANCER_ADDRESS],
            support,
            defaults: self.defaults(),
            node_selector: Some(self.conf.node_selector.clone()),
            // Loopback is the load balancer's own, whatever the setting.
            members: MemberRules {
                setting: Setting::Cluster,
                ..self.members.clone()
            },
            limits: Limits {
                members_per_service: self.members_per_service,
                ..Limits::NONE
            },
        }
    }

    fn defaults(&self) -> PortOptions {
        let conf = &self.conf;
        let algorithm = match conf.lb_method.as_deref() {
            Some("LEAST_CONNECTIONS") => Some(Algorithm::LeastConnections),
            Some("SOURCE_IP") => Some(Algorithm::SourceIp),
            Some("SOURCE_IP_PORT") => Some(Algorithm::SourceIpPort),
            _ => None,
        };
        let monitor = conf.create_monitor.map(|create| {
            if create {
                MonitorChoice::On
            } else {
                MonitorChoice::Off
            }
        });
        let retries = |count: u32| u8::try_from(count.clamp(1, 10)).unwrap_or(10);
        PortOptions {
            algorithm: given(algorithm, "lb-method"),
            monitor: given(monitor, "create-monitor"),
            monitor_delay: given(Some(conf.monitor_delay), "monitor-delay"),
            monitor_timeout: given(Some(conf.monitor_timeout), "monitor-timeout"),
            monitor_max_retries: given(
                Some(retries(conf.monitor_max_retries)),
                "monitor-max-retries",
            ),
            monitor_max_retries_down: given(
                Some(retries(conf.monitor_max_retries_down)),
                "monitor-max-retries-down",
            ),
            ..PortOptions::default()
        }
    }
}

/// What Octavia makes of each option.
fn support(option: OptionId) -> Support {
    let why = match option {
        OptionId::Drain => "Octavia closes connections of removed members",
        OptionId::AcceptProxyProtocolFrom => "Octavia's listeners accept no PROXY headers",
        OptionId::Endpoints => "members are the nodes or pods of the cluster",
        OptionId::MemberProtocol => "Octavia speaks HTTP/1.1 to members",
        OptionId::TlsStrictNames => {
            "Octavia gives clients without a known name the first certificate"
        }
        OptionId::HttpsRedirect => "Landfall creates no L7 policies in Octavia",
        OptionId::MemberTls | OptionId::MemberCaSecret => {
            "Octavia reads the authorities of members from Barbican only"
        }
        OptionId::MemberServerName => "Landfall creates no pools with TLS in Octavia",
        OptionId::MemberClientSecret => "Octavia reads certificates from Barbican only",
        OptionId::MonitorHost => "not every Octavia supports it, and Landfall does not use it",
        OptionId::MonitorBody => "Octavia checks only the status of an answer",
        OptionId::MonitorGrpcService => "Octavia has no gRPC monitors",
        OptionId::TrustedHops => "Octavia appends to the X-Forwarded-For of clients",
        OptionId::SourceConnectionLimit | OptionId::MemberConnectionLimit => {
            "Octavia limits only connections of a whole listener"
        }
        OptionId::SourceConnectionRate | OptionId::SourceRequestRate => {
            "Octavia has no rate limits per client"
        }
        OptionId::MemberQueue
        | OptionId::MemberQueueTimeout
        | OptionId::SlowStart
        | OptionId::RetryBudget => "Octavia has no setting for it",
        OptionId::OutlierDetection => "in Octavia only monitors eject members",
        OptionId::AddressPool => "addresses come from the networks of the cloud",
        OptionId::AddressCount => "a load balancer of Octavia has one VIP",
        OptionId::SharingKey => {
            "Services share a load balancer with loadbalancer.openstack.org/load-balancer-id"
        }
        OptionId::Addresses
        | OptionId::Hostname
        | OptionId::Algorithm
        | OptionId::Mode
        | OptionId::TlsSecret
        | OptionId::TlsMinimumVersion
        | OptionId::ForwardedHeaders
        | OptionId::ProxyProtocol
        | OptionId::ConnectionLimit
        | OptionId::TimeoutClientData
        | OptionId::TimeoutMemberConnect
        | OptionId::TimeoutMemberData
        | OptionId::TimeoutTcpInspect
        | OptionId::SourceRanges
        | OptionId::Monitor
        | OptionId::MonitorMethod
        | OptionId::MonitorPath
        | OptionId::MonitorCodes
        | OptionId::MonitorDelay
        | OptionId::MonitorTimeout
        | OptionId::MonitorMaxRetries
        | OptionId::MonitorMaxRetriesDown
        | OptionId::MonitorPort
        | OptionId::TargetType
        | OptionId::MemberWeights
        | OptionId::BackupMembers
        | OptionId::ExternalIps
        | OptionId::ExternalTrafficPolicy
        | OptionId::InternalTrafficPolicy
        | OptionId::ProtocolSctp
        | OptionId::SessionAffinity
        | OptionId::TrafficDistribution => return Support::Supported,
    };
    Support::Refused { why }
}

fn given<T>(value: Option<T>, key: &str) -> Option<Given<T>> {
    value.map(|value| Given {
        value,
        annotation: format!("[LoadBalancer] {key}"),
    })
}

impl fmt::Display for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PerCluster => "perCluster",
            Self::PerService => "perService",
        })
    }
}

#[cfg(test)]
mod tests {
    use landfall_config::cloud::Global;
    use landfall_model::dialect::{DIALECTS, is_portable};

    use super::*;

    /// What Octavia is asked for when a Service says so.
    const HONOURED: [&str; 26] = [
        "addresses",
        "algorithm",
        "backup-members",
        "connection-limit",
        "forwarded-headers",
        "hostname",
        "member-weights",
        "mode",
        "monitor",
        "monitor-codes",
        "monitor-delay",
        "monitor-max-retries",
        "monitor-max-retries-down",
        "monitor-method",
        "monitor-path",
        "monitor-port",
        "monitor-timeout",
        "proxy-protocol",
        "source-ranges",
        "target-type",
        "timeout-client-data",
        "timeout-member-connect",
        "timeout-member-data",
        "timeout-tcp-inspect",
        "tls-minimum-version",
        "tls-secret",
    ];

    #[test]
    fn a_portable_option_is_honoured_or_refused() {
        let profile = Settings::new(&CloudConf::of(Global::default()), "c1").profile();
        let portable = DIALECTS
            .iter()
            .filter(|dialect| is_portable(dialect.prefix));
        for row in portable.flat_map(|dialect| dialect.rows) {
            let refused = matches!(
                (profile.support)(OptionId::of_annotation(row.name).unwrap()),
                Support::Refused { .. }
            );
            assert_eq!(refused, !HONOURED.contains(&row.name), "{}", row.name);
        }
    }
}
