//! The addresses of interfaces, of the network namespace of the calling thread.

use std::ffi::CStr;
use std::io;
use std::net::IpAddr;

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
}

/// Returns the addresses of all interfaces, in the order of the kernel.
pub fn addresses() -> io::Result<Vec<InterfaceAddress>> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the pointer lives across the call, which makes it point to a list.
    check(unsafe { libc::getifaddrs(&raw mut first) })?;
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
            address: address.ip(),
        });
    }
    // SAFETY: the list came from `getifaddrs`, and nothing of it is used after this.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
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
        assert_eq!(Some(loopback.index), index("lo"));
    }

    #[test]
    fn there_is_no_index_of_an_interface_that_is_not_there() {
        assert_eq!(index("no-such-if"), None);
        assert_eq!(index("a\0b"), None);
    }
}
