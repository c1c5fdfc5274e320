//! Packet sockets: frames of one protocol, from and to all interfaces of the network namespace.
//! They take the capability `NET_RAW` and no other.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use socket2::SockFilter;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::{check, check_size, size_of};

/// What the kernel may queue for a reader that is slow.
const RECEIVE_BUFFER: usize = 1 << 20;

/// One instruction of a classic BPF program, which the kernel runs on each frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// What it does, of `BPF_*`.
    pub code: u16,
    /// Instructions to skip if a comparison holds.
    pub if_true: u8,
    /// Instructions to skip if it does not.
    pub if_false: u8,
    /// The operand.
    pub operand: u32,
}

/// A packet socket for whole frames, registered with the tokio runtime of the caller that made it.
#[derive(Debug)]
pub struct PacketSocket {
    fd: AsyncFd<socket2::Socket>,
}

/// A packet socket for packets without their link-layer header, which the kernel takes off and
/// writes. It belongs to no runtime.
#[derive(Debug)]
pub struct NetworkSocket {
    socket: socket2::Socket,
    ether_type: u16,
}

/// Where a frame came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The index of the interface.
    pub interface: u32,
    /// The length of the frame, or of the part of it that fits the buffer.
    pub length: usize,
}

// === impl PacketSocket ===

impl PacketSocket {
    /// Opens a socket for frames of one Ethernet type that a program lets through.
    pub fn open(ether_type: u16, program: &[Instruction]) -> io::Result<Self> {
        let socket = open(libc::SOCK_RAW, ether_type, program)?;
        // SAFETY: the `AsyncFd` owns the descriptor, which stays open and the same until it is
        // dropped; nothing here takes it out or replaces it.
        let fd = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?;
        Ok(Self { fd })
    }

    /// Replaces the program. Frames that are queued already passed the former one.
    pub fn filter(&self, program: &[Instruction]) -> io::Result<()> {
        attach(self.fd.get_ref(), program)
    }

    /// Receives the next frame. Cancel-safe: a frame is taken only when it is returned.
    pub async fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        loop {
            let mut ready = self.fd.readable().await?;
            match ready.try_io(|fd| receive(fd.get_ref(), buffer)) {
                Ok(received) => return received,
                Err(_would_block) => {}
            }
        }
    }

    /// Sends a frame, with its link-layer header, from an interface. Never blocks.
    pub fn send(&self, interface: u32, frame: &[u8]) -> io::Result<()> {
        let index = i32::try_from(interface).map_err(|_| io::ErrorKind::InvalidInput)?;
        send(self.fd.get_ref(), &link_address(0, index), frame)
    }
}

// === impl NetworkSocket ===

impl NetworkSocket {
    /// Opens a socket for packets of one Ethernet type that a program lets through. The program
    /// sees them without the link-layer header.
    pub fn open(ether_type: u16, program: &[Instruction]) -> io::Result<Self> {
        let socket = open(libc::SOCK_DGRAM, ether_type, program)?;
        Ok(Self { socket, ether_type })
    }

    /// Receives the next packet. Never blocks.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        receive(&self.socket, buffer)
    }

    /// Sends a packet from an interface to a MAC address. Never blocks.
    pub fn send(&self, interface: u32, to: [u8; 6], packet: &[u8]) -> io::Result<()> {
        let index = i32::try_from(interface).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut address = link_address(self.ether_type, index);
        for (place, byte) in address.sll_addr.iter_mut().zip(to) {
            *place = byte;
        }
        address.sll_halen = 6;
        send(&self.socket, &address, packet)
    }
}

impl AsFd for NetworkSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn open(
    kind: libc::c_int,
    ether_type: u16,
    program: &[Instruction],
) -> io::Result<socket2::Socket> {
    // Without a protocol nothing arrives, so that no frame gets past the program.
    let kind = kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers; the result is checked.
    let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
    // SAFETY: the call just returned this descriptor; nothing else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let socket = socket2::Socket::from(fd);
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    attach(&socket, program)?;
    let address = link_address(ether_type, 0);
    let raw = &raw const address;
    // SAFETY: the address lives across the call and is as long as stated.
    check(unsafe {
        libc::bind(
            socket.as_raw_fd(),
            raw.cast(),
            size_of::<libc::sockaddr_ll>(),
        )
    })?;
    Ok(socket)
}

