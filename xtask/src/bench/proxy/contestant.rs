//! The proxies that take part: how each is started, found ready and ended.

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use super::configs::{self, Passing};
use super::load::{self, Talk};
use super::machine::Machine;
use super::process;
use super::sizes::Sizes;
use super::work::{Addresses, Work};
use crate::debian;

/// A proxy, in one configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Contestant {
    /// Landfall, as it is shipped
    Landfall,
    /// HAProxy as it comes
    Haproxy,
    /// HAProxy with buffers of 64 KiB
    #[value(name = "haproxy-64k")]
    #[serde(rename = "haproxy-64k")]
    Haproxy64k,
    /// HAProxy with splice in both directions
    HaproxySplice,
    /// HAProxy with splice, and pipes of 1 MiB
    #[value(name = "haproxy-splice-1m")]
    #[serde(rename = "haproxy-splice-1m")]
    HaproxySplice1m,
    /// nginx as it comes
    Nginx,
    /// nginx with buffers of 64 KiB
    #[value(name = "nginx-64k")]
    #[serde(rename = "nginx-64k")]
    Nginx64k,
    /// A minimal proxy on hyper, for HTTP only
    Hyper,
}

/// How long a proxy may take to answer its first request.
const START: Duration = Duration::from_secs(30);
/// How long a proxy may take to end after it was asked to.
const STOP: Duration = Duration::from_secs(5);

/// Where the programs are, and which they are.
#[derive(Clone, Debug)]
pub struct Programs {
    landfall: PathBuf,
    haproxy: PathBuf,
    nginx: PathBuf,
    /// What each says of itself.
    pub versions: Vec<String>,
}

/// A proxy that runs. Ended when dropped.
pub struct Instance {
    pub contestant: Contestant,
    pub addresses: Addresses,
    child: Child,
    /// Every process of it.
    pids: Vec<i32>,
    /// The process that carries traffic.
    worker: i32,
    log: PathBuf,
}

// === impl Contestant ===

impl Contestant {
    pub const ALL: [Self; 8] = [
        Self::Landfall,
        Self::Haproxy,
        Self::Haproxy64k,
        Self::HaproxySplice,
        Self::HaproxySplice1m,
        Self::Nginx,
        Self::Nginx64k,
        Self::Hyper,
    ];

    pub fn key(self) -> &'static str {
        match self {
            Self::Landfall => "landfall",
            Self::Haproxy => "haproxy",
            Self::Haproxy64k => "haproxy-64k",
            Self::HaproxySplice => "haproxy-splice",
            Self::HaproxySplice1m => "haproxy-splice-1m",
            Self::Nginx => "nginx",
            Self::Nginx64k => "nginx-64k",
            Self::Hyper => "hyper",
        }
    }

    /// Whether it differs from the configuration as it comes only in how bulk is passed on.
    pub fn is_for_bulk(self) -> bool {
        matches!(
            self,
            Self::Haproxy64k | Self::HaproxySplice | Self::HaproxySplice1m | Self::Nginx64k
        )
    }

    /// Returns whether it serves this.
    pub fn serves(self, work: Work) -> bool {
        self != Self::Hyper || work == Work::Http
    }

    pub fn addresses(self) -> Addresses {
        Addresses(match self {
            Self::Landfall => 1,
            Self::Haproxy => 2,
            Self::Haproxy64k => 3,
            Self::HaproxySplice => 4,
            Self::HaproxySplice1m => 5,
            Self::Nginx => 6,
            Self::Nginx64k => 7,
            Self::Hyper => 8,
        })
    }

    /// Starts it, and waits until it passes on what it is sent at every port.
    pub async fn start(
        self,
        programs: &Programs,
        machine: &Machine,
        folder: &Path,
        sizes: &Sizes,
    ) -> anyhow::Result<Instance> {
        fs::create_dir_all(folder)?;
        // nginx reads paths relative to a prefix of its own.
        let folder = folder.canonicalize()?;
        let log = folder.join("log");
        let mut command = self.command(programs, &folder, sizes)?;
        command
            .stdin(Stdio::null())
            .stdout(File::create(&log)?)
            .stderr(File::options().append(true).open(&log)?);
        let child = machine
            .on_proxy_cpu(|| Ok(command.spawn()?))
            .with_context(|| format!("{self} can't be started"))?;
        let id = child.id().cast_signed();
        let mut instance = Instance {
            contestant: self,
            addresses: self.addresses(),
            child,
            pids: vec![id],
            worker: id,
            log,
        };
        instance.wait_until_ready(sizes).await?;
        Ok(instance)
    }

    fn command(self, programs: &Programs, folder: &Path, sizes: &Sizes) -> anyhow::Result<Command> {
        let addresses = self.addresses();
        let write = |name: &str, text: String| -> anyhow::Result<PathBuf> {
            let file = folder.join(name);
            fs::write(&file, text)?;
            Ok(file)
        };
        let haproxy = |passing| -> anyhow::Result<Command> {
            let config = configs::haproxy(addresses, sizes, passing)?;
            let mut command = Command::new(&programs.haproxy);
            // -db: one process, in the foreground.
            command
                .arg("-db")
                .arg("-f")
                .arg(write("haproxy.cfg", config)?);
            Ok(command)
        };
        let nginx = |buffer| -> anyhow::Result<Command> {
            let config = configs::nginx(addresses, sizes, buffer, folder)?;
            let mut command = Command::new(&programs.nginx);
            command.arg("-e").arg("stderr").arg("-p").arg(folder);
            command.arg("-c").arg(write("nginx.conf", config)?);
            Ok(command)
        };
        match self {
            Self::Haproxy => haproxy(Passing::AsItComes),
            Self::Haproxy64k => haproxy(Passing::Buffers(65_536)),
            Self::HaproxySplice => haproxy(Passing::Splice),
            Self::HaproxySplice1m => haproxy(Passing::SpliceThrough(1 << 20)),
            Self::Nginx => nginx(None),
            Self::Nginx64k => nginx(Some("64k")),
            Self::Hyper => {
                let members: Vec<_> = addresses
                    .members(Work::Http)
                    .map(|member| member.to_string())
                    .collect();
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["bench", "hyper", "--listen"]);
                command.arg(addresses.listener(Work::Http).to_string());
                command.args(["--members", &members.join(",")]);
                Ok(command)
            }
            Self::Landfall => {
                let state = folder.join("state");
                let mut command = Command::new(&programs.landfall);
                command
                    .arg("up")
                    .arg("-f")
                    .arg(write("bench.yaml", configs::landfall(addresses, sizes)?)?);
                command
                    .arg("--pool")
                    .arg(format!("{}/32", addresses.proxy()));
                command
                    .arg("--state")
                    .arg(state)
                    .arg("--admin")
                    .arg(addresses.admin().to_string());
                command.args(["--workers", "1", "--grace", "0"]);
                Ok(command)
            }
        }
    }
}

