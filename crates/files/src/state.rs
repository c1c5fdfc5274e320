//! The state directory: what an API server would remember, in a journal.
//!
//! `state.journal` holds it (see [`journal`]), and `lock` keeps a second process out. A file that
//! can't be understood is never overwritten: it holds people's addresses. `state.json`, which
//! earlier versions wrote, is taken over once and then stays beside as `state.json.migrated`.

mod entry;
pub(crate) mod folder;
mod journal;
mod lock;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use landfall_engine::parallel;
use landfall_model::rows::{PoolRow, ServiceRow};
use landfall_model::wire;
use landfall_sys::files;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::marks::marked;
pub(crate) use entry::{Entry, Key};
use folder::{Folder, RealFolder};
pub(crate) use journal::Changes;
use journal::{Corruption, Fault, Journal};

/// How many lines are read while another thread starts that reads as many.
const SHARE: NonZeroUsize = NonZeroUsize::MIN.saturating_add(63);

/// The format of `state.json`.
const FORMER_FORMAT: u64 = 1;

/// What earlier versions wrote, and what it is called once it has been taken over.
const FORMER: &str = "state.json";
const FORMER_FRESH: &str = "state.json.new";
const MIGRATED: &str = "state.json.migrated";

const LOCK: &str = "lock";

/// Our own files.
const OWN: [&str; 11] = [
    journal::JOURNAL,
    journal::FRESH,
    journal::FOREIGN,
    FORMER,
    FORMER_FRESH,
    MIGRATED,
    LOCK,
    SNAPSHOT,
    SNAPSHOT_FRESH,
    "hash.secret",
    "takeover.sock",
];

/// What a replica of a cluster served last, and its successor while that is written.
pub(crate) const SNAPSHOT: &str = "served.snapshot";
pub(crate) const SNAPSHOT_FRESH: &str = "served.snapshot.new";

/// Only the owner has access to the directory.
const FOLDER_MODE: u32 = 0o700;

/// A state directory, held by this process alone.
#[derive(Debug)]
pub(crate) struct StateDir {
    folder: PathBuf,
    journal: Journal,
    /// Locked as long as it is open.
    lock: File,
    /// Whether the lock is to be found in the directory by its name.
    is_named: bool,
    /// Whether the directory was taken hold of again and the journal is still to be put into it.
    owes_journal: bool,
}

/// What was remembered at the start.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    /// Each with its marks among the annotations, as it was when it was written.
    pub(crate) services: Vec<Arc<ServiceRow>>,
    /// The last valid version of every pool.
    pub(crate) pools: Vec<Arc<PoolRow>>,
}

/// Why a state directory can't be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The folder or a file in it can't be used.
    #[error("{}: {what}: {source}", path.display())]
    Io {
        /// What it is about.
        path: PathBuf,
        /// What failed.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// Another process holds it.
    #[error("the state directory {} is in use by {holder}; stop that process, or use another \
            directory with --state", folder.display())]
    InUse {
        /// The directory.
        folder: PathBuf,
        /// The holder, as far as it is known: `process 123 (landfall)`.
        holder: String,
    },
    /// The file was written by something newer.
    #[error("{} has format {found}, and this version of Landfall supports only format {known}; use \
            the version that wrote it, or move the file away: then Services may get other \
            addresses", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
        /// The format that this version reads.
        known: u64,
    },
    /// The file makes no sense.
    #[error("{} can't be parsed: {why}; restore it from a backup, or move it away: then Services \
            may get other addresses", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Where and why.
        why: String,
    },
    /// There is a state of an earlier version that was not taken over.
    #[error("both {} and {} exist, and the second was not migrated from the first; move the unused \
            one away", former.display(), journal.display())]
    TwoStates {
        /// `state.json`.
        former: PathBuf,
        /// The journal.
        journal: PathBuf,
    },
}

#[derive(Deserialize)]
struct FormerHeader {
    version: u64,
}

#[derive(Deserialize)]
struct FormerContents {
    services: Vec<FormerRecord>,
}

#[derive(Deserialize)]
struct FormerRecord {
    #[serde(default)]
    deleting: bool,
    service: wire::Service,
}

/// Whether a file of this name in the state directory is ours, so that it is not read as a
/// manifest.
pub(crate) fn is_own_file(name: &OsStr) -> bool {
    OWN.iter().any(|own| name == *own)
}

// === impl StateDir ===

impl StateDir {
    /// Takes hold of a directory, and reads what is remembered.
    #[cfg(test)]
    pub(crate) fn open(folder: &Path) -> Result<(Self, Remembered), StateError> {
        Self::open_held(folder, Self::take_hold(folder)?)
    }

    /// Makes the directory if it is not there, and takes hold of it. Waits a little for a process
    /// that is about to end.
    pub(crate) fn take_hold(folder: &Path) -> Result<File, StateError> {
        Self::hold(folder, &mut lock::wait)
    }

