//! Addresses of a pool that only some Services get.

use std::fmt;
use std::str::FromStr;

use landfall_model::ServiceKey;

/// The Services for which addresses are reserved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reservation {
    /// Those of a namespace.
    Namespace(String),
    /// One.
    Service(ServiceKey),
}

// === impl Reservation ===

impl Reservation {
    /// Returns whether it is for a Service.
    pub fn is_for(&self, service: &ServiceKey) -> bool {
        match self {
            Self::Namespace(namespace) => namespace == service.namespace(),
            Self::Service(key) => key == service,
        }
    }
}

impl FromStr for Reservation {
    type Err = ();

    /// Parses `NAMESPACE` or `NAMESPACE/NAME`.
    fn from_str(text: &str) -> Result<Self, ()> {
        let text = text.trim();
        let is_name = |name: &str| {
            let inner = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-';
            !name.is_empty() && name.chars().all(inner)
        };
        match text.split_once('/') {
            None if is_name(text) => Ok(Self::Namespace(text.to_owned())),
            Some((namespace, name)) if is_name(namespace) && is_name(name) => {
                Ok(Self::Service(ServiceKey::new(namespace, name)))
            }
            _ => Err(()),
        }
    }
}

impl fmt::Display for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(namespace) => write!(f, "namespace {namespace}"),
            Self::Service(key) => write!(f, "{key}"),
        }
    }
}
