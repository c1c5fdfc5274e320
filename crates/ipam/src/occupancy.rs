//! The holders of one address.
//!
//! Invariant: all holders of an address may share it with each other. Every way in asks
//! [`Occupancy::validate`] first.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use landfall_model::{ListenerKey, Uid};

use crate::conflict::Conflict;
use crate::request::Claimant;

/// The holders of one address. Sharing is the rare case, and only it pays for maps.
#[derive(Clone, Debug)]
pub(crate) enum Occupancy {
    Sole(Arc<Claimant>),
    Shared(Box<Shared>),
}

/// Two holders or more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared {
    holders: BTreeMap<Uid, Arc<Claimant>>,
    /// The holder of each port; no port twice.
    ports: BTreeMap<ListenerKey, Uid>,
}

impl Occupancy {
    /// Whether `claimant` may hold `address` together with all others that hold it. `across`:
    /// they may be of other namespaces. An existing holder is not held to that.
    pub(crate) fn validate(
        &self,
        address: IpAddr,
        claimant: &Claimant,
        across: bool,
    ) -> Result<(), Conflict> {
        let Some(holder) = self.another_than(&claimant.uid) else {
            return Ok(());
        };
        if self.foreigner_to(claimant).is_some() {
            let key = claimant.terms.key.as_ref();
            let same_key = key.is_some() && key == holder.terms.key.as_ref();
            if !same_key || !(across || self.has(&claimant.uid)) {
                return Err(Conflict::AddressOfOthers { address });
            }
            return self
                .validate_terms(address, claimant, holder)
                .map_err(|_| Conflict::SharingWithOthersClashes { address });
        }
        self.validate_terms(address, claimant, holder)
    }

    /// Whether the terms of two holders go together, and the ports of all.
    fn validate_terms(
        &self,
        address: IpAddr,
        claimant: &Claimant,
        holder: &Claimant,
    ) -> Result<(), Conflict> {
        let (terms, others) = (&claimant.terms, &holder.terms);
        let holder_name = || holder.service.clone();
        let Some(key) = &terms.key else {
            return Err(Conflict::AddressTaken {
                address,
                holder: holder_name(),
            });
        };
        if Some(key) != others.key.as_ref() {
            return Err(Conflict::SharingKeyDiffers {
                address,
                holder: holder_name(),
                holder_key: others.key.clone(),
                key: key.clone(),
            });
        }
        if terms.backend != others.backend {
            return Err(Conflict::SharingBackendDiffers {
                address,
                holder: holder_name(),
                holder_backend: others.backend.clone(),
                backend: terms.backend.clone(),
            });
        }
        if terms.group(None).is_none() {
            return Err(Conflict::SharingNeedsSelector {
                address,
                holder: holder_name(),
            });
        }
        let Some(rival) = terms
            .ports
            .iter()
            .find_map(|port| self.user_of(*port, &claimant.uid))
        else {
            return Ok(());
        };
        Err(Conflict::SharingPortsClash {
            address,
            holder: rival.service.clone(),
            ports: terms
                .ports
                .intersection(&rival.terms.ports)
                .copied()
                .collect(),
        })
    }

    /// One more holder, which [`validate`](Self::validate) let in.
    pub(crate) fn join(&mut self, claimant: Arc<Claimant>) {
        if let Self::Sole(first) = self {
            let mut shared = Shared::default();
            shared.add(Arc::clone(first));
            *self = Self::Shared(Box::new(shared));
        }
        if let Self::Shared(shared) = self {
            shared.add(claimant);
        }
    }

    /// One holder less; true when none is left.
    pub(crate) fn leave(&mut self, uid: &Uid) -> bool {
        match self {
            Self::Sole(holder) => holder.uid == *uid,
            Self::Shared(shared) => {
                shared.remove(uid);
                if shared.holders.len() == 1
                    && let Some((_, last)) = shared.holders.pop_first()
                {
                    *self = Self::Sole(last);
                }
                false
            }
        }
    }

    /// All holders, in the order of their identities.
    pub(crate) fn holders(&self) -> Vec<&Arc<Claimant>> {
        match self {
            Self::Sole(holder) => vec![holder],
            Self::Shared(shared) => shared.holders.values().collect(),
        }
    }

    /// Whether the Service is a holder.
    pub(crate) fn has(&self, uid: &Uid) -> bool {
        match self {
            Self::Sole(holder) => holder.uid == *uid,
            Self::Shared(shared) => shared.holders.contains_key(uid),
        }
    }

    /// Whether a Service of this namespace is a holder.
    pub(crate) fn has_of(&self, namespace: &str) -> bool {
        let of = |holder: &Arc<Claimant>| holder.service.namespace() == namespace;
        match self {
            Self::Sole(holder) => of(holder),
            Self::Shared(shared) => shared.holders.values().any(of),
        }
    }

    /// Whether another Service of the holder's namespace is a holder, too.
    pub(crate) fn has_beside(&self, holder: &Claimant) -> bool {
        let namespace = holder.service.namespace();
        let beside =
            |it: &Arc<Claimant>| it.uid != holder.uid && it.service.namespace() == namespace;
        match self {
            Self::Sole(sole) => beside(sole),
            Self::Shared(shared) => shared.holders.values().any(beside),
        }
    }

    /// A holder of another namespace than the claimant's.
    pub(crate) fn foreigner_to(&self, claimant: &Claimant) -> Option<&Claimant> {
        let namespace = claimant.service.namespace();
        let foreign = |holder: &&Arc<Claimant>| holder.service.namespace() != namespace;
        let found = match self {
            Self::Sole(holder) => Some(holder).filter(foreign),
            Self::Shared(shared) => shared.holders.values().find(foreign),
        };
        found.map(|holder| &**holder)
    }

    /// The first other holder by identity.
    fn another_than(&self, uid: &Uid) -> Option<&Claimant> {
        match self {
            Self::Sole(holder) => (holder.uid != *uid).then_some(&**holder),
            Self::Shared(shared) => {
                // At most one is skipped.
                shared
                    .holders
                    .values()
                    .find(|holder| holder.uid != *uid)
                    .map(|holder| &**holder)
            }
        }
    }

    /// Another holder that uses this port.
    fn user_of(&self, port: ListenerKey, uid: &Uid) -> Option<&Claimant> {
        match self {
            Self::Sole(holder) => {
                (holder.uid != *uid && holder.terms.ports.contains(&port)).then_some(&**holder)
            }
            Self::Shared(shared) => shared
                .ports
                .get(&port)
                .filter(|user| *user != uid)
                .and_then(|user| shared.holders.get(user))
                .map(|holder| &**holder),
        }
    }
}

impl Shared {
    fn add(&mut self, claimant: Arc<Claimant>) {
        for port in &claimant.terms.ports {
            self.ports.insert(*port, claimant.uid.clone());
        }
        self.holders.insert(claimant.uid.clone(), claimant);
    }

    fn remove(&mut self, uid: &Uid) {
        if let Some(holder) = self.holders.remove(uid) {
            for port in &holder.terms.ports {
                self.ports.remove(port);
            }
        }
    }
}
