//! Runs an image where there is nothing but what is in it: a root folder of its own, read-only, and
//! a network of its own. No container engine is needed.
//!
//! ```text
//!  cargo xtask image --try ──> unshare (mounts, network; for others than root also users)
//!                                 └──> cargo xtask image --inside FILE
//!                                        ├── chroot: landfall --version, demo --once
//!                                        └── chroot: landfall asks for a name ──> our name server
//! ```

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use tokio::net::{TcpListener, UdpSocket};
use tokio::process::Command;

use super::contents::{Contents, Start};
use super::names::{self, Zone};
use crate::stage;

/// A name that the pod's `/etc/hosts` knows, as the kubelet writes it.
const LISTED: (&str, Ipv4Addr) = ("listed.test", Ipv4Addr::new(127, 0, 0, 2));
/// A name that only the name server knows.
const ASKED: (&str, Ipv4Addr) = ("asked.test", Ipv4Addr::new(127, 0, 0, 3));
const NAME_SERVER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 53);
/// Where an admin endpoint is looked for.
const PORT: u16 = 9640;

/// A lookup takes milliseconds, unless no server answers.
const LOOKUP_DEADLINE: Duration = Duration::from_secs(20);
const RUN_DEADLINE: Duration = Duration::from_mins(2);
const LOOK: Duration = Duration::from_millis(20);

/// The set of capabilities with `NET_RAW` and nothing else, as the kernel prints it.
const NET_RAW_ALONE: &str = "0000000000002000";

/// The network up, and the root read-only, as a pod's is. The demonstration, unlike a controller,
/// keeps files.
const PREPARE: &str = r#"
ip link set lo up
mount --bind "$1" "$1"
mount -o remount,bind,ro "$1"
mount -t tmpfs -o mode=1777 tmpfs "$1/tmp"
"#;

/// The command that carries out [`inside`] in namespaces of its own.
pub fn command(archive: &Path) -> anyhow::Result<Command> {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net"]);
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    let us = std::env::current_exe().context("where this program is, is unknown")?;
    command.arg(us).args(["image", "--inside"]).arg(archive);
    Ok(command)
}

/// Tries the image. Everything is ours here: mounts and network vanish with this process.
pub async fn inside(archive: &Path) -> anyhow::Result<()> {
    let bytes = fs::read(archive).with_context(|| format!("reading {}", archive.display()))?;
    // Not the outer temporary folder: it may be where only the outer user may look.
    let folder = tempfile::tempdir()?;
    open_to_all(folder.path())?;
    let start = Contents::read(&bytes)?.unpack(folder.path())?;
    let (listed, address) = LISTED;
    fs::write(
        folder.path().join("etc/hosts"),
        format!("{address} {listed}\n"),
    )?;
    fs::write(
        folder.path().join("etc/resolv.conf"),
        format!("nameserver {NAME_SERVER}\n"),
    )?;
    let mut prepare = Command::new("sh");
    prepare
        .args(["-euc", PREPARE, "prepare"])
        .arg(folder.path());
    stage::output(&mut prepare).await?;

    let trial = Trial {
        root: folder.path(),
        start,
    };
    let result = trial.run().await;
    // Or the folder can't be removed.
    let mut unmount = Command::new("umount");
    stage::output(unmount.arg("--recursive").arg(folder.path())).await?;
    result
}

struct Trial<'a> {
    root: &'a Path,
    start: Start,
}

