//! Which services the cloud has, and where: the catalog that comes with a token.

use std::fmt::Write as _;

use reqwest::Url;
use serde::Deserialize;

use super::settings::Interface;

/// A service that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    /// Octavia.
    LoadBalancer,
    /// Neutron.
    Network,
    /// Barbican.
    KeyManager,
}

/// Where the services are.
#[derive(Clone, Debug)]
pub(super) struct Endpoints {
    pub load_balancer: Base,
    pub network: Base,
    /// Not every cloud has one.
    pub key_manager: Option<Base>,
}

/// Where one service is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Base {
    /// Where its versions are listed.
    pub root: Url,
    /// Where its objects are.
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
    /// Its type in the catalog.
    pub fn kind(self) -> &'static str {
        match self {
            Self::LoadBalancer => "load-balancer",
            Self::Network => "network",
            Self::KeyManager => "key-manager",
        }
    }

    /// What follows an address without a version.
    fn version(self) -> &'static str {
        match self {
            Self::LoadBalancer => "v2",
            Self::Network => "v2.0",
            Self::KeyManager => "v1",
        }
    }
}

// === impl Endpoints ===

impl Endpoints {
    /// Picks the services from the catalog; without Octavia or Neutron there is nothing to do.
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
        let url = address(url)?;
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

/// An address of HTTP, without query or fragment.
pub(super) fn address(text: &str) -> Result<Url, String> {
    let mut url = Url::parse(text.trim()).map_err(|why| format!("{text:?}: {why}"))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(format!("{text:?}: not an address of HTTP"));
    }
    url.set_query(None);
    url.set_fragment(None);
    Ok(url)
}

/// Whether the path ends in a version, such as `/v3` or `/v2.0/`.
pub(super) fn versioned(url: &Url) -> bool {
    let mut segments = url.path_segments().into_iter().flatten();
    let last = segments.rfind(|segment| !segment.is_empty());
    last.and_then(|last| last.strip_prefix('v'))
        .is_some_and(|version| {
            version.starts_with(|first: char| first.is_ascii_digit())
                && version.chars().all(|c| c.is_ascii_digit() || c == '.')
        })
}

/// The address without the version at its end.
pub(super) fn without_version(url: &Url) -> Url {
    let mut root = url.clone();
    if let Ok(mut segments) = root.path_segments_mut() {
        segments.pop_if_empty().pop();
    }
    root
}

/// The address with further segments, each of them escaped.
pub(super) fn joined(url: &Url, segments: &[&str]) -> Url {
    let mut url = url.clone();
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(segments);
    }
    url
}

/// What a catalog has, in one line.
struct Contents<'a>(&'a [Entry]);

impl std::fmt::Display for Contents<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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
