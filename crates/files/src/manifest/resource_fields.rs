//! The fields of custom resources that are known: others are mistyped, or of no effect.

use landfall_model::rows::ResourceKind;

use super::fields::{Known, METADATA};

const OBJECT: (&str, &[&str]) = ("", &["apiVersion", "kind", "metadata", "spec", "status"]);

const IP_ADDRESS_POOL: Known = &[
    METADATA,
    OBJECT,
    (
        "spec",
        &[
            "addresses",
            "autoAssign",
            "avoidBuggyIPs",
            "serviceAllocation",
        ],
    ),
    (
        "spec.serviceAllocation",
        &[
            "namespaceSelectors",
            "namespaces",
            "priority",
            "serviceSelectors",
        ],
    ),
];

const L2_ADVERTISEMENT: Known = &[
    METADATA,
    OBJECT,
    (
        "spec",
        &[
            "interfaces",
            "ipAddressPoolSelectors",
            "ipAddressPools",
            "nodeSelectors",
            "preferredNodeSelectors",
            "serviceSelectors",
        ],
    ),
    ("spec.preferredNodeSelectors[]", &["preference", "weight"]),
];

const BGP_ADVERTISEMENT: Known = &[
    METADATA,
    OBJECT,
    (
        "spec",
        &[
            "aggregationLength",
            "aggregationLengthV6",
            "communities",
            "ipAddressPoolSelectors",
            "ipAddressPools",
            "localPref",
            "nodeSelectors",
            "peers",
            "serviceSelectors",
        ],
    ),
];

const COMMUNITY: Known = &[
    METADATA,
    OBJECT,
    ("spec", &["communities"]),
    ("spec.communities[]", &["name", "value"]),
];

const BGP_PEER: Known = &[
    METADATA,
    OBJECT,
    (
        "spec",
        &[
            "bfdProfile",
            "connectTime",
            "disableMP",
            "dualStackAddressFamily",
            "dynamicASN",
            "ebgpMultiHop",
            "enableGracefulRestart",
            "holdTime",
            "interface",
            "keepaliveTime",
            "localASN",
            "myASN",
            "nodeSelectors",
            "password",
            "passwordSecret",
            "peerASN",
            "peerAddress",
            "peerPort",
            "routerID",
            "sourceAddress",
            "vrf",
        ],
    ),
    ("spec.passwordSecret", &["name", "namespace"]),
];

const BFD_PROFILE: Known = &[
    METADATA,
    OBJECT,
    (
        "spec",
        &[
            "detectMultiplier",
            "echoInterval",
            "echoMode",
            "minimumTtl",
            "passiveMode",
            "receiveInterval",
            "transmitInterval",
        ],
    ),
];

/// Returns the fields that are known of a kind, in any of its versions.
pub(super) fn of(kind: ResourceKind) -> Known {
    match kind {
        ResourceKind::IpAddressPool => IP_ADDRESS_POOL,
        ResourceKind::L2Advertisement => L2_ADVERTISEMENT,
        ResourceKind::BgpAdvertisement => BGP_ADVERTISEMENT,
        ResourceKind::Community => COMMUNITY,
        ResourceKind::BgpPeer => BGP_PEER,
        ResourceKind::BfdProfile => BFD_PROFILE,
    }
}
