mod claiming;
mod families;
mod parts;
mod pools;
mod requests;
mod restoring;
mod shares;
mod sharing;
mod size;

use landfall_model::rows::Family;
use landfall_model::{Code, ServiceKey};

use super::*;
use crate::proposal::{Decision, Why};
use crate::testing::{allocator, ip, ips, name, pool, pool_set, selector, svc};
use crate::{Conflict, SkippedPool, Verdict, WantedFamilies};

fn service(name: &str) -> ServiceKey {
    ServiceKey::new("default", name)
}

fn restore(request: &Request, addresses: &str) -> Restore {
    Restore {
        claimant: Arc::clone(&request.claimant),
        addresses: addresses.split_whitespace().map(ip).collect(),
        pool: None,
        requested: request.addresses,
    }
}
