//! The record of all calls.

use std::time::Duration;

use bytes::Bytes;
use http::Method;

use super::wire::Service;

/// One call, as the server saw it.
#[derive(Debug, Clone)]
pub struct Call {
    /// When it came in, since the simulator was made.
    pub at: Duration,
    /// Which service it was for; `None` for an URL that belongs to none.
    pub service: Option<Service>,
    /// The method.
    pub method: Method,
    /// The path after the service's base, with a leading slash.
    pub path: String,
    /// The query as it was sent, without the question mark.
    pub query: String,
    /// The body.
    pub body: Bytes,
    /// Its length.
    pub body_bytes: usize,
    /// What the server answered; 0 if it never came to an answer.
    pub status: u16,
    /// Whether the answer reached the client.
    pub answered: bool,
    /// The program that called, by its own words.
    pub user_agent: String,
}

impl Call {
    /// Whether it asked for a change. Getting a token does not.
    pub fn is_write(&self) -> bool {
        self.method != Method::GET
            && self.method != Method::HEAD
            && self.service != Some(Service::Identity)
    }

    /// `POST /v2/lbaas/loadbalancers`, for messages and comparisons.
    pub fn line(&self) -> String {
        if self.query.is_empty() {
            format!("{} {}", self.method, self.path)
        } else {
            format!("{} {}?{}", self.method, self.path, self.query)
        }
    }
}
