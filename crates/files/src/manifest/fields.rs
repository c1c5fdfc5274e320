//! Names of fields: how they are written, on which lines they stand, and which are mistyped.

use std::collections::BTreeMap;
use std::fmt::Write as _;

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
    let mut path = parent.to_owned();
    enter(&mut path, key);
    path
}

/// Makes a path that of an entry of what it names. Returns how long it was before.
fn enter(path: &mut String, key: &str) -> usize {
    let before = path.len();
    if before == 0 {
        path.push_str(key);
    } else if is_free(path) {
        path.push('[');
        path.push_str(key);
        path.push(']');
    } else {
        path.push('.');
        path.push_str(key);
    }
    before
}

/// Makes a path that of an item of the list that it names. Returns how long it was before.
fn enter_item(path: &mut String, index: usize) -> usize {
    let before = path.len();
    // Writing into a text can't fail.
    let _ = write!(path, "[{index}]");
    before
}

fn is_free(path: &str) -> bool {
    let last = path.rsplit('.').next().unwrap_or(path);
    FREE_MAPS.contains(&last)
}

/// The line of every field of an object.
pub(super) fn lines(object: &Node) -> BTreeMap<String, u32> {
    let mut lines = Vec::new();
    collect(object, &mut String::new(), &mut lines);
    // Of two fields with one path the last one counts.
    lines.into_iter().collect()
}

/// Adds the lines below a node; `path` is as before afterwards.
fn collect(node: &Node, path: &mut String, lines: &mut Vec<(String, u32)>) {
    match &node.value {
        Value::Scalar { .. } => {}
        Value::Map(entries) => {
            for entry in entries {
                let before = enter(path, &entry.key);
                lines.push((path.clone(), entry.line));
                if path != UNREAD {
                    collect(&entry.value, path, lines);
                }
                path.truncate(before);
            }
        }
        Value::List(items) => {
            let flat = FLAT_LISTS.contains(&path.as_str());
            for (index, item) in items.iter().enumerate() {
                let before = enter_item(path, index);
                lines.push((path.clone(), item.line));
                if !flat {
                    collect(item, path, lines);
                }
                path.truncate(before);
            }
        }
    }
}

/// Fields that Kubernetes does not know, which it would refuse (kubectl, by default) or drop.
pub(super) fn unknown(object: &Node, known: Known) -> Vec<Reason> {
    let mut search = Search {
        known,
        path: String::new(),
        pattern: String::new(),
        reasons: Vec::new(),
    };
    search.look_into(object);
    search.reasons
}

/// A search for unknown fields, and where it has come to.
struct Search {
    known: Known,
    path: String,
    /// `path` with every index left out of its brackets.
    pattern: String,
    reasons: Vec<Reason>,
}

// === impl Search ===

impl Search {
    /// Looks below a node; path and pattern are as before afterwards.
    fn look_into(&mut self, node: &Node) {
        match &node.value {
            Value::Scalar { .. } => {}
            Value::List(items) => {
                let before = self.pattern.len();
                self.pattern.push_str("[]");
                if knows_below(self.known, &self.pattern) {
                    for (index, item) in items.iter().enumerate() {
                        let before = enter_item(&mut self.path, index);
                        self.look_into(item);
                        self.path.truncate(before);
                    }
                }
                self.pattern.truncate(before);
            }
            Value::Map(entries) => {
                let place = self.known.iter().find(|(place, _)| *place == self.pattern);
                for Entry { key, value, .. } in entries {
                    if let Some((_, fields)) = place
                        && !fields.contains(&key.as_str())
                    {
                        let path = join(&self.path, key);
                        self.reasons.push(unknown_field(&path, key, fields));
                        continue;
                    }
                    if matches!(value.value, Value::Scalar { .. }) {
                        continue;
                    }
                    let of_pattern = enter(&mut self.pattern, key);
                    if knows_below(self.known, &self.pattern) {
                        let of_path = enter(&mut self.path, key);
                        self.look_into(value);
                        self.path.truncate(of_path);
                    }
                    self.pattern.truncate(of_pattern);
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
