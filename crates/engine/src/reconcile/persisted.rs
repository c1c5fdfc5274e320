//! What the engine itself keeps on a Service for the next process.

use std::collections::BTreeMap;
use std::net::IpAddr;

use landfall_model::provider::ProviderStatus;
use landfall_model::status::{
    ACCEPTED_VERSION, ENGINE_MARKS, HELD_ADDRESSES, INSTANCE, IngressAddress, ServiceStatus,
};

use super::machine::unknown_status;
use crate::held;

/// What is kept on a Service for the process that comes next, whichever provider serves it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Persisted {
    /// The instance that serves it, where its class does not name one.
    pub instance: Option<String>,
    /// Whether that was on record before: an annotation that is gone comes back.
    pub named: bool,
    /// The version that was accepted last, as text.
    pub accepted: Option<String>,
    /// Annotations of an instance that served it before and has cleared everything away.
    pub obsolete: &'static [&'static str],
    /// What was published when it was last known what the Service holds.
    pub published: Vec<IngressAddress>,
    /// Addresses in the status that another Service holds.
    pub forfeited: Vec<IpAddr>,
}

// === impl Persisted ===

impl Persisted {
    /// Names the instance in a status that is written anyway: that is worth no write of its own.
    pub(super) fn name_instance(&self, status: &mut ServiceStatus) {
        match &self.instance {
            Some(instance) => drop(status.marks.insert(INSTANCE.to_owned(), instance.clone())),
            None => drop(status.marks.remove(INSTANCE)),
        }
    }

    /// Returns what stands of a Service of which no version can be served. What is held was read
    /// from what was published, and that goes back there if another program takes it out.
    pub(super) fn unserved_status(&self, status: &ServiceStatus) -> ProviderStatus {
        let mut standing = unknown_status(status);
        if standing.ingress.is_empty() {
            standing.ingress.clone_from(&self.published);
        }
        if self.forfeited.is_empty() {
            return standing;
        }
        let keeps = |address: &IpAddr| !self.forfeited.contains(address);
        standing
            .ingress
            .retain(|entry| entry.ip.is_none_or(|address| keeps(&address)));
        // A name is published in place of the addresses that are noted beside it.
        let noted = standing.marks.remove(HELD_ADDRESSES).unwrap_or_default();
        let kept = held::noted(&noted).filter(keeps);
        let kept: Vec<String> = kept.map(|address| address.to_string()).collect();
        if kept.is_empty() {
            standing.ingress.retain(|entry| entry.ip.is_some());
        } else {
            let mark = (HELD_ADDRESSES.to_owned(), kept.join(","));
            standing.marks.extend([mark]);
        }
        standing
    }

    /// The annotations that shall be on the Service: what the provider says now, what it does not
    /// know as it was, and our own; the instance as it was, unless it was taken away.
    pub(super) fn marks(
        &self,
        provider: &[&str],
        before: &ServiceStatus,
        standing: &ProviderStatus,
    ) -> BTreeMap<String, String> {
        let engine = |key: &str| ENGINE_MARKS.contains(&key);
        let kept = before.marks.iter().filter(|(key, _)| {
            let key = key.as_str();
            !provider.contains(&key) && !engine(key) && !self.obsolete.contains(&key)
        });
        // Only what stays is copied: the accepted version is long.
        let kept = kept.map(|(key, value)| (key.clone(), value.clone()));
        let mut marks: BTreeMap<String, String> = kept.collect();
        let reported = standing.marks.iter().filter(|(key, _)| !engine(key));
        marks.extend(reported.map(|(key, value)| (key.clone(), value.clone())));
        let instance = before.marks.get(INSTANCE).cloned();
        let taken_away = || self.instance.clone().filter(|_| self.named);
        let instance = instance.or_else(taken_away);
        let own = [
            (INSTANCE, instance),
            (ACCEPTED_VERSION, self.accepted.clone()),
        ];
        marks.extend(
            own.into_iter()
                .filter_map(|(key, value)| Some((key.to_owned(), value?))),
        );
        marks
    }
}
