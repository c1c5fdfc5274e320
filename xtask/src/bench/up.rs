//! What many Services cost `landfall up`: time to serve all of them, bytes written, memory, CPU at
//! rest, and how soon an edit moves traffic.

use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use rustix::process::{Resource, getrlimit};

use super::distribution::distribution;
use super::listening::listening;
use super::proxy::{machine, process};
use crate::bench::pause;
use crate::place::Place;

/// Help of `bench up`.
pub const HELP: &str = "\
Services get addresses of 127.80.0.0/16, one port and two members each. Each worker has a socket per
Service, and of eight open files that it may have (ulimit -Hn) five may be such sockets. Needs two
CPUs that have nothing else to do.

Examples:
  cargo xtask bench up
  cargo xtask bench up --workers 1                  (where 20,000 files may be open)
  cargo xtask bench up --services 1000 --per-file 1
  cargo xtask bench up --landfall old/landfall";

/// `bench up`
#[derive(Debug, Args)]
pub struct UpArgs {
    /// Services
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(1..=60_000)
    )]
    services: u32,
    /// Services per file
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    per_file: u32,
    /// Edits of one Service whose effect on traffic is timed
    #[arg(long, value_name = "N", default_value_t = 100)]
    edits: u32,
    /// Threads that carry traffic
    #[arg(long, value_name = "N", default_value_t = cpus())]
    workers: NonZeroU32,
    /// The Landfall to measure, if not the one just built
    #[arg(long, value_name = "PROGRAM")]
    pub landfall: Option<PathBuf>,
}

fn cpus() -> NonZeroU32 {
    let cpus = std::thread::available_parallelism();
    cpus.map_or(NonZeroU32::MIN, |cpus| {
        cpus.try_into().unwrap_or(NonZeroU32::MAX)
    })
}

const POOL: &str = "127.80.0.0/16";
/// What Services listen on at first, and after all were edited.
const PORTS: [u16; 2] = [8080, 8081];
/// Beyond this something is wrong.
const DEADLINE: Duration = Duration::from_secs(900);
/// How long it is left alone before and while CPU time at rest is counted.
const SETTLED: Duration = Duration::from_secs(15);
const REST: Duration = Duration::from_secs(60);

/// Between two edits of one Service.
const BETWEEN: Duration = Duration::from_millis(200);
/// Of so many open files, five may be sockets of listeners: Landfall keeps the rest for connections
/// and for itself.
const FILES: u64 = 8;

/// Runs `bench up`.
pub fn run(place: &Place, args: &UpArgs) -> anyhow::Result<()> {
    args.validate_limit(getrlimit(Resource::Nofile).maximum)?;
    let built = place.target().join("dist/landfall");
    let program = args.landfall.as_deref().unwrap_or(&built);
    let root = tempfile::tempdir()?;
    // In a folder of their own: what is beside their folder is watched, too, and the log grows
    // there.
    let folder = root.path().join("watched/manifests");
    fs::create_dir_all(&folder)?;
    let members = [Member::start("a")?, Member::start("b")?];
    let manifests = Manifests {
        folder: folder.clone(),
        args,
        members: [members[0].address, members[1].address],
    };
    manifests.write_all(PORTS[0])?;

    println!(
        "{} Services, {} per file, {} workers; {}; load {}",
        args.services,
        args.per_file,
        args.workers,
        program.display(),
        machine::load()
    );
    let mut up = Up::start(program, root.path(), args.workers)?;
    up.serves(args.services, PORTS[0], up.began)?;
    println!("  first start to all served    {:.2?}", up.began.elapsed());
    println!("  CPU until then               {:.2} s", up.cpu()?);
    println!("  written until then           {}", mb(up.written()?));
    println!("  resident memory              {}", mb(up.resident()?));
    pause(SETTLED);
    let (before, written) = (up.cpu()?, up.written()?);
    pause(REST);
    println!(
        "  CPU at rest                  {:.3} % of a core",
        (up.cpu()? - before) / REST.as_secs_f64() * 100.0
    );
    println!(
        "  written at rest              {}",
        mb(up.written()? - written)
    );
    up.edits(&manifests)?;
    let (before, began, written) = (up.cpu()?, Instant::now(), up.written()?);
    manifests.write_all(PORTS[1])?;
    println!("  all files written after      {:.2?}", began.elapsed());
    up.serves(args.services, PORTS[1], began)?;
    println!("  all edited to all served     {:.2?}", began.elapsed());
    println!("  CPU until then               {:.2} s", up.cpu()? - before);
    println!(
        "  written until then           {}",
        mb(up.written()? - written)
    );
    println!("  resident memory              {}", mb(up.resident()?));
    up.kill()?;

    let mut up = Up::start(program, root.path(), args.workers)?;
    up.serves(args.services, PORTS[1], up.began)?;
    println!("  restart to all served        {:.2?}", up.began.elapsed());
    println!("  CPU until then               {:.2} s", up.cpu()?);
    println!("  written until then           {}", mb(up.written()?));
    println!("  resident memory              {}", mb(up.resident()?));
    println!("  load afterwards              {}", machine::load());
    up.kill()
}

