//! HTTP listeners over real sockets: raw bytes in, raw bytes out, with members that do as they are told.

mod scene;

mod failures;
mod forwarding;
mod framing;
mod lifetime;
