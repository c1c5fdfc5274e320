//! The scenarios of the specification, on a simulated cloud: a controller, a cluster in memory, and
//! what becomes of the cloud. A test is called after its row.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::needless_pass_by_value,
    clippy::format_push_string,
    clippy::type_complexity,
    reason = "tests"
)]

mod addresses;
mod adopt;
mod asked;
mod chaos;
mod cluster;
mod crash;
mod create;
mod dual;
mod each_flow;
mod each_write;
mod failing;
mod fares;
mod few_calls;
mod follow;
mod foreign_objects;
mod frozen;
mod groups;
mod guards;
mod held;
mod image;
mod inner;
mod inside;
mod lacking;
mod large;
mod listeners;
mod live;
mod logins;
mod lost;
mod marked;
mod monitors;
mod moved;
mod neighbours;
mod others;
mod parting;
mod pods;
mod pools;

mod proven;
mod pure;
mod queued;
mod ranges;
mod refused;
mod rig;
mod robust;
mod secrets;
mod shapes;
mod sharing;
mod subnets;
mod two_clusters;
mod unrecorded;
mod verdict;
mod written;

#[cfg(feature = "stack")]
mod conformance;
#[cfg(feature = "stack")]
mod measure;
