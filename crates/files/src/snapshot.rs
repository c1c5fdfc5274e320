//! What a replica of a cluster served last, for its next start: one file in the state directory,
//! written as a whole beside itself and put into its own place.
//!
//! ```text
//!  {"landfall":"served","format":1,"written":"...","cluster":"...","configuration":"..."}
//!  {"service":{...}}   {"slice":{...}}   {"node":{...}}   {"namespace":{...}}   {"pool":{...}}
//!  {"resource":["L2Advertisement",{...}]}   {"clusterIps":["shop/web",["10.96.0.7"]]}
//!  {"sha256":"..."}                        over everything above
//! ```
//!
//! It is no record of claims: those stand in the status of the Services. It holds no Secret. A file
//! that can't be understood is as good as none, and the next one takes its place.

use std::fs::File;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use landfall_model::ServiceKey;
use landfall_model::reason::Reason;
use landfall_model::rows::{
    Fact, Family, NamespaceRow, NodeRow, PoolOrigin, PoolRow, ResourceKind, ServiceRow, SliceRow,
};
use landfall_model::wire::{self, ObjectMeta, SERVICE_NAME_LABEL};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::state::folder::{Folder as _, OpenFile, RealFolder};
use crate::state::{SNAPSHOT, SNAPSHOT_FRESH, StateDir, StateError, io_error};

/// What the first line says of the file.
const WORD: &str = "served";

/// The format of the file.
const FORMAT: u64 = 1;

/// The version of the state, and when it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// When that was the state of things.
    pub written: Timestamp,
    /// Identifies the cluster.
    pub cluster: String,
    /// Identifies the configuration.
    pub configuration: String,
}

/// What was served.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Of what, and when.
    pub about: About,
    /// What it rested on.
    pub facts: Vec<Fact>,
}

/// The place of a snapshot. Held by one process at a time, from its first use on.
#[derive(Debug)]
pub struct SnapshotFile {
    folder: PathBuf,
    lock: Option<File>,
}

#[derive(Serialize, Deserialize)]
struct Header {
    landfall: String,
    format: u64,
    #[serde(flatten)]
    about: About,
}

/// One line between the first and the last.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Line {
    Service(wire::Service),
    Faulty(wire::Service, Vec<Reason>),
    Slice(wire::EndpointSlice),
    Node(wire::Node),
    Namespace(wire::Namespace),
    Pool(wire::IpAddressPool),
    Resource(ResourceKind, wire::Resource),
    ClusterIps(ServiceKey, Box<[IpAddr]>),
}

#[derive(Serialize, Deserialize)]
struct Seal {
    sha256: String,
}

// === impl Snapshot ===

impl Snapshot {
    /// Returns the file's content. Facts that have no place in it are left out: Secrets, and what
    /// only describes a source.
    pub fn encode(&self) -> Vec<u8> {
        let header = Header {
            landfall: WORD.to_owned(),
            format: FORMAT,
            about: self.about.clone(),
        };
        let mut bytes = Vec::new();
        write_line(&mut bytes, &header);
        for line in self.facts.iter().filter_map(Line::of) {
            write_line(&mut bytes, &line);
        }
        let sha256 = digest(&bytes);
        write_line(&mut bytes, &Seal { sha256 });
        bytes
    }

    /// Reads a file's content.
    ///
    /// # Errors
    /// Says why it can't be used.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let body = bytes.strip_suffix(b"\n").ok_or("it has no end")?;
        let end = body.iter().rposition(|byte| *byte == b'\n');
        let (body, seal) = bytes.split_at(end.ok_or("it has one line only")? + 1);
        let seal: Seal = serde_json::from_slice(seal).map_err(|error| error.to_string())?;
        if seal.sha256 != digest(body) {
            return Err("its checksum does not match".to_owned());
        }
        let mut lines = body.split(|byte| *byte == b'\n');
        let header: Header = serde_json::from_slice(lines.next().unwrap_or_default())
            .map_err(|error| error.to_string())?;
        if header.landfall != WORD || header.format != FORMAT {
            return Err(format!(
                "its format is {} {}",
                header.landfall, header.format
            ));
        }
        let lines = lines.filter(|line| !line.is_empty());
        let facts = lines.map(|line| {
            let line: Line = serde_json::from_slice(line).map_err(|error| error.to_string())?;
            line.into_fact()
        });
        Ok(Self {
            about: header.about,
            facts: facts.collect::<Result<_, String>>()?,
        })
    }

    /// Returns what identifies the content, whenever it was written.
    pub fn print(&self) -> String {
        let mut all = Sha256::new();
        for line in self.facts.iter().filter_map(Line::of) {
            let mut bytes = Vec::new();
            write_line(&mut bytes, &line);
            all.update(&bytes);
        }
        hex(&all.finalize())
    }
}

