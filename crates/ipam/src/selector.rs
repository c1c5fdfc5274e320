//! Label selectors as Kubernetes has them, judged against labels that the caller brings.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// A selector as written, not yet judged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectorSpec {
    /// `matchLabels`.
    pub match_labels: Labels,
    /// `matchExpressions`.
    pub match_expressions: Vec<ExpressionSpec>,
}

/// An expression as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionSpec {
    /// Label key.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// Values, for `In` and `NotIn` only.
    pub values: Vec<String>,
}

/// A valid selector. All its parts must match; without any part it matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    match_labels: Labels,
    expressions: Vec<Expression>,
}

/// One demand on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// The label exists with one of these values.
    In(String, BTreeSet<String>),
    /// The label is absent or has none of these values.
    NotIn(String, BTreeSet<String>),
    /// The label exists.
    Exists(String),
    /// The label is absent.
    DoesNotExist(String),
}

/// The four operators of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// One of the values.
    In,
    /// None of the values.
    NotIn,
    /// Present.
    Exists,
    /// Absent.
    DoesNotExist,
}

/// What is wrong with a selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// A key is empty.
    #[error("a label key is empty")]
    EmptyKey,
    /// No such operator.
    #[error("operator {operator:?} of key {key:?} is not known")]
    UnknownOperator {
        /// Key of the expression.
        key: String,
        /// What was written.
        operator: String,
    },
    /// `In` or `NotIn` without values.
    #[error("operator {operator} of key {key:?} has no values")]
    ValuesMissing {
        /// Key of the expression.
        key: String,
        /// Its operator.
        operator: Operator,
    },
    /// `Exists` or `DoesNotExist` with values.
    #[error("operator {operator} of key {key:?} takes no values, and has {}", values.join(", "))]
    ValuesUnexpected {
        /// Key of the expression.
        key: String,
        /// Its operator.
        operator: Operator,
        /// The values.
        values: Vec<String>,
    },
    /// A value stands twice in one expression.
    #[error("value {value:?} of key {key:?} stands twice")]
    DuplicateValue {
        /// Key of the expression.
        key: String,
        /// The value.
        value: String,
    },
    /// Two expressions say the same.
    #[error("the expression \"{expression}\" stands twice")]
    DuplicateExpression {
        /// The expression.
        expression: Expression,
    },
}

// === impl LabelSelector ===

impl LabelSelector {
    /// Judges a selector.
    pub fn parse(spec: &SelectorSpec) -> Result<Self, SelectorError> {
        if spec.match_labels.contains_key("") {
            return Err(SelectorError::EmptyKey);
        }
        let mut expressions = Vec::with_capacity(spec.match_expressions.len());
        for expression in &spec.match_expressions {
            let expression = Expression::parse(expression)?;
            if expressions.contains(&expression) {
                return Err(SelectorError::DuplicateExpression { expression });
            }
            expressions.push(expression);
        }
        Ok(Self {
            match_labels: spec.match_labels.clone(),
            expressions,
        })
    }

    /// Whether all parts match.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.match_labels
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value))
            && self
                .expressions
                .iter()
                .all(|expression| expression.matches(labels))
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels = self
            .match_labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"));
        let parts: Vec<String> = labels
            .chain(self.expressions.iter().map(ToString::to_string))
            .collect();
        f.write_str(if parts.is_empty() { "everything" } else { "" })?;
        f.write_str(&parts.join(", "))
    }
}

// === impl Expression ===

impl Expression {
    fn parse(spec: &ExpressionSpec) -> Result<Self, SelectorError> {
        let key = spec.key.clone();
        if key.is_empty() {
            return Err(SelectorError::EmptyKey);
        }
        let Ok(operator) = spec.operator.parse() else {
            return Err(SelectorError::UnknownOperator {
                key,
                operator: spec.operator.clone(),
            });
        };
        let mut values = BTreeSet::new();
        for value in &spec.values {
            if !values.insert(value.clone()) {
                return Err(SelectorError::DuplicateValue {
                    key,
                    value: value.clone(),
                });
            }
        }
        match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                Err(SelectorError::ValuesMissing { key, operator })
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                Err(SelectorError::ValuesUnexpected {
                    key,
                    operator,
                    values: spec.values.clone(),
                })
            }
            Operator::In => Ok(Self::In(key, values)),
            Operator::NotIn => Ok(Self::NotIn(key, values)),
            Operator::Exists => Ok(Self::Exists(key)),
            Operator::DoesNotExist => Ok(Self::DoesNotExist(key)),
        }
    }

    fn matches(&self, labels: &Labels) -> bool {
        match self {
            Self::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
            Self::NotIn(key, values) => labels.get(key).is_none_or(|value| !values.contains(value)),
            Self::Exists(key) => labels.contains_key(key),
            Self::DoesNotExist(key) => !labels.contains_key(key),
        }
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |values: &BTreeSet<String>| {
            values
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join(", ")
        };
        match self {
            Self::In(key, values) => write!(f, "{key} in ({})", list(values)),
            Self::NotIn(key, values) => write!(f, "{key} notin ({})", list(values)),
            Self::Exists(key) => write!(f, "{key}"),
            Self::DoesNotExist(key) => write!(f, "!{key}"),
        }
    }
}

// === impl Operator ===

impl Operator {
    const ALL: [Self; 4] = [Self::In, Self::NotIn, Self::Exists, Self::DoesNotExist];

