//! Speakers that serve addresses themselves (`dataPlane: landfall`), on the nodes of `speakers.rs`.
//! The real kube-proxy runs beside them, and leaves these addresses alone.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::Output;
use std::time::Instant;

use rustix::process::Signal;

use crate::bed::{Bed, DEADLINE, LOOK};
use crate::network::inside;
use crate::speakers::{
    ADDRESS, Client, Host, Node, bed, index, prepare, read, sh, until_announced, until_taking_part,
};
use crate::traffic::Backend;

const CONFIG: &str = "metallbNamespace: metallb-system\ninstances:\n  - name: lan\n    provider: \
                      {kind: metal, dataPlane: landfall}\n";

/// Nodes that serve, and a client that asks all the time.
struct Scene {
    bed: Bed,
    nodes: Vec<Node>,
    client: Client,
    _backend: Backend,
}

impl Scene {
    async fn start(name: &str) -> Self {
        let bed = bed(name).await;
        prepare(&bed, "landfall.dev/lan", "Proxy").await;
        let backend = Backend::start("one", SocketAddr::from(([10, 77, 1, 1], 8000))).await;
        let nodes = (1..=3).map(|number| Node::start(&bed, number, Some(CONFIG)));
        let nodes: Vec<Node> = nodes.collect();
        until_taking_part(&nodes, &[0; 3]).await;
        let client = Client::start(&bed);
        Self {
            bed,
            nodes,
            client,
            _backend: backend,
        }
    }

    fn host(&self, name: &str) -> &Host {
        &self.nodes[index(name)].host
    }

    async fn owner(&self) -> String {
        until_announced(&self.bed, |nodes| nodes.len() == 1).await
    }

    async fn owner_is(&self, owner: &str) {
        until_announced(&self.bed, |nodes| nodes.len() == 1 && nodes.contains(owner)).await;
    }

    async fn patch(&self, kind: &str, name: &str, patch: &str) {
        self.bed
            .run(&["patch", kind, name, "--type=merge", "-p", patch])
            .await;
    }

    fn restart(&mut self, node: &str) {
        let number = index(node) + 1;
        let speaker = Node::speak(&self.bed, self.host(node), number, Some(CONFIG));
        self.nodes[number - 1].speaker = speaker;
    }

    fn logs(&self) -> String {
        let logs = self.nodes.iter().map(|node| read(&node.log));
        logs.collect::<Vec<String>>().join("\n")
    }
}

/// Connects once, from a host, and returns the answer.
fn ask_from(host: &Host) -> Output {
    let script = format!("exec 3<>/dev/tcp/{ADDRESS}/80 && printf ? >&3 && cat <&3");
    let mut command = host.command("timeout");
    command.args(["2", "bash", "-c", &script]).output().unwrap()
}

fn answers(host: &Host) -> bool {
    ask_from(host).stdout == b"one"
}

/// Waits until a host gets answers, or gets none.
async fn until_answers(scene: &Scene, host: &Host, expected: bool) {
    let began = Instant::now();
    while answers(host) != expected {
        let found = ask_from(host);
        assert!(
            began.elapsed() < DEADLINE,
            "{expected}: {found:?} {}",
            scene.logs()
        );
        tokio::time::sleep(LOOK).await;
    }
}

