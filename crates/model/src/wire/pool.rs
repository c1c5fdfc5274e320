//! `metallb.io/v1beta1` `IPAddressPool`: its shape and its row. Ranges and selectors are validated
//! by the allocator, which alone knows how they fit together.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::dialect::{parse_duration, show_duration};
use crate::reason::{Reason, annotation_field};
use crate::rows::{PoolAllocation, PoolOrigin, PoolRow, ResourceRow, Selector};

use super::findings::{Findings, strictly};
use super::{ObjectMeta, lenient, names};

/// The annotation of a pool whose addresses Services of different namespaces may share.
const SHARE_ACROSS_NAMESPACES: &str = "landfall.dev/share-across-namespaces";

/// The annotation of a pool that gives out no address any more.
const DISABLED: &str = "landfall.dev/disabled";

/// The annotation of a pool that says how long a released address is given to no other Service.
const COOL_DOWN: &str = "landfall.dev/cool-down";

/// The annotation of a pool with what does not belong to it although it is written there.
const EXCLUDED_ADDRESSES: &str = "landfall.dev/excluded-addresses";

/// The annotation of a pool with what only some Services get.
const RESERVED_ADDRESSES: &str = "landfall.dev/reserved-addresses";

/// The annotation of a pool that says how many of its addresses one namespace may hold.
const ADDRESSES_PER_NAMESPACE: &str = "landfall.dev/addresses-per-namespace";

/// `metallb.io/v1beta1` `IPAddressPool`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IpAddressPool {
    /// Name and labels.
    pub metadata: ObjectMeta,
    /// Its ranges, and the Services that it serves.
    pub spec: IpAddressPoolSpec,
}

/// `spec` of an `IPAddressPool`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IpAddressPoolSpec {
    /// Prefixes and `FIRST-LAST` ranges.
    #[serde(deserialize_with = "lenient::or_default")]
    pub addresses: Vec<String>,
    /// False: only for Services that ask for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_assign: Option<bool>,
    /// Leave out IPv4 addresses that end in .0 or .255.
    #[serde(rename = "avoidBuggyIPs", skip_serializing_if = "Option::is_none")]
    pub avoid_buggy_ips: Option<bool>,
    /// Which Services it serves, and with what priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_allocation: Option<ServiceAllocation>,
}

/// `spec.serviceAllocation`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceAllocation {
    /// Lower goes first; 0 is last.
    #[serde(deserialize_with = "lenient::or_default")]
    pub priority: i64,
    /// Exact namespace names.
    #[serde(deserialize_with = "lenient::or_default")]
    pub namespaces: Vec<String>,
    /// Selectors on namespace labels.
    #[serde(deserialize_with = "lenient::or_default")]
    pub namespace_selectors: Vec<LabelSelectorShape>,
    /// Selectors on Service labels.
    #[serde(deserialize_with = "lenient::or_default")]
    pub service_selectors: Vec<LabelSelectorShape>,
}

/// `metav1.LabelSelector`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelectorShape {
    /// Labels that must be there with these values.
    #[serde(deserialize_with = "lenient::or_default")]
    pub match_labels: BTreeMap<String, String>,
    /// Demands on single labels.
    #[serde(deserialize_with = "lenient::or_default")]
    pub match_expressions: Vec<ExpressionShape>,
}

