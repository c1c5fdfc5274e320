//! Log lines: to standard error, so that standard output stays a command's own. A log that can't be
//! written stops nothing: lines are lost, and counted. What is said of Services has a limit for
//! each, so that none takes the room of the others.

mod shares;

use std::fmt::Debug;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::time::SystemTime;
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use crate::cli::LogFormat;
use crate::threaded_writer::ThreadedWriter;
use shares::Shares;

/// Messages of libraries that are dropped. The Kubernetes client complains of an unavailable API
/// server, which the sources report once. Those of HTTP/2 and TLS report what clients do, as often
/// as they do it, and quote them: with that, a client could fill a disk.
const LIBRARIES: &str = "kube_client::client::builder=off,h2=error,rustls=error";

/// How long the end of the process waits for lines that are not written yet.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Standard error and standard output, once a command that serves has started.
static STDERR: OnceLock<ThreadedWriter> = OnceLock::new();
static STDOUT: OnceLock<ThreadedWriter> = OnceLock::new();

/// What Services may write, and what was left out.
static LIMIT: OnceLock<Limit> = OnceLock::new();

/// How long dropped lines are counted until they are reported.
const GATHERING: Duration = Duration::from_secs(60);

/// A line on its way to the outlet.
struct Line(ThreadedWriter);

/// Drops lines of Services that write too many, but none that an operator requested with `debug`,
/// and none without a Service.
#[derive(Clone, Debug)]
struct Limit(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    started: Instant,
    shares: Mutex<Shares>,
    left_out: AtomicU64,
    /// Wakes the thread that reports it.
    wake: SyncSender<()>,
}

/// The Service that an event is about.
#[derive(Debug, Default)]
struct Subject(Option<String>);

/// Starts logging. `LANDFALL_LOG` (as in `debug` or `landfall_proxy=trace`) says how much;
/// `quiet` is the level without it.
pub fn start(format: LogFormat, quiet: &str) -> io::Result<()> {
    let report = |lost| tracing::warn!(lost, "log lines could not be written");
    let threaded_writer = ThreadedWriter::start("log", io::stderr(), report)?;
    let _ = STDOUT.set(ThreadedWriter::start("output", io::stdout(), |_| {})?);
    let _ = STDERR.set(threaded_writer.clone());
    let (limit, woken) = Limit::new();
    let asked = std::env::var("LANDFALL_LOG").ok();
    let filter = filter(quiet, asked.as_deref());
    let writer = move || Line(threaded_writer.clone());
    subscriber(format, filter, limit.clone(), writer).init();
    let _ = LIMIT.set(limit.clone());
    // It ends with the process.
    std::thread::Builder::new()
        .name("log-limit".to_owned())
        .spawn(move || report_left_out(&limit, &woken))?;
    // The default hook writes to standard error itself, and waits for it.
    std::panic::set_hook(Box::new(|panic| {
        let backtrace = std::backtrace::Backtrace::capture();
        tracing::error!(%backtrace, "{panic}");
    }));
    Ok(())
}

