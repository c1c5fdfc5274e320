//! Lists of label selectors.

use std::collections::BTreeMap;

use landfall_ipam::{ExpressionSpec, LabelSelector, Labels, SelectorSpec};

use crate::fields::Fields;

/// Label selectors of which one must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selectors(Vec<LabelSelector>);

// === impl Selectors ===

impl Selectors {
    /// Reads the selectors of a field.
    pub(crate) fn read(fields: &mut Fields<'_, '_>, field: &'static str) -> Self {
        let mut selectors: Vec<LabelSelector> = Vec::new();
        let mut duplicates = Vec::new();
        let mut index = 0;
        fields.each(field, |fields| {
            if let Some(selector) = read_fields(fields) {
                if selectors.contains(&selector) {
                    duplicates.push((index, selector));
                } else {
                    selectors.push(selector);
                }
            }
            index += 1;
        });
        for (index, selector) in duplicates {
            let place = format!("{field}[{index}]");
            fields.refuse(&place, selector.to_string(), "listed twice", "list it once");
        }
        Self(selectors)
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether one of them matches.
    pub fn any_matches(&self, labels: &Labels) -> bool {
        self.0.iter().any(|selector| selector.matches(labels))
    }

    /// Returns whether one of them matches, or there is none, which means everything.
    pub fn accepts(&self, labels: &Labels) -> bool {
        self.is_empty() || self.any_matches(labels)
    }

    /// Returns whether both accept a common object whatever objects there are.
    pub(crate) fn surely_meet(&self, other: &Self) -> bool {
        self.is_empty() || other.is_empty() || self.0.iter().any(|it| other.0.contains(it))
    }
}

/// Reads one selector that stands alone in a field.
pub(crate) fn read_one(fields: &mut Fields<'_, '_>, field: &'static str) -> Option<LabelSelector> {
    fields.within(field, read_fields).flatten()
}

fn read_fields(fields: &mut Fields<'_, '_>) -> Option<LabelSelector> {
    let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    let match_labels: BTreeMap<_, _> = fields.map("matchLabels").into_iter().map(owned).collect();
    let mut match_expressions = Vec::new();
    fields.each("matchExpressions", |fields| {
        let values = fields.texts("values").into_iter();
        match_expressions.push(ExpressionSpec {
            key: fields.text("key").unwrap_or_default().to_owned(),
            operator: fields.text("operator").unwrap_or_default().to_owned(),
            values: values.map(|(_, value)| value.to_owned()).collect(),
        });
    });
    let spec = SelectorSpec {
        match_labels,
        match_expressions,
    };
    match LabelSelector::parse(&spec) {
        Ok(selector) => Some(selector),
        Err(error) => {
            fields.refuse_unseen("matchExpressions", error.to_string(), error.remedy());
            None
        }
    }
}
