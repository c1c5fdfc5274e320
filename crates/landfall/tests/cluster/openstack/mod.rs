//! OpenStack behind a cluster: the simulated cloud.

mod command_line;
mod takeover;
