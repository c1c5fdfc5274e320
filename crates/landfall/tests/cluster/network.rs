//! Addresses of one's own: loopback ranges, or a whole network namespace where members need
//! addresses that an API server takes. It takes no loopback addresses as endpoints.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};

use landfall_testkit::cluster::Programs;

/// Set in the process that runs inside.
const INSIDE: &str = "LANDFALL_TEST_INSIDE";

/// Brings up loopback, and makes all of 10.77.0.0/16 this machine's own.
const SETUP: &str = "ip link set lo up && ip address add 10.77.0.1/16 dev lo && exec \"$0\" \"$@\"";

/// Runs a test of this binary again in a network of its own. True: this is that run.
pub async fn inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    // There is nothing to download them from inside.
    Programs::find().await.unwrap();
    let status = Command::new("unshare")
        .args(["--net", "sh", "-c", SETUP])
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .status();
    let status = status.expect("unshare, of util-linux, starts");
    assert!(status.success(), "{test} failed (it needs root): {status}");
    false
}

/// A loopback /16 that no other test of this process has: `127.N`.
pub struct Range(u8);

impl Range {
    pub fn claim() -> Self {
        static NEXT: AtomicU8 = AtomicU8::new(60);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Addresses for Landfall to hand out: 2046 of them.
    pub fn pool(&self) -> String {
        format!("127.{}.0.0/21", self.0)
    }

    /// Where a member may listen.
    pub fn member(&self, last: u8) -> SocketAddr {
        SocketAddr::new(self.at(100, last), 8000)
    }

    /// Where a replica's admin endpoint may answer.
    pub fn admin(&self, last: u8) -> SocketAddr {
        SocketAddr::new(self.at(200, last), 9640)
    }

    fn at(&self, third: u8, last: u8) -> IpAddr {
        Ipv4Addr::new(127, self.0, third, last).into()
    }
}
