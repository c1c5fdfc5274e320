//! A Service's annotations, read along the tables.

use std::collections::BTreeMap;

use super::suggest::closest;
use super::{
    AnnotationError, DIALECTS, Dialect, DialectId, Effect, OptionRow, Outcome, PortRef,
    ServiceOptions, Text,
};
use crate::option::OptionId;
use crate::reason::{Code, Reason, Severity};
use crate::rows::ServicePort;

/// The annotations that a provider reads.
#[derive(Clone, Copy, Debug)]
pub struct Vocabulary {
    /// Dialects that it reads.
    pub dialects: &'static [DialectId],
    /// Why it ignores the others: one clause.
    pub ignores_others: &'static str,
    /// The dialect whose part of [`super::Extensions`] it reads.
    pub extension: Option<DialectId>,
}

/// What a Service's annotations say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Typed options.
    pub options: ServiceOptions,
    /// The annotations that decided something, in the order in which they were read.
    pub given: Vec<GivenOption>,
    /// What is the matter with annotations.
    pub reasons: Vec<Reason>,
    /// What is the matter with numbers of monitors: errors only where there is a monitor.
    pub monitor_reasons: Vec<Reason>,
    /// Invalid options of the provider's own extension, and why those of others have no effect.
    pub extension_reasons: Vec<Reason>,
}

/// An annotation that decided something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenOption {
    /// The portable option it comes down to.
    pub option: OptionId,
    /// The whole key.
    pub annotation: String,
    /// The value as written.
    pub value: String,
    /// The port it was written for; `None`: the whole Service.
    pub port: Option<PortRef>,
}

/// Returns the options of a Service with these ports, by all dialects.
pub fn options(annotations: &BTreeMap<String, String>, ports: &[ServicePort]) -> ServiceOptions {
    read(annotations, ports, &Vocabulary::default()).options
}

/// Reads the annotations of a Service with these ports. Annotations of no dialect are ignored.
pub fn read(
    annotations: &BTreeMap<String, String>,
    ports: &[ServicePort],
    vocabulary: &Vocabulary,
) -> Reading {
    let mut reading = Reading::default();
    for dialect in DIALECTS {
        let from_prefix = annotations.range(dialect.prefix.to_owned()..);
        for (key, value) in from_prefix.take_while(|(key, _)| key.starts_with(dialect.prefix)) {
            if dialect.empty_is_absent && value.trim().is_empty() {
                continue;
            }
            let text = Text {
                annotation: key,
                value,
            };
            if !vocabulary.dialects.contains(&dialect.id) {
                reading.ignore(dialect, vocabulary.ignores_others, text);
                continue;
            }
            if reading.succeeded(dialect, text, annotations) {
                continue;
            }
            reading.read_one(dialect, text, ports, vocabulary);
        }
    }
    reading
}

// === impl Vocabulary ===

impl Default for Vocabulary {
    /// All dialects, and no extension.
    fn default() -> Self {
        Self {
            dialects: DialectId::ALL,
            ignores_others: "",
            extension: None,
        }
    }
}

// === impl Reading ===

impl Reading {
    /// Reports an old prefix, and whether its successor is there and takes precedence.
    fn succeeded(
        &mut self,
        dialect: &Dialect,
        text: Text<'_>,
        annotations: &BTreeMap<String, String>,
    ) -> bool {
        let Some(successor) = dialect.successor else {
            return false;
        };
        let name = text
            .annotation
            .strip_prefix(dialect.prefix)
            .unwrap_or_default();
        if !dialect.rows.iter().any(|row| row.name == name) {
            return false;
        }
        let present = format!("{successor}{name}");
        let succeeded = annotations
            .get(&present)
            .is_some_and(|value| !value.trim().is_empty());
        let message = if succeeded {
            format!("this is the old name of {present}, which is also set and takes precedence")
        } else {
            format!("this is the old name of {present}")
        };
        let remedy = if succeeded {
            "remove the old one".to_owned()
        } else {
            format!("rename it to {present}")
        };
        self.reasons.push(
            Reason::warning(Code::DeprecatedAnnotation, message)
                .at_annotation(text.annotation)
                .value(text.value)
                .remedy(remedy),
        );
        succeeded
    }

    /// Reports an annotation of a dialect that is not read and would have asked for something.
    fn ignore(&mut self, dialect: &Dialect, why: &str, text: Text<'_>) {
        let name = text.annotation.strip_prefix(dialect.prefix);
        let mut rows = dialect.rows.iter();
        let asks = rows.any(|row| Some(row.name) == name && row.effect.option().is_some());
        if asks {
            self.reasons
                .push(not_applicable(Severity::Warning, why, text));
        }
    }

