//! What the kernel knows of an IPv4 neighbour.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd};

use crate::address::RawAddress;
use crate::check;

/// Set in an entry of the neighbour table that has a MAC address.
const COMPLETE: libc::c_int = 2;

/// Returns the MAC address of a neighbour on an interface (`SIOCGARP`), if the kernel has one in
/// its table. Any IPv4 socket of the network namespace serves.
pub fn mac_of(
    socket: impl AsFd,
    neighbour: Ipv4Addr,
    interface: &str,
) -> io::Result<Option<[u8; 6]>> {
    // SAFETY: integers and arrays of integers, for which zeros are a value.
    let mut request: libc::arpreq = unsafe { std::mem::zeroed() };
    let address = RawAddress::new(SocketAddrV4::new(neighbour, 0).into());
    request.arp_pa = address.short();
    // The last byte stays 0, as the end of the text.
    if interface.len() >= request.arp_dev.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (place, byte) in request.arp_dev.iter_mut().zip(interface.bytes()) {
        *place = byte.cast_signed();
    }
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the request lives across the call, and the name in it ends with a 0.
    match check(unsafe { libc::ioctl(fd, libc::SIOCGARP, &raw mut request) }) {
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
        Err(error) => Err(error),
        Ok(_) if request.arp_flags & COMPLETE == 0 => Ok(None),
        Ok(_) => {
            let mut mac = [0; 6];
            for (place, byte) in mac.iter_mut().zip(request.arp_ha.sa_data) {
                *place = byte.cast_unsigned();
            }
            Ok(Some(mac))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn a_neighbour_that_is_not_in_the_table_has_no_mac_address() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let found = mac_of(&socket, Ipv4Addr::new(192, 0, 2, 77), "lo").unwrap();
        assert_eq!(found, None);
    }

    #[test]
    fn an_interface_that_is_not_there_is_an_error() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let ask = |name| mac_of(&socket, Ipv4Addr::LOCALHOST, name).unwrap_err();
        assert_eq!(ask("no-such-one").raw_os_error(), Some(libc::ENODEV));
        assert_eq!(ask(&"x".repeat(40)).kind(), io::ErrorKind::InvalidInput);
    }
}
