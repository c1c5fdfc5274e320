//! What a large cluster costs `landfall controller`: memory, time to know all of it, CPU per event,
//! and what it asks of the API server at rest. The API server is a real one.
//!
//! ```text
//! kubectl ──> kube-apiserver + etcd ──> landfall controller (as shipped)
//!   10,000 Services, 10,000 EndpointSlices, 500 Nodes
//! ```

mod floor;
mod moves;
mod objects;

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use landfall_testkit::cluster::{Cluster, Options};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use super::distribution::distribution;
use super::listening::listening;
use super::proxy::{machine, process};
use crate::place::Place;
use floor::floor;
use moves::Moves;
use objects::{node, service, slice};

/// Help of `bench cluster`.
pub const HELP: &str = "\
Takes some minutes, most of them to fill the cluster. Needs kube-apiserver, etcd and kubectl as the
tests do, and installs them if they are missing.

Examples:
  cargo xtask bench cluster
  cargo xtask bench cluster --served 10000          (with a listener for each Service)
  cargo xtask bench cluster --services 500 --nodes 20
  cargo xtask bench cluster --services 1000 --served 1000 --floor
  cargo xtask bench cluster --landfall old/landfall --landfall new/landfall     (on one cluster)";

/// `bench cluster`
#[derive(Debug, Args)]
pub struct ClusterArgs {
    /// Services, and as many EndpointSlices
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(1..=16_000)
    )]
    services: u32,
    /// Nodes
    #[arg(long, value_name = "N", default_value_t = 500)]
    nodes: u32,
    /// How many of the Services are Landfall's and get an address and a listener; the others are
    /// watched
    #[arg(long, value_name = "N", default_value_t = 0)]
    served: u32,
    /// How many EndpointSlices change while CPU time is counted
    #[arg(long, value_name = "N", default_value_t = 1000)]
    events: u32,
    /// How many changes of an EndpointSlice are timed until traffic goes elsewhere, if any Service
    /// is served
    #[arg(long, value_name = "N", default_value_t = 200)]
    moves: u32,
    /// First, measure the writes of a first start alone, sent by curl for as many other Services
    /// as are to be served
    #[arg(long)]
    floor: bool,
    /// The Landfall to measure, if not the one just built; several are measured one after another
    /// on the same cluster
    #[arg(long, value_name = "PROGRAM")]
    pub landfall: Vec<PathBuf>,
}

/// The identity that `deploy/rbac.yaml` grants.
pub(super) const USER: &str = "system:serviceaccount:landfall-system:landfall";

const CONFIG: &str = "\
instances:
  - name: local
    provider: local
    pools:
      - name: all
        addresses: [127.192.0.0/18]
";

/// kubectl limits itself: several fill a cluster sooner.
const AT_ONCE: u32 = 8;

/// A fresh cluster may take long to be served for the first time.
const TIMEOUT: Duration = Duration::from_secs(900);

/// How long it is left alone, to see what it does then.
const REST: Duration = Duration::from_secs(20);

/// Runs `bench cluster`.
pub async fn run(place: &Place, args: &ClusterArgs) -> anyhow::Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let began = Instant::now();
    fill(place, &cluster, args).await?;
    eprintln!("the cluster is full after {:.0?}", began.elapsed());
    std::fs::write(cluster.directory().join("landfall.yaml"), CONFIG)?;
    let built = [place.target().join("dist/landfall")];
    let programs = match args.landfall.as_slice() {
        [] => &built,
        named => named,
    };
    if args.floor {
        let took = floor(&cluster, args.served).await?;
        println!(
            "{} Services: the writes that traffic waits for take {:.2?} alone, all others {:.2?}; \
             load {}",
            args.served,
            took.firsts,
            took.rest,
            machine::load()
        );
    }
    if let (true, Some(program)) = (args.served > 0, programs.first()) {
        let mut first = Controller::start(program, &cluster).await?;
        first.serves(args.served).await?;
        println!(
            "{} Services served for the first time after {:.2?}, CPU {:.2} s; load {}",
            args.served,
            first.took,
            process::cpu_seconds(&[first.pid()?])?,
            machine::load()
        );
        first.stop().await?;
    }
    for (generation, program) in (1..).zip(programs) {
        println!("{}", program.display());
        measure(program, &cluster, args, generation).await?;
    }
    Ok(())
}

