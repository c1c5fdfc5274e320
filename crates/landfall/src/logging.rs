//! Log lines: to standard error, so that standard output stays a command's own.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::time::SystemTime;

use crate::cli::LogFormat;

/// Starts logging. `LANDFALL_LOG` (as in `debug` or `landfall_proxy=trace`) says how much;
/// `quiet` is the level without it. The Kubernetes client's own complaints about an API server that
/// is away are left out: the sources tell of it once.
pub fn start(format: LogFormat, quiet: &str) {
    let filter = EnvFilter::try_from_env("LANDFALL_LOG")
        .unwrap_or_else(|_| EnvFilter::new(format!("{quiet},kube_client::client::builder=off")));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_timer(SystemTime)
        .with_target(false)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => builder
            .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
            .init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
}
