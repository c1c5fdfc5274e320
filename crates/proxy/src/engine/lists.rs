//! Which connections belong to which listener: a list for each, through places in a table. However
//! long a list is, all but the walk along it takes as many steps as it does to find the list. Pure.

use std::collections::BTreeMap;

const NONE: u32 = u32::MAX;

/// Lists of places, each in at most one list.
#[derive(Debug)]
pub(super) struct Lists<O> {
    /// The place that came last to each list that has any.
    heads: BTreeMap<O, u32>,
    links: Vec<Link>,
}

/// The neighbours of a place.
#[derive(Clone, Copy, Debug)]
struct Link {
    newer: u32,
    older: u32,
}

// === impl Link ===

impl Link {
    const ALONE: Self = Self {
        newer: NONE,
        older: NONE,
    };
}

// === impl Lists ===

impl<O> Default for Lists<O> {
    fn default() -> Self {
        Self {
            heads: BTreeMap::new(),
            links: Vec::new(),
        }
    }
}

impl<O: Copy + Ord> Lists<O> {
    /// Adds a place, which is in no list, to that of `owner`.
    pub(super) fn add(&mut self, owner: O, place: u32) {
        if self.links.len() <= place as usize {
            self.links.resize(place as usize + 1, Link::ALONE);
        }
        let older = self.heads.insert(owner, place).unwrap_or(NONE);
        self.set(place, Link { newer: NONE, older });
        if let Some(link) = self.links.get_mut(older as usize) {
            link.newer = place;
        }
    }

    /// Takes a place out of the list of `owner`, in which it is.
    pub(super) fn remove(&mut self, owner: O, place: u32) {
        let Some(&Link { newer, older }) = self.links.get(place as usize) else {
            return;
        };
        if let Some(link) = self.links.get_mut(older as usize) {
            link.newer = newer;
        }
        match self.links.get_mut(newer as usize) {
            Some(link) => link.older = older,
            None if older == NONE => {
                self.heads.remove(&owner);
            }
            None => {
                self.heads.insert(owner, older);
            }
        }
        self.set(place, Link::ALONE);
    }

    /// The places in the list of `owner`, the last one first.
    pub(super) fn of(&self, owner: O) -> impl Iterator<Item = u32> {
        let first = self.heads.get(&owner).copied();
        std::iter::successors(first, |&place| {
            let link = self.links.get(place as usize)?;
            (link.older != NONE).then_some(link.older)
        })
    }

    fn set(&mut self, place: u32, link: Link) {
        if let Some(there) = self.links.get_mut(place as usize) {
            *there = link;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_walk_sees_the_places_of_one_owner_alone() {
        let mut lists = Lists::default();
        for place in 0..6 {
            lists.add(place % 2, place);
        }
        lists.remove(0, 2);
        lists.remove(1, 5);
        assert_eq!(lists.of(0).collect::<Vec<_>>(), [4, 0]);
        assert_eq!(lists.of(1).collect::<Vec<_>>(), [3, 1]);
        lists.remove(0, 0);
        lists.remove(0, 4);
        assert_eq!(lists.of(0).count(), 0);
        assert_eq!(lists.heads.len(), 1);
    }

    proptest! {
        #[test]
        fn lists_hold_what_was_added_and_not_removed(
            steps in prop::collection::vec((0u32..20, 0u8..4), 0..200),
        ) {
            let mut lists = Lists::default();
            let mut owners: BTreeMap<u32, u8> = BTreeMap::new();
            for (place, owner) in steps {
                if let Some(owner) = owners.remove(&place) {
                    lists.remove(owner, place);
                } else {
                    owners.insert(place, owner);
                    lists.add(owner, place);
                }
            }
            for owner in 0..4 {
                let mut seen: Vec<u32> = lists.of(owner).collect();
                seen.sort_unstable();
                let theirs = owners.iter().filter(|(_, it)| **it == owner);
                prop_assert_eq!(seen, theirs.map(|(place, _)| *place).collect::<Vec<_>>());
            }
        }
    }
}
