//! A network: a switch, and hosts in network namespaces of their own that are connected to it. It
//! ends with the process of the test.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use landfall_l2::driver::{Announcer, Config, Report, View, Wanted};
use landfall_l2::fsm::{Announcement, Scope, Settings, Start, State};
use landfall_l2::mac::MacAddress;
use landfall_l2::packet::{ETHER_TYPE_ARP, ETHER_TYPE_IPV6, Frame};
use landfall_sys::packet::{Instruction, PacketSocket};
pub use landfall_testkit::namespace::until;
use landfall_testkit::namespace::{self, Namespace};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Anything takes less.
const DEADLINE: Duration = Duration::from_secs(20);

/// The index of eth0: the first after lo in a namespace that has no other interface.
const ETH0: u32 = 2;

/// The addresses that are announced.
pub const V4: &str = "10.0.0.7";
pub const V6: &str = "2001:db8::7";

/// A host with a kernel of its own for all that concerns the network. Its interface is eth0.
pub struct Host {
    namespace: Namespace,
    pub mac: MacAddress,
}

/// A node that announces on a host.
pub struct Node {
    pub announcer: Announcer,
    pub reports: tokio::sync::mpsc::Receiver<Report>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

/// A station that sees and sends whole frames, from the interface of a host.
pub struct Station {
    mac: MacAddress,
    arp: Arc<PacketSocket>,
    ipv6: Arc<PacketSocket>,
    seen: Arc<Mutex<Vec<(Instant, Frame)>>>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

/// Lines that a program prints while it runs.
pub struct Lines {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

/// Runs a test of this program again in a network namespace of its own, which commands prepare.
/// Returns whether it is to run here.
pub fn is_inside(test: &str, prepare: &str) -> bool {
    let needs = ["ip", "nsenter", "setpriv", "arping", "ndisc6", "tcpdump"];
    namespace::is_inside(test, &needs, prepare)
}

/// The switch that hosts are connected to.
pub const SWITCH: &str = "ip link add switch type bridge; ip link set switch up;";

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Settings with which nothing takes long.
pub fn quick() -> Settings {
    Settings {
        probe_interval: Duration::from_millis(50),
        conflict_retry: Duration::from_millis(300),
        ..Settings::default()
    }
}

/// What announces both addresses on all interfaces.
pub fn both(start: Start) -> Wanted {
    let announcement = Announcement {
        interfaces: Scope::All,
        start,
        revision: 0,
    };
    let addresses = [V4, V6].map(|it| (ip(it), announcement.clone()));
    Wanted {
        announcements: addresses.into(),
        ..Wanted::default()
    }
}

// === impl Host ===

impl Host {
    /// Connects another host to the switch, with an address of each family.
    pub fn connect(number: u8) -> Self {
        let host = Self {
            namespace: Namespace::new(),
            mac: MacAddress([2, 0, 0, 0, 0, number]),
        };
        let pid = host.pid();
        let port = format!("port{number}");
        let link = format!(
            "ip link add {port} type veth peer name eth0 address 02:00:00:00:00:{number:02x} \
            netns {pid}; ip link set {port} master switch; ip link set {port} up"
        );
        namespace::sh(&link);
        host.sh(&format!(
            "ip address add 10.0.0.{number}/24 dev eth0; \
            ip link set eth0 up; ip address add 2001:db8::{number:x}/64 dev eth0"
        ));
        host
    }

    /// The process that keeps its namespace.
    pub fn pid(&self) -> u32 {
        self.namespace.pid()
    }

    /// Runs commands on the host.
    pub fn sh(&self, script: &str) -> String {
        self.namespace.sh(script)
    }

    /// Starts a program on the host that prints lines.
    pub fn lines(&self, program: &str, arguments: &[&str]) -> Lines {
        let mut child = self
            .namespace
            .command(program)
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (out, errors) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let collect = |lines: Arc<Mutex<Vec<String>>>| {
            move |line: std::io::Result<String>| lines.lock().unwrap().extend(line)
        };
        let to = collect(Arc::clone(&lines));
        std::thread::spawn(move || BufReader::new(out).lines().for_each(to));
        let to = collect(Arc::clone(&lines));
        std::thread::spawn(move || BufReader::new(errors).lines().for_each(to));
        Lines { child, lines }
    }

    /// What the kernel of the host knows about a neighbour.
    pub fn neighbour(&self, address: &str) -> String {
        self.sh(&format!("ip neigh show {address} dev eth0"))
    }

    /// Sends a datagram, so that the kernel of the host has to find the neighbour.
    pub fn send(&self, to: &str) {
        let to = SocketAddr::new(ip(to), 9);
        self.within(move || {
            let any: SocketAddr = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }
                .parse()
                .unwrap();
            UdpSocket::bind(any).unwrap().send_to(b"x", to).unwrap();
        })
        .join()
        .unwrap();
    }

