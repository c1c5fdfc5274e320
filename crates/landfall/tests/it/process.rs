//! Programs: started, listened to, ended.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};

use crate::lab::DEADLINE;

/// A started program.
#[derive(Debug)]
pub struct Running {
    pub child: Child,
    pub admin: Option<SocketAddr>,
    pub stdout: Captured,
    pub stderr: Captured,
}

/// What a program has written so far.
#[derive(Debug)]
pub struct Captured {
    text: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

/// How a command ended.
#[derive(Clone, Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

// === impl Running ===

impl Running {
    pub fn of(mut child: Child) -> Self {
        let stdout = Captured::of(child.stdout.take());
        let stderr = Captured::of(child.stderr.take());
        Self {
            child,
            admin: None,
            stdout,
            stderr,
        }
    }

    /// Where its admin endpoint answers, once it has said so.
    pub fn announced(&self) -> Option<SocketAddr> {
        let text = self.stdout.text();
        let (_, rest) = text.split_once("status page  http://")?;
        let (address, _) = rest.split_once('/')?;
        Some(address.parse().unwrap())
    }
}

// === impl Captured ===

impl Captured {
    /// Reads on a thread that ends with the program; nothing, where the test has taken the pipe.
    fn of(pipe: Option<impl Read + Send + 'static>) -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let into = text.clone();
        let reader = std::thread::spawn(move || {
            let Some(pipe) = pipe else { return };
            let mut pipe = BufReader::new(pipe);
            let mut line = String::new();
            while pipe.read_line(&mut line).is_ok_and(|length| length > 0) {
                into.lock().unwrap().push_str(&line);
                line.clear();
            }
        });
        Self { text, reader }
    }

    /// What was written so far.
    pub fn text(&self) -> String {
        self.text.lock().unwrap().clone()
    }

    /// Everything, once the program has ended.
    pub fn whole(self) -> String {
        self.reader.join().unwrap();
        let text = self.text.lock().unwrap();
        text.clone()
    }
}

// === impl Ended ===

impl Ended {
    /// The exit code; a signal is none.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Asserts that it succeeded, and hands over what it printed.
    pub fn good(self) -> String {
        assert_eq!(self.code(), Some(0), "{}{}", self.stdout, self.stderr);
        self.stdout
    }
}

/// The binary with these arguments, knowing nothing of the world around the test.
pub fn program(home: &Path, arguments: &[&str]) -> std::process::Command {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_landfall"));
    command
        .args(arguments)
        .current_dir(home)
        .env_clear()
        .env("HOME", home)
        .env("RUST_BACKTRACE", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs a program to its end.
pub async fn run(command: std::process::Command, stdin: &str) -> Ended {
    use tokio::io::AsyncWriteExt as _;
    let mut command = tokio::process::Command::from(command);
    let mut child = command
        .stdin(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let feed = async move {
        // A program that does not read its input may be gone before it was given.
        let _ = pipe.write_all(stdin.as_bytes()).await;
    };
    let both = async { tokio::join!(feed, child.wait_with_output()).1 };
    let output = tokio::time::timeout(DEADLINE * 2, both)
        .await
        .expect("the command ends")
        .unwrap();
    Ended {
        status: output.status,
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs a program at a terminal at which `keys` are typed. What it prints goes elsewhere, as
/// through a pipe.
pub async fn typed(mut command: std::process::Command, keys: &str) -> Ended {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
    let terminal = openpt(flags).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    command.stdin(ioctl_tiocgptpeer(&terminal, flags).unwrap());
    let ended = tokio::process::Command::from(command)
        .kill_on_drop(true)
        .output();
    // The terminal keeps what is typed until it is read.
    let mut terminal = File::from(terminal);
    terminal.write_all(keys.as_bytes()).unwrap();
    let output = tokio::time::timeout(DEADLINE * 2, ended).await;
    let output = output.expect("the command ends").unwrap();
    Ended {
        status: output.status,
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}
