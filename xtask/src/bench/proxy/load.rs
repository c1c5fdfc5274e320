//! The clients: new connections, requests on kept connections, bulk, and connections that idle.
//!
//! Any failure ends the benchmark: a proxy that drops work must not look cheap.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::net::{RecvFlags, recv};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::work::Work;

/// A message toward a member over TCP.
pub const REQUEST: [u8; 64] = [b'r'; 64];
/// What it answers.
pub const REPLY: [u8; 128] = [b'x'; 128];

const HTTP_REQUEST: &[u8] =
    b"GET /bench HTTP/1.1\r\nHost: bench.example\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n";

/// How much later than planned a part may end before it counts as stuck.
const STUCK: Duration = Duration::from_secs(60);

/// What client and member say to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Talk {
    /// [`REQUEST`] and [`REPLY`].
    Tcp,
    /// A GET and its response.
    Http,
    /// One byte, and the first byte of an endless answer.
    Bulk,
}

/// Exchanges on connections that were kept.
#[derive(Debug, Default)]
pub struct Exchanges {
    /// How long each took, in microseconds, sorted.
    pub latencies: Vec<f64>,
    pub wall: Duration,
}

impl Talk {
    pub fn about(work: Work) -> Self {
        match work {
            Work::Small | Work::Link => Self::Tcp,
            Work::Bulk => Self::Bulk,
            Work::Http => Self::Http,
        }
    }
}

impl Exchanges {
    /// The latency that this share of all exchanges did not exceed.
    pub fn percentile(&self, share: f64) -> f64 {
        percentile(&self.latencies, share)
    }
}

/// The smallest of sorted values that at least this share of them does not exceed; 0 of none.
fn percentile(sorted: &[f64], share: f64) -> f64 {
    let rank = (sorted.len() as f64 * share).ceil().max(1.0);
    #[expect(clippy::cast_sign_loss, reason = "at least 1")]
    let index = (rank as usize - 1).min(sorted.len().saturating_sub(1));
    sorted.get(index).copied().unwrap_or_default()
}

/// One connection, one exchange.
pub async fn once(target: SocketAddrV4, talk: Talk) -> anyhow::Result<()> {
    let exchange = async {
        let mut stream = connect(target).await?;
        exchange(&mut stream, talk, &mut [0; 4096]).await
    };
    timeout(Duration::from_secs(5), exchange)
        .await
        .context("no answer within 5 s")?
}

/// Opens `total` connections, `at_once` at a time, has one exchange on each, and closes it.
pub async fn connections(
    target: SocketAddrV4,
    talk: Talk,
    total: u64,
    at_once: usize,
) -> anyhow::Result<Duration> {
    let left = Arc::new(AtomicU64::new(total));
    let begun = Instant::now();
    let mut clients = JoinSet::new();
    for _ in 0..at_once {
        let left = Arc::clone(&left);
        clients.spawn(async move {
            let mut buffer = [0; 4096];
            let more = |count: u64| count.checked_sub(1);
            while left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
                .is_ok()
            {
                let mut stream = connect(target).await?;
                exchange(&mut stream, talk, &mut buffer).await?;
            }
            Ok(())
        });
    }
    all(clients, STUCK * 2).await?;
    Ok(begun.elapsed())
}

/// What became of new connections.
#[derive(Clone, Copy, Debug, Default)]
pub struct Connections {
    pub done: u64,
    pub failed: u64,
    /// The longest that one took, from its first packet to its answer.
    pub slowest: Duration,
    pub wall: Duration,
}

/// As [`connections`], for at most `within`; counts what fails instead of ending with it.
pub async fn connections_within(
    target: SocketAddrV4,
    talk: Talk,
    total: u64,
    at_once: usize,
    within: Duration,
) -> anyhow::Result<Connections> {
    let left = Arc::new(AtomicU64::new(total));
    let begun = Instant::now();
    let mut clients = JoinSet::new();
    for _ in 0..at_once {
        let left = Arc::clone(&left);
        clients.spawn(async move {
            let mut buffer = [0; 4096];
            let mut mine = Connections::default();
            let more = |count: u64| count.checked_sub(1);
            while begun.elapsed() < within
                && left
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
                    .is_ok()
            {
                let begun = Instant::now();
                let one = async {
                    let mut stream = connect(target).await?;
                    exchange(&mut stream, talk, &mut buffer).await
                };
                match timeout(within, one).await {
                    Ok(Ok(())) => mine.done += 1,
                    Ok(Err(_)) | Err(_) => mine.failed += 1,
                }
                mine.slowest = mine.slowest.max(begun.elapsed());
            }
            Ok(mine)
        });
    }
    let mut sum = Connections::default();
    for mine in all(clients, within * 2 + STUCK).await? {
        sum.done += mine.done;
        sum.failed += mine.failed;
        sum.slowest = sum.slowest.max(mine.slowest);
    }
    sum.wall = begun.elapsed();
    Ok(sum)
}

