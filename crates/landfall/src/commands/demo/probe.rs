//! `landfall demo --once`: requests through every address, and how they spread.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use landfall_model::Protocol;
use landfall_model::view::InstanceView;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::backends::{Backends, FAILING_NAME};

/// Requests per listener.
const REQUESTS: usize = 40;
/// The longest that one answer may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Asks every listener that has members; fails unless all requests were answered and none of them
/// by the failing backend.
pub async fn run(view: &InstanceView, backends: &Backends) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    let mut problems = Vec::new();
    for service in &view.services {
        for listener in &service.listeners {
            if listener.members.is_empty() {
                writeln!(
                    out,
                    "{} {}: no member yet, as intended",
                    service.key, listener.key
                )?;
                continue;
            }
            for address in service.status.addresses() {
                let at = SocketAddr::new(address, listener.key.port.get());
                let mut spread: BTreeMap<String, usize> = BTreeMap::new();
                for number in 0..REQUESTS {
                    let asked = async {
                        match listener.key.protocol {
                            Protocol::Udp => datagram(at, number).await,
                            _ => request(at).await,
                        }
                    };
                    match timeout(TIMEOUT, asked)
                        .await
                        .context("no answer in 5 s")
                        .flatten()
                    {
                        Ok(name) => *spread.entry(name).or_default() += 1,
                        Err(error) => problems.push(format!("{} at {at}: {error:#}", service.key)),
                    }
                }
                let shares: Vec<_> = spread
                    .iter()
                    .map(|(name, count)| format!("{name} {count}"))
                    .collect();
                writeln!(out, "{} {at}: {}", service.key, shares.join(", "))?;
                if spread.contains_key(FAILING_NAME) {
                    problems.push(format!(
                        "{FAILING_NAME} at {} answered although its health check fails",
                        backends.failing
                    ));
                }
            }
        }
    }
    anyhow::ensure!(problems.is_empty(), "{}", problems.join("\n"));
    writeln!(
        out,
        "\nevery request was answered, and {FAILING_NAME} got none"
    )?;
    Ok(())
}

/// Sends one HTTP request on a connection of its own; returns which member answered.
async fn request(at: SocketAddr) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(at).await.context("connecting")?;
    let request = format!("GET / HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .await
        .context("reading the answer")?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .context("an answer without a body")?;
    let status = head.lines().next().unwrap_or_default();
    anyhow::ensure!(status.contains(" 200 "), "{status}");
    let name = body
        .split_whitespace()
        .find(|word| word.starts_with("web-"));
    Ok(name.context("an answer without a name")?.to_owned())
}

/// Sends one datagram from a port of its own; returns which member answered.
async fn datagram(at: SocketAddr, number: usize) -> anyhow::Result<String> {
    let socket = UdpSocket::bind(("127.0.0.1", 0)).await?;
    socket.connect(at).await?;
    let text = format!("hello {number}");
    socket.send(text.as_bytes()).await?;
    let mut buffer = [0; 1500];
    let length = socket.recv(&mut buffer).await?;
    let answer = String::from_utf8_lossy(buffer.get(..length).unwrap_or_default()).into_owned();
    let (name, echoed) = answer
        .split_once(": ")
        .context("an answer without a name")?;
    anyhow::ensure!(echoed == text, "sent {text:?}, got {echoed:?} back");
    Ok(name.to_owned())
}
