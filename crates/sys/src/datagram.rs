//! UDP in batches: one system call for many datagrams (recvmmsg, sendmmsg).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use crate::address::RawAddress;
use crate::{check, check_size, size_of};

/// How many datagrams one call carries at most.
pub const BATCH: usize = 16;

/// Room for the largest datagram there is.
const ROOM: usize = 1 << 16;

/// Room for the control message that says how many hops a datagram has left, aligned as the kernel
/// writes it.
type Control = [u64; 4];

/// Datagrams received by one call, each with its sender.
pub struct Batch {
    bytes: Box<[u8]>,
    lengths: [usize; BATCH],
    senders: [RawAddress; BATCH],
    hops: [Option<u8>; BATCH],
    count: usize,
}

/// Makes a non-blocking UDP socket that talks to one peer only.
pub fn connected(peer: &RawAddress) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers; the result is checked.
    let fd = check(unsafe { libc::socket(libc::c_int::from(peer.family()), kind, 0) })?;
    // SAFETY: the call just returned this descriptor; nothing else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: the address lives across the call and is as long as stated.
    check(unsafe { libc::connect(fd.as_raw_fd(), peer.as_ptr(), peer.length()) })?;
    Ok(fd)
}

/// Makes a socket report how many hops datagrams have left.
pub fn report_hops(socket: impl AsFd, is_ipv6: bool) -> io::Result<()> {
    let option = if is_ipv6 {
        libc::IPV6_RECVHOPLIMIT
    } else {
        libc::IP_RECVTTL
    };
    set(socket, is_ipv6, option, 1)
}

/// Sets how many hops datagrams have that a socket sends to `peer` from now on: the TTL (IPv4) or
/// the hop limit (IPv6). To an IPv4-mapped address a socket of IPv6 sends IPv4.
pub fn set_hops(socket: impl AsFd, peer: IpAddr, hops: u8) -> io::Result<()> {
    let is_ipv6 = peer.to_canonical().is_ipv6();
    let option = if is_ipv6 {
        libc::IPV6_UNICAST_HOPS
    } else {
        libc::IP_TTL
    };
    set(socket, is_ipv6, option, hops.into())
}

fn set(
    socket: impl AsFd,
    is_ipv6: bool,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let level = if is_ipv6 {
        libc::IPPROTO_IPV6
    } else {
        libc::IPPROTO_IP
    };
    let fd = socket.as_fd().as_raw_fd();
    let length = size_of::<libc::c_int>();
    // SAFETY: the value lives across the call and is as long as stated.
    let set = unsafe { libc::setsockopt(fd, level, option, (&raw const value).cast(), length) };
    check(set).map(drop)
}

/// Sends one datagram to the peer of a connected socket.
pub fn send(socket: impl AsFd, bytes: &[u8]) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the bytes live across the call and are as many as stated.
    check_size(unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) })
        .map(drop)
}

// === impl Batch ===

impl Default for Batch {
    fn default() -> Self {
        Self {
            bytes: vec![0; BATCH * ROOM].into_boxed_slice(),
            lengths: [0; BATCH],
            senders: [RawAddress::UNSPECIFIED; BATCH],
            hops: [None; BATCH],
            count: 0,
        }
    }
}

impl Batch {
    /// Receives what is there, replacing what the batch held. Returns how many datagrams came.
    pub fn receive(&mut self, socket: impl AsFd) -> io::Result<usize> {
        self.count = 0;
        let mut pieces: [libc::iovec; BATCH] = [EMPTY_PIECE; BATCH];
        let mut headers: [libc::mmsghdr; BATCH] = [EMPTY_HEADER; BATCH];
        let mut controls: [Control; BATCH] = [[0; 4]; BATCH];
        let rooms = self.bytes.chunks_exact_mut(ROOM).zip(&mut self.senders);
        let rooms = rooms.zip(&mut controls);
        for (place, ((room, sender), control)) in rooms.enumerate().take(BATCH) {
            pieces[place] = libc::iovec {
                iov_base: room.as_mut_ptr().cast(),
                iov_len: ROOM,
            };
            let header = &mut headers[place].msg_hdr;
            header.msg_name = sender.as_mut_ptr().cast();
            header.msg_namelen = RawAddress::room();
            header.msg_iov = &raw mut pieces[place];
            header.msg_iovlen = 1;
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = std::mem::size_of::<Control>();
        }
        let fd = socket.as_fd().as_raw_fd();
        let (flags, forever) = (libc::MSG_DONTWAIT, std::ptr::null_mut());
        // SAFETY: each header points to one piece, one address and room for control messages as
        // long as stated, each piece to ROOM bytes of its own; all of them live across the call.
        let count = check(unsafe {
            libc::recvmmsg(
                fd,
                headers.as_mut_ptr(),
                BATCH as libc::c_uint,
                flags,
                forever,
            )
        })?;
        self.count = (count.cast_unsigned() as usize).min(BATCH);
        for (length, header) in self.lengths.iter_mut().zip(&headers).take(self.count) {
            *length = (header.msg_len as usize).min(ROOM);
        }
        for (hops, header) in self.hops.iter_mut().zip(&headers).take(self.count) {
            // SAFETY: the kernel filled the header and its control messages, which are still there.
            *hops = unsafe { hops_of(&header.msg_hdr) };
        }
        Ok(self.count)
    }

