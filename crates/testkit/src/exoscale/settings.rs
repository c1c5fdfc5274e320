//! Settings of the simulated cloud. What is not known of the real one can be switched.

use std::time::Duration;

/// Settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Polls after which an operation ends.
    pub polls: u32,
    /// The time after which it ends without polls.
    pub duration: Duration,
    /// The most services of an NLB.
    pub max_services: usize,
    /// The most NLBs.
    pub max_load_balancers: usize,
    /// The delay of every answer.
    pub latency: Duration,
    /// How far the server's clock is ahead, in seconds.
    pub clock_ahead: i64,
    /// The shape of errors.
    pub errors: ErrorShape,
    /// What a change does while another one of the same NLB goes on. Not known.
    pub parallel: Parallel,
    /// The status for a wrong signature or an unknown key. Not known.
    pub refused_key: u16,
    /// The status for a name that is taken. Not known.
    pub name_taken: u16,
    /// Names of the services of an NLB are unique. Not known.
    pub unique_service_names: bool,
    /// A change of a health check keeps the fields that it omits. Not known.
    pub merges_healthcheck: bool,
    /// An empty description empties it; otherwise it is refused. Not known.
    pub accepts_empty_description: bool,
    /// Deleting an NLB deletes its services; otherwise it is refused while it has some. Not known.
    pub deletes_with_services: bool,
    /// Pools in NLB services are answered with more than their id.
    pub full_pools: bool,
    /// The health of an NLB service without instances is null instead of an empty list.
    pub null_health: bool,
}

/// A shape of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorShape {
    /// `message`.
    Message,
    /// `message` and `errors` with a `message` each.
    List,
    /// RFC 9457.
    Problem,
    /// `error`.
    Error,
    /// No JSON.
    Plain,
}

/// What happens to a change while another one of the same NLB goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parallel {
    /// It is refused with 409.
    Refused,
    /// It is carried out.
    Allowed,
    /// It is carried out, and its operation stays pending for ever.
    Stuck,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            polls: 2,
            duration: Duration::from_secs(30),
            max_services: 10,
            max_load_balancers: 1000,
            latency: Duration::ZERO,
            clock_ahead: 0,
            errors: ErrorShape::Message,
            parallel: Parallel::Refused,
            refused_key: 403,
            name_taken: 409,
            unique_service_names: true,
            merges_healthcheck: true,
            accepts_empty_description: true,
            deletes_with_services: false,
            full_pools: false,
            null_health: false,
        }
    }
}
