//! Nodes as network namespaces on one bridge, and a cluster that has Services with addresses.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use landfall_testkit::cluster::{Cluster, Options};

use super::connections::answer;
use super::contestant::Contestant;
use super::layout::{ADDRESSES, ADMIN, HUB, NAMESPACE, address, node_address};
use super::node::{self, Node};
use super::objects::Announced;
use super::processes::{Process, START, sh};
use crate::bench::admin;
use crate::place::Place;

/// Speakers that start at the same time.
const AT_ONCE: usize = 5;

/// Everything that nodes run on.
pub struct Bed {
    cluster: Cluster,
    nodes: Vec<Node>,
}

/// Other work on every core.
pub struct Work(#[expect(dead_code, reason = "it ends when this is dropped")] Vec<Process>);

/// What all speakers counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    pub died: u64,
    pub suspected: u64,
    pub paused: u64,
}

// === impl Work ===

impl Work {
    /// Begins it.
    pub fn start() -> anyhow::Result<Self> {
        let cores = std::thread::available_parallelism()?.get();
        let busy = || Process::start(Command::new("sh").args(["-c", "while :; do :; done"]));
        Ok(Self((0..cores).map(|_| busy()).collect::<Result<_, _>>()?))
    }
}

// === impl Bed ===

impl Bed {
    /// Makes a bridge, a cluster and so many nodes, without speakers.
    pub async fn start(
        place: &Place,
        nodes: u8,
        metallb: Option<&Contestant>,
        announced: Announced,
    ) -> anyhow::Result<Self> {
        // Without an address of its own a bridge has that of a port, and another one when ports
        // come and go: nodes would not find the API server for seconds.
        sh(&format!(
            "ip link add br0 address 02:00:00:00:01:fe type bridge
             ip address add {HUB}/16 dev br0
             ip link set br0 up
             sysctl -qw net.ipv4.ping_group_range='0 2147483647'"
        ))?;
        let options = Options {
            bind: Ipv4Addr::UNSPECIFIED.into(),
            names: vec![HUB.to_owned()],
            ..Options::default()
        };
        let bed = Self {
            cluster: Cluster::start(options).await?,
            nodes: (1..=nodes).map(Node::start).collect::<Result<_, _>>()?,
        };
        let files = bed.cluster.directory();
        std::fs::write(files.join("keys"), "the key of these speakers\n")?;
        let admin = std::fs::read_to_string(bed.cluster.admin())?;
        let hub = format!("https://{HUB}:");
        std::fs::write(
            files.join("nodes.kubeconfig"),
            admin.replace("https://127.0.0.1:", &hub),
        )?;
        let kinds = match metallb.and_then(Contestant::manifest) {
            None => std::fs::read_to_string(place.root.join("deploy/crds.yaml"))?,
            Some(path) => kinds_of(&path)?,
        };
        bed.fill(nodes, &kinds, announced).await?;
        Ok(bed)
    }

