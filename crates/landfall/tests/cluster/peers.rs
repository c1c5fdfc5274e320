//! Speakers on three nodes that announce an address by BGP to two routers (FRR), which spread
//! connections over them: at first kube-proxy serves it on all, then the speakers themselves.
//!
//! ```text
//!   the test's namespace: API server, backend (10.77.1.1), bridge 10.78.0.254
//!        │ bridge
//!   ┌────┴─────┬──────────┬──────────┬──────────┐
//!   node-1   node-2     node-3     router     second (zebra and bgpd each, and a client)
//!   .1       .2         .3         .50        .51
//! ```

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Instant;

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::bed::{Bed, DEADLINE, LOOK, text};
use crate::network::inside;
use crate::plane::connections;
use crate::replica::landfall;
use crate::speakers::{ADDRESS, Host, Node, Running, bed, prepare, read};
use crate::traffic::Backend;

const CRDS: &str = include_str!("../../../../deploy/crds.yaml");
const ROUTER: &str = "10.78.0.50";
const SECOND: &str = "10.78.0.51";

/// The nodes.
const ALL: [&str; 3] = ["10.78.0.1", "10.78.0.2", "10.78.0.3"];

/// Without the second of them.
const OTHERS: [&str; 2] = ["10.78.0.1", "10.78.0.3"];

/// FRR with a kernel of its own for routes.
struct Router {
    host: Host,
    folder: TempDir,
    _programs: Vec<Running>,
}

impl Router {
    fn start(name: &str, address: &str) -> Self {
        let host = Host::start(name, address);
        // Connections of one client are spread, too.
        let by_ports = ["-qw", "net.ipv4.fib_multipath_hash_policy=1"];
        let set = host.command("sysctl").args(by_ports).status();
        assert!(set.unwrap().success());
        let folder = tempfile::tempdir().unwrap();
        let neighbor =
            |node| format!(" neighbor {node} remote-as 64500\n neighbor {node} passive\n");
        let neighbors = ALL.map(neighbor).concat();
        let bgpd = format!(
            "log stdout\nrouter bgp 64501\n bgp router-id {address}\n \
             no bgp ebgp-requires-policy\n{neighbors}"
        );
        let configs = [("zebra", "log stdout\n".to_owned()), ("bgpd", bgpd)];
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let mut programs = Vec::new();
        for (name, config) in configs {
            let file = folder.path().join(format!("{name}.conf"));
            std::fs::write(&file, config).unwrap();
            // It drops the rights of root before it opens its files.
            let owned = Command::new("chown")
                .args(["-R", "frr:frr", text(folder.path())])
                .status();
            assert!(owned.unwrap().success());
            let mut command = host.command(&format!("/usr/lib/frr/{name}"));
            command.args(["-u", "frr", "-g", "frr", "-f", text(&file)]);
            command.args(["-z", &at("zserv.api"), "--vty_socket", &at("")]);
            command.args(["-i", &at(&format!("{name}.pid"))]);
            let log = std::fs::File::create(folder.path().join(format!("{name}.log"))).unwrap();
            programs.push(Running::start(command.stderr(log)));
        }
        Self {
            host,
            folder,
            _programs: programs,
        }
    }

    fn vtysh(&self, commands: &[&str]) -> String {
        let mut command = self.host.command("vtysh");
        command.args(["--vty_socket", text(self.folder.path()), "-d", "bgpd"]);
        for line in commands {
            command.args(["-c", line]);
        }
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    }

    /// The nodes that it has a path to the address through, and whether one asks to be avoided.
    fn paths(&self) -> (Vec<String>, bool) {
        let shown = self.vtysh(&[&format!("show bgp ipv4 unicast {ADDRESS}/32 json")]);
        let shown: Value = serde_json::from_str(&shown).unwrap_or_default();
        let paths = shown["paths"].as_array().cloned().unwrap_or_default();
        let hop = |path: &Value| path["nexthops"][0]["ip"].as_str().map(str::to_owned);
        let mut hops: Vec<String> = paths.iter().filter_map(hop).collect();
        hops.sort();
        let is_drained = |path: &Value| {
            let communities = path["community"]["string"].as_str().unwrap_or_default();
            communities.contains("graceful-shutdown") || communities.contains("65535:0")
        };
        (hops, paths.iter().any(is_drained))
    }

    /// From now on it begins the sessions.
    fn begin_sessions(&self) {
        self.configure(|node| format!("no neighbor {node} passive"));
        self.configure(|node| format!("neighbor {node} timers connect 1"));
    }

