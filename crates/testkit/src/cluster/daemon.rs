//! Programs that can't outlive the test: each is watched by a small shell that holds the other end
//! of a pipe. However the test ends (return, panic, signal), the pipe closes, and the shell kills
//! exactly the program that it started.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{ClusterError, Program, Programs};

/// A running program. Dropping it kills it and waits until it is gone and its ports are free.
pub(super) struct Daemon {
    program: Program,
    shell: Mutex<Child>,
    log: PathBuf,
}

/// A directory for one cluster. Removed with its last holder, whatever the reason.
pub(super) struct Place {
    path: PathBuf,
    janitor: Child,
}

/// `$0` is a name for the process list; the program and its arguments are `$@`.
///
/// The watcher reads the pipe until it closes. Should the program end by itself, the shell reports
/// how, and takes the watcher along, so that no process id is killed that means another process by
/// then.
///
/// Signals that go to the whole group (Ctrl-C) must not end the watcher before its work.
const WATCH: &str = r#"
trap '' INT TERM HUP
exec 3<&0
"$@" </dev/null 3<&- &
program=$!
{ cat <&3 >/dev/null; kill -9 $program; } 2>/dev/null &
watcher=$!
exec 3<&-
wait $program
code=$?
kill -9 $watcher 2>/dev/null
exit $code
"#;

/// `$1` is the directory. A program that is just being killed may still add a file to it.
const SWEEP: &str = r#"
trap '' INT TERM HUP
cat >/dev/null
for attempt in 1 2 3 4 5 6 7 8 9 10; do
  rm -rf "$1" 2>/dev/null && exit 0
  sleep 0.2
done
exit 1
"#;

/// How much of a log is worth showing.
const LAST_WORDS: usize = 3000;

// === impl Daemon ===

impl Daemon {
    /// Starts a program; its output goes to a log beside its files.
    pub(super) fn start(
        place: &Path,
        programs: &Programs,
        program: Program,
        flags: &[String],
    ) -> Result<Self, ClusterError> {
        let name = program.name();
        let failed = |source| ClusterError::Io {
            what: format!("{name} can't be started"),
            source,
        };
        let log = place.join(format!("{name}.log"));
        let output = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .map_err(failed)?;
        let errors = output.try_clone().map_err(failed)?;
        let shell = Command::new("sh")
            .args(["-c", WATCH, "landfall-test-cluster"])
            .arg(programs.path(program))
            .args(flags)
            .current_dir(place)
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .map_err(failed)?;
        Ok(Self {
            program,
            shell: Mutex::new(shell),
            log,
        })
    }

    /// Fails, with the end of the log, if the program has ended.
    pub(super) fn still_runs(&self) -> Result<(), ClusterError> {
        let ended = self.shell.lock().map(|mut shell| shell.try_wait());
        match ended {
            Ok(Ok(None)) => Ok(()),
            _ => Err(self.not_ready("ended")),
        }
    }

    /// Sends the program itself a signal, by its name: `STOP`, `CONT`.
    pub(super) fn signal(&self, signal: &str) -> Result<(), ClusterError> {
        let name = self.program.name();
        let failed = |source| ClusterError::Io {
            what: format!("{name} can't be sent {signal}"),
            source,
        };
        let shell = self
            .shell
            .lock()
            .map(|shell| shell.id())
            .unwrap_or_default();
        let children = fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"));
        let children = children.map_err(failed)?;
        // Beside it there is the watcher, which is a shell.
        let is_program = |pid: &&str| {
            let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            !comm.is_empty() && name.starts_with(comm.trim_end())
        };
        let found = children.split_whitespace().find(is_program);
        let pid = found.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        let sent = Command::new("kill")
            .args([&format!("-{signal}"), pid])
            .status();
        if sent.map_err(failed)?.success() {
            Ok(())
        } else {
            Err(failed(io::ErrorKind::Other.into()))
        }
    }

    pub(super) fn not_ready(&self, what: &'static str) -> ClusterError {
        let log = fs::read(&self.log).unwrap_or_default();
        let tail = log
            .get(log.len().saturating_sub(LAST_WORDS)..)
            .unwrap_or_default();
        ClusterError::NotReady {
            program: self.program.name(),
            what,
            log: String::from_utf8_lossy(tail).into_owned(),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Ok(shell) = self.shell.get_mut() {
            end(shell);
        }
    }
}

/// Closes the pipe, which is the sign for the shell, and waits for it.
fn end(shell: &mut Child) {
    drop(shell.stdin.take());
    // A shell that can't be waited for is gone already.
    let _gone = shell.wait();
}

// === impl Place ===

impl Place {
    pub(super) fn make() -> Result<Self, ClusterError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let failed = |source| ClusterError::Io {
            what: "no place for a cluster".to_owned(),
            source,
        };
        let name = format!(
            "landfall-cluster-{}-{}",
            std::process::id(),
            NUMBER.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        // An earlier process with this number may have been killed along with its janitor.
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        fs::create_dir_all(&path).map_err(failed)?;
        let janitor = Command::new("sh")
            .args(["-c", SWEEP, "landfall-test-cluster"])
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .map_err(failed)?;
        Ok(Self { path, janitor })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        end(&mut self.janitor);
    }
}
