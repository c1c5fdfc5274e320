//! A map whose copies share what they have in common. A copy costs next to nothing, and a change of
//! a copy, or the comparison with it, as much as what differs.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::Arc;

/// The parts of a map, chosen by a byte of the hash of the key. Of ten thousand entries a change
/// copies forty.
const PARTS: usize = 256;

/// A map in parts, each of which copies share until one of them changes it. Entries are in no
/// order.
#[derive(Clone)]
pub struct SharedMap<K, V> {
    parts: Arc<[Arc<BTreeMap<K, V>>]>,
    len: usize,
}

/// An entry that differs between two maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a, K, V> {
    /// Its key.
    pub key: &'a K,
    /// The value that it had.
    pub before: Option<&'a V>,
    /// The value that it has.
    pub now: Option<&'a V>,
}

// === impl SharedMap ===

impl<K, V> SharedMap<K, V> {
    /// Returns how many entries there are.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there is no entry.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns all entries, in no order.
    pub fn entries(&self) -> impl Iterator<Item = (&K, &V)> {
        self.parts.iter().flat_map(|part| part.iter())
    }

    /// Returns all keys, in no order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.entries().map(|(key, _)| key)
    }
}

impl<K: Ord + Hash, V> SharedMap<K, V> {
    /// Returns the value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.parts.get(place(key))?.get(key)
    }

    /// Returns whether there is a value of a key.
    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }
}

impl<K: Ord + Hash + Clone, V: Clone + PartialEq> SharedMap<K, V> {
    /// Gives a key a value, or none. What is so already is not changed.
    pub fn set(&mut self, key: &K, value: Option<V>) {
        if self.get(key) == value.as_ref() {
            return;
        }
        let Some(part) = Arc::make_mut(&mut self.parts).get_mut(place(key)) else {
            return;
        };
        let part = Arc::make_mut(part);
        self.len -= part.len();
        match value {
            Some(value) => drop(part.insert(key.clone(), value)),
            None => drop(part.remove(key)),
        }
        self.len += part.len();
    }

    /// Returns what differs from another map.
    pub fn changes<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = Change<'a, K, V>> {
        let parts = self.parts.iter().zip(before.parts.iter());
        let parts = parts.filter(|(now, before)| !Arc::ptr_eq(now, before));
        parts.flat_map(|(now, before)| {
            let gone = before.iter().filter(|(key, _)| !now.contains_key(*key));
            let gone = gone.map(|(key, value)| Change {
                key,
                before: Some(value),
                now: None,
            });
            let there = now.iter().map(|(key, value)| Change {
                key,
                before: before.get(key),
                now: Some(value),
            });
            gone.chain(there.filter(|it| it.before != it.now))
        })
    }
}

fn place<K: Hash>(key: &K) -> usize {
    // Without a secret, so that equal keys are at the same place in all maps. One that chooses the
    // keys can make a change cost as much as a copy, and no more.
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    let [place, ..] = hasher.finish().to_le_bytes();
    usize::from(place)
}

impl<K, V> Default for SharedMap<K, V> {
    fn default() -> Self {
        let empty = Arc::new(BTreeMap::new());
        Self {
            parts: std::iter::repeat_n(empty, PARTS).collect(),
            len: 0,
        }
    }
}

impl<K: Ord + Hash + Clone, V: Clone + PartialEq> FromIterator<(K, V)> for SharedMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::default();
        for (key, value) in entries {
            map.set(&key, Some(value));
        }
        map
    }
}

impl<K: PartialEq, V: PartialEq> PartialEq for SharedMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        let mut parts = self.parts.iter().zip(other.parts.iter());
        self.len == other.len && parts.all(|(one, other)| Arc::ptr_eq(one, other) || one == other)
    }
}

impl<K: Eq, V: Eq> Eq for SharedMap<K, V> {}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for SharedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.entries()).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Plain = BTreeMap<u16, u8>;

    fn plain(map: &SharedMap<u16, u8>) -> Plain {
        map.entries().map(|(key, value)| (*key, *value)).collect()
    }

    #[test]
    fn a_copy_shares_all_but_the_part_that_changes() {
        let before: SharedMap<u16, u8> = (0..2_000).map(|it| (it, 0)).collect();
        let mut now = before.clone();
        now.set(&7, Some(0));
        assert!(Arc::ptr_eq(&now.parts, &before.parts));
        now.set(&7, None);
        let parts = now.parts.iter().zip(before.parts.iter());
        let own = parts.filter(|(one, other)| !Arc::ptr_eq(one, other));
        assert_eq!(own.count(), 1);
        assert_eq!((before.len(), now.len()), (2_000, 1_999));
    }

    proptest! {
        /// It is any map, copies are independent, and the differences lead from one to the other.
        #[test]
        fn it_behaves_like_a_plain_map_and_names_what_differs(
            first in prop::collection::vec((0..300_u16, any::<Option<u8>>()), 0..200),
            second in prop::collection::vec((0..300_u16, any::<Option<u8>>()), 0..40),
        ) {
            let (mut map, mut model) = (SharedMap::default(), Plain::new());
            let mut change = |map: &mut SharedMap<u16, u8>, (key, value): (u16, Option<u8>)| {
                map.set(&key, value);
                match value {
                    Some(value) => model.insert(key, value),
                    None => model.remove(&key),
                };
                model.clone()
            };
            for entry in first {
                let model = change(&mut map, entry);
                prop_assert_eq!(map.len(), model.len());
                prop_assert_eq!(map.get(&entry.0), model.get(&entry.0));
            }
            let (before, mut now) = (plain(&map), map.clone());
            for entry in second {
                let model = change(&mut now, entry);
                prop_assert_eq!(plain(&now), model);
            }
            prop_assert_eq!(plain(&map), before.clone());
            prop_assert_eq!(now == map, plain(&now) == before);
            let mut rebuilt = before;
            for Change { key, before, now } in now.changes(&map) {
                prop_assert_eq!(rebuilt.get(key), before);
                prop_assert_ne!(before, now);
                match now {
                    Some(value) => rebuilt.insert(*key, *value),
                    None => rebuilt.remove(key),
                };
            }
            prop_assert_eq!(rebuilt, plain(&now));
        }
    }
}
