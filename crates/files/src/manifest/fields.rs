//! Names of fields: how they are written, on which lines they stand, and which are mistyped.

use std::collections::BTreeMap;

use landfall_model::dialect::closest;
use landfall_model::reason::{Code, Reason};

use super::tree::{Entry, Node, Value};

/// Maps whose keys are the user's own: written `annotations[KEY]`, and never mistyped.
const FREE_MAPS: [&str; 6] = [
    "annotations",
    "labels",
    "selector",
    "matchLabels",
    "data",
    "stringData",
];

/// Fields of the API server that are not written by hand and that no reason names.
const UNREAD: &str = "metadata.managedFields";

/// Lists whose items have no lines of their own fields: a slice holds a thousand endpoints, and the
/// line of each is enough to find it.
const FLAT_LISTS: [&str; 1] = ["endpoints"];

/// The fields that Kubernetes knows, by the path around them; `[]` stands for any index.
pub(super) type Known = &'static [(&'static str, &'static [&'static str])];

pub(super) const METADATA: (&str, &[&str]) = (
    "metadata",
    &[
        "annotations",
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "labels",
        "managedFields",
        "name",
        "namespace",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    ],
);

/// A Service.
pub(super) const SERVICE: Known = &[
    METADATA,
    ("", &["apiVersion", "kind", "metadata", "spec", "status"]),
    (
        "spec",
        &[
            "allocateLoadBalancerNodePorts",
            "clusterIP",
            "clusterIPs",
            "externalIPs",
            "externalName",
            "externalTrafficPolicy",
            "healthCheckNodePort",
            "internalTrafficPolicy",
            "ipFamilies",
            "ipFamilyPolicy",
            "loadBalancerClass",
            "loadBalancerIP",
            "loadBalancerSourceRanges",
            "ports",
            "publishNotReadyAddresses",
            "selector",
            "sessionAffinity",
            "sessionAffinityConfig",
            "trafficDistribution",
            "type",
        ],
    ),
    (
        "spec.ports[]",
        &[
            "appProtocol",
            "name",
            "nodePort",
            "port",
            "protocol",
            "targetPort",
        ],
    ),
    ("spec.sessionAffinityConfig", &["clientIP"]),
    ("spec.sessionAffinityConfig.clientIP", &["timeoutSeconds"]),
];

/// An `EndpointSlice`.
pub(super) const SLICE: Known = &[
    METADATA,
    (
        "",
        &[
            "addressType",
            "apiVersion",
            "endpoints",
            "kind",
            "metadata",
            "ports",
        ],
    ),
    (
        "endpoints[]",
        &[
            "addresses",
            "conditions",
            "deprecatedTopology",
            "hints",
            "hostname",
            "nodeName",
            "targetRef",
            "zone",
        ],
    ),
    (
        "endpoints[].conditions",
        &["ready", "serving", "terminating"],
    ),
    ("ports[]", &["appProtocol", "name", "port", "protocol"]),
];

/// A Secret.
pub(super) const SECRET: Known = &[
    METADATA,
    (
        "",
        &[
            "apiVersion",
            "data",
            "immutable",
            "kind",
            "metadata",
            "stringData",
            "type",
        ],
    ),
];

/// Objects of which only the metadata and a few fields matter.
pub(super) const METADATA_ONLY: Known = &[METADATA];

/// The path of an entry: `spec.ports`, `metadata.annotations[KEY]`.
pub(super) fn join(parent: &str, key: &str) -> String {
    if parent.is_empty() {
        return key.to_owned();
    }
    if is_free(parent) {
        format!("{parent}[{key}]")
    } else {
        format!("{parent}.{key}")
    }
}

fn is_free(path: &str) -> bool {
    let last = path.rsplit('.').next().unwrap_or(path);
    FREE_MAPS.contains(&last)
}

/// The line of every field of an object.
pub(super) fn lines(object: &Node) -> BTreeMap<String, u32> {
    let mut lines = BTreeMap::new();
    collect(object, "", &mut lines);
    lines
}

fn collect(node: &Node, path: &str, lines: &mut BTreeMap<String, u32>) {
    match &node.value {
        Value::Scalar { .. } => {}
        Value::Map(entries) => {
            for entry in entries {
                let path = join(path, &entry.key);
                lines.insert(path.clone(), entry.line);
                if path != UNREAD {
                    collect(&entry.value, &path, lines);
                }
            }
        }
        Value::List(items) => {
            let flat = FLAT_LISTS.contains(&path);
            for (index, item) in items.iter().enumerate() {
                let path = format!("{path}[{index}]");
                lines.insert(path.clone(), item.line);
                if !flat {
                    collect(item, &path, lines);
                }
            }
        }
    }
}

/// Fields that Kubernetes does not know, which it would refuse (kubectl, by default) or drop.
pub(super) fn unknown(object: &Node, known: Known) -> Vec<Reason> {
    let mut reasons = Vec::new();
    look_for_unknown(object, "", "", known, &mut reasons);
    reasons
}

/// `pattern` is `path` with every index left out of its brackets.
fn look_for_unknown(
    node: &Node,
    path: &str,
    pattern: &str,
    known: Known,
    reasons: &mut Vec<Reason>,
) {
    match &node.value {
        Value::Scalar { .. } => {}
        Value::List(items) => {
            let pattern = format!("{pattern}[]");
            if knows_below(known, &pattern) {
                for (index, item) in items.iter().enumerate() {
                    look_for_unknown(item, &format!("{path}[{index}]"), &pattern, known, reasons);
                }
            }
        }
        Value::Map(entries) => {
            let fields = known.iter().find(|(place, _)| *place == pattern);
            for Entry { key, value, .. } in entries {
                if let Some((_, fields)) = fields
                    && !fields.contains(&key.as_str())
                {
                    reasons.push(unknown_field(&join(path, key), key, fields));
                    continue;
                }
                let pattern = join(pattern, key);
                if knows_below(known, &pattern) {
                    look_for_unknown(value, &join(path, key), &pattern, known, reasons);
                }
            }
        }
    }
}

fn knows_below(known: Known, pattern: &str) -> bool {
    known.iter().any(|(place, _)| place.starts_with(pattern))
}

fn unknown_field(path: &str, key: &str, fields: &[&'static str]) -> Reason {
    let reason = Reason::warning(Code::InvalidField, "Kubernetes knows no such field").at(path);
    let same_but_for_case = fields.iter().find(|field| field.eq_ignore_ascii_case(key));
    match same_but_for_case
        .copied()
        .or_else(|| closest(key, fields.iter().copied()))
    {
        Some(field) => reason.remedy(format!("did you mean {field}?")),
        None => reason.remedy("remove it"),
    }
}
