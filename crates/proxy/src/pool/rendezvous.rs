//! Choice by hash of the client (`SOURCE_IP`, `SOURCE_IP_PORT`): weighted rendezvous. Pure and
//! stable: the same members give the same answer after a restart and in another process, and a
//! member that comes or goes moves only the clients that it gains or had.
//!
//! A client that could compute its hash would know its member, and could send all traffic to one
//! by a choice of addresses or ports. So the hash is keyed by what clients do not know: the
//! identity of the Service, which in a cluster is a random UUID that all replicas see, and a secret
//! of the process for identities that are made of names.

use std::hash::Hasher as _;
#[expect(
    deprecated,
    reason = "the hasher that came instead takes no key and may change"
)]
use std::hash::SipHasher;
use std::net::{IpAddr, SocketAddr};

use landfall_model::Uid;

/// What hashes of clients are keyed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashKey(u64, u64);

// === impl HashKey ===

impl HashKey {
    /// Returns the key for a Service in a process with this secret.
    pub fn new(secret: [u8; 16], service: &Uid) -> Self {
        let secret = u128::from_le_bytes(secret);
        let secret = Self(secret as u64, (secret >> 64) as u64);
        let half = |number: u8| secret.hash(&[&[number], service.as_str().as_bytes()]);
        Self(half(0), half(1))
    }

    /// Hashes a client's address, without its port. IPv4-mapped IPv6 addresses count as IPv4.
    pub(super) fn of_address(self, address: IpAddr) -> u64 {
        self.of_bytes(address, &[])
    }

    /// Hashes an address with its port.
    pub(super) fn of_socket(self, address: SocketAddr) -> u64 {
        self.of_bytes(address.ip(), &address.port().to_be_bytes())
    }

    fn of_bytes(self, address: IpAddr, port: &[u8]) -> u64 {
        match address.to_canonical() {
            IpAddr::V4(address) => self.hash(&[&address.octets(), port]),
            IpAddr::V6(address) => self.hash(&[&address.octets(), port]),
        }
    }

    #[expect(deprecated, reason = "as above")]
    fn hash(self, parts: &[&[u8]]) -> u64 {
        let mut hasher = SipHasher::new_with_keys(self.0, self.1);
        for part in parts {
            hasher.write(part);
        }
        hasher.finish()
    }
}

/// A number for a member, by its address.
pub(super) fn of_member(address: SocketAddr) -> u64 {
    let ip = match address.ip().to_canonical() {
        IpAddr::V4(address) => mix(u64::from(address.to_bits()) | 4 << 32),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            mix(mix((bits >> 64) as u64) ^ bits as u64)
        }
    };
    mix(ip ^ u64::from(address.port()))
}

/// How strongly a client is drawn to a member; the highest wins. With weights `w`, a member wins
/// `w / sum` of all clients.
pub(super) fn attraction(client: u64, member: u64, weight: u16) -> f64 {
    // 53 random bits as a number strictly between 0 and 1.
    let draw = (mix(client ^ member) >> 11) as f64 + 0.5;
    let draw = draw / (1u64 << 53) as f64;
    -f64::from(weight) / draw.ln()
}

/// The finalizer of `SplitMix64`: every input bit changes every output bit with probability one
/// half.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn winner(client: u64, members: &[(u64, u16)]) -> u64 {
        members
            .iter()
            .max_by(|a, b| attraction(client, a.0, a.1).total_cmp(&attraction(client, b.0, b.1)))
            .unwrap()
            .0
    }

    fn members(count: u16, weight: impl Fn(u16) -> u16) -> Vec<(u64, u16)> {
        (0..count)
            .map(|index| {
                (
                    of_member(SocketAddr::from(([10, 0, 0, 1], 8000 + index))),
                    weight(index),
                )
            })
            .collect()
    }

    fn client(number: u32) -> u64 {
        let key = HashKey::new([0; 16], &Uid::new("web"));
        key.of_address(IpAddr::V4((0x0A00_0000 | number).into()))
    }

    #[test]
    fn hashes_do_not_change_between_versions() {
        let service = Uid::new("23d73f96-5fc8-8269-bd12-b62230550a0b");
        let key = HashKey::new([7; 16], &service);
        let hash = 0x2BE7_5660_5977_8F93;
        assert_eq!(key.of_address("10.0.0.1".parse().unwrap()), hash);
        assert_eq!(key.of_address("::ffff:10.0.0.1".parse().unwrap()), hash);
        assert_ne!(key.of_address("::10.0.0.1".parse().unwrap()), hash);
        let hash = 0xE49B_54EB_4D4B_E3AD;
        assert_eq!(key.of_socket("10.0.0.1:443".parse().unwrap()), hash);
    }

    #[test]
    fn clients_that_meet_at_one_member_for_one_key_are_spread_for_another() {
        let members = members(8, |_| 1);
        let secrets = [([7; 16], "web"), ([8; 16], "web"), ([7; 16], "api")];
        let keys = secrets.map(|(secret, service)| HashKey::new(secret, &Uid::new(service)));
        let socket = |number: u16| SocketAddr::from(([192, 0, 2, 1], number));
        for of in [
            |key: HashKey, client: SocketAddr| key.of_socket(client),
            |key: HashKey, client: SocketAddr| {
                let [high, low] = client.port().to_be_bytes();
                key.of_address(IpAddr::from([192, 0, high, low]))
            },
        ] {
            let target = members[0].0;
            let aimed: Vec<_> = (1024..9216)
                .map(socket)
                .filter(|client| winner(of(keys[0], *client), &members) == target)
                .collect();
            for key in &keys[1..] {
                let hits = aimed.iter();
                let hits = hits.filter(|client| winner(of(*key, **client), &members) == target);
                let (hits, share) = (hits.count(), aimed.len() / 8);
                assert!(hits < share * 3 / 2, "{hits} of {}", aimed.len());
            }
        }
    }

    #[test]
    fn weights_set_the_share_of_clients() {
        let members = members(3, |index| [1, 2, 5][usize::from(index)]);
        let clients = 40_000;
        for (member, weight) in &members {
            let won = (0..clients)
                .filter(|&c| winner(client(c), &members) == *member)
                .count();
            let share = f64::from(clients) * f64::from(*weight) / 8.0;
            assert!(
                (won as f64 - share).abs() < share * 0.05,
                "{won} instead of {share}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_member_that_leaves_moves_only_its_own_clients(
            count in 2u16..20,
            weight in 1u16..=256,
            gone in any::<prop::sample::Index>(),
            clients in prop::collection::vec(any::<u64>(), 1..200),
        ) {
            let all = members(count, |index| 1 + (index * 37 + weight) % 256);
            let mut rest = all.clone();
            let (gone, _) = rest.remove(gone.index(all.len()));
            for client in clients {
                let before = winner(client, &all);
                if before != gone {
                    prop_assert_eq!(winner(client, &rest), before);
                }
            }
        }

        #[test]
        fn a_new_member_takes_about_its_share(count in 2u16..12) {
            let before = members(count, |_| 1);
            let after = members(count + 1, |_| 1);
            let clients = 6_000;
            let moved = (0..clients)
                .filter(|&c| winner(client(c), &before) != winner(client(c), &after))
                .count();
            let share = f64::from(clients) / f64::from(count + 1);
            prop_assert!((moved as f64) < share * 1.25, "{} moved, share is {}", moved, share);
        }
    }
}
