//! Speakers on three nodes, each a network namespace with the real kube-proxy, and a client on the
//! same bridge.
//!
//! ```text
//!   the test's namespace: API server, backends (10.77.1.x), bridge 10.78.0.254
//!        │ bridge
//!   ┌────┴─────┬─────────┬──────────┐
//!   node-1   node-2   node-3     client          addresses of Services: 10.78.0.200/30
//!   .1       .2       .3         .100
//! ```

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use landfall_testkit::cluster::{Audit, Options, Program};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;

use crate::bed::{Bed, DEADLINE, LOOK, text, writes};
use crate::load::Load;
use crate::metal::object;
use crate::network::{Range, inside};
use crate::replica::{Replica, landfall};
use crate::selection::at_rest;
use crate::traffic::Backend;

const DEFINITIONS: &str = include_str!("../../../../deploy/crds.yaml");
pub const ROLES: &str = include_str!("../../../../deploy/speaker.yaml");
const USER: &str = "system:serviceaccount:landfall-system:landfall-speaker";
pub const HUB: &str = "10.78.0.254";
pub const ADDRESS: &str = "10.78.0.200";

/// A program that ends with the test.
pub struct Running(Child);

impl Running {
    pub fn start(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        Self(command.spawn().unwrap())
    }

    /// Ends it as a crash does.
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn sh(script: &str) {
    let output = Command::new("sh").args(["-euc", script]).output().unwrap();
    assert!(output.status.success(), "{script}: {output:?}");
}

/// A network namespace with an interface `eth0` on the bridge.
pub struct Host {
    holder: Running,
    name: String,
}

impl Host {
    pub fn start(name: &str, address: &str) -> Self {
        let holder = Running::start(Command::new("unshare").args(["--net", "sleep", "infinity"]));
        let host = Self {
            holder,
            name: name.to_owned(),
        };
        let pid = host.holder.0.id().to_string();
        let own = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).ok();
        let began = Instant::now();
        while own(&pid) == own("self") {
            assert!(began.elapsed() < DEADLINE, "no namespace for {name}");
        }
        sh(&format!(
            "ip link add {name} type veth peer name eth0 netns {pid}
             ip link set {name} master br0 up"
        ));
        let script = format!(
            "ip link set lo up
             ip address add {address}/24 dev eth0
             ip link set eth0 up
             ip route add default via {HUB}
             sysctl -qw net.ipv4.ip_forward=1"
        );
        let output = host
            .command("bash")
            .args(["-ec", &script])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        host
    }

    /// A program inside.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args([self.namespace(), program.to_owned()]);
        command
    }

    /// The MAC address of the node.
    pub fn mac(&self) -> String {
        let mut show = self.command("ip");
        let shown = show.args(["-o", "link", "show", "eth0"]).output().unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        let mut words = shown.split(' ').skip_while(|word| *word != "link/ether");
        words.nth(1).unwrap().to_owned()
    }

    /// Holds a port of the node on all of its addresses.
    pub fn occupy(&self, port: u16) -> TcpListener {
        let namespace = self.network();
        let open = move || {
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.as_fd(), network).unwrap();
            TcpListener::bind(("0.0.0.0", port)).unwrap()
        };
        std::thread::spawn(open).join().unwrap()
    }

    /// Answers inside, at an address of this host alone, with the address of the client.
    fn answer_with_source(&self, at: SocketAddr) {
        let add = format!("ip address add {}/32 dev lo", at.ip());
        let output = self.command("bash").args(["-ec", &add]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let namespace = self.network();
        let (opened, open) = std::sync::mpsc::channel();
        // It ends with the process.
        std::thread::spawn(move || {
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.as_fd(), network).unwrap();
            let listener = TcpListener::bind(at).unwrap();
            opened.send(()).unwrap();
            while let Ok((mut connection, client)) = listener.accept() {
                // A client that has gone already needs no answer.
                let _ = connection.set_read_timeout(Some(Duration::from_secs(1)));
                let _ = connection.read(&mut [0; 1]);
                let _ = write!(connection, "{}", client.ip());
            }
        });
        open.recv().unwrap();
    }

    pub fn network(&self) -> File {
        File::open(format!("/proc/{}/ns/net", self.holder.0.id())).unwrap()
    }

    fn namespace(&self) -> String {
        format!("--net=/proc/{}/ns/net", self.holder.0.id())
    }

    /// Nothing arrives and nothing leaves any more.
    pub fn cut(&self) {
        sh(&format!("ip link set {} down", self.name));
    }

    pub fn heal(&self) {
        sh(&format!("ip link set {} up", self.name));
    }
}

