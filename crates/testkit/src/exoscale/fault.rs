//! Faults of single calls, and the log of calls.

use std::time::Duration;

use bytes::Bytes;
use http::Method;

/// A call. In the log, with the status that it was answered with.
#[derive(Clone, Debug)]
pub struct Call {
    /// Counts from 0.
    pub number: usize,
    /// The method.
    pub method: Method,
    /// The path, with `/v2`.
    pub path: String,
    /// The query.
    pub query: String,
    /// The body.
    pub body: Bytes,
    /// It has a signature, valid or not.
    pub signed: bool,
    /// The header `User-Agent`.
    pub user_agent: String,
    /// The status; 0: not answered yet, or never.
    pub status: u16,
}

/// What goes wrong with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is answered so, and not carried out.
    Status {
        /// The status.
        code: u16,
        /// The body.
        body: String,
        /// The header `Retry-After` in seconds.
        retry_after: Option<u64>,
    },
    /// The connection breaks before it arrives.
    NoAnswerBefore,
    /// The connection breaks after it was carried out.
    NoAnswerAfter,
    /// It never arrives, and the connection stays.
    HangBefore,
    /// It is carried out, and the connection stays.
    HangAfter,
    /// It is late.
    Delay(Duration),
}

/// The connection broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection broke")]
pub struct NoAnswer;

// === impl Call ===

impl Call {
    /// Returns whether it asks for a change.
    pub fn is_write(&self) -> bool {
        self.method != Method::GET
    }

    /// Returns method and path without `/v2`: `POST /load-balancer`.
    pub fn line(&self) -> String {
        let path = self.path.strip_prefix("/v2").unwrap_or(&self.path);
        format!("{} {path}", self.method)
    }
}
