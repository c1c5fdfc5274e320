//! Matching of client addresses against prefixes: a sorted list of disjoint ranges per family,
//! searched by halves. Built once per configuration, read for every connection.

use std::net::IpAddr;

use ipnet::IpNet;

/// A set of addresses of both families. IPv4-mapped IPv6 addresses count as IPv4.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceSet {
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
}

// === impl SourceSet ===

impl SourceSet {
    /// The addresses inside any of the prefixes.
    pub fn new<'a>(prefixes: impl IntoIterator<Item = &'a IpNet>) -> Self {
        let mut v4 = Vec::new();
        let mut v6 = Vec::new();
        for prefix in prefixes {
            match prefix {
                IpNet::V4(prefix) => {
                    v4.push((prefix.network().to_bits(), prefix.broadcast().to_bits()));
                }
                IpNet::V6(prefix) => {
                    v6.push((prefix.network().to_bits(), prefix.broadcast().to_bits()));
                }
            }
        }
        Self {
            v4: merge(v4),
            v6: merge(v6),
        }
    }

    /// Whether no address is in the set.
    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// Whether an address is in the set.
    pub fn contains(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) => within(&self.v4, address.to_bits()),
            IpAddr::V6(address) => within(&self.v6, address.to_bits()),
        }
    }
}

fn merge<T: Copy + Ord>(mut ranges: Vec<(T, T)>) -> Vec<(T, T)> {
    ranges.sort_unstable();
    let mut merged: Vec<(T, T)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(open) if first <= open.1 => open.1 = open.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    merged
}

fn within<T: Copy + Ord>(ranges: &[(T, T)], wanted: T) -> bool {
    let after = ranges.partition_point(|&(first, _)| first <= wanted);
    after
        .checked_sub(1)
        .and_then(|at| ranges.get(at))
        .is_some_and(|&(_, last)| wanted <= last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(prefixes: &[&str]) -> SourceSet {
        let prefixes: Vec<IpNet> = prefixes.iter().map(|text| text.parse().unwrap()).collect();
        SourceSet::new(&prefixes)
    }

    #[test]
    fn an_address_is_found_in_its_prefix_and_nowhere_else() {
        let set = set(&["10.0.0.0/8", "10.1.0.0/16", "192.0.2.7/32", "2001:db8::/32"]);
        for inside in [
            "10.0.0.0",
            "10.255.255.255",
            "192.0.2.7",
            "2001:db8::1",
            "::ffff:10.9.9.9",
        ] {
            assert!(set.contains(inside.parse().unwrap()), "{inside}");
        }
        for outside in [
            "9.255.255.255",
            "11.0.0.0",
            "192.0.2.6",
            "192.0.2.8",
            "2001:db9::",
            "::",
        ] {
            assert!(!set.contains(outside.parse().unwrap()), "{outside}");
        }
    }

    #[test]
    fn everything_is_inside_the_default_prefixes() {
        let set = set(&["0.0.0.0/0", "::/0"]);
        for inside in ["0.0.0.0", "255.255.255.255", "::1", "ffff::"] {
            assert!(set.contains(inside.parse().unwrap()), "{inside}");
        }
    }

    #[test]
    fn an_empty_set_holds_nothing() {
        assert!(set(&[]).is_empty());
        assert!(!set(&[]).contains("127.0.0.1".parse().unwrap()));
    }
}