    /// Runs something in a thread that is in the namespace of the host.
    fn within<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> JoinHandle<R> {
        self.namespace.within(work)
    }

    /// Starts a node on the host.
    pub fn node(&self, settings: Settings) -> Node {
        self.node_with(Config {
            settings,
            ..Config::default()
        })
    }

    /// The same with interfaces that never announce.
    pub fn node_with(&self, config: Config) -> Node {
        let stop = CancellationToken::new();
        let (started, there) = mpsc::channel();
        let stopped = stop.clone();
        let thread = self.within(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async {
                let tracker = TaskTracker::new();
                started
                    .send(Announcer::start(config, &tracker, stopped).unwrap())
                    .unwrap();
                tracker.close();
                tracker.wait().await;
            });
        });
        let (announcer, reports) = there.recv().unwrap();
        Node {
            announcer,
            reports,
            stop,
            thread: Some(thread),
        }
    }

    /// Puts a station on the interface of the host.
    pub fn station(&self) -> Station {
        let stop = CancellationToken::new();
        let (started, there) = mpsc::channel();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (stopped, to, mac) = (stop.clone(), Arc::clone(&seen), self.mac);
        let thread = self.within(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async {
                let all = Instruction {
                    code: 6,
                    if_true: 0,
                    if_false: 0,
                    operand: 2_048,
                };
                let open = |kind| Arc::new(PacketSocket::open(kind, &[all]).unwrap());
                let sockets = [open(ETHER_TYPE_ARP), open(ETHER_TYPE_IPV6)];
                started.send(sockets.clone()).unwrap();
                let watch = async |socket: Arc<PacketSocket>| {
                    let mut room = [0; 2_048];
                    loop {
                        let received = socket.receive(&mut room).await.unwrap();
                        let frame = Frame::parse(&room[..received.length]);
                        let frame = frame.filter(|it| it.source != mac);
                        let now = Instant::now();
                        to.lock().unwrap().extend(frame.map(|frame| (now, frame)));
                    }
                };
                let [arp, ipv6] = sockets;
                tokio::select! {
                    () = stopped.cancelled() => {}
                    () = watch(arp) => {}
                    () = watch(ipv6) => {}
                }
            });
        });
        let [arp, ipv6] = there.recv().unwrap();
        Station {
            mac: self.mac,
            arp,
            ipv6,
            seen,
            stop,
            thread: Some(thread),
        }
    }
}

// === impl Node ===

impl Node {
    /// What it announces.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.announcer.view().borrow())
    }

    /// Waits until all its addresses are in a state.
    pub async fn all(&self, state: State) {
        let count = 2;
        until(&format!("{state:?}"), || {
            let view = self.view();
            view.addresses.len() == count && view.addresses.values().all(|it| it.state == state)
        })
        .await;
    }

    /// Waits for the next report.
    pub async fn report(&mut self) -> Report {
        let report = tokio::time::timeout(DEADLINE, self.reports.recv()).await;
        report.expect("no report").unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop.cancel();
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

// === impl Station ===

impl Station {
    /// Sends a frame.
    pub fn send(&self, frame: &[u8]) {
        let is_arp = frame[12..14] == ETHER_TYPE_ARP.to_be_bytes();
        let socket = if is_arp { &self.arp } else { &self.ipv6 };
        socket.send(ETH0, frame).unwrap();
    }

    /// Its MAC address.
    pub const fn mac(&self) -> MacAddress {
        self.mac
    }

    /// The frames that it saw so far.
    pub fn frames(&self) -> Vec<(Instant, Frame)> {
        self.seen.lock().unwrap().clone()
    }

    /// The frames sent to it alone.
    pub fn answers(&self) -> Vec<Frame> {
        let frames = self.frames().into_iter().map(|(_, frame)| frame);
        frames.filter(|it| it.destination == self.mac).collect()
    }
}

impl Drop for Station {
    fn drop(&mut self) {
        self.stop.cancel();
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

// === impl Lines ===

impl Lines {
    /// What it printed so far.
    pub fn text(&self) -> String {
        self.lines.lock().unwrap().join("\n")
    }

    /// Waits for the place after which one line follows the other.
    pub async fn until(&self, parts: &[&str]) {
        until(&format!("{parts:?} in order"), || {
            let text = self.text();
            let mut rest = text.as_str();
            parts.iter().all(|part| match rest.split_once(part) {
                Some((_, after)) => {
                    rest = after;
                    true
                }
                None => false,
            })
        })
        .await;
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}
