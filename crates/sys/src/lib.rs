//! What the standard library, tokio and socket2 do not offer of Linux: the only `unsafe` code of
//! Landfall. Thin wrappers that own their descriptors, check every result and decide nothing.
//!
//! Every descriptor that is made here is close-on-exec; every socket and pipe is non-blocking.
#![expect(
    unsafe_code,
    reason = "system calls without a safe wrapper live here and nowhere else"
)]

pub mod address;
pub mod arrival;
pub mod bgp;
pub mod capabilities;
pub mod clock;
pub mod datagram;
pub mod epoll;
pub mod files;
pub mod interfaces;
pub mod limits;
pub mod listen;
pub mod local_port;
pub mod memory;
pub mod neighbour;
pub mod netlink;
pub mod packet;
pub mod pipe;
pub mod rights;
pub mod routes;
pub mod schedule;
pub mod stream;
pub mod timer;

use std::io;

/// Turns the usual `-1` into the error that it stands for.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// As [`check`], for calls that return a number of bytes.
fn check_size(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// The size of a type as the kernel wants it.
const fn size_of<T>() -> libc::socklen_t {
    std::mem::size_of::<T>() as libc::socklen_t
}
