//! Which Services are this instance's.

use landfall_model::rows::ServiceRow;

/// The domain of every class that Landfall may serve.
pub const CLASS_DOMAIN: &str = "landfall.dev/";

/// The Services that one provider instance serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Serves the class `landfall.dev/<name>`.
    pub name: String,
    /// Serves Services without a class, too.
    pub default: bool,
}

/// Whose a Service is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Belongs {
    /// It wants a load balancer from us.
    Ours,
    /// It wants none, or not from us.
    NotOurs,
    /// It asks for a class in Landfall's domain that this process does not serve.
    UnknownClass,
}

// === impl Selection ===

impl Selection {
    /// Whose a Service is, whether or not it is being deleted.
    pub fn judge(&self, service: &ServiceRow) -> Belongs {
        if !service.wants_load_balancer {
            return Belongs::NotOurs;
        }
        match service.class.as_deref() {
            None if self.default => Belongs::Ours,
            None => Belongs::NotOurs,
            Some(class) => match class.strip_prefix(CLASS_DOMAIN) {
                Some(name) if name == self.name => Belongs::Ours,
                Some(_) => Belongs::UnknownClass,
                None => Belongs::NotOurs,
            },
        }
    }
}