// === impl Line ===

impl Line {
    fn of(fact: &Fact) -> Option<Self> {
        Some(match fact {
            Fact::Service(row) => {
                let object = wire::service_to_json(row, &row.status);
                let object = serde_json::from_value(object).ok()?;
                if row.faults.is_empty() {
                    Self::Service(object)
                } else {
                    Self::Faulty(object, row.faults.clone())
                }
            }
            Fact::Slice(row) => Self::Slice(slice(row)),
            Fact::Node(row) => Self::Node(node(row)),
            Fact::Namespace(row) => Self::Namespace(namespace(row)),
            Fact::Pool(row) if row.origin == PoolOrigin::Source => match &row.resource {
                Some(resource) => Self::Resource(resource.kind, (&**resource).into()),
                None => Self::Pool((&**row).into()),
            },
            Fact::Resource(row) => Self::Resource(row.kind, (&**row).into()),
            Fact::ClusterIps(key, addresses) => Self::ClusterIps(key.clone(), addresses.clone()),
            _ => return None,
        })
    }

    fn into_fact(self) -> Result<Fact, String> {
        Ok(match self {
            Self::Service(object) => Fact::Service(Arc::new(object.into_admitted_row())),
            Self::Faulty(object, faults) => Fact::Service(Arc::new(ServiceRow {
                faults,
                ..object.into_admitted_row()
            })),
            Self::Slice(object) => {
                let row = object.into_admitted_row();
                let (row, _) =
                    row.map_err(|_| "an EndpointSlice belongs to no Service".to_owned())?;
                Fact::Slice(Arc::new(row))
            }
            Self::Node(object) => Fact::Node(Arc::new(object.into_admitted_row().0)),
            Self::Namespace(object) => Fact::Namespace(Arc::new(object.into_admitted_row())),
            Self::Pool(object) => Fact::Pool(Arc::new(object.into_admitted_row())),
            Self::Resource(ResourceKind::IpAddressPool, object) => {
                let whole = serde_json::to_value(&object);
                let pool = whole.and_then(serde_json::from_value::<wire::IpAddressPool>);
                let pool = pool.map_err(|error| error.to_string())?;
                let resource = object.into_admitted_row(ResourceKind::IpAddressPool);
                Fact::Pool(Arc::new(PoolRow {
                    resource: Some(Arc::new(resource)),
                    ..pool.into_admitted_row()
                }))
            }
            Self::Resource(kind, object) => {
                Fact::Resource(Arc::new(object.into_admitted_row(kind)))
            }
            Self::ClusterIps(key, addresses) => Fact::ClusterIps(key, addresses),
        })
    }
}

fn slice(row: &SliceRow) -> wire::EndpointSlice {
    let kind = match row.family {
        Some(Family::V4) => "IPv4",
        Some(Family::V6) => "IPv6",
        None => "FQDN",
    };
    let endpoints = row.endpoints.iter().map(|endpoint| wire::EndpointShape {
        addresses: vec![endpoint.address.to_string()],
        conditions: wire::EndpointConditions {
            ready: Some(endpoint.ready),
            serving: Some(endpoint.serving),
            terminating: Some(endpoint.terminating),
        },
        hostname: None,
        node_name: endpoint.node.as_deref().map(str::to_owned),
        target_ref: endpoint.name.as_deref().map(|name| wire::ObjectReference {
            name: Some(name.to_owned()),
        }),
    });
    let ports = row.ports.iter().map(|port| wire::SlicePortShape {
        name: Some(port.name.clone()),
        port: port.port.map(|port| port.get().into()),
        protocol: Some(port.protocol.as_str().to_owned()),
    });
    let label = (SERVICE_NAME_LABEL.to_owned(), row.service.name().to_owned());
    wire::EndpointSlice {
        metadata: ObjectMeta {
            name: Some(row.key.name().to_owned()),
            namespace: Some(row.key.namespace().to_owned()),
            labels: [label].into(),
            ..ObjectMeta::default()
        },
        address_type: Some(kind.to_owned()),
        endpoints: endpoints.collect(),
        ports: ports.collect(),
    }
}

