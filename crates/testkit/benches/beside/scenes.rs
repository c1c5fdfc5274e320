//! What happens in a cluster, and what is wanted of the cloud then.

use std::fmt;
use std::time::Duration;

use anyhow::Context as _;
use http::Method;
use serde_json::{Value, json};

use super::bed::{Bed, DEADLINE, Line};
use super::cloud::Service;
use super::picture::Picture;

/// One cluster's scenes.
pub struct Scenes<'a> {
    /// Octavia's.
    pub provider: &'a str,
    /// How many there are at first.
    pub nodes: u16,
    /// Whether security groups are managed.
    pub groups: bool,
    /// How many Services there are when a node comes; nothing of that if empty.
    pub services: &'a [u16],
    /// How long nothing happens, and how long a drift is waited for.
    pub watched: Duration,
}

/// The ports of every Service.
const PORTS: [u16; 3] = [80, 443, 9000];

/// The same after an edit.
const EDITED: [u16; 3] = [8080, 443, 9000];

/// What listeners have by default, in milliseconds.
const TIMEOUT: u64 = 50_000;

// === impl Scenes ===

impl Scenes<'_> {
    /// Further lines of `[LoadBalancer]`.
    pub fn conf(&self) -> String {
        // The only algorithm of that provider; neither program chooses it by itself.
        let method = if self.is_ovn() {
            "lb-method=SOURCE_IP_PORT\n"
        } else {
            ""
        };
        format!(
            "lb-provider={}\n{method}manage-security-groups={}\n",
            self.provider, self.groups
        )
    }

    fn is_ovn(&self) -> bool {
        self.provider == "ovn"
    }

    /// Plays them all.
    pub async fn play(&self, mut bed: Bed<'_>) -> anyhow::Result<Vec<Line>> {
        create(&mut bed, "create a Service, the first", 1..=1).await?;
        create(&mut bed, "create a Service, the next", 2..=2).await?;
        if !self.is_ovn() {
            narrow(&mut bed).await?;
        }
        let mut last = 2;
        for (index, count) in self.services.iter().enumerate() {
            create(
                &mut bed,
                &format!("create Services up to {count}"),
                last + 1..=*count,
            )
            .await?;
            last = *count;
            node(&mut bed, last).await?;
            restart(&mut bed, last).await?;
            if index == 0 {
                port(&mut bed).await?;
                bed.watch(format!("idle, {last} Services"), self.watched)
                    .await?;
            }
        }
        remove(&mut bed).await?;
        // At last: what one of the two never repairs would be missing in every other scene.
        if !self.services.is_empty() {
            self.drift(&mut bed).await?;
        }
        bed.close().await
    }

    /// Other hands change what Services have: a timeout where the provider has them, a pool, a
    /// floating IP.
    async fn drift(&self, bed: &mut Bed<'_>) -> anyhow::Result<()> {
        let picture = Picture::of(&bed.cloud).await?;
        let begun = bed.begin().await?;
        let timeout = picture.listener("web-1", 443).context("no listener")?;
        let timeout = format!("/v2/lbaas/listeners/{}", text(timeout, "id"));
        let octavia = Service::Octavia;
        if !self.is_ovn() {
            let body = json!({"listener": {"timeout_client_data": TIMEOUT + 1}});
            let change = bed.cloud.ask(Method::PUT, octavia, &timeout, body);
            change.await?;
        }
        let pool = picture.listener("web-3", 443).context("no listener")?;
        let pool = format!("/v2/lbaas/pools/{}", text(pool, "default_pool_id"));
        let gone = Value::Null;
        bed.cloud
            .ask(Method::DELETE, octavia, &pool, gone.clone())
            .await?;
        let floating_ip = picture.floating_ip("web-4").context("no floating IP")?;
        let floating_ip = format!("/v2.0/floatingips/{}", text(floating_ip, "id"));
        let neutron = Service::Neutron;
        bed.cloud
            .ask(Method::DELETE, neutron, &floating_ip, gone)
            .await?;
        let nodes = bed.nodes;
        let repaired = |picture: &Picture| {
            let listener = picture.listener("web-1", 443);
            let timeout = listener.map(|it| &it["timeout_client_data"]);
            (self.is_ovn() || timeout == Some(&json!(TIMEOUT)))
                && picture.serves("web-3", &PORTS, nodes)
                && picture.serves("web-4", &PORTS, nodes)
        };
        let what = if self.is_ovn() {
            "drift: a pool and a floating IP are deleted"
        } else {
            "drift: a timeout, a pool, a floating IP"
        };
        bed.end(what, begun, self.watched, &repaired).await
    }
}

