//! Every way in which a request for an address can be refused, with what an operator needs to know.

use std::net::IpAddr;

use landfall_model::rows::Family;
use landfall_model::{Code, Reason, ServiceKey};

use crate::conflict::{Conflict, list};
use crate::family::{Addresses, WantedFamilies};
use crate::pool_name::PoolName;
use crate::verdict::{SkippedPool, Verdict};

/// Why a Service can't have what it asks for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No pool is configured.
    #[error("no address pool is configured")]
    NoPools,
    /// The pool of a held address is not known, and pools may be missing.
    #[error("the address is in no known pool and stays: some pools can't be read")]
    PoolsIncomplete,
    /// The named pool does not exist.
    #[error("there is no address pool named {pool}")]
    UnknownPool {
        /// The name.
        pool: PoolName,
        /// The pools that exist.
        known: Vec<PoolName>,
    },
    /// The requested address is in no pool.
    #[error("the requested address {address} is in no address pool")]
    AddressNotInPool {
        /// The address.
        address: IpAddr,
        /// The pools that exist.
        known: Vec<PoolName>,
    },
    /// The requested address is in another pool than the requested one.
    #[error(
        "the requested address {address} is in pool {pool}, and pool {requested} was requested"
    )]
    AddressInOtherPool {
        /// The address.
        address: IpAddr,
        /// The pool it is in.
        pool: PoolName,
        /// The pool that was asked for.
        requested: PoolName,
    },
    /// The requested addresses are in two pools.
    #[error(
        "the requested addresses {first} and {second} are in two pools, {first_pool} and \
        {second_pool}"
    )]
    AddressesInTwoPools {
        /// One address.
        first: IpAddr,
        /// Its pool.
        first_pool: PoolName,
        /// The other address.
        second: IpAddr,
        /// Its pool.
        second_pool: PoolName,
    },
    /// The pool does not serve this namespace.
    #[error("pool {pool} does not serve namespace {namespace}")]
    PoolNotForNamespace {
        /// The pool.
        pool: PoolName,
        /// The Service's namespace.
        namespace: String,
    },
    /// The pool does not serve Services with these labels.
    #[error("pool {pool} does not serve Services with the labels of {service}")]
    PoolNotForLabels {
        /// The pool.
        pool: PoolName,
        /// The Service.
        service: ServiceKey,
    },
    /// The pool gives out no address any more.
    #[error("pool {pool} is disabled")]
    PoolDisabled {
        /// The pool.
        pool: PoolName,
    },
    /// The address is reserved for other Services. Which ones is not for everybody to know.
    #[error("{address} of pool {pool} is reserved for other Services")]
    AddressReserved {
        /// The address.
        address: IpAddr,
        /// Its pool.
        pool: PoolName,
    },
    /// The address was given up a short time ago.
    #[error("{address} was released recently, and pool {pool} does not assign it again yet")]
    AddressCooling {
        /// The address.
        address: IpAddr,
        /// Its pool.
        pool: PoolName,
    },
    /// The address ends in .0 or .255 and its pool avoids those.
    #[error("{address} ends in .0 or .255, which pool {pool} avoids")]
    AddressAvoided {
        /// The address.
        address: IpAddr,
        /// Its pool.
        pool: PoolName,
    },
    /// Other Services hold the address.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// All addresses of a family in the one pool in question are held.
    #[error("pool {pool} has no free {family} address")]
    PoolFull {
        /// The pool.
        pool: PoolName,
        /// The family.
        family: Family,
    },
    /// The namespace of the Service holds as many addresses of the one pool in question as it may.
    #[error(
        "the Services of namespace {namespace} hold {held} {family} addresses of pool {pool}, and \
         one namespace may hold {most}"
    )]
    NamespaceFull {
        /// The pool.
        pool: PoolName,
        /// The family.
        family: Family,
        /// The namespace.
        namespace: String,
        /// How many it holds.
        held: u64,
        /// How many it may hold.
        most: u128,
    },
    /// The one pool in question has no address of a family.
    #[error("pool {pool} has no {family}")]
    PoolLacksFamily {
        /// The pool.
        pool: PoolName,
        /// The family.
        family: Family,
    },
    /// No pool gives itself to this Service.
    #[error("no address pool serves {service} automatically: {}", list(skipped))]
    NoPoolForService {
        /// The Service.
        service: ServiceKey,
        /// Every pool and why not.
        skipped: Vec<SkippedPool>,
    },
    /// The pools that would serve the Service can't.
    #[error("no address pool has a free {families} address: {}", list(skipped))]
    PoolsExhausted {
        /// What was wanted.
        families: WantedFamilies,
        /// Every pool and why not.
        skipped: Vec<SkippedPool>,
    },
    /// More than two addresses were asked for.
    #[error("{} addresses were requested: {}", addresses.len(), list(addresses))]
    TooManyAddresses {
        /// All of them.
        addresses: Vec<IpAddr>,
    },
    /// Two addresses of one family were asked for.
    #[error("two {family} addresses were requested, {first} and {second}")]
    TwoOfOneFamily {
        /// The family.
        family: Family,
        /// The first.
        first: IpAddr,
        /// The second.
        second: IpAddr,
    },
    /// What was asked for is no address.
    #[error("{key}: {text:?} is not an IP address")]
    BadAddress {
        /// Where it stands.
        key: String,
        /// What stands there.
        text: String,
    },
    /// Addresses were asked for in two places.
    #[error("addresses are requested twice, by {key} and by {other}")]
    AddressesSetTwice {
        /// One place.
        key: String,
        /// The other.
        other: String,
    },
    /// The addresses asked for are not one of each family of the Service.
    #[error("{addresses} was requested, and the Service has {families}")]
    FamiliesMismatch {
        /// What was asked for.
        addresses: Addresses,
        /// The families of the Service.
        families: WantedFamilies,
    },
    /// `RequireDualStack` with a cluster address of one family.
    #[error("the Service requires both families, and its only cluster address is {present}")]
    NotEnoughClusterIps {
        /// The family it has.
        present: Family,
    },
    /// The Service has no cluster address.
    #[error("the Service has no cluster address")]
    NoClusterIp,
}

