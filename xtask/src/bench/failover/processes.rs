//! Programs that end with what started them, network namespaces and commands of a shell.

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::bench::pause;

/// The longest that a start takes.
pub const START: Duration = Duration::from_secs(120);

/// A program that ends with this.
pub struct Process(Child);

/// Makes a network namespace with an interface `eth0` on the bridge. It ends with the process.
pub fn namespace(name: &str, mac: &str) -> anyhow::Result<Process> {
    let holder = Process::start(Command::new("unshare").args(["--net", "sleep", "infinity"]))?;
    let own = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).ok();
    let pid = holder.id().to_string();
    let began = Instant::now();
    while own(&pid) == own("self") {
        if began.elapsed() > START {
            bail!("a network namespace can't be made");
        }
        pause(Duration::from_millis(2));
    }
    // The pair of an earlier namespace ends some time after its last process.
    sh(&format!(
        "ip link delete {name} 2>/dev/null || true
         ip link add {name} type veth peer name eth0 netns {pid} address {mac}
         ip link set {name} master br0 up"
    ))?;
    Ok(holder)
}

/// Runs commands of a shell.
pub fn sh(script: &str) -> anyhow::Result<()> {
    let output = Command::new("sh").args(["-euc", script]).output()?;
    if !output.status.success() {
        bail!("{script}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// Waits until a program that starts has made a file; `log` says why it has not.
pub fn until_there(file: &Path, log: &Path) -> anyhow::Result<()> {
    let began = Instant::now();
    while !file.exists() {
        if began.elapsed() > START {
            let log = std::fs::read_to_string(log).unwrap_or_default();
            bail!("{} is not there: {log}", file.display());
        }
        pause(Duration::from_millis(2));
    }
    Ok(())
}

// === impl Process ===

impl Process {
    /// Takes one that was started.
    pub fn of(child: Child) -> Self {
        Self(child)
    }

    /// Starts it, silent.
    pub fn start(command: &mut Command) -> anyhow::Result<Self> {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn();
        Ok(Self(child.with_context(|| {
            format!("{} can't be started", command.get_program().display())
        })?))
    }

    /// Its number.
    pub fn id(&self) -> i32 {
        self.0.id().cast_signed()
    }

    /// Asks it to end, and does not wait for it.
    pub fn ask_to_end(&self) -> anyhow::Result<()> {
        Ok(kill_process(Pid::from_child(&self.0), Signal::TERM)?)
    }

    /// Waits until it has ended.
    pub fn wait(&mut self) -> anyhow::Result<()> {
        self.0.wait()?;
        Ok(())
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        Ok(self.0.try_wait()?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
