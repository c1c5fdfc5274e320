//! Bidirectional Forwarding Detection (RFC 5880, 5881 and 5883): whether the way to a peer and back
//! works, found out within a fraction of a second.
//!
//! ```text
//! packet ──> session ──> table ──> driver
//! (bytes)    (one peer)  (all)     (thread, sockets, clock)
//! ```
//!
//! All but the driver is without I/O and takes `now`. This crate knows no BGP and no Kubernetes:
//! what follows from a session that went down is its caller's to decide.

pub mod driver;
pub mod packet;
pub mod session;
pub mod table;
