//! What a Service has in the cloud already, before a change of controllers.

use serde::Serialize;

use crate::observed::{Found, Goal, Observed};

/// One object that a Service takes over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Adopted {
    /// `load balancer`, `floating IP`, `security group`.
    pub kind: &'static str,
    /// Its id.
    pub id: String,
    /// Its name or address.
    pub name: String,
}

// === impl Observed ===

impl Observed {
    /// The objects that are the Service's, by the marks of whichever controller made them.
    pub fn adopted(&self) -> Vec<Adopted> {
        let mut adopted = Vec::new();
        if !matches!(self.goal, Goal::Exists(_)) {
            return adopted;
        }
        self.add_adopted(&mut adopted);
        for part in &self.beside {
            part.have.add_adopted(&mut adopted);
        }
        adopted
    }

    fn add_adopted(&self, adopted: &mut Vec<Adopted>) {
        if let Found::One { balancer, .. } = &self.found {
            adopted.push(Adopted {
                kind: "load balancer",
                id: balancer.id.to_string(),
                name: balancer.name.clone(),
            });
        }
        if let Some(floating_ip) = self
            .addressing
            .attached
            .as_ref()
            .or(self.addressing.spare.as_ref())
        {
            adopted.push(Adopted {
                kind: "floating IP",
                id: floating_ip.id.to_string(),
                name: floating_ip.floating_ip_address.to_string(),
            });
        }
        if let Some(group) = self.groups.as_ref().and_then(|view| view.group.as_ref()) {
            adopted.push(Adopted {
                kind: "security group",
                id: group.id.to_string(),
                name: group.name.clone(),
            });
        }
    }
}
