//! A timer as a descriptor (timerfd). Beside sockets in an epoll instance it costs nothing until it
//! fires; a timeout of the wait itself would be set and cleared by the kernel at every wait.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::check;

/// Becomes readable once its time has come, on the clock of [`crate::clock::coarse_millis`].
#[derive(Debug)]
pub struct Timer(OwnedFd);

// === impl Timer ===

impl Timer {
    /// A timer that is not set.
    pub fn new() -> io::Result<Self> {
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: no pointers; the result is checked.
        let fd = check(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })?;
        // SAFETY: the call just returned this descriptor; nothing else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Sets the time, in milliseconds of the clock; at once if it has passed. Forgets the time
    /// before.
    pub fn set(&self, at: u64) -> io::Result<()> {
        let never = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // All zeros would mean "never".
        let at = at.max(1);
        let at = libc::timespec {
            tv_sec: libc::time_t::try_from(at / 1_000).unwrap_or(libc::time_t::MAX),
            tv_nsec: (at % 1_000 * 1_000_000).cast_signed(),
        };
        let setting = libc::itimerspec {
            it_interval: never,
            it_value: at,
        };
        let (fd, absolute) = (self.0.as_raw_fd(), libc::TFD_TIMER_ABSTIME);
        // SAFETY: `setting` lives across the call; nothing is asked back.
        check(unsafe {
            libc::timerfd_settime(fd, absolute, &raw const setting, std::ptr::null_mut())
        })
        .map(drop)
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
