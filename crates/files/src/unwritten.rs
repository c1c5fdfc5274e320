//! What the disk does not hold yet, and how much of it goes there together. Pure.

use std::collections::BTreeSet;

use landfall_model::ServiceKey;

use crate::state::Key;

/// So many Services that no caller waits for go to the disk together.
const OTHERS: usize = 128;

/// What differs from the disk, or may differ.
#[derive(Debug, Default)]
pub(crate) struct Unwritten {
    all: BTreeSet<Key>,
    /// The Services among them that may be gone: what they had on record may be free by now.
    gone: BTreeSet<ServiceKey>,
}

// === impl Unwritten ===

impl Unwritten {
    /// Notes one.
    pub(crate) fn insert(&mut self, key: Key) {
        self.all.insert(key);
    }

    /// Notes a Service that is gone. That goes to the disk before the record of any other one.
    pub(crate) fn insert_gone(&mut self, key: ServiceKey) {
        self.all.insert(Key::Service(key.clone()));
        self.gone.insert(key);
    }

    /// Returns whether this is among them.
    pub(crate) fn contains(&self, key: &Key) -> bool {
        self.all.contains(key)
    }

    /// Returns whether the disk holds everything.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Takes the Services that may be gone: all of them, and before anything else.
    pub(crate) fn take_gone(&mut self) -> Vec<Key> {
        let gone = std::mem::take(&mut self.gone).into_iter();
        gone.filter_map(|key| self.all.take(&Key::Service(key)))
            .collect()
    }

    /// Takes what goes to the disk next: these Services, all pools, and a few other Services.
    ///
    /// Where all manifests were edited, reconciles would otherwise wait for thousands of lines, and
    /// replace them right away by their own. The others are taken from the end, because reconciles
    /// begin with the first.
    pub(crate) fn take<'a>(&mut self, asked: impl Iterator<Item = &'a ServiceKey>) -> Vec<Key> {
        let asked = asked.filter_map(|key| self.all.take(&Key::Service(key.clone())));
        let mut taken: Vec<Key> = asked.collect();
        while let Some(Key::Pool(_)) = self.all.first() {
            taken.extend(self.all.pop_first());
        }
        taken.extend(std::iter::from_fn(|| self.all.pop_last()).take(OTHERS));
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(number: usize) -> ServiceKey {
        ServiceKey::new("default", &format!("web-{number:05}"))
    }

    fn services(numbers: std::ops::Range<usize>) -> impl Iterator<Item = Key> {
        numbers.map(|number| Key::Service(service(number)))
    }

    #[test]
    fn those_that_are_asked_for_and_pools_come_with_a_few_others_and_the_rest_later() {
        let mut unwritten = Unwritten::default();
        services(0..3 * OTHERS).for_each(|it| unwritten.insert(it));
        unwritten.insert(Key::Pool("public".to_owned()));
        let asked = [service(7), service(3 * OTHERS)];
        let taken = unwritten.take(asked.iter());
        assert_eq!(
            taken.len(),
            OTHERS + 2,
            "one that was asked for is on the disk"
        );
        assert!(taken.contains(&Key::Pool("public".to_owned())));
        assert!(taken.contains(&Key::Service(service(7))));
        let mut later = taken;
        while !unwritten.is_empty() {
            let more = unwritten.take(std::iter::empty());
            assert!(!more.is_empty() && more.len() <= OTHERS);
            assert!(more.iter().all(|key| !unwritten.contains(key)));
            later.extend(more);
        }
        later.sort_unstable();
        let pool = std::iter::once(Key::Pool("public".to_owned()));
        assert!(later.into_iter().eq(pool.chain(services(0..3 * OTHERS))));
    }
}