    /// Changes something for each node.
    fn configure(&self, change: impl Fn(&str) -> String) {
        let changes = ALL.map(change);
        let mut lines = vec!["configure terminal", "router bgp 64501"];
        lines.extend(changes.iter().map(String::as_str));
        self.vtysh(&lines);
    }

    /// The ports of the nodes in its sessions.
    fn ports(&self) -> Vec<Value> {
        let shown = self.vtysh(&["show bgp neighbors json"]);
        let shown: Value = serde_json::from_str(&shown).unwrap_or_default();
        let neighbors = shown.as_object().into_iter().flatten();
        let established = neighbors.filter(|(_, it)| it["bgpState"] == "Established");
        established
            .map(|(_, it)| it["portForeign"].clone())
            .collect()
    }

    /// What its kernel does with packets to the address.
    fn kernel(&self) -> String {
        let mut command = self.host.command("ip");
        let output = command.args(["route", "show", ADDRESS]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Asks for the member that answers.
    fn ask(&self) -> String {
        let script =
            format!("exec 3<>/dev/tcp/{ADDRESS}/80; printf ? >&3; timeout 2 cat <&3 || true");
        let mut command = self.host.command("timeout");
        let output = command.args(["3", "bash", "-c", &script]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }
}

/// BIRD beside FRR, with BFD alone, which takes packets with the key of a Secret only.
struct Bird {
    folder: TempDir,
    _program: Running,
}

impl Bird {
    fn start(host: &Host) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let neighbors = ALL.map(|node| format!("neighbor {node} dev \"eth0\";"));
        let config = format!(
            "router id {SECOND};\nprotocol device {{}}\nprotocol bfd {{ interface \"eth0\" {{ \
             interval 500 ms; multiplier 10; authentication meticulous keyed sha1; password \
             \"between us\" {{ id 7; }}; }};\n{} }}\n",
            neighbors.concat()
        );
        let file = folder.path().join("bird.conf");
        std::fs::write(&file, config).unwrap();
        let mut command = host.command("bird");
        command.args(["-f", "-c", text(&file), "-s"]);
        let log = std::fs::File::create(folder.path().join("bird.log")).unwrap();
        let command = command.arg(folder.path().join("bird.ctl")).stderr(log);
        Self {
            _program: Running::start(command),
            folder,
        }
    }

    /// Its sessions, and their states.
    fn sessions(&self) -> String {
        let mut command = Command::new("birdc");
        command.arg("-s").arg(self.folder.path().join("bird.ctl"));
        let output = command.args(["show", "bfd", "sessions"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }
}

/// A key of BFD comes from a Secret that a profile names: BIRD takes the packets of each node.
async fn authenticate(bed: &Bed, second: &Router) {
    let secret = "apiVersion: v1\nkind: Secret\ntype: kubernetes.io/basic-auth\nmetadata: {name: \
                  bfd, namespace: metallb-system}\nstringData: {username: x, password: between \
                  us}\n";
    // A busy machine must not end a session.
    let spec = "{transmitInterval: 500, receiveInterval: 500, detectMultiplier: 10}";
    let profile = object("BFDProfile", "v1beta1", "keyed", spec);
    let annotations = "metadata: {annotations: {landfall.dev/bfd-key-secret: bfd, \
                       landfall.dev/bfd-key-id: \"7\", landfall.dev/bfd-key-meticulous: \
                       \"true\"}, ";
    let profile = profile.replacen("metadata: {", annotations, 1);
    let watched = peer("tor-b", SECOND, ", bfdProfile: keyed");
    let bird = Bird::start(&second.host);
    let objects = [&profile, &watched, "---\n", secret].concat();
    bed.kubectl().apply(&objects).await.unwrap();
    until(bed, "BFD with the key of the Secret", || {
        let sessions = bird.sessions();
        let is_up = |node: &&str| {
            let mut lines = sessions.lines();
            lines.any(|it| it.starts_with(&format!("{node} ")) && it.contains(" Up "))
        };
        ALL.iter().all(is_up)
    })
    .await;
    let plain = peer("tor-b", SECOND, "");
    bed.kubectl().apply(&plain).await.unwrap();
}

async fn until(bed: &Bed, what: &str, mut met: impl FnMut() -> bool) {
    let began = Instant::now();
    while !met() {
        if began.elapsed() > DEADLINE {
            let folder = bed.cluster.directory();
            for number in 1..=ALL.len() {
                let log = format!("speaker-node-{number}.log");
                eprintln!("{log}: {}", read(&folder.join(&log)));
            }
            panic!("not in time: {what}");
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// What `landfall get` prints on a node.
fn get(bed: &Bed, node: &Node, kind: &str) -> String {
    asked(bed, node, &["get", kind])
}

/// What a command prints that asks the speaker of a node.
fn asked(bed: &Bed, node: &Node, arguments: &[&str]) -> String {
    let program = landfall(bed.cluster.directory());
    let mut command: Command = node.host.command(program.get_program().to_str().unwrap());
    command.args(arguments).args(["--admin", "127.0.0.1:9641"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn object(kind: &str, version: &str, name: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: metallb.io/{version}\nkind: {kind}\nmetadata: {{name: {name}, \
         namespace: metallb-system}}\nspec: {spec}\n"
    )
}

fn peer(name: &str, address: &str, more: &str) -> String {
    let spec =
        format!("{{myASN: 64500, peerASN: 64501, peerAddress: {address}, connectTime: 1s{more}}}");
    object("BGPPeer", "v1beta2", name, &spec)
}

/// Waits until each of these nodes has one object that names the routers of the Service.
async fn reported(bed: &Bed, wanted: &[(&str, &[&str])]) {
    let wanted: Vec<(Value, Value)> = wanted
        .iter()
        .map(|(node, peers)| (json!(node), json!(peers)))
        .collect();
    let began = Instant::now();
    loop {
        let list = ["-n", "metallb-system", "servicebgpstatuses.metallb.io"];
        let list = bed.kubectl().get(&list).await.unwrap();
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let said = items.iter().map(|it| &it["status"]);
        let mut said: Vec<(Value, Value)> = said
            .map(|it| (it["node"].clone(), it["peers"].clone()))
            .collect();
        said.sort_by_key(|(node, _)| node.to_string());
        if said == wanted {
            return;
        }
        assert!(began.elapsed() < DEADLINE, "{list:#}");
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits until the object of each session says that it is established, and no BFD is used.
async fn established(bed: &Bed) {
    let began = Instant::now();
    loop {
        let list = ["-n", "metallb-system", "bgpsessionstates.landfall.dev"];
        let list = bed.kubectl().get(&list).await.unwrap();
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let said = items.iter().map(|it| {
            let field = |name: &str| it["status"][name].as_str().unwrap_or_default().to_owned();
            ["node", "peer", "bgpStatus", "bfdStatus"].map(field)
        });
        let said: BTreeSet<_> = said.collect();
        let nodes = ["node-1", "node-2", "node-3"].into_iter();
        let wanted = nodes.flat_map(|node| {
            let of = |peer| [node, peer, "Established", "N/A"].map(str::to_owned);
            ["tor", "tor-b"].map(of)
        });
        if said == wanted.collect() {
            return;
        }
        assert!(began.elapsed() < DEADLINE, "{list:#}");
        tokio::time::sleep(LOOK).await;
    }
}

/// What landfall.yaml says of speakers that serve addresses themselves.
const SERVING: &str = "metallbNamespace: metallb-system\ninstances:\n- name: lan\n  \
                       provider: {kind: metal, dataPlane: landfall}\n  \
                       classNames: [metallb]\n";

/// Starts the speaker of a node that serves addresses itself, and lets routers begin sessions.
fn serve(bed: &Bed, nodes: &mut [Node], place: usize) {
    let listening = ["--bgp-listen", "179"];
    let node = &mut nodes[place];
    node.speaker.kill();
    node.speaker = Node::speak_with(bed, &node.host, place + 1, Some(SERVING), &listening);
}

/// Waits until both routers have a path through each of these nodes, and no other.
async fn through(bed: &Bed, what: &str, routers: &[Router; 2], nodes: &[&str]) {
    until(bed, what, || routers.iter().all(|it| it.paths().0 == nodes)).await;
}

/// Speakers that serve the address themselves do so on all nodes at once, and the router spreads
/// connections over them. The first router begins its sessions itself.
async fn serve_on_all(bed: &Bed, nodes: &mut [Node], routers: &[Router; 2]) {
    let status = format!(
        r#"{{"status": {{"loadBalancer": {{"ingress": [
            {{"ip": "{ADDRESS}", "ipMode": "Proxy"}}]}}}}}}"#
    );
    let patch = ["patch", "service", "web", "--subresource=status", "-p"];
    bed.run(&[&patch[..], &[&status]].concat()).await;
    let short = r#"{"spec": {"holdTime": "3s"}}"#;
    for (name, value) in [("tor", "true"), ("tor-b", "false")] {
        let passive = format!("landfall.dev/passive={value}");
        let annotate = [
            "-n",
            "metallb-system",
            "annotate",
            "bgppeer",
            name,
            &passive,
        ];
        bed.kubectl().run(&annotate).await.unwrap();
        let patch = ["-n", "metallb-system", "patch", "bgppeer", name];
        let patch = [&patch[..], &["--type=merge", "-p", short]].concat();
        bed.kubectl().run(&patch).await.unwrap();
    }
    until(bed, "a node that does not listen", || {
        get(bed, &nodes[1], "peers").contains("--bgp-listen")
    })
    .await;
    routers[0].begin_sessions();
    for place in 0..nodes.len() {
        serve(bed, nodes, place);
    }
    through(bed, "a path to each node", routers, &ALL).await;
    assert_eq!(routers[0].ports(), [179; ALL.len()]);
    until(bed, "connections on all nodes", || {
        routers[0].ask();
        nodes.iter().all(|node| connections(&node.host) > 0)
    })
    .await;
}

/// A speaker is killed while the API server is away, then its node is cut off, then the speaker of
/// another node ends: each time the address is reached through the others.
async fn lose_nodes(bed: &Bed, nodes: &mut [Node], routers: &[Router; 2]) {
    bed.cluster.freeze_api_server().unwrap();
    nodes[1].speaker.kill();
    through(bed, "two paths after a kill", routers, &OTHERS).await;
    assert_eq!(routers[1].ask(), "one");
    bed.cluster.thaw_api_server().unwrap();
    serve(bed, nodes, 1);
    through(bed, "three paths after a kill", routers, &ALL).await;

    nodes[1].host.cut();
    through(bed, "two paths after a cut", routers, &OTHERS).await;
    assert_eq!(routers[1].ask(), "one");
    nodes[1].host.heal();
    through(bed, "three paths after a cut", routers, &ALL).await;

    nodes[0].speaker.signal(Signal::TERM);
    through(bed, "two paths after a stop", routers, &ALL[1..]).await;
    assert_eq!(routers[0].ask(), "one");
}

/// A speaker explains what its node does; the cluster has what all of them do.
fn explained(bed: &Bed, node: &Node) {
    let web = format!("{}/web", bed.namespace);
    let line = |shown: &str, node: &str| {
        let line = shown.lines().find(|it| it.contains(node));
        line.unwrap_or_else(|| panic!("{shown}")).to_owned()
    };
    let shown = asked(bed, node, &["explain", &web]);
    let said = line(&shown, "node-1 ");
    assert!(said.contains("yes") && said.contains("tor"), "{shown}");
    let config = "instances:\n- {name: lan, provider: metal, classNames: [metallb]}\n";
    let config = bed.write("explain.yaml", config);
    let kubeconfig = bed.kubeconfig();
    let arguments = ["--kubeconfig", text(&kubeconfig), "--config", text(&config)];
    let mut command = landfall(bed.cluster.directory());
    let output = command.args(["explain", &web]).args(arguments).output();
    let shown = String::from_utf8(output.unwrap().stdout).unwrap();
    for node in ["node-1 ", "node-2 ", "node-3 "] {
        let said = line(&shown, node);
        assert!(
            said.contains("yes") && said.contains("10.78.0.200/32"),
            "{shown}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_root_a_router_spreads_connections_over_the_nodes_that_announce_an_address() {
    const NAME: &str =
        "peers::as_root_a_router_spreads_connections_over_the_nodes_that_announce_an_address";
    if !inside(NAME).await {
        return;
    }
    let bed = bed("peers").await;
    prepare(&bed, "metallb", "VIP").await;
    let layer2 = ["-n", "metallb-system", "delete", "l2advertisement", "all"];
    bed.kubectl().run(&layer2).await.unwrap();
    bed.kubectl().apply(CRDS).await.unwrap();
    let defined = [
        "wait",
        "--for=condition=Established",
        "--timeout=60s",
        "crd",
        "--all",
    ];
    bed.kubectl().run(&defined).await.unwrap();
    let _backend = Backend::start("one", SocketAddr::from(([10, 77, 1, 1], 8000))).await;
    let routers = [("router", ROUTER), ("second", SECOND)];
    let routers = routers.map(|(name, address)| Router::start(name, address));
    let router = &routers[0];
    let advertisement = object(
        "BGPAdvertisement",
        "v1beta1",
        "all",
        "{communities: [\"64500:7\"]}",
    );
    bed.kubectl()
        .apply(
            &[
                peer("tor", ROUTER, ""),
                peer("tor-b", SECOND, ""),
                advertisement,
            ]
            .concat(),
        )
        .await
        .unwrap();
    let mut nodes: Vec<Node> = (1..=ALL.len())
        .map(|number| Node::start(&bed, number, None))
        .collect();

    // All nodes, and connections work.
    let all = ALL.map(str::to_owned).to_vec();
    through(&bed, "three paths", &routers, &ALL).await;
    for router in &routers {
        until(&bed, "three next hops in the kernel", || {
            let kernel = router.kernel();
            let mut hops = ALL.iter();
            hops.all(|hop| kernel.contains(&format!("via {hop} ")))
        })
        .await;
        let what = "an answer through the router";
        until(&bed, what, || router.ask() == "one").await;
    }
    let shown = get(&bed, &nodes[0], "peers");
    assert!(
        shown.contains("tor") && shown.contains("Established"),
        "{shown}"
    );
    let shown = get(&bed, &nodes[0], "routes");
    assert!(
        shown.contains("10.78.0.200/32") && shown.contains("64500:7"),
        "{shown}"
    );
    explained(&bed, &nodes[0]);
    let usual: &[&str] = &["tor", "tor-b"];
    let said = |second| [("node-1", usual), ("node-2", second), ("node-3", usual)];
    reported(&bed, &said(usual)).await;
    established(&bed).await;
    // A router of one node only, which need not be there to be named.
    bed.run(&["label", "node", "node-2", "rack=two"]).await;
    let spec = "{myASN: 64500, peerASN: 64501, peerAddress: 10.78.0.52, nodeSelectors: \
                [{matchLabels: {rack: two}}]}";
    let rack = object("BGPPeer", "v1beta2", "rack", spec);
    bed.kubectl().apply(&rack).await.unwrap();
    let more: &[&str] = &["rack", "tor", "tor-b"];
    reported(&bed, &said(more)).await;
    let rack = ["-n", "metallb-system", "delete", "bgppeer", "rack"];
    bed.kubectl().run(&rack).await.unwrap();

    // A password that the router does not have is named as the likely cause, and taken back.
    let secret = "apiVersion: v1\nkind: Secret\ntype: kubernetes.io/basic-auth\nmetadata: {name: \
                  tor, namespace: metallb-system}\nstringData: {username: x, password: wrong}\n";
    let named = peer("tor", ROUTER, ", passwordSecret: {name: tor}");
    bed.kubectl().apply(&named).await.unwrap();
    until(&bed, "the missing Secret", || {
        get(&bed, &nodes[0], "peers").contains("there is no Secret metallb-system/tor")
    })
    .await;
    bed.kubectl().apply(secret).await.unwrap();
    until(&bed, "the wrong password", || {
        get(&bed, &nodes[0], "peers").contains("the same password for this node")
    })
    .await;
    assert!(router.paths().0.is_empty());
    router.configure(|node| format!("neighbor {node} password wrong"));
    until(&bed, "three paths again", || router.paths().0 == all).await;

    authenticate(&bed, &routers[1]).await;

    // A cordoned node is to be avoided, and withdraws nothing.
    for (verb, avoids) in [("cordon", true), ("uncordon", false)] {
        bed.kubectl().run(&[verb, "node-2"]).await.unwrap();
        let wanted = (all.clone(), avoids);
        until(&bed, verb, || router.paths() == wanted).await;
    }

    // A planned end: the router is asked to prefer others, and then the path is withdrawn.
    nodes[0].speaker.signal(Signal::TERM);
    until(&bed, "the request to prefer others", || router.paths().1).await;
    through(&bed, "two paths", &routers, &ALL[1..]).await;
    until(&bed, "an answer by another node", || router.ask() == "one").await;

    serve_on_all(&bed, &mut nodes, &routers).await;
    lose_nodes(&bed, &mut nodes, &routers).await;
    for node in &nodes {
        let log = read(&node.log);
        assert!(
            !log.contains("panicked") && !log.contains("orbidden"),
            "{log}"
        );
    }
}
