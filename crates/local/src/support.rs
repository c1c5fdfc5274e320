//! The options that this provider supports.

use landfall_model::option::OptionId;
use landfall_model::provider::Support;

/// Returns what the data plane makes of each option.
pub fn support(option: OptionId) -> Support {
    match option {
        OptionId::TargetType => Support::Refused {
            why: "members are endpoints here, and no NodePorts",
        },
        OptionId::ProtocolSctp => Support::Refused {
            why: "the data plane supports TCP and UDP only",
        },
        // A machine that has no member of its own would serve nothing.
        OptionId::ExternalTrafficPolicy => Support::LeftOut {
            why: "members on all nodes get traffic, and they see this machine's address instead of \
                  the client's",
            remedy: "members get the client's address by the PROXY protocol \
                     (landfall.dev/proxy-protocol) or by X-Forwarded-For; otherwise write Cluster",
        },
        OptionId::ExternalIps => Support::LeftOut {
            why: "no listener is opened on these addresses; kube-proxy on the nodes serves them",
            remedy: "request addresses with the annotation landfall.dev/addresses",
        },
        OptionId::TrafficDistribution => Support::Emulated {
            how: "members on all nodes and in all zones get traffic, by their weights",
        },
        OptionId::InternalTrafficPolicy => Support::Emulated {
            how: "it applies to traffic to the cluster IP, which nodes serve",
        },
        OptionId::Addresses
        | OptionId::AddressPool
        | OptionId::AddressCount
        | OptionId::SharingKey
        | OptionId::Hostname
        | OptionId::Endpoints
        | OptionId::Algorithm
        | OptionId::Mode
        | OptionId::TlsSecret
        | OptionId::ForwardedHeaders
        | OptionId::TrustedHops
        | OptionId::MemberProtocol
        | OptionId::ProxyProtocol
        | OptionId::AcceptProxyProtocolFrom
        | OptionId::ConnectionLimit
        | OptionId::TimeoutClientData
        | OptionId::TimeoutMemberConnect
        | OptionId::TimeoutMemberData
        | OptionId::TimeoutTcpInspect
        | OptionId::Drain
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
        | OptionId::MemberWeights
        | OptionId::BackupMembers
        | OptionId::SourceConnectionLimit
        | OptionId::SourceConnectionRate
        | OptionId::SourceRequestRate
        | OptionId::MemberConnectionLimit
        | OptionId::MemberQueue
        | OptionId::MemberQueueTimeout
        | OptionId::SlowStart
        | OptionId::OutlierDetection
        | OptionId::RetryBudget
        | OptionId::TlsMinimumVersion
        | OptionId::TlsStrictNames
        | OptionId::HttpsRedirect
        | OptionId::MemberTls
        | OptionId::MemberCaSecret
        | OptionId::MemberServerName
        | OptionId::MemberClientSecret
        | OptionId::MonitorHost
        | OptionId::MonitorBody
        | OptionId::MonitorGrpcService
        | OptionId::SessionAffinity => Support::Supported,
    }
}
