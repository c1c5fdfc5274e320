//! What a speaker is given at its start, and does not change after.

use std::net::IpAddr;

use super::Decider;
use crate::plane::Plane;

// === impl Decider ===

impl Decider {
    /// The same, with every node taken for alive, as MetalLB does without memberlist: so do
    /// speakers of both elect the same node while one replaces the other.
    #[must_use]
    pub fn assuming_all_alive(mut self) -> Self {
        self.assumes_all_alive = true;
        // By MetalLB's speakers, which report nothing.
        self.board.assume_announced();
        self
    }

    /// The same, with Services that the nodes serve themselves.
    #[must_use]
    pub fn serving(mut self, plane: Plane) -> Self {
        self.plane = Some(plane);
        self
    }

    /// The same, which takes a node that is cordoned as any other.
    #[must_use]
    pub fn ignoring_cordon(mut self) -> Self {
        self.router.ignore_cordon();
        self
    }

    /// The same, on a node that has this address: it is the router ID where no other is written.
    #[must_use]
    pub fn at(mut self, address: IpAddr) -> Self {
        self.router.know_by(address);
        self
    }
}