/// What the speaker of a node counted of connections.
pub fn connections(host: &Host) -> u64 {
    let script = "exec 3<>/dev/tcp/127.0.0.1/9641
        printf 'GET /metrics HTTP/1.0\\r\\nHost: 127.0.0.1\\r\\n\\r\\n' >&3; cat <&3";
    let output = host.command("bash").args(["-c", script]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text
        .lines()
        .find(|line| line.starts_with("landfall_listener_connections_total"));
    let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
    value.unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_root_nodes_serve_an_address_themselves_and_take_over_from_each_other() {
    const NAME: &str =
        "plane::as_root_nodes_serve_an_address_themselves_and_take_over_from_each_other";
    if !inside(NAME).await {
        return;
    }
    let mut scene = Scene::start("plane").await;
    let owner = scene.owner().await;
    scene.client.ask_on();
    scene.client.more(10).await;
    assert!(connections(scene.host(&owner)) >= 10, "{}", scene.logs());
    // What runs on a node is served there, and what has members of its own reaches itself.
    for node in &scene.nodes {
        until_answers(&scene, &node.host, true).await;
    }
    sh(&format!(
        "timeout 5 bash -c 'exec 3<>/dev/tcp/{ADDRESS}/80; printf ? >&3; grep -q one <&3'"
    ));

    // The node is gone under a thousand connections a second, with the API server.
    let load = scene.client.load();
    load.answered(100, Instant::now()).await;
    scene.bed.cluster.freeze_api_server().unwrap();
    let before = scene.client.answers().len();
    let cut = Instant::now();
    scene.host(&owner).cut();
    scene.client.more(before + 20).await;
    load.answered(100, cut).await;
    let (gap, failed) = (scene.client.longest_gap(before), load.failed(cut));
    eprintln!("dataPlane landfall: owner cut off: {gap:?} without an answer; {failed}");
    drop(load);
    scene.bed.cluster.thaw_api_server().unwrap();
    let gone = |nodes: &BTreeSet<String>| nodes.len() == 1 && !nodes.contains(&owner);
    let second = until_announced(&scene.bed, gone).await;
    scene.host(&owner).heal();
    scene.owner_is(&owner).await;

    // A planned end: nothing of it stays on the node.
    let before = scene.client.answers().len();
    scene.nodes[index(&owner)].speaker.signal(Signal::TERM);
    scene.owner_is(&second).await;
    scene.client.more(before + 20).await;
    let gap = scene.client.longest_gap(before);
    eprintln!("dataPlane landfall: owner stopped: {gap:?} without an answer");
    until_answers(&scene, scene.host(&owner), true).await;
    let look = ["-c", "ip route show table 7947; ip rule show"];
    let left = scene.host(&owner).command("sh").args(look).output();
    let left = String::from_utf8(left.unwrap().stdout).unwrap();
    assert!(!left.contains(ADDRESS) && !left.contains("7947"), "{left}");

    // The process of the owner is killed.
    scene.restart(&owner);
    scene.owner_is(&owner).await;
    let before = scene.client.answers().len();
    scene.nodes[index(&owner)].speaker.signal(Signal::KILL);
    scene.client.more(before + 20).await;
    let gap = scene.client.longest_gap(before);
    eprintln!("dataPlane landfall: owner killed: {gap:?} without an answer");
    // Another program of the node has the port: the other node goes on until it is free again.
    scene.owner_is(&second).await;
    let taken = scene.host(&owner).occupy(80);
    scene.restart(&owner);
    let began = Instant::now();
    while !read(&scene.nodes[index(&owner)].log).contains("this node can't serve all of it") {
        assert!(began.elapsed() < DEADLINE, "{}", scene.logs());
        tokio::time::sleep(LOOK).await;
    }
    let before = scene.client.answers().len();
    scene.client.more(before + 20).await;
    scene.owner_is(&second).await;
    drop(taken);
    scene.owner_is(&owner).await;
    until_answers(&scene, scene.host(&owner), true).await;
    let log = scene.logs();
    assert!(
        !log.contains("panicked") && !log.contains("orbidden"),
        "{log}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_root_source_ranges_and_both_traffic_policies_hold_where_nodes_serve() {
    const NAME: &str =
        "plane::as_root_source_ranges_and_both_traffic_policies_hold_where_nodes_serve";
    if !inside(NAME).await {
        return;
    }
    let scene = Scene::start("policies").await;
    let owner = scene.owner().await;
    until_answers(&scene, &scene.client.host, true).await;

    let ranges = |range: &str| format!(r#"{{"spec":{{"loadBalancerSourceRanges":["{range}"]}}}}"#);
    let of_client = ranges("10.78.0.100/32");
    scene.patch("service", "web", &of_client).await;
    until_answers(&scene, scene.host(&owner), false).await;
    assert!(answers(&scene.client.host), "{}", scene.logs());
    scene.patch("service", "web", &ranges("10.78.0.0/30")).await;
    until_answers(&scene, &scene.client.host, false).await;
    until_answers(&scene, scene.host(&owner), true).await;
    let all = r#"{"spec":{"loadBalancerSourceRanges":null}}"#;
    scene.patch("service", "web", all).await;
    until_answers(&scene, &scene.client.host, true).await;

    // The address follows the member, and every node reaches it.
    let local = r#"{"spec":{"externalTrafficPolicy":"Local"}}"#;
    let on = |node: &str| {
        format!(
            r#"{{"endpoints":[{{"addresses":["10.77.1.1"],"conditions":{{"ready":true}},
                "nodeName":"{node}"}}]}}"#
        )
    };
    scene.patch("endpointslice", "web-1", &on("node-2")).await;
    scene.patch("service", "web", local).await;
    for member in ["node-2", "node-3"] {
        scene.patch("endpointslice", "web-1", &on(member)).await;
        scene.owner_is(member).await;
        until_answers(&scene, &scene.client.host, true).await;
        let began = Instant::now();
        loop {
            let before = connections(scene.host(member));
            let served = scene
                .nodes
                .iter()
                .filter(|node| answers(&node.host))
                .count();
            let more = connections(scene.host(member)) - before;
            if served == 3 && more >= 3 {
                break;
            }
            let found = format!("{more} of {served} reached {member}");
            assert!(began.elapsed() < DEADLINE, "{found}: {}", scene.logs());
            tokio::time::sleep(LOOK).await;
        }
    }
    let log = scene.logs();
    assert!(!log.contains("panicked"), "{log}");
}
