//! One machine that announces addresses which it does not have, to a client on the same network.

use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

use rustix::process::Signal;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, UdpSocket};

use crate::lab::{DEADLINE, LOOK, Lab};
use crate::manifest::svc;

/// Says to a test that it runs in a network namespace of its own.
const WITHIN: &str = "LANDFALL_TEST_NAMESPACE";

const MACHINE: &str = "ip link set lo up
    echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad
    ip link add lan0 type veth peer name eth0
    ip address add 10.79.0.1/24 dev lan0; ip address add fd79::1/64 dev lan0 nodad
    ip link set lan0 up; exec \"$@\"";

const CONFIG: &str = "instances:
- name: edge
  provider: {kind: local, announce: {interfaces: [lan0]}}
  default: true
  pools:
  - {name: lan, addresses: [10.79.0.200/32, 'fd79::200/128']}
";

const ADDRESSES: [&str; 2] = ["10.79.0.200", "fd79::200"];

/// Runs a test again in a network of its own. True: this is that run.
fn within(name: &str) -> bool {
    if std::env::var_os(WITHIN).is_some() {
        return true;
    }
    let ended = Command::new("unshare")
        .args(["--net", "sh", "-euc", MACHINE, "net"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(WITHIN, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&ended.stdout);
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(text.contains("1 passed"), "as root? {text}{errors}");
    false
}

fn sh(script: &str) -> String {
    let output = Command::new("sh").args(["-euc", script]).output().unwrap();
    assert!(output.status.success(), "{script}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A host on the network of the machine.
struct Client(Child);

impl Client {
    fn connect() -> Self {
        let mut command = Command::new("unshare");
        let command = command.args(["--net", "cat"]).stdin(Stdio::piped());
        let client = Self(command.spawn().unwrap());
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        let path = format!("/proc/{}/ns/net", client.0.id());
        let began = Instant::now();
        while std::fs::read_link(&path).is_ok_and(|it| it == own) {
            assert!(began.elapsed() < DEADLINE, "no namespace");
            std::thread::yield_now();
        }
        sh(&format!("ip link set eth0 netns {}", client.0.id()));
        client.sh("ip link set lo up; ip address add 10.79.0.2/24 dev eth0
             ip address add fd79::2/64 dev eth0 nodad; ip link set eth0 up");
        client
    }

    fn sh(&self, script: &str) -> Output {
        let pid = self.0.id().to_string();
        Command::new("nsenter")
            .args(["--net", "--target", &pid, "bash", "-c", script])
            .output()
            .unwrap()
    }

    /// What answers at an address.
    fn ask(&self, address: &str) -> String {
        let script = format!("timeout 2 bash -c 'exec 3<>/dev/tcp/{address}/8080; cat <&3'");
        String::from_utf8(self.sh(&script).stdout).unwrap()
    }

    /// What answers at an address to a datagram.
    fn ask_by_datagram(&self, address: &str) -> String {
        let ask = "exec 3<>/dev/udp/$0/5353; printf ? >&3; head -c 3 <&3";
        let script = format!("timeout 2 bash -c '{ask}' {address}");
        String::from_utf8(self.sh(&script).stdout).unwrap()
    }

    async fn until_answered(&self, address: &str, lab: &Lab) {
        let began = Instant::now();
        while self.ask(address) != "one" {
            let neighbours = self.sh("ip neigh");
            let log = lab.log();
            assert!(
                began.elapsed() < DEADLINE,
                "{address}: {neighbours:?} {log:?}"
            );
            tokio::time::sleep(LOOK).await;
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A member that says its name to all, by TCP and UDP.
async fn member() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let socket = UdpSocket::bind(address).await.unwrap();
    tokio::spawn(async move {
        while let Ok((_, client)) = socket.recv_from(&mut [0; 16]).await {
            let _ = socket.send_to(b"one", client).await;
        }
    });
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"one").await;
        }
    });
    address
}

async fn configured() -> Lab {
    let lab = Lab::new();
    let config = lab.path("landfall.yaml");
    std::fs::write(&config, CONFIG).unwrap();
    let lab = lab.options(&["--config", config.to_str().unwrap()]);
    let service = svc("web").port("web", "TCP", 8080).port("dns", "UDP", 5353);
    let service = service.members(&[member().await]);
    let service = service.spec("ipFamilyPolicy: RequireDualStack");
    let service = service.spec("ipFamilies: [IPv4, IPv6]");
    lab.write("web.yaml", &service.yaml());
    lab
}

fn routes() -> String {
    sh("ip route show table 7947; ip -6 route show table 7947; ip rule")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_root_a_client_of_the_network_reaches_addresses_that_one_machine_announces() {
    let name = "announcing::\
                as_root_a_client_of_the_network_reaches_addresses_that_one_machine_announces";
    if !within(name) {
        return;
    }
    let client = Client::connect();
    let mut lab = configured().await;
    assert_eq!(client.ask(ADDRESSES[0]), "");
    lab.start().await;
    for address in ADDRESSES {
        client.until_answered(address, &lab).await;
    }
    for address in ADDRESSES {
        assert_eq!(client.ask_by_datagram(address), "one", "{address}");
    }
    // No interface has them, and the machine itself reaches them.
    let held = sh("ip address");
    assert!(ADDRESSES.iter().all(|it| !held.contains(it)), "{held}");
    let itself = sh("bash -c 'exec 3<>/dev/tcp/10.79.0.200/8080; cat <&3'");
    assert_eq!(itself, "one");

    // Another process takes over, with the routes.
    let mut old = lab.succeeded(&[]).await;
    Lab::end_of(&mut old).await;
    for address in ADDRESSES {
        client.until_answered(address, &lab).await;
    }
    // What is not served is not announced, and nothing stays behind.
    lab.remove("web.yaml");
    let began = Instant::now();
    while ADDRESSES.iter().any(|it| routes().contains(it)) {
        assert!(began.elapsed() < DEADLINE, "{}", routes());
        tokio::time::sleep(LOOK).await;
    }
    client.sh("ip neigh flush all");
    assert_eq!(client.ask(ADDRESSES[0]), "");
    lab.signal(Signal::TERM);
    lab.end().await;
    assert!(!routes().contains("7947"), "{}", routes());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_root_an_address_that_another_host_has_is_not_announced() {
    let name = "announcing::as_root_an_address_that_another_host_has_is_not_announced";
    if !within(name) {
        return;
    }
    let client = Client::connect();
    let mut lab = configured().await;
    let service = std::fs::read_to_string(lab.file("web.yaml")).unwrap();
    lab.remove("web.yaml");
    lab.start().await;
    client.sh("ip address add 10.79.0.200/24 dev eth0");
    lab.write("web.yaml", &service);
    lab.logged("not announced: another host has it").await;
    client.until_answered("fd79::200", &lab).await;
    let began = Instant::now();
    while routes().contains("10.79.0.200") {
        assert!(began.elapsed() < DEADLINE, "{}", routes());
        tokio::time::sleep(LOOK).await;
    }
    // The next process knows no better, and asks the host.
    let mut old = lab.succeeded(&[]).await;
    Lab::end_of(&mut old).await;
    lab.logged("not announced: another host has it").await;
    client.until_answered("fd79::200", &lab).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_root_without_the_capability_the_start_is_refused_and_says_why() {
    let name = "announcing::as_root_without_the_capability_the_start_is_refused_and_says_why";
    if !within(name) {
        return;
    }
    let lab = configured().await;
    for (left, missing) in [("net_raw", "NET_ADMIN"), ("net_admin", "NET_RAW")] {
        let (config, folder) = (lab.path("landfall.yaml"), lab.folder());
        let ended = Command::new("setpriv")
            .arg(format!("--bounding-set=-all,+{left}"))
            .arg(format!("--inh-caps=-all,+{left}"))
            .arg(env!("CARGO_BIN_EXE_landfall"))
            .args(["up", "--admin", "127.0.0.1:0", "--filename"])
            .arg(folder)
            .arg("--config")
            .arg(config)
            .arg("--state")
            .arg(lab.path(left))
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(
            !ended.status.success() && errors.contains(missing),
            "{errors}"
        );
    }
}
