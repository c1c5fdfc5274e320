//! A bounded map that knows which entry was used least recently. All operations are O(1). Pure.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

const NONE: u32 = u32::MAX;

/// A map of at most `capacity` entries, ordered by last use.
#[derive(Debug)]
pub(crate) struct Recency<K, V> {
    capacity: usize,
    places: HashMap<K, u32>,
    slots: Vec<Slot<K, V>>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
}

#[derive(Debug)]
struct Slot<K, V> {
    entry: Option<(K, V)>,
    newer: u32,
    older: u32,
}

// === impl Recency ===

impl<K: Clone + Eq + Hash, V> Recency<K, V> {
    /// An empty map that will never hold more than `capacity` entries (at least one).
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity: capacity.clamp(1, NONE as usize - 1),
            places: HashMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
        }
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// The entry of a key, marked as used just now.
    pub(crate) fn touch<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let place = *self.places.get(key)?;
        if place != self.newest {
            self.unlink(place);
            self.link(place);
        }
        self.slots
            .get_mut(place as usize)?
            .entry
            .as_mut()
            .map(|(_, value)| value)
    }

    /// The entry of a key, leaving the order alone.
    pub(crate) fn get<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let place = *self.places.get(key)?;
        self.slots
            .get_mut(place as usize)?
            .entry
            .as_mut()
            .map(|(_, value)| value)
    }

    /// Adds or replaces an entry as the most recent one. Returns what had to go: the previous value
    /// of the key, or the oldest entry of a full map.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<(K, V)> {
        let mut gone = self.remove(&key).map(|old| (key.clone(), old));
        if self.places.len() >= self.capacity {
            gone = self.pop_oldest();
        }
        let slot = Slot {
            entry: Some((key.clone(), value)),
            newer: NONE,
            older: NONE,
        };
        let place = if let Some(place) = self.free.pop() {
            if let Some(free) = self.slots.get_mut(place as usize) {
                *free = slot;
            }
            place
        } else {
            self.slots.push(slot);
            (self.slots.len() - 1) as u32
        };
        self.places.insert(key, place);
        self.link(place);
        gone
    }

    /// Takes an entry out.
    pub(crate) fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let place = self.places.remove(key)?;
        self.unlink(place);
        self.free.push(place);
        self.slots
            .get_mut(place as usize)?
            .entry
            .take()
            .map(|(_, value)| value)
    }

    /// All values, in no order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        let entries = self.slots.iter().filter_map(|slot| slot.entry.as_ref());
        entries.map(|(_, value)| value)
    }

    /// The entry that was used least recently.
    pub(crate) fn oldest(&self) -> Option<(&K, &V)> {
        let slot = self.slots.get(self.oldest as usize)?;
        slot.entry.as_ref().map(|(key, value)| (key, value))
    }

    /// Takes out the entry that was used least recently.
    pub(crate) fn pop_oldest(&mut self) -> Option<(K, V)> {
        let key = self.oldest()?.0.clone();
        let value = self.remove(&key)?;
        Some((key, value))
    }

    fn link(&mut self, place: u32) {
        let older = self.newest;
        if let Some(slot) = self.slots.get_mut(place as usize) {
            slot.older = older;
            slot.newer = NONE;
        }
        match self.slots.get_mut(older as usize) {
            Some(slot) => slot.newer = place,
            None => self.oldest = place,
        }
        self.newest = place;
    }

    fn unlink(&mut self, place: u32) {
        let Some(slot) = self.slots.get(place as usize) else {
            return;
        };
        let (newer, older) = (slot.newer, slot.older);
        match self.slots.get_mut(newer as usize) {
            Some(slot) => slot.older = older,
            None => self.newest = older,
        }
        match self.slots.get_mut(older as usize) {
            Some(slot) => slot.newer = newer,
            None => self.oldest = newer,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_least_recently_used_entry_makes_room() {
        let mut map = Recency::new(2);
        assert_eq!(map.insert("a", 1), None);
        assert_eq!(map.insert("b", 2), None);
        assert_eq!(map.touch("a"), Some(&mut 1));
        assert_eq!(map.insert("c", 3), Some(("b", 2)));
        assert_eq!((map.len(), map.oldest()), (2, Some((&"a", &1))));
    }

    #[test]
    fn reading_without_touching_leaves_the_order() {
        let mut map = Recency::new(2);
        map.insert("a", 1);
        map.insert("b", 2);
        assert_eq!(map.get("a"), Some(&mut 1));
        assert_eq!(map.pop_oldest(), Some(("a", 1)));
    }

    #[derive(Clone, Debug)]
    enum Action {
        Insert(u8, u32),
        Touch(u8),
        Remove(u8),
        Pop,
    }

    fn action() -> impl Strategy<Value = Action> {
        prop_oneof![
            4 => (0u8..12, any::<u32>()).prop_map(|(key, value)| Action::Insert(key, value)),
            2 => (0u8..12).prop_map(Action::Touch),
            1 => (0u8..12).prop_map(Action::Remove),
            1 => Just(Action::Pop),
        ]
    }

    proptest! {
        #[test]
        fn it_behaves_like_a_list_in_order_of_use(
            capacity in 1usize..8,
            actions in prop::collection::vec(action(), 0..200),
        ) {
            let mut map = Recency::new(capacity);
            let mut model: Vec<(u8, u32)> = Vec::new();
            for action in actions {
                match action {
                    Action::Insert(key, value) => {
                        map.insert(key, value);
                        model.retain(|&(other, _)| other != key);
                        if model.len() >= capacity {
                            model.remove(0);
                        }
                        model.push((key, value));
                    }
                    Action::Touch(key) => {
                        let at = model.iter().position(|&(other, _)| other == key);
                        let entry = at.map(|at| model.remove(at));
                        prop_assert_eq!(map.touch(&key).copied(), entry.map(|(_, value)| value));
                        model.extend(entry);
                    }
                    Action::Remove(key) => {
                        let at = model.iter().position(|&(other, _)| other == key);
                        let value = at.map(|at| model.remove(at).1);
                        prop_assert_eq!(map.remove(&key), value);
                    }
                    Action::Pop => {
                        let entry = (!model.is_empty()).then(|| model.remove(0));
                        prop_assert_eq!(map.pop_oldest(), entry);
                    }
                }
                prop_assert_eq!(map.len(), model.len());
            }
            let mut rest = Vec::new();
            while let Some(entry) = map.pop_oldest() {
                rest.push(entry);
            }
            prop_assert_eq!(rest, model);
        }
    }
}
