//! `landfall up`: serves manifests until told to stop.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use landfall_config::dirs;
use landfall_files::Manifests;
use landfall_kube::lease::{WriteGuard, identity};

use crate::cli::UpArgs;
use crate::fleet::Fleet;
use crate::instance::{Instance, Lifetime, Options};
use crate::signals::Stop;
use crate::{controller, get};

/// How long a start may take before it is said that something is slow.
const START: Duration = Duration::from_secs(5);

/// Runs the command.
pub async fn run(args: UpArgs) -> anyhow::Result<()> {
    let grace = args.run.grace();
    let mut options = Options {
        fleet: Fleet::read(&args.instances).await?,
        pools: args.pools,
        fallback_pool: true,
        records_accepted: !args.filename.is_empty(),
        admin: args.admin,
        workers: args.run.threads(),
        admin_names: args.run.admin_name,
    };
    let instance = if args.filename.is_empty() {
        let identity = identity("landfall-up");
        let connection = controller::connect(&args.cluster, &identity).await?;
        let origin = args.cluster.origin();
        options.fleet.learn_cluster(&connection, &origin).await?;
        controller::on_cluster(options, connection, &identity, WriteGuard::always(), None).await?
    } else {
        let files = landfall_files::Options {
            paths: args.filename,
            recursive: args.recursive,
            state: Some(state_dir(args.state)?),
        };
        on_files(options, files).await?
    };
    let stop = Stop::watch();
    tokio::select! {
        () = stop.asked() => {}
        announced = announce(&instance) => {
            announced?;
            stop.asked().await;
        }
    }
    instance.stop(grace).await;
    Ok(())
}

/// Says what is served and where to look, once there is something to say.
async fn announce(instance: &Instance) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    match instance.wait_until(START, |view| view.ready).await {
        Ok(view) if view.services.is_empty() => {
            writeln!(
                out,
                "no Services of type LoadBalancer in these manifests yet"
            )?;
        }
        Ok(view) => writeln!(out, "{}", get::list(&view.services, false))?,
        Err(_) => writeln!(
            out,
            "still starting; `landfall get services` shows how far it is"
        )?,
    }
    writeln!(
        out,
        "\nstatus page  http://{}/\nCtrl-C stops",
        instance.admin()
    )?;
    out.flush()?;
    Ok(())
}

/// Starts an instance whose facts are manifests.
pub async fn on_files(
    options: Options,
    files: landfall_files::Options,
) -> anyhow::Result<Instance> {
    let (manifests, store) = tokio::task::spawn_blocking(move || Manifests::open(files)).await??;
    let lifetime = Lifetime::default();
    Instance::start(
        options,
        lifetime,
        Arc::new(store),
        None,
        |facts, lifetime| {
            lifetime
                .tasks
                .spawn(manifests.run(facts, lifetime.cancel.clone()));
        },
    )
    .await
}

fn state_dir(given: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let is_root = landfall_sys::limits::is_root();
    given
        .or_else(|| dirs::state_dir(is_root, |name| std::env::var(name).ok()))
        .context("no place to remember addresses in: name one with --state DIR")
}
