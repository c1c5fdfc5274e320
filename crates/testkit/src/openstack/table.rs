//! Objects by id, listed in the order in which they were made, as the real servers sort by
//! creation.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

/// An ordered collection of objects.
#[derive(Debug)]
pub(super) struct Table<T> {
    rows: BTreeMap<u64, (String, T)>,
    places: HashMap<String, u64>,
    next: u64,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            rows: BTreeMap::new(),
            places: HashMap::new(),
            next: 0,
        }
    }
}

impl<T> Table<T> {
    pub fn insert(&mut self, id: &str, row: T) {
        self.next += 1;
        self.places.insert(id.to_owned(), self.next);
        self.rows.insert(self.next, (id.to_owned(), row));
    }

    pub fn get(&self, id: &str) -> Option<&T> {
        let place = self.places.get(id)?;
        self.rows.get(place).map(|(_, row)| row)
    }

    pub fn get_mut(&mut self, id: &str) -> Option<&mut T> {
        let place = self.places.get(id)?;
        self.rows.get_mut(place).map(|(_, row)| row)
    }

    pub fn remove(&mut self, id: &str) -> Option<T> {
        let place = self.places.remove(id)?;
        self.rows.remove(&place).map(|(_, row)| row)
    }

    pub fn contains(&self, id: &str) -> bool {
        self.places.contains_key(id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.rows.values().map(|(id, row)| (id.as_str(), row))
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.rows.values_mut().map(|(_, row)| row)
    }

    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.rows.values().map(|(_, row)| row)
    }

    /// Those behind the marker; `None` if there is no such object.
    pub fn after(&self, marker: Option<&str>) -> Option<impl Iterator<Item = (&str, &T)>> {
        let start = match marker {
            None => Bound::Unbounded,
            Some(marker) => Bound::Excluded(*self.places.get(marker)?),
        };
        let rows = self.rows.range((start, Bound::Unbounded));
        Some(rows.map(|(_, (id, row))| (id.as_str(), row)))
    }
}
