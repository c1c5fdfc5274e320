//! The state directory: what an API server would remember, in one JSON file.
//!
//! `state.json` is replaced as a whole, so that after a crash it is either the old one or the new
//! one: written beside itself, synced, renamed, and the folder synced. `lock` keeps a second process
//! out. A file that can't be understood is never overwritten: it holds people's addresses.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use landfall_model::rows::ServiceRow;
use landfall_model::wire;
use serde::{Deserialize, Serialize};

/// The format that is written, and the only one that is read.
const VERSION: u32 = 1;

const STATE_FILE: &str = "state.json";
const FRESH_FILE: &str = "state.json.new";
const LOCK_FILE: &str = "lock";

/// What is remembered of one Service: its last manifest, identity, finalizer and status.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) row: Arc<ServiceRow>,
    /// The row as it stands in the file, made when it is first written: most records stay the same
    /// from one write to the next.
    text: OnceLock<String>,
}

/// A state directory, held by this process alone.
#[derive(Debug)]
pub(crate) struct StateDir {
    folder: PathBuf,
    /// Locked as long as it is open.
    _lock: File,
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
    #[error("the state directory {} is in use by {holder}; stop that one, or give this one a \
             directory of its own with --state", folder.display())]
    InUse {
        /// The directory.
        folder: PathBuf,
        /// Who, as far as is known: `process 123 (landfall)`.
        holder: String,
    },
    /// The file was written by something newer.
    #[error("{} has format {found}, and this version of Landfall knows only format {VERSION}; use \
             the version that wrote it, or move the file away: then Services may get other \
             addresses than they had", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
    },
    /// The file makes no sense.
    #[error("{} can't be understood: {why}; restore it from a backup, or move it away: then \
             Services may get other addresses than they had", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Where and why.
        why: String,
    },
}

#[derive(Deserialize)]
struct Header {
    version: u64,
}

#[derive(Deserialize)]
struct Contents {
    services: Vec<RecordShape>,
}

/// A Service in the form of the API, whose reader is forgiving: a code in a condition that this
/// version does not know must not lock the user out of every address.
#[derive(Serialize, Deserialize)]
struct RecordShape<S = wire::Service> {
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    deleting: bool,
    service: S,
}

/// Whether a file of this name in the state directory is ours, so that nobody takes it for a
/// manifest.
pub(crate) fn is_own_file(name: &OsStr) -> bool {
    [STATE_FILE, FRESH_FILE, LOCK_FILE]
        .iter()
        .any(|own| name == *own)
}

// === impl StateDir ===

impl StateDir {
    /// Makes the directory if it is not there, takes hold of it, and reads what is remembered.
    pub(crate) fn open(folder: &Path) -> Result<(Self, Vec<Arc<Record>>), StateError> {
        fs::create_dir_all(folder).map_err(io_error(folder, "can't be made"))?;
        let lock = lock(folder)?;
        let records = read(&folder.join(STATE_FILE))?;
        let state = Self {
            folder: folder.to_owned(),
            _lock: lock,
        };
        Ok((state, records))
    }

    /// The directory.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where the state is written.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join(STATE_FILE)
    }

    /// Replaces everything that is remembered. When it returns, it is on the disk.
    pub(crate) fn write(&self, records: &[Arc<Record>]) -> Result<(), StateError> {
        let fresh = self.folder.join(FRESH_FILE);
        let path = self.path();
        write_to(&fresh, records).map_err(io_error(&fresh, "can't be written"))?;
        fs::rename(&fresh, &path).map_err(io_error(&path, "can't be replaced"))?;
        File::open(&self.folder)
            .and_then(|folder| folder.sync_all())
            .map_err(io_error(&self.folder, "can't be synced"))
    }
}

fn io_error<'a>(path: &'a Path, what: &'static str) -> impl FnOnce(io::Error) -> StateError + 'a {
    move |source| StateError::Io {
        path: path.to_owned(),
        what,
        source,
    }
}

fn lock(folder: &Path) -> Result<File, StateError> {
    let path = folder.join(LOCK_FILE);
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(io_error(&path, "can't be opened"))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(StateError::InUse {
                folder: folder.to_owned(),
                holder: holder(&mut file),
            });
        }
        Err(TryLockError::Error(source)) => {
            return Err(io_error(&path, "can't be locked")(source));
        }
    }
    // Only for the message above: a failure costs no more than a name.
    let _ = file.set_len(0);
    let _ = writeln!(file, "{}", std::process::id());
    Ok(file)
}

/// Who holds the lock, by what it wrote into the file.
fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let number = match file.read_to_string(&mut text) {
        Ok(_) => text.trim().parse::<u32>().ok(),
        Err(_) => None,
    };
    let Some(number) = number else {
        return "another process".to_owned();
    };
    match fs::read_to_string(format!("/proc/{number}/comm")) {
        Ok(name) => format!("process {number} ({})", name.trim()),
        Err(_) => format!("process {number}"),
    }
}

fn read(path: &Path) -> Result<Vec<Arc<Record>>, StateError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io_error(path, "can't be read")(error)),
    };
    let corrupt = |why: String| StateError::Corrupt {
        path: path.to_owned(),
        why,
    };
    let header: Header =
        serde_json::from_slice(&bytes).map_err(|error| corrupt(error.to_string()))?;
    if header.version != u64::from(VERSION) {
        return Err(StateError::Version {
            path: path.to_owned(),
            found: header.version,
        });
    }
    let contents: Contents =
        serde_json::from_slice(&bytes).map_err(|error| corrupt(error.to_string()))?;
    contents
        .services
        .into_iter()
        .enumerate()
        .map(|(index, shape)| {
            let row = shape.service.into_row().map_err(|reasons| {
                let why = reasons.first().map(ToString::to_string).unwrap_or_default();
                corrupt(format!("services[{index}]: {why}"))
            })?;
            Ok(Arc::new(Record::new(ServiceRow {
                deleting: shape.deleting,
                ..row
            })))
        })
        .collect()
}

fn write_to(path: &Path, records: &[Arc<Record>]) -> io::Result<()> {
    let mut writer = BufWriter::with_capacity(64 * 1024, File::create(path)?);
    // One Service a line: people look into this file when something is wrong.
    write!(writer, "{{\"version\":{VERSION},\"services\":[")?;
    for (index, record) in records.iter().enumerate() {
        writer.write_all(if index == 0 { b"\n" } else { b",\n" })?;
        writer.write_all(record.text().as_bytes())?;
    }
    writer.write_all(b"\n]}\n")?;
    let file = writer
        .into_inner()
        .map_err(io::IntoInnerError::into_error)?;
    file.sync_all()
}

// === impl Record ===

impl Record {
    /// A Service that is remembered.
    pub(crate) fn new(row: ServiceRow) -> Self {
        Self {
            row: Arc::new(row),
            text: OnceLock::new(),
        }
    }

    /// The same Service, of which nothing changed but what the file does not hold: its source.
    pub(crate) fn moved(&self, row: ServiceRow) -> Self {
        Self {
            row: Arc::new(row),
            text: self.text.clone(),
        }
    }

    fn text(&self) -> &str {
        self.text.get_or_init(|| {
            let shape = RecordShape {
                deleting: self.row.deleting,
                service: wire::service_to_json(&self.row, &self.row.status),
            };
            // A value of JSON has a text, always.
            serde_json::to_string(&shape).unwrap_or_default()
        })
    }
}

#[cfg(test)]
mod tests;