// === impl Refusal ===

impl Refusal {
    /// The stable code, in the vocabulary that all of Landfall shares.
    pub fn code(&self) -> Code {
        match self {
            Self::NoPools => Code::NoPools,
            Self::PoolsIncomplete => Code::PoolsIncomplete,
            Self::UnknownPool { .. } => Code::PoolNotFound,
            Self::AddressNotInPool { .. }
            | Self::AddressInOtherPool { .. }
            | Self::AddressesInTwoPools { .. } => Code::AddressNotInPool,
            Self::PoolNotForNamespace { .. }
            | Self::PoolNotForLabels { .. }
            | Self::PoolDisabled { .. }
            | Self::AddressReserved { .. }
            | Self::NoPoolForService { .. } => Code::PoolNotAllowed,
            Self::AddressAvoided { .. } => Code::AddressAvoided,
            Self::Conflict(conflict) => conflict.code(),
            Self::AddressCooling { .. } => Code::AddressInUse,
            Self::PoolFull { .. } => Code::PoolExhausted,
            Self::NamespaceFull { .. } => Code::LimitReached,
            Self::PoolsExhausted { skipped, .. } => {
                let has = |short: fn(Family) -> Verdict| {
                    let families = [Family::V4, Family::V6];
                    let mut verdicts = skipped.iter().map(|pool| pool.verdict);
                    verdicts.any(|it| families.into_iter().any(|family| it == short(family)))
                };
                if has(Verdict::NamespaceFull) {
                    Code::LimitReached
                } else if has(Verdict::Full) {
                    Code::PoolExhausted
                } else {
                    Code::NoAddressOfFamily
                }
            }
            Self::PoolLacksFamily { .. } => Code::NoAddressOfFamily,
            Self::TooManyAddresses { .. }
            | Self::TwoOfOneFamily { .. }
            | Self::FamiliesMismatch { .. }
            | Self::NotEnoughClusterIps { .. }
            | Self::NoClusterIp => Code::AddressFamilyMismatch,
            Self::BadAddress { .. } => Code::InvalidAddress,
            Self::AddressesSetTwice { .. } => Code::ConflictingOptions,
        }
    }