    /// How many datagrams there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// One datagram's bytes; none beyond the end.
    pub fn bytes(&self, place: usize) -> &[u8] {
        let length = if place < self.count {
            self.lengths[place]
        } else {
            0
        };
        let start = place.min(BATCH) * ROOM;
        self.bytes.get(start..start + length).unwrap_or_default()
    }

    /// The sender of a datagram.
    pub fn sender(&self, place: usize) -> Option<SocketAddr> {
        self.senders.get(..self.count)?.get(place)?.get()
    }

    /// How many hops a datagram has left, if the socket reports it.
    pub fn hops(&self, place: usize) -> Option<u8> {
        *self.hops.get(..self.count)?.get(place)?
    }

    /// Sends a run of these datagrams on, to one receiver (`None`: the peer of a connected socket).
    /// Returns how many went before the socket would have blocked or failed; the error only if
    /// none.
    pub fn send(
        &self,
        socket: impl AsFd,
        to: Option<&RawAddress>,
        run: Range<usize>,
    ) -> io::Result<usize> {
        let mut pieces: [libc::iovec; BATCH] = [EMPTY_PIECE; BATCH];
        let mut headers: [libc::mmsghdr; BATCH] = [EMPTY_HEADER; BATCH];
        let mut count = 0;
        for place in run.start..run.end.min(self.count) {
            let bytes = self.bytes(place);
            // The kernel only reads what is sent; the type is shared with receiving.
            pieces[count] = libc::iovec {
                iov_base: bytes.as_ptr().cast_mut().cast(),
                iov_len: bytes.len(),
            };
            let header = &mut headers[count].msg_hdr;
            if let Some(to) = to {
                header.msg_name = to.as_ptr().cast_mut().cast();
                header.msg_namelen = to.length();
            }
            header.msg_iov = &raw mut pieces[count];
            header.msg_iovlen = 1;
            count += 1;
        }
        let fd = socket.as_fd().as_raw_fd();
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the first `count` headers point to one piece each, and to the address where there
        // is one; pieces, bytes and address live across the call and are only read.
        let sent = check(unsafe {
            libc::sendmmsg(fd, headers.as_mut_ptr(), count as libc::c_uint, flags)
        })?;
        Ok(sent.cast_unsigned() as usize)
    }
}

