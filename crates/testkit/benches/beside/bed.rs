//! A cluster with one of the programs, on a cloud; and how a scene is measured.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use landfall_testkit::cluster::{Cluster, Options};
use tokio::process::Child;

use super::cloud::{Cloud, Mark};
use super::counts::{Call, Counts};
use super::picture::Picture;
use super::program::{self, Program};
use super::scenes::Scenes;

/// What one program needed for one scene.
#[derive(Debug)]
pub struct Line {
    pub what: String,
    pub counts: Counts,
    /// From the beginning until the cloud and the Services were as wanted; none if they never were.
    pub served: Option<Duration>,
    /// From the beginning until the last call.
    pub last: Duration,
}

/// A cluster, its cloud, and the program between them.
pub struct Bed<'a> {
    pub cloud: Cloud,
    pub cluster: Cluster,
    /// How many nodes the cluster has.
    pub nodes: usize,
    program: &'a Program,
    running: Option<Child>,
    lines: Vec<Line>,
}

/// A scene that has begun.
pub struct Begun {
    mark: Mark,
    at: Instant,
}

/// What the cloud has to be like at the end of a scene.
pub type Wanted<'a> = &'a dyn Fn(&Picture) -> bool;

/// How long there is no call after the last one: longer than either waits before it repeats what
/// failed for the first time.
const QUIET: Duration = Duration::from_secs(8);

/// How long a first call is waited for.
const FIRST: Duration = Duration::from_secs(30);

/// How long anything is waited for where nothing else is said.
pub const DEADLINE: Duration = Duration::from_secs(1200);

// === impl Bed ===

impl<'a> Bed<'a> {
    /// Starts a cluster with its nodes, and the program in it.
    pub async fn open(
        cloud: Cloud,
        program: &'a Program,
        scenes: &Scenes<'_>,
    ) -> anyhow::Result<Self> {
        let cluster = Cluster::start(Options::default()).await?;
        let conf = cloud.conf() + &scenes.conf();
        std::fs::write(cluster.directory().join("cloud.conf"), conf)?;
        cluster
            .kubectl()
            .run(&["create", "namespace", "landfall-system"])
            .await?;
        let mut bed = Self {
            cloud,
            cluster,
            nodes: 0,
            program,
            running: None,
            lines: Vec::new(),
        };
        bed.add_nodes(scenes.nodes).await?;
        let begun = bed.begin().await?;
        bed.start(&begun).await?;
        bed.quiet(&begun).await?;
        Ok(bed)
    }

    /// More nodes, in the cloud and in the cluster.
    pub async fn add_nodes(&mut self, count: u16) -> anyhow::Result<()> {
        let first = u16::try_from(self.nodes)?;
        let named = |number: u16| {
            let [third, fourth] = [number / 250, number % 250];
            let address = Ipv4Addr::from(0x0a00_1002 + u32::from(third) * 256 + u32::from(fourth));
            (format!("node-{number}"), IpAddr::V4(address))
        };
        let nodes: Vec<_> = (first..first + count).map(named).collect();
        let ids = self.cloud.add_nodes(&nodes).await?;
        let manifests = nodes.iter().zip(ids).map(|((name, address), id)| {
            format!(
                "apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\nspec: {{providerID: \
                 \"{id}\"}}\nstatus:\n  addresses: [{{type: InternalIP, address: {address}}}]\n  \
                 conditions: [{{type: Ready, status: \"True\"}}]\n---\n"
            )
        });
        let manifests: String = manifests.collect();
        let create = ["create", "-f", "-"];
        self.cluster.kubectl().run_with(&create, &manifests).await?;
        self.nodes += usize::from(count);
        Ok(())
    }

    /// Ends the program.
    pub async fn stop(&mut self) -> anyhow::Result<()> {
        match self.running.take() {
            Some(child) => program::stop(child).await,
            None => Ok(()),
        }
    }