/// Exchanges on `kept` connections for a time: each the next one as soon as the last was answered,
/// or, with a rate, as many per second in all.
pub async fn exchanges(
    target: SocketAddrV4,
    talk: Talk,
    kept: u32,
    rate: Option<u32>,
    time: Duration,
) -> anyhow::Result<Exchanges> {
    let mut streams = Vec::new();
    for _ in 0..kept {
        let mut stream = connect(target).await?;
        exchange(&mut stream, talk, &mut [0; 4096]).await?;
        streams.push(stream);
    }
    let begun = Instant::now();
    let end = begun + time;
    let mut clients = JoinSet::new();
    for (index, stream) in (0_u32..).zip(streams) {
        match rate {
            None => clients.spawn(closed(stream, talk, end)),
            Some(rate) => {
                let every = Duration::from_secs(1) * kept / rate;
                // Spread evenly over the first period.
                clients.spawn(paced(
                    stream,
                    talk,
                    begun + every * index / kept,
                    every,
                    end,
                ))
            }
        };
    }
    let mut latencies: Vec<f64> = all(clients, time + STUCK)
        .await?
        .into_iter()
        .flatten()
        .collect();
    let wall = begun.elapsed();
    latencies.sort_by(f64::total_cmp);
    if latencies.is_empty() {
        bail!("no exchange ended in time");
    }
    Ok(Exchanges { latencies, wall })
}

async fn closed(mut stream: TcpStream, talk: Talk, end: Instant) -> anyhow::Result<Vec<f64>> {
    let mut buffer = [0; 4096];
    let mut latencies = Vec::with_capacity(1 << 14);
    let mut sent = Instant::now();
    while sent < end {
        exchange(&mut stream, talk, &mut buffer).await?;
        let answered = Instant::now();
        latencies.push(micros(answered - sent));
        sent = answered;
    }
    Ok(latencies)
}

/// A request that could not be sent in time, because the last one was not answered, counts from
/// when it should have been sent: a stall hits all that would have come meanwhile.
async fn paced(
    mut stream: TcpStream,
    talk: Talk,
    mut due: Instant,
    every: Duration,
    end: Instant,
) -> anyhow::Result<Vec<f64>> {
    let mut buffer = [0; 4096];
    let mut latencies = Vec::with_capacity(1 << 12);
    while due < end {
        let from = if Instant::now() < due {
            tokio::time::sleep_until(due.into()).await;
            Instant::now()
        } else {
            due
        };
        exchange(&mut stream, talk, &mut buffer).await?;
        latencies.push(micros(from.elapsed()));
        due += every;
    }
    Ok(latencies)
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Receives on `streams` connections for a time; answers how many bytes came in how long.
pub async fn bulk(
    target: SocketAddrV4,
    streams: usize,
    time: Duration,
) -> anyhow::Result<(u64, Duration)> {
    let begun = Instant::now();
    let end = begun + time;
    let mut clients = JoinSet::new();
    for _ in 0..streams {
        clients.spawn(async move {
            let mut stream = connect(target).await?;
            stream.write_all(b"b").await?;
            let mut received = 0;
            let mut buffer = vec![0; 1 << 20];
            while Instant::now() < end {
                // TRUNC: the kernel drops the bytes instead of copying them here. A client on
                // another machine would not take this machine's memory bandwidth either.
                let count = stream
                    .async_io(Interest::READABLE, || {
                        let (_, count) = recv(&stream, &mut *buffer, RecvFlags::TRUNC)?;
                        Ok(count)
                    })
                    .await?;
                if count == 0 {
                    bail!("a bulk connection was ended early");
                }
                received += count as u64;
            }
            Ok(received)
        });
    }
    let received = all(clients, time + STUCK).await?.into_iter().sum();
    Ok((received, begun.elapsed()))
}

/// Opens connections, has one exchange on each so that it goes all the way to a member, and leaves
/// them open.
pub async fn idle(target: SocketAddrV4, count: usize) -> anyhow::Result<Vec<TcpStream>> {
    const AT_ONCE: usize = 50;
    let mut clients = JoinSet::new();
    for part in 0..AT_ONCE {
        let mine = count / AT_ONCE + usize::from(part < count % AT_ONCE);
        clients.spawn(async move {
            let mut streams = Vec::with_capacity(mine);
            for _ in 0..mine {
                let mut stream = connect(target).await?;
                exchange(&mut stream, Talk::Tcp, &mut [0; 4096]).await?;
                streams.push(stream);
            }
            Ok(streams)
        });
    }
    Ok(all(clients, STUCK * 2)
        .await?
        .into_iter()
        .flatten()
        .collect())
}

async fn all<T: 'static>(
    mut clients: JoinSet<anyhow::Result<T>>,
    within: Duration,
) -> anyhow::Result<Vec<T>> {
    let work = async {
        let mut results = Vec::with_capacity(clients.len());
        while let Some(result) = clients.join_next().await {
            results.push(result??);
        }
        Ok(results)
    };
    timeout(within, work)
        .await
        .context("the proxy does not answer any more")?
}

