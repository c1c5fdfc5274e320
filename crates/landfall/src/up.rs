//! `landfall up`: serves manifests until told to stop.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use landfall_config::dirs;
use landfall_files::Manifests;
use landfall_kube::lease::{WriteGuard, identity};
use tokio::sync::Notify;

use crate::cli::UpArgs;
use crate::fleet::Fleet;
use crate::instance::{Instance, Lifetime, Options};
use crate::signals::Stop;
use crate::{controller, get, logging};

/// How long a start may take before it is said that something is slow.
const START: Duration = Duration::from_secs(5);

/// Runs the command.
pub async fn run(args: UpArgs) -> anyhow::Result<()> {
    let grace = args.run.grace();
    let stop = Stop::watch(grace)?;
    let Some(instance) = stop.unless_asked(start(args, &stop)).await else {
        return Ok(());
    };
    let instance = instance?;
    let asked = async {
        tokio::select! {
            () = stop.asked() => {}
            () = announce(&instance) => stop.asked().await,
        }
    };
    let outcome = tokio::select! {
        biased;
        () = asked => Ok(()),
        () = instance.broken() => Err(controller::loop_ended()),
    };
    instance.stop(grace).await;
    outcome
}

/// Starts the instance that the command line describes.
async fn start(args: UpArgs, stop: &Stop) -> anyhow::Result<Instance> {
    let mut options = Options {
        fleet: Fleet::read(&args.instances).await?,
        pools: args.pools,
        fallback_pool: true,
        records_accepted: !args.filename.is_empty(),
        admin: args.admin,
        workers: args.run.threads(),
        admin_names: args.run.admin_name,
    };
    if args.filename.is_empty() {
        let identity = identity("landfall-up");
        let connection = controller::connect(&args.cluster, &identity).await?;
        let origin = args.cluster.origin();
        options.fleet.learn_cluster(&connection, &origin).await?;
        controller::on_cluster(options, connection, &identity, WriteGuard::always(), None).await
    } else {
        let files = landfall_files::Options {
            paths: args.filename,
            recursive: args.recursive,
            state: Some(state_dir(args.state)?),
        };
        on_files(options, files, stop.reload()).await
    }
}

/// Says what is served and where to look, once there is something to say. Nothing depends on whether
/// that can be printed.
async fn announce(instance: &Instance) {
    let found = match instance.wait_ready(START).await {
        Ok(view) if view.services.is_empty() => {
            "no Services of type LoadBalancer in these manifests yet".to_owned()
        }
        Ok(view) => get::list(&view.services, false),
        Err(_) => "still starting; `landfall get services` shows how far it is".to_owned(),
    };
    let admin = instance.admin();
    let text = format!("{found}\n\nstatus page  http://{admin}/\nCtrl-C stops\n");
    if let Err(error) = logging::print(&text) {
        tracing::debug!(%error, "the summary could not be printed");
    }
}

/// Starts an instance whose facts are manifests.
pub async fn on_files(
    options: Options,
    files: landfall_files::Options,
    reload: Arc<Notify>,
) -> anyhow::Result<Instance> {
    let (manifests, store) = tokio::task::spawn_blocking(move || Manifests::open(files)).await??;
    let manifests = manifests.look_when(reload);
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
