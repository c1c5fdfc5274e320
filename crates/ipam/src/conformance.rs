//! The allocation rows of the conformance table, by their numbers.
//!
//! Where a row differs from the reference on purpose, the test says so.

use landfall_model::rows::{Family, FamilyPolicy};
use landfall_model::{Code, ServiceKey};

use crate::testing::{allocator, exists, ip, ips, name, pool, pool_set, selector, svc};
use crate::{
    Allocator, Conflict, Counters, Decision, PoolSet, Refusal, Restore, SkippedPool, Verdict,
    WantedFamilies, Why, parse_requested_addresses,
};

fn service(name: &str) -> ServiceKey {
    ServiceKey::new("default", name)
}

fn restore(name: &str, addresses: &str) -> Restore {
    Restore {
        claimant: svc(name).claimant,
        addresses: addresses.split_whitespace().map(ip).collect(),
        pool: None,
        requested: ips(""),
    }
}

mod families;
mod pools;
mod requests;
mod sharing;
