//! Which members a node watches: those that follow it in an order that has nothing to do with
//! racks. Pure.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};

/// The place of a member in the order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(u64, Arc<str>);

// === impl Place ===

impl Place {
    /// The place of this name.
    pub fn of(name: &Arc<str>) -> Self {
        let hash = digest(&SHA256, name.as_bytes());
        let start = hash.as_ref().first_chunk().copied().unwrap_or_default();
        Self(u64::from_be_bytes(start), Arc::clone(name))
    }
}

/// Returns the `count` members that follow `own` in the ring. So each is watched by as many.
pub fn followers(own: &Place, mut others: Vec<&Place>, count: usize) -> Vec<Arc<str>> {
    others.sort_unstable();
    let (before, after): (Vec<_>, Vec<_>) = others.into_iter().partition(|it| *it < own);
    let ring = after.into_iter().chain(before).take(count);
    ring.map(|it| Arc::clone(&it.1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_member_is_watched_by_the_same_number_of_others() {
        let names: Vec<Arc<str>> = (0..10).map(|it| format!("node-{it}").into()).collect();
        let places: Vec<Place> = names.iter().map(Place::of).collect();
        let watched = places.iter().flat_map(|own| {
            let others = places.iter().filter(|it| *it != own).collect();
            let watched = followers(own, others, 3);
            assert!(!watched.contains(&own.1));
            watched
        });
        let watched: Vec<Arc<str>> = watched.collect();
        for name in &names {
            assert_eq!(watched.iter().filter(|it| *it == name).count(), 3, "{name}");
        }
    }

    #[test]
    fn of_few_members_all_are_watched() {
        let names: [Arc<str>; 3] = ["a".into(), "b".into(), "c".into()];
        let [a, b, c] = &names.map(|name| Place::of(&name));
        assert_eq!(followers(a, vec![b, c], 3).len(), 2);
        assert!(followers(a, vec![], 3).is_empty());
    }
}