async fn measure(
    program: &Path,
    cluster: &Cluster,
    args: &ClusterArgs,
    generation: u8,
) -> anyhow::Result<()> {
    let audit = cluster.audit();
    let mut controller = Controller::start(program, cluster).await?;
    controller.serves(args.served).await?;
    let pids = [controller.pid()?];
    let at_start = process::cpu_seconds(&pids)?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let resident = process::resident(&pids)?;
    let of_files = field(pids[0], "RssFile:")?;
    let before = process::cpu_seconds(&pids)?;
    tokio::time::sleep(REST).await;
    let resting = process::cpu_seconds(&pids)? - before;
    let written = audit.writes_of(USER)?.len();

    if args.served > 0 {
        let took = Moves::prepare(cluster).await?.time(args.moves).await?;
        println!("  one slice to moved traffic  {}", distribution(took));
    }
    let before = process::cpu_seconds(&pids)?;
    let began = Instant::now();
    kubectl_in_parts(cluster, "replace", args.events, |number| {
        slice(number, generation)
    })
    .await?;
    // The last of them is on its way, perhaps.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let lasted = began.elapsed();
    let at_rest = resting / REST.as_secs_f64() * lasted.as_secs_f64();
    let busy = (process::cpu_seconds(&pids)? - before - at_rest).max(0.0);
    println!(
        "{} Services ({} of them served), {} EndpointSlices, {} Nodes",
        args.services, args.served, args.services, args.nodes
    );
    println!("  from start to all known     {:.2?}", controller.took);
    println!("  CPU until then              {at_start:.2} s");
    println!(
        "  resident memory             {} ({} of it pages of files)",
        mib(resident),
        mib(of_files)
    );
    println!(
        "  most resident memory ever   {}",
        mib(field(pids[0], "VmHWM:")?)
    );
    println!(
        "  ... after {} events       {}",
        args.events,
        mib(process::resident(&pids)?)
    );
    println!(
        "  CPU per event               {:.0} µs ({} EndpointSlices changed in {lasted:.1?})",
        busy / f64::from(args.events) * 1e6,
        args.events
    );
    println!(
        "  CPU at rest                 {:.2} %",
        resting / REST.as_secs_f64() * 100.0
    );
    println!(
        "  writes to the API server    {written} (from the start through {REST:?} of rest, the \
        Lease apart)"
    );
    controller.stop().await
}

fn mib(bytes: f64) -> String {
    format!("{:.1} MiB", bytes / 1024.0 / 1024.0)
}

/// A field of `/proc/PID/status` that is in kB, in bytes.
fn field(pid: i32, name: &str) -> anyhow::Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok());
    let kib = kib.with_context(|| format!("/proc has no {name}"))?;
    Ok(kib * 1024.0)
}

async fn fill(place: &Place, cluster: &Cluster, args: &ClusterArgs) -> anyhow::Result<()> {
    let roles = std::fs::read_to_string(place.root.join("deploy/rbac.yaml"))?;
    let home = "apiVersion: v1\nkind: Namespace\nmetadata: {name: landfall-system}\n---\n";
    cluster.kubectl().apply(&format!("{home}{roles}")).await?;
    kubectl_in_parts(cluster, "create", args.nodes, node).await?;
    kubectl_in_parts(cluster, "create", args.services, |number| {
        service(number, number < args.served)
    })
    .await?;
    kubectl_in_parts(cluster, "create", args.services, |number| slice(number, 0)).await
}