    /// Starts it, and waits for its first call; not for long, since the reference makes none for
    /// its project as long as it has no Service.
    pub async fn start(&mut self, begun: &Begun) -> anyhow::Result<()> {
        self.running = Some(self.program.start(&self.cluster)?);
        while begun.at.elapsed() < FIRST && self.count(begun).await? == 0 {
            self.still_runs()?;
            tokio::time::sleep(self.cloud.look()).await;
        }
        Ok(())
    }

    /// Begins a scene.
    pub async fn begin(&self) -> anyhow::Result<Begun> {
        let mark = self.cloud.mark().await?;
        let at = Instant::now();
        Ok(Begun { mark, at })
    }

    /// Waits until the cloud is as wanted and every Service has its address, then for the last
    /// call, and writes the scene down.
    pub async fn end(
        &mut self,
        what: impl Into<String>,
        begun: Begun,
        deadline: Duration,
        wanted: Wanted<'_>,
    ) -> anyhow::Result<()> {
        let mut served = None;
        while served.is_none() && begun.at.elapsed() < deadline {
            if wanted(&Picture::of(&self.cloud).await?) && self.published().await? {
                served = Some(begun.at.elapsed());
                break;
            }
            self.still_runs()?;
            tokio::time::sleep(self.cloud.look()).await;
        }
        let last = self.quiet(&begun).await?;
        let counts = Counts::of(&self.calls(&begun).await?);
        self.write_down(what.into(), counts, served, last);
        Ok(())
    }

    /// Waits for some time, whatever happens, and writes that down.
    pub async fn watch(&mut self, what: impl Into<String>, time: Duration) -> anyhow::Result<()> {
        let begun = self.begin().await?;
        tokio::time::sleep(time).await;
        let counts = Counts::of(&self.calls(&begun).await?);
        self.write_down(what.into(), counts, None, time);
        Ok(())
    }

    fn write_down(
        &mut self,
        what: String,
        counts: Counts,
        served: Option<Duration>,
        last: Duration,
    ) {
        eprintln!(
            "{:?}: {what}: {counts}, {served:?}, {last:?}",
            self.program.kind
        );
        self.lines.push(Line {
            what,
            counts,
            served,
            last,
        });
    }

    /// Waits until there is no more call; returns when the last one was seen.
    async fn quiet(&mut self, begun: &Begun) -> anyhow::Result<Duration> {
        let (mut count, mut last) = (0, Instant::now());
        while last.elapsed() < QUIET {
            let now = self.count(begun).await?;
            if now > count {
                (count, last) = (now, Instant::now());
            }
            self.still_runs()?;
            tokio::time::sleep(self.cloud.look()).await;
        }
        Ok(if count == 0 {
            Duration::ZERO
        } else {
            last - begun.at
        })
    }

    async fn count(&self, begun: &Begun) -> anyhow::Result<usize> {
        self.cloud.count(&begun.mark, self.program.agent()).await
    }

    async fn calls(&self, begun: &Begun) -> anyhow::Result<Vec<Call>> {
        self.cloud.calls(&begun.mark, self.program.agent()).await
    }

    /// Whether every Service has its address.
    async fn published(&self) -> anyhow::Result<bool> {
        let list = self.cluster.kubectl().get(&["services"]).await?;
        let services = list["items"].as_array().context("no list")?;
        let mut services = services
            .iter()
            .filter(|it| it["spec"]["type"] == "LoadBalancer");
        Ok(services.all(|it| it["status"]["loadBalancer"]["ingress"].is_array()))
    }

    fn still_runs(&mut self) -> anyhow::Result<()> {
        match &mut self.running {
            Some(child) => program::still_runs(child, self.cluster.directory()),
            None => Ok(()),
        }
    }

    /// Ends everything; what was written down is left.
    pub async fn close(mut self) -> anyhow::Result<Vec<Line>> {
        self.stop().await?;
        self.cloud.close().await?;
        Ok(self.lines)
    }
}
