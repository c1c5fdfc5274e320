//! Backends that send their names, and clients that ask for them.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::bed::{DEADLINE, LOOK};

/// Sends its name to every client that sends a byte.
pub struct Backend {
    task: JoinHandle<()>,
}

impl Backend {
    pub async fn start(name: &'static str, address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    // A client that leaves early needs no answer.
                    if stream.read_u8().await.is_ok() {
                        let _ = stream.write_all(name.as_bytes()).await;
                    }
                });
            }
        });
        Self { task }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The name of the backend that answers at an address.
pub async fn ask(address: SocketAddr) -> io::Result<String> {
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(b"?").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        if answer.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(answer)
    };
    tokio::time::timeout(DEADLINE, asked)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Waits until exactly these answer, in turn.
pub async fn answered_by(address: SocketAddr, names: &[&str]) {
    let wanted: BTreeSet<String> = names.iter().map(ToString::to_string).collect();
    let began = Instant::now();
    loop {
        let mut found = BTreeSet::new();
        for _ in 0..4 * names.len() {
            found.extend(ask(address).await);
        }
        if found == wanted {
            return;
        }
        assert!(began.elapsed() < DEADLINE, "{address}: {found:?} answer");
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits until connections to the address are refused.
pub async fn refused(address: SocketAddr) {
    let began = Instant::now();
    while TcpStream::connect(address).await.is_ok() {
        assert!(began.elapsed() < DEADLINE, "{address} still listens");
        tokio::time::sleep(LOOK).await;
    }
}

/// One GET: status and body.
pub async fn http(address: SocketAddr, path: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .ok_or(io::ErrorKind::InvalidData)?;
    let status = head.split(' ').nth(1).and_then(|it| it.parse().ok());
    Ok((status.ok_or(io::ErrorKind::InvalidData)?, body.to_owned()))
}
