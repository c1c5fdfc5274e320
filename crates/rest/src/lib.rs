//! What the client of any cloud's REST API needs.
//!
//! ```text
//!  a provider's client: one method per call, with paths, bodies and types of its cloud
//!    Client: address, envelope, pages, size of bodies, a second try after a 401
//!      ├── Api (implemented per cloud): sessions, base addresses, links to the next page
//!      │     └── Sessions: one token for all calls, renewed before it expires
//!      └── Exchange: one request with its answer
//!            ├── Throttle: requests in flight, and none while the server asks to slow down
//!            ├── Authorize (implemented per cloud): a token in a header, or a signature
//!            ├── ErrorFormat (a value per cloud): how the server words its errors
//!            └── Transport: the network with proxies and TLS, or a function in this process
//!  Operation: when to ask for the state of an asynchronous operation, and when to give up
//! ```
//!
//! To build a client on it:
//!
//! 1. Implement [`Authorize`] for a session: a [`HeaderToken`](auth::HeaderToken), or a signer that
//!    adds a header over the method, path, query and body of the finished request. Each request is
//!    authorized when it is sent, so a signature is never older than its request.
//! 2. Implement [`Api`]: get a session (with [`Sessions`] where it is a token that expires), and
//!    name the base address of each of the cloud's services.
//! 3. State the [`ErrorFormat`]. [`ErrorFormat::COMMON`] reads the usual shapes.
//! 4. Write one method per call with [`Client::object`], [`Client::list`], [`Client::changed`],
//!    [`Client::done`] and [`Client::delete`].
//! 5. Where a change is answered by an operation, keep an [`Operation`] per load balancer, and ask
//!    for its state when it is due: in `observe`, not by sleeping in `apply`.
//!
//! It decides nothing: no request is repeated, except one whose session was refused. Whether an
//! error is worth another try is in [`ApiError::retry`]. No secret is ever in an error, a log or a
//! trace.

#![forbid(unsafe_code)]

mod address;
pub mod auth;
mod calls;
mod client;
mod error;
mod exchange;
mod operation;
mod session;
mod settings;
mod throttle;
mod transport;

pub use address::{http_url, joined};
pub use auth::Authorize;
pub use calls::{CallCount, CallKey};
pub use client::{Api, At, Change, Client, Query};
pub use error::{ApiError, ErrorBody, ErrorFormat, ErrorKind};
pub use exchange::{ApiRequest, ApiResponse, Exchange};
pub use operation::{Operation, OperationState, Polling, Progress};
pub use session::{Grant, Session, Sessions};
pub use settings::{Timeouts, Tls};
pub use transport::{Answering, InProcess, NoAnswer, Transport, TransportError};

pub use reqwest::Url;
