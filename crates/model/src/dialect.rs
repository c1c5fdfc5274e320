//! Annotation vocabularies: tables of options that parse, document and suggest.
//!
//! A [`Dialect`] is a prefix and a table. Each row of the table says how an option is called, what
//! it takes, what it means, and holds the function that turns its text into a typed field of
//! [`ServiceOptions`]. [`read`] walks a Service's annotations along these tables; the reference
//! page ([`reference_page`]) is printed from the same rows, so the two can't disagree.
//!
//! Dialects differ in spelling, not in meaning: all of them fill the same typed options. They are
//! read in the order of [`DIALECTS`]; what an earlier one has said stands, and a later one that
//! says otherwise becomes a Reason.
//!
//! Nothing here knows what a port, a pool or a provider can do with an option; that is for
//! `resolve` to validate.

mod compound;
pub mod exoscale;
mod extensions;
mod given;
mod kubernetes;
mod landfall;
pub mod metallb;
mod nodes;
pub mod openstack;
mod options;
mod read;
mod reference;
mod suggest;
mod value;

pub use extensions::{ExoscaleOptions, Extensions, OpenStackOptions};
pub use given::Given;
pub use nodes::NodeSelector;
pub use options::{
    EndpointSpec, ForwardedHeaders, MemberProtocol, MemberRef, MemberTlsChoice, ModeChoice,
    MonitorChoice, PortOptions, PortRef, ServiceOptions,
};
pub use read::{GivenOption, Reading, Vocabulary, options, read};
pub use reference::reference_page;
pub use suggest::closest;
pub use value::{Refusal, address, cidr, parse_duration, show_duration};

use std::fmt;

use crate::option::OptionId;
use crate::reason::Severity;

/// The name of a dialect; a dialect that was renamed has one for both prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialectId {
    /// `landfall.dev/*`.
    Landfall,
    /// `loadbalancer.openstack.org/*`.
    OpenStack,
    /// `service.beta.kubernetes.io/exoscale-loadbalancer-*`.
    Exoscale,
    /// `service.beta.kubernetes.io/*`.
    Kubernetes,
    /// `metallb.io/*`.
    MetalLb,
}

/// A vocabulary: a prefix and the options under it.
#[derive(Debug)]
pub struct Dialect {
    /// Which one it is.
    pub id: DialectId,
    /// Heading on the reference page.
    pub title: &'static str,
    /// What every key begins with, including the `/`.
    pub prefix: &'static str,
    /// Whether `PREFIX OPTION.PORT` speaks of a single port.
    pub per_port: bool,
    /// What becomes of a key under the prefix that the table does not have; `None`: nothing, it is
    /// belongs to another program.
    pub unknown: Option<Severity>,
    /// Whether an empty value is as good as no annotation.
    pub empty_is_absent: bool,
    /// The prefix that took this one's place.
    pub successor: Option<&'static str>,
    /// Its annotations that Landfall writes, in place of the controller whose dialect it is.
    pub marks: &'static [&'static str],
    /// The one of them that a user may set as well.
    pub given_mark: Option<&'static str>,
    /// Introduction on the reference page, Markdown.
    pub about: &'static str,
    /// The options, in the order of the reference page.
    pub rows: &'static [OptionRow],
}

/// One option of a dialect.
#[derive(Clone, Copy, Debug)]
pub struct OptionRow {
    /// The key without the prefix.
    pub name: &'static str,
    /// What may stand there, Markdown.
    pub takes: &'static str,
    /// What holds when it is absent, Markdown.
    pub default: &'static str,
    /// What it does, Markdown.
    pub summary: &'static str,
    /// A value that it takes.
    pub example: &'static str,
    /// What reading it does.
    pub effect: Effect,
}

