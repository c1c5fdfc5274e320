//! Writes the access log: a thread of its own takes lines from the queue, so that a full disk, a
//! closed pipe or a reader that hangs stops nothing but the log itself.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use landfall_config::access_log::{AccessLogConfig, AccessLogFormat};
use landfall_proxy::access_log::{AccessLog, Format, Sample};
use landfall_sys::files;

/// The path that stands for standard output.
const STDOUT: &str = "-";

/// Bytes that are written at once.
const BATCH: usize = 64 * 1024;

/// How often it is looked whether the file was moved away, and tried to open one that can't be.
const LOOK: Duration = Duration::from_secs(1);

/// How long a reader that takes nothing at the moment is left alone.
const PAUSE: Duration = Duration::from_millis(20);

/// `ENXIO`: the FIFO has no reader.
const NO_READER: i32 = 6;

/// Where lines go.
enum Target {
    Stdout,
    File(Log),
}

/// A file, opened again when another one stands in its place or none.
struct Log {
    path: PathBuf,
    open: Option<File>,
    /// The last line broke off.
    torn: bool,
    looked: Instant,
}

/// Starts the log that is asked for, if one is.
///
/// # Errors
/// The file can't be opened; one whose disk is full or whose reader is away can.
pub fn start(wanted: Option<AccessLogConfig>) -> anyhow::Result<Option<Arc<AccessLog>>> {
    let Some(wanted) = wanted else {
        return Ok(None);
    };
    let path = &wanted.file;
    let target = if path.as_os_str() == STDOUT {
        Target::Stdout
    } else {
        let failed = || format!("the access log {}", path.display());
        Target::File(Log::open(path).with_context(failed)?)
    };
    let sample = Sample::share(wanted.sample.into());
    let (log, lines) = AccessLog::new(format(wanted.format), sample, wanted.query);
    let log = Arc::new(log);
    let counts = log.clone();
    // It ends with the process, or with the data plane: a write that hangs can't be ended.
    std::thread::Builder::new()
        .name("access-log".to_owned())
        .spawn(move || write(&lines, target, &counts))
        .context("starting the access log")?;
    Ok(Some(log))
}

fn format(wanted: AccessLogFormat) -> Format {
    match wanted {
        AccessLogFormat::Json => Format::Json,
        AccessLogFormat::Common => Format::Common,
        AccessLogFormat::Combined => Format::Combined,
    }
}

/// Writes lines until there can be no more. What can't be written is counted.
fn write(lines: &Receiver<Vec<u8>>, mut target: Target, log: &AccessLog) {
    let mut batch = Vec::new();
    while let Ok(line) = lines.recv() {
        batch.clear();
        batch.extend_from_slice(&line);
        let mut count = 1;
        while batch.len() < BATCH
            && let Ok(line) = lines.try_recv()
        {
            batch.extend_from_slice(&line);
            count += 1;
        }
        let written = match &mut target {
            Target::Stdout => {
                let mut stdout = io::stdout().lock();
                match write_all(&mut stdout, &batch) {
                    Ok(()) => stdout.flush().map_err(|_| count),
                    Err(at) => Err(lost(&batch, at)),
                }
            }
            Target::File(file) => file.write(&batch).map_err(|at| lost(&batch, at)),
        };
        if let Err(lines) = written {
            log.lose(lines);
        }
    }
}

/// Writes everything, or returns how much was written.
fn write_all(sink: &mut impl Write, bytes: &[u8]) -> Result<(), usize> {
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        match sink.write(rest) {
            Ok(0) => return Err(at),
            Ok(count) => at += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                std::thread::park_timeout(PAUSE);
            }
            Err(_) => return Err(at),
        }
    }
    Ok(())
}

/// How many lines end behind this place.
fn lost(batch: &[u8], at: usize) -> u64 {
    let rest = batch.get(at..).unwrap_or_default();
    rest.split_inclusive(|&byte| byte == b'\n').count() as u64
}

// === impl Log ===

impl Log {
    fn open(path: &Path) -> io::Result<Self> {
        let open = match Self::file(path) {
            Err(error) if is_for_a_while(&error) => None,
            opened => Some(opened?),
        };
        Ok(Self {
            path: path.to_owned(),
            open,
            torn: false,
            looked: Instant::now(),
        })
    }

    fn file(path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        // Clients' addresses are for the group at most.
        options
            .append(true)
            .create(true)
            .mode(0o640)
            .custom_flags(files::NO_WAIT);
        options.open(path)
    }

