//! Log lines: to standard error, so that standard output stays a command's own. A log that can't be
//! written stops nothing: lines are lost, and counted.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::time::SystemTime;

use crate::cli::LogFormat;
use crate::outlet::Outlet;

/// How long the end of the process waits for lines that are not written yet.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Standard error and standard output, once a command that serves has started.
static STDERR: OnceLock<Outlet> = OnceLock::new();
static STDOUT: OnceLock<Outlet> = OnceLock::new();

/// A line on its way to the outlet.
struct Line(Outlet);

/// Starts logging. `LANDFALL_LOG` (as in `debug` or `landfall_proxy=trace`) says how much;
/// `quiet` is the level without it. The Kubernetes client's own complaints about an API server that
/// is away are left out: the sources tell of it once. So is what the HTTP/2 library says of its
/// peers, or clients could fill a disk.
pub fn start(format: LogFormat, quiet: &str) -> io::Result<()> {
    let report = |lost| tracing::warn!(lost, "log lines could not be written");
    let outlet = Outlet::start("log", io::stderr(), report)?;
    let _ = STDOUT.set(Outlet::start("output", io::stdout(), |_| {})?);
    let _ = STDERR.set(outlet.clone());
    let usual = || format!("{quiet},kube_client::client::builder=off,h2=error");
    let filter =
        EnvFilter::try_from_env("LANDFALL_LOG").unwrap_or_else(|_| EnvFilter::new(usual()));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_timer(SystemTime)
        .with_target(false)
        // It would print to standard error itself, and panic where it can't.
        .log_internal_errors(false)
        .with_writer(move || Line(outlet.clone()));
    match format {
        LogFormat::Text => builder
            .with_ansi(io::IsTerminal::is_terminal(&io::stderr()))
            .init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    // The default hook writes to standard error itself, and waits for it.
    std::panic::set_hook(Box::new(|panic| {
        let backtrace = std::backtrace::Backtrace::capture();
        tracing::error!(%backtrace, "{panic}");
    }));
    Ok(())
}

/// How many log lines could not be written so far.
pub fn lost() -> u64 {
    STDERR.get().map_or(0, Outlet::lost)
}

/// Prints to standard output, and waits for it only where nothing is served.
pub fn print(text: &str) -> io::Result<()> {
    to(&STDOUT, io::stdout(), text)
}

/// As [`self::print()`], to standard error.
pub fn complain(text: &str) -> io::Result<()> {
    to(&STDERR, io::stderr(), text)
}

/// Waits for what was printed and logged, as long as that is reasonable.
pub fn finish() {
    for outlet in [&STDOUT, &STDERR] {
        if let Some(outlet) = outlet.get() {
            outlet.flush(LAST_LINES);
        }
    }
}

fn to(outlet: &OnceLock<Outlet>, mut sink: impl Write, text: &str) -> io::Result<()> {
    if let Some(outlet) = outlet.get() {
        outlet.put(text.as_bytes().to_vec());
        return Ok(());
    }
    sink.write_all(text.as_bytes())?;
    sink.flush()
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.put(bytes.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
