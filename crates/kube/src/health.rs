//! How the connection to the API server fares.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

/// What can't be followed at the moment, and why. While something can't, facts about it are as old
/// as the failure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    failing: BTreeMap<String, String>,
}

/// A handle for watches to report their state.
#[derive(Clone, Debug)]
pub(crate) struct HealthReport(pub(super) Arc<watch::Sender<Health>>);

impl Health {
    /// Whether everything is followed.
    pub fn is_connected(&self) -> bool {
        self.failing.is_empty()
    }

    /// What is not followed, with the reason.
    pub fn failing(&self) -> impl Iterator<Item = (&str, &str)> {
        self.failing
            .iter()
            .map(|(what, why)| (what.as_str(), why.as_str()))
    }
}

impl HealthReport {
    pub(crate) fn failed(&self, what: &str, why: String) {
        self.0.send_if_modified(|health| {
            if health.failing.get(what) == Some(&why) {
                return false;
            }
            health.failing.insert(what.to_owned(), why);
            true
        });
    }

    pub(crate) fn recovered(&self, what: &str) {
        self.0
            .send_if_modified(|health| health.failing.remove(what).is_some());
    }
}
