//! FRR beside the nodes: what its kernel knows of the way to addresses.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use serde_json::Value;

use super::layout::{ANNOUNCED, CLIENT, ROUTER, ROUTER_OF_CLIENTS, address, node_address};
use super::processes::{Process, namespace, sh, until_there};

/// The longest that is waited for a route to come or go.
const LIMIT: Duration = Duration::from_secs(60);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// How sessions are made, beside that nodes begin them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sessions {
    /// Whether BFD watches nodes, every 50 ms, three times.
    pub bfd: bool,
    /// Whether the router keeps routes of a speaker that restarts.
    pub graceful_restart: bool,
    /// The hold time that nodes ask for, in seconds.
    pub hold: u8,
}

/// A router that runs.
pub struct Router {
    holder: Process,
    /// What the kernel says about routes, with the time at which it said it.
    changes: mpsc::Receiver<(Instant, String)>,
    _programs: Vec<Process>,
    folder: tempfile::TempDir,
}

// === impl Sessions ===

impl Default for Sessions {
    fn default() -> Self {
        Self {
            bfd: false,
            graceful_restart: false,
            hold: 9,
        }
    }
}

// === impl Router ===

impl Router {
    /// Starts it for so many nodes.
    pub fn start(nodes: u8, sessions: Sessions) -> anyhow::Result<Self> {
        let holder = namespace("router", "02:00:00:00:01:01")?;
        let inside = format!("--net=/proc/{}/ns/net", holder.id());
        sh(&format!(
            "nsenter {inside} sh -euc 'ip link set lo up; ip address add {ROUTER}/16 dev eth0
             ip address add {ROUTER_OF_CLIENTS}/24 dev eth0
             sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.send_redirects=0 \
             net.ipv4.conf.eth0.send_redirects=0
             ip link set eth0 up; sysctl -qw net.ipv4.ping_group_range=\"0 2147483647\" \
             net.ipv4.fib_multipath_hash_policy=1'"
        ))?;
        let folder = tempfile::tempdir()?;
        let mut programs = Vec::new();
        for (name, config) in configs(nodes, sessions)? {
            programs.push(program(&inside, folder.path(), name, &config)?);
        }
        let mut monitor = Command::new("nsenter")
            .args([&inside, "stdbuf", "-oL", "ip", "-4", "monitor", "route"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = monitor.stdout.take().context("its output")?;
        let (said, changes) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if said.send((Instant::now(), line)).is_err() {
                    break;
                }
            }
        });
        programs.push(Process::of(monitor));
        Ok(Self {
            holder,
            changes,
            _programs: programs,
            folder,
        })
    }

    /// Forgets what the kernel has said so far.
    pub fn forget(&self) {
        while self.changes.try_recv().is_ok() {}
    }

    /// Waits until the kernel has lost its way to an address, and returns when that was.
    pub fn until_lost(&self, number: usize) -> anyhow::Result<Instant> {
        let (address, end) = (address(number).to_string(), Instant::now() + LIMIT);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let (at, line) = self
                .changes
                .recv_timeout(left)
                .context("no change of routes")?;
            let mut words = line.split_whitespace();
            if words.next() == Some("Deleted") && words.next() == Some(&address) {
                return Ok(at);
            }
        }
    }

    /// Returns when the kernel has changed its ways to an address, since it was last forgotten.
    pub fn changes_of(&self, number: usize) -> Vec<Instant> {
        let address = address(number).to_string();
        let changes = self.changes.try_iter();
        let of_it = changes.filter(|(_, line)| line.split_whitespace().any(|it| it == address));
        of_it.map(|(at, _)| at).collect()
    }

    /// Makes a namespace for clients, whose gateway the router is.
    pub fn clients() -> anyhow::Result<Process> {
        let holder = namespace("clients", "02:00:00:00:01:02")?;
        sh(&format!(
            "nsenter --net=/proc/{}/ns/net sh -euc 'ip address add {CLIENT}/24 dev eth0
             ip link set eth0 up; ip route add default via {ROUTER_OF_CLIENTS}'",
            holder.id()
        ))?;
        Ok(holder)
    }

    /// Lets TCP connections stay with the node that they began with, whatever the routes are later,
    /// as docs/bare-metal.md describes it.
    pub fn pin(&self, nodes: u8) -> anyhow::Result<()> {
        let (mut elements, mut rules) = (Vec::new(), String::new());
        for node in 1..=nodes {
            let (mark, address) = (100 + u32::from(node), node_address(node));
            elements.push(format!("{address} : {mark}"));
            writeln!(rules, "ip route add default via {address} table {mark}")?;
            writeln!(rules, "ip rule add fwmark {mark} lookup {mark}")?;
        }
        let table = format!(
            "table ip pinned {{
               map nodes {{ type ipv4_addr : mark; elements = {{ {} }}; }}
               chain begin {{
                 type filter hook postrouting priority mangle;
                 ip daddr {ANNOUNCED} meta l4proto tcp ct state new ct mark set rt ip nexthop map \
                   @nodes
               }}
               chain stay {{
                 type filter hook prerouting priority mangle;
                 ip daddr {ANNOUNCED} ct state established meta mark set ct mark
               }}
             }}",
            elements.join(", ")
        );
        let file = self.folder.path().join("pinned.nft");
        std::fs::write(&file, table)?;
        sh(&format!(
            "nsenter --net=/proc/{}/ns/net sh -euc 'nft -f {}\n{rules}'",
            self.id(),
            file.display()
        ))
    }

    /// Waits until so many nodes are ways to an address.
    pub async fn until_spread(&self, number: usize, ways: usize) -> anyhow::Result<()> {
        let end = Instant::now() + LIMIT;
        while self.ways(number)? != ways {
            if Instant::now() > end {
                bail!(
                    "there are not {ways} ways to {} after {LIMIT:?}",
                    address(number)
                );
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Waits until BFD watches a node.
    pub async fn until_watched(&self, node: u8) -> anyhow::Result<()> {
        let (end, node) = (Instant::now() + LIMIT, node_address(node).to_string());
        loop {
            let shown = self.show("bfdd", "show bfd peers json")?;
            let mut peers = shown.as_array().into_iter().flatten();
            if peers.any(|it| it["peer"] == node && it["status"] == "up") {
                return Ok(());
            }
            if Instant::now() > end {
                bail!("BFD does not watch {node} after {LIMIT:?}: {shown}");
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until there is a session with a node, and its address is known from that session, not
    /// kept from an earlier one.
    pub async fn until_renewed(&self, node: u8, number: usize) -> anyhow::Result<()> {
        let (end, node) = (Instant::now() + LIMIT, node_address(node).to_string());
        let address = address(number);
        loop {
            let shown = self.show("bgpd", &format!("show bgp neighbors {node} json"))?;
            let has_session = shown[&node]["bgpState"] == "Established";
            let shown = self.show("bgpd", &format!("show bgp ipv4 unicast {address} json"))?;
            let mut paths = shown["paths"].as_array().into_iter().flatten();
            if has_session && paths.any(|it| it["stale"] != true) {
                return Ok(());
            }
            if Instant::now() > end {
                bail!("node {node} has not announced {address} again after {LIMIT:?}: {shown}");
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn show(&self, daemon: &str, what: &str) -> anyhow::Result<Value> {
        let mut command = self.command("vtysh");
        command.arg("--vty_socket").arg(self.folder.path());
        command.args(["-d", daemon, "-c", what]);
        Ok(serde_json::from_slice(&command.output()?.stdout)?)
    }

    /// The process that keeps its namespace.
    pub fn id(&self) -> i32 {
        self.holder.id()
    }

    /// The ways that its kernel has to an address.
    pub fn ways(&self, number: usize) -> anyhow::Result<usize> {
        let address = address(number).to_string();
        let mut command = self.command("ip");
        let output = command.args(["route", "show", &address]).output()?;
        Ok(String::from_utf8_lossy(&output.stdout)
            .matches("via ")
            .count())
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.holder.id()));
        command.arg(program);
        command
    }
}

/// The programs, in the order of their start.
fn configs(nodes: u8, sessions: Sessions) -> anyhow::Result<Vec<(&'static str, String)>> {
    let mut bgpd = format!(
        "log stdout\nrouter bgp 64501\n bgp router-id {ROUTER}\n no bgp ebgp-requires-policy\n"
    );
    if sessions.graceful_restart {
        bgpd.push_str(" bgp graceful-restart\n");
    }
    for node in 1..=nodes {
        let node = node_address(node);
        write!(
            bgpd,
            " neighbor {node} remote-as 64500\n neighbor {node} passive\n neighbor {node} timers \
             3 9\n"
        )?;
        if sessions.bfd {
            writeln!(bgpd, " neighbor {node} bfd profile fast")?;
        }
    }
    let bfdd = "log stdout\nbfd\n profile fast\n  detect-multiplier 3\n  receive-interval 50\n  \
                transmit-interval 50\n";
    Ok(vec![
        ("zebra", "log stdout\n".to_owned()),
        ("bfdd", bfdd.to_owned()),
        ("bgpd", bgpd),
    ])
}

fn program(inside: &str, folder: &Path, name: &str, config: &str) -> anyhow::Result<Process> {
    let file = folder.join(format!("{name}.conf"));
    std::fs::write(&file, config)?;
    // It drops the rights of root before it opens its files.
    sh(&format!("chown -R frr:frr {}", folder.display()))?;
    let at = |name: &str| folder.join(name).display().to_string();
    let mut command = Command::new("nsenter");
    command.args([
        inside,
        &format!("/usr/lib/frr/{name}"),
        "-u",
        "frr",
        "-g",
        "frr",
    ]);
    command.args(["-f", &at(&format!("{name}.conf")), "-z", &at("zserv.api")]);
    command.args(["-i", &at(&format!("{name}.pid")), "--vty_socket", &at("")]);
    if name == "bfdd" {
        command.args(["--bfdctl", &at("bfdd.sock")]);
    }
    let log = folder.join("log");
    let started = Process::start(command.stderr(std::fs::File::create(&log)?))?;
    // What bgpd asks of bfdd before bfdd is there is lost.
    until_there(&folder.join(format!("{name}.vty")), &log)?;
    Ok(started)
}
