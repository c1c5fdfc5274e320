//! Pipes, and splice(2) through them: bytes move between sockets without being copied to user space.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::{check, check_size};

/// A non-blocking pipe, and how many bytes are in it.
#[derive(Debug)]
pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    capacity: usize,
    filled: usize,
}

// === impl Pipe ===

impl Pipe {
    /// A pipe of about `capacity` bytes, or of the size that the system grants.
    pub fn new(capacity: usize) -> io::Result<Self> {
        let mut fds = [0; 2];
        // SAFETY: the kernel writes two descriptors to `fds`.
        check(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) })?;
        let [read, write] = fds;
        // SAFETY: the call just returned these descriptors; nobody else owns them.
        let (read, write) = unsafe { (OwnedFd::from_raw_fd(read), OwnedFd::from_raw_fd(write)) };
        let wanted = libc::c_int::try_from(capacity).unwrap_or(libc::c_int::MAX);
        // SAFETY: no pointers. Where the size is refused, the pipe keeps its own.
        let granted = check(unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, wanted) })
            // SAFETY: no pointers.
            .or_else(|_| check(unsafe { libc::fcntl(write.as_raw_fd(), libc::F_GETPIPE_SZ) }))?;
        let capacity = usize::try_from(granted).unwrap_or_default();
        Ok(Self {
            read,
            write,
            capacity,
            filled: 0,
        })
    }

    /// How many bytes are in the pipe.
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// Moves what a socket has received into the pipe; zero is the end of the stream. "Would block" is
    /// either side's: with bytes in the pipe, empty it before asking again.
    pub fn fill(&mut self, from: impl AsFd) -> io::Result<usize> {
        let moved = splice(from.as_fd(), self.write.as_fd(), self.capacity)?;
        self.filled += moved;
        Ok(moved)
    }

    /// Moves bytes from the pipe to a socket, as many as it takes.
    pub fn drain(&mut self, to: impl AsFd) -> io::Result<usize> {
        let moved = splice(self.read.as_fd(), to.as_fd(), self.filled)?;
        self.filled = self.filled.saturating_sub(moved);
        Ok(moved)
    }
}

fn splice(from: BorrowedFd<'_>, to: BorrowedFd<'_>, length: usize) -> io::Result<usize> {
    let flags = libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK;
    let nowhere = std::ptr::null_mut();
    // SAFETY: both offsets are null, as sockets and pipes require.
    check_size(unsafe {
        libc::splice(
            from.as_raw_fd(),
            nowhere,
            to.as_raw_fd(),
            nowhere,
            length,
            flags,
        )
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one, listener.accept().unwrap().0)
    }

    #[test]
    fn bytes_pass_through_in_order_and_the_end_is_told() {
        let (mut client, inner) = pair();
        let (outer, mut member) = pair();
        client.write_all(b"through the pipe").unwrap();
        let mut pipe = Pipe::new(1 << 16).unwrap();
        assert_eq!(pipe.fill(&inner).unwrap(), 16);
        assert_eq!(pipe.filled(), 16);
        assert_eq!(pipe.drain(&outer).unwrap(), 16);
        assert_eq!(pipe.filled(), 0);
        let mut received = [0; 16];
        member.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"through the pipe");
        drop(client);
        assert_eq!(pipe.fill(&inner).unwrap(), 0);
    }
}
