//! What `landfall.yaml` says about an instance on this machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Complaint, Options};

/// Addresses of this machine, traffic through this process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Local {
    /// Makes the machine take and announce addresses that it does not have. Default: it has them,
    /// or they are routed to it. Takes the capabilities `NET_ADMIN` and `NET_RAW`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub announce: Option<Announce>,
}

/// How addresses are announced, by ARP and Neighbour Discovery.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Announce {
    /// The names of the interfaces that announce. Default: all but those that container networks
    /// make.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<String>,
}

impl Options for Local {
    fn short() -> Result<Self, &'static str> {
        Ok(Self::default())
    }

    fn complaint(&self) -> Option<Complaint> {
        let interfaces = &self.announce.as_ref()?.interfaces;
        let place = interfaces.iter().position(|name| !is_interface(name))?;
        let name = interfaces.get(place)?;
        let why = "not the name of an interface; write one such as eth0, of at most 15 characters";
        Some(Complaint::new(
            format!("announce.interfaces[{place}]"),
            name,
            why,
        ))
    }

    fn no_pools(&self) -> Option<&'static str> {
        None
    }
}

/// Whether an interface of Linux may have this name.
fn is_interface(name: &str) -> bool {
    let allowed = |c: char| !c.is_whitespace() && c != '/' && c != ':';
    (1..=15).contains(&name.len()) && name != "." && name != ".." && name.chars().all(allowed)
}
