//! Address pools from `landfall.yaml` and from `--pool` flags.

use std::num::NonZeroU32;

use landfall_model::dialect::parse_duration;
use landfall_model::rows::{PoolAllocation, PoolOrigin, PoolRow, Selector};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The pool if none is configured: loopback, so that no privileges are needed.
pub const DEFAULT_POOL: &str = "127.77.0.0/24";

/// The name of the pool that flags (or the default) make.
pub const FLAG_POOL: &str = "default";

/// An address pool: the `spec` of MetalLB's `IPAddressPool`, with a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PoolConfig {
    /// Its name, unique over all instances.
    pub name: String,
    /// Prefixes (`192.0.2.0/28`) and ranges (`192.0.2.1-192.0.2.9`).
    #[schemars(length(min = 1))]
    pub addresses: Vec<String>,
    /// False: only for Services that request the pool or an address in it.
    #[serde(default = "yes")]
    pub auto_assign: bool,
    /// Exclude IPv4 addresses that end in .0 or .255.
    #[serde(rename = "avoidBuggyIPs", default)]
    pub avoid_buggy_ips: bool,
    /// Whether Services of different namespaces may share an address, by equal sharing keys. On an
    /// `IPAddressPool`: the annotation `landfall.dev/share-across-namespaces: "true"`.
    #[serde(default)]
    pub share_across_namespaces: bool,
    /// The addresses of each family that the Services of one namespace may hold; existing claims
    /// stay. Default: all. On an `IPAddressPool` use the annotation
    /// `landfall.dev/addresses-per-namespace`.
    #[schemars(range(min = 1))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses_per_namespace: Option<NonZeroU32>,
    /// True: no address is assigned any more; existing claims stay. On an `IPAddressPool` use the
    /// annotation `landfall.dev/disabled: "true"`.
    #[serde(default)]
    pub disabled: bool,
    /// For how long a released address is assigned to no other Service, such as `10m`; default: no
    /// time. On an `IPAddressPool` use the annotation `landfall.dev/cool-down`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cool_down: Option<String>,
    /// Addresses, prefixes and ranges that do not belong to the pool although `addresses` has them.
    /// On an `IPAddressPool` use the annotation `landfall.dev/excluded-addresses`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded_addresses: Vec<String>,
    /// Addresses, prefixes and ranges that only the Services of a namespace, or one Service
    /// (`NAMESPACE/NAME`), get. On an `IPAddressPool` use the annotation
    /// `landfall.dev/reserved-addresses`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reserved_addresses: Vec<ReservedConfig>,
    /// The Services that it serves, and its priority.
    #[serde(default)]
    pub service_allocation: Option<AllocationConfig>,
}

/// Addresses that only some Services get.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReservedConfig {
    /// An address, a prefix or a range.
    pub addresses: String,
    /// A namespace, or a Service as `NAMESPACE/NAME`.
    #[serde(rename = "for")]
    pub services: String,
}

/// The Services that a pool serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AllocationConfig {
    /// Lower is first; 0 is last.
    pub priority: i64,
    /// Exact names.
    pub namespaces: Vec<String>,
    /// Selectors on namespace labels; any may match.
    pub namespace_selectors: Vec<SelectorConfig>,
    /// Selectors on Service labels; any may match.
    pub service_selectors: Vec<SelectorConfig>,
}

/// A Kubernetes label selector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SelectorConfig {
    /// Labels that must have these values.
    pub match_labels: std::collections::BTreeMap<String, String>,
    /// Requirements for single labels.
    pub match_expressions: Vec<ExpressionConfig>,
}

/// One requirement for a label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExpressionConfig {
    /// Label key.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// Values, for the first two.
    #[serde(default)]
    pub values: Vec<String>,
}

/// One pool holding every range, in the order given. Ranges stay text: the allocator validates
/// them.
pub fn from_flags(ranges: &[String]) -> PoolRow {
    PoolRow {
        name: FLAG_POOL.to_owned(),
        addresses: ranges.to_vec(),
        auto_assign: true,
        origin: PoolOrigin::Configured,
        ..PoolRow::default()
    }
}

/// The pool of an instance that was given none. Its first and last address are left out because
/// many people take .0 and .255 for a mistake.
pub fn fallback() -> PoolRow {
    PoolRow {
        avoid_buggy: true,
        origin: PoolOrigin::Fallback,
        ..from_flags(&[DEFAULT_POOL.to_owned()])
    }
}

// === impl PoolConfig ===

impl PoolConfig {
    pub(crate) fn row(&self, instance: &str) -> PoolRow {
        PoolRow {
            name: self.name.clone(),
            instance: Some(instance.to_owned()),
            addresses: self.addresses.clone(),
            auto_assign: self.auto_assign,
            avoid_buggy: self.avoid_buggy_ips,
            share_across_namespaces: self.share_across_namespaces,
            addresses_per_namespace: self.addresses_per_namespace.map(NonZeroU32::get),
            disabled: self.disabled,
            cool_down: self.cool_down.as_deref().and_then(parse_duration),
            excluded: self.excluded_addresses.clone(),
            reserved: self
                .reserved_addresses
                .iter()
                .map(|it| (it.addresses.clone(), it.services.clone()))
                .collect(),
            allocation: self.service_allocation.as_ref().map(AllocationConfig::row),
            origin: PoolOrigin::Configured,
            ..PoolRow::default()
        }
    }
}

impl AllocationConfig {
    fn row(&self) -> PoolAllocation {
        let selectors = |all: &[SelectorConfig]| all.iter().map(SelectorConfig::row).collect();
        PoolAllocation {
            priority: self.priority,
            namespaces: self.namespaces.clone(),
            namespace_selectors: selectors(&self.namespace_selectors),
            service_selectors: selectors(&self.service_selectors),
        }
    }
}

impl SelectorConfig {
    fn row(&self) -> Selector {
        let expressions = self.match_expressions.iter();
        Selector {
            match_labels: self.match_labels.clone(),
            match_expressions: expressions
                .map(|it| (it.key.clone(), it.operator.clone(), it.values.clone()))
                .collect(),
        }
    }
}

fn yes() -> bool {
    true
}
