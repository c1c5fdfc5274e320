//! What is remembered, and the line that each of it has in the journal.

use std::sync::Arc;

use landfall_model::reason::Reason;
use landfall_model::rows::{PoolRow, ServiceRow};
use landfall_model::{ServiceKey, wire};
use serde::{Deserialize, Serialize};

use crate::marks::marked;

/// The identity of an entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// A pool, by its name.
    Pool(String),
    /// A Service.
    Service(ServiceKey),
}

/// Something that is remembered.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Entry {
    /// The last valid version of a pool.
    Pool(Arc<PoolRow>),
    /// A Service: its last manifest, identity, finalizer and status.
    Service(Arc<ServiceRow>),
}

/// A Service in the form of the API, whose reader is forgiving: a code in a condition that this
/// version does not know must not lock the user out of every address.
#[derive(Serialize)]
struct ServiceLine<'a> {
    service: &'a ServiceKey,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    deleting: bool,
    object: wire::PrintedService,
}

#[derive(Deserialize)]
struct ServiceShape {
    #[serde(default)]
    deleting: bool,
    object: wire::Service,
}

#[derive(Serialize)]
struct PoolLine<'a> {
    pool: &'a str,
    object: wire::IpAddressPool,
}

#[derive(Deserialize)]
struct PoolShape {
    object: wire::IpAddressPool,
}

#[derive(Serialize)]
struct Absent<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<&'a ServiceKey>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<&'a str>,
    gone: bool,
}

// === impl Key ===

impl Key {
    /// Returns the line of an entry, or the one that says that it is gone.
    pub(crate) fn line(&self, entry: Option<&Entry>) -> String {
        let text = match (self, entry) {
            (_, Some(Entry::Service(row))) => serde_json::to_string(&ServiceLine {
                service: &row.key,
                deleting: row.deleting,
                object: wire::remembered_service(row, &row.status),
            }),
            (_, Some(Entry::Pool(row))) => serde_json::to_string(&PoolLine {
                pool: &row.name,
                object: wire::IpAddressPool::from(&**row),
            }),
            (Self::Service(key), None) => serde_json::to_string(&Absent {
                service: Some(key),
                pool: None,
                gone: true,
            }),
            (Self::Pool(name), None) => serde_json::to_string(&Absent {
                service: None,
                pool: Some(name),
                gone: true,
            }),
        };
        // Values with text keys have a JSON form, always.
        text.unwrap_or_default()
    }
}

// === impl Entry ===

impl Entry {
    /// Returns its identity.
    pub(crate) fn key(&self) -> Key {
        match self {
            Self::Pool(row) => Key::Pool(row.name.clone()),
            Self::Service(row) => Key::Service(row.key.clone()),
        }
    }

    /// Reads a line that is not about something that is gone.
    pub(crate) fn read(key: &Key, line: &str) -> Result<Self, String> {
        match key {
            Key::Service(_) => {
                let shape: ServiceShape =
                    serde_json::from_str(line).map_err(|error| error.to_string())?;
                let row = shape.object.into_row().map_err(|reasons| first(&reasons))?;
                Ok(Self::Service(Arc::new(marked(ServiceRow {
                    deleting: shape.deleting,
                    ..row
                }))))
            }
            Key::Pool(_) => {
                let shape: PoolShape =
                    serde_json::from_str(line).map_err(|error| error.to_string())?;
                let row = shape.object.into_row().map_err(|reasons| first(&reasons))?;
                Ok(Self::Pool(Arc::new(row)))
            }
        }
    }
}

fn first(reasons: &[Reason]) -> String {
    let first = reasons.first();
    first.map(ToString::to_string).unwrap_or_default()
}
