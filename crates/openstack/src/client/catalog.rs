//! The services of the cloud and their addresses: the catalog that comes with a token.

use std::fmt::{self, Write as _};

use landfall_rest::{Url, http_url, joined};
use serde::Deserialize;

use super::settings::Interface;

/// A service that is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    /// Octavia.
    LoadBalancer,
    /// Neutron.
    Network,
    /// Barbican.
    KeyManager,
}

/// The addresses of the services.
#[derive(Clone, Debug)]
pub(super) struct Endpoints {
    pub load_balancer: Base,
    pub network: Base,
    /// Not every cloud has one.
    pub key_manager: Option<Base>,
}

/// The address of one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Base {
    /// The address of its list of versions.
    pub root: Url,
    /// The address under which its objects are.
    pub api: Url,
}

/// An entry of the catalog.
#[derive(Debug, Deserialize)]
pub(super) struct Entry {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    endpoints: Vec<Endpoint>,
}

#[derive(Debug, Deserialize)]
struct Endpoint {
    #[serde(default)]
    interface: String,
    region: Option<String>,
    region_id: Option<String>,
    url: String,
}

// === impl Service ===

impl Service {
    /// Returns its type in the catalog.
    pub fn kind(self) -> &'static str {
        match self {
            Self::LoadBalancer => "load-balancer",
            Self::Network => "network",
            Self::KeyManager => "key-manager",
        }
    }

    /// Returns what follows an address without a version.
    fn version(self) -> &'static str {
        match self {
            Self::LoadBalancer => "v2",
            Self::Network => "v2.0",
            Self::KeyManager => "v1",
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}

// === impl Endpoints ===

impl Endpoints {
    /// Picks the services from the catalog. Octavia and Neutron are required.
    pub fn pick(
        catalog: &[Entry],
        interface: Interface,
        region: Option<&str>,
    ) -> Result<Self, String> {
        let find = |service: Service| find(catalog, service, interface, region);
        let missing = |service: Service| {
            let mut text = format!(
                "the catalog has no {} with interface {}",
                service.kind(),
                interface.as_str()
            );
            if let Some(region) = region {
                let _ = write!(text, " in region {region}");
            }
            let _ = write!(text, "; it has {}", Contents(catalog));
            text
        };
        Ok(Self {
            load_balancer: find(Service::LoadBalancer)?
                .ok_or_else(|| missing(Service::LoadBalancer))?,
            network: find(Service::Network)?.ok_or_else(|| missing(Service::Network))?,
            key_manager: find(Service::KeyManager)?,
        })
    }
}

fn find(
    catalog: &[Entry],
    service: Service,
    interface: Interface,
    region: Option<&str>,
) -> Result<Option<Base>, String> {
    let wanted = |endpoint: &&Endpoint| {
        let here = |name: &Option<String>| region.is_none() || name.as_deref() == region;
        // Catalogs of old have "publicURL".
        endpoint.interface.trim_end_matches("URL") == interface.as_str()
            && (here(&endpoint.region) || here(&endpoint.region_id))
    };
    let entries = catalog.iter().filter(|entry| entry.kind == service.kind());
    let Some(endpoint) = entries.flat_map(|entry| &entry.endpoints).find(wanted) else {
        return Ok(None);
    };
    let base = Base::new(&endpoint.url, service);
    base.map(Some)
        .map_err(|why| format!("{} in the catalog: {why}", service.kind()))
}

// === impl Base ===

impl Base {
    fn new(url: &str, service: Service) -> Result<Self, String> {
        let url = http_url(url)?;
        if versioned(&url) {
            return Ok(Self {
                root: without_version(&url),
                api: url,
            });
        }
        Ok(Self {
            api: joined(&url, &[service.version()]),
            root: url,
        })
    }
}

/// Returns whether the path ends in a version, such as `/v3` or `/v2.0/`.
pub(super) fn versioned(url: &Url) -> bool {
    let mut segments = url.path_segments().into_iter().flatten();
    let last = segments.rfind(|segment| !segment.is_empty());
    last.and_then(|last| last.strip_prefix('v'))
        .is_some_and(|version| {
            version.starts_with(|first: char| first.is_ascii_digit())
                && version.chars().all(|c| c.is_ascii_digit() || c == '.')
        })
}

/// Removes the version at the end of an address.
pub(super) fn without_version(url: &Url) -> Url {
    let mut root = url.clone();
    if let Ok(mut segments) = root.path_segments_mut() {
        segments.pop_if_empty().pop();
    }
    root
}

/// The content of a catalog, in one line.
struct Contents<'a>(&'a [Entry]);

impl fmt::Display for Contents<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("nothing: is the token for a project?");
        }
        for (n, entry) in self.0.iter().enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            write!(f, "{comma}{}", entry.kind)?;
            let places = entry.endpoints.iter().map(|endpoint| {
                let region = endpoint.region.as_deref().or(endpoint.region_id.as_deref());
                format!(
                    "{} in {}",
                    endpoint.interface,
                    region.unwrap_or("no region")
                )
            });
            let places: Vec<_> = places.collect();
            write!(f, " ({})", places.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