fn mb(bytes: f64) -> String {
    format!("{:.1} MB", bytes / 1e6)
}

/// A server that says its name on every connection.
struct Member {
    address: SocketAddr,
}

/// The manifests of a run.
struct Manifests<'a> {
    folder: PathBuf,
    args: &'a UpArgs,
    members: [SocketAddr; 2],
}

/// A running `landfall up`.
struct Up {
    child: Child,
    began: Instant,
    log: PathBuf,
}

// === impl UpArgs ===

impl UpArgs {
    /// Refuses what the limit of open files does not allow: Landfall would serve a part of it.
    fn validate_limit(&self, limit: Option<u64>) -> anyhow::Result<()> {
        let workers = u64::from(self.workers.get());
        let needed = (u64::from(self.services) * workers * FILES).div_ceil(5);
        if let Some(limit) = limit.filter(|limit| *limit < needed) {
            bail!(
                "{} Services and {workers} workers need {needed} open files, and {limit} are \
                 allowed; raise the limit (ulimit -Hn), or measure {} Services",
                self.services,
                limit / FILES * 5 / workers
            );
        }
        Ok(())
    }
}

// === impl Member ===

impl Member {
    fn start(name: &'static str) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        // Ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = std::io::Write::write_all(&mut &stream, name.as_bytes());
            }
        });
        Ok(Self { address })
    }
}

// === impl Manifests ===

impl Manifests<'_> {
    fn write_all(&self, port: u16) -> anyhow::Result<()> {
        let count = self.args.services;
        let step = usize::try_from(self.args.per_file)?;
        for first in (0..count).step_by(step) {
            let last = (first + self.args.per_file).min(count);
            let services = (first..last).map(|number| Self::service(number, port, &self.members));
            let text: String = services.collect();
            self.put(first / self.args.per_file, &text)?;
        }
        Ok(())
    }

    /// Gives the first Service these members; the others in its file stay.
    fn write_first(&self, members: &[SocketAddr]) -> anyhow::Result<()> {
        let last = self.args.per_file.min(self.args.services);
        let rest = (1..last).map(|number| Self::service(number, PORTS[0], &self.members));
        let text = Self::service(0, PORTS[0], members) + &rest.collect::<String>();
        self.put(0, &text)
    }

    fn put(&self, number: u32, text: &str) -> anyhow::Result<()> {
        let draft = self.folder.join(format!(".{number}"));
        fs::write(&draft, text)?;
        fs::rename(&draft, self.folder.join(format!("{number:05}.yaml")))?;
        Ok(())
    }

    fn service(number: u32, port: u16, members: &[SocketAddr]) -> String {
        let mut text = format!(
            "---\n\
            apiVersion: v1\n\
            kind: Service\n\
            metadata:\n  \
            name: web-{number}\n  \
            annotations:\n    \
            landfall.dev/addresses: {}\n    \
            landfall.dev/endpoints: ",
            address(number)
        );
        for (index, member) in members.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            // Writing into a text can't fail.
            let _ = write!(text, "{comma}{member}");
        }
        let _ = writeln!(
            text,
            "\nspec:\n  type: LoadBalancer\n  ports:\n  - port: {port}"
        );
        text
    }
}

/// Each Service asks for an address of its own, so that it can be found without asking for it.
fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 80, 0, 1)) + number)
}

