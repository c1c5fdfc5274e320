//! Members behind a real link: a pair of virtual interfaces between two network namespaces. Over
//! loopback the kernel gives ports in TIME-WAIT again, which it does nowhere else, so that what a
//! proxy does with its ports shows only here. Both namespaces end with their last process.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddrV4, TcpListener};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Set in the process that runs in a namespace of its own.
const INSIDE: &str = "LANDFALL_BENCH_INSIDE";

/// Where the members' end keeps its addresses, and how the proxies' end reaches them.
const FAR: &str = "ip link set lo up && ip route add local 10.91.0.0/16 dev lo && echo ready \
    && exec sleep 86400";
const FAR_END: &str = "ip address add 10.92.0.2/30 dev far && ip link set far up";
const NEAR_END: &str = "ip link add near type veth peer name far netns \"$0\" \
    && ip address add 10.92.0.1/30 dev near && ip link set near up";
const ROUTE: &str = "ip route add 10.91.0.0/16 via 10.92.0.2";

/// The namespace of the members. Ends when dropped.
pub struct Far {
    holder: Child,
}

/// Whether this process may make namespaces; runs it again in one of its own if so. Returns if it
/// is in one already, or may not.
pub fn enter() -> anyhow::Result<bool> {
    if std::env::var_os(INSIDE).is_some() {
        return Ok(true);
    }
    let allowed = Command::new("unshare")
        .args(["--net", "true"])
        .stderr(Stdio::null())
        .status();
    if !allowed.is_ok_and(|status| status.success()) {
        return Ok(false);
    }
    let error = Command::new("unshare")
        .args([
            "--net",
            "sh",
            "-c",
            "ip link set lo up && exec \"$0\" \"$@\"",
        ])
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .exec();
    bail!("unshare can't be started: {error}")
}

// === impl Far ===

impl Far {
    /// Makes the namespace and the link to it.
    pub fn start() -> anyhow::Result<Self> {
        let mut holder = Command::new("unshare")
            .args(["--net", "sh", "-c", FAR])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("unshare can't be started")?;
        let words = holder.stdout.take().context("no words")?;
        let far = Self { holder };
        let mut line = String::new();
        BufReader::new(words).read_line(&mut line)?;
        if line != "ready\n" {
            bail!("a network namespace can't be made");
        }
        let id = far.holder.id().to_string();
        run(Command::new("sh").args(["-c", NEAR_END, &id]))?;
        run(Command::new("nsenter").args(["--target", &id, "--net", "sh", "-c", FAR_END]))?;
        run(Command::new("sh").args(["-c", ROUTE]))?;
        Ok(far)
    }

    /// Listens at the far end.
    pub fn listen(&self, address: SocketAddrV4) -> anyhow::Result<TcpListener> {
        let namespace = File::open(format!("/proc/{}/ns/net", self.holder.id()))?;
        // The thread alone changes, and ends.
        let thread = std::thread::spawn(move || -> anyhow::Result<TcpListener> {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            let listener = TcpListener::bind(address)?;
            rustix::net::listen(&listener, 4096)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        thread
            .join()
            .unwrap_or_else(|_| bail!("the listening thread panicked"))
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        // Fails only if it has ended already.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status()?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}
