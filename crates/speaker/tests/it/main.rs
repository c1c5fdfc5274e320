//! What a speaker announces and reports, without sockets.
#![expect(clippy::unwrap_used, reason = "tests stop at what they do not expect")]

mod decide;
mod plane;
mod routes;
mod status;
mod support;
