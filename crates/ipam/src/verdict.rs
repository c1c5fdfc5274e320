//! Why a pool that was checked could not serve a Service.

use std::fmt;

use landfall_model::rows::Family;

use crate::pool_name::PoolName;

/// A pool that was considered and could not serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedPool {
    /// The pool.
    pub pool: PoolName,
    /// Why not.
    pub verdict: Verdict,
}

/// Why a pool could not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It serves only Services that name it.
    NotAutomatic,
    /// It gives out no address any more.
    Disabled,
    /// It serves other namespaces.
    NotForNamespace,
    /// It serves other labels.
    NotForLabels,
    /// It has no address of this family.
    LacksFamily(Family),
    /// The namespace holds as many of its addresses of this family as it may.
    NamespaceFull(Family),
    /// All its addresses of this family are held.
    Full(Family),
}

impl fmt::Display for SkippedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pool = &self.pool;
        match self.verdict {
            Verdict::NotAutomatic => write!(f, "{pool} serves only Services that name it"),
            Verdict::Disabled => write!(f, "{pool} is disabled"),
            Verdict::NotForNamespace => write!(f, "{pool} serves other namespaces"),
            Verdict::NotForLabels => write!(f, "{pool} serves other labels"),
            Verdict::LacksFamily(family) => write!(f, "{pool} has no {}", family.as_str()),
            Verdict::NamespaceFull(family) => {
                write!(f, "{pool} gives the namespace no more {}", family.as_str())
            }
            Verdict::Full(family) => write!(f, "{pool} has no free {}", family.as_str()),
        }
    }
}
