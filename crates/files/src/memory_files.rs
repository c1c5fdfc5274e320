//! Manifests in memory, in place of a folder on a disk.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::catalog::{File, Finding, Survey};
use crate::disk::{self, DiskSurvey};

/// The files of a folder. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Files(Arc<Mutex<Folder>>);

#[derive(Debug, Default)]
struct Folder {
    /// Every file by name: which of all writes made it, and what it says.
    texts: BTreeMap<Arc<str>, (u64, String)>,
    /// How many writes there were.
    writes: u64,
}

/// The files as one process sees them.
#[derive(Debug)]
pub(crate) struct FilesView {
    files: Files,
    seen: HashMap<Arc<str>, u64>,
}

// === impl Files ===

impl Files {
    fn folder(&self) -> MutexGuard<'_, Folder> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a file.
    pub fn put(&self, name: &str, text: String) {
        let mut folder = self.folder();
        folder.writes += 1;
        let written = (folder.writes, text);
        folder.texts.insert(name.into(), written);
    }

    /// Removes a file. Returns what it said.
    pub fn remove(&self, name: &str) -> Option<String> {
        self.folder().texts.remove(name).map(|(_, text)| text)
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
        let texts = &self.files.folder().texts;
        self.seen.retain(|name, _| texts.contains_key(name));
        for (name, (write, text)) in texts {
            let before = self.seen.insert(name.clone(), *write);
            let finding = if before == Some(*write) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_removed_and_written_again_between_two_scans_is_read() {
        let files = Files::default();
        files.put("web.yaml", "kind: Service".to_owned());
        let mut view = FilesView::new(files.clone());
        let is_same = |view: &mut FilesView| {
            let survey = view.look();
            let mut found = survey.survey.files.iter().map(|file| &file.finding);
            found.all(|finding| matches!(finding, Finding::Same))
        };
        assert!(!is_same(&mut view));
        assert!(is_same(&mut view));
        files.remove("web.yaml");
        files.put("web.yaml", "kind: Node".to_owned());
        assert!(!is_same(&mut view));
    }
}
