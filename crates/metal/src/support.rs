//! The options that this provider supports.

use landfall_model::option::OptionId;
use landfall_model::provider::Support;

/// Returns what kube-proxy makes of each option.
pub(crate) fn by_kube_proxy(option: OptionId) -> Support {
    let why = match option {
        OptionId::Addresses
        | OptionId::AddressPool
        | OptionId::AddressCount
        | OptionId::SharingKey
        | OptionId::ProtocolSctp
        | OptionId::SourceRanges
        | OptionId::SessionAffinity
        | OptionId::ExternalTrafficPolicy
        | OptionId::InternalTrafficPolicy
        | OptionId::TrafficDistribution => return Support::Supported,
        OptionId::ExternalIps => {
            return Support::LeftOut {
                why: "these addresses are not announced; kube-proxy on the nodes serves them",
                remedy: "request addresses with the annotation landfall.dev/addresses",
            };
        }
        OptionId::Hostname => "kube-proxy takes the addresses that it serves from the status",
        OptionId::TargetType => "addresses are announced, and kube-proxy chooses among endpoints",
        OptionId::Endpoints => "kube-proxy forwards to the endpoints of EndpointSlices only",
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
            "kube-proxy forwards packets unread; TLS and HTTP end in the pods"
        }
        OptionId::ProxyProtocol | OptionId::AcceptProxyProtocolFrom => {
            "kube-proxy forwards packets unread; with externalTrafficPolicy: Local, pods see the \
             client's address"
        }
        OptionId::Monitor
        | OptionId::MonitorMethod
        | OptionId::MonitorPath
        | OptionId::MonitorCodes
        | OptionId::MonitorDelay
        | OptionId::MonitorTimeout
        | OptionId::MonitorMaxRetries
        | OptionId::MonitorMaxRetriesDown
        | OptionId::MonitorPort
        | OptionId::MonitorHost
        | OptionId::MonitorBody
        | OptionId::MonitorGrpcService => {
            "kube-proxy forwards to endpoints that are ready; checks are the readinessProbe of the \
             pods"
        }
        OptionId::Algorithm
        | OptionId::MemberWeights
        | OptionId::BackupMembers
        | OptionId::ConnectionLimit
        | OptionId::SourceConnectionLimit
        | OptionId::SourceConnectionRate
        | OptionId::SourceRequestRate
        | OptionId::MemberConnectionLimit
        | OptionId::MemberQueue
        | OptionId::MemberQueueTimeout
        | OptionId::SlowStart
        | OptionId::OutlierDetection
        | OptionId::RetryBudget
        | OptionId::TimeoutClientData
        | OptionId::TimeoutMemberConnect
        | OptionId::TimeoutMemberData
        | OptionId::TimeoutTcpInspect
        | OptionId::Drain => "kube-proxy has no such setting for a Service",
    };
    Support::Refused { why }
}

/// Returns what speakers with the data plane of Landfall make of each option.
pub(crate) fn by_landfall(option: OptionId) -> Support {
    match option {
        OptionId::TargetType => Support::Refused {
            why: "members are endpoints here, and no NodePorts",
        },
        OptionId::ProtocolSctp => Support::Refused {
            why: "the data plane supports TCP and UDP only",
        },
        OptionId::ExternalIps => Support::LeftOut {
            why: "these addresses are not announced; kube-proxy on the nodes serves them",
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
        | OptionId::ExternalTrafficPolicy
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
