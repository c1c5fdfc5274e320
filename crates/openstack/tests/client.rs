//! The client against a cloud in this process, on the test's clock, and against a TLS server on
//! loopback.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "client/calls.rs"]
mod calls;
#[path = "client/fake.rs"]
mod fake;
#[path = "client/rotation.rs"]
mod rotation;
#[path = "client/secrets.rs"]
mod secrets;
#[path = "client/sessions.rs"]
mod sessions;
#[path = "client/simulated.rs"]
mod simulated;
#[path = "client/tls.rs"]
mod tls;
