//! The access log: a line for each request, connection and flow, made where it ends and written by
//! what reads the queue. Nothing here waits: a line that finds no room is lost, and counted.
//!
//! What clients say is cut to a bounded length and escaped, so that none can forge a line or speak
//! to a terminal.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use landfall_model::ServiceKey;

use crate::budget::Account;
use crate::failures::Failures;
use crate::identity::ListenerId;

/// Lines that may wait to be written: some megabytes at worst.
const QUEUE: usize = 4096;

/// Bytes of a target that are kept, and of any other field.
const MAX_TARGET: usize = 1024;
const MAX_FIELD: usize = 256;

/// Bytes of a line at most: each byte that is kept becomes six at worst.
#[cfg(test)]
const MAX_LINE: usize = 6 * (MAX_TARGET + 4 * MAX_FIELD) + 1024;

/// How a line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// A JSON object with everything.
    #[default]
    Json,
    /// The common log format.
    Common,
    /// The same with `Referer` and `User-Agent`.
    Combined,
}

/// Which lines are written; of failures some more are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample(f64);

/// Where lines come from. Shared by all workers.
#[derive(Debug)]
pub struct AccessLog {
    format: Format,
    sample: Sample,
    keeps_query: bool,
    lines: SyncSender<Vec<u8>>,
    lost: AtomicU64,
    left_out: AtomicU64,
}

/// How something ended, in one word for the log.
pub(crate) type End = &'static str;

/// As it should.
pub(crate) const OK: End = "ok";
/// The client left, or broke its own message.
pub(crate) const CLIENT_ABORT: End = "client_abort";
/// The member left, or broke its own message.
pub(crate) const MEMBER_FAILED: End = "member_failed";
/// One of both sides broke off.
pub(crate) const BROKEN: End = "broken";
/// A side was silent for too long.
pub(crate) const TIMEOUT: End = "timeout";
/// The listener, the member or the permission to connect went away.
pub(crate) const CUT: End = "cut";
pub(crate) const SHARE: End = "share";

/// What becomes a line. Written when it is dropped, however that comes about.
#[derive(Debug)]
pub(crate) struct Note {
    log: Arc<AccessLog>,
    account: Arc<Account>,
    began: Instant,
    facts: Facts,
}

/// What a line says.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    service: ServiceKey,
    listener: ListenerId,
    client: SocketAddr,
    pub(crate) request: Option<RequestNote>,
    pub(crate) status: u16,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) first_byte: Option<Duration>,
    pub(crate) member: Option<SocketAddr>,
    pub(crate) end: End,
}

/// What a client asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestNote {
    version: &'static str,
    method: Vec<u8>,
    target: Vec<u8>,
    host: Vec<u8>,
    referer: Vec<u8>,
    agent: Vec<u8>,
}

/// How many numbers can be drawn.
const DRAWS: f64 = 4_294_967_296.0;

thread_local! {
    static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(0));
}

// === impl Sample ===

impl Sample {
    /// Every line.
    pub const ALL: Self = Self(1.0);

    /// A share of the lines, from 0 to 1.
    pub fn share(share: f64) -> Self {
        Self(share)
    }

    /// Whether to write a line for which this number was drawn.
    fn keeps(self, draw: u32) -> bool {
        f64::from(draw) < self.0 * DRAWS
    }
}

/// Draws a number (`SplitMix64`): quickly, and not so that anything could depend on it.
fn draw() -> u32 {
    let state = STATE.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
    STATE.set(state);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed >> 32) as u32
}

// === impl AccessLog ===

impl AccessLog {
    /// A log, and the queue of its lines.
    pub fn new(format: Format, sample: Sample, keeps_query: bool) -> (Self, Receiver<Vec<u8>>) {
        let (lines, queue) = sync_channel(QUEUE);
        let log = Self {
            format,
            sample,
            keeps_query,
            lines,
            lost: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
        };
        (log, queue)
    }

    /// Lines that found no room in the queue.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Failures that were left out because there were too many of their Service.
    pub fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    /// Notes lines that left the queue and could not be written.
    pub fn lose(&self, lines: u64) {
        self.lost.fetch_add(lines, Ordering::Relaxed);
    }

