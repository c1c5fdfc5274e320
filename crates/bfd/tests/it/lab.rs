//! Hosts in network namespaces of their own, and the links between them. They end with the process
//! of the test, which is a host itself.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use landfall_bfd::driver::{Config, Monitor};
use landfall_bfd::packet::State;
use landfall_bfd::table::{Event, Path, Status, Wanted};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::sync::mpsc::Receiver;

/// Set in the process that runs inside.
const INSIDE: &str = "LANDFALL_TEST_LAB";

/// Anything takes less.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// A host with a kernel of its own for all that concerns the network.
pub struct Host {
    child: Child,
}

/// A program on a host. It ends with this.
pub struct Program(Child);

/// BFD of a host.
pub struct Node {
    pub monitor: Monitor,
    pub events: Receiver<Event>,
}

/// Returns whether this process runs inside.
pub fn is_entered() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Runs a test of this program again in a network namespace of its own. Returns whether it is to
/// run here.
pub fn is_inside(test: &str) -> bool {
    if is_entered() {
        return true;
    }
    let ended = inside(&["--exact", test, "--nocapture"]).output();
    let ended = ended.expect("unshare, of util-linux, starts");
    let printed = String::from_utf8_lossy(&ended.stdout);
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(
        ended.status.success() && printed.contains("1 passed"),
        "as root? {printed}{errors}"
    );
    false
}

/// Returns this program again, with arguments, in a network namespace of its own.
pub fn inside(arguments: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    let script = "ip link set lo up; echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad; \
        exec \"$@\"";
    command
        .args(["--net", "sh", "-euc", script, "net"])
        .arg(std::env::current_exe().unwrap())
        .args(arguments)
        .env(INSIDE, "1");
    command
}

/// Runs commands on this host.
pub fn sh(script: &str) -> String {
    run(Command::new("sh").args(["-euc", script]))
}

/// Links two hosts (the first is this one, if left out), each by an interface.
pub fn link(one: Option<&Host>, name: &str, other: &Host, other_name: &str) {
    let script = format!(
        "ip link add {name} type veth peer name {other_name} netns {}; ip link set {name} up",
        other.child.id()
    );
    match one {
        None => sh(&script),
        Some(host) => host.sh(&script),
    };
    other.sh(&format!("ip link set {other_name} up"));
}

/// Waits for a condition.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn run(command: &mut Command) -> String {
    let ended = command.output().unwrap();
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{command:?}: {text}{errors}");
    text
}

// === impl Host ===

impl Host {
    pub fn new() -> Self {
        let child = Command::new("unshare")
            .args(["--net", "cat"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let own = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        let end = Instant::now() + DEADLINE;
        let path = format!("/proc/{}/ns/net", child.id());
        while std::fs::read_link(&path).is_ok_and(|it| it == own) {
            assert!(Instant::now() < end, "no namespace");
            std::thread::yield_now();
        }
        let host = Self { child };
        // Link-local addresses can be used at once.
        host.sh("ip link set lo up; echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad");
        host
    }

    /// Returns a host whose eth0 is linked to eth0 of this one. Addresses of both families end with
    /// 1 here, and with 2 there.
    pub fn neighbor() -> Self {
        let host = Self::new();
        link(None, "eth0", &host, "eth0");
        sh("ip address add 10.0.0.1/24 dev eth0; ip address add 2001:db8::1/64 dev eth0");
        host.sh("ip address add 10.0.0.2/24 dev eth0; ip address add 2001:db8::2/64 dev eth0");
        host
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        let pid = self.child.id().to_string();
        command.args(["--net", "--target", &pid, program]);
        command
    }

    /// Runs commands on the host.
    pub fn sh(&self, script: &str) -> String {
        run(self.command("sh").args(["-euc", script]))
    }

    /// Starts a program on the host.
    pub fn start(&self, program: &str, arguments: &[&str]) -> Program {
        let mut command = self.command(program);
        Program(command.args(arguments).spawn().unwrap())
    }

    /// Starts BFD on the host.
    pub fn node(&self) -> Node {
        self.within(Node::start)
    }

    /// The link-local address of an interface.
    pub fn link_local(&self, interface: &str) -> String {
        let shown = self.sh(&format!("ip -6 -o address show dev {interface} scope link"));
        link_local_of(&shown)
    }

    /// Runs something in a thread that is in the namespace of the host.
    pub fn within<R: Send + 'static>(&self, work: impl FnOnce() -> R + Send + 'static) -> R {
        let namespace = File::open(format!("/proc/{}/ns/net", self.child.id())).unwrap();
        let thread = std::thread::spawn(move || {
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.as_fd(), network).expect("as root?");
            work()
        });
        thread.join().unwrap()
    }
}

/// The link-local address of an interface of this host.
pub fn link_local(interface: &str) -> String {
    link_local_of(&sh(&format!(
        "ip -6 -o address show dev {interface} scope link"
    )))
}

fn link_local_of(shown: &str) -> String {
    let address = shown.split_whitespace().find(|it| it.starts_with("fe80"));
    let (address, _) = address.unwrap().split_once('/').unwrap();
    address.to_owned()
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ended = self.child.wait();
    }
}

// === impl Program ===

impl Drop for Program {
    fn drop(&mut self) {
        let _killed = self.0.kill();
        let _ended = self.0.wait();
    }
}

// === impl Node ===

impl Node {
    /// Starts BFD on this host.
    pub fn start() -> Self {
        let (monitor, events) = Monitor::start(Config::default()).unwrap();
        Self { monitor, events }
    }

    pub fn set(&self, wanted: impl Into<Wanted>) {
        self.monitor.set(wanted.into());
    }

    pub fn status(&self, path: &Path) -> Option<Status> {
        self.monitor.snapshot().sessions.get(path).cloned()
    }

    /// Waits until a session is in a state.
    pub async fn reaches(&self, path: &Path, state: State) {
        let end = Instant::now() + DEADLINE;
        let is_so = || {
            self.status(path)
                .is_some_and(|it| it.session.state == state)
        };
        while !is_so() {
            let status = self.status(path);
            assert!(Instant::now() < end, "{path} not {state}: {status:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits for a session to go down.
    pub async fn goes_down(&mut self) -> Event {
        loop {
            let event = tokio::time::timeout(DEADLINE, self.events.recv()).await;
            let event = event.expect("no session went down").unwrap();
            if event.change.is_down() {
                return event;
            }
        }
    }
}
