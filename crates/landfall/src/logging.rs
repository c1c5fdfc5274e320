//! Log lines: to standard error, so that standard output stays a command's own. A log that can't be
//! written stops nothing: lines are lost, and counted.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::time::SystemTime;

use crate::cli::LogFormat;
use crate::outlet::Outlet;

/// What is not heard of libraries. The Kubernetes client complains of an API server that is away,
/// of which the sources tell once. Those of HTTP/2 and TLS tell what clients do, as often as they
/// do it, and quote them: with that, a client could fill a disk.
const LIBRARIES: &str = "kube_client::client::builder=off,h2=error,rustls=error";

/// How long the end of the process waits for lines that are not written yet.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Standard error and standard output, once a command that serves has started.
static STDERR: OnceLock<Outlet> = OnceLock::new();
static STDOUT: OnceLock<Outlet> = OnceLock::new();

/// A line on its way to the outlet.
struct Line(Outlet);

/// Starts logging. `LANDFALL_LOG` (as in `debug` or `landfall_proxy=trace`) says how much;
/// `quiet` is the level without it.
pub fn start(format: LogFormat, quiet: &str) -> io::Result<()> {
    let report = |lost| tracing::warn!(lost, "log lines could not be written");
    let outlet = Outlet::start("log", io::stderr(), report)?;
    let _ = STDOUT.set(Outlet::start("output", io::stdout(), |_| {})?);
    let _ = STDERR.set(outlet.clone());
    let asked = std::env::var("LANDFALL_LOG").ok();
    let filter = filter(quiet, asked.as_deref());
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

/// What is logged: libraries only as far as they are named.
fn filter(quiet: &str, asked: Option<&str>) -> EnvFilter {
    // Of two directives for one target the later one counts.
    let with = |levels: &str| format!("{LIBRARIES},{levels}");
    let asked = asked.and_then(|levels| EnvFilter::try_new(with(levels)).ok());
    asked.unwrap_or_else(|| EnvFilter::new(with(quiet)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_heard_only_where_they_are_named() {
        let shown = |asked| filter("info", asked).to_string();
        for asked in [None, Some("nonsense=nonsense"), Some("debug")] {
            let shown = shown(asked);
            for quiet in ["h2=error", "rustls=error", "builder=off"] {
                assert!(shown.contains(quiet), "{asked:?}: {shown}");
            }
        }
        assert!(shown(Some("debug")).ends_with("debug"));
        assert!(shown(None).ends_with("info"));
        let named = shown(Some("info,h2=debug"));
        assert!(
            named.contains("h2=debug") && !named.contains("h2=error"),
            "{named}"
        );
    }
}
