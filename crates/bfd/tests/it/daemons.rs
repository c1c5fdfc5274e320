//! FRR's bfdd and BIRD on a host, each with a configuration and sockets in a folder of their own.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

use crate::lab::{Host, Program, until};

/// Where Debian has FRR's daemons.
const FRR: &str = "/usr/lib/frr";

/// FRR: zebra, which knows the interfaces, and bfdd.
pub struct Frr {
    folder: TempDir,
    _programs: [Program; 2],
}

/// BIRD.
pub struct Bird {
    folder: TempDir,
    _program: Program,
}

// === impl Frr ===

impl Frr {
    /// Starts it with a configuration of bfdd.
    pub async fn start(host: &Host, configuration: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap().to_owned();
        fs::write(folder.path().join("zebra.conf"), "").unwrap();
        fs::write(folder.path().join("bfdd.conf"), configuration).unwrap();
        // It drops the rights of root before it opens its files.
        let chown = Command::new("chown")
            .args(["-R", "frr:frr", &path])
            .status();
        assert!(chown.unwrap().success());
        let start = |daemon: &str, more: &[&str]| {
            let program = format!("{FRR}/{daemon}");
            let found = fs::exists(&program).unwrap();
            assert!(
                found,
                "{program} is missing: `cargo xtask install` installs it"
            );
            let (conf, pid) = (
                format!("{path}/{daemon}.conf"),
                format!("{path}/{daemon}.pid"),
            );
            let zebra = format!("{path}/zserv");
            let common = [
                "-f",
                &conf,
                "-i",
                &pid,
                "-z",
                &zebra,
                "--vty_socket",
                &path,
                "-P",
                "0",
                "-u",
                "frr",
                "-g",
                "frr",
                "--log",
                "stdout",
            ];
            host.start(&program, &[&common[..], more].concat())
        };
        let zebra = start("zebra", &[]);
        let socket = folder.path().join("zserv");
        until("zebra starts", || fs::exists(&socket).unwrap()).await;
        let control = format!("{path}/bfdd.sock");
        let bfdd = start("bfdd", &["--bfdctl", &control]);
        let vty = folder.path().join("bfdd.vty");
        until("bfdd starts", || fs::exists(&vty).unwrap()).await;
        Self {
            folder,
            _programs: [zebra, bfdd],
        }
    }

    /// What it prints for a command.
    pub fn show(&self, command: &str) -> String {
        let folder = self.folder.path().to_str().unwrap();
        let shown = Command::new("vtysh")
            .args(["--vty_socket", folder, "-d", "bfdd", "-c", command])
            .output()
            .unwrap();
        String::from_utf8_lossy(&shown.stdout).into_owned()
    }

    /// Waits until its sessions contain a text.
    pub async fn shows(&self, text: &str) {
        until(
            &format!("FRR shows {text}: {}", self.show("show bfd peers")),
            || self.show("show bfd peers").contains(text),
        )
        .await;
    }
}

// === impl Bird ===

impl Bird {
    /// Starts it with a configuration.
    pub async fn start(host: &Host, configuration: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let text = format!("router id 10.0.0.2;\nprotocol device {{}}\n{configuration}");
        fs::write(folder.path().join("bird.conf"), text).unwrap();
        let (conf, control) = (path("bird.conf"), path("bird.ctl"));
        let program = host.start("bird", &["-f", "-c", &conf, "-s", &control]);
        until("BIRD starts", || fs::exists(&control).unwrap()).await;
        Self {
            folder,
            _program: program,
        }
    }

    /// What it prints for its sessions.
    pub fn sessions(&self) -> String {
        let control = self.folder.path().join("bird.ctl");
        let shown = Command::new("birdc")
            .arg("-s")
            .arg(control)
            .args(["show", "bfd", "sessions"])
            .output()
            .unwrap();
        String::from_utf8_lossy(&shown.stdout).into_owned()
    }

    /// Waits until its sessions contain a text.
    pub async fn shows(&self, text: &str) {
        until(&format!("BIRD shows {text}: {}", self.sessions()), || {
            self.sessions().contains(text)
        })
        .await;
    }
}
