//! A row that is kept for long and read rarely.

use super::{PackedService, ServiceRow};
use crate::id::{ServiceKey, Uid};
use crate::status::ServiceStatus;

/// A [`ServiceRow`] that is kept packed. Copies of it share their bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptService {
    key: ServiceKey,
    packed: PackedService,
}

// === impl KeptService ===

impl KeptService {
    /// Keeps a row. It takes no room of its own where `known` is the same.
    pub fn new(row: &ServiceRow, known: Option<&PackedService>) -> Self {
        let packed = PackedService::of(row);
        Self {
            key: row.key.clone(),
            packed: known.filter(|it| **it == packed).cloned().unwrap_or(packed),
        }
    }

    /// Keeps a row that is packed already.
    pub const fn shared(key: ServiceKey, packed: PackedService) -> Self {
        Self { key, packed }
    }

    /// Namespace and name.
    pub const fn key(&self) -> &ServiceKey {
        &self.key
    }

    /// Returns the row.
    pub fn row(&self) -> Option<ServiceRow> {
        self.packed.row(self.key.clone())
    }

    /// Returns whether it is a row of this Service, and not of another one of the same name.
    pub fn is_of(&self, uid: &Uid) -> bool {
        self.row().is_some_and(|row| row.uid == *uid)
    }

    /// Returns its status, without unpacking the rest.
    pub fn status(&self) -> ServiceStatus {
        self.packed.status().unwrap_or_default()
    }
}

impl From<&ServiceRow> for KeptService {
    fn from(row: &ServiceRow) -> Self {
        Self::new(row, None)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::wire;

    #[test]
    fn a_row_that_is_known_already_takes_no_room_of_its_own_and_another_one_does() {
        let row = |port| -> ServiceRow {
            let shape: wire::Service = serde_json::from_value(json!({
                "metadata": {"name": "web", "namespace": "default", "uid": "u"},
                "spec": {"ports": [{"port": port}]},
            }))
            .unwrap();
            shape.into_admitted_row()
        };
        let (row, newer) = (row(80), row(81));
        let packed = PackedService::of(&row);
        let kept = KeptService::new(&row, Some(&packed));
        assert!(kept.packed.shares(&packed) && kept.clone().packed.shares(&packed));
        assert_eq!(kept.row().as_ref(), Some(&row));
        let kept = KeptService::new(&newer, Some(&packed));
        assert!(!kept.packed.shares(&packed));
        assert_eq!(kept.row().as_ref(), Some(&newer));
        assert!(kept.is_of(&newer.uid) && !kept.is_of(&Uid::new("another")));
    }
}
