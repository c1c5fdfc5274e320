//! Hosts in network namespaces of their own, and the links between them. They end with the process
//! of the test, which is a host itself.

use std::process::Child;
use std::time::{Duration, Instant};

use landfall_bfd::driver::{Config, Monitor};
use landfall_bfd::packet::State;
use landfall_bfd::table::{Event, Path, Status, Wanted};
use landfall_testkit::namespace::{self, Namespace};
pub use landfall_testkit::namespace::{sh, until};
use tokio::sync::mpsc::Receiver;

/// Anything takes less.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// A host with a kernel of its own for all that concerns the network.
pub struct Host(Namespace);

/// A program on a host. It ends with this.
pub struct Program(Child);

/// BFD of a host.
pub struct Node {
    pub monitor: Monitor,
    pub events: Receiver<Event>,
}

/// Link-local addresses can be used at once.
pub const NO_DETECTION: &str = "echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad;";

/// Runs a test of this program again in a network namespace of its own. Returns whether it is to
/// run here.
pub fn is_inside(test: &str) -> bool {
    namespace::is_inside(test, &["ip", "nsenter"], NO_DETECTION)
}

/// Links two hosts (the first is this one, if left out), each by an interface.
pub fn link(one: Option<&Host>, name: &str, other: &Host, other_name: &str) {
    let script = format!(
        "ip link add {name} type veth peer name {other_name} netns {}; ip link set {name} up",
        other.0.pid()
    );
    match one {
        None => sh(&script),
        Some(host) => host.sh(&script),
    };
    other.sh(&format!("ip link set {other_name} up"));
}

// === impl Host ===

impl Host {
    pub fn new() -> Self {
        Self(Namespace::new())
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

    /// Runs commands on the host.
    pub fn sh(&self, script: &str) -> String {
        self.0.sh(script)
    }

    /// Starts a program on the host.
    pub fn start(&self, program: &str, arguments: &[&str]) -> Program {
        let mut command = self.0.command(program);
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
        self.0.within(work).join().unwrap()
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
