//! Folders by what they are, not by their paths: where a volume is not mounted any more there is an
//! empty folder in its place, and what was in the volume was not deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use landfall_model::reason::{Code, Reason};

use super::read::beginning;

/// The folders in which manifests were found.
#[derive(Debug, Default)]
pub(super) struct Places {
    known: BTreeMap<PathBuf, Place>,
    /// Folders of which it is not known whether they are those that held what is remembered.
    unverified: BTreeSet<PathBuf>,
}

/// A folder, whatever its path is: its device and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place(u64, u64);

// === impl Places ===

impl Places {
    /// Takes in that there are manifests in a folder.
    pub(super) fn found(&mut self, folder: &Path) {
        self.unverified.remove(folder);
        if let Some(place) = Place::at(folder) {
            self.known.insert(folder.to_owned(), place);
        }
    }

    /// Returns whether there were manifests in a folder of this path.
    pub(super) fn has(&self, folder: &Path) -> bool {
        self.known.contains_key(folder)
    }

    /// Forgets folders that are no longer there.
    pub(super) fn retain(&mut self, is_there: impl Fn(&Path) -> bool) {
        self.known.retain(|folder, _| is_there(folder));
    }

    /// Notes that an empty folder may not be the one that was meant, until a manifest is in it.
    pub(super) fn unverify(&mut self, folder: PathBuf) {
        self.unverified.insert(folder);
    }

    /// Returns whether a folder without manifests may be another one than that which held some.
    pub(super) fn is_unverified(&self, folder: &Path) -> bool {
        let known = self.known.get(folder);
        self.unverified.contains(folder) || known.is_some_and(|it| Place::at(folder) != Some(*it))
    }
}

// === impl Place ===

impl Place {
    fn at(folder: &Path) -> Option<Self> {
        let of = |metadata: Metadata| Self(metadata.dev(), metadata.ino());
        fs::metadata(folder).ok().map(of)
    }
}

/// Returns what is wrong with such a folder.
pub(super) fn unverified(folder: &Arc<str>) -> Reason {
    let what = "there is no manifest in this folder, and it may not be the one that held some: a \
                volume may not be mounted";
    Reason::error(Code::InvalidManifest, what)
        .remedy(
            "mount it; to remove the objects that were in it, write a file with a comment, such as \
            empty.yaml",
        )
        .origin(Some(beginning(folder)))
}

/// Returns what is wrong with a file that is missing in such a folder.
pub(super) fn missing(file: &Arc<str>) -> Reason {
    let what = "the file is missing, and its folder is not the one that held it: a volume may not \
                be mounted";
    Reason::error(Code::InvalidManifest, what)
        .remedy("mount it; to remove the objects of the file, write a comment into it")
        .origin(Some(beginning(file)))
}
