//! The members: small servers that cost as little as possible, the same for every proxy.

use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;

use anyhow::Context as _;
use rustix::fs::sendfile;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

use super::contestant::Contestant;
use super::link::Far;
use super::load::{REPLY, REQUEST};
use super::sizes::Sizes;
use super::work::Work;

/// Larger than the caches near a core, so that bytes come from memory as they would from a network
/// card.
const BULK_FILE: u64 = 32 << 20;
/// How much one call may send.
const BULK_CHUNK: usize = 1 << 20;

/// What an HTTP member answers; as long as [`REPLY`].
const HTTP_REPLY: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 128\r\n\r\n\
xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\
xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";

/// Starts the members of these proxies, in a runtime; they end when the answer is dropped.
pub fn start(
    contestants: &[Contestant],
    sizes: &Sizes,
    far: Option<&Far>,
) -> anyhow::Result<JoinSet<()>> {
    let mut acceptors = JoinSet::new();
    let file = tempfile::tempfile()?;
    {
        use io::Write as _;
        let mut writer = io::BufWriter::new(&file);
        for number in 0..BULK_FILE / 8 {
            writer.write_all(&number.to_ne_bytes())?;
        }
        writer.flush()?;
    }
    let file = Arc::new(file);
    for contestant in contestants {
        for work in sizes.works() {
            for address in contestant.addresses().members(work) {
                let listener = match (work, far) {
                    (Work::Link, Some(far)) => TcpListener::from_std(far.listen(address)?)?,
                    _ => listen(address).with_context(|| {
                        format!("{address} is taken: does another benchmark run on this machine?")
                    })?,
                };
                acceptors.spawn(accept(listener, work, Arc::clone(&file)));
            }
        }
    }
    Ok(acceptors)
}

fn listen(address: SocketAddrV4) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address.into())?;
    socket.listen(4096)
}

async fn accept(listener: TcpListener, work: Work, file: Arc<std::fs::File>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((stream, _)) = listener.accept() => {
                let file = Arc::clone(&file);
                // A connection that breaks shows at the client, which counts.
                connections.spawn(async move {
                    let _ = match work {
                        Work::Small | Work::Link => small(stream).await,
                        Work::Bulk => bulk(stream, &file).await,
                        Work::Http => http(stream).await,
                    };
                });
            }
            Some(_) = connections.join_next() => {}
            else => {}
        }
    }
}

async fn small(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = [0; 512];
    let mut received = 0;
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        received += count;
        while received >= REQUEST.len() {
            received -= REQUEST.len();
            stream.write_all(&REPLY).await?;
        }
    }
}

async fn http(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = [0; 4096];
    let mut filled = 0;
    loop {
        let space = buffer.get_mut(filled..).unwrap_or_default();
        let count = stream.read(space).await?;
        if count == 0 {
            return Ok(());
        }
        filled += count;
        // Requests have no body, and none is sent before the last was answered.
        if buffer
            .get(..filled)
            .is_some_and(|head| head.ends_with(b"\r\n\r\n"))
        {
            filled = 0;
            stream.write_all(HTTP_REPLY).await?;
        }
    }
}

/// After the first byte: as many as the other side takes.
async fn bulk(mut stream: TcpStream, file: &std::fs::File) -> io::Result<()> {
    stream.read_u8().await?;
    let mut offset = 0;
    loop {
        if offset >= BULK_FILE {
            offset = 0;
        }
        stream
            .async_io(Interest::WRITABLE, || {
                Ok(sendfile(&stream, file, Some(&mut offset), BULK_CHUNK)?)
            })
            .await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_http_reply_is_as_long_as_it_says() {
        let head = HTTP_REPLY
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .unwrap();
        assert_eq!(HTTP_REPLY.len() - head - 4, REPLY.len());
        assert!(HTTP_REPLY.starts_with(b"HTTP/1.1 200 OK\r\n"));
    }
}
