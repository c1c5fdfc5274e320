//! What can be wrong with `cloud.conf` and `clouds.yaml`.

use std::sync::Arc;

use landfall_model::reason::Origin;

use crate::gcfg;

/// A file that can't be used. No secret is ever part of it.
#[derive(Debug, thiserror::Error)]
pub enum ConfError {
    /// The file can't be read.
    #[error("{file} can't be read")]
    Unreadable {
        /// The file.
        file: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// There is no file where it was looked for.
    #[error("no {name} in any of {}", places.join(", "))]
    NotFound {
        /// What was looked for.
        name: String,
        /// Where.
        places: Vec<String>,
    },
    /// The text is not of the file's language.
    #[error("{place}: {why}")]
    Syntax {
        /// File, and line where it is known.
        place: String,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// A key has a value that it does not take.
    #[error("{place}: {key}: {value:?}: {why}")]
    Value {
        /// File, and line where it is known.
        place: String,
        /// The key, with its section.
        key: String,
        /// What stands there.
        value: String,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// Keys are missing, or contradict each other.
    #[error("{place}: {keys}: {why}")]
    Incomplete {
        /// File, and line where it is known.
        place: String,
        /// The keys it is about.
        keys: String,
        /// What is wrong, and what would be right.
        why: String,
    },
}

impl ConfError {
    pub(crate) fn syntax(file: &Arc<str>, error: &gcfg::SyntaxError) -> Self {
        Self::Syntax {
            place: origin(file, error.line).to_string(),
            why: error.to_string(),
        }
    }
}

pub(crate) fn origin(file: &Arc<str>, line: u32) -> Origin {
    Origin {
        file: Arc::clone(file),
        line,
    }
}