/// A node with its programs.
pub struct Node {
    pub host: Host,
    pub speaker: Running,
    _kube_proxy: Running,
    pub log: PathBuf,
}

impl Node {
    /// `config`: landfall.yaml, where speakers serve addresses themselves.
    pub fn start(bed: &Bed, number: usize, config: Option<&str>) -> Self {
        let name = format!("node-{number}");
        let address = format!("10.78.0.{number}");
        let host = Host::start(&name, &address);
        let log = |of: &str| bed.cluster.directory().join(format!("{of}-{name}.log"));
        let kubeconfig = from_nodes(bed, "system:kube-proxy", &[]);
        let kube_proxy = Running::start(
            host.command(text(bed.cluster.program(Program::Proxy)))
                .args(["--kubeconfig", text(&kubeconfig)])
                .args([
                    "--proxy-mode=nftables",
                    &format!("--hostname-override={name}"),
                ])
                .args(["--cluster-cidr=10.77.1.0/24", "--conntrack-max-per-core=0"])
                .args(["--conntrack-tcp-timeout-established=0"])
                .args(["--conntrack-tcp-timeout-close-wait=0"])
                .args(["--healthz-bind-address=127.0.0.1:10256"])
                .args(["--metrics-bind-address=127.0.0.1:10249"])
                .stderr(std::fs::File::create(log("kube-proxy")).unwrap()),
        );
        let (speaker, log) = (Self::speak(bed, &host, number, config), log("speaker"));
        Self {
            host,
            speaker,
            _kube_proxy: kube_proxy,
            log,
        }
    }

    /// The speaker is started as its container is: not as root, with the capability `NET_RAW`, and
    /// no other unless it serves addresses itself.
    pub fn speak(bed: &Bed, host: &Host, number: usize, config: Option<&str>) -> Running {
        Self::speak_with(bed, host, number, config, &[])
    }

    /// The same with further arguments.
    pub fn speak_with(
        bed: &Bed,
        host: &Host,
        number: usize,
        config: Option<&str>,
        more: &[&str],
    ) -> Running {
        let keys = bed.write("keys", "the key of these speakers\n");
        let kubeconfig = from_nodes(bed, USER, &["system:serviceaccounts"]);
        let name = format!("node-{number}");
        let log = bed.cluster.directory().join(format!("speaker-{name}.log"));
        let log = std::fs::File::options().create(true).append(true).open(log);
        let mut command = host.command("setpriv");
        let capabilities = if config.is_some() {
            "-all,+net_raw,+net_admin,+net_bind_service"
        } else {
            "-all,+net_raw"
        };
        command
            .arg(format!("--bounding-set={capabilities}"))
            .args(["--reuid=65532", "--regid=65532", "--clear-groups"])
            .args(["--inh-caps=-all", "--no-new-privs"])
            .arg(capable(bed))
            .args(["speaker", "--kubeconfig", text(&kubeconfig)])
            .args(["--node-name", &name])
            .args(["--node-address", &format!("10.78.0.{number}")])
            .args(["--metallb-namespace", "metallb-system"])
            .args(["--membership-key-file", text(&keys)])
            .args(["--admin", "127.0.0.1:9641", "--log-format", "json"])
            .args(more)
            .current_dir(bed.cluster.directory())
            .stderr(log.unwrap());
        if let Some(config) = config {
            let config = bed.write("speakers.yaml", config);
            command.args(["--config", text(&config)]);
        }
        Running::start(&mut command)
    }
}

/// A copy of the program as the image has it: its file permits capabilities.
fn capable(bed: &Bed) -> PathBuf {
    let directory = bed.cluster.directory();
    let copy = directory.join("landfall-of-image");
    if !copy.exists() {
        std::fs::copy(landfall(directory).get_program(), &copy).unwrap();
        let permitted = "cap_net_bind_service,cap_net_admin,cap_net_raw,cap_sys_nice+p";
        let mut setcap = Command::new("setcap");
        assert!(setcap.arg(permitted).arg(&copy).status().unwrap().success());
        // Another user finds it, and what it is to read.
        let passable = std::fs::Permissions::from_mode(0o711);
        std::fs::set_permissions(directory, passable).unwrap();
    }
    copy
}