    async fn fill(&self, nodes: u8, kinds: &str, announced: Announced) -> anyhow::Result<()> {
        let kubectl = self.cluster.kubectl();
        let apply = ["apply", "--server-side", "-f", "-"];
        kubectl.run_with(&apply, kinds).await?;
        let established = ["wait", "--for=condition=Established", "crd", "--all"];
        kubectl.run(&established).await?;
        let (mut objects, mut statuses) = (announced.objects(), Vec::new());
        for node in 1..=nodes {
            write!(
                objects,
                "---\napiVersion: v1\nkind: Node\nmetadata: {{name: node-{node}}}\n---\n\
                 apiVersion: v1\nkind: Pod\nmetadata: {{name: speaker-{node}, namespace: \
                 {NAMESPACE}, labels: {{app: metallb, component: speaker}}}}\nspec: {{nodeName: \
                 node-{node}, hostNetwork: true, containers: [{{name: speaker, image: none}}]}}\n"
            )?;
            let address = node_address(node);
            statuses.push((
                vec!["node".to_owned(), format!("node-{node}")],
                // A speaker that stops withdraws everything where its node is not ready.
                format!(
                    r#"{{"addresses": [{{"type": "InternalIP", "address": "{address}"}}],
                    "conditions": [{{"type": "Ready", "status": "True"}}]}}"#
                ),
            ));
            let of_namespace = format!("--namespace={NAMESPACE}");
            statuses.push((
                vec!["pod".to_owned(), format!("speaker-{node}"), of_namespace],
                format!(
                    r#"{{"podIP": "{address}", "podIPs": [{{"ip": "{address}"}}],
                    "hostIP": "{address}", "phase": "Running"}}"#
                ),
            ));
        }
        for number in 0..ADDRESSES {
            let address = address(number);
            statuses.push((
                vec!["service".to_owned(), format!("web-{number}")],
                format!(r#"{{"loadBalancer": {{"ingress": [{{"ip": "{address}"}}]}}}}"#),
            ));
        }
        kubectl.run_with(&apply, &objects).await?;
        for (of, status) in statuses {
            let status = format!(r#"{{"status": {status}}}"#);
            let mut patch = vec!["patch", "--subresource=status", "-p", &status];
            patch.extend(of.iter().map(String::as_str));
            kubectl.run(&patch).await?;
        }
        Ok(())
    }

    /// Starts the speakers of the first nodes, and waits until they are ready.
    pub async fn start_all(&mut self, contestant: &Contestant, members: u8) -> anyhow::Result<()> {
        let files = self.cluster.directory().to_owned();
        let members: Vec<u8> = (1..=members).collect();
        // A hundred at once would take each other's cores from them.
        for some in members.chunks(AT_ONCE) {
            for node in some {
                self.node(*node)?.speak(contestant, &files)?;
            }
            for node in some {
                self.until_ready(contestant, *node).await?;
            }
        }
        Ok(())
    }

    /// Ends all speakers.
    pub fn stop_all(&mut self) {
        for node in &mut self.nodes {
            node.kill();
        }
    }

    fn node(&mut self, number: u8) -> anyhow::Result<&mut Node> {
        let node = self.nodes.iter_mut().find(|it| it.number() == number);
        node.with_context(|| format!("there is no node {number}"))
    }

    /// Answers connections on all nodes.
    pub fn answer(&self) -> anyhow::Result<()> {
        self.nodes.iter().try_for_each(|it| answer(it.id()))
    }

    /// Applies objects.
    pub async fn apply(&self, objects: &str) -> anyhow::Result<()> {
        let apply = ["apply", "--server-side", "-f", "-"];
        self.cluster.kubectl().run_with(&apply, objects).await?;
        Ok(())
    }

    /// Deletes an object of MetalLB's namespace, if it is there.
    pub async fn delete(&self, kind: &str, name: &str) -> anyhow::Result<()> {
        let delete = ["-n", NAMESPACE, "delete", "--ignore-not-found", kind, name];
        self.cluster.kubectl().run(&delete).await?;
        Ok(())
    }

    /// The speaker of a node ends as a crash ends it, and the node goes on.
    pub fn kill(&mut self, number: u8) -> anyhow::Result<()> {
        self.node(number)?.kill();
        Ok(())
    }

    /// It ends so, and FRR beside it goes on.
    pub fn kill_speaker(&mut self, number: u8) -> anyhow::Result<()> {
        self.node(number)?.kill_speaker();
        Ok(())
    }

    /// The speaker of a node is asked to end, and does so.
    pub fn stop(&mut self, number: u8) -> anyhow::Result<()> {
        self.node(number)?.stop()
    }

    /// A node is gone: nothing arrives, nothing leaves, and nothing runs.
    pub fn crash(&mut self, number: u8) -> anyhow::Result<()> {
        sh(&format!("ip link set node-{number} down"))?;
        self.node(number)?.kill();
        Ok(())
    }

    /// It is back, with a speaker that knows nothing.
    pub async fn restart(&mut self, contestant: &Contestant, number: u8) -> anyhow::Result<()> {
        sh(&format!("ip link set node-{number} up"))?;
        let files = self.cluster.directory().to_owned();
        self.node(number)?.speak(contestant, &files)?;
        self.until_ready(contestant, number).await
    }

    /// Starts speakers again that ended by themselves.
    pub fn revive(&mut self, contestant: &Contestant) -> anyhow::Result<()> {
        let files = self.cluster.directory().to_owned();
        let mut nodes = self.nodes.iter_mut();
        nodes.try_for_each(|it| it.revive(contestant, &files))
    }

    /// What the speaker of a node said last, and FRR beside it.
    pub fn said(&self, number: u8) -> String {
        node::said(self.cluster.directory(), number)
    }

    async fn until_ready(&self, contestant: &Contestant, node: u8) -> anyhow::Result<()> {
        let began = Instant::now();
        while contestant.has_admin() && get(node, "/readyz").await.is_none() {
            if began.elapsed() > START {
                let log = node::log(self.cluster.directory(), node);
                let log = std::fs::read_to_string(log).unwrap_or_default();
                bail!("the speaker of node {node} is not ready: {log}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// The processes of all speakers.
    pub fn pids(&self) -> Vec<i32> {
        self.nodes.iter().filter_map(Node::speaker).collect()
    }

    /// What Landfall's speakers counted since they started, in all.
    pub async fn counters(&self) -> anyhow::Result<Counters> {
        let mut all = Counters::default();
        for node in self.nodes.iter().filter(|it| it.speaker().is_some()) {
            let text = get(node.number(), "/metrics").await;
            let text = text.with_context(|| format!("no metrics of node {}", node.number()))?;
            let value = |name: &str| -> u64 {
                let mut lines = text.lines();
                let value = lines.find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
                value.unwrap_or_default()
            };
            all.died += value("landfall_speaker_members_died_total ");
            all.suspected += value("landfall_speaker_suspicions_total ");
            all.paused += value("landfall_speaker_pauses_total ");
        }
        Ok(all)
    }
}

/// Returns the parts of a manifest that define kinds.
pub(in crate::bench) fn kinds_of(manifest: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(manifest)?;
    let parts = text.split("\n---\n");
    let kinds = parts.filter(|part| part.contains("\nkind: CustomResourceDefinition"));
    Ok(kinds.collect::<Vec<_>>().join("\n---\n"))
}

/// The body of a good answer of a speaker's admin endpoint.
async fn get(node: u8, path: &str) -> Option<String> {
    admin::get(SocketAddr::from((node_address(node), ADMIN)), path).await
}
