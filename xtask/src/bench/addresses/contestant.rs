//! The controllers that are measured, what each needs in its cluster, and how each is started.

use std::fmt;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use landfall_testkit::cluster::Cluster;
use tokio::process::{Child, Command};

use super::pool;
use crate::bench::cluster::{USER, is_ready};
use crate::bench::failover::bed::kinds_of;
use crate::place::Place;

/// The namespace of pools, which is MetalLB's.
pub const NAMESPACE: &str = "metallb-system";

/// Landfall's configuration: it serves what has no class, as MetalLB does.
const CONFIG: &str = "instances:\n- name: metal\n  provider: metal\n  default: true\n";

const START: Duration = Duration::from_secs(120);

/// A controller of one kind.
pub enum Contestant {
    /// `landfall controller`.
    Landfall {
        /// The program.
        program: PathBuf,
    },
    /// MetalLB's.
    MetalLb {
        /// Where `controller` and `manifest.yaml` are.
        folder: PathBuf,
    },
}

/// A controller that runs.
pub struct Controller(Child);

// === impl Contestant ===

impl Contestant {
    /// The user whose writes count.
    pub const fn user(&self) -> &'static str {
        match self {
            Self::Landfall { .. } => USER,
            Self::MetalLb { .. } => "system:serviceaccount:metallb-system:controller",
        }
    }

    /// Creates kinds, rights and the pool.
    pub async fn install(
        &self,
        place: &Place,
        cluster: &Cluster,
        services: u32,
    ) -> anyhow::Result<()> {
        let (kinds, rights) = match self {
            Self::Landfall { .. } => (
                std::fs::read_to_string(place.root.join("deploy/crds.yaml"))?,
                std::fs::read_to_string(place.root.join("deploy/rbac.yaml"))?,
            ),
            // Its own rights are those of an administrator: what they restrict is not measured.
            Self::MetalLb { folder } => (kinds_of(&folder.join("manifest.yaml"))?, String::new()),
        };
        let namespace =
            |name| format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n---\n");
        let namespaces = namespace(NAMESPACE) + &namespace("landfall-system");
        let kubectl = cluster.kubectl();
        let apply = ["apply", "--server-side", "-f", "-"];
        kubectl.run_with(&apply, &kinds).await?;
        let established = ["wait", "--for=condition=Established", "crd", "--all"];
        kubectl.run(&established).await?;
        let objects = format!("{namespaces}{rights}\n---\n{}", pool(services));
        kubectl.run_with(&apply, &objects).await?;
        Ok(())
    }

    /// Starts it, and waits until it says that it is ready, if it does.
    pub async fn start(&self, cluster: &Cluster) -> anyhow::Result<Controller> {
        let files = cluster.directory();
        let admin = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut command = match self {
            Self::Landfall { program } => {
                let config = files.join("landfall.yaml");
                std::fs::write(&config, CONFIG)?;
                let mut command = Command::new(program);
                command
                    .args(["controller", "--namespace", "landfall-system"])
                    .arg("--kubeconfig")
                    .arg(cluster.identity(USER, &["system:serviceaccounts"])?)
                    .arg("--config")
                    .arg(config)
                    .args(["--admin", &admin.to_string()]);
                command
            }
            Self::MetalLb { folder } => {
                let mut command = Command::new(folder.join("controller"));
                command
                    .args(["--namespace", NAMESPACE, "--webhook-mode=disabled"])
                    .arg("--disable-cert-rotation")
                    .env_clear()
                    .env(
                        "KUBECONFIG",
                        cluster.identity(self.user(), &["system:masters"])?,
                    );
                command
            }
        };
        let log = std::fs::File::create(files.join("controller.log"))?;
        let child = command
            .current_dir(files)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{self}'s controller can't be started"))?;
        let mut controller = Controller(child);
        let began = Instant::now();
        while matches!(self, Self::Landfall { .. }) && !is_ready(admin).await {
            if let Some(status) = controller.0.try_wait()? {
                let log = std::fs::read_to_string(files.join("controller.log"))?;
                bail!("{self}'s controller ended with {status}: {log}");
            }
            if began.elapsed() > START {
                bail!("{self}'s controller is not ready after {START:?}");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(controller)
    }
}

impl fmt::Display for Contestant {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Landfall { .. } => "Landfall",
            Self::MetalLb { .. } => "MetalLB",
        })
    }
}

// === impl Controller ===

impl Controller {
    /// Its process.
    pub fn pid(&self) -> anyhow::Result<i32> {
        let pid = self.0.id().context("the controller has ended")?;
        Ok(pid.cast_signed())
    }

    /// Asks it to end, and waits.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        let pid = rustix::process::Pid::from_raw(self.pid()?).context("no such process")?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        tokio::time::timeout(START, self.0.wait()).await??;
        Ok(())
    }
}