impl fmt::Display for Contestant {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.key())
    }
}

// === impl Programs ===

impl Programs {
    /// No programs: for reports of what was not measured.
    #[cfg(test)]
    pub fn none() -> Self {
        Self {
            landfall: PathBuf::new(),
            haproxy: PathBuf::new(),
            nginx: PathBuf::new(),
            versions: Vec::new(),
        }
    }

    /// Finds the programs that these contestants need.
    pub fn find(landfall: PathBuf, contestants: &[Contestant]) -> anyhow::Result<Self> {
        let peer = |name: &str| debian::find(name).with_context(|| format!("{name} is missing"));
        let mut versions = Vec::new();
        let mut say = |line: anyhow::Result<String>| line.map(|line| versions.push(line));
        if contestants.contains(&Contestant::Landfall) {
            if !landfall.is_file() {
                bail!("{} is missing: cargo build --release", landfall.display());
            }
            say(version(&landfall, "--version"))?;
        }
        let (haproxy, nginx) = (peer("haproxy")?, peer("nginx")?);
        say(version(&haproxy, "-v"))?;
        say(version(&nginx, "-v"))?;
        Ok(Self {
            landfall,
            haproxy,
            nginx,
            versions,
        })
    }
}

fn version(program: &Path, option: &str) -> anyhow::Result<String> {
    let output = Command::new(program)
        .arg(option)
        .output()
        .with_context(|| format!("{} can't be started", program.display()))?;
    // nginx prints its version as if it were an error.
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    Ok(text.lines().next().unwrap_or("unknown").to_owned())
}

// === impl Instance ===

impl Instance {
    /// CPU time that it has used so far, in seconds.
    pub fn cpu_seconds(&self) -> anyhow::Result<f64> {
        process::cpu_seconds(&self.pids)
    }

    /// Memory of the process that carries traffic, in bytes. nginx's other process only waits.
    pub fn resident(&self) -> anyhow::Result<f64> {
        process::resident(&[self.worker])
    }

    /// Asks it to end, and waits until it has.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        signal(self.child.id().cast_signed(), Signal::TERM);
        let asked = Instant::now();
        while asked.elapsed() < STOP {
            if self.child.try_wait()?.is_some() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        eprintln!(
            "warning: {} did not end when asked, so it was killed",
            self.contestant
        );
        Ok(())
    }

    async fn wait_until_ready(&mut self, sizes: &Sizes) -> anyhow::Result<()> {
        let begun = Instant::now();
        let contestant = self.contestant;
        for work in sizes.works().filter(|work| contestant.serves(*work)) {
            let target = self.addresses.listener(work);
            while let Err(error) = load::once(target, Talk::about(work)).await {
                if let Some(status) = self.child.try_wait()? {
                    bail!(
                        "{} ended with {status} at start\n{}",
                        self.contestant,
                        self.last_words()
                    );
                }
                if begun.elapsed() > START {
                    let words = self.last_words();
                    return Err(error.context(format!(
                        "{} did not answer at {target} within {} s\n{words}",
                        self.contestant,
                        START.as_secs()
                    )));
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        let children = process::children(self.worker);
        if let Some(&worker) = children.first() {
            self.worker = worker;
            self.pids.extend(children);
        }
        Ok(())
    }

    /// The end of its log.
    pub fn last_words(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        let last = lines
            .get(lines.len().saturating_sub(12)..)
            .unwrap_or_default();
        format!(
            "the last words of {}:\n{}",
            self.contestant,
            last.join("\n")
        )
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // Only while our child is not reaped are these numbers surely still its own.
        if let Ok(None) = self.child.try_wait() {
            for &pid in &self.pids {
                signal(pid, Signal::KILL);
            }
            let _ = self.child.wait();
        }
    }
}

fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        // An error means that it has ended already.
        let _ = kill_process(pid, signal);
    }
}
