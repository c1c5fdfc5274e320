//! Descriptors that pass from one process to another through a Unix socket (`SCM_RIGHTS`).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// How many descriptors one call carries at most. The kernel's own limit is 253.
pub const MOST: usize = 128;

/// Sends bytes, and with the first of them copies of descriptors. Returns how many bytes went; the
/// descriptors then went, too. Never blocks.
pub fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fits = descriptors.len() <= MOST
        && (descriptors.is_empty() || control.push(SendAncillaryMessage::ScmRights(descriptors)));
    if !fits {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(sendmsg(
        socket,
        &[IoSlice::new(bytes)],
        &mut control,
        flags,
    )?)
}

/// Receives bytes, and the descriptors that came with them. Returns how many bytes came; none: the
/// other side is gone. Never blocks.
pub fn receive(
    socket: impl AsFd,
    bytes: &mut [u8],
    descriptors: &mut impl Extend<OwnedFd>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, flags)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(came) = message {
            descriptors.extend(came);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::other(
            "descriptors were lost in transfer; is the limit of open files too low?",
        ));
    }
    Ok(received.bytes)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_listening_socket_arrives_as_the_same_socket() {
        let (one, two) = UnixStream::pair().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(send(&one, b"here", &[listener.as_fd()]).unwrap(), 4);
        let client = std::net::TcpStream::connect(address).unwrap();
        drop(listener);
        let (mut bytes, mut came) = ([0; 16], Vec::new());
        assert_eq!(receive(&two, &mut bytes, &mut came).unwrap(), 4);
        let listener = TcpListener::from(came.pop().unwrap());
        assert!(came.is_empty());
        // Its queue came along.
        let (_, peer) = listener.accept().unwrap();
        assert_eq!(peer, client.local_addr().unwrap());
    }

    #[test]
    fn more_than_one_call_carries_is_refused_and_nothing_goes() {
        let (one, two) = UnixStream::pair().unwrap();
        let many = [one.as_fd(); MOST + 1];
        let refused = send(&one, b"x", &many).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        let nothing = receive(&two, &mut [0; 16], &mut Vec::new()).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn the_end_of_the_other_side_is_no_bytes() {
        let (one, two) = UnixStream::pair().unwrap();
        drop(one);
        assert_eq!(receive(&two, &mut [0; 16], &mut Vec::new()).unwrap(), 0);
    }
}