    fn name(self) -> &'static str {
        match self {
            Self::In => "In",
            Self::NotIn => "NotIn",
            Self::Exists => "Exists",
            Self::DoesNotExist => "DoesNotExist",
        }
    }
}

impl FromStr for Operator {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL
            .into_iter()
            .find(|operator| operator.name() == text)
            .ok_or(())
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

// === impl SelectorError ===

impl SelectorError {
    /// What to write instead.
    pub fn remedy(&self) -> String {
        match self {
            Self::EmptyKey => "name the label".to_owned(),
            Self::UnknownOperator { .. } => "write In, NotIn, Exists or DoesNotExist".to_owned(),
            Self::ValuesMissing { operator, .. } => {
                let alone = match operator {
                    Operator::NotIn | Operator::DoesNotExist => Operator::DoesNotExist,
                    Operator::In | Operator::Exists => Operator::Exists,
                };
                format!("list at least one value, or use {alone}")
            }
            Self::ValuesUnexpected { operator, .. } => {
                let listed = match operator {
                    Operator::NotIn | Operator::DoesNotExist => Operator::NotIn,
                    Operator::In | Operator::Exists => Operator::In,
                };
                format!("remove the values, or use {listed}")
            }
            Self::DuplicateValue { value, .. } => format!("remove one {value:?}"),
            Self::DuplicateExpression { .. } => "remove one of the two".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn expression(key: &str, operator: &str, values: &[&str]) -> ExpressionSpec {
        ExpressionSpec {
            key: key.to_owned(),
            operator: operator.to_owned(),
            values: values.iter().map(|value| (*value).to_owned()).collect(),
        }
    }

    fn parse(expressions: Vec<ExpressionSpec>) -> Result<LabelSelector, SelectorError> {
        LabelSelector::parse(&SelectorSpec {
            match_labels: Labels::new(),
            match_expressions: expressions,
        })
    }

    #[test]
    fn an_empty_selector_matches_everything() {
        let selector = parse(vec![]).unwrap();
        assert!(selector.matches(&labels(&[])));
        assert!(selector.matches(&labels(&[("a", "b")])));
        assert_eq!(selector.to_string(), "everything");
    }

    #[test]
    fn every_operator_matches_by_its_own_rule() {
        let cases = [
            ("In", vec!["x", "y"], [true, false, false]),
            ("NotIn", vec!["x", "y"], [false, true, true]),
            ("Exists", vec![], [true, true, false]),
            ("DoesNotExist", vec![], [false, false, true]),
        ];
        for (operator, values, expected) in cases {
            let selector = parse(vec![expression("k", operator, &values)]).unwrap();
            let found = [
                labels(&[("k", "x")]),
                labels(&[("k", "z")]),
                labels(&[("j", "x")]),
            ]
            .map(|labels| selector.matches(&labels));
            assert_eq!(found, expected, "{operator}");
        }
    }

    #[test]
    fn labels_and_expressions_must_all_match() {
        let selector = LabelSelector::parse(&SelectorSpec {
            match_labels: labels(&[("app", "web")]),
            match_expressions: vec![
                expression("tier", "In", &["a", "b"]),
                expression("off", "DoesNotExist", &[]),
            ],
        })
        .unwrap();
        assert!(selector.matches(&labels(&[("app", "web"), ("tier", "a")])));
        assert!(!selector.matches(&labels(&[("app", "web")])));
        assert!(!selector.matches(&labels(&[("app", "api"), ("tier", "a")])));
        assert!(!selector.matches(&labels(&[("app", "web"), ("tier", "a"), ("off", "")])));
        assert_eq!(selector.to_string(), "app=web, tier in (a, b), !off");
    }

    #[test]
    fn each_mistake_is_named_with_what_would_be_right() {
        let key = || "k".to_owned();
        let cases = [
            (
                vec![expression("", "Exists", &[])],
                SelectorError::EmptyKey,
                "name",
            ),
            (
                vec![expression("k", "in", &["x"])],
                SelectorError::UnknownOperator {
                    key: key(),
                    operator: "in".into(),
                },
                "NotIn",
            ),
            (
                vec![expression("k", "NotIn", &[])],
                SelectorError::ValuesMissing {
                    key: key(),
                    operator: Operator::NotIn,
                },
                "DoesNotExist",
            ),
            (
                vec![expression("k", "Exists", &["x"])],
                SelectorError::ValuesUnexpected {
                    key: key(),
                    operator: Operator::Exists,
                    values: vec!["x".into()],
                },
                "use In",
            ),
            (
                vec![expression("k", "In", &["x", "x"])],
                SelectorError::DuplicateValue {
                    key: key(),
                    value: "x".into(),
                },
                "\"x\"",
            ),
            (
                vec![
                    expression("k", "In", &["x", "y"]),
                    expression("k", "In", &["y", "x"]),
                ],
                SelectorError::DuplicateExpression {
                    expression: Expression::In(key(), BTreeSet::from(["x".into(), "y".into()])),
                },
                "one of the two",
            ),
        ];
        for (expressions, expected, remedy) in cases {
            let error = parse(expressions).unwrap_err();
            assert_eq!(error, expected);
            assert!(
                error.remedy().contains(remedy),
                "{error}: {}",
                error.remedy()
            );
        }
    }

    #[test]
    fn an_empty_key_among_match_labels_is_refused() {
        let spec = SelectorSpec {
            match_labels: labels(&[("", "x")]),
            match_expressions: Vec::new(),
        };
        assert_eq!(LabelSelector::parse(&spec), Err(SelectorError::EmptyKey));
    }
}