/// Reads the first control message, where it says how many hops are left. No other is asked for.
///
/// # Safety
///
/// The kernel must have filled the header and the control messages that it points to.
unsafe fn hops_of(header: &libc::msghdr) -> Option<u8> {
    // SAFETY: the caller guarantees a valid header.
    let message = unsafe { libc::CMSG_FIRSTHDR(header) };
    if message.is_null() {
        return None;
    }
    // SAFETY: the kernel wrote the message, which lies within the room as a whole.
    let (level, kind, length) = unsafe {
        (
            (*message).cmsg_level,
            (*message).cmsg_type,
            (*message).cmsg_len,
        )
    };
    let is_hops = matches!(
        (level, kind),
        (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT)
    );
    // SAFETY: computes a length, no more.
    let needs = unsafe { libc::CMSG_LEN(size_of::<libc::c_int>()) } as usize;
    if !is_hops || length < needs {
        return None;
    }
    // SAFETY: as many bytes are there; any of them make an integer.
    let hops = unsafe {
        libc::CMSG_DATA(message)
            .cast::<libc::c_int>()
            .read_unaligned()
    };
    u8::try_from(hops).ok()
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch")
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

const EMPTY_PIECE: libc::iovec = libc::iovec {
    iov_base: std::ptr::null_mut(),
    iov_len: 0,
};

const EMPTY_HEADER: libc::mmsghdr = libc::mmsghdr {
    msg_hdr: libc::msghdr {
        msg_name: std::ptr::null_mut(),
        msg_namelen: 0,
        msg_iov: std::ptr::null_mut(),
        msg_iovlen: 0,
        msg_control: std::ptr::null_mut(),
        msg_controllen: 0,
        msg_flags: 0,
    },
    msg_len: 0,
};

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::{Duration, Instant};

    use super::*;

    fn receive(batch: &mut Batch, socket: &UdpSocket, wanted: usize) -> Vec<(Vec<u8>, SocketAddr)> {
        let deadline = Instant::now() + Duration::from_secs(5);
        let mut all = Vec::new();
        while all.len() < wanted {
            assert!(
                Instant::now() < deadline,
                "only {} datagrams came",
                all.len()
            );
            let count = batch.receive(socket).unwrap_or(0);
            all.extend((0..count).map(|at| (batch.bytes(at).to_vec(), batch.sender(at).unwrap())));
        }
        all
    }

    #[test]
    fn a_batch_keeps_datagrams_apart_and_in_order() {
        let (one, two) = (
            UdpSocket::bind("127.0.0.1:0").unwrap(),
            UdpSocket::bind("127.0.0.1:0").unwrap(),
        );
        let address = two.local_addr().unwrap();
        let mut sent = vec![vec![], b"a".to_vec(), vec![7; 60_000]];
        sent.extend((0..20u8).map(|number| vec![number; usize::from(number)]));
        for bytes in &sent {
            one.send_to(bytes, address).unwrap();
        }
        let received = receive(&mut Batch::default(), &two, sent.len());
        let from = one.local_addr().unwrap();
        assert_eq!(
            received,
            sent.into_iter()
                .map(|bytes| (bytes, from))
                .collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_batch_is_sent_on_to_a_receiver_or_to_the_peer() {
        let (one, two, three) = (
            UdpSocket::bind("127.0.0.1:0").unwrap(),
            UdpSocket::bind("127.0.0.1:0").unwrap(),
            UdpSocket::bind("127.0.0.1:0").unwrap(),
        );
        let mut batch = Batch::default();
        one.send_to(b"first", two.local_addr().unwrap()).unwrap();
        one.send_to(b"second", two.local_addr().unwrap()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        while batch.receive(&two).unwrap_or(0) < 2 {
            assert!(Instant::now() < deadline);
        }
        let to = RawAddress::new(three.local_addr().unwrap());
        assert_eq!(batch.send(&two, Some(&to), 0..2).unwrap(), 2);
        let peer = connected(&to).unwrap();
        assert_eq!(batch.send(&peer, None, 1..2).unwrap(), 1);
        let received = receive(&mut Batch::default(), &three, 3);
        let bytes: Vec<_> = received.into_iter().map(|(bytes, _)| bytes).collect();
        assert_eq!(
            bytes,
            [b"first".to_vec(), b"second".to_vec(), b"second".to_vec()]
        );
    }

    #[test]
    fn hops_are_set_and_reported_with_each_datagram() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let [one, two] = [(); 2].map(|()| UdpSocket::bind(address).unwrap());
            let to = two.local_addr().unwrap();
            let mut batch = Batch::default();
            let mut arrives = |hops| {
                set_hops(&one, to.ip(), hops).unwrap();
                one.send_to(b"x", to).unwrap();
                let deadline = Instant::now() + Duration::from_secs(5);
                while batch.receive(&two).unwrap_or(0) == 0 {
                    assert!(Instant::now() < deadline);
                }
                batch.hops(0)
            };
            assert_eq!(arrives(9), None);
            report_hops(&two, to.is_ipv6()).unwrap();
            assert_eq!([1, 64, 255].map(&mut arrives), [1, 64, 255].map(Some));
        }
    }

    #[test]
    fn datagrams_to_a_mapped_address_have_as_many_hops_as_others() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        report_hops(&receiver, false).unwrap();
        let port = receiver.local_addr().unwrap().port();
        let mapped: IpAddr = "::ffff:127.0.0.1".parse().unwrap();
        let sender = connected(&RawAddress::new((mapped, port).into())).unwrap();
        set_hops(&sender, mapped, 9).unwrap();
        send(&sender, b"x").unwrap();
        let mut batch = Batch::default();
        let deadline = Instant::now() + Duration::from_secs(5);
        while batch.receive(&receiver).unwrap_or(0) == 0 {
            assert!(Instant::now() < deadline);
        }
        assert_eq!(batch.hops(0), Some(9));
    }

    #[test]
    fn an_empty_socket_would_block() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let error = Batch::default().receive(&socket).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
