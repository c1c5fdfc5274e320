//! Landfall: gives Kubernetes Services of type LoadBalancer an address that works.
//!
//! The binary only assembles: it parses the command line, puts source, engine, provider and admin
//! endpoint together, and prints.

mod access_log;
mod admin;
mod announcing;
mod assembly;
mod backend;
mod cli;
mod cluster;
mod commands;
mod config;
mod data_plane;
mod dry_run;
mod instances;
mod last_known;
mod lifetime;
mod logging;
mod manifests;
mod panics;
mod resource_status;
mod routers;
mod signals;
mod systemd;
mod table;
mod takeover;
mod text;
mod threaded_writer;
mod unused_memory;
mod webhook;

use std::process::ExitCode;
use std::time::Duration;

use cli::{Cli, Command};
use commands::{
    adopt, check, completion, controller, demo, explain, get, orphans, plan, speaker, up,
};

/// Set up in [`landfall_sys::memory`].
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Threads for everything but traffic: the data plane brings its own.
const CONTROL_THREADS: usize = 2;

/// The exit code of a command line that is wrong, as clap has it.
const WRONG_USAGE: u8 = 2;

/// How long the end of the process waits for what blocks: standard input, a disk that hangs.
const BLOCKED: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    // Without them, what needs them says so.
    let _ = landfall_sys::capabilities::raise();
    // One TLS provider for the whole process. It can only be set already, which is as good.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let command = Cli::read().command;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(CONTROL_THREADS)
        .thread_name("control")
        .enable_all()
        .build();
    let outcome = match runtime {
        Ok(runtime) => {
            let outcome = runtime.block_on(run(command));
            runtime.shutdown_timeout(BLOCKED);
            outcome
        }
        Err(error) => Err(anyhow::Error::new(error).context("starting the runtime")),
    };
    let code = match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = logging::complain(&format!("landfall: {}\n", reported(&error)));
            if error.is::<dry_run::NoSuchPath>() {
                ExitCode::from(WRONG_USAGE)
            } else {
                ExitCode::FAILURE
            }
        }
    };
    logging::finish();
    code
}

/// An error with its causes, each once: many of them end in the words of what caused them.
fn reported(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.ends_with(&cause) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&cause);
    }
    text
}

/// Runs a command; `false`: it worked, and what it checked is not in order.
async fn run(command: Command) -> anyhow::Result<bool> {
    match command {
        Command::Demo(args) => {
            // The member that fails its check does so on purpose.
            logging::start(args.log_format, "error")?;
            Box::pin(demo::run(args)).await.map(|()| true)
        }
        Command::Up(args) => {
            logging::start(args.log_format, "info")?;
            Box::pin(up::run(args)).await.map(|()| true)
        }
        Command::Controller(args) => {
            logging::start(args.log_format, args.reference.level())?;
            args.reference.report();
            Box::pin(controller::run(args)).await.map(|()| true)
        }
        Command::Speaker(args) => {
            logging::start(args.log_format, "info")?;
            Box::pin(speaker::run(args)).await.map(|()| true)
        }
        Command::Get(args) => get::run(args).await.map(|()| true),
        Command::Explain(args) => explain::run(args).await.map(|()| true),
        Command::Plan(args) => plan::run(args).await,
        Command::Check(args) => check::run(args).await,
        Command::Adopt(args) => {
            logging::start(cli::LogFormat::Text, "warn")?;
            adopt::run(args).await
        }
        Command::Orphans(args) => {
            logging::start(cli::LogFormat::Text, "warn")?;
            orphans::run(args).await
        }
        Command::Completion { shell } => completion::completion(shell).map(|()| true),
        Command::Man { dir } => completion::man(dir.as_deref()).map(|()| true),
    }
}

/// Returns whether the reader of standard output ended: `landfall get services | head`.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
