//! Which speakers of a cluster are alive: failure detection between nodes over UDP.
//!
//! Every node pings a few others, so that the cost for a node does not grow with the cluster. One
//! that does not answer is suspected in front of all; all ask it, and it refutes that, or is dead.
//!
//! ```text
//!   bytes -> seal (one key per sender and life) -> packet -> machine -> packet -> seal -> bytes
//!                                                   |  ^
//!                                     the view, with changes; time
//! ```
//!
//! Everything but [`driver`] is without I/O and clock. No order of datagrams, and no datagram of
//! others than the holders of a key, makes it panic or change its view.

pub mod driver;
pub mod lease;
pub mod machine;
pub mod member;
pub mod packet;
pub mod replay;
mod ring;
pub mod seal;
mod sending;