fn send(socket: &socket2::Socket, to: &libc::sockaddr_ll, bytes: &[u8]) -> io::Result<()> {
    let (fd, raw) = (socket.as_raw_fd(), &raw const *to);
    // SAFETY: the bytes and the address live across the call and are as long as stated.
    let sent = check_size(unsafe {
        libc::sendto(
            fd,
            bytes.as_ptr().cast(),
            bytes.len(),
            libc::MSG_DONTWAIT,
            raw.cast(),
            size_of::<libc::sockaddr_ll>(),
        )
    })?;
    if sent == bytes.len() {
        Ok(())
    } else {
        Err(io::ErrorKind::WriteZero.into())
    }
}

fn attach(socket: &socket2::Socket, program: &[Instruction]) -> io::Result<()> {
    let program: Vec<SockFilter> = program
        .iter()
        .map(|it| SockFilter::new(it.code, it.if_true, it.if_false, it.operand))
        .collect();
    socket.attach_filter(&program)
}

fn receive(socket: &socket2::Socket, buffer: &mut [u8]) -> io::Result<Received> {
    let mut from = link_address(0, 0);
    let mut room = size_of::<libc::sockaddr_ll>();
    let raw = &raw mut from;
    // SAFETY: the buffer and the address live across the call and are as long as stated; any bytes
    // make a valid `sockaddr_ll`.
    let length = check_size(unsafe {
        libc::recvfrom(
            socket.as_raw_fd(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            libc::MSG_DONTWAIT,
            raw.cast(),
            &raw mut room,
        )
    })?;
    let interface = u32::try_from(from.sll_ifindex).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(Received { interface, length })
}

fn link_address(ether_type: u16, index: libc::c_int) -> libc::sockaddr_ll {
    libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as libc::sa_family_t,
        sll_protocol: ether_type.to_be(),
        sll_ifindex: index,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An Ethernet type that is free for experiments on one machine.
    const EXPERIMENT: u16 = 0x88b5;

    const fn take(bytes: u32) -> Instruction {
        Instruction {
            code: 0x06,
            if_true: 0,
            if_false: 0,
            operand: bytes,
        }
    }

    fn frame(text: &[u8]) -> Vec<u8> {
        [&[0; 12], &EXPERIMENT.to_be_bytes()[..], text].concat()
    }

    fn loopback() -> u32 {
        let index = std::fs::read_to_string("/sys/class/net/lo/ifindex").unwrap();
        index.trim().parse().unwrap()
    }

    #[tokio::test]
    async fn a_frame_arrives_with_the_interface_that_it_came_from() {
        let socket = PacketSocket::open(EXPERIMENT, &[take(64)]).expect("as root?");
        let sent = frame(b"a_frame_arrives");
        let mut room = [0; 128];
        socket.send(loopback(), &sent).unwrap();
        loop {
            let received = socket.receive(&mut room).await.unwrap();
            assert_eq!(received.interface, loopback());
            if room[..received.length] == sent {
                break;
            }
        }
    }

    #[tokio::test]
    async fn a_program_keeps_out_what_it_does_not_take() {
        let socket = PacketSocket::open(EXPERIMENT, &[take(0)]).expect("as root?");
        socket.send(loopback(), &frame(b"kept out")).unwrap();
        socket.filter(&[take(20)]).unwrap();
        socket.send(loopback(), &frame(b"program")).unwrap();
        let mut room = [0; 128];
        loop {
            let received = socket.receive(&mut room).await.unwrap();
            let text = &room[14..received.length];
            assert!(!text.starts_with(b"kept"), "{text:?}");
            if text == b"progra" {
                break;
            }
        }
    }

    #[test]
    fn a_packet_without_its_frame_arrives_without_it() {
        let socket = NetworkSocket::open(EXPERIMENT, &[take(64)]).expect("as root?");
        let text = b"a_packet_without_its_frame";
        socket.send(loopback(), [0; 6], text).unwrap();
        let mut room = [0; 128];
        loop {
            match socket.receive(&mut room) {
                Ok(received) if room[..received.length] == text[..] => {
                    assert_eq!(received.interface, loopback());
                    break;
                }
                Ok(_) => {}
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
    }

    #[tokio::test]
    async fn an_interface_that_is_not_there_is_an_error() {
        let socket = PacketSocket::open(EXPERIMENT, &[take(0)]).expect("as root?");
        let refused = |index| socket.send(index, &frame(b"x")).unwrap_err().kind();
        assert_eq!(refused(u32::MAX), io::ErrorKind::InvalidInput);
        let missing = socket.send(9_999_999, &frame(b"x")).unwrap_err();
        assert_eq!(missing.raw_os_error(), Some(libc::ENXIO));
    }
}
