//! OpenStack behind a cluster: the simulated cloud, and the real one of the test bed.

mod command_line;
mod guide;
mod kills;
mod picture;
#[cfg(feature = "reference")]
mod reference;
mod refusals;
mod scene;
mod shared;
mod takeover;