    /// Reads what is remembered in a directory that is held by `lock`.
    pub(crate) fn open_held(folder: &Path, lock: File) -> Result<(Self, Remembered), StateError> {
        let files = Box::new(RealFolder::new(folder));
        let (mut state, remembered) = Self::read(folder, files, lock)?;
        state.is_named = true;
        Ok((state, remembered))
    }

    pub(crate) fn hold(folder: &Path, wait: lock::Wait<'_>) -> Result<File, StateError> {
        DirBuilder::new()
            .recursive(true)
            .mode(FOLDER_MODE)
            .create(folder)
            .map_err(io_error(folder, "can't be created"))?;
        let lock = lock::take(folder, LOCK, wait)?;
        close_to_others(folder).map_err(io_error(folder, "can't be restricted to its owner"))?;
        Ok(lock)
    }

    fn read(
        folder: &Path,
        files: Box<dyn Folder>,
        lock: File,
    ) -> Result<(Self, Remembered), StateError> {
        let former = files
            .read(FORMER)
            .map_err(io_error(&folder.join(FORMER), "can't be read"))?;
        let written = files
            .read(journal::JOURNAL)
            .map_err(io_error(&folder.join(journal::JOURNAL), "can't be read"))?;
        let located = |fault| located(folder, fault);
        let (entries, mut journal) = match (written, &former) {
            (Some(bytes), former) => {
                let path = folder.join(journal::JOURNAL);
                let reading = journal::read(&bytes).map_err(|damage| damaged(&path, damage))?;
                if reading.interrupted > 0 {
                    tracing::warn!(
                        file = %path.display(),
                        bytes = reading.interrupted,
                        "an interrupted write was dropped"
                    );
                }
                if let Some(former) = former
                    && reading.migrated.as_deref() != Some(&*print_of(former))
                {
                    return Err(StateError::TwoStates {
                        former: folder.join(FORMER),
                        journal: path,
                    });
                }
                let entries = entries_of(&path, &reading)?;
                let kept = entries.values().map(|(entry, _)| entry.clone()).collect();
                let journal = Journal::resume(files, entries, &reading).map_err(located)?;
                (kept, journal)
            }
            (None, former) => {
                let entries = match former {
                    Some(bytes) => take_over(&folder.join(FORMER), bytes)?,
                    None => Vec::new(),
                };
                let entry = |entry: &Entry| (entry.key(), Some(entry.clone()));
                let changes: Changes = entries.iter().map(entry).collect();
                let migrated = former.as_deref().map(print_of);
                let journal = Journal::create(files, &changes, migrated).map_err(located)?;
                (entries, journal)
            }
        };
        if former.is_some() {
            // Last, and only now: until here it was the only record.
            let put_aside = journal.folder().rename(FORMER, MIGRATED);
            put_aside
                .and_then(|()| journal.folder().sync())
                .map_err(io_error(&folder.join(FORMER), "can't be moved aside"))?;
        }
        let state = Self {
            folder: folder.to_owned(),
            journal,
            lock,
            is_named: false,
            owes_journal: false,
        };
        Ok((state, Remembered::of(entries)))
    }

    /// Writes the journal again with the next commit.
    #[cfg(feature = "memory")]
    pub(crate) fn compact_soon(&mut self) {
        self.journal.compact_soon();
    }

    /// Where the state is written.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join(journal::JOURNAL)
    }

    /// Makes sure that the directory is the one that is held, with the journal in it. Returns
    /// whether something had to be written again.
    ///
    /// # Errors
    /// Another process holds it, or it can't be made or written.
    pub(crate) fn keep_hold(&mut self) -> Result<bool, StateError> {
        if self.keep_folder()? {
            return Ok(true);
        }
        let restored = self.journal.restore();
        let restored = restored.map_err(|fault| located(&self.folder, fault))?;
        if restored {
            tracing::warn!(
                journal = %self.path().display(),
                "another program removed or changed the journal; it was written again"
            );
        }
        Ok(restored)
    }

    /// Makes sure that the directory is the one that is held: it may have been removed or replaced,
    /// and then another process can hold the one that has its name now. Takes hold of that and puts
    /// all that is remembered into it. Returns whether that was needed.
    fn keep_folder(&mut self) -> Result<bool, StateError> {
        let is_held = !self.is_named || is_same(&self.folder.join(LOCK), &self.lock);
        if is_held && !self.owes_journal {
            return Ok(false);
        }
        if !is_held {
            self.lock = Self::hold(&self.folder, &mut |_| false)?;
            self.owes_journal = true;
        }
        let reinstated = self.journal.reinstate();
        reinstated.map_err(|fault| located(&self.folder, fault))?;
        self.owes_journal = false;
        tracing::warn!(
            state = %self.folder.display(),
            "the state directory was removed or replaced; its content was written again"
        );
        Ok(true)
    }

    /// Writes changes. When it returns, they are on the disk. If it fails, nothing that was there
    /// before is lost.
    pub(crate) fn commit(&mut self, changes: &Changes) -> Result<(), StateError> {
        // Never into a directory that another process holds.
        self.keep_folder()?;
        let committed = self.journal.commit(changes);
        committed.map_err(|fault| located(&self.folder, fault))
    }
}

