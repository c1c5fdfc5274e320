//! Announcements in networks of network namespaces, with real kernels, `arping`, `ndisc6` and
//! `tcpdump` as neighbours. Making the namespaces takes root; without it the tests fail.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "clippy knows tests by their attribute only, and these stand in helpers of tests"
)]

mod arp;
mod interfaces;
mod lab;
mod ndp;
mod ownership;
mod rights;
mod routes;