/// A kubeconfig that works from nodes.
pub fn from_nodes(bed: &Bed, user: &str, groups: &[&str]) -> PathBuf {
    let local = bed.cluster.identity(user, groups).unwrap();
    let config = std::fs::read_to_string(&local).unwrap();
    let name = format!("{}-of-nodes", local.file_stem().unwrap().to_str().unwrap());
    bed.write(
        &name,
        &config.replace("https://127.0.0.1:", &format!("https://{HUB}:")),
    )
}

/// Asks all the time for the member that answers, and notes when it got an answer.
pub struct Client {
    pub host: Host,
    program: Option<Running>,
    answers: PathBuf,
}

impl Client {
    pub fn start(bed: &Bed) -> Self {
        Self {
            host: Host::start("client", "10.78.0.100"),
            program: None,
            answers: bed.cluster.directory().join("answers"),
        }
    }

    /// Waits until one connection after the other is answered so; `None`: is not answered.
    async fn until_answered(&self, expected: Option<&str>) {
        let script = format!("exec 3<>/dev/tcp/{ADDRESS}/80 && printf ? >&3 && cat <&3");
        let began = Instant::now();
        loop {
            let mut command = self.host.command("timeout");
            let output = command.args(["2", "bash", "-c", &script]).output().unwrap();
            let answer = String::from_utf8(output.stdout).unwrap();
            if answer == expected.unwrap_or_default() {
                return;
            }
            assert!(began.elapsed() < DEADLINE, "{expected:?}: {answer:?}");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Connects a thousand times a second from now on.
    pub fn load(&self) -> Load {
        let to = SocketAddr::new(ADDRESS.parse().unwrap(), 80);
        Load::start(self.host.network(), to)
    }

    /// From now on each answer is noted with its time in microseconds.
    pub fn ask_on(&mut self) {
        // Each loop ends with the program that began it.
        let script = format!(
            "ask() {{ while kill -0 $$ 2>/dev/null; do
               if answer=$(timeout 0.4 bash -c 'exec 3<>/dev/tcp/{ADDRESS}/80
                 printf ? >&3; cat <&3' 2>/dev/null) && [ -n \"$answer\" ]; then
                 echo \"${{EPOCHREALTIME/./}} $answer\" >> {}
               fi
             done; }}
             for one in 1 2 3; do ask & sleep 0.1; done; ask",
            self.answers.display()
        );
        let mut command = self.host.command("bash");
        self.program = Some(Running::start(command.args(["-c", &script])));
    }

    pub fn answers(&self) -> Vec<u64> {
        let text = std::fs::read_to_string(&self.answers).unwrap_or_default();
        let times = text.lines();
        let times = times.filter_map(|line| line.split(' ').next()?.parse().ok());
        let mut times: Vec<u64> = times.collect();
        times.sort_unstable();
        times
    }

    pub async fn more(&self, than: usize) -> usize {
        let began = Instant::now();
        loop {
            let count = self.answers().len();
            if count > than {
                return count;
            }
            if began.elapsed() > DEADLINE {
                let look = format!(
                    "ip neigh; timeout 2 bash -c 'exec 3<>/dev/tcp/{ADDRESS}/80; cat <&3'; ip neigh"
                );
                let seen = self.host.command("bash").args(["-c", &look]).output();
                let folder = self.answers.parent().unwrap();
                for number in 1..=3 {
                    for of in ["speaker", "kube-proxy"] {
                        let log = read(&folder.join(format!("{of}-node-{number}.log")));
                        eprintln!("{of} {number}: {log}");
                    }
                }
                panic!("nothing answers at {ADDRESS}: {seen:?}");
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The longest time between two answers since this many.
    pub fn longest_gap(&self, since: usize) -> Duration {
        let answers = self.answers();
        let later = answers.get(since.saturating_sub(1)..).unwrap_or_default();
        let gaps = later.windows(2).map(|pair| pair[1] - pair[0]);
        Duration::from_micros(gaps.max().unwrap_or(0))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.program.take();
    }
}

/// The nodes that say that they announce a Service.
async fn announcers(bed: &Bed) -> BTreeSet<String> {
    let list = ["-n", "metallb-system", "servicel2statuses"];
    let list = bed.kubectl().get(&list).await.unwrap();
    let items: &[Value] = list["items"].as_array().map_or(&[], Vec::as_slice);
    let nodes = items.iter().filter_map(|it| it["status"]["node"].as_str());
    nodes.map(str::to_owned).collect()
}

/// How often the process of a node began to take part in announcing addresses.
fn starts(node: &Node) -> usize {
    read(&node.log).matches("takes part in announcing").count()
}

/// Waits until each node takes part once more than `before`: one that does not know the cluster yet
/// takes nothing over.
pub async fn until_taking_part(nodes: &[Node], before: &[usize]) {
    let began = Instant::now();
    for (node, before) in nodes.iter().zip(before) {
        while starts(node) == *before {
            assert!(began.elapsed() < DEADLINE, "{}", read(&node.log));
            tokio::time::sleep(LOOK).await;
        }
    }
}

pub async fn until_announced(bed: &Bed, met: impl Fn(&BTreeSet<String>) -> bool) -> String {
    let began = Instant::now();
    loop {
        let nodes = announcers(bed).await;
        if met(&nodes) {
            return nodes.into_iter().next().unwrap();
        }
        if began.elapsed() > DEADLINE {
            for number in 1..=3 {
                let log = format!("speaker-node-{number}.log");
                let log = std::fs::read_to_string(bed.cluster.directory().join(log));
                eprintln!("node-{number}: {}", log.unwrap_or_default());
            }
            panic!("announced by {nodes:?}");
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// A cluster whose API server nodes on a bridge reach.
pub async fn bed(name: &str) -> Bed {
    sh(&format!(
        "sysctl -qw net.ipv4.ip_forward=1
         ip link add br0 type bridge
         ip address add {HUB}/24 dev br0
         ip link set br0 up"
    ));
    let options = Options {
        bind: "0.0.0.0".parse().unwrap(),
        names: vec![HUB.to_owned()],
        ..Options::default()
    };
    Bed::with(name, options).await
}

/// Resources, nodes, and a Service of a class that holds an address of a mode.
pub async fn prepare(bed: &Bed, class: &str, mode: &str) {
    let kubectl = bed.kubectl();
    kubectl.apply(DEFINITIONS).await.unwrap();
    let established = ["--for=condition=Established", "--timeout=60s"];
    kubectl
        .run(&[&["wait", "crd", "--all"], &established[..]].concat())
        .await
        .unwrap();
    let home = "apiVersion: v1\nkind: Namespace\nmetadata: {name: metallb-system}\n---\n";
    kubectl.apply(&[home, ROLES].concat()).await.unwrap();
    let mut nodes = String::new();
    for number in 1..=3 {
        let _ = writeln!(
            nodes,
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: node-{number}}}"
        );
    }
    kubectl.apply(&nodes).await.unwrap();
    for number in 1..=3 {
        let status = format!(
            r#"{{"status": {{"addresses": [
                {{"type": "InternalIP", "address": "10.78.0.{number}"}}]}}}}"#
        );
        let name = format!("node-{number}");
        let patch = [
            "patch",
            "node",
            &name,
            "--subresource=status",
            "-p",
            &status,
        ];
        kubectl.run(&patch).await.unwrap();
    }
    let namespace = "metallb-system";
    let pool = object(
        "IPAddressPool",
        "lan",
        namespace,
        "{addresses: [10.78.0.200/30]}",
    );
    let advertisement = object("L2Advertisement", "all", namespace, "{}");
    kubectl
        .apply(&[pool, advertisement].concat())
        .await
        .unwrap();
    bed.apply(&format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\nspec:\n  type: LoadBalancer\n  \
         loadBalancerClass: {class}\n  ports: [{{name: web, port: 80, targetPort: 8000}}]\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\nmetadata:\n  \
         name: web-1\n  labels: {{kubernetes.io/service-name: web}}\n\
         ports: [{{name: web, port: 8000}}]\n\
         endpoints: [{{addresses: [10.77.1.1], conditions: {{ready: true}}}}]\n"
    ))
    .await;
    let status = format!(
        r#"{{"status": {{"loadBalancer": {{"ingress": [
            {{"ip": "{ADDRESS}", "ipMode": "{mode}"}}]}}}}}}"#
    );
    bed.run(&[
        "patch",
        "service",
        "web",
        "--subresource=status",
        "-p",
        &status,
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_root_another_speaker_answers_when_the_owner_of_an_address_is_gone() {
    const NAME: &str =
        "speakers::as_root_another_speaker_answers_when_the_owner_of_an_address_is_gone";
    if !inside(NAME).await {
        return;
    }
    let bed = bed("speakers").await;
    prepare(&bed, "metallb", "VIP").await;
    let _backend = Backend::start("one", SocketAddr::from(([10, 77, 1, 1], 8000))).await;
    let mut nodes: Vec<Node> = (1..=3)
        .map(|number| Node::start(&bed, number, None))
        .collect();
    let mut client = Client::start(&bed);
    until_taking_part(&nodes, &[0; 3]).await;
    let owner = until_announced(&bed, |nodes| nodes.len() == 1).await;
    client.ask_on();
    client.more(10).await;

    // The node is gone, with the API server, under a thousand connections a second.
    let load = client.load();
    load.answered(100, Instant::now()).await;
    bed.cluster.freeze_api_server().unwrap();
    let before = client.answers().len();
    let cut = Instant::now();
    nodes[index(&owner)].host.cut();
    client.more(before + 20).await;
    load.answered(100, cut).await;
    // A full run sets LANDFALL_TEST_OUTAGE=60.
    let outage = std::env::var("LANDFALL_TEST_OUTAGE");
    let outage = Duration::from_secs(outage.map_or(0, |text| text.parse().unwrap()));
    tokio::time::sleep(outage.saturating_sub(cut.elapsed())).await;
    load.answered(100, Instant::now()).await;
    eprintln!(
        "owner cut off: {:?} without an answer; {}",
        client.longest_gap(before),
        load.failed(cut)
    );
    drop(load);
    bed.cluster.thaw_api_server().unwrap();
    let second = until_announced(&bed, |nodes| nodes.len() == 1 && !nodes.contains(&owner)).await;

    // It comes back, and with it the address.
    nodes[index(&owner)].host.heal();
    until_announced(&bed, |nodes| nodes.len() == 1 && nodes.contains(&owner)).await;
    assert_ne!(owner, second);

    // A planned end: the node goes on forwarding.
    let before = client.answers().len();
    nodes[index(&owner)].speaker.signal(Signal::TERM);
    until_announced(&bed, |nodes| nodes.len() == 1 && nodes.contains(&second)).await;
    client.more(before + 20).await;
    eprintln!(
        "owner stopped: {:?} without an answer",
        client.longest_gap(before)
    );

    // A restart finds its status object, or takes the address back.
    let number = index(&owner) + 1;
    let restarted = Node::speak(&bed, &nodes[index(&owner)].host, number, None);
    nodes[index(&owner)].speaker = restarted;
    until_announced(&bed, |nodes| nodes.len() == 1 && nodes.contains(&owner)).await;
    let log = read(&nodes[index(&owner)].log);
    assert!(
        !log.contains("panicked") && !log.contains("orbidden"),
        "{log}"
    );
    deliver_by_ranges_and_policy(&bed, &nodes, &client, &owner).await;
    fail_over_by_leases(&bed, &mut nodes, &owner).await;
    count_writes(&bed).await;
}

/// What kube-proxy does with the packets that speakers attract: source ranges, and both traffic
/// policies.
async fn deliver_by_ranges_and_policy(bed: &Bed, nodes: &[Node], client: &Client, owner: &str) {
    let patch = async |kind: &str, name: &str, patch: String| {
        bed.run(&["patch", kind, name, "--type=merge", "-p", &patch])
            .await;
    };
    for (ranges, answer) in [
        (r#"["10.78.0.0/30"]"#, None),
        (r#"["10.78.0.100/32"]"#, Some("one")),
        (r#"["10.78.0.0/30"]"#, None),
        ("null", Some("one")),
    ] {
        let ranges = format!(r#"{{"spec":{{"loadBalancerSourceRanges":{ranges}}}}}"#);
        patch("service", "web", ranges).await;
        client.until_answered(answer).await;
    }

    let endpoint = |address: &str, node: Option<&str>| {
        let node = node.map_or("null".to_owned(), |node| format!("{node:?}"));
        format!(
            r#"{{"endpoints":[{{"addresses":["{address}"],"conditions":{{"ready":true}},
                "nodeName":{node}}}]}}"#
        )
    };
    let policy = |policy: &str| format!(r#"{{"spec":{{"externalTrafficPolicy":"{policy}"}}}}"#);
    for number in [2, 3] {
        let (node, address) = (format!("node-{number}"), [10, 77, 2, number]);
        let at = SocketAddr::from((address, 8000));
        nodes[index(&node)].host.answer_with_source(at);
        let pod = at.ip().to_string();
        patch("endpointslice", "web-1", endpoint(&pod, Some(&node))).await;
        patch("service", "web", policy("Local")).await;
        until_announced(bed, |nodes| nodes.len() == 1 && nodes.contains(&node)).await;
        // With this policy the client's address arrives.
        client.until_answered(Some("10.78.0.100")).await;
    }
    patch("endpointslice", "web-1", endpoint("10.77.1.1", None)).await;
    patch("service", "web", policy("Cluster")).await;
    until_announced(bed, |nodes| nodes.len() == 1 && nodes.contains(owner)).await;
    client.until_answered(Some("one")).await;
}

/// What speakers need beside their role for membership by Leases.
const LEASES: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: speakers-leases}
rules:
  - {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [list, create, patch, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: speakers-leases}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: speakers-leases}
subjects: [{kind: ServiceAccount, name: landfall-speaker, namespace: landfall-system}]
";

/// Without datagrams, another node takes over when the Lease of the owner has ended.
async fn fail_over_by_leases(bed: &Bed, nodes: &mut [Node], owner: &str) {
    bed.kubectl().apply(LEASES).await.unwrap();
    let more = ["--membership=lease", "--lease-duration=4"];
    let mut before = Vec::new();
    for (place, node) in nodes.iter_mut().enumerate() {
        node.speaker.kill();
        before.push(starts(node));
        node.speaker = Node::speak_with(bed, &node.host, place + 1, None, &more);
    }
    until_taking_part(nodes, &before).await;
    until_announced(bed, |nodes| nodes.len() == 1 && nodes.contains(owner)).await;
    nodes[index(owner)].speaker.kill();
    let began = Instant::now();
    until_announced(bed, |nodes| nodes.len() == 1 && !nodes.contains(owner)).await;
    let after = began.elapsed();
    eprintln!("owner killed, Leases of 4 s: another one says so after {after:?}");
}

/// What a new Service costs with a controller and speakers.
async fn count_writes(bed: &Bed) {
    let config = "metallbNamespace: metallb-system\ninstances:\n  - name: metal\n    provider: \
                  metal\n    classNames: [metallb]\n";
    let replica = Replica::alone(bed, Range::claim().admin(1), config).await;
    bed.programmed(&["web"]).await;
    bed.apply(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\nmetadata:\n  \
         name: late-1\n  labels: {kubernetes.io/service-name: late}\n\
         ports: [{name: web, port: 8000}]\n\
         endpoints: [{addresses: [10.77.1.1], conditions: {ready: true}}]\n",
    )
    .await;
    at_rest(&replica).await;
    let audit = bed.cluster.audit();
    bed.apply(
        "apiVersion: v1\nkind: Service\nmetadata: {name: late}\nspec:\n  type: LoadBalancer\n  \
         loadBalancerClass: metallb\n  ports: [{name: web, port: 80, targetPort: 8000}]\n",
    )
    .await;
    let wanted = ["events", "servicel2statuses", "services/status"];
    let began = Instant::now();
    while written(&audit).len() < wanted.len() {
        assert!(began.elapsed() < DEADLINE, "{:?}", written(&audit));
        tokio::time::sleep(LOOK).await;
    }
    at_rest(&replica).await;
    assert_eq!(written(&audit), wanted);
    replica.stop().await;
}

/// The resources that the controller and the speakers wrote since, each as often as it was written.
fn written(audit: &Audit) -> Vec<String> {
    let mut written = writes(audit);
    written.extend(audit.writes_of(USER).unwrap());
    let mut written: Vec<String> = written.into_iter().map(|it| it.resource).collect();
    // How much of a pool is used is written once in a while, however many Services came.
    written.retain(|resource| resource != "ipaddresspools/status");
    written.sort_unstable();
    written
}

/// The place of a node among all.
pub fn index(node: &str) -> usize {
    node.rsplit('-').next().unwrap().parse::<usize>().unwrap() - 1
}

pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
