//! Names and addresses on the bench.

use std::net::Ipv4Addr;

/// The namespace of MetalLB's resources.
pub const NAMESPACE: &str = "metallb-system";

/// Addresses that are owned by some node each.
pub const ADDRESSES: usize = 4;

/// The address of the bridge.
pub const HUB: &str = "10.78.0.254";

/// The address of the router, with BGP.
pub const ROUTER: &str = "10.78.3.1";

/// The network of clients behind the router.
pub const CLIENTS: &str = "10.80.0.0/24";

/// The address of all clients.
pub const CLIENT: &str = "10.80.0.2";

/// The address of the router there.
pub const ROUTER_OF_CLIENTS: &str = "10.80.0.1";

/// The network of the addresses that are announced.
pub const ANNOUNCED: &str = "10.78.2.0/24";

/// The port of Landfall's admin endpoint on each node.
pub const ADMIN: u16 = 9641;

/// The address of a node.
pub fn node_address(node: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 78, 1, node)
}

/// One of the addresses that are announced.
pub fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 78, 2, 1 + number as u8)
}

/// The node that has a MAC address.
pub fn node_of(mac: &str) -> Option<u8> {
    u8::from_str_radix(mac.strip_prefix("02:00:00:00:00:")?, 16).ok()
}
