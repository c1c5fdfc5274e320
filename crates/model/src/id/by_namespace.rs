//! A map by namespace and name, small enough for every object of a large cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ServiceKey;

/// A map from keys to values that holds each namespace's name once, in the order of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByNamespace<T>(BTreeMap<Arc<str>, BTreeMap<Arc<str>, T>>);

// === impl ByNamespace ===

impl<T> Default for ByNamespace<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> ByNamespace<T> {
    /// The value of a key.
    pub fn get(&self, key: &ServiceKey) -> Option<&T> {
        self.0.get(&key.namespace)?.get(&key.name)
    }

    /// The value of a key, to be changed.
    pub fn get_mut(&mut self, key: &ServiceKey) -> Option<&mut T> {
        self.0.get_mut(&key.namespace)?.get_mut(&key.name)
    }

    /// Sets the value of a key; the one before is handed back.
    pub fn insert(&mut self, key: &ServiceKey, value: T) -> Option<T> {
        if let Some(names) = self.0.get_mut(&key.namespace) {
            return names.insert(key.name.clone(), value);
        }
        let names = BTreeMap::from([(key.name.clone(), value)]);
        self.0.insert(key.namespace.clone(), names);
        None
    }

    /// Takes a key out.
    pub fn remove(&mut self, key: &ServiceKey) -> Option<T> {
        let names = self.0.get_mut(&key.namespace)?;
        let value = names.remove(&key.name);
        if names.is_empty() {
            self.0.remove(&key.namespace);
        }
        value
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Everything, by key.
    pub fn iter(&self) -> impl Iterator<Item = (ServiceKey, &T)> {
        self.0.iter().flat_map(|(namespace, names)| {
            let named = |(name, value)| (ServiceKey::shared(namespace, name), value);
            names.iter().map(named)
        })
    }

    /// Every value, by key.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.values_mut().flat_map(BTreeMap::values_mut)
    }

    /// Everything of one namespace, by name.
    pub fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = (ServiceKey, &T)> {
        let found = self.0.get_key_value(namespace);
        found.into_iter().flat_map(|(namespace, names)| {
            let named = |(name, value)| (ServiceKey::shared(namespace, name), value);
            names.iter().map(named)
        })
    }

    /// Gives room back that growing has left. Maps that have grown key by key in the order of the
    /// keys, as listings bring them, are half empty.
    pub fn compact(&mut self) {
        for names in self.0.values_mut() {
            *names = std::mem::take(names).into_iter().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> ServiceKey {
        text.parse().unwrap()
    }

    fn keys(map: &ByNamespace<u8>) -> Vec<(String, u8)> {
        let one = |(key, value): (ServiceKey, &u8)| (key.to_string(), *value);
        map.iter().map(one).collect()
    }

    #[test]
    fn keys_are_found_and_come_in_order() {
        let mut map = ByNamespace::default();
        for (text, value) in [("b/x", 1), ("a/y", 2), ("a/x", 3)] {
            assert_eq!(map.insert(&key(text), value), None);
        }
        assert_eq!(map.insert(&key("a/y"), 4), Some(2));
        map.compact();
        assert_eq!(map.get(&key("a/y")), Some(&4));
        assert_eq!(map.get(&key("c/y")), None);
        assert_eq!(
            keys(&map),
            [
                ("a/x".to_owned(), 3),
                ("a/y".to_owned(), 4),
                ("b/x".to_owned(), 1)
            ]
        );
        let of_a: Vec<_> = map.in_namespace("a").map(|(_, value)| *value).collect();
        assert_eq!(of_a, [3, 4]);
        assert_eq!(map.in_namespace("c").count(), 0);
    }

    #[test]
    fn a_map_from_which_everything_was_taken_is_empty() {
        let mut map = ByNamespace::default();
        map.insert(&key("a/x"), 1);
        assert_eq!(map.remove(&key("a/y")), None);
        assert_eq!(map.remove(&key("b/x")), None);
        assert!(!map.is_empty());
        assert_eq!(map.remove(&key("a/x")), Some(1));
        assert!(map.is_empty());
        assert_eq!(keys(&map), []);
    }
}