/// One of `matchExpressions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExpressionShape {
    /// Label key.
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`.
    pub operator: String,
    /// Values, for the first two.
    #[serde(deserialize_with = "lenient::or_default")]
    pub values: Vec<String>,
}

// === impl IpAddressPool ===

impl IpAddressPool {
    /// The row, or everything that is wrong with the object's metadata.
    pub fn into_row(self) -> Result<PoolRow, Vec<Reason>> {
        strictly(self.validated(Findings::default()))
    }

    /// Returns the row of a pool that the API server has admitted.
    pub fn into_admitted_row(self) -> PoolRow {
        self.validated(Findings::of_admitted()).0
    }

    fn validated(self, mut findings: Findings) -> (PoolRow, Vec<Reason>) {
        let name = findings.name(&self.metadata, names::dns_subdomain);
        findings.metadata(&self.metadata);
        let annotations = &self.metadata.annotations;
        let share_across_namespaces = flag(annotations, SHARE_ACROSS_NAMESPACES, &mut findings);
        let disabled = flag(annotations, DISABLED, &mut findings);
        let word = annotations.get(COOL_DOWN);
        let cool_down = word.and_then(|word| {
            let time = parse_duration(word.trim());
            if time.is_none() {
                let field = annotation_field(COOL_DOWN);
                findings.refuse(field, word, "not a time", "write a time such as 90s or 10m");
            }
            time
        });
        let excluded = list(annotations, EXCLUDED_ADDRESSES).map(str::to_owned);
        let excluded = excluded.collect();
        let reserved = reserved(annotations, &mut findings);
        let word = annotations.get(ADDRESSES_PER_NAMESPACE);
        let addresses_per_namespace = word.and_then(|word| match word.trim().parse::<u32>() {
            Ok(most) if most > 0 => Some(most),
            _ => {
                let field = annotation_field(ADDRESSES_PER_NAMESPACE);
                let remedy = "write a whole number from 1 up";
                findings.refuse(field, word, "no number of addresses", remedy);
                None
            }
        });
        let row = PoolRow {
            name,
            instance: None,
            labels: self.metadata.labels,
            addresses: self.spec.addresses,
            auto_assign: self.spec.auto_assign.unwrap_or(true),
            avoid_buggy: self.spec.avoid_buggy_ips.unwrap_or(false),
            share_across_namespaces,
            addresses_per_namespace,
            disabled,
            cool_down,
            excluded,
            reserved,
            allocation: self.spec.service_allocation.map(PoolAllocation::from),
            origin: PoolOrigin::Source,
            resource: None,
            source: None,
        };
        (row, findings.reasons())
    }
}

/// Returns the row of a pool as it was recorded while it was valid, if that is recorded.
pub fn accepted_pool(resource: &ResourceRow) -> Option<PoolRow> {
    let accepted = resource.accepted.as_ref()?;
    let shape = IpAddressPool {
        metadata: ObjectMeta {
            name: Some(resource.key.name().to_owned()),
            labels: resource.labels.clone(),
            annotations: accepted.annotations.clone(),
            ..ObjectMeta::default()
        },
        spec: IpAddressPoolSpec::deserialize(&accepted.spec).ok()?,
    };
    Some(shape.into_admitted_row())
}

/// Reads an annotation that is true or false.
fn flag(annotations: &BTreeMap<String, String>, key: &str, findings: &mut Findings) -> bool {
    match annotations.get(key).map(|word| word.trim()) {
        Some("true") => true,
        Some("false") | None => false,
        Some(word) => {
            let field = annotation_field(key);
            findings.refuse(field, word, "neither true nor false", "write true or false");
            false
        }
    }
}

/// Reads an annotation that is a list with commas.
fn list<'a>(annotations: &'a BTreeMap<String, String>, key: &str) -> impl Iterator<Item = &'a str> {
    let text = annotations.get(key).map_or("", String::as_str);
    text.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
}

fn reserved(
    annotations: &BTreeMap<String, String>,
    findings: &mut Findings,
) -> Vec<(String, String)> {
    let mut reserved = Vec::new();
    for part in list(annotations, RESERVED_ADDRESSES) {
        match part.split_once('=') {
            Some((range, services)) => {
                reserved.push((range.trim().to_owned(), services.trim().to_owned()));
            }
            // The allocator refuses it: without it, others would get what should be reserved.
            None if findings.admitted() => reserved.push((part.to_owned(), String::new())),
            None => {
                let field = annotation_field(RESERVED_ADDRESSES);
                let remedy = "write ADDRESSES=NAMESPACE or ADDRESSES=NAMESPACE/NAME";
                findings.refuse(field, part, "it does not say for which Services", remedy);
            }
        }
    }
    reserved
}

impl From<ServiceAllocation> for PoolAllocation {
    fn from(allocation: ServiceAllocation) -> Self {
        let selectors =
            |shapes: Vec<LabelSelectorShape>| shapes.into_iter().map(Selector::from).collect();
        Self {
            priority: allocation.priority,
            namespaces: allocation.namespaces,
            namespace_selectors: selectors(allocation.namespace_selectors),
            service_selectors: selectors(allocation.service_selectors),
        }
    }
}

impl From<LabelSelectorShape> for Selector {
    fn from(shape: LabelSelectorShape) -> Self {
        let expressions = shape.match_expressions.into_iter();
        Self {
            match_labels: shape.match_labels,
            match_expressions: expressions
                .map(|expression| (expression.key, expression.operator, expression.values))
                .collect(),
        }
    }
}

impl From<&PoolRow> for IpAddressPool {
    fn from(row: &PoolRow) -> Self {
        let share = row.share_across_namespaces.then(|| "true".to_owned());
        let most = row.addresses_per_namespace.map(|most| most.to_string());
        let disabled = row.disabled.then(|| "true".to_owned());
        let excluded = (!row.excluded.is_empty()).then(|| row.excluded.join(", "));
        let reserved = row.reserved.iter();
        let reserved: Vec<String> = reserved
            .map(|(range, services)| format!("{range}={services}"))
            .collect();
        let reserved = (!reserved.is_empty()).then(|| reserved.join(", "));
        let annotations = [
            (SHARE_ACROSS_NAMESPACES, share),
            (ADDRESSES_PER_NAMESPACE, most),
            (DISABLED, disabled),
            (COOL_DOWN, row.cool_down.map(show_duration)),
            (EXCLUDED_ADDRESSES, excluded),
            (RESERVED_ADDRESSES, reserved),
        ];
        let annotations = annotations.into_iter();
        Self {
            metadata: ObjectMeta {
                annotations: annotations
                    .filter_map(|(key, word)| Some((key.to_owned(), word?)))
                    .collect(),
                name: Some(row.name.clone()),
                labels: row.labels.clone(),
                ..ObjectMeta::default()
            },
            spec: IpAddressPoolSpec {
                addresses: row.addresses.clone(),
                auto_assign: Some(row.auto_assign),
                avoid_buggy_ips: Some(row.avoid_buggy),
                service_allocation: row.allocation.as_ref().map(ServiceAllocation::from),
            },
        }
    }
}

impl From<&PoolAllocation> for ServiceAllocation {
    fn from(allocation: &PoolAllocation) -> Self {
        let shapes = |selectors: &[Selector]| selectors.iter().map(Into::into).collect();
        Self {
            priority: allocation.priority,
            namespaces: allocation.namespaces.clone(),
            namespace_selectors: shapes(&allocation.namespace_selectors),
            service_selectors: shapes(&allocation.service_selectors),
        }
    }
}

impl From<&Selector> for LabelSelectorShape {
    fn from(selector: &Selector) -> Self {
        let expressions = selector.match_expressions.iter();
        Self {
            match_labels: selector.match_labels.clone(),
            match_expressions: expressions
                .map(|(key, operator, values)| ExpressionShape {
                    key: key.clone(),
                    operator: operator.clone(),
                    values: values.clone(),
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_reads_as_metallb_writes_it() {
        let pool: IpAddressPool = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "edge", "namespace": "metallb-system"},
            "spec": {
                "addresses": ["192.0.2.0/28"], "autoAssign": false, "avoidBuggyIPs": true,
                "serviceAllocation": {
                    "priority": 10, "namespaces": ["shop"],
                    "serviceSelectors": [{"matchExpressions": [
                        {"key": "tier", "operator": "In", "values": ["front"]}]}]
                }
            }
        }))
        .unwrap();
        let row = pool.into_row().unwrap();
        assert_eq!((row.auto_assign, row.avoid_buggy), (false, true));
        let allocation = row.allocation.unwrap();
        assert_eq!(
            (allocation.priority, allocation.namespaces),
            (10, vec!["shop".to_owned()])
        );
        assert_eq!(
            allocation.service_selectors[0].match_expressions,
            [("tier".to_owned(), "In".to_owned(), vec!["front".to_owned()])]
        );
    }

    #[test]
    fn a_row_becomes_the_object_that_it_was_made_of() {
        let row = PoolRow {
            name: "edge".to_owned(),
            labels: BTreeMap::from([("tier".to_owned(), "front".to_owned())]),
            addresses: vec!["192.0.2.0/28".to_owned()],
            avoid_buggy: true,
            share_across_namespaces: true,
            addresses_per_namespace: Some(3),
            disabled: true,
            cool_down: Some(std::time::Duration::from_secs(90)),
            excluded: vec!["192.0.2.1".to_owned(), "192.0.2.4/31".to_owned()],
            reserved: vec![("192.0.2.8/30".to_owned(), "shop/web".to_owned())],
            allocation: Some(PoolAllocation {
                priority: 3,
                namespaces: vec!["shop".to_owned()],
                namespace_selectors: vec![Selector {
                    match_labels: BTreeMap::from([("team".to_owned(), "a".to_owned())]),
                    match_expressions: Vec::new(),
                }],
                service_selectors: vec![Selector {
                    match_labels: BTreeMap::new(),
                    match_expressions: vec![("x".to_owned(), "Exists".to_owned(), Vec::new())],
                }],
            }),
            ..PoolRow::default()
        };
        let text = serde_json::to_string(&IpAddressPool::from(&row)).unwrap();
        let shape: IpAddressPool = serde_json::from_str(&text).unwrap();
        assert_eq!(shape.into_row().unwrap(), row);
    }

    #[test]
    fn the_limit_of_a_namespace_is_read_and_what_is_no_number_is_reported() {
        let read = |word: &str| {
            let metadata = serde_json::json!({
                "name": "edge",
                "annotations": {"landfall.dev/addresses-per-namespace": word},
            });
            let pool: IpAddressPool =
                serde_json::from_value(serde_json::json!({ "metadata": metadata })).unwrap();
            pool.into_row().map(|row| row.addresses_per_namespace)
        };
        assert_eq!(read(" 7 "), Ok(Some(7)));
        for word in ["0", "-1", "many", "", "99999999999"] {
            let refused = read(word).unwrap_err();
            assert_eq!(refused.len(), 1, "{word}");
            assert!(refused[0].to_string().contains("addresses-per-namespace"));
        }
    }

    #[test]
    fn extensions_of_a_pool_that_can_not_be_read_are_reported_with_their_annotation() {
        for (key, word) in [
            ("landfall.dev/disabled", "yes"),
            ("landfall.dev/cool-down", "a while"),
            ("landfall.dev/share-across-namespaces", "1"),
            ("landfall.dev/reserved-addresses", "192.0.2.1"),
        ] {
            let metadata = serde_json::json!({"name": "edge", "annotations": {key: word}});
            let pool: IpAddressPool =
                serde_json::from_value(serde_json::json!({ "metadata": metadata })).unwrap();
            let refused = pool.into_row().unwrap_err();
            assert_eq!(refused.len(), 1, "{key}");
            assert_eq!(refused[0].field, Some(annotation_field(key)));
            assert_eq!(refused[0].value.as_deref(), Some(word));
        }
    }

    #[test]
    fn what_is_left_out_means_automatic_for_everybody() {
        let pool: IpAddressPool =
            serde_json::from_value(serde_json::json!({"metadata": {"name": "edge"}})).unwrap();
        let row = pool.into_row().unwrap();
        assert_eq!(
            (row.auto_assign, row.avoid_buggy, row.allocation),
            (true, false, None)
        );
    }
}
