//! A router of AS 65001 that keeps the routes of speakers which restart (RFC 4724), and remembers
//! what it was sent.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;

/// What begins each message.
const MARKER: [u8; 16] = [0xff; 16];

/// The rest of an OPEN of AS 65001 with a hold time of 90 s. Its capabilities: IPv4; AS numbers of
/// four octets; graceful restart, for IPv4.
const OPEN: [u8; 35] = [
    0, 51, 1, 4, 0xfd, 0xe9, 0, 90, 10, 0, 0, 2, 22, 2, 20, 1, 4, 0, 1, 0, 1, 65, 4, 0, 0, 0xfd,
    0xe9, 64, 6, 0, 120, 0, 1, 1, 0x80,
];

/// The rest of a KEEPALIVE.
const KEEPALIVE: [u8; 3] = [0, 19, 4];

/// The type of a NOTIFICATION.
pub const NOTIFICATION: u8 = 3;

/// Such a router.
#[derive(Debug)]
pub struct Router {
    /// Where it listens.
    pub address: SocketAddr,
    ended: mpsc::Receiver<Vec<u8>>,
}

impl Router {
    /// Starts it; it takes one connection.
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let (report, ended) = mpsc::channel();
        std::thread::spawn(move || {
            let (stream, _) = listener.accept()?;
            // The test may have ended.
            let _ = report.send(receive(stream)?);
            io::Result::Ok(())
        });
        Ok(Self { address, ended })
    }

    /// Waits until the node has ended its connection, and returns the types of all messages.
    pub fn received(&self) -> Result<Vec<u8>, mpsc::RecvError> {
        self.ended.recv()
    }
}

fn receive(mut stream: TcpStream) -> io::Result<Vec<u8>> {
    stream.write_all(&[&MARKER[..], &OPEN, &MARKER, &KEEPALIVE].concat())?;
    let mut received = Vec::new();
    let mut head = [0; 19];
    while stream.read_exact(&mut head).is_ok() {
        let [.., high, low, kind] = head;
        received.push(kind);
        let rest = usize::from(u16::from_be_bytes([high, low])).saturating_sub(head.len());
        stream.read_exact(&mut vec![0; rest])?;
    }
    Ok(received)
}
