//! HTTP listeners over real sockets: raw bytes in, raw bytes out, with scripted members.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "clippy knows tests by their attribute only, and these stand in helpers of tests"
)]

mod scene;

mod access_log;
mod failures;
mod forwarding;
mod framing;
mod http2;
mod http2_flow;
mod http2_hostile;
mod http2_members;
mod http2_raw;
mod http2_stalled;
mod lifetime;
mod member_limits;
mod memory;
mod rates;
mod reload;
