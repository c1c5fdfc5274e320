//! Collecting everything that is wrong with one object, so that a reader fixes it in one go.

use crate::reason::{Code, Reason};

use super::names::{self, Rule};
use super::{DEFAULT_NAMESPACE, ObjectMeta};

/// Kubernetes' limit on all annotations of an object together, in bytes.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// The errors found so far.
#[derive(Debug, Default)]
pub(super) struct Findings {
    reasons: Vec<Reason>,
    /// The API server has admitted the object: it is valid by the rules of that server, which may
    /// be newer than what is written here.
    admitted: bool,
}

// === impl Findings ===

impl Findings {
    /// Returns findings about an object that the API server has admitted: only what can't be read
    /// is found, never a rule that is broken.
    pub(super) fn of_admitted() -> Self {
        Self {
            reasons: Vec::new(),
            admitted: true,
        }
    }

    /// Returns whether the API server has admitted the object.
    pub(super) fn admitted(&self) -> bool {
        self.admitted
    }

    /// Adds a rule that a readable value breaks, unless the API server has validated it.
    pub(super) fn forbid(
        &mut self,
        field: impl Into<String>,
        value: impl ToString,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        if !self.admitted {
            self.refuse(field, value, message, remedy);
        }
    }

    /// A value that can't be, quoted.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "callers quote numbers and texts alike"
    )]
    pub(super) fn refuse(
        &mut self,
        field: impl Into<String>,
        value: impl ToString,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.reasons.push(
            Reason::error(Code::InvalidField, message)
                .at(field)
                .value(value.to_string())
                .remedy(remedy),
        );
    }

    /// Something that must be there and is not.
    pub(super) fn missing(
        &mut self,
        field: impl Into<String>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.reasons.push(
            Reason::error(Code::InvalidField, message)
                .at(field)
                .remedy(remedy),
        );
    }

    /// A text that must keep a rule about names, unless the API server has validated it.
    pub(super) fn check(
        &mut self,
        field: impl Into<String>,
        text: &str,
        rule: fn(&str) -> Result<(), Rule>,
    ) {
        if self.admitted {
            return;
        }
        if let Err(rule) = rule(text) {
            self.refuse(field, text, rule, "");
        }
    }

    /// The object's name, validated.
    pub(super) fn name(
        &mut self,
        metadata: &ObjectMeta,
        rule: fn(&str) -> Result<(), Rule>,
    ) -> String {
        match metadata.name.as_deref() {
            None | Some("") => {
                self.missing("metadata.name", "the object has no name", "give it one");
                String::new()
            }
            Some(name) => {
                self.check("metadata.name", name, rule);
                name.to_owned()
            }
        }
    }

    /// The object's namespace with the default filled in, validated.
    pub(super) fn namespace(&mut self, metadata: &ObjectMeta) -> String {
        let namespace = metadata.namespace_or_default();
        if namespace != DEFAULT_NAMESPACE {
            self.check("metadata.namespace", namespace, names::dns_label);
        }
        namespace.to_owned()
    }

    /// Labels and annotations.
    pub(super) fn metadata(&mut self, metadata: &ObjectMeta) {
        self.labels("metadata.labels", &metadata.labels);
        let mut size = 0;
        for (key, value) in &metadata.annotations {
            // Kubernetes reads the key in lower case: the prefix may hold capitals.
            self.check(crate::reason::annotation_field(key), key, |key| {
                names::qualified(&key.to_ascii_lowercase())
            });
            size += key.len() + value.len();
        }
        if size > ANNOTATIONS_LIMIT && !self.admitted {
            self.missing(
                "metadata.annotations",
                format!("{size} bytes of annotations exceed the limit of Kubernetes"),
                format!("stay below {ANNOTATIONS_LIMIT} bytes"),
            );
        }
    }

    /// A map of labels, or a selector.
    pub(super) fn labels(
        &mut self,
        field: &str,
        labels: &std::collections::BTreeMap<String, String>,
    ) {
        for (key, value) in labels {
            let field = format!("{field}[{key}]");
            self.check(field.as_str(), key, names::qualified);
            self.check(field.as_str(), value, names::label_value);
        }
    }

    /// Everything that was found.
    pub(super) fn reasons(self) -> Vec<Reason> {
        self.reasons
    }
}

/// Returns the row of an object with which nothing is wrong.
pub(super) fn strictly<R>((row, reasons): (R, Vec<Reason>)) -> Result<R, Vec<Reason>> {
    if reasons.is_empty() {
        Ok(row)
    } else {
        Err(reasons)
    }
}
