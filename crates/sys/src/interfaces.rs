//! The addresses of interfaces, of the network namespace of the calling thread.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv6Addr};

use crate::address::RawAddress;
use crate::check;

/// An address that an interface has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The name of the interface.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// The address.
    pub address: IpAddr,
    /// Others may be given it: it is used, and is neither to be used no longer, nor one of those
    /// that are replaced for the sake of privacy.
    pub is_lasting: bool,
}

/// Returns the addresses of all interfaces, in the order of the kernel.
pub fn addresses() -> io::Result<Vec<InterfaceAddress>> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the pointer lives across the call, which makes it point to a list.
    check(unsafe { libc::getifaddrs(&raw mut first) })?;
    let passing = passing();
    let mut found = Vec::new();
    let mut next = first;
    // SAFETY: a pointer of the list is null or points to an entry, which lives until the list is
    // freed below.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        if entry.ifa_addr.is_null() || entry.ifa_name.is_null() {
            continue;
        }
        // SAFETY: the kernel's name of an interface ends with a zero and lives as the entry does.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) };
        // SAFETY: as above; the call only reads it.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        // SAFETY: the address is not null, and of the length that its family has.
        let Some(address) = (unsafe { RawAddress::copy(entry.ifa_addr) }).get() else {
            continue;
        };
        found.push(InterfaceAddress {
            name: name.to_string_lossy().into_owned(),
            index,
            is_lasting: !passing.contains(&(index, address.ip())),
            address: address.ip(),
        });
    }
    // SAFETY: the list came from `getifaddrs`, and nothing of it is used after this.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// `IFA_F_TEMPORARY`, `IFA_F_DADFAILED`, `IFA_F_DEPRECATED` and `IFA_F_TENTATIVE` of Linux.
const PASSING: u32 = 0x01 | 0x08 | 0x20 | 0x40;

/// Returns the addresses of IPv6 that do not last, with the indexes of their interfaces. What the
/// kernel does not say lasts.
fn passing() -> BTreeSet<(u32, IpAddr)> {
    let text = std::fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap_or_default();
    text.lines().filter_map(passing_of).collect()
}

/// Reads a line of `if_inet6`: address, index, prefix length, scope and flags, all hexadecimal,
/// and the interface.
fn passing_of(line: &str) -> Option<(u32, IpAddr)> {
    let mut fields = line.split_ascii_whitespace();
    let address = u128::from_str_radix(fields.next()?, 16).ok()?;
    let mut numbers = fields.map(|field| u32::from_str_radix(field, 16).ok());
    let index = numbers.next()??;
    let flags = numbers.nth(2)??;
    (flags & PASSING != 0).then(|| (index, Ipv6Addr::from_bits(address).into()))
}

/// Returns the index of an interface; `None` if there is none of that name.
pub fn index(name: &str) -> Option<u32> {
    let name = std::ffi::CString::new(name).ok()?;
    // SAFETY: the name ends with a zero and lives across the call, which only reads it.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index != 0).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_its_address() {
        let found = addresses().unwrap();
        let loopback = found.iter().find(|it| it.address.is_loopback()).unwrap();
        assert_eq!(loopback.name, "lo");
        assert!(loopback.is_lasting);
        assert_eq!(Some(loopback.index), index("lo"));
    }

    #[test]
    fn an_address_that_is_tentative_deprecated_or_temporary_does_not_last() {
        let line = |flags: &str| format!("20010db8000000000000000000000001 0a 40 00 {flags} eth0");
        let address: IpAddr = "2001:db8::1".parse().unwrap();
        for flags in ["01", "21", "40", "c0", "c8"] {
            assert_eq!(passing_of(&line(flags)), Some((10, address)), "{flags}");
        }
        for flags in ["00", "80", "02", "zz"] {
            assert_eq!(passing_of(&line(flags)), None, "{flags}");
        }
        assert_eq!(passing_of("20010db8 0a"), None);
    }

    #[test]
    fn there_is_no_index_of_an_interface_that_is_not_there() {
        assert_eq!(index("no-such-if"), None);
        assert_eq!(index("a\0b"), None);
    }
}
