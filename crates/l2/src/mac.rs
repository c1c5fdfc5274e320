//! Link-layer addresses of Ethernet.

use std::fmt;
use std::net::Ipv6Addr;

/// A MAC address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress(pub [u8; 6]);

// === impl MacAddress ===

impl MacAddress {
    /// All stations on the link.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Returns the group to which frames for an IPv6 multicast address go (RFC 2464, section 7).
    pub const fn of_group(group: Ipv6Addr) -> Self {
        let octets = group.octets();
        Self([0x33, 0x33, octets[12], octets[13], octets[14], octets[15]])
    }

    /// Returns whether one station can have this address.
    pub fn is_unicast(self) -> bool {
        self.0[0] & 1 == 0 && self.0 != [0; 6]
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, rest @ ..] = self.0;
        write!(out, "{first:02x}")?;
        rest.iter().try_for_each(|byte| write!(out, ":{byte:02x}"))
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_zero_are_no_station() {
        assert!(MacAddress([2, 0, 0, 0, 0, 1]).is_unicast());
        for other in [
            MacAddress::BROADCAST,
            MacAddress([0; 6]),
            MacAddress::of_group("ff02::1".parse().unwrap()),
        ] {
            assert!(!other.is_unicast(), "{other}");
        }
    }

    #[test]
    fn it_is_written_in_lower_case_with_colons() {
        assert_eq!(
            MacAddress([2, 0, 0, 0xab, 0, 1]).to_string(),
            "02:00:00:ab:00:01"
        );
    }
}
