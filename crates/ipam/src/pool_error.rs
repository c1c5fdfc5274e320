//! What is wrong with a pool, with what would be right.

use landfall_model::Code;
use landfall_model::reason::{Reason, annotation_field};
use landfall_model::rows::{PoolOrigin, PoolRow};

use crate::entry::{Entry, EntryError};
use crate::pool_name::PoolName;
use crate::selector::{LabelSelector, SelectorError};

/// A mistake in a pool, or between two.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// The name is empty.
    #[error("a pool has no name")]
    NoName,
    /// There is no entry.
    #[error("pool {pool} has no addresses")]
    NoAddresses {
        /// The pool.
        pool: PoolName,
    },
    /// An entry can't be read.
    #[error("pool {pool}, entry {entry:?}: {source}")]
    Entry {
        /// The pool.
        pool: PoolName,
        /// The entry as written.
        entry: String,
        /// What is wrong with it.
        source: EntryError,
    },
    /// What is excluded or reserved can't be read.
    #[error("pool {pool}, {text:?} in {field}: {source}")]
    Part {
        /// The pool.
        pool: PoolName,
        /// The annotation.
        field: &'static str,
        /// The addresses as written.
        text: String,
        /// What is wrong with them.
        source: EntryError,
    },
    /// Addresses are reserved for what can't be a Service.
    #[error("pool {pool} reserves addresses for {text:?}, which is no namespace and no Service")]
    Reservation {
        /// The pool.
        pool: PoolName,
        /// For what.
        text: String,
    },
    /// Two entries have addresses in common.
    #[error("pool {pool}, entry {entry:?} overlaps entry {other_entry:?} of pool {other_pool}")]
    Overlap {
        /// The pool that would have to change.
        pool: PoolName,
        /// Its entry.
        entry: String,
        /// The pool it collides with, which may be itself.
        other_pool: PoolName,
        /// The entry it collides with.
        other_entry: String,
    },
    /// Two pools have one name.
    #[error("there are two pools with the name {pool}")]
    DuplicatePool {
        /// The name.
        pool: PoolName,
    },
    /// A namespace is listed twice.
    #[error("pool {pool} lists the namespace {namespace:?} twice")]
    DuplicateNamespace {
        /// The pool.
        pool: PoolName,
        /// The namespace.
        namespace: String,
    },
    /// A selector is listed twice.
    #[error("pool {pool} lists the selector \"{selector}\" twice in {field}")]
    DuplicateSelector {
        /// The pool.
        pool: PoolName,
        /// Field of the pool.
        field: &'static str,
        /// The selector.
        selector: LabelSelector,
    },
    /// A selector can't be.
    #[error("pool {pool}, a selector in {field}: {source}")]
    Selector {
        /// The pool.
        pool: PoolName,
        /// Field of the pool.
        field: &'static str,
        /// What is wrong with it.
        source: SelectorError,
    },
}

impl PoolError {
    /// The pool to read; `None` when it has no name.
    pub fn pool(&self) -> Option<&PoolName> {
        match self {
            Self::NoName => None,
            Self::NoAddresses { pool }
            | Self::Entry { pool, .. }
            | Self::Part { pool, .. }
            | Self::Reservation { pool, .. }
            | Self::Overlap { pool, .. }
            | Self::DuplicatePool { pool }
            | Self::DuplicateNamespace { pool, .. }
            | Self::DuplicateSelector { pool, .. }
            | Self::Selector { pool, .. } => Some(pool),
        }
    }

    /// The stable code.
    pub fn code(&self) -> Code {
        Code::InvalidPool
    }

    /// Returns it as a reason about the row of its pool.
    pub fn reason(&self, row: Option<&PoolRow>) -> Reason {
        let reason = Reason::error(self.code(), self.to_string()).remedy(self.remedy());
        // Pools of the configuration are named in the message; their fields have other paths.
        let Some(row) = row.filter(|row| row.origin == PoolOrigin::Source) else {
            return reason;
        };
        let (field, value) = self.place(row);
        let source = row.source.as_ref();
        let reason = reason.origin(source.map(|source| source.origin_of(&field)));
        let reason = reason.at(field);
        match value {
            Some(value) => reason.value(value),
            None => reason,
        }
    }

