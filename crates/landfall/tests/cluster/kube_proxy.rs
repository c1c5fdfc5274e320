//! Beside a real kube-proxy, on the machine that has the addresses: every connection goes through
//! the listener, from the machine itself and from a client, so that what Landfall promises of it
//! holds.
//!
//! ```text
//!   client's namespace ── veth ── the test's namespace, a node: API server, kube-proxy, Landfall,
//!     10.79.0.2                   backends (10.77.1.x), addresses of Services (10.77.200.x)
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use landfall_testkit::cluster::Program;

use crate::bed::{Bed, DEADLINE, LOOK, address, only, text};
use crate::network::{Range, inside};
use crate::replica::Replica;
use crate::traffic::{self, Backend, ask};

const NODE: &str = "
apiVersion: v1
kind: Node
metadata: {name: node-1}
";

/// Served by another controller, whose addresses nodes deliver to by themselves: it shows that
/// they do.
const CONTROL: &str = "
apiVersion: v1
kind: Service
metadata: {name: control}
spec:
  type: LoadBalancer
  loadBalancerClass: example.com/other
  ports: [{name: web, port: 80, targetPort: 8000}]
";

const CONTROL_ADDRESS: &str = "10.77.201.1";

/// How often each of the two asks.
const ASKED: usize = 20;

/// A program that ends with the test.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A network namespace with one way out: through the node.
struct Client(Running);

impl Client {
    fn start() -> Self {
        let holder = Running::start(Command::new("unshare").args(["--net", "sleep", "infinity"]));
        let client = Self(holder);
        let pid = client.0.0.id().to_string();
        let own = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).ok();
        let began = Instant::now();
        while own(&pid) == own("self") {
            assert!(began.elapsed() < DEADLINE, "no namespace for the client");
        }
        sh(&format!(
            "ip link add to-client type veth peer name to-node netns {pid}
             ip address add 10.79.0.1/24 dev to-client
             ip link set to-client up"
        ));
        let script = "ip link set lo up
             ip address add 10.79.0.2/24 dev to-node
             ip link set to-node up
             ip route add default via 10.79.0.1";
        let output = client.command(script).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        client
    }

    fn command(&self, script: &str) -> Command {
        let namespace = format!("--net=/proc/{}/ns/net", self.0.0.id());
        let mut command = Command::new("nsenter");
        command.args([&namespace, "bash", "-ec", script]);
        command
    }

    /// The member that answers at an address; empty: none.
    async fn ask(&self, to: SocketAddr) -> String {
        let script = format!(
            "exec 3<>/dev/tcp/{}/{}; printf '?' >&3; timeout 20 cat <&3",
            to.ip(),
            to.port()
        );
        let command = self.command(&script);
        let output = tokio::process::Command::from(command).output().await;
        String::from_utf8(output.unwrap().stdout).unwrap()
    }
}

fn sh(script: &str) {
    let output = Command::new("sh").args(["-euc", script]).output().unwrap();
    assert!(output.status.success(), "{script}: {output:?}");
}

fn kube_proxy(bed: &Bed) -> Running {
    let kubeconfig = bed.cluster.identity("system:kube-proxy", &[]).unwrap();
    let log = std::fs::File::create(bed.cluster.directory().join("kube-proxy.log")).unwrap();
    let mut command = Command::new(bed.cluster.program(Program::Proxy));
    command
        .args(["--kubeconfig", text(&kubeconfig)])
        .args(["--proxy-mode=nftables", "--hostname-override=node-1"])
        .args(["--cluster-cidr=10.77.1.0/24", "--conntrack-max-per-core=0"])
        .args(["--conntrack-tcp-timeout-established=0"])
        .args(["--conntrack-tcp-timeout-close-wait=0"])
        .args(["--healthz-bind-address=127.0.0.1:10256"])
        .args(["--metrics-bind-address=127.0.0.1:10249"])
        .stderr(log);
    Running::start(&mut command)
}

fn slice(service: &str, members: &[&str]) -> String {
    let mut endpoints = String::new();
    for member in members {
        let _ = writeln!(
            endpoints,
            "- {{addresses: [{member}], conditions: {{ready: true}}}}"
        );
    }
    format!(
        "---\n\
        apiVersion: discovery.k8s.io/v1\n\
        kind: EndpointSlice\n\
        addressType: IPv4\n\
        metadata:\n  \
        name: {service}-1\n  \
        labels: {{kubernetes.io/service-name: {service}}}\n\
        ports: [{{name: web, port: 8000}}]\n\
        endpoints:\n\
        {endpoints}"
    )
}

fn service(name: &str, annotations: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n  \
         annotations: {{{annotations}}}\nspec:\n  type: LoadBalancer\n  \
         ports: [{{name: web, port: 80, targetPort: 8000}}]\n"
    )
}

/// A metric of one Service.
async fn metric(replica: &Replica, name: &str, service: &str) -> f64 {
    let (_, text) = traffic::http(replica.admin, "/metrics").await.unwrap();
    let label = format!("service=\"{service}\"");
    let mut lines = text.lines();
    let line = lines.find(|line| line.starts_with(&format!("{name}{{")) && line.contains(&label));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
        .unwrap_or(0.0)
}

