//! FRR on a node, as MetalLB's FRR mode has it in the pod of each speaker: zebra, bfdd and bgpd,
//! and a reloader that gives them the configuration that the speaker writes.
//!
//! All run at FRR's usual paths in a mount namespace of their own: the speaker's configuration
//! names a log file there, and a node can't share it with another one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::processes::{Process, sh, until_there};

/// In the order of their start.
const PROGRAMS: [&str; 3] = ["zebra", "bfdd", "bgpd"];

/// Of Debian's package `frr-pythontools`: changes FRR's configuration into that of a file.
const RELOAD: &str = "/usr/lib/frr/frr-reload.py";

/// Where FRR is, with the folder as the first parameter.
const MOUNTS: &str = "
    mount --bind \"$1/etc\" /etc/frr
    mount -t tmpfs -o mode=755 frr /run
    mkdir /run/frr
    chown frr:frr /run/frr
    touch \"$1/mounted\"
    exec sleep infinity";

/// Reloads at each SIGHUP, which is noted, because one may come while it reloads. What FRR refused
/// is tried again after a second; MetalLB's speaker would ask for it within half a minute. The
/// parameters: the folder, the program.
const RELOADER: &str = "
    due=
    trap 'due=1' HUP
    printf %s $$ >\"$1/new.pid\"
    mv \"$1/new.pid\" \"$1/reloader.pid\"
    while :; do
      if [ \"$due\" ]; then
        due=
        \"$2\" --reload --overwrite --stdout \"$1/frr.conf\" >>\"$1/reloader.log\" 2>&1 || due=1
      fi
      sleep 1 &
      wait $!
    done";

/// FRR that runs. Ends when dropped, as a crash ends it: first that which has the sessions.
pub struct Frr {
    folder: PathBuf,
    reloader: Process,
    programs: Vec<Process>,
    _mounts: Process,
}

// === impl Frr ===

impl Frr {
    /// Starts it in a network namespace, without a configuration. `inside` is an argument of
    /// `nsenter`; what is in the folder is lost.
    pub fn start(inside: &str, folder: PathBuf) -> anyhow::Result<Self> {
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        let etc = folder.join("etc");
        fs::create_dir_all(&etc)?;
        fs::write(etc.join("vtysh.conf"), "service integrated-vtysh-config\n")?;
        fs::write(etc.join("frr.conf"), "")?;
        sh(&format!("chown -R frr:frr '{}'", etc.display()))?;
        let said = folder.join("frr.log");
        let log = fs::File::create(&said)?;
        let mut unshare = Command::new("nsenter");
        unshare
            .args([inside, "unshare", "--mount", "--propagation", "private"])
            .args(["sh", "-euc", MOUNTS, "mounts"])
            .arg(&folder)
            .stderr(log.try_clone()?);
        let mounts = Process::start(&mut unshare)?;
        until_there(&folder.join("mounted"), &said)?;
        let command = || {
            let mut command = Command::new("nsenter");
            let mounts = format!("--mount=/proc/{}/ns/mnt", mounts.id());
            command.args([inside, &mounts]);
            command
        };
        let mut programs = Vec::new();
        for name in PROGRAMS {
            let mut command = command();
            command.args([&format!("/usr/lib/frr/{name}"), "-A", "127.0.0.1"]);
            programs.insert(0, Process::start(command.stderr(log.try_clone()?))?);
            let socket = format!("/proc/{}/root/run/frr/{name}.vty", mounts.id());
            until_there(Path::new(&socket), &said)?;
        }
        let frr = Self {
            reloader: reloader(command(), &folder, Path::new(RELOAD))?,
            programs,
            _mounts: mounts,
            folder,
        };
        until_there(&frr.pid_file(), &said)?;
        Ok(frr)
    }

    /// Says to a speaker of MetalLB that FRR is there, and where.
    pub fn environment(&self) -> [(&'static str, PathBuf); 3] {
        [
            ("METALLB_BGP_TYPE", "frr".into()),
            ("FRR_CONFIG_FILE", self.folder.join("frr.conf")),
            ("FRR_RELOADER_PID_FILE", self.pid_file()),
        ]
    }

    fn pid_file(&self) -> PathBuf {
        self.folder.join("reloader.pid")
    }

    /// Asks all of it to end, and waits until it has.
    pub fn stop(self) -> anyhow::Result<()> {
        let Self {
            reloader,
            mut programs,
            ..
        } = self;
        drop(reloader);
        programs.iter().try_for_each(Process::ask_to_end)?;
        programs.iter_mut().try_for_each(Process::wait)
    }
}

/// Starts the reloader by a command that starts what its arguments say.
fn reloader(mut command: Command, folder: &Path, program: &Path) -> anyhow::Result<Process> {
    // A shell does not note a signal that was ignored when it began, as after `nohup`.
    command
        .args(["env", "--default-signal=HUP"])
        .args(["sh", "-uc", RELOADER, "reloader"])
        .args([folder, program])
        .env("VTYSH_HISTFILE", "/dev/null")
        .stderr(Stdio::null());
    Process::start(&mut command)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    use rustix::process::{Pid, Signal, kill_process};

    use super::*;
    use crate::bench::pause;

    #[test]
    fn what_frr_refused_is_given_to_it_again_also_where_sighup_was_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("reload");
        // Refuses what it is given first.
        fs::write(
            &program,
            "#!/bin/sh\necho \"$@\" >>\"${0%/*}/given\"; test -e \"${0%/*}/refused\" || { touch \
             \"${0%/*}/refused\"; exit 1; }\n",
        )
        .unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        let mut command = Command::new("env");
        command.arg("--ignore-signal=HUP");
        let reloader = reloader(command, folder.path(), &program).unwrap();
        let pid_file = folder.path().join("reloader.pid");
        until_there(&pid_file, folder.path()).unwrap();
        // MetalLB takes the whole file for a number.
        let pid: i32 = fs::read_to_string(pid_file).unwrap().parse().unwrap();
        assert_eq!(pid, reloader.id());

        kill_process(Pid::from_raw(pid).unwrap(), Signal::HUP).unwrap();

        let given = || fs::read_to_string(folder.path().join("given")).unwrap_or_default();
        while given().lines().count() < 2 {
            pause(Duration::from_millis(5));
        }
        let line = format!(
            "--reload --overwrite --stdout {}\n",
            folder.path().join("frr.conf").display()
        );
        assert_eq!(given(), line.repeat(2));
    }
}
