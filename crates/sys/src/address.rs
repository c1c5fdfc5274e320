//! Socket addresses in the kernel's form.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::size_of;

/// An IPv4 or IPv6 socket address as system calls take it: converted once, used often.
#[derive(Clone, Copy)]
#[repr(C)]
pub union RawAddress {
    family: libc::sa_family_t,
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

// === impl RawAddress ===

impl RawAddress {
    /// All zeros: family "unspecified".
    pub const UNSPECIFIED: Self = Self {
        v6: libc::sockaddr_in6 {
            sin6_family: libc::AF_UNSPEC as libc::sa_family_t,
            sin6_port: 0,
            sin6_flowinfo: 0,
            sin6_addr: libc::in6_addr { s6_addr: [0; 16] },
            sin6_scope_id: 0,
        },
    };

    /// Converts an address.
    pub fn new(address: SocketAddr) -> Self {
        let mut raw = Self::UNSPECIFIED;
        match address {
            SocketAddr::V4(address) => {
                raw.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: u32::from_ne_bytes(address.ip().octets()),
                    },
                    sin_zero: [0; 8],
                };
            }
            SocketAddr::V6(address) => {
                raw.v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: address.flowinfo(),
                    sin6_addr: libc::in6_addr {
                        s6_addr: address.ip().octets(),
                    },
                    sin6_scope_id: address.scope_id(),
                };
            }
        }
        raw
    }

    /// Copies an address of the kernel; all zeros for families other than IPv4 and IPv6.
    ///
    /// # Safety
    ///
    /// The pointer points to an address that is as long as its family has it.
    pub(crate) unsafe fn copy(from: *const libc::sockaddr) -> Self {
        let mut raw = Self::UNSPECIFIED;
        // SAFETY: by the condition above, each read is of a whole address of that family, which may
        // be at any place.
        unsafe {
            match libc::c_int::from((*from).sa_family) {
                libc::AF_INET => raw.v4 = from.cast::<libc::sockaddr_in>().read_unaligned(),
                libc::AF_INET6 => raw.v6 = from.cast::<libc::sockaddr_in6>().read_unaligned(),
                _ => {}
            }
        }
        raw
    }

    /// Converts back; `None` for any other family.
    pub fn get(&self) -> Option<SocketAddr> {
        match libc::c_int::from(self.family()) {
            libc::AF_INET => {
                // SAFETY: all fields of the union are plain integers, any bit pattern is valid, and
                // every constructor initialises all bytes.
                let v4 = unsafe { self.v4 };
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let v6 = unsafe { self.v6 };
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }

    pub(crate) fn family(&self) -> libc::sa_family_t {
        // SAFETY: `family` is the first field of every variant; all bytes are initialised.
        unsafe { self.family }
    }

    pub(crate) fn as_ptr(&self) -> *const libc::sockaddr {
        std::ptr::from_ref(self).cast()
    }

    /// The first 16 bytes, which hold all of an IPv4 address.
    pub(crate) fn short(&self) -> libc::sockaddr {
        // SAFETY: the union is longer than a `sockaddr` and aligned as strictly; all its bytes are
        // initialised, and any bytes make a valid `sockaddr`.
        unsafe { self.as_ptr().read() }
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        std::ptr::from_mut(self).cast()
    }

    /// The length that goes with the family.
    pub(crate) fn length(&self) -> libc::socklen_t {
        match libc::c_int::from(self.family()) {
            libc::AF_INET => size_of::<libc::sockaddr_in>(),
            _ => size_of::<libc::sockaddr_in6>(),
        }
    }

    /// The room that there is.
    pub(crate) const fn room() -> libc::socklen_t {
        size_of::<Self>()
    }
}

impl From<SocketAddr> for RawAddress {
    fn from(address: SocketAddr) -> Self {
        Self::new(address)
    }
}

impl fmt::Debug for RawAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.get() {
            Some(address) => address.fmt(f),
            None => f.write_str("unspecified"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_conversion() {
        for text in [
            "127.0.0.1:80",
            "255.1.2.3:65535",
            "[2001:db8::1]:443",
            "[fe80::1%3]:1",
        ] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(RawAddress::new(address).get(), Some(address));
        }
        assert_eq!(RawAddress::UNSPECIFIED.get(), None);
    }
}