async fn until_metric(replica: &Replica, name: &str, service: &str, wanted: f64) {
    let began = Instant::now();
    loop {
        let found = metric(replica, name, service).await;
        if found >= wanted {
            return;
        }
        assert!(began.elapsed() < DEADLINE, "{name} of {service} is {found}");
        tokio::time::sleep(LOOK).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_root_beside_kube_proxy_every_connection_goes_through_the_listener() {
    const NAME: &str =
        "kube_proxy::as_root_beside_kube_proxy_every_connection_goes_through_the_listener";
    if !inside(NAME).await {
        return;
    }
    sh("sysctl -qw net.ipv4.ip_forward=1");
    let client = Client::start();
    let bed = Bed::open("kube-proxy").await;
    bed.kubectl().apply(NODE).await.unwrap();
    let node = r#"{"status": {"addresses": [{"type": "InternalIP", "address": "10.77.0.1"}]}}"#;
    let patch = ["patch", "node", "node-1", "--subresource=status", "-p"];
    bed.kubectl()
        .run(&[&patch[..], &[node]].concat())
        .await
        .unwrap();
    let _kube_proxy = kube_proxy(&bed);
    let at = |address: &str| SocketAddr::new(address.parse().unwrap(), 8000);
    let _one = Backend::start("one", at("10.77.1.1")).await;
    let _two = Backend::start("two", at("10.77.1.2")).await;
    let _literal = Backend::start("literal", at("10.77.1.3")).await;
    let admin = Range::claim().admin(1);
    let replica = Replica::alone(&bed, admin, &only("10.77.200.0/28")).await;

    let manifests = [
        service(
            "weighted",
            "landfall.dev/member-weights: \"10.77.1.1=3,10.77.1.2=1\"",
        ),
        slice("weighted", &["10.77.1.1", "10.77.1.2"]),
        service("literal", "landfall.dev/endpoints: \"10.77.1.3:8000\""),
        service(
            "checked",
            "landfall.dev/monitor: tcp, landfall.dev/monitor-delay: 200ms",
        ),
        // Nothing listens on the second.
        slice("checked", &["10.77.1.1", "10.77.1.9"]),
        service("limited", "landfall.dev/connection-limit: \"1\""),
        slice("limited", &["10.77.1.1"]),
    ];
    bed.apply(&manifests.concat()).await;
    let names = ["weighted", "literal", "checked", "limited"];
    bed.programmed(&names).await;
    let mut targets = BTreeMap::new();
    for name in names {
        let service = bed.service(name).await;
        let held = address(&service).unwrap().parse().unwrap();
        targets.insert(name, SocketAddr::new(held, 80));
    }

    // What comes later in the same stream of events is in the nodes' rules by now, and so are
    // these.
    bed.apply(&format!("{CONTROL}{}", slice("control", &["10.77.1.2"])))
        .await;
    let mode = format!(
        r#"{{"status": {{"loadBalancer": {{"ingress": [
            {{"ip": "{CONTROL_ADDRESS}", "ipMode": "VIP"}}]}}}}}}"#
    );
    bed.run(&[
        "patch",
        "service",
        "control",
        "--subresource=status",
        "-p",
        &mode,
    ])
    .await;
    let control = SocketAddr::new(CONTROL_ADDRESS.parse().unwrap(), 80);
    let began = Instant::now();
    while ask(control).await.ok().as_deref() != Some("two") || client.ask(control).await != "two" {
        let log = bed.cluster.directory().join("kube-proxy.log");
        let log = std::fs::read_to_string(log).unwrap_or_default();
        assert!(began.elapsed() < DEADLINE, "kube-proxy does nothing: {log}");
        tokio::time::sleep(LOOK).await;
    }

    // Counters and weights.
    let mut answers: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..ASKED {
        *answers
            .entry(ask(targets["weighted"]).await.unwrap())
            .or_default() += 1;
        *answers
            .entry(client.ask(targets["weighted"]).await)
            .or_default() += 1;
    }
    let expected = [("one", ASKED * 2 / 4 * 3), ("two", ASKED * 2 / 4)];
    let expected = expected.map(|(name, count)| (name.to_owned(), count));
    assert_eq!(answers, expected.into());
    let connections = "landfall_listener_connections_total";
    let counted = metric(&replica, connections, "weighted").await;
    assert!((counted - 40.0).abs() < 0.5, "{counted} were counted");

    // Endpoints that only the Service names: kube-proxy knows of none.
    assert_eq!(ask(targets["literal"]).await.unwrap(), "literal");
    assert_eq!(client.ask(targets["literal"]).await, "literal");

    // Monitors.
    let began = Instant::now();
    while !members_down(&replica, "checked").await {
        assert!(
            began.elapsed() < DEADLINE,
            "10.77.1.9 is not found to be down"
        );
        tokio::time::sleep(LOOK).await;
    }
    for _ in 0..ASKED {
        assert_eq!(ask(targets["checked"]).await.unwrap(), "one");
        assert_eq!(client.ask(targets["checked"]).await, "one");
    }

    // Limits: while one connection is open, the next one waits.
    let first = tokio::net::TcpStream::connect(targets["limited"])
        .await
        .unwrap();
    until_metric(
        &replica,
        "landfall_listener_connections_open",
        "limited",
        1.0,
    )
    .await;
    let waiting = async { client.ask(targets["limited"]).await };
    let freeing = async {
        let open = metric(&replica, "landfall_listener_connections_open", "limited").await;
        assert!(open < 1.5, "{open} are open");
        drop(first);
    };
    let (answer, ()) = tokio::join!(waiting, freeing);
    assert_eq!(answer, "one");
    let counted = metric(&replica, connections, "limited").await;
    assert!((counted - 2.0).abs() < 0.5, "{counted} were counted");
}

/// Whether a member of the Service fails its checks.
async fn members_down(replica: &Replica, service: &str) -> bool {
    let (_, text) = traffic::http(replica.admin, "/metrics").await.unwrap();
    let mut lines = text.lines();
    lines.any(|line| {
        line.starts_with("landfall_listener_members{")
            && line.contains(&format!("service=\"{service}\""))
            && line.contains("health=\"down\"")
            && line.ends_with(" 1")
    })
}
