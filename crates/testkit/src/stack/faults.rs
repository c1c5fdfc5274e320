//! Faults that no API can cause: slow and failing amphorae, a worker that hangs.
//!
//! Each lasts as long as its guard. A small shell holds the other end of a pipe: however the test
//! ends (return, panic, signal), the pipe closes, and the shell takes the fault back.

use std::io::{self, BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::{fs, time::Duration};

use super::StackError;

/// A fault in force. It ends when this is dropped.
#[must_use = "the fault ends when this is dropped"]
pub struct Fault {
    shell: Child,
}

/// `$1` is the file of a switch, `$2` what it holds.
const SWITCH: &str = r#"
trap '' INT TERM HUP
{ printf %s "$2" >"$1.part" && mv "$1.part" "$1"; } || exit 1
echo done
cat >/dev/null
rm -f "$1"
"#;

/// `$1` is a process group.
const PAUSE: &str = r#"
trap '' INT TERM HUP
kill -s STOP -- "-$1" || exit 1
echo done
cat >/dev/null
kill -s CONT -- "-$1"
"#;

// === impl Fault ===

impl Fault {
    pub(super) fn delay(
        place: &Path,
        project: Option<&str>,
        each_call: Duration,
    ) -> Result<Self, StackError> {
        let seconds = each_call.as_secs_f64().to_string();
        Self::switch(place, "amphora-delay", project, &seconds)
    }

    pub(super) fn fail(
        place: &Path,
        project: Option<&str>,
        calls: &[&str],
    ) -> Result<Self, StackError> {
        Self::switch(place, "amphora-fail", project, &calls.join(" "))
    }

    /// Stops a program of the stack with all its processes, as it is.
    pub(super) fn pause(place: &Path, program: &str) -> Result<Self, StackError> {
        let group = process_of(place, program).map_err(|source| StackError::Io {
            what: format!("{program} of {} can't be found", place.display()),
            source,
        })?;
        Self::hold(PAUSE, &[&group])
    }

    fn switch(
        place: &Path,
        name: &str,
        project: Option<&str>,
        content: &str,
    ) -> Result<Self, StackError> {
        let file = match project {
            Some(project) => format!("run/{name}.{project}"),
            None => format!("run/{name}"),
        };
        let file = place.join(file).display().to_string();
        Self::hold(SWITCH, &[&file, content])
    }

    fn hold(script: &str, arguments: &[&str]) -> Result<Self, StackError> {
        let failed = |source| StackError::Io {
            what: "a fault can't be put in force".to_owned(),
            source,
        };
        let mut shell = Command::new("sh")
            .args(["-c", script, "landfall-test-fault"])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let output = shell.stdout.take();
        let fault = Self { shell };
        let mut line = String::new();
        if let Some(output) = output {
            BufReader::new(output)
                .read_line(&mut line)
                .map_err(failed)?;
        }
        if line.trim() == "done" {
            Ok(fault)
        } else {
            Err(failed(io::Error::other("its shell failed; see above")))
        }
    }
}

impl Drop for Fault {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        // A shell that can't be waited for is gone already.
        let _gone = self.shell.wait();
    }
}

/// The process id that was recorded, if it still means the same program.
fn process_of(place: &Path, program: &str) -> io::Result<String> {
    let record = fs::read_to_string(place.join(format!("run/{program}.pid")))?;
    let mut words = record.split_whitespace();
    let gone = || io::Error::other("it isn't running");
    let id = words.next().ok_or_else(gone)?;
    let stat = fs::read_to_string(format!("/proc/{id}/stat"))?;
    // The title stands in brackets and may hold blanks. The start time is the 20th field behind it.
    let started = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.split(' ').nth(19));
    match (words.next(), started) {
        (Some(recorded), Some(started)) if recorded != started => Err(gone()),
        (_, None) => Err(gone()),
        _ => Ok(id.to_owned()),
    }
}
