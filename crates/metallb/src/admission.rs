//! What an admission webhook answers about an object before it is written: the rules that take
//! other objects to be seen.

use std::collections::BTreeSet;
use std::sync::Arc;

use landfall_model::reason::{Code, Reason, Severity};
use landfall_model::rows::{PoolRow, ResourceKind, ResourceRow};

use crate::config::{Config, LATER};
use crate::findings::ObjectName;
use crate::objects::as_it_was;

/// A change that is to be validated.
#[derive(Clone, Debug, PartialEq)]
pub enum Proposal {
    /// A pool as it is to be. Its row carries the object.
    Pool(Arc<PoolRow>),
    /// Another object as it is to be.
    Object(Arc<ResourceRow>),
    /// An object that is to be deleted.
    Deletion(ObjectName),
}

/// What is wrong with a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Why it is refused; empty: it is not.
    pub refused: Vec<Reason>,
    /// What is worth knowing of it.
    pub warnings: Vec<Reason>,
}

// === impl Verdict ===

impl Verdict {
    /// Validates a change of the objects that there are, of which `home` is the namespace. What an
    /// object names and does not exist yet may come later, so that the order of writes is free.
    pub fn of(
        proposal: &Proposal,
        pools: &[Arc<PoolRow>],
        objects: &[Arc<ResourceRow>],
        home: &str,
    ) -> Self {
        let (name, pools_after, objects_after) = match proposal {
            Proposal::Deletion(object) => return Self::of_deletion(object, objects),
            Proposal::Pool(row) => {
                let Some(object) = &row.resource else {
                    return Self::default();
                };
                let others = pools.iter().filter(|it| it.name != row.name);
                let after: Vec<_> = others.chain([row]).cloned().collect();
                (ObjectName::from(&**object), after, objects.to_vec())
            }
            Proposal::Object(row) => {
                let is_another =
                    |it: &&Arc<ResourceRow>| (it.kind, &it.key) != (row.kind, &row.key);
                let others = objects.iter().filter(is_another);
                let after: Vec<_> = others.chain([row]).cloned().collect();
                (ObjectName::from(&**row), pools.to_vec(), after)
            }
        };
        if name.key.namespace() != home {
            return Self::elsewhere(home);
        }
        let (before, earlier) = Config::build(pools, objects, &Config::default());
        let (_, findings) = Config::build(&pools_after, &objects_after, &before);
        let known = findings.of(&name).iter();
        let known = known.filter(|it| it.message != as_it_was().message);
        // What was wrong before does not stand in the way of an edit.
        let earlier = earlier.of(&name);
        let is_refusal = |it: &&Reason| {
            let is_error = it.severity == Severity::Error && !earlier.contains(it);
            is_error && !LATER.contains(&it.message.as_str())
        };
        let (refused, warnings) = known.partition::<Vec<&Reason>, _>(|it| is_refusal(it));
        Self {
            refused: refused.into_iter().cloned().collect(),
            warnings: warnings.into_iter().cloned().collect(),
        }
    }

    fn elsewhere(home: &str) -> Self {
        let message = format!("objects of this kind are read in the namespace {home} only");
        let reason = Reason::error(Code::InvalidResource, message).at("metadata.namespace");
        Self {
            refused: vec![reason.remedy("create it there")],
            warnings: Vec::new(),
        }
    }

    /// A BFD profile stays while a peer names it.
    fn of_deletion(object: &ObjectName, objects: &[Arc<ResourceRow>]) -> Self {
        if object.kind != ResourceKind::BfdProfile {
            return Self::default();
        }
        let (config, _) = Config::build(&[], objects, &Config::default());
        let name = object.key.name();
        let peers = config.peers();
        let naming = peers.filter(|(_, peer)| peer.bfd_profile.as_deref() == Some(name));
        let naming: BTreeSet<&str> = naming.map(|(key, _)| key.name()).collect();
        let Some(first) = naming.first() else {
            return Self::default();
        };
        let message = format!("the BGPPeer {first} names it");
        let reason = Reason::error(Code::InvalidResource, message);
        Self {
            refused: vec![reason.remedy("remove bfdProfile of that peer first")],
            warnings: Vec::new(),
        }
    }

    /// Returns whether the change is admitted.
    pub fn is_admitted(&self) -> bool {
        self.refused.is_empty()
    }
}
