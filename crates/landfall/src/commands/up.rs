//! `landfall up`: serves manifests until it is stopped, or until another process takes over.

use std::convert::Infallible;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use landfall_config::dirs;
use landfall_files::{Manifests, OpenError, StateError};
use landfall_web::token::TokenFile;
use tokio::sync::Notify;

use crate::assembly::{Instance, Options, StartState};
use crate::cli::{ChosenArgs, UpArgs};
use crate::instances::Instances;
use crate::lifetime::Lifetime;
use crate::signals::Stop;
use crate::systemd;
use crate::takeover::{Handover, HandoverListener, IncomingHandover, Outcome, OutgoingHandover};

use super::announce::announce;
use super::serve_cluster::{self, ServeCluster};

/// From one try to start the control plane again to the next, when another process did not take
/// over.
const AGAIN: Duration = Duration::from_secs(1);

/// How long nothing is said at the admin endpoint while another process starts, which answers there
/// as soon as it can.
const QUIET: Duration = Duration::from_secs(2);

/// The path that stands for standard input.
const STDIN: &str = "-";

/// The option with which a process takes over.
const TAKE_OVER: &str = "--take-over";

/// Runs the command.
pub async fn run(args: UpArgs) -> anyhow::Result<()> {
    let grace = args.run.grace();
    let stop = Stop::watch(grace)?;
    if args.filename.is_empty() {
        return Box::pin(beside_cluster(args, stop)).await;
    }
    let Some(started) = stop
        .unless_asked(Box::pin(Serving::start(args, &stop)))
        .await
    else {
        return Ok(());
    };
    let (serving, instance) = started?;
    Box::pin(serving.run(instance)).await
}

/// Manifests that are served.
struct Serving {
    options: Options,
    files: landfall_files::Options,
    /// Where another process can ask to take over.
    state: PathBuf,
    grace: Duration,
    stop: Stop,
}

// === impl Serving ===

impl Serving {
    /// Starts, in the place of a running process if that is asked for. Until this returns, that one
    /// goes on if this process ends.
    async fn start(args: UpArgs, stop: &Stop) -> anyhow::Result<(Self, Instance)> {
        let grace = args.run.grace();
        let options = options(&args).await?;
        let state = state_dir(args.state)?;
        let files = landfall_files::Options {
            paths: args.filename,
            recursive: args.recursive,
            state: Some(state.clone()),
        };
        let mut start_state = StartState::default();
        let mut taking = None;
        if args.take_over {
            // What can be wrong is found before the running process stops anything.
            options.validate()?;
            for path in files.paths.iter().filter(|path| path.as_os_str() != STDIN) {
                std::fs::metadata(path).with_context(|| path.display().to_string())?;
            }
            landfall_files::validate_state(&state)?;
            if let Some((asked, handover)) = IncomingHandover::ask(&state).await? {
                start_state.handover = handover;
                taking = Some(asked);
            } else {
                tracing::info!("no process to take over from");
            }
        }
        let reload = stop.reload();
        let starting = Box::pin(on_files(
            start_state,
            options.clone(),
            files.clone(),
            reload,
        ));
        let instance = unless_revoked(taking.as_mut(), starting).await?;
        let instance = instance.map_err(hint)?;
        if let Some(mut taking) = taking {
            if let Err(why) = unless_revoked(Some(&mut taking), instance.serving()).await {
                // The state goes back to the other process, and connections here end by themselves.
                instance.stop(grace).await;
                return Err(why);
            }
            // The other process may end from here on.
            systemd::serving();
            taking.serving().await?;
            tracing::info!("took over");
        }
        let stop = stop.clone();
        let serving = Self {
            options,
            files,
            state,
            grace,
            stop,
        };
        Ok((serving, instance))
    }

