//! Manifests in memory, in place of a folder on a disk.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::catalog::{File, Finding, Survey};
use crate::disk::{self, DiskSurvey};

/// The files of a folder. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Files(Arc<Mutex<Texts>>);

/// Every file by name: how often it was written, and what it says.
type Texts = BTreeMap<Arc<str>, (u64, String)>;

/// The files as one process sees them.
#[derive(Debug)]
pub(crate) struct FilesView {
    files: Files,
    seen: HashMap<Arc<str>, u64>,
}

// === impl Files ===

impl Files {
    fn texts(&self) -> MutexGuard<'_, Texts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a file.
    pub fn put(&self, name: &str, text: String) {
        let mut texts = self.texts();
        let (count, old) = texts.entry(name.into()).or_default();
        *count += 1;
        *old = text;
    }

    /// Removes a file.
    pub fn remove(&self, name: &str) {
        self.texts().remove(name);
    }
}

// === impl FilesView ===

impl FilesView {
    /// Reads these files for the first time.
    pub(crate) fn new(files: Files) -> Self {
        Self {
            files,
            seen: HashMap::new(),
        }
    }

    /// Looks around, and reads what changed since the last time.
    pub(crate) fn look(&mut self) -> DiskSurvey {
        let mut survey = Survey::default();
        let texts = self.files.texts();
        self.seen.retain(|name, _| texts.contains_key(name));
        for (name, (count, text)) in texts.iter() {
            let before = self.seen.insert(name.clone(), *count);
            let finding = if before == Some(*count) {
                Finding::Same
            } else {
                disk::decode(name, text.as_bytes())
            };
            let name = name.clone();
            survey.files.push(File { name, finding });
        }
        DiskSurvey::of(survey)
    }
}
