//! TCP sockets driven by [`crate::epoll`]: each method is one system call.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use tokio::io::ReadBuf;

use crate::address::RawAddress;
use crate::{check, check_size, size_of};

/// A non-blocking TCP socket.
#[derive(Debug)]
pub struct Stream(OwnedFd);

/// Which halves to shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// Say that nothing more will be sent (FIN).
    Write,
    /// Both ways at once.
    Both,
}

const ONE: libc::c_int = 1;

/// The kernel takes no more pieces at once (`UIO_MAXIOV`).
const MAX_PIECES: usize = 1024;

/// How many bytes that a TCP socket sent, and whether an end of stream (counted as one), the peer
/// has not acknowledged yet.
pub fn unacknowledged(socket: impl AsFd) -> io::Result<usize> {
    let mut count: libc::c_int = 0;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes one int to `count`, which lives across the call.
    check(unsafe { libc::ioctl(socket, libc::TIOCOUTQ, &raw mut count) })?;
    Ok(usize::try_from(count).unwrap_or_default())
}

// === impl Stream ===

impl Stream {
    /// A new socket of the family of `address`, not connected.
    pub fn new(address: &RawAddress) -> io::Result<Self> {
        let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: no pointers; the result is checked.
        let fd = check(unsafe { libc::socket(libc::c_int::from(address.family()), kind, 0) })?;
        // SAFETY: the call just returned this descriptor; nothing else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Takes the next connection of a listening socket, and returns its peer.
    pub fn accept(listener: impl AsFd) -> io::Result<(Self, RawAddress)> {
        let mut peer = RawAddress::UNSPECIFIED;
        let mut length = RawAddress::room();
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        let listener = listener.as_fd().as_raw_fd();
        // SAFETY: `peer` has `length` bytes of room; both live across the call.
        let fd =
            check(unsafe { libc::accept4(listener, peer.as_mut_ptr(), &raw mut length, flags) })?;
        // SAFETY: the call just returned this descriptor; nothing else owns it.
        Ok((Self(unsafe { OwnedFd::from_raw_fd(fd) }), peer))
    }

    /// Begins to connect. `Ok`: connected or on the way; watch for writability, then ask
    /// [`Self::take_error`].
    pub fn connect(&self, address: &RawAddress) -> io::Result<()> {
        // SAFETY: the address lives across the call and is as long as stated.
        let result = unsafe { libc::connect(self.raw(), address.as_ptr(), address.length()) };
        match check(result) {
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Dissolves a connection that both sides have ended, so that the socket can connect again.
    /// What is left of the old connection in the kernel (TIME-WAIT) lives on without this socket.
    pub fn disconnect(&self) -> io::Result<()> {
        let nowhere = RawAddress::UNSPECIFIED;
        // SAFETY: the address lives across the call and is as long as stated.
        let result = unsafe { libc::connect(self.raw(), nowhere.as_ptr(), RawAddress::room()) };
        check(result).map(drop)
    }

    /// Reads what is there; zero is the end of the stream.
    pub fn receive(&self, room: &mut [u8]) -> io::Result<usize> {
        self.receive_with(room, 0)
    }

    /// Reads what is there and leaves it there.
    pub fn peek(&self, room: &mut [u8]) -> io::Result<usize> {
        self.receive_with(room, libc::MSG_PEEK)
    }

    /// Writes as much as fits.
    pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        // SAFETY: the bytes live across the call and are as many as stated.
        check_size(unsafe {
            libc::send(
                self.raw(),
                bytes.as_ptr().cast(),
                bytes.len(),
                libc::MSG_NOSIGNAL,
            )
        })
    }

    /// Writes as much as fits of several pieces, as if they were one.
    pub fn send_vectored(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let message = libc::msghdr {
            msg_name: std::ptr::null_mut(),
            msg_namelen: 0,
            // The kernel only reads what is sent; the type is shared with receiving.
            msg_iov: pieces.as_ptr().cast_mut().cast(),
            msg_iovlen: pieces.len().min(MAX_PIECES),
            msg_control: std::ptr::null_mut(),
            msg_controllen: 0,
            msg_flags: 0,
        };
        // SAFETY: an `IoSlice` has the layout of an `iovec`, and the pieces, which are as many as
        // stated, live across the call.
        check_size(unsafe { libc::sendmsg(self.raw(), &raw const message, libc::MSG_NOSIGNAL) })
    }

    /// Shuts down one or both halves.
    pub fn shutdown(&self, half: Half) -> io::Result<()> {
        let how = match half {
            Half::Write => libc::SHUT_WR,
            Half::Both => libc::SHUT_RDWR,
        };
        // SAFETY: no pointers.
        check(unsafe { libc::shutdown(self.raw(), how) }).map(drop)
    }

    /// The error that the socket has to report, if any; asking clears it.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        let mut code: libc::c_int = 0;
        let mut length = size_of::<libc::c_int>();
        // SAFETY: `code` has `length` bytes of room; both live across the call.
        check(unsafe {
            libc::getsockopt(
                self.raw(),
                libc::SOL_SOCKET,
                libc::SO_ERROR,
                (&raw mut code).cast(),
                &raw mut length,
            )
        })?;
        Ok((code != 0).then(|| io::Error::from_raw_os_error(code)))
    }

    /// Sends small pieces at once instead of collecting them.
    pub fn set_nodelay(&self) -> io::Result<()> {
        self.set(libc::IPPROTO_TCP, libc::TCP_NODELAY, &ONE)
    }

    /// Makes closing the socket reset the connection.
    pub fn set_reset_on_close(&self) -> io::Result<()> {
        let linger = libc::linger {
            l_onoff: 1,
            l_linger: 0,
        };
        self.set(libc::SOL_SOCKET, libc::SO_LINGER, &linger)
    }

    /// Reads what is there into the room that is left; nothing is the end of the stream.
    pub fn receive_into(&self, room: &mut ReadBuf<'_>) -> io::Result<()> {
        // SAFETY: nothing is ever written there but by the kernel, so that what was initialized
        // stays so.
        let unfilled = unsafe { room.unfilled_mut() };
        let (start, length) = (unfilled.as_mut_ptr(), unfilled.len());
        // SAFETY: the room lives across the call and is as large as stated.
        let count = check_size(unsafe { libc::recv(self.raw(), start.cast(), length, 0) })?;
        // SAFETY: the kernel wrote so many bytes.
        unsafe { room.assume_init(count) };
        room.advance(count);
        Ok(())
    }

    fn receive_with(&self, room: &mut [u8], flags: libc::c_int) -> io::Result<usize> {
        // SAFETY: the room lives across the call and is as large as stated.
        check_size(unsafe { libc::recv(self.raw(), room.as_mut_ptr().cast(), room.len(), flags) })
    }

    fn set<T>(&self, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
        // SAFETY: `value` lives across the call and is as long as stated.
        check(unsafe {
            libc::setsockopt(
                self.raw(),
                level,
                option,
                std::ptr::from_ref(value).cast(),
                size_of::<T>(),
            )
        })
        .map(drop)
    }

    fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<Stream> for std::net::TcpStream {
    fn from(stream: Stream) -> Self {
        stream.0.into()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    use super::*;

    fn eventually<T>(mut attempt: impl FnMut() -> io::Result<T>) -> T {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            match attempt() {
                Ok(value) => return value,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    assert!(Instant::now() < deadline, "still not ready");
                    std::thread::yield_now();
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn pieces_arrive_as_one_and_are_read_into_what_is_left_of_the_room() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut far = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (near, _) = Stream::accept(&listener).unwrap();
        let pieces: Vec<Vec<u8>> = (0..2000).map(|number: u16| vec![number as u8; 3]).collect();
        let slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let sent = near.send_vectored(&slices).unwrap();
        assert_eq!(sent, 3 * MAX_PIECES, "the rest follows in another call");
        let mut received = vec![0; sent];
        far.read_exact(&mut received).unwrap();
        assert_eq!(received, pieces.concat()[..sent]);
        far.write_all(b"world").unwrap();
        let mut bytes = [std::mem::MaybeUninit::uninit(); 12];
        let mut room = ReadBuf::uninit(&mut bytes);
        room.put_slice(b"hello ");
        eventually(|| near.receive_into(&mut room));
        assert_eq!(room.filled(), b"hello world");
        drop(far);
        eventually(|| near.receive_into(&mut room));
        assert_eq!(room.filled().len(), 11);
    }

    #[test]
    fn a_socket_whose_connection_has_ended_connects_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = RawAddress::new(listener.local_addr().unwrap());
        let socket = Stream::new(&address).unwrap();
        for round in 0..3u8 {
            socket.connect(&address).unwrap();
            let (mut other, _) = listener.accept().unwrap();
            assert_eq!(eventually(|| socket.send(&[round])), 1);
            socket.shutdown(Half::Write).unwrap();
            let mut received = Vec::new();
            other.read_to_end(&mut received).unwrap();
            other.write_all(b"bye").unwrap();
            drop(other);
            let mut room = [0; 8];
            assert_eq!(eventually(|| socket.receive(&mut room)), 3);
            assert_eq!(eventually(|| socket.receive(&mut room)), 0);
            assert_eq!(unacknowledged(&socket).unwrap(), 0);
            socket.disconnect().unwrap();
            assert_eq!(received, [round]);
        }
    }

    #[test]
    fn accept_returns_the_peer_and_then_that_no_client_waits() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_stream, peer) = eventually(|| Stream::accept(&listener));
        assert_eq!(peer.get(), client.local_addr().ok());
        let again = Stream::accept(&listener).map(drop).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_refused_connect_is_reported_by_the_socket() {
        let free = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let address = RawAddress::new(free);
        let socket = Stream::new(&address).unwrap();
        let reported = socket
            .connect(&address)
            .err()
            .or_else(|| socket.take_error().unwrap());
        assert_eq!(
            reported.map(|error| error.kind()),
            Some(io::ErrorKind::ConnectionRefused)
        );
    }

    #[test]
    fn peeked_bytes_stay() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(b"hello").unwrap();
        let (stream, _) = eventually(|| Stream::accept(&listener));
        let mut room = [0; 8];
        assert_eq!(eventually(|| stream.peek(&mut room)), 5);
        assert_eq!(eventually(|| stream.receive(&mut room)), 5);
        assert_eq!(&room[..5], b"hello");
    }
}
