//! The git-config dialect in which `cloud.conf` is written.
//!
//! This is the dialect of the Go package gcfg, whose rules differ from git's in places: names
//! consist of letters, digits and `-`; a section heading stands alone on its line; a quoted part
//! may stand anywhere in a value.
//!
//! ```text
//! [LoadBalancer]                  ; section names don't care about case
//! subnet-id = 1b2c # the rest of the line is a comment
//! enabled                         # no `=`: a bare key
//! [LoadBalancerClass "Public"]    # subsection names care
//! floating-subnet = "a \"b\""
//! ```
//!
//! It knows no key and no type, reads no file, and never panics, whatever the text is. Values may
//! be secrets, so neither [`Entry`] nor [`SyntaxError`] shows them. A secret that slipped onto the
//! line below its key looks like a key, so that what stands there isn't shown, either.

mod print;
mod scan;

use std::fmt;

pub use scan::parse;

/// A file: its sections in the order in which they stand there. A name may occur repeatedly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// The sections.
    pub sections: Vec<Section>,
}

/// A heading and what stands below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The name as written; compare it with [`Section::is`].
    pub name: String,
    /// The quoted name beside it. Case matters.
    pub subsection: Option<String>,
    /// Line of the heading, counted from 1.
    pub line: u32,
    /// Keys and values, in order. A key may occur repeatedly.
    pub entries: Vec<Entry>,
}

/// A key and its value.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key as written; compare it with [`Entry::is`].
    pub key: String,
    /// The value, unquoted; `None` for a bare key.
    pub value: Option<String>,
    /// Line of the key, counted from 1.
    pub line: u32,
    /// A comment begins right behind the value, without a space: what is meant as part of a
    /// password is often lost so.
    pub cut: bool,
    /// The key above, where that is of a secret and has no value: then this is likely to be the
    /// secret, and `key` must never be shown.
    pub below: Option<String>,
}

/// A text that is not of the dialect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{key}{what}; {remedy}",
    key = key.as_ref().map(|key| format!("{key}: ")).unwrap_or_default()
)]
pub struct SyntaxError {
    /// Line, counted from 1.
    pub line: u32,
    /// The key it is about, if it is about one.
    pub key: Option<String>,
    /// What is wrong.
    pub what: String,
    /// What would be right.
    pub remedy: String,
}

/// Keys that end so have secrets as values.
const SECRETS: [&str; 3] = ["password", "secret", "token"];

// === impl Section ===

impl Section {
    /// Whether it has this name, whatever the case.
    pub fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

// === impl Entry ===

impl Entry {
    /// Whether it has this key, whatever the case.
    pub fn is(&self, key: &str) -> bool {
        self.key.eq_ignore_ascii_case(key)
    }

    /// The key of a secret that is likely to stand on the next line.
    fn awaited(&self) -> Option<&str> {
        // base64 ends in `=`, which begins a value here.
        let nothing = |value: &str| value.trim_matches('=').is_empty();
        if !self.value.as_deref().is_none_or(nothing) {
            return None;
        }
        let key = self.key.to_ascii_lowercase();
        let own = SECRETS.iter().any(|end| key.ends_with(end));
        // A secret may have been broken into several lines.
        self.below.as_deref().or(own.then_some(&self.key))
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = match self.value {
            None => "none",
            Some(_) => "not shown",
        };
        let key = match self.below {
            None => &self.key,
            Some(_) => "not shown",
        };
        f.debug_struct("Entry")
            .field("key", &key)
            .field("value", &format_args!("{value}"))
            .field("line", &self.line)
            .field("cut", &self.cut)
            .field("below", &self.below)
            .finish()
    }
}

#[cfg(test)]
mod tests;