fn subscriber(
    format: LogFormat,
    filter: EnvFilter,
    limit: Limit,
    writer: impl for<'w> MakeWriter<'w> + Send + Sync + 'static,
) -> impl Subscriber + Send + Sync {
    let lines = fmt::layer()
        .with_timer(SystemTime)
        .with_target(false)
        // It would print to standard error itself, and panic where it can't.
        .log_internal_errors(false)
        .with_writer(writer);
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match format {
        LogFormat::Text => lines
            .with_ansi(io::IsTerminal::is_terminal(&io::stderr()))
            .boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry()
        .with(lines)
        .with(limit)
        .with(filter)
}

/// Reports periodically what was dropped, as long as something is.
fn report_left_out(limit: &Limit, woken: &Receiver<()>) {
    while woken.recv().is_ok() {
        std::thread::park_timeout(GATHERING);
        limit.report();
    }
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
    STDERR.get().map_or(0, ThreadedWriter::lost)
}

/// How many lines were left out so far because their Service wrote too many.
pub fn left_out() -> u64 {
    let limit = LIMIT.get();
    limit.map_or(0, |limit| limit.0.left_out.load(Ordering::Relaxed))
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
    if let Some(limit) = LIMIT.get() {
        limit.report();
    }
    for threaded_writer in [&STDOUT, &STDERR] {
        if let Some(threaded_writer) = threaded_writer.get() {
            threaded_writer.flush(LAST_LINES);
        }
    }
}

fn to(
    threaded_writer: &OnceLock<ThreadedWriter>,
    mut sink: impl Write,
    text: &str,
) -> io::Result<()> {
    if let Some(threaded_writer) = threaded_writer.get() {
        threaded_writer.put(text.as_bytes().to_vec());
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

// === impl Limit ===

impl Limit {
    /// A limit, and what wakes the thread that reports what was dropped.
    fn new() -> (Self, Receiver<()>) {
        let (wake, woken) = sync_channel(1);
        let shared = Shared {
            started: Instant::now(),
            shares: Mutex::default(),
            left_out: AtomicU64::new(0),
            wake,
        };
        (Self(Arc::new(shared)), woken)
    }

    /// Writes a line for each namespace of which lines were left out.
    fn report(&self) {
        let reported = self.shares().left_out();
        for left in reported {
            let (service, lines, seconds) = (left.service, left.lines, GATHERING.as_secs());
            match left.others {
                0 => tracing::warn!(
                    service,
                    lines,
                    "{lines} lines of {service} left out within {seconds} s"
                ),
                others => tracing::warn!(
                    service,
                    others,
                    lines,
                    "{lines} lines of {service} and {others} other Services of its namespace left \
                     out within {seconds} s"
                ),
            }
        }
    }

    fn shares(&self) -> MutexGuard<'_, Shares> {
        // Whatever broke off, the worst is a line too many or too few.
        self.0.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Subscriber> Layer<S> for Limit {
    fn event_enabled(&self, event: &Event<'_>, _context: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        // What was dropped is reported here.
        if *metadata.level() > Level::INFO || metadata.target() == module_path!() {
            return true;
        }
        let mut subject = Subject::default();
        event.record(&mut subject);
        let Some(service) = subject.0 else {
            return true;
        };
        let written = self.shares().take(&service, self.0.started.elapsed());
        if !written {
            self.0.left_out.fetch_add(1, Ordering::Relaxed);
            let _is_awake = self.0.wake.try_send(());
        }
        written
    }
}

// === impl Subject ===

impl Visit for Subject {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "service" {
            self.0 = Some(format!("{value:?}"));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "service" {
            self.0 = Some(value.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Collects what is written.
    #[derive(Clone, Debug, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_service_that_floods_the_log_takes_nothing_from_the_others() {
        let (page, (limit, woken)) = (Page::default(), Limit::new());
        let writer = page.clone();
        let filter = filter("info", Some("debug"));
        let subscriber = subscriber(LogFormat::Json, filter, limit.clone(), move || {
            writer.clone()
        });
        tracing::subscriber::with_default(subscriber, || {
            for member in 0..5000 {
                let service = landfall_model::ServiceKey::new("default", "loud");
                tracing::warn!(%service, member, "member is down");
                tracing::info!(service = Some(service.to_string()), "applied");
                tracing::debug!(%service, "asked for");
            }
            tracing::info!(service = "default/calm", "listener opened");
            tracing::info!("of the process");
            limit.report();
        });
        let page = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
        let count = |message: &str| {
            let message = format!("\"message\":\"{message}");
            page.lines().filter(|line| line.contains(&message)).count()
        };
        let of_service = count("member is down") + count("applied");
        // A test that is stopped for seconds lets one more in for each.
        assert!((200..1000).contains(&of_service), "{of_service}");
        let left_out = limit.0.left_out.load(Ordering::Relaxed);
        assert_eq!(of_service as u64 + left_out, 10_000);
        assert_eq!(count("asked for"), 5000);
        assert_eq!((count("listener opened"), count("of the process")), (1, 1));
        let reported = format!("{left_out} lines of default/loud left out within 60 s");
        assert_eq!(count(&reported), 1, "{}", page.lines().last().unwrap());
        // The thread that reports it is woken.
        assert_eq!(woken.try_recv(), Ok(()));
    }

    #[test]
    fn libraries_log_only_where_they_are_named() {
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
