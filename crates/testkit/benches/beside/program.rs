//! The two programs that are compared.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use landfall_testkit::cluster::Cluster;
use tokio::process::{Child, Command};

/// One of the two.
#[derive(Clone, Debug)]
pub struct Program {
    pub kind: Kind,
    path: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Reference,
    Landfall,
}

/// How long it may take to end when it is asked to.
const END: Duration = Duration::from_secs(60);

const LOG: &str = "program.log";

// === impl Program ===

impl Program {
    pub const fn reference(path: PathBuf) -> Self {
        let kind = Kind::Reference;
        Self { kind, path }
    }

    pub const fn landfall(path: PathBuf) -> Self {
        let kind = Kind::Landfall;
        Self { kind, path }
    }

    /// How its requests to the cloud begin their `User-Agent`.
    pub const fn agent(&self) -> &'static str {
        match self.kind {
            Kind::Reference => "openstack-cloud-controller-manager/",
            Kind::Landfall => "landfall/",
        }
    }

    /// Starts it on the `cloud.conf` in the cluster's folder; both have what they bring as their
    /// defaults.
    pub fn start(&self, cluster: &Cluster) -> anyhow::Result<Child> {
        let home = cluster.directory();
        let mut command = Command::new(&self.path);
        match self.kind {
            Kind::Reference => command
                .args(["--cloud-provider=openstack", "--cloud-config=cloud.conf"])
                .args([
                    "--cluster-name=beside",
                    "--controllers=service-lb-controller",
                ])
                .args(["--leader-elect=false", "--secure-port=0"])
                .arg("--use-service-account-credentials=false"),
            Kind::Landfall => {
                std::fs::write(home.join("landfall.yaml"), CONFIG)?;
                command
                    .args(["controller", "--namespace", "landfall-system"])
                    .args(["--config", "landfall.yaml", "--leader-elect=false"])
                    .args(["--admin", "127.0.0.1:0"])
            }
        };
        let mut options = File::options();
        let log = options.create(true).append(true).open(home.join(LOG))?;
        let child = command
            .arg("--kubeconfig")
            .arg(cluster.admin())
            .current_dir(home)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn();
        child.with_context(|| format!("{} can't be started", self.path.display()))
    }
}

/// One instance that serves every Service.
const CONFIG: &str = "
instances:
- name: cloud
  default: true
  provider:
    kind: openstack
    cloudConf: cloud.conf
    clusterName: beside
";

/// Asks it to end, and waits.
pub async fn stop(mut child: Child) -> anyhow::Result<()> {
    let Some(id) = child.id() else { return Ok(()) };
    let pid = rustix::process::Pid::from_raw(id.cast_signed()).context("no such process")?;
    rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
    tokio::time::timeout(END, child.wait()).await??;
    Ok(())
}

/// Refuses one that has ended by itself, with its last words.
pub fn still_runs(child: &mut Child, home: &Path) -> anyhow::Result<()> {
    if let Some(status) = child.try_wait()? {
        bail!("it ended with {status}: {}", last_words(home));
    }
    Ok(())
}

/// The end of its log.
pub fn last_words(home: &Path) -> String {
    let log = std::fs::read_to_string(home.join(LOG)).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    let skipped = lines.len().saturating_sub(20);
    lines.get(skipped..).unwrap_or_default().join("\n")
}
