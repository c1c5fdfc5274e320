//! One process per state directory.

use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Read as _, Seek as _, Write as _};
use std::path::Path;
use std::time::Duration;

use super::{StateError, folder, io_error};

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// So many pauses in all: a process that was killed lets go once its memory is given back.
const PAUSES: u32 = 100;

/// Called between two attempts with their number; says whether there is to be another one.
pub(super) type Wait<'a> = &'a mut dyn FnMut(u32) -> bool;

#[expect(
    clippy::disallowed_methods,
    reason = "locks do not notify when they become free, and nothing else runs yet"
)]
/// Waits for the next attempt, five seconds in all.
pub(super) fn wait(attempt: u32) -> bool {
    if attempt < PAUSES {
        std::thread::sleep(PAUSE);
    }
    attempt < PAUSES
}

/// Takes hold of a directory by a lock on the file `name` in it.
pub(super) fn take(directory: &Path, name: &str, wait: Wait<'_>) -> Result<File, StateError> {
    let path = directory.join(name);
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    let opened = match folder::open(&path, &mut options) {
        // A lock needs no writing, and what is on record is served all the same.
        Err(error) if error.kind() == ErrorKind::ReadOnlyFilesystem => {
            folder::open(&path, File::options().read(true))
        }
        opened => opened,
    };
    let mut file = opened.map_err(io_error(&path, "can't be opened"))?;
    let mut attempt = 0;
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(source)) => {
                return Err(io_error(&path, "can't be locked")(source));
            }
        }
        let holder = Holder::of(&mut file);
        if !wait(attempt) {
            return Err(StateError::InUse {
                folder: directory.to_owned(),
                holder: holder.to_string(),
            });
        }
        if attempt == 0 {
            tracing::info!(
                state = %directory.display(),
                "the state directory is in use by {holder}; waiting for it to end"
            );
        }
        attempt += 1;
    }
    // Only for the message above: a failure costs no more than a name.
    let _ = file.set_len(0);
    let _ = file.rewind();
    let _ = writeln!(file, "{}", std::process::id());
    Ok(file)
}

/// The holder of a lock, by what it wrote into the file.
struct Holder(Option<u32>);

// === impl Holder ===

impl Holder {
    fn of(file: &mut File) -> Self {
        let mut text = String::new();
        let read = file.rewind().and_then(|()| file.read_to_string(&mut text));
        Self(read.ok().and_then(|_| text.trim().parse().ok()))
    }
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Some(number) = self.0 else {
            return f.write_str("another process");
        };
        match fs::read_to_string(format!("/proc/{number}/comm")) {
            Ok(name) => write!(f, "process {number} ({})", name.trim()),
            Err(_) => write!(f, "process {number}"),
        }
    }
}
