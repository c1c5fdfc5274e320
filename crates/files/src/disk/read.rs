//! Reading one file: what stands in it, and when it has to be read again.

use std::fs::{self, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use landfall_model::reason::{Code, Origin, Reason};
use landfall_sys::files;

use crate::catalog::Finding;
use crate::manifest;

/// Larger files are refused. Ten thousand Services need about 4 MiB.
pub(super) const SIZE_LIMIT: u64 = 16 * 1024 * 1024;

/// File systems' time stamps step with the kernel's tick, 10 ms at most.
const STAMP_GRAIN: Duration = Duration::from_millis(20);

/// What a file's metadata say: as long as it stays the same, so does the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Print {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

// === impl Print ===

impl Print {
    /// Takes the print that metadata make.
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether the last change is further away than time stamps are coarse.
    pub(super) fn is_settled(&self) -> bool {
        let (seconds, nanoseconds) = self.changed;
        let Some(changed) = u64::try_from(seconds)
            .ok()
            .zip(u32::try_from(nanoseconds).ok())
            .map(|(seconds, nanoseconds)| UNIX_EPOCH + Duration::new(seconds, nanoseconds))
        else {
            return false;
        };
        SystemTime::now()
            .duration_since(changed)
            .is_ok_and(|age| age > STAMP_GRAIN)
    }
}

/// Reads a file, and takes its print from the very file that was read. A file that changes while it
/// is read gets no print, so that it is read again; nor does one that changed a moment ago, because
/// it could change once more without its time stamps showing it.
pub(super) fn read_file(path: &Path, name: &Arc<str>, expected: Print) -> (Finding, Option<Print>) {
    let unreadable = |error: &io::Error| {
        (
            Finding::Unreadable(io_reason(name, "can't be read", error)),
            None,
        )
    };
    // What has become a pipe by now is not waited for.
    let opened = fs::File::options()
        .read(true)
        .custom_flags(files::NO_WAIT)
        .open(path);
    let mut file = match opened {
        Ok(file) => file,
        Err(error) => return unreadable(&error),
    };
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return unreadable(&io::Error::other("it is not a file any more"));
    }
    let finding = read_all(&mut file, name);
    match file.metadata() {
        Ok(metadata) => {
            let print = Print::of(&metadata);
            (
                finding,
                (print == expected && print.is_settled()).then_some(print),
            )
        }
        Err(error) => unreadable(&error),
    }
}

pub(super) fn read_all(source: &mut dyn Read, name: &Arc<str>) -> Finding {
    let mut bytes = Vec::new();
    if let Err(error) = source.take(SIZE_LIMIT + 1).read_to_end(&mut bytes) {
        return Finding::Unreadable(io_reason(name, "can't be read", &error));
    }
    if bytes.len() as u64 > SIZE_LIMIT {
        let reason = Reason::error(Code::InvalidManifest, "the file is too large")
            .remedy(format!("stay below {} MiB", SIZE_LIMIT / 1024 / 1024));
        return Finding::Unreadable(reason.origin(Some(beginning(name))));
    }
    if bytes.trim_ascii().is_empty() {
        return Finding::Empty;
    }
    decode(name, &bytes)
}

/// What the bytes of a file say; never panics, whatever they are.
pub(crate) fn decode(name: &Arc<str>, bytes: &[u8]) -> Finding {
    match std::str::from_utf8(bytes) {
        Ok(text) => Finding::Read(manifest::read(name, text)),
        Err(error) => {
            let good = bytes.get(..error.valid_up_to()).unwrap_or_default();
            let line = good.split(|byte| *byte == b'\n').count();
            let origin = Origin {
                file: name.clone(),
                line: u32::try_from(line).unwrap_or(u32::MAX),
            };
            let reason = Reason::error(Code::InvalidManifest, "the file is not UTF-8 text");
            Finding::Unreadable(
                reason
                    .remedy("save it with the encoding UTF-8")
                    .origin(Some(origin)),
            )
        }
    }
}

pub(super) fn io_reason(name: &Arc<str>, what: &str, error: &io::Error) -> Reason {
    Reason::error(Code::InvalidManifest, format!("{what}: {error}")).origin(Some(beginning(name)))
}

pub(super) fn beginning(name: &Arc<str>) -> Origin {
    Origin {
        file: name.clone(),
        line: 1,
    }
}