    /// What the reader can do about it.
    pub fn remedy(&self) -> String {
        match self {
            Self::NoPools => "configure an address pool".to_owned(),
            Self::PoolsIncomplete => {
                "correct the pools that can't be read; the problems of the sources name them"
                    .to_owned()
            }
            Self::UnknownPool { pool, known } => {
                format!("create pool {pool} or name one of: {}", list(known))
            }
            Self::AddressNotInPool { address, known } => {
                format!(
                    "add {address} to a pool or request an address of: {}",
                    list(known)
                )
            }
            Self::AddressInOtherPool {
                pool, requested, ..
            } => {
                format!("request pool {pool}, or an address of pool {requested}")
            }
            Self::AddressesInTwoPools {
                first_pool,
                second_pool,
                ..
            } => format!(
                "request both addresses from pool {first_pool} or both from pool {second_pool}"
            ),
            Self::PoolNotForNamespace { pool, namespace } => {
                format!("add namespace {namespace} to pool {pool}, or use another pool")
            }
            Self::PoolNotForLabels { pool, .. } => format!(
                "give the Service a label that a service selector of pool {pool} matches, or use \
                 another pool"
            ),
            Self::PoolDisabled { pool } => {
                format!("use another pool, or enable pool {pool} again")
            }
            Self::AddressCooling { .. } => {
                "wait, or request another address; it is retried".to_owned()
            }
            Self::AddressReserved { .. } => "request another address".to_owned(),
            Self::AddressAvoided { pool, .. } => {
                format!("request another address, or turn avoidBuggyIPs off in pool {pool}")
            }
            Self::Conflict(conflict) => conflict.remedy(),
            Self::PoolFull { pool, family } => {
                format!("add {family} addresses to pool {pool}, or delete a Service that holds one")
            }
            Self::NamespaceFull {
                pool, namespace, ..
            } => format!(
                "delete a Service of namespace {namespace} that holds one, let several share an \
                 address, or ask the operator for a higher addressesPerNamespace in pool {pool}"
            ),
            Self::PoolLacksFamily { pool, family } => {
                format!("add {family} addresses to pool {pool}, or use another pool")
            }
            Self::NoPoolForService { service, .. } => format!(
                "let a pool serve {service}: by autoAssign, its namespaces or its selectors; or \
                 request a pool"
            ),
            Self::PoolsExhausted { families, .. } => {
                format!("add {families} addresses to one of these pools, or add a pool")
            }
            Self::TooManyAddresses { .. } | Self::TwoOfOneFamily { .. } => {
                "request at most one IPv4 and one IPv6 address".to_owned()
            }
            Self::BadAddress { .. } => {
                "write one address such as 192.0.2.7, or one of each family with a comma between"
                    .to_owned()
            }
            Self::AddressesSetTwice { key, other } => format!("remove {key} or {other}"),
            Self::FamiliesMismatch { families, .. } => families.remedy(),
            Self::NotEnoughClusterIps { .. } => "set ipFamilyPolicy to PreferDualStack or \
                                                 SingleStack, or run the cluster dual-stack"
                .to_owned(),
            Self::NoClusterIp => "remove clusterIP: None".to_owned(),
        }
    }

    /// The refusal as a reason to show: what was asked for can't be had as it stands.
    pub fn reason(&self) -> Reason {
        Reason::error(self.code(), self.to_string()).remedy(self.remedy())
    }
}

#[cfg(test)]
mod tests;