    /// Serves until it is stopped, or until another process serves in its place.
    async fn run(self, mut instance: Instance) -> anyhow::Result<()> {
        self.stop.unless_asked(announce(&instance)).await;
        loop {
            systemd::serving();
            let next = tokio::select! {
                biased;
                next = self.stop.unless_asked(self.succeeded()) => next,
                () = instance.broken() => {
                    self.stop.failed().cancel();
                    instance.stop(self.grace).await;
                    return Err(serve_cluster::loop_ended());
                }
            };
            let Some(mut handing) = next else {
                systemd::stopping();
                instance.stop(self.grace).await;
                return Ok(());
            };
            let start_state = instance.let_go().await;
            let handed = async {
                tokio::select! {
                    outcome = hand(&mut handing, &start_state) => outcome,
                    never = start_state.answer(QUIET) => match never {},
                }
            };
            let outcome = Box::pin(self.stop.unless_asked(handed)).await;
            let why = match outcome {
                // When it is stopped, the sockets are left to the new process, too.
                None | Some(Outcome::Served) => {
                    handing.done().await;
                    if let Some(proxy) = &start_state.proxy {
                        tracing::info!("another process serves; open connections have time to end");
                        proxy.retire(self.grace).await;
                    }
                    return Ok(());
                }
                Some(Outcome::Failed(why)) => why,
            };
            tracing::warn!(error = why, "the take-over failed; this process continues");
            handing.stay(why).await;
            drop(handing);
            let resumed = async {
                tokio::select! {
                    instance = self.resumed(&start_state) => instance,
                    never = start_state.answer(Duration::ZERO) => match never {},
                }
            };
            let Some(resumed) = Box::pin(self.stop.unless_asked(resumed)).await else {
                if let Some(proxy) = &start_state.proxy {
                    proxy.shutdown(self.grace).await;
                }
                return Ok(());
            };
            instance = resumed;
            tracing::info!("serving as before");
        }
    }

    /// Waits for another process that asks to take over, and starts one when a signal asks for it.
    async fn succeeded(&self) -> OutgoingHandover {
        tokio::select! {
            handing = self.asked() => handing,
            never = self.start_successors() => match never {},
        }
    }

    /// Starts this program again, as it is on the disk by then, whenever that is asked for.
    async fn start_successors(&self) -> Infallible {
        loop {
            self.stop.successor().await;
            match successor() {
                Ok(mut child) => {
                    tracing::info!(process = child.id(), "started a process to take over");
                    // If it does take over, this wait is given up, and it lives on.
                    let status = child.wait().await.map(|status| status.to_string());
                    tracing::warn!(?status, "the process that should take over ended");
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::error!(error, "a process to take over can't be started");
                }
            }
        }
    }

