//! Pipes, and splice(2) through them: bytes move between sockets without being copied to user
//! space.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::{check, check_size};

/// The room of a pipe that nothing was asked of.
const PLAIN: libc::c_int = 16 * 4096;

/// What the kernel allows each user in pages, where nothing else is configured.
const DEFAULT_PAGES: usize = 16_384;

/// The smallest page there is: on machines with larger ones the limit is larger.
const PAGE: usize = 4096;

/// The capabilities that the kernel's limits on pipes do not apply to.
const CAP_SYS_ADMIN: u64 = 1 << 21;
const CAP_SYS_RESOURCE: u64 = 1 << 24;

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
    /// A pipe of about `capacity` bytes, or of the size that the system grants: ask
    /// [`Self::capacity`].
    pub fn new(capacity: usize) -> io::Result<Self> {
        let mut fds = [0; 2];
        // SAFETY: the kernel writes two descriptors to `fds`.
        check(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) })?;
        let [read, write] = fds;
        // SAFETY: the call just returned these descriptors; nothing else owns them.
        let (read, write) = unsafe { (OwnedFd::from_raw_fd(read), OwnedFd::from_raw_fd(write)) };
        let granted = enlarge(write.as_fd(), capacity)
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

    /// Returns how many bytes the pipe has room for. Users that hold more than the system's soft
    /// limit (`fs.pipe-user-pages-soft`) get two pages, whatever they ask for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// How many bytes are in the pipe.
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// Moves what a socket has received into the pipe; zero is the end of the stream. "Would block"
    /// is either side's: with bytes in the pipe, empty it before asking again.
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

/// Gives a pipe this room, or as large a part of it as the system allows, and returns it.
fn enlarge(pipe: BorrowedFd<'_>, capacity: usize) -> io::Result<libc::c_int> {
    let mut wanted = libc::c_int::try_from(capacity).unwrap_or(libc::c_int::MAX);
    loop {
        // SAFETY: no pointers.
        match check(unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, wanted) }) {
            // More than this user, or any user (`fs.pipe-max-size`), may have.
            Err(error) if error.raw_os_error() == Some(libc::EPERM) && wanted > PLAIN => {
                wanted = (wanted / 4).max(PLAIN);
            }
            other => return other,
        }
    }
}

/// Returns how many bytes all pipes of this user may have room for, by the system's soft limit;
/// `None`: there is no limit, or this process is above it.
pub fn soft_limit() -> Option<usize> {
    // What can't be read is taken for the kernel's defaults.
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let pages = std::fs::read_to_string("/proc/sys/fs/pipe-user-pages-soft");
    let pages = pages.ok().and_then(|text| text.trim().parse().ok());
    limit_of(&status, pages.unwrap_or(DEFAULT_PAGES))
}

/// The limit for a process with this `/proc/PID/status`, in bytes; zero pages are no limit.
fn limit_of(status: &str, pages: usize) -> Option<usize> {
    let capabilities = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|text| u64::from_str_radix(text.trim(), 16).ok())
        .unwrap_or_default();
    let is_above = capabilities & (CAP_SYS_ADMIN | CAP_SYS_RESOURCE) != 0;
    (pages > 0 && !is_above).then(|| pages.saturating_mul(PAGE))
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
    fn bytes_pass_through_in_order_and_the_end_is_reported() {
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

    #[test]
    fn a_pipe_says_what_room_it_was_given() {
        let large = Pipe::new(1 << 20).unwrap();
        assert!(large.capacity() >= 2 * PAGE);
        // The kernel makes a pipe larger only up to a limit, and smaller always.
        assert_eq!(Pipe::new(PAGE).unwrap().capacity(), PAGE);
    }

    #[test]
    fn the_limit_is_that_of_a_user_without_the_rights_to_exceed_it() {
        let status = |capabilities| format!("Name:\tx\nCapEff:\t{capabilities}\nCapBnd:\t0\n");
        let limit = |capabilities, pages| limit_of(&status(capabilities), pages);
        // As a container has it that drops everything but NET_BIND_SERVICE.
        assert_eq!(limit("0000000000000400", 16_384), Some(64 << 20));
        assert_eq!(limit("0000000001000000", 16_384), None);
        assert_eq!(limit("0000000000200000", 16_384), None);
        assert_eq!(limit("000001ffffffffff", 16_384), None);
        assert_eq!(limit("0000000000000000", 0), None);
        assert_eq!(limit_of("", 1), Some(PAGE));
    }

    #[test]
    fn above_the_soft_limit_a_pipe_has_two_pages_and_says_so() {
        // The rights and the user of this thread alone change.
        let outcome = std::thread::spawn(|| {
            drop_rights();
            let limit = soft_limit().unwrap();
            let mut pipes = Vec::new();
            while pipes.iter().map(Pipe::capacity).sum::<usize>() < limit {
                pipes.push(Pipe::new(1 << 20).unwrap());
                assert!(pipes.len() <= limit / PAGE, "the limit is never reached");
            }
            let first = pipes.first().map(Pipe::capacity);
            (first, Pipe::new(1 << 20).unwrap().capacity())
        });
        assert_eq!(outcome.join().unwrap(), (Some(1 << 20), 2 * PAGE));
    }

    /// Makes this thread run as a user without rights, and without pipes of its own.
    fn drop_rights() {
        let user = 61_000 + std::process::id() % 4_000;
        // SAFETY: the call takes numbers only. Not libc's function, which changes all threads.
        let changed = unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) };
        assert_eq!(changed, 0, "{}", io::Error::last_os_error());
    }
}
