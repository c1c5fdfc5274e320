//! UDP datagrams with what the IP header said of their way: to which address, through which
//! interface and with how many hops left.

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use crate::address::RawAddress;
use crate::{check, check_size, size_of};

/// Room for the messages of one datagram, aligned as the kernel writes them.
const CONTROL: usize = 16;

/// A datagram that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The sender.
    pub from: SocketAddr,
    /// The address that it was sent to, if the kernel reported it.
    pub to: Option<IpAddr>,
    /// The index of the interface that it came through, if the kernel reported it.
    pub interface: Option<u32>,
    /// The TTL (IPv4) or hop limit (IPv6) that it came with, if the kernel reported it.
    pub hops: Option<u8>,
    /// The length, or that of the part that fits the buffer.
    pub length: usize,
}

/// Makes a socket report what [`receive`] returns.
pub fn report(socket: impl AsFd, is_ipv6: bool) -> io::Result<()> {
    let options = if is_ipv6 {
        [libc::IPV6_RECVPKTINFO, libc::IPV6_RECVHOPLIMIT]
    } else {
        [libc::IP_PKTINFO, libc::IP_RECVTTL]
    };
    let level = if is_ipv6 {
        libc::IPPROTO_IPV6
    } else {
        libc::IPPROTO_IP
    };
    let fd = socket.as_fd().as_raw_fd();
    let on: libc::c_int = 1;
    for option in options {
        // SAFETY: the value lives across the call and is as long as stated.
        check(unsafe {
            libc::setsockopt(
                fd,
                level,
                option,
                (&raw const on).cast(),
                size_of::<libc::c_int>(),
            )
        })?;
    }
    Ok(())
}

/// Receives the next datagram. Never blocks.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Arrival> {
    let mut sender = RawAddress::UNSPECIFIED;
    let mut control = [MaybeUninit::<u64>::zeroed(); CONTROL];
    let mut piece = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: integers and pointers, for which zeros are a value.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_name = sender.as_mut_ptr().cast();
    header.msg_namelen = RawAddress::room();
    header.msg_iov = &raw mut piece;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = std::mem::size_of_val(&control);
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the header points to the sender, the piece, its buffer and the control messages, each
    // as long as stated; all of them live across the call.
    let length = check_size(unsafe { libc::recvmsg(fd, &raw mut header, libc::MSG_DONTWAIT) })?;
    let mut arrival = Arrival {
        from: sender.get().ok_or(io::ErrorKind::InvalidData)?,
        to: None,
        interface: None,
        hops: None,
        length: length.min(buffer.len()),
    };
    // SAFETY: the kernel filled the header and the control messages that it points to.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    while !message.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR return messages that lie within the room as a
        // whole.
        unsafe { read(message, &mut arrival) };
        // SAFETY: as above; the message is one of this header.
        message = unsafe { libc::CMSG_NXTHDR(&raw const header, message) };
    }
    Ok(arrival)
}

/// Reads one control message.
///
/// # Safety
///
/// The message must be one that the kernel wrote, as a whole.
unsafe fn read(message: *const libc::cmsghdr, arrival: &mut Arrival) {
    // SAFETY: the caller guarantees a valid header.
    let (level, kind, length) = unsafe {
        (
            (*message).cmsg_level,
            (*message).cmsg_type,
            (*message).cmsg_len,
        )
    };
    // SAFETY: computes an address within the message and a length, no more.
    let (data, start) = unsafe { (libc::CMSG_DATA(message), libc::CMSG_LEN(0) as usize) };
    let has = |size: libc::socklen_t| length >= start + size as usize;
    match (level, kind) {
        (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT)
            if has(size_of::<libc::c_int>()) =>
        {
            // SAFETY: as many bytes are there; any of them make an integer.
            let hops = unsafe { data.cast::<libc::c_int>().read_unaligned() };
            arrival.hops = u8::try_from(hops).ok();
        }
        (libc::IPPROTO_IP, libc::IP_PKTINFO) if has(size_of::<libc::in_pktinfo>()) => {
            // SAFETY: as many bytes are there; any of them make a valid value.
            let info = unsafe { data.cast::<libc::in_pktinfo>().read_unaligned() };
            let to = Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes());
            arrival.to = Some(to.into());
            arrival.interface = u32::try_from(info.ipi_ifindex).ok();
        }
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) if has(size_of::<libc::in6_pktinfo>()) => {
            // SAFETY: as many bytes are there; any of them make a valid value.
            let info = unsafe { data.cast::<libc::in6_pktinfo>().read_unaligned() };
            arrival.to = Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
            arrival.interface = Some(info.ipi6_ifindex);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    fn arrives(address: &str, hops: u32) -> Arrival {
        let receiver = UdpSocket::bind((address, 0)).unwrap();
        let is_ipv6 = receiver.local_addr().unwrap().is_ipv6();
        report(&receiver, is_ipv6).unwrap();
        let sender = UdpSocket::bind((address, 0)).unwrap();
        let options = socket2::SockRef::from(&sender);
        if is_ipv6 {
            options.set_unicast_hops_v6(hops).unwrap();
        } else {
            options.set_ttl_v4(hops).unwrap();
        }
        sender
            .send_to(b"arrival", receiver.local_addr().unwrap())
            .unwrap();
        let mut room = [0; 4];
        let arrival = loop {
            match receive(&receiver, &mut room) {
                Ok(arrival) => break arrival,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        };
        assert_eq!(&room, b"arri");
        assert_eq!(arrival.from, sender.local_addr().unwrap());
        arrival
    }

    #[test]
    fn a_datagram_arrives_with_its_way_in_both_families() {
        let index = std::fs::read_to_string("/sys/class/net/lo/ifindex").unwrap();
        let index: u32 = index.trim().parse().unwrap();
        for (address, hops) in [("127.0.0.1", 255), ("::1", 254)] {
            let arrival = arrives(address, hops);
            assert_eq!(arrival.to, Some(address.parse().unwrap()));
            assert_eq!(arrival.hops.map(u32::from), Some(hops));
            assert_eq!(arrival.interface, Some(index));
            assert_eq!(arrival.length, 4);
        }
    }

    #[test]
    fn nothing_there_would_block() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let nothing = receive(&socket, &mut [0; 4]).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
    }
}