impl Trial<'_> {
    async fn run(&self) -> anyhow::Result<()> {
        let version = stage::output(&mut self.landfall(&["--version"])?).await?;
        ensure!(
            version.trim() == format!("landfall {}", super::name::VERSION),
            "it says that it is {version:?}"
        );
        self.may_have_capabilities().await?;
        self.resolves(LISTED, "/etc/hosts").await?;
        self.resolves(ASKED, "a name server").await?;
        let mut demo = self.landfall(&["demo", "--once"])?;
        stage::run_group(&mut demo, RUN_DEADLINE).await
    }

    /// The program as a container of the image runs it.
    fn landfall(&self, arguments: &[&str]) -> anyhow::Result<Command> {
        let [program] = self.start.entrypoint.as_slice() else {
            bail!("the entrypoint is {:?}", self.start.entrypoint);
        };
        let mut command = Command::new("chroot");
        // A user namespace has no other user; its root has no rights outside.
        if rustix::process::geteuid().is_root() && names_other_users()? {
            command.arg(format!("--userspec={}", self.start.user));
        }
        command.arg(self.root).arg(program).args(arguments);
        let path = std::env::var_os("PATH").unwrap_or_default();
        // Only for finding chroot: what it runs is named by its path.
        command.env_clear().env("PATH", path);
        for variable in &self.start.env {
            if let Some((name, value)) = variable.split_once('=')
                && name != "PATH"
            {
                command.env(name, value);
            }
        }
        Ok(command)
    }

    /// Whether the program has the capability that a container allows it, and only that one, as the
    /// user of the image and without new privileges: this is how engines start it.
    async fn may_have_capabilities(&self) -> anyhow::Result<()> {
        if !rustix::process::geteuid().is_root() || !names_other_users()? {
            eprintln!("  its capabilities are not tried: this takes root, and other users");
            return Ok(());
        }
        let [program] = self.start.entrypoint.as_slice() else {
            bail!("the entrypoint is {:?}", self.start.entrypoint);
        };
        let (user, group) = self.start.user.split_once(':').context("no group")?;
        let mut command = Command::new("setpriv");
        command
            .args([&format!("--reuid={user}"), &format!("--regid={group}")])
            .args(["--clear-groups", "--no-new-privs", "--inh-caps=-all"])
            .arg("--bounding-set=-all,+net_raw")
            .arg(self.root.join(program.trim_start_matches('/')))
            // It waits for its input.
            .args(["check", "-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .kill_on_drop(true);
        let mut child = command.spawn().context("starting setpriv")?;
        let status = format!("/proc/{}/status", child.id().unwrap_or_default());
        let begun = Instant::now();
        let effective = loop {
            let status = fs::read_to_string(&status)?;
            let has = status.lines().find_map(|it| it.strip_prefix("CapEff:"));
            let has = has.unwrap_or_default().trim().to_owned();
            if has == NET_RAW_ALONE || begun.elapsed() > LOOKUP_DEADLINE {
                break has;
            }
            tokio::time::sleep(LOOK).await;
        };
        child.kill().await?;
        ensure!(
            effective == NET_RAW_ALONE,
            "allowed NET_RAW, the program has the capabilities {effective}"
        );
        eprintln!("  allowed NET_RAW, the program has it, and nothing else");
        Ok(())
    }

    /// Whether a connection to a name arrives where the name leads.
    async fn resolves(&self, (name, address): (&str, Ipv4Addr), by: &str) -> anyhow::Result<()> {
        let socket = UdpSocket::bind((NAME_SERVER, 53)).await?;
        let zone = Zone::from([(ASKED.0.to_owned(), ASKED.1)]);
        let listener = TcpListener::bind(SocketAddr::from((address, PORT))).await?;
        let mut landfall =
            self.landfall(&["get", "services", "--admin", &format!("{name}:{PORT}")])?;
        // It finds no Landfall there, and says so: only where it went is of interest.
        landfall
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let mut child = landfall.spawn()?;
        let arrived = tokio::select! {
            arrived = listener.accept() => arrived.is_ok(),
            answered = names::serve(&socket, &zone) => answered.map(|()| false)?,
            () = tokio::time::sleep(LOOKUP_DEADLINE) => false,
        };
        let _ended_already = child.start_kill();
        child.wait().await?;
        ensure!(arrived, "{name} was not found by {by}");
        eprintln!("  {name} was found by {by}");
        Ok(())
    }
}

fn open_to_all(folder: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// Whether user ids other than root exist here.
fn names_other_users() -> anyhow::Result<bool> {
    let map = fs::read_to_string("/proc/self/uid_map")?;
    let ids: u64 = map
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok())
        .sum();
    Ok(ids > u64::from(super::layer::USER))
}