async fn exchange(
    stream: &mut TcpStream,
    talk: Talk,
    buffer: &mut [u8; 4096],
) -> anyhow::Result<()> {
    let (message, answer): (&[u8], _) = match talk {
        Talk::Tcp => (&REQUEST, REPLY.len()),
        Talk::Bulk => (b"b", 1),
        Talk::Http => (HTTP_REQUEST, buffer.len()),
    };
    stream.write_all(message).await?;
    let mut filled = 0;
    while filled < answer {
        let count = stream
            .read(buffer.get_mut(filled..).unwrap_or_default())
            .await?;
        if count == 0 {
            bail!("a connection was ended before its answer had come");
        }
        filled += count;
        if talk == Talk::Http && response_is_complete(buffer.get(..filled).unwrap_or_default())? {
            return Ok(());
        }
    }
    if talk == Talk::Http {
        bail!("a response is larger than any that a member sends");
    }
    Ok(())
}

/// Whether a whole response with the members' body is there.
fn response_is_complete(bytes: &[u8]) -> anyhow::Result<bool> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(head) = response.parse(bytes)? else {
        return Ok(false);
    };
    if response.code != Some(200) {
        bail!(
            "a request was answered with status {}",
            response.code.unwrap_or_default()
        );
    }
    Ok(bytes.len() >= head + REPLY.len())
}

/// Clients come from many addresses and never use a port twice in one run, so that the kernel's
/// memory of ended connections does not matter. Nor do they use ports that it chooses by itself:
/// one that was bound here is refused to a proxy that lets it choose, at whatever address.
async fn connect(target: SocketAddrV4) -> io::Result<TcpStream> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        let source = source(NEXT.fetch_add(1, Ordering::Relaxed), std::process::id());
        match socket.bind(source.into()) {
            Ok(()) => return socket.connect(target.into()).await,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
}

fn source(number: u64, run: u32) -> SocketAddrV4 {
    const FIRST_PORT: u16 = 1_024;
    const PORTS: u64 = 31_744;
    const HOSTS: u64 = 250;
    let port = FIRST_PORT + (number % PORTS) as u16;
    let host = number / PORTS;
    let net = 100 + (host / HOSTS % 2) as u8;
    let host = (host % HOSTS) as u8 + 1;
    SocketAddrV4::new(Ipv4Addr::new(127, net, (run % 250) as u8, host), port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let sorted: Vec<f64> = (1..=100).map(f64::from).collect();
        let of =
            |sorted: &[f64]| [0.5, 0.99, 1.0].map(|share| percentile(sorted, share).to_string());
        assert_eq!(of(&sorted), ["50", "99", "100"]);
        assert_eq!(of(&[7.0]), ["7", "7", "7"]);
        assert_eq!(of(&[]), ["0", "0", "0"]);
    }

    #[test]
    fn a_response_is_complete_when_its_body_is_there() {
        let mut response = b"HTTP/1.1 200 OK\r\nserver: x\r\ncontent-length: 128\r\n\r\n".to_vec();
        assert!(!response_is_complete(&response[..20]).unwrap());
        assert!(!response_is_complete(&response).unwrap());
        response.extend_from_slice(&REPLY);
        assert!(response_is_complete(&response).unwrap());
    }

    #[test]
    fn a_response_that_is_no_success_is_an_error() {
        let error = response_is_complete(b"HTTP/1.1 503 Unavailable\r\n\r\n").unwrap_err();
        assert_eq!(error.to_string(), "a request was answered with status 503");
    }

    #[test]
    fn sources_do_not_repeat_within_ten_million_connections() {
        assert_eq!(source(0, 300).to_string(), "127.100.50.1:1024");
        assert_eq!(source(31_743, 300).to_string(), "127.100.50.1:32767");
        assert_eq!(source(31_744, 300).to_string(), "127.100.50.2:1024");
        assert_eq!(source(9_999_999, 300).to_string(), "127.101.50.66:1663");
    }
}