    fn write(&mut self, batch: &[u8]) -> Result<(), usize> {
        let now = Instant::now();
        if now.duration_since(self.looked) >= LOOK {
            self.looked = now;
            if self.open.as_ref().is_none_or(|file| self.was_moved(file)) {
                self.open = Self::file(&self.path).ok();
                self.torn = false;
            }
        }
        let Some(file) = &mut self.open else {
            return Err(0);
        };
        if self.torn {
            write_all(file, b"\n").map_err(|_| 0_usize)?;
            self.torn = false;
        }
        let written = write_all(file, batch);
        if let Err(at) = written {
            // What broke off must not become part of the next line.
            self.torn = batch
                .get(..at)
                .is_some_and(|it| !it.is_empty() && !it.ends_with(b"\n"));
            if file.metadata().is_ok_and(|it| it.file_type().is_fifo()) {
                // Its reader is gone; there may be another one.
                self.open = None;
            }
        }
        written
    }

    /// Whether the path names another file by now, or none: its log was rotated.
    fn was_moved(&self, file: &File) -> bool {
        let (Ok(open), there) = (file.metadata(), std::fs::metadata(&self.path)) else {
            return true;
        };
        there.map_or(true, |there| {
            (there.dev(), there.ino()) != (open.dev(), open.ino())
        })
    }
}

/// Whether opening may succeed later, by what others do.
fn is_for_a_while(error: &io::Error) -> bool {
    error.raw_os_error() == Some(NO_READER) || error.kind() == io::ErrorKind::StorageFull
}

#[cfg(test)]
mod tests {
    use landfall_config::access_log::Share;

    use super::*;
    use crate::cli::AccessLogArgs;

    #[test]
    fn a_file_that_was_moved_away_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let mut log = Log::open(&path).unwrap();
        log.write(b"one\n").unwrap();
        std::fs::rename(&path, folder.path().join("access.log.1")).unwrap();
        log.looked = Instant::now().checked_sub(LOOK).unwrap();
        log.write(b"two\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two\n");
        let before = std::fs::read(folder.path().join("access.log.1")).unwrap();
        assert_eq!(before, b"one\n");
    }

    #[test]
    fn a_line_that_broke_off_does_not_spoil_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let mut log = Log::open(&path).unwrap();
        log.write(b"bro").unwrap();
        log.torn = true;
        log.write(b"whole\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"bro\nwhole\n");
    }

    #[test]
    fn lines_that_a_full_disk_does_not_take_are_counted() {
        let mut log = Log::open(Path::new("/dev/full")).unwrap();
        assert_eq!(log.write(b"one\ntwo\n"), Err(0));
        assert_eq!(lost(b"one\ntwo\n", 0), 2);
        assert_eq!(lost(b"one\ntwo\n", 5), 1);
    }

    fn configured(file: &str) -> AccessLogConfig {
        AccessLogConfig {
            file: file.into(),
            format: AccessLogFormat::Common,
            sample: Share::try_from(0.5).unwrap(),
            query: true,
        }
    }

    #[test]
    fn a_missing_folder_is_reported_at_the_start() {
        let error = start(Some(configured("/nowhere/access.log"))).unwrap_err();
        let error = format!("{error:#}");
        assert!(
            error.starts_with("the access log /nowhere/access.log: "),
            "{error}"
        );
    }

    #[test]
    fn where_none_is_asked_for_there_is_no_log() {
        let wanted = AccessLogArgs::default().over(None);
        assert!(start(wanted).unwrap().is_none());
    }

    #[test]
    fn the_command_line_goes_before_the_configuration_option_by_option() {
        let file = configured("/var/log/access.log");
        let none = AccessLogArgs::default();
        assert_eq!(none.over(Some(&file)), Some(file.clone()));
        let sample = AccessLogArgs {
            sample: Some(Share::default()),
            ..AccessLogArgs::default()
        };
        assert_eq!(sample.over(None), None);
        let all = AccessLogConfig {
            sample: Share::default(),
            ..file.clone()
        };
        assert_eq!(sample.over(Some(&file)), Some(all));
        let stdout = AccessLogArgs {
            file: Some("-".into()),
            ..AccessLogArgs::default()
        };
        assert_eq!(stdout.over(Some(&file)), Some(configured("-")));
        let json = stdout.over(None).unwrap();
        assert_eq!((json.format, json.query), (AccessLogFormat::Json, false));
    }
}
