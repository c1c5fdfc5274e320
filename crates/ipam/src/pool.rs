//! One address pool: parsed from text, validated on its own, then unchangeable.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use landfall_model::rows::{Family, PoolAllocation, PoolRow, Selector};

use crate::entry::{Entry, Range, is_buggy};
use crate::pool_error::PoolError;
use crate::pool_name::PoolName;
use crate::request::Request;
use crate::reservation::Reservation;
use crate::selector::{ExpressionSpec, LabelSelector, SelectorSpec};
use crate::verdict::Verdict;

/// The annotations of an `IPAddressPool` that say what is excluded and reserved.
const EXCLUDED: &str = "landfall.dev/excluded-addresses";
const RESERVED: &str = "landfall.dev/reserved-addresses";

/// A pool as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSpec {
    /// Name.
    pub name: String,
    /// Entries, each `CIDR` or `FIRST-LAST`; their order is the order of allocation.
    pub addresses: Vec<String>,
    /// Whether Services that name neither the pool nor an address may be served from it.
    pub auto_assign: bool,
    /// Whether IPv4 addresses ending in .0 and .255 are left out.
    pub avoid_buggy_ips: bool,
    /// Whether Services of different namespaces may share an address.
    pub share_across_namespaces: bool,
    /// How many addresses of each family the Services of one namespace may hold; `None`: all.
    pub addresses_per_namespace: Option<u32>,
    /// Whether no address is given out any more. Those that are held stay.
    pub disabled: bool,
    /// For how long an address that a Service gave up is given to no other one.
    pub cool_down: Option<Duration>,
    /// Addresses, prefixes and ranges that do not belong to the pool although an entry has them.
    pub excluded: Vec<String>,
    /// Addresses, prefixes and ranges that only some Services get, with the namespace or the
    /// `NAMESPACE/NAME` of these.
    pub reserved: Vec<(String, String)>,
    /// The Services that the pool serves; its mere presence puts the pool before those without.
    pub allocation: Option<AllocationSpec>,
}

/// `serviceAllocation` as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocationSpec {
    /// Lower comes first; 0 comes last.
    pub priority: i64,
    /// Names of namespaces.
    pub namespaces: Vec<String>,
    /// Selectors on labels of namespaces, of which one must match.
    pub namespace_selectors: Vec<SelectorSpec>,
    /// Selectors on labels of Services, of which one must match.
    pub service_selectors: Vec<SelectorSpec>,
}

/// A valid pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    name: PoolName,
    entries: Vec<Entry>,
    auto_assign: bool,
    avoid_buggy_ips: bool,
    share_across_namespaces: bool,
    addresses_per_namespace: Option<u32>,
    disabled: bool,
    cool_down: Option<Duration>,
    /// Whether any of its addresses are reserved.
    reserves: bool,
    allocation: Option<Allocation>,
}

/// The Services that a pool serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    priority: i64,
    namespaces: BTreeSet<String>,
    namespace_selectors: Vec<LabelSelector>,
    service_selectors: Vec<LabelSelector>,
}

// === impl PoolSpec ===

impl PoolSpec {
    /// A pool of these entries with everything else at its default.
    pub fn new<I>(name: &str, addresses: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        Self {
            name: name.to_owned(),
            addresses: addresses.into_iter().map(Into::into).collect(),
            auto_assign: true,
            avoid_buggy_ips: false,
            share_across_namespaces: false,
            addresses_per_namespace: None,
            disabled: false,
            cool_down: None,
            excluded: Vec::new(),
            reserved: Vec::new(),
            allocation: None,
        }
    }
}

impl From<&PoolRow> for PoolSpec {
    fn from(row: &PoolRow) -> Self {
        Self {
            name: row.name.clone(),
            addresses: row.addresses.clone(),
            auto_assign: row.auto_assign,
            avoid_buggy_ips: row.avoid_buggy,
            share_across_namespaces: row.share_across_namespaces,
            addresses_per_namespace: row.addresses_per_namespace,
            disabled: row.disabled,
            cool_down: row.cool_down,
            excluded: row.excluded.clone(),
            reserved: row.reserved.clone(),
            allocation: row.allocation.as_ref().map(AllocationSpec::from),
        }
    }
}

impl From<&PoolAllocation> for AllocationSpec {
    fn from(allocation: &PoolAllocation) -> Self {
        let specs = |selectors: &[Selector]| selectors.iter().map(Into::into).collect();
        Self {
            priority: allocation.priority,
            namespaces: allocation.namespaces.clone(),
            namespace_selectors: specs(&allocation.namespace_selectors),
            service_selectors: specs(&allocation.service_selectors),
        }
    }
}

