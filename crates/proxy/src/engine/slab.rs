//! A table whose places are used again. Keys carry the place's generation, so that a key of
//! something that is gone finds nothing, not its successor. Pure.

/// Where something stands in a [`Slab`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) index: u32,
    generation: u32,
}

/// Things by key.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// How many bits of a generation fit into a packed key.
const GENERATION_BITS: u32 = 28;

// === impl Key ===

impl Key {
    /// The key in 60 bits.
    pub(crate) fn pack(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The key out of the lower 60 bits.
    pub(crate) fn unpack(bits: u64) -> Self {
        let generation = (bits >> 32) as u32 & ((1 << GENERATION_BITS) - 1);
        Self {
            index: bits as u32,
            generation,
        }
    }
}

// === impl Slab ===

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    /// Puts in what `make` makes of its key.
    pub(crate) fn insert_with(&mut self, make: impl FnOnce(Key) -> T) -> Key {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                value: None,
            });
            (self.slots.len() - 1) as u32
        });
        let generation = self
            .slots
            .get(index as usize)
            .map_or(0, |slot| slot.generation);
        let key = Key { index, generation };
        if let Some(slot) = self.slots.get_mut(index as usize) {
            slot.value = Some(make(key));
        }
        key
    }

    /// What stands there.
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation == key.generation {
            slot.value.as_mut()
        } else {
            None
        }
    }

    /// Takes out what stands there.
    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = (slot.generation + 1) & ((1 << GENERATION_BITS) - 1);
        self.free.push(key.index);
        Some(value)
    }

    /// The key of what stands at a place.
    pub(crate) fn key_at(&self, index: u32) -> Option<Key> {
        let slot = self.slots.get(index as usize)?;
        slot.value.as_ref().map(|_| Key {
            index,
            generation: slot.generation,
        })
    }

    /// The keys of everything for which `wanted` says so.
    pub(crate) fn keys_where(&self, mut wanted: impl FnMut(&T) -> bool) -> Vec<Key> {
        let slots = self.slots.iter().zip(0..);
        let found = slots.filter(|(slot, _)| slot.value.as_ref().is_some_and(&mut wanted));
        found
            .map(|(slot, index)| Key {
                index,
                generation: slot.generation,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_something_gone_does_not_find_its_successor() {
        let mut slab = Slab::default();
        let first = slab.insert_with(|_| "first");
        assert_eq!(slab.remove(first), Some("first"));
        let second = slab.insert_with(|_| "second");
        assert_eq!(second.index, first.index);
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get_mut(second), Some(&mut "second"));
        assert_eq!(slab.key_at(second.index), Some(second));
    }

    #[test]
    fn a_packed_key_is_the_same_key() {
        let key = Key {
            index: u32::MAX,
            generation: (1 << GENERATION_BITS) - 1,
        };
        assert_eq!(Key::unpack(key.pack()), key);
        assert_eq!(Key::unpack(key.pack() | 0xF << 60), key);
    }

    #[test]
    fn everything_that_matches_a_request_is_found() {
        let mut slab = Slab::default();
        let keys: Vec<Key> = (0..6).map(|number| slab.insert_with(|_| number)).collect();
        slab.remove(keys[2]);
        assert_eq!(
            slab.keys_where(|number| number % 2 == 0),
            [keys[0], keys[4]]
        );
    }
}