/// Without what matters to a cloud alone: whether it is being deleted, or is about to leave.
fn node(row: &NodeRow) -> wire::Node {
    let addresses = row.addresses.iter().map(|address| wire::NodeAddress {
        address: address.to_string(),
        kind: "InternalIP".to_owned(),
    });
    let condition = |kind: &str, holds: bool| wire::NodeCondition {
        status: if holds { "True" } else { "False" }.to_owned(),
        kind: kind.to_owned(),
    };
    wire::Node {
        metadata: ObjectMeta {
            name: Some(row.name.to_string()),
            labels: row.labels.clone(),
            ..ObjectMeta::default()
        },
        spec: wire::NodeSpec {
            provider_id: row.provider_id.as_deref().map(str::to_owned),
            pod_cidrs: row.pod_prefixes.iter().map(ToString::to_string).collect(),
            unschedulable: row.cordoned,
            ..wire::NodeSpec::default()
        },
        status: wire::NodeStatus {
            addresses: addresses.collect(),
            conditions: vec![
                condition("Ready", row.ready),
                condition("NetworkUnavailable", row.network_unavailable),
            ],
        },
    }
}

fn namespace(row: &NamespaceRow) -> wire::Namespace {
    wire::Namespace {
        metadata: ObjectMeta {
            name: Some(row.name.to_string()),
            labels: row.labels.clone(),
            annotations: row.annotations.clone(),
            ..ObjectMeta::default()
        },
    }
}

fn write_line(bytes: &mut Vec<u8>, value: &impl Serialize) {
    let start = bytes.len();
    // Shapes with text keys have a JSON form, always.
    if serde_json::to_writer(&mut *bytes, value).is_err() {
        bytes.truncate(start);
        return;
    }
    bytes.push(b'\n');
}

fn digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(digest: &[u8]) -> String {
    let mut text = Vec::with_capacity(2 * digest.len());
    for byte in digest {
        // Writing into memory can't fail.
        let _ = write!(text, "{byte:02x}");
    }
    String::from_utf8(text).unwrap_or_default()
}

// === impl SnapshotFile ===

impl SnapshotFile {
    /// Will keep a snapshot in this directory, which is made at the first use.
    pub fn at(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            lock: None,
        }
    }

    /// Reads the file; `None`: it does not exist or can't be used, which is logged.
    /// Blocks.
    ///
    /// # Errors
    /// Another process holds the directory, or it can't be read.
    pub fn read(&mut self) -> Result<Option<Snapshot>, StateError> {
        self.hold()?;
        let path = self.folder.join(SNAPSHOT);
        let bytes = self.files().read(SNAPSHOT);
        let Some(bytes) = bytes.map_err(io_error(&path, "can't be read"))? else {
            return Ok(None);
        };
        match Snapshot::decode(&bytes) {
            Ok(snapshot) => Ok(Some(snapshot)),
            Err(why) => {
                tracing::warn!(file = %path.display(), why, "the last known state can't be read");
                Ok(None)
            }
        }
    }

    /// Puts a content in the place of what is there. When it returns, it is on the disk; if it
    /// fails, what was there before still is. Blocks.
    ///
    /// # Errors
    /// Another process holds the directory, or it can't be written.
    pub fn write(&mut self, content: &[u8]) -> Result<(), StateError> {
        self.hold()?;
        let mut files = self.files();
        let written = replace(&mut files, content);
        if written.is_err() {
            let _ = files.remove(SNAPSHOT_FRESH);
        }
        written.map_err(io_error(&self.folder.join(SNAPSHOT), "can't be written"))
    }

    /// Removes what is there. Blocks.
    ///
    /// # Errors
    /// Another process holds the directory, or it can't be removed.
    pub fn remove(&mut self) -> Result<(), StateError> {
        self.hold()?;
        let mut files = self.files();
        let removed = files.remove(SNAPSHOT).and_then(|()| files.sync());
        removed.map_err(io_error(&self.folder.join(SNAPSHOT), "can't be removed"))
    }

    fn files(&self) -> RealFolder {
        RealFolder::new(&self.folder)
    }

    fn hold(&mut self) -> Result<(), StateError> {
        if self.lock.is_none() {
            self.lock = Some(StateDir::hold(&self.folder, &mut |_| false)?);
        }
        Ok(())
    }
}

fn replace(files: &mut RealFolder, content: &[u8]) -> io::Result<()> {
    let mut medium = files.create(SNAPSHOT_FRESH)?;
    write_all(&mut *medium, content)?;
    medium.sync()?;
    files.rename(SNAPSHOT_FRESH, SNAPSHOT)?;
    files.sync()
}

fn write_all(medium: &mut dyn OpenFile, content: &[u8]) -> io::Result<()> {
    let (mut rest, mut place) = (content, 0);
    while !rest.is_empty() {
        match medium.write_at(rest, place) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                place += written as u64;
                rest = rest.get(written..).unwrap_or_default();
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
