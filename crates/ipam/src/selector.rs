//! Label selectors as Kubernetes has them, validated against labels that the caller brings.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// A selector as written, not yet validated.
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
    #[error("operator {operator:?} of key {key:?} is unknown")]
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
    #[error("value {value:?} of key {key:?} is listed twice")]
    DuplicateValue {
        /// Key of the expression.
        key: String,
        /// The value.
        value: String,
    },
    /// Two expressions say the same.
    #[error("the expression \"{expression}\" is listed twice")]
    DuplicateExpression {
        /// The expression.
        expression: Expression,
    },
}

// === impl LabelSelector ===

impl LabelSelector {
    /// Validates a selector.
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
mod tests;
