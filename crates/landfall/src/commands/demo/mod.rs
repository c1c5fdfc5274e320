//! `landfall demo`: a few Services with their backends in this process, to look around.

mod backends;
mod manifests;
mod probe;

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use landfall_engine::AUDIT_EVERY;
use landfall_model::view::{Health, InstanceView, ServiceView};
use landfall_model::{Protocol, ServiceKey};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::assembly::{Instance, Options, StartState};
use crate::cli::DemoArgs;
use crate::commands::up;
use crate::get;
use crate::instances::Instances;
use crate::signals::Stop;
use backends::{Backends, FAILING_NAME};

/// How long the demo may take until everything serves and the failing member is known as such.
const START: Duration = Duration::from_secs(20);

/// How long connections may go on after a stop was asked for.
const GRACE: Duration = Duration::from_secs(1);

/// Addresses that are this demo's as long as it runs.
struct Pool {
    range: String,
    /// On the last address, which is never handed out: another demo sees that the rest is taken.
    _claim: std::net::UdpSocket,
}

/// A folder of manifests that goes when the demo goes.
struct Folder(PathBuf);

/// Runs the demo.
pub async fn run(args: DemoArgs) -> anyhow::Result<()> {
    let (tasks, cancel) = (TaskTracker::new(), CancellationToken::new());
    let backends = backends::start(&tasks, &cancel).await?;
    let folder = Folder::with(&manifests::render(&backends))?;
    // With --once there is no one to read the page, and many may run side by side.
    let admin = if args.once {
        SocketAddr::from(([127, 0, 0, 1], 0))
    } else {
        args.admin
    };
    let files = landfall_files::Options {
        paths: vec![folder.path().to_owned()],
        recursive: false,
        state: None,
    };
    let pool = Pool::claim()?;
    let options = Options {
        instances: Instances::local(),
        pools: vec![pool.range.clone()],
        fallback_pool: false,
        admin,
        admin_names: Vec::new(),
        admin_token: None,
        workers: None,
        access_log: crate::cli::AccessLogArgs::default(),
        chosen: crate::cli::ChosenArgs::default(),
        audit_every: AUDIT_EVERY,
        webhook: None,
    };
    let stop = Stop::watch(GRACE)?;
    let Some(instance) = stop
        .unless_asked(Box::pin(up::on_files(
            StartState::default(),
            options,
            files,
            stop.reload(),
        )))
        .await
    else {
        return Ok(());
    };
    let instance = instance?;
    let outcome = tokio::select! {
        () = stop.asked() => {
            if args.once {
                Err(anyhow::anyhow!("interrupted before every request was sent"))
            } else {
                Ok(())
            }
        }
        outcome = serve(&args, &instance, &backends, folder.path(), &stop) => outcome,
    };
    instance.stop(GRACE).await;
    cancel.cancel();
    tasks.close();
    tasks.wait().await;
    outcome
}

async fn serve(
    args: &DemoArgs,
    instance: &Instance,
    backends: &Backends,
    folder: &Path,
    stop: &Stop,
) -> anyhow::Result<()> {
    let view = instance
        .wait_until(START, settled)
        .await
        .context("the demo did not start; the log lines above have the cause")?;
    let mut out = std::io::stdout();
    writeln!(out, "{}\n", get::list(&view.services, false))?;
    if args.once {
        return probe::run(&view, backends).await;
    }
    writeln!(out, "Try\n")?;
    for line in try_lines(&view) {
        writeln!(out, "  {line}")?;
    }
    writeln!(
        out,
        "\nStatus page   http://{}/\nManifests     {}   (edit them: changes apply at once)\n\n\
         Ctrl-C stops the demo.",
        instance.admin()?,
        folder.display()
    )?;
    stop.asked().await;
    Ok(())
}

/// Every Service that can serve does, and the monitor has found the member that is sick on purpose.
fn settled(view: &InstanceView) -> bool {
    let (web, later) = (
        ServiceKey::new("demo", "web"),
        ServiceKey::new("demo", "later"),
    );
    let addressed = |service: &ServiceView| !service.status.ingress.is_empty();
    let served = view.services.iter().all(|service| {
        addressed(service) && (service.key == later || get::state(service) == "Ready")
    });
    let validated: Vec<(bool, Health)> = view
        .services
        .iter()
        .filter(|service| service.key == web)
        .flat_map(|service| &service.listeners)
        .flat_map(|listener| &listener.members)
        .map(|member| (member.name.as_deref() == Some(FAILING_NAME), member.health))
        .collect();
    let sick_is_found = validated.contains(&(true, Health::Down));
    let others_are_well = validated
        .iter()
        .all(|(sick, health)| *sick || *health == Health::Up);
    view.ready && view.services.len() >= 4 && served && sick_is_found && others_are_well
}

fn try_lines(view: &InstanceView) -> Vec<String> {
    let mut lines = Vec::new();
    for service in &view.services {
        let name = &service.key;
        for listener in service
            .listeners
            .iter()
            .filter(|listener| !listener.members.is_empty())
        {
            for address in service.status.addresses() {
                let at = SocketAddr::new(address, listener.key.port.get());
                lines.push(match listener.key.protocol {
                    Protocol::Udp => {
                        format!("echo hi | nc -u -w1 {} {}   # {name}", at.ip(), at.port())
                    }
                    _ => format!("curl http://{at}/   # {name}"),
                });
            }
        }
    }
    lines
}

// === impl Pool ===

impl Pool {
    /// A /24 of loopback on whose first addresses nothing listens yet, so that a second demo (or an
    /// instance in production) on the same machine does not conflict.
    fn claim() -> anyhow::Result<Self> {
        for third in 0..=255 {
            let address = |last| IpAddr::V4(Ipv4Addr::new(127, 77, third, last));
            let Ok(claim) = std::net::UdpSocket::bind((address(255), 8053)) else {
                continue;
            };
            let free = (1..=4).all(|last| {
                std::net::TcpListener::bind((address(last), 8080)).is_ok()
                    && std::net::UdpSocket::bind((address(last), 8053)).is_ok()
            });
            if free {
                return Ok(Self {
                    range: format!("127.77.{third}.1-127.77.{third}.254"),
                    _claim: claim,
                });
            }
        }
        anyhow::bail!(
            "port 8080 is in use on every address of 127.77.0.0/16 that the demo could use"
        )
    }
}

// === impl Folder ===

impl Folder {
    fn with(files: &[(&str, String)]) -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("landfall-demo-{}", std::process::id()));
        std::fs::create_dir_all(&path)
            .with_context(|| format!("making the folder {}", path.display()))?;
        let folder = Self(path);
        for (name, content) in files {
            let file = folder.0.join(name);
            std::fs::write(&file, content)
                .with_context(|| format!("writing {}", file.display()))?;
        }
        Ok(folder)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::debug!(%error, path = %self.0.display(), "a demo folder could not be removed");
        }
    }
}
