//! The annotations of MetalLB, under their present and their old prefix.

use super::given::{Given, put};
use super::landfall::service;
use super::value;
use super::{Dialect, DialectId, Effect, OptionRow, Outcome};
use crate::option::OptionId;
use crate::reason::Severity;

/// The pool of a Service's addresses, as MetalLB's controller notes it. Nothing reads it but people
/// and their programs.
pub const ALLOCATED_FROM_POOL: &str = "metallb.io/ip-allocated-from-pool";

/// MetalLB's annotations.
pub(super) static DIALECT: Dialect = Dialect {
    id: DialectId::MetalLb,
    title: "MetalLB: `metallb.io/*`",
    prefix: "metallb.io/",
    per_port: false,
    unknown: Some(Severity::Warning),
    empty_is_absent: true,
    successor: None,
    marks: &[ALLOCATED_FROM_POOL],
    given_mark: None,
    about: "\
Interpreted as by MetalLB. An empty value means none. On OpenStack they are ignored with a warning;
cloud-provider-openstack ignores them, too.",
    rows: &[
        ADDRESS_POOL,
        LOAD_BALANCER_IPS,
        ALLOW_SHARED_IP,
        OptionRow {
            name: "ip-allocated-from-pool",
            takes: "the name of an address pool",
            default: "none",
            summary: "Written by MetalLB's controller, and by the provider `metal`.",
            example: "public",
            effect: Effect::NotApplicable {
                severity: Severity::Info,
                why: "a controller writes it to record the pool of the address; it is not an \
                     option",
            },
        },
    ],
};

/// MetalLB's annotations as they were called before 2023.
pub(super) static DEPRECATED: Dialect = Dialect {
    id: DialectId::MetalLb,
    title: "MetalLB, old prefix: `metallb.universe.tf/*`",
    prefix: "metallb.universe.tf/",
    per_port: false,
    unknown: Some(Severity::Warning),
    empty_is_absent: true,
    successor: Some("metallb.io/"),
    marks: &[],
    given_mark: None,
    about: "The same with their old prefix, with a warning. If both are used, the new one takes \
           precedence.",
    rows: &[ADDRESS_POOL, LOAD_BALANCER_IPS, ALLOW_SHARED_IP],
};

const ADDRESS_POOL: OptionRow = OptionRow {
    name: "address-pool",
    takes: "the name of an address pool",
    default: "every pool that serves the Service, by priority",
    summary: "As `landfall.dev/address-pool`.",
    example: "public",
    effect: service!(AddressPool, address_pool, value::some_text),
};

const LOAD_BALANCER_IPS: OptionRow = OptionRow {
    name: "loadBalancerIPs",
    takes: "IP addresses of one family, or as many of each, with commas between them",
    default: "any free address of a suitable address pool",
    summary: "As `landfall.dev/addresses`.",
    example: "192.0.2.10,2001:db8::10",
    effect: Effect::Service {
        option: OptionId::Addresses,
        set: |service, text| {
            service.addresses.push(Given {
                value: value::addresses(text.value)?,
                annotation: text.annotation.to_owned(),
            });
            Ok(Outcome::Decided)
        },
    },
};

const ALLOW_SHARED_IP: OptionRow = OptionRow {
    name: "allow-shared-ip",
    takes: "any text",
    default: "the address is not shared",
    summary: "As `landfall.dev/sharing-key`.",
    example: "office",
    effect: service!(SharingKey, sharing_key, value::some_text),
};
