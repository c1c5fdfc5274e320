//! A socket of rtnetlink: requests to the kernel, and what it reports of links and addresses.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recvfrom, sendto,
    socket_with, sockopt,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// What the kernel may queue for a reader that is slow. More than that is lost, and the next
/// receive is an error that says so.
const RECEIVE_BUFFER: usize = 1 << 20;

/// The protocol `NETLINK_ROUTE`, which is number 0 and therefore the default.
const ROUTE: Option<Protocol> = None;

/// A socket of rtnetlink, registered with the tokio runtime of the caller that made it.
#[derive(Debug)]
pub struct NetlinkSocket {
    fd: AsyncFd<OwnedFd>,
}

/// What a socket received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Messages of this many bytes.
    Messages(usize),
    /// Messages were lost; what they said has to be asked for.
    Lost,
}

// === impl NetlinkSocket ===

impl NetlinkSocket {
    /// Opens a socket that also receives what the kernel reports to these groups (`RTMGRP_*`).
    pub fn open(groups: u32) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let kind = SocketType::RAW;
        let fd = socket_with(AddressFamily::NETLINK, kind, flags, ROUTE)?;
        sockopt::set_socket_recv_buffer_size(&fd, RECEIVE_BUFFER)?;
        bind(&fd, &SocketAddrNetlink::new(0, groups))?;
        // SAFETY: the `AsyncFd` owns the descriptor, which stays open and the same until it is
        // dropped; nothing here takes it out or replaces it.
        let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?;
        Ok(Self { fd })
    }

    /// Sends a request to the kernel. Never blocks.
    pub fn send(&self, request: &[u8]) -> io::Result<()> {
        let kernel = SocketAddrNetlink::new(0, 0);
        sendto(self.fd.get_ref(), request, SendFlags::DONTWAIT, &kernel)?;
        Ok(())
    }

    /// Receives the next messages of the kernel. Cancel-safe: messages are taken only when they are
    /// returned.
    pub async fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        loop {
            let mut ready = self.fd.readable().await?;
            match ready.try_io(|fd| receive(fd.get_ref(), buffer)) {
                Ok(Ok(Some(received))) => return Ok(received),
                Ok(Err(error)) => return Err(error),
                // From another process, or nothing there after all.
                Ok(Ok(None)) | Err(_) => {}
            }
        }
    }
}

fn receive(fd: &OwnedFd, buffer: &mut [u8]) -> io::Result<Option<Received>> {
    let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
    let room = buffer.len();
    let (_, length, sender) = match recvfrom(fd, buffer, flags) {
        Err(rustix::io::Errno::NOBUFS) => return Ok(Some(Received::Lost)),
        received => received?,
    };
    let sender = sender.and_then(|it| SocketAddrNetlink::try_from(it).ok());
    if sender.is_none_or(|it| it.pid() != 0) {
        return Ok(None);
    }
    if length > room {
        return Ok(Some(Received::Lost));
    }
    Ok(Some(Received::Messages(length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks for all links: a header and an `ifinfomsg` of zeros.
    fn all_links() -> Vec<u8> {
        let mut request = vec![0; 32];
        request[0..4].copy_from_slice(&32_u32.to_ne_bytes());
        request[4..6].copy_from_slice(&libc::RTM_GETLINK.to_ne_bytes());
        let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
        request[6..8].copy_from_slice(&flags.to_ne_bytes());
        request
    }

    #[tokio::test]
    async fn the_kernel_answers_a_request_for_all_links() {
        let socket = NetlinkSocket::open(0).unwrap();
        socket.send(&all_links()).unwrap();
        let mut room = vec![0; 1 << 16];
        let received = socket.receive(&mut room).await.unwrap();
        let Received::Messages(length) = received else {
            panic!("lost");
        };
        let kind = u16::from_ne_bytes([room[4], room[5]]);
        assert_eq!(kind, libc::RTM_NEWLINK);
        assert!(room[..length].windows(3).any(|part| part == b"lo\0"));
    }

    #[tokio::test]
    async fn messages_that_do_not_fit_are_lost_and_reported_so() {
        let socket = NetlinkSocket::open(0).unwrap();
        socket.send(&all_links()).unwrap();
        let received = socket.receive(&mut [0; 16]).await.unwrap();
        assert_eq!(received, Received::Lost);
    }
}