    /// The field of the object that it is about, and its value.
    fn place(&self, row: &PoolRow) -> (String, Option<String>) {
        let entry = |text: &str| {
            let place = row.addresses.iter().position(|it| it.trim() == text.trim());
            let field = place.map(|place| format!("spec.addresses[{place}]"));
            let field = field.unwrap_or_else(|| "spec.addresses".to_owned());
            (field, Some(text.to_owned()))
        };
        let of_allocation = |field: &str| format!("spec.serviceAllocation.{field}");
        match self {
            Self::NoName => ("metadata.name".to_owned(), None),
            Self::NoAddresses { .. } => ("spec.addresses".to_owned(), None),
            Self::Entry { entry: text, .. } | Self::Overlap { entry: text, .. } => entry(text),
            Self::Part { field, text, .. } => (annotation_field(field), Some(text.clone())),
            Self::Reservation { text, .. } => {
                let field = annotation_field("landfall.dev/reserved-addresses");
                (field, Some(text.clone()))
            }
            Self::DuplicatePool { pool } => ("metadata.name".to_owned(), Some(pool.to_string())),
            Self::DuplicateNamespace { namespace, .. } => {
                (of_allocation("namespaces"), Some(namespace.clone()))
            }
            Self::DuplicateSelector {
                field, selector, ..
            } => (of_allocation(field), Some(selector.to_string())),
            Self::Selector { field, .. } => (of_allocation(field), None),
        }
    }

    /// What to change.
    pub fn remedy(&self) -> String {
        match self {
            Self::NoName => "give the pool a name".to_owned(),
            Self::NoAddresses { .. } => {
                "list at least one prefix such as 192.0.2.0/24 or range such as \
                 192.0.2.10-192.0.2.20"
                    .to_owned()
            }
            Self::Entry { source, .. } | Self::Part { source, .. } => source.remedy(),
            Self::Reservation { .. } => {
                "write a namespace, or a Service as NAMESPACE/NAME".to_owned()
            }
            Self::Overlap {
                pool,
                entry,
                other_pool,
                other_entry,
            } => format!(
                "remove the common addresses from {entry:?} of pool {pool} or from {other_entry:?} \
                of pool {other_pool}"
            ),
            Self::DuplicatePool { .. } => "rename one of the two".to_owned(),
            Self::DuplicateNamespace { namespace, .. } => format!("list {namespace:?} once"),
            Self::DuplicateSelector { .. } => "remove one of the two".to_owned(),
            Self::Selector { source, .. } => source.remedy(),
        }
    }

    /// Every entry that begins before an entry ahead of it has ended.
    pub(crate) fn overlaps<'a>(
        entries: impl Iterator<Item = (&'a PoolName, &'a Entry)>,
    ) -> Vec<Self> {
        let mut entries: Vec<_> = entries.collect();
        entries.sort_by_key(|(pool, entry)| {
            (
                entry.range().first(),
                entry.range().last(),
                *pool,
                entry.text(),
            )
        });
        let mut errors = Vec::new();
        let mut reach: Option<(&PoolName, &Entry)> = None;
        for (pool, entry) in entries {
            let collides = reach.filter(|(_, other)| other.range().contains(entry.range().first()));
            if let Some((other_pool, other)) = collides {
                // The later name gives way, so that the message is the same on every run.
                let ((pool, entry), (other_pool, other)) = if pool < other_pool {
                    ((other_pool, other), (pool, entry))
                } else {
                    ((pool, entry), (other_pool, other))
                };
                errors.push(Self::overlap(pool, entry, other_pool, other));
            }
            if reach.is_none_or(|(_, other)| other.range().last() < entry.range().last()) {
                reach = Some((pool, entry));
            }
        }
        errors
    }

    pub(crate) fn overlap(
        pool: &PoolName,
        entry: &Entry,
        other_pool: &PoolName,
        other_entry: &Entry,
    ) -> Self {
        Self::Overlap {
            pool: pool.clone(),
            entry: entry.text().to_owned(),
            other_pool: other_pool.clone(),
            other_entry: other_entry.text().to_owned(),
        }
    }
}