// === impl Up ===

impl Up {
    fn start(program: &Path, root: &Path, workers: NonZeroU32) -> anyhow::Result<Self> {
        let log = root.join("landfall.log");
        let began = Instant::now();
        let child = Command::new(program)
            .args(["up", "--pool", POOL, "--admin", "127.0.0.1:0", "-f"])
            .arg(root.join("watched/manifests"))
            .args(["--workers", &workers.to_string()])
            .arg("--state")
            .arg(root.join("state"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log)?)
            .spawn()
            .with_context(|| format!("{} can't be started", program.display()))?;
        Ok(Self { child, began, log })
    }

    /// Waits until all Services accept connections. Says when all of them listened: to connect to
    /// ten thousand one after the other takes a while itself.
    fn serves(&mut self, count: u32, port: u16, since: Instant) -> anyhow::Result<()> {
        // The last ones come last, mostly: asked first, they save asking the others in vain.
        self.accepts(count.saturating_sub(1), port, since)?;
        while listening([127, 80], port)? < count as usize {
            self.validate(since)?;
            pause(Duration::from_millis(5));
        }
        println!("  until all listened           {:.2?}", since.elapsed());
        (0..count).try_for_each(|number| self.accepts(number, port, since))
    }

    fn accepts(&mut self, number: u32, port: u16, since: Instant) -> anyhow::Result<()> {
        while TcpStream::connect((address(number), port)).is_err() {
            self.validate(since)?;
            pause(Duration::from_millis(5));
        }
        Ok(())
    }

    fn validate(&mut self, began: Instant) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            let log = fs::read_to_string(&self.log)?;
            bail!("landfall ended with {status}: {log}");
        }
        if began.elapsed() > DEADLINE {
            bail!("not done after {DEADLINE:?}");
        }
        Ok(())
    }

    /// Times edits of the first Service until traffic goes elsewhere.
    fn edits(&mut self, manifests: &Manifests<'_>) -> anyhow::Result<()> {
        let mut took = Vec::new();
        for number in 0..manifests.args.edits {
            let (member, name) = if number % 2 == 0 {
                (manifests.members[1], "b")
            } else {
                (manifests.members[0], "a")
            };
            let began = Instant::now();
            manifests.write_first(&[member])?;
            // Two members take turns: both answers must be the new one's.
            while asked()? != name || asked()? != name {
                self.validate(began)?;
                pause(Duration::from_millis(1));
            }
            took.push(began.elapsed());
            pause(BETWEEN);
        }
        println!("  one edit to moved traffic    {}", distribution(took));
        Ok(())
    }

    fn cpu(&self) -> anyhow::Result<f64> {
        process::cpu_seconds(&[self.pid()])
    }

    fn resident(&self) -> anyhow::Result<f64> {
        process::resident(&[self.pid()])
    }

    /// Bytes that it caused to be sent to the disk.
    fn written(&self) -> anyhow::Result<f64> {
        let text = fs::read_to_string(format!("/proc/{}/io", self.pid()))?;
        let mut lines = text.lines();
        let bytes = lines.find_map(|line| line.strip_prefix("write_bytes: ")?.parse().ok());
        bytes.context("/proc has no write_bytes")
    }

    fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // Has ended already if all went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn asked() -> anyhow::Result<String> {
    let mut answer = String::new();
    TcpStream::connect((address(0), PORTS[0]))?.read_to_string(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(services: u32, workers: u32) -> UpArgs {
        UpArgs {
            services,
            per_file: 100,
            edits: 1,
            workers: NonZeroU32::new(workers).unwrap(),
            landfall: None,
        }
    }

    #[test]
    fn what_needs_more_open_files_than_are_allowed_is_refused_with_what_would_do() {
        let refusal = args(10_000, 2).validate_limit(Some(20_000)).unwrap_err();
        let text = refusal.to_string();
        assert!(text.contains("need 32000 open files, and 20000"), "{text}");
        assert!(text.ends_with("or measure 6250 Services"), "{text}");
        assert!(args(6250, 2).validate_limit(Some(20_000)).is_ok());
        assert!(args(10_000, 1).validate_limit(Some(20_000)).is_ok());
        assert!(args(60_000, 64).validate_limit(None).is_ok());
    }
}