impl fmt::Display for Scenes<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = if self.groups { "with" } else { "without" };
        write!(
            out,
            "{}, {} nodes, {groups} security groups",
            self.provider, self.nodes
        )
    }
}

/// Services come, all by one command.
async fn create(
    bed: &mut Bed<'_>,
    what: &str,
    numbers: std::ops::RangeInclusive<u16>,
) -> anyhow::Result<()> {
    let manifests: String = numbers.clone().map(|it| service(it, &PORTS)).collect();
    let begun = bed.begin().await?;
    let create = ["create", "-f", "-"];
    bed.cluster.kubectl().run_with(&create, &manifests).await?;
    let nodes = bed.nodes;
    let served = |picture: &Picture| {
        let mut numbers = numbers.clone();
        numbers.all(|it| picture.serves(&name(it), &PORTS, nodes))
    };
    bed.end(what, begun, DEADLINE, &served).await
}

/// A Service admits some clients only.
async fn narrow(bed: &mut Bed<'_>) -> anyhow::Result<()> {
    let begun = bed.begin().await?;
    let patch = r#"{"spec": {"loadBalancerSourceRanges": ["192.0.2.0/24"]}}"#;
    let patch = ["patch", "service", "web-1", "-p", patch];
    bed.cluster.kubectl().run(&patch).await?;
    let nodes = bed.nodes;
    let narrowed = |picture: &Picture| {
        let is = |port: &u16| {
            let listener = picture.listener("web-1", *port);
            listener.is_some_and(|it| it["allowed_cidrs"] == json!(["192.0.2.0/24"]))
        };
        PORTS.iter().all(is) && picture.serves("web-1", &PORTS, nodes)
    };
    bed.end("source ranges of a Service", begun, DEADLINE, &narrowed)
        .await
}

/// A node comes.
async fn node(bed: &mut Bed<'_>, services: u16) -> anyhow::Result<()> {
    let begun = bed.begin().await?;
    bed.add_nodes(1).await?;
    let nodes = bed.nodes;
    let followed = |picture: &Picture| (1..=services).all(|it| serves(picture, it, nodes));
    let what = format!("a node more, {services} Services");
    bed.end(what, begun, DEADLINE, &followed).await
}

/// The program is restarted.
async fn restart(bed: &mut Bed<'_>, services: u16) -> anyhow::Result<()> {
    bed.stop().await?;
    let begun = bed.begin().await?;
    bed.start(&begun).await?;
    let what = format!("restart, {services} Services");
    bed.end(what, begun, DEADLINE, &|_| true).await
}

/// A port of a Service gets another number.
async fn port(bed: &mut Bed<'_>) -> anyhow::Result<()> {
    let begun = bed.begin().await?;
    let patch = r#"[{"op": "replace", "path": "/spec/ports/0/port", "value": 8080}]"#;
    let patch = ["patch", "service", "web-1", "--type=json", "-p", patch];
    bed.cluster.kubectl().run(&patch).await?;
    let nodes = bed.nodes;
    let moved = |picture: &Picture| picture.serves("web-1", &EDITED, nodes);
    bed.end("a port gets another number", begun, DEADLINE, &moved)
        .await
}

/// A Service is deleted.
async fn remove(bed: &mut Bed<'_>) -> anyhow::Result<()> {
    let begun = bed.begin().await?;
    let delete = ["delete", "service", "web-2"];
    bed.cluster.kubectl().run(&delete).await?;
    let gone = |picture: &Picture| picture.balancer("web-2").is_none();
    bed.end("delete a Service", begun, DEADLINE, &gone).await
}

/// Whether it is served at its ports, those after the edit for the one that had it.
fn serves(picture: &Picture, number: u16, nodes: usize) -> bool {
    let name = name(number);
    picture.serves(&name, &PORTS, nodes) || (number == 1 && picture.serves(&name, &EDITED, nodes))
}

fn name(number: u16) -> String {
    format!("web-{number}")
}

fn service(number: u16, ports: &[u16]) -> String {
    let ports = ports
        .iter()
        .map(|port| json!({"name": format!("p{port}"), "port": port}));
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name(number)},
        "spec": {"type": "LoadBalancer", "ports": ports.collect::<Vec<_>>()},
    });
    format!("{service}\n---\n")
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}
