//! The few `service.beta.kubernetes.io/*` keys that have a meaning beyond one cloud. All the
//! others under this prefix belong to other cloud providers and are ignored.

use super::given::put;
use super::value;
use super::{AnnotationError, Dialect, DialectId, Effect, OptionRow};
use crate::option::OptionId;
use crate::reason::Severity;

/// Keys of the Kubernetes cloud provider framework.
pub(super) static DIALECT: Dialect = Dialect {
    id: DialectId::Kubernetes,
    title: "Kubernetes' own: `service.beta.kubernetes.io/*`",
    prefix: "service.beta.kubernetes.io/",
    per_port: false,
    unknown: None,
    empty_is_absent: true,
    successor: None,
    marks: &[],
    given_mark: None,
    about: "Only these keys are read; the others under the prefix belong to other cloud providers.",
    rows: &[
        OptionRow {
            name: "load-balancer-source-ranges",
            takes: "prefixes in CIDR notation with commas or white space between them",
            default: "all clients",
            summary: "Which clients may connect. `spec.loadBalancerSourceRanges` takes precedence.",
            example: "192.0.2.0/24, 198.51.100.0/24",
            effect: Effect::Port {
                option: OptionId::SourceRanges,
                set: |port, text| put(&mut port.source_ranges, text, value::cidrs(text.value)?),
            },
        },
        OptionRow {
            name: "openstack-internal-load-balancer",
            takes: "`true` or `false`",
            default: "`false`",
            summary: "On OpenStack: no floating IP.",
            example: "true",
            effect: Effect::Extension {
                of: DialectId::OpenStack,
                set: |service, text| {
                    let internal = match text.value {
                        "true" => true,
                        "false" => false,
                        _ => {
                            return Err(AnnotationError::Replaced {
                                refusal: value::Refusal::new(
                                    "neither true nor false",
                                    "write true or false in lower case",
                                ),
                                by: "the configuration",
                            });
                        }
                    };
                    put(&mut service.extensions.openstack.internal, text, internal)
                },
                severity: Severity::Info,
                why: "it keeps an Octavia load balancer without floating IP; there are none here, \
                     and an address is as reachable as the pool it comes from",
            },
        },
    ],
};