    fn put(&self, facts: &Facts, failures: &Failures, (began, now): (Instant, Instant), draw: u32) {
        if !self.sample.keeps(draw) {
            // Failures are what a log is read for.
            if !facts.is_failure() {
                return;
            }
            if !failures.take(now) {
                self.left_out.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
        let took = now.saturating_duration_since(began);
        let line = line(self.format, facts, Timestamp::now(), took);
        if self.lines.try_send(line).is_err() {
            self.lose(1);
        }
    }
}

// === impl Note ===

impl Note {
    pub(crate) fn new(
        log: &Arc<AccessLog>,
        account: &Arc<Account>,
        service: &ServiceKey,
        listener: ListenerId,
        client: SocketAddr,
    ) -> Self {
        Self {
            log: log.clone(),
            account: account.clone(),
            began: Instant::now(),
            facts: Facts {
                service: service.clone(),
                listener,
                client,
                request: None,
                status: 0,
                bytes_in: 0,
                bytes_out: 0,
                first_byte: None,
                member: None,
                end: CUT,
            },
        }
    }

    pub(crate) fn facts(&mut self) -> &mut Facts {
        &mut self.facts
    }

    /// Notes what is asked for.
    pub(crate) fn asked<'v>(
        &mut self,
        version: &'static str,
        (method, target): (&str, &str),
        field: impl Fn(&str) -> Option<&'v [u8]>,
    ) {
        let keeps_query = self.log.keeps_query;
        let plain = |text: &[u8], most: usize| {
            let end = text.iter().position(|byte| matches!(byte, b'?' | b'#'));
            let end = end.filter(|_| !keeps_query).unwrap_or(text.len());
            text.get(..end.min(most)).unwrap_or_default().to_vec()
        };
        let whole = |text: &[u8]| {
            text.get(..MAX_FIELD.min(text.len()))
                .unwrap_or_default()
                .to_vec()
        };
        self.facts.request = Some(RequestNote {
            version,
            method: whole(method.as_bytes()),
            target: plain(target.as_bytes(), MAX_TARGET),
            host: field("host").map(whole).unwrap_or_default(),
            referer: field("referer").map_or_else(Vec::new, |value| plain(value, MAX_FIELD)),
            agent: field("user-agent").map(whole).unwrap_or_default(),
        });
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        let times = (self.began, Instant::now());
        self.log
            .put(&self.facts, self.account.failures(), times, draw());
    }
}

// === impl Facts ===

impl Facts {
    fn is_failure(&self) -> bool {
        self.status >= 500 || self.end != OK
    }
}

/// Writes a line, with its end.
fn line(format: Format, facts: &Facts, now: Timestamp, took: Duration) -> Vec<u8> {
    let began = now.checked_sub(took).unwrap_or(now);
    let mut out = Vec::with_capacity(384);
    match format {
        Format::Json => json(facts, began, took, &mut out),
        Format::Common | Format::Combined => {
            common(facts, began, &mut out);
            if format == Format::Combined {
                let request = facts.request.as_ref();
                for text in [request.map(|it| &it.referer), request.map(|it| &it.agent)] {
                    out.extend_from_slice(b" \"");
                    common_text(
                        text.filter(|it| !it.is_empty()).map_or(b"-", |it| it),
                        &mut out,
                    );
                    out.push(b'"');
                }
            }
        }
    }
    out.push(b'\n');
    out
}

/// Writes a JSON string.
fn json_text(value: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in value {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b' '..=b'~' => out.push(byte),
            // No byte of a character beyond ASCII is worth a control character.
            _ => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
        }
    }
    out.push(b'"');
}

fn json(facts: &Facts, began: Timestamp, took: Duration, out: &mut Vec<u8>) {
    let mut separator = b'{';
    let mut text = |name: &str, value: &[u8]| {
        out.push(std::mem::replace(&mut separator, b','));
        out.push(b'"');
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":");
        json_text(value, out);
    };
    text(
        "time",
        began
            .strftime("%Y-%m-%dT%H:%M:%S%.3fZ")
            .to_string()
            .as_bytes(),
    );
    text("service", facts.service.to_string().as_bytes());
    text("listener", facts.listener.to_string().as_bytes());
    text("client", facts.client.to_string().as_bytes());
    if let Some(request) = &facts.request {
        let fields = [
            ("version", request.version.as_bytes()),
            ("method", &request.method),
            ("host", &request.host),
            ("target", &request.target),
            ("referer", &request.referer),
            ("userAgent", &request.agent),
        ];
        for (name, value) in fields.into_iter().filter(|(_, value)| !value.is_empty()) {
            text(name, value);
        }
    }
    if let Some(member) = facts.member {
        text("member", member.to_string().as_bytes());
    }
    text("end", facts.end.as_bytes());
    let mut number = |name: &str, value: String| {
        out.extend_from_slice(format!(",\"{name}\":{value}").as_bytes());
    };
    if facts.status > 0 {
        number("status", facts.status.to_string());
    }
    number("bytesIn", facts.bytes_in.to_string());
    number("bytesOut", facts.bytes_out.to_string());
    if let Some(first) = facts.first_byte {
        number("firstByte", format!("{:.6}", first.as_secs_f64()));
    }
    number("duration", format!("{:.6}", took.as_secs_f64()));
    out.push(b'}');
}

fn common(facts: &Facts, began: Timestamp, out: &mut Vec<u8>) {
    out.extend_from_slice(facts.client.ip().to_canonical().to_string().as_bytes());
    let time = began.strftime(" - - [%d/%b/%Y:%H:%M:%S +0000] \"");
    out.extend_from_slice(time.to_string().as_bytes());
    match &facts.request {
        Some(request) if request.method.is_empty() => out.push(b'-'),
        Some(request) => {
            common_text(&request.method, out);
            out.push(b' ');
            common_text(&request.target, out);
            out.push(b' ');
            out.extend_from_slice(request.version.as_bytes());
        }
        None => {
            let (key, address) = (facts.listener.key, facts.listener.socket_address());
            out.extend_from_slice(format!("{} {address}", key.protocol).as_bytes());
        }
    }
    let status = match facts.status {
        0 => "-".to_owned(),
        status => status.to_string(),
    };
    out.extend_from_slice(format!("\" {status} {}", facts.bytes_out).as_bytes());
}

/// Escapes as Apache does.
fn common_text(text: &[u8], out: &mut Vec<u8>) {
    for &byte in text {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b' '..=b'~' => out.push(byte),
            _ => out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests;
