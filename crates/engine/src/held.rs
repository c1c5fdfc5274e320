//! The addresses that a status says a Service holds. Pure.

use std::net::IpAddr;

use landfall_model::status::{HELD_ADDRESSES, ServiceStatus};

/// Returns the addresses in a status; where it publishes a name instead, those that are noted
/// beside it.
pub(crate) fn addresses(status: &ServiceStatus) -> Vec<IpAddr> {
    let published: Vec<IpAddr> = status.addresses().collect();
    if !published.is_empty() {
        return published;
    }
    let text = status.marks.get(HELD_ADDRESSES);
    text.into_iter().flat_map(|text| noted(text)).collect()
}

/// Returns the addresses of a mark.
pub(crate) fn noted(text: &str) -> impl Iterator<Item = IpAddr> {
    words(text).flatten()
}

/// The addresses of a mark, and in place of an invalid one its text.
pub(crate) fn words(text: &str) -> impl Iterator<Item = Result<IpAddr, &str>> {
    let parts = text
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty());
    parts.map(|word| word.parse().map_err(|_| word))
}
