//! The data plane: carries the traffic of [`landfall_model::Listener`]s to their members.
//!
//! Owns sockets, connections, flows, member health and counters. It never decides *what* should be
//! served (that is resolve's and plan's work) and never blocks the control plane: it runs on
//! threads of its own, one single-threaded tokio runtime per worker.
//!
//! ```text
//!   apply(listener) ──> ListenerState ── config (swapped in place) ── pool ── members
//!                            │                                          ▲
//!   worker threads: accept ──┤ Stream  ──> tcp: copy, splice            │ pick -> Lease
//!                            │ Tls     ──> tls::…, then copy            │
//!                            │ Http(s) ──> (tls::…), http::…            │
//!                            └ UDP     ──> udp: flows                   │
//!   monitor driver ── set_health ───────────────────────────────────────┘
//! ```

pub mod access_log;
pub mod admission;
pub mod breaks;
pub mod budget;
pub mod changes;
mod client_table;
mod clients;
pub mod counters;
pub mod dial;
mod engine;
mod failures;
pub mod http;
mod identity;
pub mod inbound;
pub mod listener;
mod memory;
pub mod monitor;
mod overload;
pub mod pool;
mod ports;
pub mod proxy;
pub mod proxy_protocol;
mod rate;
mod recency;
mod relay;
pub mod shortage;
pub mod sources;
pub mod tls;
mod worker;
mod worker_check;

pub use identity::{ListenerId, Owner};
pub use inbound::Inbound;
pub use listener::{ListenError, ListenerConfig, ListenerState};
pub use pool::{Health, Lease, PoolState};
pub use proxy::{Applied, ListenerStatus, Proxy, ProxyConfig, Sockets};
