//! An option as it holds for one port: its own, else that of the whole Service, else that of the
//! provider's configuration.

use landfall_model::dialect::{Given, PortOptions};
use landfall_model::{Code, Reason};

use super::findings::Findings;

/// What was written for a port alone, and for the whole Service.
#[derive(Clone, Copy)]
pub(super) struct Layers<'a> {
    pub(super) own: &'a PortOptions,
    pub(super) common: &'a PortOptions,
    /// What the provider's configuration says.
    pub(super) defaults: &'a PortOptions,
}

/// An option that is set.
pub(super) struct Choice<'a, T> {
    pub(super) given: &'a Given<T>,
    /// Where it stands.
    layer: Layer,
}

/// Where an option stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layer {
    /// On the Service, for the port itself.
    Own,
    /// On the Service, for all of its ports.
    Common,
    /// In the provider's configuration.
    Defaults,
}

// === impl Layers ===

impl<'a> Layers<'a> {
    /// The option that holds. One that it overrules counts as used: it was overruled on purpose.
    pub(super) fn get<T>(
        &self,
        findings: &mut Findings<'_>,
        field: impl Fn(&'a PortOptions) -> &'a Option<Given<T>>,
    ) -> Option<Choice<'a, T>> {
        match (field(self.own), field(self.common)) {
            (Some(given), overruled) => {
                if let Some(overruled) = overruled {
                    findings.mark_used(&overruled.annotation);
                }
                Some(Choice {
                    given,
                    layer: Layer::Own,
                })
            }
            (None, Some(given)) => Some(Choice {
                given,
                layer: Layer::Common,
            }),
            (None, None) => {
                let given = field(self.defaults).as_ref()?;
                Some(Choice {
                    given,
                    layer: Layer::Defaults,
                })
            }
        }
    }

    /// The value of an option that every port can have.
    pub(super) fn take<T>(
        &self,
        findings: &mut Findings<'_>,
        field: impl Fn(&'a PortOptions) -> &'a Option<Given<T>>,
    ) -> Option<&'a T> {
        let choice = self.get(findings, field)?;
        Some(choice.take(findings))
    }

    /// The value of an option that this port can have only where `possible`. Where it can't, the
    /// option is skipped, or, if it was written for this very port, an error.
    pub(super) fn take_if<T>(
        &self,
        findings: &mut Findings<'_>,
        possible: bool,
        why_not: &str,
        field: impl Fn(&'a PortOptions) -> &'a Option<Given<T>>,
    ) -> Option<&'a T> {
        let choice = self.get(findings, field)?;
        if possible {
            return Some(choice.take(findings));
        }
        choice.reject(findings, why_not);
        None
    }
}

// === impl Choice ===

impl<'a, T> Choice<'a, T> {
    /// Whether it was written for the port itself.
    pub(super) fn own(&self) -> bool {
        self.layer == Layer::Own
    }

    /// Returns whether nothing sets it for this Service.
    pub(super) fn configured(&self) -> bool {
        self.layer == Layer::Defaults
    }

    /// The option takes effect.
    pub(super) fn take(&self, findings: &mut Findings<'_>) -> &'a T {
        findings.mark_used(&self.given.annotation);
        &self.given.value
    }

    /// The port can't have it: an error where it was written for this very port.
    pub(super) fn reject(&self, findings: &mut Findings<'_>, why_not: &str) {
        if !self.own() {
            return;
        }
        findings.mark_used(&self.given.annotation);
        let reason = Reason::error(Code::ConflictingOptions, why_not)
            .remedy("remove it, or set it for a port that supports it");
        findings.push(findings.at(reason, &self.given.annotation));
    }
}
