//! `IPAddressPool` (`v1beta1`): what is not read of it although it is written.
//!
//! Pools are rows of their own, read by `landfall-model` and validated by `landfall-ipam`, wherever
//! they come from. What both skip is found here: fields and annotations that do not exist, and
//! annotations of Landfall with a value that they can't have.

use landfall_model::dialect::parse_duration;
use landfall_model::reason::{Code, Reason, annotation_field};
use landfall_model::rows::ResourceRow;

use crate::fields::Fields;

/// The domain of Landfall's annotations.
const DOMAIN: &str = "landfall.dev/";

/// Landfall's annotations of pools, and the values of each.
const ANNOTATIONS: [(&str, Values); 6] = [
    ("landfall.dev/addresses-per-namespace", Values::Number),
    ("landfall.dev/cool-down", Values::Time),
    ("landfall.dev/disabled", Values::Flag),
    ("landfall.dev/excluded-addresses", Values::Any),
    ("landfall.dev/reserved-addresses", Values::Any),
    ("landfall.dev/share-across-namespaces", Values::Flag),
];

#[derive(Clone, Copy)]
enum Values {
    Flag,
    Number,
    Time,
    /// The allocator validates them.
    Any,
}

/// Returns what is written in a pool and not read.
pub(crate) fn unread(row: &ResourceRow) -> Vec<Reason> {
    let mut reasons = Vec::new();
    let mut fields = Fields::of_spec(&row.spec, &mut reasons);
    fields.texts("addresses");
    fields.flag("autoAssign");
    fields.flag("avoidBuggyIPs");
    fields.within("serviceAllocation", |fields| {
        fields.integer("priority");
        fields.texts("namespaces");
        for field in ["namespaceSelectors", "serviceSelectors"] {
            fields.each(field, |fields| {
                fields.map("matchLabels");
                fields.each("matchExpressions", |fields| {
                    fields.text("key");
                    fields.text("operator");
                    fields.texts("values");
                });
            });
        }
    });
    fields.finish();
    let annotations = row.annotations.iter();
    let ours = annotations.filter(|(key, _)| key.starts_with(DOMAIN));
    reasons.extend(ours.filter_map(|(key, value)| misread(key, value.trim())));
    reasons
}

/// Returns why an annotation of Landfall is ignored, if it is.
fn misread(key: &str, value: &str) -> Option<Reason> {
    let Some((_, values)) = ANNOTATIONS.iter().find(|(known, _)| *known == key) else {
        let known: Vec<&str> = ANNOTATIONS.iter().map(|(key, _)| *key).collect();
        let message = "pools have no such annotation: it is ignored";
        let reason = Reason::warning(Code::InvalidResource, message).at(annotation_field(key));
        return Some(reason.remedy(format!("remove it, or write one of {}", known.join(", "))));
    };
    let (fits, remedy) = match values {
        Values::Flag => (matches!(value, "true" | "false"), "write true or false"),
        Values::Number => (
            value.parse::<u32>().is_ok_and(|number| number > 0),
            "write a whole number from 1 up",
        ),
        Values::Time => (
            parse_duration(value).is_some(),
            "write a time such as 90s or 10m",
        ),
        Values::Any => (true, ""),
    };
    (!fits).then(|| {
        Reason::error(
            Code::InvalidResource,
            "it can't have this value, and is ignored",
        )
        .at(annotation_field(key))
        .value(value)
        .remedy(remedy)
    })
}