/// What reading an option does.
#[derive(Clone, Copy, Debug)]
pub enum Effect {
    /// Fills a field that concerns the whole Service.
    Service {
        /// The portable option it comes down to: what `ProviderProfile` is asked for.
        option: OptionId,
        /// Parses and fills.
        set: fn(&mut ServiceOptions, Text<'_>) -> Result<Outcome, AnnotationError>,
    },
    /// Fills a field that each port may have for itself.
    Port {
        /// The portable option it comes down to: what `ProviderProfile` is asked for.
        option: OptionId,
        /// Parses and fills.
        set: fn(&mut PortOptions, Text<'_>) -> Result<Outcome, AnnotationError>,
    },
    /// Fills a field of [`Extensions`]; with other providers a Reason says why it has no effect.
    Extension {
        /// The dialect whose extension it belongs to.
        of: DialectId,
        /// Parses and fills.
        set: fn(&mut ServiceOptions, Text<'_>) -> Result<Outcome, AnnotationError>,
        /// How much is lost elsewhere.
        severity: Severity,
        /// Why it means nothing elsewhere: one clause.
        why: &'static str,
    },
    /// Nothing, and the reason is reported.
    NotApplicable {
        /// How much is lost.
        severity: Severity,
        /// Why it means nothing: one clause.
        why: &'static str,
    },
}

/// An annotation: where a value stands and what it is.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// The whole key.
    pub annotation: &'a str,
    /// The value as written.
    pub value: &'a str,
}

/// What came of reading a well-formed value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It decides an option.
    Decided,
    /// It says what holds anyway.
    Nothing,
}

/// What is the matter with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnnotationError {
    /// The option does not take it, so the spec can't be had.
    Invalid(Refusal),
    /// The option does not take it, which matters only where a port has a monitor.
    OfMonitor(Refusal),
    /// The option does not take it, and another value holds in its place, as users of that dialect
    /// are used to.
    Replaced {
        /// What is wrong.
        refusal: Refusal,
        /// The value that holds.
        by: &'static str,
    },
    /// Another annotation of higher rank says otherwise.
    Overridden {
        /// The key of that annotation.
        by: String,
    },
}

/// All dialects, the one that wins first.
pub static DIALECTS: &[&Dialect] = &[
    &landfall::DIALECT,
    &openstack::DIALECT,
    &exoscale::DIALECT,
    &kubernetes::DIALECT,
    &metallb::DIALECT,
    &metallb::DEPRECATED,
];

/// Whether an annotation is of the portable dialect.
pub fn is_portable(annotation: &str) -> bool {
    annotation.starts_with(landfall::DIALECT.prefix)
}

/// Whether a dialect reads an annotation, or says that it can't.
pub fn concerns(annotation: &str) -> bool {
    DIALECTS.iter().any(|dialect| {
        let name = annotation.strip_prefix(dialect.prefix);
        let is_option = |name: &str| dialect.rows.iter().any(|row| row.name == name);
        name.is_some_and(|name| dialect.unknown.is_some() || is_option(name))
    })
}

// === impl DialectId ===

impl DialectId {
    /// All dialects.
    pub const ALL: &[Self] = &[
        Self::Landfall,
        Self::OpenStack,
        Self::Exoscale,
        Self::Kubernetes,
        Self::MetalLb,
    ];
}

impl fmt::Display for DialectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Landfall => "Landfall",
            Self::OpenStack => "OpenStack",
            Self::Exoscale => "Exoscale",
            Self::Kubernetes => "Kubernetes",
            Self::MetalLb => "MetalLB",
        })
    }
}

/// Joins two halves of a table.
const fn join<const N: usize>(first: &[OptionRow], second: &[OptionRow]) -> [OptionRow; N] {
    assert!(
        first.len() + second.len() == N,
        "the size of the whole table"
    );
    let mut all = [first[0]; N];
    let mut at = 0;
    while at < N {
        all[at] = if at < first.len() {
            first[at]
        } else {
            second[at - first.len()]
        };
        at += 1;
    }
    all
}

// === impl Effect ===

impl Effect {
    /// The portable option it comes down to, if any.
    pub fn option(&self) -> Option<OptionId> {
        match self {
            Self::Service { option, .. } | Self::Port { option, .. } => Some(*option),
            Self::Extension { .. } | Self::NotApplicable { .. } => None,
        }
    }
}

// === impl AnnotationError ===

impl From<Refusal> for AnnotationError {
    fn from(refusal: Refusal) -> Self {
        Self::Invalid(refusal)
    }
}

#[cfg(test)]
mod tests;
