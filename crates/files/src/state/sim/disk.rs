//! What is on the disk for certain, and what only seems to be until it is synced.

use std::collections::BTreeMap;

use super::SimFault;
use crate::state::folder::Print;

/// The files of the folder, on the disk and as they seem.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    pub(super) files: Vec<Content>,
    /// Which file has which name, on the disk and as it seems.
    pub(super) durable: BTreeMap<String, usize>,
    pub(super) names: BTreeMap<String, usize>,
    pub(super) trouble: Option<(usize, SimFault)>,
    pub(super) done: usize,
    pub(super) is_full: bool,
    pub(super) is_off: bool,
    /// The process that may use it.
    pub(super) life: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    pub(super) durable: Vec<u8>,
    pub(super) pending: Vec<Operation>,
}

#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub(super) kind: Kind,
    /// A sync has failed to keep it, and no later one will.
    pub(super) is_forgotten: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Write(u64, Vec<u8>),
    Cut(u64),
}

// === impl Disk ===

impl Disk {
    pub(super) fn print(&self, file: usize) -> Option<Print> {
        let length = self.files.get(file)?.seen().len();
        Some((0, file as u64, length as u64))
    }

    /// The disk after a power cut of which so much of what was not synced is left.
    pub(super) fn after(
        &self,
        keeps_names: bool,
        left: impl Fn(&Content) -> Vec<Operation>,
    ) -> Self {
        let files = self.files.iter().map(|file| Content {
            durable: apply(&file.durable, &left(file)),
            pending: Vec::new(),
        });
        let names = if keeps_names {
            &self.names
        } else {
            &self.durable
        };
        Self {
            files: files.collect(),
            durable: names.clone(),
            names: names.clone(),
            ..Self::default()
        }
    }
}

// === impl Content ===

impl Content {
    pub(super) fn seen(&self) -> Vec<u8> {
        apply(&self.durable, &self.pending)
    }

    /// All that is pending, the last write of it changed.
    pub(super) fn with_last(&self, change: impl FnOnce(&mut Vec<u8>)) -> Vec<Operation> {
        let mut pending = self.pending.clone();
        if let Some(Operation {
            kind: Kind::Write(_, bytes),
            ..
        }) = pending.last_mut()
        {
            change(bytes);
        }
        pending
    }
}

/// Returns what a file holds after these operations.
pub(super) fn apply(durable: &[u8], operations: &[Operation]) -> Vec<u8> {
    let mut bytes = durable.to_vec();
    for operation in operations {
        match &operation.kind {
            Kind::Write(place, text) => {
                let place = usize::try_from(*place).unwrap();
                if bytes.len() < place + text.len() {
                    bytes.resize(place + text.len(), 0);
                }
                bytes[place..place + text.len()].copy_from_slice(text);
            }
            Kind::Cut(length) => bytes.resize(usize::try_from(*length).unwrap(), 0),
        }
    }
    bytes
}
