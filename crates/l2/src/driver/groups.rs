//! Memberships in groups, so that questions about IPv6 addresses arrive: the kernel programs the
//! network card, and reports the group to switches (MLD).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::Ipv6Addr;

use socket2::{Domain, Socket, Type};

/// A group on an interface.
type Membership = (u32, Ipv6Addr);

/// Sockets that may be used. The kernel limits the memberships of each by memory (`optmem_max`):
/// a few hundred to a few thousand.
const MOST_SOCKETS: usize = 256;

/// The memberships that there are.
#[derive(Debug, Default)]
pub struct Groups {
    /// They carry nothing; memberships belong to a socket.
    sockets: Vec<Socket>,
    joined: BTreeMap<Membership, usize>,
}

// === impl Groups ===

impl Groups {
    /// Leaves and joins until the memberships are these. Returns those that could not be joined,
    /// which the next call tries again.
    pub fn set(&mut self, wanted: &BTreeSet<Membership>) -> Vec<(Membership, io::Error)> {
        let sockets = &self.sockets;
        self.joined.retain(|membership, socket| {
            let stays = wanted.contains(membership);
            if let (false, Some(socket)) = (stays, sockets.get(*socket)) {
                // An error means that the interface is gone, and the membership with it.
                let _gone = socket.leave_multicast_v6(&membership.1, membership.0);
            }
            stays
        });
        let mut failed = Vec::new();
        for membership in wanted {
            if self.joined.contains_key(membership) {
                continue;
            }
            match self.join(*membership) {
                Ok(socket) => {
                    self.joined.insert(*membership, socket);
                }
                Err(error) => failed.push((*membership, error)),
            }
        }
        failed
    }

    fn join(&mut self, (interface, group): Membership) -> io::Result<usize> {
        // Sockets in front may have room again.
        for (place, socket) in self.sockets.iter().enumerate().rev() {
            match socket.join_multicast_v6(&group, interface) {
                Err(error) if is_full(&error) => {}
                joined => return joined.map(|()| place),
            }
        }
        if self.sockets.len() >= MOST_SOCKETS {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let socket = Socket::new(Domain::IPV6, Type::DGRAM, None)?;
        socket.join_multicast_v6(&group, interface)?;
        self.sockets.push(socket);
        Ok(self.sockets.len() - 1)
    }
}

/// Whether a socket has no memory for another membership.
fn is_full(error: &io::Error) -> bool {
    const NO_BUFFERS: i32 = 105;
    error.raw_os_error() == Some(NO_BUFFERS) || error.kind() == io::ErrorKind::OutOfMemory
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loopback() -> u32 {
        let index = std::fs::read_to_string("/sys/class/net/lo/ifindex").unwrap();
        index.trim().parse().unwrap()
    }

    /// The groups of an interface, as the kernel lists them.
    fn members(prefix: &str) -> usize {
        let list = std::fs::read_to_string("/proc/net/igmp6").unwrap();
        list.lines().filter(|line| line.contains(prefix)).count()
    }

    #[test]
    fn more_memberships_than_a_socket_can_have_are_spread_over_several() {
        let group = |low: u32| {
            Ipv6Addr::from_bits(0xff05_0000_0000_0000_0042_4c32_0000_0000 | u128::from(low))
        };
        let wanted = |range: std::ops::Range<u32>| {
            range
                .map(|low| (loopback(), group(low)))
                .collect::<BTreeSet<_>>()
        };
        let listed = || members("ff050000000000000042 4c32".replace(' ', "").as_str());
        let mut groups = Groups::default();
        assert!(groups.set(&wanted(0..6_000)).is_empty());
        assert_eq!(listed(), 6_000);
        assert!(groups.sockets.len() > 1, "the limit is not reached");
        assert!(groups.set(&wanted(5_990..6_010)).is_empty());
        assert_eq!(listed(), 20);
        drop(groups);
        assert_eq!(listed(), 0);
    }

    #[test]
    fn an_interface_that_is_gone_is_an_error_and_keeps_no_other_out() {
        let group = "ff05::4c32:1".parse().unwrap();
        let mut groups = Groups::default();
        let failed = groups.set(&[(9_999_999, group), (loopback(), group)].into());
        assert_eq!(failed.len(), 1);
        assert_eq!(failed[0].0, (9_999_999, group));
        assert_eq!(groups.joined.len(), 1);
        assert!(groups.set(&BTreeSet::new()).is_empty());
        assert!(groups.joined.is_empty());
    }
}
