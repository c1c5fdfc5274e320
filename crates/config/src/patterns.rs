//! The small languages inside values of `cloud.conf` and of annotations: name patterns and tag
//! expressions. Text in, value out; no I/O.

mod name;
mod regexp;
mod tags;

pub use name::NamePattern;
pub use tags::TagExpression;

/// A pattern or expression that can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct PatternError {
    /// What is wrong, and what would be right: one clause.
    pub why: String,
}
