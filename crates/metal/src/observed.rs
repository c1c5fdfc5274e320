//! What is known of one Service.

use std::net::IpAddr;

use landfall_addressing::Holdings;

/// What a Service holds, and what announces it.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Its claim.
    pub addresses: Holdings,
    /// For each address that it holds, or would get, what announces it.
    pub announced: Vec<Announced>,
    /// Whether there is any advertisement at all.
    pub has_advertisements: bool,
}

/// What announces an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    /// The address.
    pub address: IpAddr,
    /// The pool that has it, if one does.
    pub pool: Option<String>,
    /// How many `L2Advertisements` apply.
    pub by_l2: usize,
    /// How many `BGPAdvertisements` apply.
    pub by_bgp: usize,
    /// Whether one of the `L2Advertisements` selects Services.
    pub l2_selects_services: bool,
}
