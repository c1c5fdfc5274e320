//! A node: a network namespace on the bridge, and the speaker in it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use super::contestant::Contestant;
use super::frr::Frr;
use super::layout::{ADDRESSES, CLIENTS, ROUTER, address, node_address};
use super::processes::{Process, namespace, sh};

/// Lines of each log that are printed.
const LINES: usize = 8;

/// Characters of each line: MetalLB's speaker has a stack trace in most of them.
const COLUMNS: usize = 200;

/// A namespace, and what runs in it.
pub struct Node {
    number: u8,
    holder: Process,
    speaker: Option<Process>,
    /// Beside MetalLB's speaker in FRR mode.
    frr: Option<Frr>,
}

/// Returns the file in which a speaker says what it does.
pub fn log(files: &Path, number: u8) -> PathBuf {
    files.join(format!("speaker-{number}.log"))
}

/// Returns the last lines of what a speaker, FRR beside it and its reloader said.
pub fn said(files: &Path, number: u8) -> String {
    let frr = folder_of_frr(files, number);
    let logs = [
        log(files, number),
        frr.join("frr.log"),
        frr.join("reloader.log"),
        frr.join("etc/frr.log"),
    ];
    let mut said = String::new();
    for log in logs {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        for line in lines.iter().skip(lines.len().saturating_sub(LINES)) {
            said.push_str("\n  ");
            said.extend(line.chars().take(COLUMNS));
        }
    }
    said
}

fn folder_of_frr(files: &Path, number: u8) -> PathBuf {
    files.join(format!("frr-{number}"))
}

// === impl Node ===

impl Node {
    /// Makes the namespace, with all addresses that are announced.
    pub fn start(number: u8) -> anyhow::Result<Self> {
        let holder = namespace(
            &format!("node-{number}"),
            &format!("02:00:00:00:00:{number:02x}"),
        )?;
        let pid = holder.id();
        let mut script = format!(
            "ip link set lo up
             sysctl -qw net.ipv4.conf.all.arp_ignore=1
             ip address add {}/16 dev eth0
             ip link set eth0 up
             ip route add {CLIENTS} via {ROUTER}\n",
            node_address(number)
        );
        for number in 0..ADDRESSES {
            writeln!(script, "ip address add {}/32 dev lo", address(number))?;
        }
        sh(&format!(
            "nsenter --net=/proc/{pid}/ns/net sh -euc '{script}'"
        ))?;
        Ok(Self {
            number,
            holder,
            speaker: None,
            frr: None,
        })
    }

    /// Starts a speaker, with FRR beside it if it needs that and none runs.
    pub fn speak(&mut self, contestant: &Contestant, files: &Path) -> anyhow::Result<()> {
        let inside = format!("--net=/proc/{}/ns/net", self.holder.id());
        if contestant.has_frr() && self.frr.is_none() {
            let folder = folder_of_frr(files, self.number);
            self.frr = Some(Frr::start(&inside, folder)?);
        }
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(log(files, self.number))?;
        let mut command = Command::new("nsenter");
        command
            .arg(inside)
            .args(contestant.line(self.number, files))
            .env("KUBECONFIG", files.join("nodes.kubeconfig"))
            .envs(self.frr.iter().flat_map(Frr::environment))
            .current_dir(files)
            .stderr(log);
        self.speaker = Some(Process::start(&mut command)?);
        Ok(())
    }

    /// Ends the speaker and what is beside it, as a crash ends them.
    pub fn kill(&mut self) {
        self.kill_speaker();
        self.frr = None;
    }

    /// Ends the speaker alone.
    pub fn kill_speaker(&mut self) {
        self.speaker = None;
    }

    /// Asks the speaker and what is beside it to end, and waits until they have.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        let speaker = self.speaker.take();
        let mut speaker = speaker.context("no speaker runs there")?;
        speaker.ask_to_end()?;
        if let Some(frr) = self.frr.take() {
            frr.stop()?;
        }
        speaker.wait()
    }

    /// Starts the speaker again if it ended by itself.
    pub fn revive(&mut self, contestant: &Contestant, files: &Path) -> anyhow::Result<()> {
        let Some(speaker) = &mut self.speaker else {
            return Ok(());
        };
        if let Some(status) = speaker.ended()? {
            eprintln!("the speaker of node {} ended: {status}", self.number);
            self.speak(contestant, files)?;
        }
        Ok(())
    }

    /// Its number.
    pub fn number(&self) -> u8 {
        self.number
    }

    /// The process that keeps its namespace.
    pub fn id(&self) -> i32 {
        self.holder.id()
    }

    /// The process of its speaker: `nsenter` becomes what it starts.
    pub fn speaker(&self) -> Option<i32> {
        self.speaker.as_ref().map(Process::id)
    }
}
