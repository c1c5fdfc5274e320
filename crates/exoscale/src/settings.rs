//! What the operator has configured, and what the provider can do.

use landfall_model::dialect::exoscale::{INSTANCE_POOL_ID, LOAD_BALANCER_ID};
use landfall_model::dialect::{DialectId, PortOptions, Vocabulary};
use landfall_model::happening::Happening;
use landfall_model::limits::Limits;
use landfall_model::option::OptionId;
use landfall_model::provider::{ProviderProfile, Support, Target};
use landfall_model::reach::MemberRules;
use landfall_model::status::RECORD;

use crate::objects::Id;

/// What the operator has configured for one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What distinguishes this cluster from every other: the UID of its namespace `kube-system`, or
    /// a name.
    pub cluster: String,
    /// Whether nodes of Services with `externalTrafficPolicy: Local` are asked by HTTP whether they
    /// have an endpoint. Any node accepts the connection of a check by TCP.
    pub local_http_checks: bool,
    /// The instance pool of Services that name none; `None`: that of the nodes.
    pub instance_pool: Option<Id>,
}

// === impl Settings ===

impl Settings {
    /// Returns the defaults for a cluster.
    pub fn new(cluster: &str) -> Self {
        Self {
            cluster: cluster.to_owned(),
            local_http_checks: true,
            instance_pool: None,
        }
    }
}

/// Returns what the provider can do.
pub fn profile() -> ProviderProfile {
    ProviderProfile {
        provider: "exoscale",
        target: Target::Node,
        vocabulary: Vocabulary {
            dialects: &[
                DialectId::Landfall,
                DialectId::Exoscale,
                DialectId::Kubernetes,
            ],
            ignores_others: "addresses come from Exoscale, and its controller does not read it \
                             either",
            extension: Some(DialectId::Exoscale),
        },
        takes_pools: false,
        resources: &[],
        immediate: false,
        marks: &[RECORD, LOAD_BALANCER_ID, INSTANCE_POOL_ID],
        event_reason: Happening::reason,
        predecessor_mark: Some(LOAD_BALANCER_ID),
        completes_families: false,
        validates_numbers: false,
        udp_timeouts: true,
        keeps_unset: false,
        support,
        defaults: PortOptions::default(),
        node_selector: None,
        // Members are the instances of a pool, which the operator chooses.
        members: MemberRules::default(),
        limits: Limits::NONE,
    }
}

/// What a Service is served without, as by the reference.
fn left_out(option: OptionId) -> Support {
    let (why, remedy) = match option {
        OptionId::SourceRanges => (
            "a Network Load Balancer forwards the traffic of all clients",
            "restrict the clients in the security group of the instances, which see the clients' \
             own addresses",
        ),
        OptionId::Addresses => (
            "Exoscale chooses the address of a Network Load Balancer",
            "name an existing load balancer in service.beta.kubernetes.io/exoscale-loadbalancer-id",
        ),
        _ => (
            "a Network Load Balancer does not remember clients",
            "set service.beta.kubernetes.io/exoscale-loadbalancer-service-strategy to source-hash",
        ),
    };
    Support::LeftOut { why, remedy }
}

/// What an NLB makes of each option.
fn support(option: OptionId) -> Support {
    let why = match option {
        OptionId::SourceRanges | OptionId::Addresses | OptionId::SessionAffinity => {
            return left_out(option);
        }
        OptionId::Algorithm
        | OptionId::Hostname
        | OptionId::Monitor
        | OptionId::MonitorPath
        | OptionId::MonitorDelay
        | OptionId::MonitorTimeout
        | OptionId::MonitorMaxRetriesDown
        | OptionId::MonitorPort
        | OptionId::MonitorHost
        | OptionId::ExternalIps
        | OptionId::ExternalTrafficPolicy
        | OptionId::InternalTrafficPolicy
        | OptionId::TrafficDistribution => return Support::Supported,
        OptionId::ProtocolSctp => "a Network Load Balancer forwards TCP and UDP",
        OptionId::MonitorMethod | OptionId::MonitorCodes | OptionId::MonitorBody => {
            "its HTTP checks send GET and accept any status of 200 to 299"
        }
        OptionId::MonitorMaxRetries => "one successful check makes an instance healthy",
        OptionId::MonitorGrpcService => "it checks by TCP, HTTP and HTTPS",
        OptionId::Endpoints | OptionId::TargetType => "members are the instances of one pool",
        OptionId::Mode
        | OptionId::TlsSecret
        | OptionId::TlsMinimumVersion
        | OptionId::TlsStrictNames
        | OptionId::HttpsRedirect
        | OptionId::ForwardedHeaders
        | OptionId::TrustedHops
        | OptionId::MemberProtocol
        | OptionId::MemberTls
        | OptionId::MemberCaSecret
        | OptionId::MemberServerName
        | OptionId::MemberClientSecret => {
            "a Network Load Balancer forwards packets unread; TLS and HTTP end behind it"
        }
        OptionId::ProxyProtocol | OptionId::AcceptProxyProtocolFrom => {
            "a Network Load Balancer forwards packets unread; members see the client's address"
        }
        OptionId::ConnectionLimit
        | OptionId::SourceConnectionLimit
        | OptionId::SourceConnectionRate
        | OptionId::SourceRequestRate
        | OptionId::MemberConnectionLimit
        | OptionId::MemberQueue
        | OptionId::MemberQueueTimeout
        | OptionId::SlowStart
        | OptionId::OutlierDetection
        | OptionId::RetryBudget
        | OptionId::MemberWeights
        | OptionId::BackupMembers
        | OptionId::TimeoutClientData
        | OptionId::TimeoutMemberConnect
        | OptionId::TimeoutMemberData
        | OptionId::TimeoutTcpInspect
        | OptionId::Drain => "a Network Load Balancer has no setting for it",
        OptionId::AddressPool => "Exoscale chooses the address of a Network Load Balancer",
        OptionId::AddressCount => "a Network Load Balancer has one address",
        OptionId::SharingKey => {
            "Services share a load balancer with \
             service.beta.kubernetes.io/exoscale-loadbalancer-external"
        }
    };
    Support::Refused { why }
}
