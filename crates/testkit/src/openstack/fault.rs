//! Faults: what can go wrong with a call, and a schedule of them that a seed replays.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use super::clock::Dice;
use super::load_balancers::Fate;
use super::wire::Service;

/// What a fault is decided on.
#[derive(Debug, Clone)]
pub struct CallInfo {
    /// Number of the call since the simulator was made, from 0.
    pub number: usize,
    /// The service; `None` if the URL belongs to none.
    pub service: Option<Service>,
    /// The method.
    pub method: Method,
    /// The path after the service's base.
    pub path: String,
    /// The query.
    pub query: String,
    /// Length of the body.
    pub body_bytes: usize,
    /// The body.
    pub body: Bytes,
}

impl CallInfo {
    /// Whether it asks for a change of the cloud. Getting a token does not.
    pub fn is_write(&self) -> bool {
        self.method != Method::GET && self.service != Some(Service::Identity)
    }
}

/// What happens to one call.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Nothing happens but this answer.
    Status {
        /// The status code.
        code: u16,
        /// The body.
        body: Value,
        /// Seconds for the header `Retry-After`.
        retry_after: Option<u64>,
    },
    /// Nothing happens, and no answer comes.
    NoAnswerBefore,
    /// It happens, and the answer is lost.
    NoAnswerAfter,
    /// It happens, later.
    Delay(Duration),
    /// No answer comes, and it happens later all the same: the request waits somewhere in the
    /// cloud.
    NoAnswerAndLater(Duration),
    /// Nothing happens, and the call never ends.
    HangBefore,
    /// It happens, and the call never ends.
    HangAfter,
    /// The token is dead from now on.
    TokenDies,
}

impl Fault {
    /// An answer in the words of the service.
    pub fn status(service: Option<Service>, code: u16, text: &str) -> Self {
        let body = match service {
            Some(Service::LoadBalancer) => {
                let side = if code >= 500 { "Server" } else { "Client" };
                json!({"faultcode": side, "faultstring": text, "debuginfo": null})
            }
            Some(Service::Network) => {
                let kind = match code {
                    409 => "OverQuota",
                    _ => "HTTPInternalServerError",
                };
                json!({"NeutronError": {"type": kind, "message": text, "detail": ""}})
            }
            Some(Service::Identity | Service::KeyManager) | None => {
                json!({"error": {"code": code, "message": text, "title": "Error"}})
            }
        };
        Self::Status {
            code,
            body,
            retry_after: None,
        }
    }
}

/// No answer came: what a client sees as a broken connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the connection broke before an answer came")]
pub struct NoAnswer;

/// A random schedule of faults: probabilities per call. Equal seeds and equal calls give equal
/// faults.
#[derive(Debug, Clone)]
pub struct Chaos {
    /// Seed of everything.
    pub seed: u64,
    /// 500, 502, 503 or 504; nothing happens.
    pub server_error: f64,
    /// 429 with `Retry-After`.
    pub too_many: f64,
    /// On writes of children: 409 "immutable", though nothing is.
    pub immutable: f64,
    /// No answer, nothing happened.
    pub lost_before: f64,
    /// No answer, but it happened.
    pub lost_after: f64,
    /// Slow by up to `slowness`.
    pub slow: f64,
    /// The longest delay.
    pub slowness: Duration,
    /// The token dies.
    pub token_dies: f64,
    /// On creating POSTs: quota.
    pub quota: f64,
    /// Per lock: the load balancer ends in ERROR.
    pub balancer_error: f64,
    /// Per lock: the child ends in ERROR.
    pub child_error: f64,
    /// Per lock: it takes up to ten times `slowness`.
    pub late: f64,
    /// Only that many faults; then the cloud is well.
    pub most: usize,
}

impl Chaos {
    /// A mean cloud: about one call in five goes wrong, for the first 60 faults.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            server_error: 0.05,
            too_many: 0.03,
            immutable: 0.04,
            lost_before: 0.02,
            lost_after: 0.04,
            slow: 0.05,
            slowness: Duration::from_secs(8),
            token_dies: 0.01,
            quota: 0.02,
            balancer_error: 0.02,
            child_error: 0.02,
            late: 0.05,
            most: 60,
        }
    }

    /// The schedule as a hook for calls.
    pub fn calls(&self) -> impl FnMut(&CallInfo) -> Option<Fault> + Send + 'static {
        let mut dice = Dice::new(self.seed);
        let plan = self.clone();
        let mut left = self.most;
        move |call| {
            if left == 0 {
                return None;
            }
            let fault = plan.roll(&mut dice, call);
            left -= usize::from(fault.is_some());
            fault
        }
    }

    /// The schedule as a hook for locks.
    pub fn locks(&self) -> impl FnMut(&str, &str) -> Fate + Send + 'static {
        let mut dice = Dice::new(self.seed ^ 0x5eed);
        let plan = self.clone();
        let mut left = self.most;
        move |write, _| {
            if left == 0 {
                return Fate::Active;
            }
            let millis = u64::try_from(plan.slowness.as_millis()).unwrap_or(1000);
            let fate = if dice.chance(plan.balancer_error) {
                Fate::BalancerError
            } else if write != "delete" && dice.chance(plan.child_error) {
                Fate::ChildError
            } else if dice.chance(plan.late) {
                Fate::Late(Duration::from_millis(1 + dice.below(10 * millis)))
            } else {
                return Fate::Active;
            };
            left -= 1;
            fate
        }
    }

    fn roll(&self, dice: &mut Dice, call: &CallInfo) -> Option<Fault> {
        let service = call.service;
        let balancer = service == Some(Service::LoadBalancer);
        if dice.chance(self.server_error) {
            let code = [500, 502, 503, 504][usize::try_from(dice.below(4)).unwrap_or(0)];
            return Some(Fault::status(service, code, "The server is unwell."));
        }
        if dice.chance(self.too_many) {
            return Some(Fault::Status {
                code: 429,
                body: json!({"error": {"code": 429, "message": "Too many requests."}}),
                retry_after: Some(1 + dice.below(4)),
            });
        }
        if dice.chance(self.immutable) && call.is_write() && balancer {
            let text = "Load Balancer 00000000-0000-4000-8000-000000000000 is immutable and cannot \
                       be updated.";
            return Some(Fault::status(service, 409, text));
        }
        if dice.chance(self.lost_before) {
            return Some(Fault::NoAnswerBefore);
        }
        if dice.chance(self.lost_after) {
            return Some(Fault::NoAnswerAfter);
        }
        if dice.chance(self.slow) {
            let millis = u64::try_from(self.slowness.as_millis()).unwrap_or(1000);
            return Some(Fault::Delay(Duration::from_millis(1 + dice.below(millis))));
        }
        if dice.chance(self.token_dies) {
            return Some(Fault::TokenDies);
        }
        if dice.chance(self.quota) && call.method == Method::POST {
            return match service {
                Some(Service::LoadBalancer) => Some(Fault::status(
                    service,
                    403,
                    "Quota has been met for resources: Load Balancer",
                )),
                Some(Service::Network) => Some(Fault::status(
                    service,
                    409,
                    "Quota exceeded for resources: ['floatingip'].",
                )),
                _ => None,
            };
        }
        None
    }
}
