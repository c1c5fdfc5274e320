//! Keys in line: namespaces in turn, and those of a namespace in order.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use landfall_model::ServiceKey;

/// What has a turn of its own.
pub trait Turn {
    /// Whose turn it is when the key's is.
    fn turn(&self) -> &Arc<str>;
}

/// Keys in line.
#[derive(Debug)]
pub struct Line<K> {
    /// Those that come before all others.
    first: VecDeque<K>,
    namespaces: HashMap<Arc<str>, VecDeque<K>>,
    /// Namespaces with keys, in the order in which their turns come.
    order: VecDeque<Arc<str>>,
}

impl Turn for ServiceKey {
    fn turn(&self) -> &Arc<str> {
        self.shared_namespace()
    }
}

// === impl Line ===

impl<K> Default for Line<K> {
    fn default() -> Self {
        Self {
            first: VecDeque::new(),
            namespaces: HashMap::new(),
            order: VecDeque::new(),
        }
    }
}

impl<K: Turn> Line<K> {
    /// Appends a key to those of its namespace.
    pub fn push_back(&mut self, key: K) {
        let turn = key.turn().clone();
        let keys = self.namespaces.entry(turn.clone()).or_default();
        if keys.is_empty() {
            self.order.push_back(turn);
        }
        keys.push_back(key);
    }

    /// Puts a key before all others.
    pub fn push_first(&mut self, key: K) {
        self.first.push_front(key);
    }

    /// What [`Line::pop`] takes next.
    pub fn peek(&self) -> Option<&K> {
        self.first
            .front()
            .or_else(|| self.namespaces.get(self.order.front()?)?.front())
    }

    /// Takes the next key: the first one of the namespace whose turn it is.
    pub fn pop(&mut self) -> Option<K> {
        if let Some(key) = self.first.pop_front() {
            return Some(key);
        }
        let turn = self.order.pop_front()?;
        let keys = self.namespaces.get_mut(&turn)?;
        let key = keys.pop_front();
        if keys.is_empty() {
            self.namespaces.remove(&turn);
        } else {
            self.order.push_back(turn);
        }
        key
    }

    /// Takes the last key of the namespace with most keys, so that there is room for a key of
    /// another namespace; none where that namespace would have as many.
    pub fn make_room(&mut self, turn: &Arc<str>) -> Option<K> {
        let count = |turn: &Arc<str>| self.namespaces.get(turn).map_or(0, VecDeque::len);
        let longest = self.order.iter().max_by_key(|it| count(it))?.clone();
        if count(&longest) <= count(turn) + 1 {
            return None;
        }
        self.namespaces.get_mut(&longest)?.pop_back()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(namespace: &str, name: usize) -> ServiceKey {
        ServiceKey::new(namespace, &name.to_string())
    }

    #[test]
    fn room_is_made_by_the_namespace_with_most_keys_unless_it_is_the_one_that_asks() {
        let mut line = Line::default();
        assert_eq!(line.make_room(&Arc::from("a")), None::<ServiceKey>);
        for name in 0..4 {
            line.push_back(key("a", name));
        }
        line.push_back(key("b", 0));
        assert_eq!(line.make_room(&Arc::from("a")), None);
        assert_eq!(line.make_room(&Arc::from("b")), Some(key("a", 3)));
        line.push_back(key("b", 1));
        // Each would have three.
        assert_eq!(line.make_room(&Arc::from("b")), None);
        let rest: Vec<ServiceKey> = std::iter::from_fn(|| line.pop()).collect();
        assert_eq!(
            rest,
            [
                key("a", 0),
                key("b", 0),
                key("a", 1),
                key("b", 1),
                key("a", 2)
            ]
        );
    }
}
