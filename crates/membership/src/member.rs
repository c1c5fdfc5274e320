//! What is known of a node.

use std::net::SocketAddr;
use std::sync::Arc;

/// Bytes that the name of a node has at most: a subdomain name of RFC 1123.
pub const LONGEST_NAME: usize = 253;

/// Bytes that the metadata of a node have at most.
pub const LONGEST_METADATA: usize = 256;

/// What is said of a life of a node. Of two statements on the same incarnation the greater counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// It answers.
    Alive,
    /// It did not answer one node. It is still a member.
    Suspect,
    /// It did not refute that it is suspected.
    Dead,
    /// It said that it leaves.
    Left,
}

/// A statement on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The name of the node, the same for all its lives.
    pub name: Arc<str>,
    /// Where it receives datagrams.
    pub address: SocketAddr,
    /// Grows with everything that the node says of itself, over all its lives. Only the node itself
    /// chooses one.
    pub incarnation: u64,
    /// What is said.
    pub status: Status,
    /// What the node reports to others, of [`LONGEST_METADATA`] bytes at most.
    pub metadata: Arc<[u8]>,
}

// === impl Status ===

impl Status {
    /// Returns whether a node with this status is a member.
    pub fn is_present(self) -> bool {
        matches!(self, Self::Alive | Self::Suspect)
    }
}
