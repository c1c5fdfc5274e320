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
pub(super) struct Line<K> {
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

impl<K: Turn> Line<K> {
    pub(super) fn new() -> Self {
        Self {
            first: VecDeque::new(),
            namespaces: HashMap::new(),
            order: VecDeque::new(),
        }
    }

    pub(super) fn push_back(&mut self, key: K) {
        let turn = key.turn().clone();
        let keys = self.namespaces.entry(turn.clone()).or_default();
        if keys.is_empty() {
            self.order.push_back(turn);
        }
        keys.push_back(key);
    }

    pub(super) fn push_first(&mut self, key: K) {
        self.first.push_front(key);
    }

    /// What [`Line::pop`] takes next.
    pub(super) fn peek(&self) -> Option<&K> {
        self.first
            .front()
            .or_else(|| self.namespaces.get(self.order.front()?)?.front())
    }

    pub(super) fn pop(&mut self) -> Option<K> {
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
}
