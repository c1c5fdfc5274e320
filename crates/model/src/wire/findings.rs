//! Collecting everything that is wrong with one object, so that a reader fixes it in one go.

use crate::reason::{Code, Reason};

use super::names::{self, Rule};
use super::{DEFAULT_NAMESPACE, ObjectMeta};

/// Kubernetes' limit on all annotations of an object together, in bytes.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// The errors found so far.
#[derive(Debug, Default)]
pub(super) struct Findings(Vec<Reason>);

// === impl Findings ===

impl Findings {
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
        self.0.push(
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
        self.0.push(
            Reason::error(Code::InvalidField, message)
                .at(field)
                .remedy(remedy),
        );
    }

    /// A text that must keep a rule about names.
    pub(super) fn check(
        &mut self,
        field: impl Into<String>,
        text: &str,
        rule: fn(&str) -> Result<(), Rule>,
    ) {
        if let Err(rule) = rule(text) {
            self.refuse(field, text, rule, "");
        }
    }

    /// The object's name, judged.
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

    /// The object's namespace with the default filled in, judged.
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
            // Kubernetes looks at the key in lower case: the prefix may hold capitals.
            self.check(crate::reason::annotation_field(key), key, |key| {
                names::qualified(&key.to_ascii_lowercase())
            });
            size += key.len() + value.len();
        }
        if size > ANNOTATIONS_LIMIT {
            self.missing(
                "metadata.annotations",
                format!("{size} bytes of annotations are more than Kubernetes keeps"),
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

    /// The row if nothing was wrong.
    pub(super) fn finish<R>(self, row: impl FnOnce() -> R) -> Result<R, Vec<Reason>> {
        if self.0.is_empty() {
            Ok(row())
        } else {
            Err(self.0)
        }
    }
}