    fn read_one(
        &mut self,
        dialect: &Dialect,
        text: Text<'_>,
        ports: &[ServicePort],
        vocabulary: &Vocabulary,
    ) {
        let whole = text
            .annotation
            .strip_prefix(dialect.prefix)
            .unwrap_or_default();
        let (name, port) = match whole.split_once('.') {
            Some((name, port)) if dialect.per_port => (name, Some(port)),
            _ => (whole, None),
        };
        let Some(row) = dialect.rows.iter().find(|row| row.name == name) else {
            self.reasons.extend(unknown(dialect, text, name, port));
            return;
        };
        match (&row.effect, port) {
            (
                Effect::Service { .. } | Effect::Extension { .. } | Effect::NotApplicable { .. },
                Some(_),
            ) => {
                self.reasons.push(not_of_one_port(dialect, row, text));
            }
            (Effect::Service { option, set }, None) => {
                let outcome = set(&mut self.options, text);
                self.note(*option, text, None, outcome);
            }
            (Effect::Port { option, set }, None) => {
                let outcome = set(&mut self.options.common, text);
                self.note(*option, text, None, outcome);
            }
            (Effect::Port { option, set }, Some(port)) => match PortRef::find(port, ports) {
                Some(port) => {
                    let options = self.options.per_port.entry(port.clone()).or_default();
                    let outcome = set(options, text);
                    self.note(*option, text, Some(port), outcome);
                }
                None => self.reasons.push(no_such_port(port, text, ports)),
            },
            (
                Effect::Extension {
                    of,
                    set,
                    severity,
                    why,
                },
                None,
            ) => {
                let outcome = set(&mut self.options, text);
                if vocabulary.extension == Some(*of) {
                    let error = outcome.err().map(|error| error.about(text));
                    self.extension_reasons.extend(error);
                } else if !text.value.is_empty() {
                    let reason = not_applicable(*severity, why, text);
                    self.extension_reasons.push(reason);
                }
            }
            (Effect::NotApplicable { .. }, None) if text.value.is_empty() => {}
            (Effect::NotApplicable { severity, why }, None) => {
                self.reasons.push(not_applicable(*severity, why, text));
            }
        }
    }

    fn note(
        &mut self,
        option: OptionId,
        text: Text<'_>,
        port: Option<PortRef>,
        outcome: Result<Outcome, AnnotationError>,
    ) {
        match outcome {
            Ok(Outcome::Decided) => self.given.push(GivenOption {
                option,
                annotation: text.annotation.to_owned(),
                value: text.value.to_owned(),
                port,
            }),
            Ok(Outcome::Nothing) => {}
            Err(error @ AnnotationError::OfMonitor(_)) => {
                self.monitor_reasons.push(error.about(text));
            }
            Err(error) => self.reasons.push(error.about(text)),
        }
    }
}

// === impl AnnotationError ===

impl AnnotationError {
    fn about(self, text: Text<'_>) -> Reason {
        let reason = match self {
            Self::Invalid(refusal) | Self::OfMonitor(refusal) => {
                Reason::error(refusal.code, refusal.message).remedy(refusal.remedy)
            }
            Self::Replaced { refusal, by } => Reason::warning(
                refusal.code,
                format!("{}, so {by} is used instead", refusal.message),
            )
            .remedy(refusal.remedy),
            Self::Overridden { by } => Reason::warning(
                Code::ConflictingOptions,
                format!("{by} has another value and takes precedence"),
            )
            .remedy("remove one of the two, or give both the same value"),
        };
        reason.at_annotation(text.annotation).value(text.value)
    }
}

fn not_applicable(severity: Severity, why: &str, text: Text<'_>) -> Reason {
    let message = format!("this has no effect: {why}");
    let reason = match severity {
        Severity::Info => Reason::info(Code::OptionNotApplicable, message),
        Severity::Warning => Reason::warning(Code::OptionNotApplicable, message),
        Severity::Error => Reason::error(Code::OptionNotApplicable, message),
    };
    reason
        .at_annotation(text.annotation)
        .value(text.value)
        .remedy("no action is needed unless you rely on it")
}

fn not_of_one_port(dialect: &Dialect, row: &OptionRow, text: Text<'_>) -> Reason {
    let name = row.name;
    Reason::error(
        Code::InvalidAnnotation,
        format!("{name} applies to the whole Service, not to one port"),
    )
    .at_annotation(text.annotation)
    .value(text.value)
    .remedy(format!("write {}{name}", dialect.prefix))
}

fn no_such_port(port: &str, text: Text<'_>, ports: &[ServicePort]) -> Reason {
    let known: Vec<String> = ports
        .iter()
        .map(|port| match port.name.as_str() {
            "" => port.port.to_string(),
            name => name.to_owned(),
        })
        .collect();
    let remedy = match closest(port, known.iter().map(String::as_str)) {
        Some(near) => format!(
            "did you mean {near}? The ports are {} (numbers work too)",
            known.join(", ")
        ),
        None if known.is_empty() => "give the Service ports".to_owned(),
        None => format!(
            "name one of its ports: {} (numbers work too)",
            known.join(", ")
        ),
    };
    Reason::error(
        Code::InvalidAnnotation,
        format!("the Service has no port {port:?}"),
    )
    .at_annotation(text.annotation)
    .value(text.value)
    .remedy(remedy)
}

/// What to say of a key that its dialect does not have.
fn unknown(dialect: &Dialect, text: Text<'_>, name: &str, port: Option<&str>) -> Option<Reason> {
    let message = format!("no option is called {}{name}", dialect.prefix);
    let reason = match dialect.unknown? {
        Severity::Info => Reason::info(Code::UnknownAnnotation, message),
        Severity::Warning => Reason::warning(Code::UnknownAnnotation, message),
        Severity::Error => Reason::error(Code::UnknownAnnotation, message),
    };
    let names = dialect.rows.iter().map(|row| row.name);
    // A word of another dialect is no slip of the finger, but its meaning has a name here.
    let by_meaning = || {
        let mut rows = DIALECTS.iter().flat_map(|dialect| dialect.rows);
        let option = rows.find(|row| row.name == name)?.effect.option()?;
        let mut rows = dialect.rows.iter();
        rows.find(|row| row.effect.option() == Some(option))
            .map(|row| row.name)
    };
    let remedy = match closest(name, names).or_else(by_meaning) {
        Some(near) => {
            let dot_port = port.map(|port| format!(".{port}")).unwrap_or_default();
            format!("did you mean {}{near}{dot_port}?", dialect.prefix)
        }
        None => "see the list of annotations, or remove it".to_owned(),
    };
    Some(
        reason
            .at_annotation(text.annotation)
            .value(text.value)
            .remedy(remedy),
    )
}
