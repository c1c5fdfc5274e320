//! The links of a node and their addresses, and which of them announce.

mod eligible;
mod netlink;
mod table;

pub use self::eligible::{CONTAINER_NETWORKS, Exclusions, Interface, InvalidPattern, eligible};
pub use self::netlink::{Follow, GROUPS, Progress};
pub use self::table::{Link, LinkTable, Prefix};