/// Whether a file is the one that is open.
fn is_same(path: &Path, open: &File) -> bool {
    let there = fs::symlink_metadata(path);
    let held = open.metadata();
    match (there, held) {
        (Ok(there), Ok(held)) => (there.dev(), there.ino()) == (held.dev(), held.ino()),
        _ => false,
    }
}

pub(crate) fn io_error<'a>(
    path: &'a Path,
    what: &'static str,
) -> impl FnOnce(io::Error) -> StateError + 'a {
    move |source| StateError::Io {
        path: path.to_owned(),
        what,
        source,
    }
}

fn located(folder: &Path, fault: Fault) -> StateError {
    let Fault { file, what, source } = fault;
    io_error(&folder.join(file), what)(source)
}

/// Makes sure that what is remembered in a directory can be read. Writes nothing, so that another
/// process may hold it.
///
/// # Errors
/// The journal can't be read, or is damaged.
pub fn validate_state(folder: &Path) -> Result<(), StateError> {
    let path = folder.join(journal::JOURNAL);
    let written = RealFolder::new(folder).read(journal::JOURNAL);
    let Some(bytes) = written.map_err(io_error(&path, "can't be read"))? else {
        return Ok(());
    };
    let reading = journal::read(&bytes).map_err(|damage| damaged(&path, damage))?;
    entries_of(&path, &reading).map(drop)
}

/// Reads the entries of a journal, each with the size of its line.
fn entries_of(
    path: &Path,
    reading: &journal::Reading<'_>,
) -> Result<BTreeMap<Key, (Entry, u64)>, StateError> {
    let lines = reading.lines.iter().map(|(key, line)| (key, *line));
    let lines: Vec<(&Key, &str)> = lines.collect();
    let read = parallel::map(&lines, SHARE, |(key, line)| {
        let entry = Entry::read(key, line)?;
        Ok(((*key).clone(), (entry, line.len() as u64 + 1)))
    });
    let entries: Result<_, String> = read.into_iter().collect();
    entries.map_err(|why| {
        let path = path.to_owned();
        StateError::Corrupt { path, why }
    })
}

fn damaged(path: &Path, damage: Corruption) -> StateError {
    let path = path.to_owned();
    match damage {
        Corruption::Format(found) => StateError::Version {
            path,
            found,
            known: journal::FORMAT,
        },
        Corruption::Broken(why) => StateError::Corrupt { path, why },
    }
}

/// Removes the rights of other users on a state directory, if it is ours and holds nothing but
/// our files: a folder that serves other purposes, too, stays as it is.
fn close_to_others(folder: &Path) -> io::Result<()> {
    let metadata = fs::metadata(folder)?;
    if metadata.uid() != files::user() || metadata.mode() & 0o777 == FOLDER_MODE {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        if !is_own_file(&entry?.file_name()) {
            return Ok(());
        }
    }
    match fs::set_permissions(folder, Permissions::from_mode(FOLDER_MODE)) {
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => Ok(()),
        set => set,
    }
}

/// Identifies a version of `state.json`.
fn print_of(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        // Writing into a text can't fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Reads what an earlier version remembered.
fn take_over(path: &Path, bytes: &[u8]) -> Result<Vec<Entry>, StateError> {
    let corrupt = |why: String| StateError::Corrupt {
        path: path.to_owned(),
        why,
    };
    let header: FormerHeader =
        serde_json::from_slice(bytes).map_err(|error| corrupt(error.to_string()))?;
    if header.version != FORMER_FORMAT {
        return Err(StateError::Version {
            path: path.to_owned(),
            found: header.version,
            known: FORMER_FORMAT,
        });
    }
    let contents: FormerContents =
        serde_json::from_slice(bytes).map_err(|error| corrupt(error.to_string()))?;
    contents
        .services
        .into_iter()
        .enumerate()
        .map(|(index, record)| {
            let row = record.service.into_row().map_err(|reasons| {
                let why = reasons.first().map(ToString::to_string).unwrap_or_default();
                corrupt(format!("services[{index}]: {why}"))
            })?;
            Ok(Entry::Service(Arc::new(marked(ServiceRow {
                deleting: record.deleting,
                ..row
            }))))
        })
        .collect()
}

// === impl Remembered ===

impl Remembered {
    fn of(entries: Vec<Entry>) -> Self {
        let mut remembered = Self::default();
        for entry in entries {
            match entry {
                Entry::Service(row) => remembered.services.push(row),
                Entry::Pool(row) => remembered.pools.push(row),
            }
        }
        remembered
    }
}

#[cfg(test)]
mod crashes;
#[cfg(any(test, feature = "memory"))]
pub(crate) mod sim;
#[cfg(test)]
mod tests;
