//! The name by which a pool is known.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// Name of a pool. Never empty in a [`Pool`](crate::Pool).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolName(Arc<str>);

// === impl PoolName ===

impl PoolName {
    /// Wraps a name.
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for PoolName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