impl From<&Selector> for SelectorSpec {
    fn from(selector: &Selector) -> Self {
        let expressions = selector.match_expressions.iter();
        Self {
            match_labels: selector.match_labels.clone(),
            match_expressions: expressions
                .map(|(key, operator, values)| ExpressionSpec {
                    key: key.clone(),
                    operator: operator.clone(),
                    values: values.clone(),
                })
                .collect(),
        }
    }
}

// === impl Pool ===

impl Pool {
    /// Validates a pool on its own, and returns everything that is wrong with it at once.
    pub fn parse(spec: &PoolSpec) -> Result<Self, Vec<PoolError>> {
        let name = PoolName::new(&spec.name);
        let mut errors = Vec::new();
        if spec.name.is_empty() {
            errors.push(PoolError::NoName);
        }
        if spec.addresses.is_empty() {
            errors.push(PoolError::NoAddresses { pool: name.clone() });
        }
        let mut entries: Vec<Entry> = Vec::with_capacity(spec.addresses.len());
        for text in &spec.addresses {
            let entry = text
                .parse()
                .and_then(|entry: Entry| match entry.unusable() {
                    Some(error) => Err(error),
                    None => Ok(entry),
                });
            match entry {
                Ok(entry) => entries.push(entry),
                Err(source) => errors.push(PoolError::Entry {
                    pool: name.clone(),
                    entry: text.clone(),
                    source,
                }),
            }
        }
        errors.extend(PoolError::overlaps(
            entries.iter().map(|entry| (&name, entry)),
        ));
        let entries = parse_parts(&name, spec, entries, &mut errors);
        let allocation = spec
            .allocation
            .as_ref()
            .map(|allocation| Allocation::parse(&name, allocation, &mut errors));
        if errors.is_empty() {
            Ok(Self {
                name,
                entries,
                auto_assign: spec.auto_assign,
                avoid_buggy_ips: spec.avoid_buggy_ips,
                share_across_namespaces: spec.share_across_namespaces,
                addresses_per_namespace: spec.addresses_per_namespace,
                disabled: spec.disabled,
                cool_down: spec.cool_down,
                reserves: !spec.reserved.is_empty(),
                allocation,
            })
        } else {
            Err(errors)
        }
    }

    /// Its name.
    pub fn name(&self) -> &PoolName {
        &self.name
    }

    /// Its entries in the order of allocation, cut where addresses are excluded or reserved.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Whether Services that name neither the pool nor an address may be served from it.
    pub fn auto_assign(&self) -> bool {
        self.auto_assign
    }

    /// Whether IPv4 addresses ending in .0 and .255 are left out.
    pub fn avoid_buggy_ips(&self) -> bool {
        self.avoid_buggy_ips
    }

    /// Whether Services of different namespaces may share an address.
    pub fn shares_across_namespaces(&self) -> bool {
        self.share_across_namespaces
    }

    /// Whether no address is given out any more.
    pub fn is_disabled(&self) -> bool {
        self.disabled
    }

    /// For how long an address that a Service gave up is given to no other one.
    pub fn cool_down(&self) -> Option<Duration> {
        self.cool_down
    }

    /// Returns for which Services an address is reserved, if it is.
    pub fn reservation_of(&self, address: IpAddr) -> Option<&Reservation> {
        let mut entries = self.entries.iter().filter(|_| self.reserves);
        let entry = entries.find(|entry| entry.range().contains(address))?;
        entry.reserved_for()
    }

    /// How many addresses of each family one namespace may hold; `None`: all.
    pub(crate) fn addresses_per_namespace(&self) -> Option<u32> {
        self.addresses_per_namespace
    }

    /// The Services that the pool serves, if that was written.
    pub fn allocation(&self) -> Option<&Allocation> {
        self.allocation.as_ref()
    }

    /// Whether the pool leaves this address out although it lies in one of its entries.
    pub fn avoids(&self, address: IpAddr) -> bool {
        self.avoid_buggy_ips && is_buggy(address)
    }

    /// Whether any entry is of this family.
    pub fn has_family(&self, family: Family) -> bool {
        self.entries
            .iter()
            .any(|entry| entry.range().family() == family)
    }

    /// Whether the Service may hold an address of this pool; if not, why.
    ///
    /// A pool limited to namespaces by selectors alone stays limited while they match no
    /// namespace. (In the reference it is then open to every Service that names it.)
    pub(crate) fn admits(&self, request: &Request) -> Result<(), Verdict> {
        self.allocation
            .as_ref()
            .map_or(Ok(()), |allocation| allocation.admits(request))
    }

