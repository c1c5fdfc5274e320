//! Loopback addresses that belong to one test alone, whichever process it runs in.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// Four neighbouring /24 of 127.0.0.0/8: one to hand out, one for backends, one for clients, and
/// one to spare. Their numbers have three digits each, so that tables are equally wide in every
/// run.
#[derive(Debug)]
pub struct Ranges {
    second: u8,
    third: u8,
    /// Held as long as the ranges are in use: no other test can bind it.
    _claim: TcpListener,
}

/// The port of the claim, on the last address.
const CLAIM_PORT: u16 = 64_999;
/// Ports on which nothing may listen yet on the first addresses of the pool.
const PROBED_PORTS: [u16; 3] = [8080, 8081, 9000];

static COUNTER: AtomicU32 = AtomicU32::new(0);

// === impl Ranges ===

impl Ranges {
    /// Ranges that no other test has.
    pub fn claim() -> Self {
        // Other processes begin elsewhere, so that they seldom meet.
        let start = std::process::id().wrapping_mul(7919);
        for _ in 0..5000 {
            let number = start.wrapping_add(COUNTER.fetch_add(1, Ordering::Relaxed));
            // 127.100.100.0 to 127.249.251.0.
            let second = 100 + u8::try_from(number / 38 % 150).unwrap();
            let third = 100 + 4 * u8::try_from(number % 38).unwrap();
            if let Some(ranges) = Self::try_claim(second, third) {
                return ranges;
            }
        }
        panic!("no free loopback range was found");
    }

    fn try_claim(second: u8, third: u8) -> Option<Self> {
        let last = Ipv4Addr::new(127, second, third + 3, 254);
        let claim = TcpListener::bind((last, CLAIM_PORT)).ok()?;
        let ranges = Self {
            second,
            third,
            _claim: claim,
        };
        let free = |port: &u16| TcpListener::bind((ranges.pool(1), *port)).is_ok();
        PROBED_PORTS.iter().all(free).then_some(ranges)
    }

    /// An address that Landfall may hand out.
    pub fn pool(&self, last: u8) -> IpAddr {
        self.address(0, last)
    }

    /// All addresses that Landfall may hand out.
    pub fn pool_cidr(&self) -> String {
        format!("{}/24", self.pool(0))
    }

    /// Where a backend may listen.
    pub fn backend(&self, last: u8, port: u16) -> SocketAddr {
        SocketAddr::new(self.address(1, last), port)
    }

    /// Where a client may come from.
    pub fn client(&self, last: u8) -> IpAddr {
        self.address(2, last)
    }

    /// An address of the fourth range, which has no purpose of its own.
    pub fn spare(&self, last: u8) -> IpAddr {
        self.address(3, last)
    }

    /// What stands for these addresses in snapshots: as long as the addresses themselves.
    pub fn hide(&self, text: &str) -> String {
        ["poo.ool", "bac.end", "cli.ent", "spa.are"]
            .iter()
            .enumerate()
            .fold(text.to_owned(), |text, (index, name)| {
                let third = self.third + u8::try_from(index).unwrap();
                text.replace(
                    &format!("127.{}.{third}.", self.second),
                    &format!("127.{name}."),
                )
            })
    }

    fn address(&self, index: u8, last: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(127, self.second, self.third + index, last))
    }
}