    /// Waits for another process that asks to take over. What came from standard input could not be
    /// read again if that fails, so that it is not offered then.
    async fn asked(&self) -> OutgoingHandover {
        let reads_stdin = self
            .files
            .paths
            .iter()
            .any(|path| path.as_os_str() == STDIN);
        if reads_stdin {
            return std::future::pending().await;
        }
        let mut failed = false;
        loop {
            match HandoverListener::open(&self.state) {
                Ok(handover_listener) => tokio::select! {
                    handing = handover_listener.knock() => return handing,
                    // With the directory, which is made again soon.
                    () = HandoverListener::removed(&self.state) => failed = false,
                },
                Err(error) => {
                    if !std::mem::replace(&mut failed, true) {
                        tracing::warn!(%error, "no other process can take over at present");
                    }
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }

    /// Starts the control plane again. The other process may take a moment to give the state back.
    async fn resumed(&self, start_state: &StartState) -> Instance {
        loop {
            let started = async {
                let (options, files) = (self.options.clone(), self.files.clone());
                on_files(start_state.again()?, options, files, self.stop.reload()).await
            };
            match started.await {
                Ok(instance) => {
                    // The control plane before has left open what went meanwhile.
                    instance.close_what_is_gone();
                    return instance;
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::error!(error, "only traffic continues; the rest is restarted soon");
                }
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}

/// Does something unless the process that is to be succeeded goes on before it is done.
async fn unless_revoked<T>(
    taking: Option<&mut IncomingHandover>,
    work: impl Future<Output = T>,
) -> anyhow::Result<T> {
    let Some(taking) = taking else {
        return Ok(work.await);
    };
    tokio::select! {
        biased;
        done = work => Ok(done),
        why = taking.revoked() => anyhow::bail!("the running process continues: {why}"),
    }
}

/// Starts this program again, with the same arguments.
fn successor() -> anyhow::Result<tokio::process::Child> {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    if !arguments.iter().any(|argument| argument == TAKE_OVER) {
        arguments.push(TAKE_OVER.into());
    }
    let (program, arguments) = arguments
        .split_first()
        .context("this program has no name")?;
    let mut command = tokio::process::Command::new(program);
    let child = command.args(arguments).stdin(Stdio::null()).spawn();
    child.with_context(|| format!("starting {}", program.display()))
}

/// Hands everything over to the process that asked.
async fn hand(handing: &mut OutgoingHandover, start_state: &StartState) -> Outcome {
    let handover = async {
        let again = start_state.again()?;
        let sockets = match &start_state.proxy {
            Some(proxy) => proxy.sockets().await?,
            None => landfall_proxy::Sockets::new(),
        };
        std::io::Result::Ok(Handover {
            sockets,
            ..again.handover
        })
    };
    match handover.await {
        Ok(handover) => handing.hand(&handover).await,
        Err(error) => Outcome::Failed(error.to_string()),
    }
}

/// What the command line says about how to serve.
async fn options(args: &UpArgs) -> anyhow::Result<Options> {
    Ok(Options {
        instances: Instances::read(&args.instances).await?,
        pools: args.pools.clone(),
        fallback_pool: true,
        admin: args.admin,
        workers: args.run.threads(),
        access_log: args.run.access_log.clone(),
        chosen: ChosenArgs::default(),
        audit_every: args.run.audit_interval,
        webhook: None,
        admin_token: args.run.admin_token_file.clone().map(TokenFile::new),
        admin_names: args.run.admin_name.clone(),
    })
}

/// Serves the Services of a cluster, as its controller does.
async fn beside_cluster(args: UpArgs, stop: Stop) -> anyhow::Result<()> {
    let beside = ServeCluster {
        options: options(&args).await?,
        cluster: args.cluster,
        election: args.election,
        state: None,
        host: "landfall-up".to_owned(),
        grace: args.run.grace(),
        by_hand: true,
    };
    Box::pin(beside.run(stop)).await
}

/// Starts an instance whose facts are manifests.
pub async fn on_files(
    mut start_state: StartState,
    options: Options,
    files: landfall_files::Options,
    reload: Arc<Notify>,
) -> anyhow::Result<Instance> {
    let open = move || {
        let state = files.state.clone();
        let opened = Manifests::open(files)?;
        anyhow::Ok((opened, state.map(|state| hash_secret(&state))))
    };
    let ((manifests, store), secret) = tokio::task::spawn_blocking(open).await??;
    if let Some(secret) = secret {
        start_state.hash_secret = secret;
    }
    let manifests = manifests.look_when(reload);
    Instance::start_on(
        start_state,
        options,
        Lifetime::default(),
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

/// Adds what to do about a state directory that is in use.
fn hint(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref() {
        Some(OpenError::State(StateError::InUse { .. })) => {
            anyhow::anyhow!("{error}; --take-over replaces it without a refused connection")
        }
        _ => error,
    }
}

/// The secret beside the state. Nothing waits for one that can't be had.
fn hash_secret(state: &Path) -> [u8; 16] {
    landfall_files::hash_secret(state).unwrap_or_else(|error| {
        let place = state.display();
        tracing::warn!(%error, "clients come to other members after the next start: the secret \
             for their hashes can't be kept in {place}");
        landfall_files::random_secret()
    })
}

fn state_dir(given: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let is_root = landfall_sys::limits::is_root();
    given
        .or_else(|| dirs::state_dir(is_root, |name| std::env::var(name).ok()))
        .context("no state directory: name one with --state DIR")
}

#[cfg(test)]
mod tests;