    /// Where the pool stands among those with `serviceAllocation`; `None` for one without.
    pub(crate) fn rank(&self) -> Option<(bool, i64)> {
        self.allocation
            .as_ref()
            .map(|allocation| (allocation.priority == 0, allocation.priority))
    }
}

// === impl Allocation ===

impl Allocation {
    fn parse(pool: &PoolName, spec: &AllocationSpec, errors: &mut Vec<PoolError>) -> Self {
        let mut namespaces = BTreeSet::new();
        for namespace in &spec.namespaces {
            if !namespaces.insert(namespace.clone()) {
                errors.push(PoolError::DuplicateNamespace {
                    pool: pool.clone(),
                    namespace: namespace.clone(),
                });
            }
        }
        Self {
            priority: spec.priority,
            namespaces,
            namespace_selectors: selectors(
                pool,
                "namespaceSelectors",
                &spec.namespace_selectors,
                errors,
            ),
            service_selectors: selectors(pool, "serviceSelectors", &spec.service_selectors, errors),
        }
    }

    fn admits(&self, request: &Request) -> Result<(), Verdict> {
        let limited = !self.namespaces.is_empty() || !self.namespace_selectors.is_empty();
        let namespace = self
            .namespaces
            .contains(request.claimant.service.namespace())
            || matches_any(&self.namespace_selectors, &request.namespace_labels);
        if limited && !namespace {
            return Err(Verdict::NotForNamespace);
        }
        if !self.service_selectors.is_empty()
            && !matches_any(&self.service_selectors, &request.labels)
        {
            return Err(Verdict::NotForLabels);
        }
        Ok(())
    }

    /// Lower comes first; 0 comes last.
    pub fn priority(&self) -> i64 {
        self.priority
    }

    /// Names of namespaces.
    pub fn namespaces(&self) -> &BTreeSet<String> {
        &self.namespaces
    }

    /// Selectors on labels of namespaces.
    pub fn namespace_selectors(&self) -> &[LabelSelector] {
        &self.namespace_selectors
    }

    /// Selectors on labels of Services.
    pub fn service_selectors(&self) -> &[LabelSelector] {
        &self.service_selectors
    }
}

/// Takes what is excluded out of the entries, and cuts them where addresses are reserved.
fn parse_parts(
    pool: &PoolName,
    spec: &PoolSpec,
    mut entries: Vec<Entry>,
    errors: &mut Vec<PoolError>,
) -> Vec<Entry> {
    let mut range = |text: &str, field| match text.parse::<Range>() {
        Ok(range) => Some(range),
        Err(source) => {
            errors.push(PoolError::Part {
                pool: pool.clone(),
                field,
                text: text.to_owned(),
                source,
            });
            None
        }
    };
    let mut parts = Vec::new();
    for text in &spec.excluded {
        parts.extend(range(text, EXCLUDED).map(|range| (range, None)));
    }
    for (text, service) in &spec.reserved {
        parts.extend(range(text, RESERVED).map(|range| (range, Some(service))));
    }
    for (range, service) in parts {
        let reservation = match service.map(|service| service.parse::<Reservation>()) {
            None => None,
            Some(Ok(reservation)) => Some(reservation),
            Some(Err(())) => {
                errors.push(PoolError::Reservation {
                    pool: pool.clone(),
                    text: service.cloned().unwrap_or_default(),
                });
                continue;
            }
        };
        let cut = |entry: &Entry| match &reservation {
            None => entry.without(range),
            Some(reservation) => entry.reserving(range, reservation),
        };
        entries = entries.iter().flat_map(cut).collect();
    }
    entries
}

fn matches_any(selectors: &[LabelSelector], labels: &crate::selector::Labels) -> bool {
    selectors.iter().any(|selector| selector.matches(labels))
}

fn selectors(
    pool: &PoolName,
    field: &'static str,
    specs: &[SelectorSpec],
    errors: &mut Vec<PoolError>,
) -> Vec<LabelSelector> {
    let mut selectors = Vec::with_capacity(specs.len());
    for spec in specs {
        match LabelSelector::parse(spec) {
            Ok(selector) if selectors.contains(&selector) => {
                errors.push(PoolError::DuplicateSelector {
                    pool: pool.clone(),
                    field,
                    selector,
                });
            }
            Ok(selector) => selectors.push(selector),
            Err(source) => errors.push(PoolError::Selector {
                pool: pool.clone(),
                field,
                source,
            }),
        }
    }
    selectors
}

#[cfg(test)]
mod tests;