/// Runs `kubectl VERB -f -` over so many objects, several at the same time.
pub(super) async fn kubectl_in_parts(
    cluster: &Cluster,
    verb: &'static str,
    count: u32,
    object: impl Fn(u32) -> String,
) -> anyhow::Result<()> {
    let mut running = JoinSet::new();
    let kubectl = cluster.program(landfall_testkit::cluster::Program::Kubectl);
    for part in 0..AT_ONCE {
        let manifests: String = (0..count)
            .filter(|number| number % AT_ONCE == part)
            .map(&object)
            .collect();
        if manifests.is_empty() {
            continue;
        }
        let flag = match verb {
            "delete" => "--wait=false",
            _ => "--validate=false",
        };
        let mut child = Command::new(kubectl)
            .args([verb, flag, "-f", "-"])
            .env("KUBECONFIG", cluster.admin())
            .env("KUBECACHEDIR", cluster.directory().join("kubectl"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        running.spawn(async move {
            if let Some(mut stdin) = child.stdin.take() {
                stdin.write_all(manifests.as_bytes()).await?;
            }
            let status = child.wait().await?;
            if !status.success() {
                bail!("kubectl {verb} ended with {status}");
            }
            Ok(())
        });
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(())
}

/// A running `landfall controller`.
struct Controller {
    child: Child,
    began: Instant,
    /// From its start until everything was known, and served.
    took: Duration,
}

// === impl Controller ===

impl Controller {
    async fn start(program: &Path, cluster: &Cluster) -> anyhow::Result<Self> {
        let kubeconfig = cluster.identity(USER, &["system:serviceaccounts"])?;
        let admin = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let log = std::fs::File::create(cluster.directory().join("landfall.log"))?;
        let began = Instant::now();
        let child = Command::new(program)
            .args(["controller", "--namespace", "landfall-system"])
            .args(["--admin", &admin.to_string()])
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .arg("--config")
            .arg(cluster.directory().join("landfall.yaml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{} can't be started", program.display()))?;
        let mut controller = Self {
            child,
            began,
            took: Duration::ZERO,
        };
        while !is_ready(admin).await {
            if let Some(status) = controller.child.try_wait()? {
                let log = std::fs::read_to_string(cluster.directory().join("landfall.log"))?;
                bail!("landfall ended with {status}: {log}");
            }
            if began.elapsed() > TIMEOUT {
                bail!("landfall is not ready after {TIMEOUT:?}");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        controller.took = began.elapsed();
        Ok(controller)
    }

    /// Waits until so many addresses of the pool are listened on: one that does not lead yet is
    /// ready before that.
    async fn serves(&mut self, count: u32) -> anyhow::Result<()> {
        let began = Instant::now();
        while listening([127, 192], 8080)? < count as usize {
            if began.elapsed() > TIMEOUT {
                bail!("not all is served after {TIMEOUT:?}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        if count > 0 {
            self.took = self.began.elapsed();
        }
        Ok(())
    }

    fn pid(&self) -> anyhow::Result<i32> {
        let pid = self.child.id().context("landfall has ended")?;
        Ok(pid.cast_signed())
    }

    async fn stop(mut self) -> anyhow::Result<()> {
        let pid = rustix::process::Pid::from_raw(self.pid()?).context("no such process")?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let status = tokio::time::timeout(TIMEOUT, self.child.wait()).await??;
        if !status.success() {
            bail!("landfall ended with {status}");
        }
        Ok(())
    }
}

/// Returns whether a program with this admin endpoint says so.
pub(super) async fn is_ready(admin: SocketAddr) -> bool {
    let asked = async {
        let mut stream = tokio::net::TcpStream::connect(admin).await.ok()?;
        let request = format!("GET /readyz HTTP/1.0\r\nHost: {admin}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        answer.split(' ').nth(1).map(|status| status == "200")
    };
    asked.await.unwrap_or(false)
}
