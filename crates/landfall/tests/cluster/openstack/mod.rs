//! OpenStack behind a cluster: the simulated cloud, and the real one of the test bed.

mod command_line;
mod guide;
mod kills;
#[cfg(feature = "reference")]
mod neighbours;
mod picture;
#[cfg(feature = "reference")]
mod reference;
mod refusals;
mod scene;
mod shared;
mod takeover;
