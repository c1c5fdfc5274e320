//! The annotations of a Service that Landfall writes.

use std::collections::BTreeMap;

use crate::dialect::DIALECTS;
use crate::dialect::metallb::ALLOCATED_FROM_POOL;
use crate::status::{RECORD, RECORD_OF_GIVEN, STATE_ANNOTATIONS};

/// Returns the annotations that Landfall writes, all of them.
pub fn managed_annotations() -> impl Iterator<Item = &'static str> {
    let of_dialects = DIALECTS.iter().flat_map(|dialect| dialect.marks);
    STATE_ANNOTATIONS.into_iter().chain(of_dialects.copied())
}

/// Returns which of a Service's annotations are ours: those in Landfall's own domain always; those
/// of the dialect of another controller only beside a record, and not one that the user has set.
pub fn marks_of(annotations: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let record = annotations.get(RECORD);
    let given = record.is_some_and(|record| record.ends_with(RECORD_OF_GIVEN));
    let is_given = |key: &str| DIALECTS.iter().any(|it| it.given_mark == Some(key));
    managed_annotations()
        .filter(|key| record.is_some() || is_ours(key))
        .filter(|key| !(given && is_given(key)))
        .filter_map(|key| Some((key.to_owned(), annotations.get(key)?.clone())))
        .collect()
}

/// Whether an annotation is ours on a Service that is ours, without a record. The name of the pool
/// is what MetalLB's controller left there, or what we wrote in its place.
fn is_ours(key: &str) -> bool {
    STATE_ANNOTATIONS.contains(&key) || key == ALLOCATED_FROM_POOL
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::openstack::{LOAD_BALANCER_ADDRESS, LOAD_BALANCER_ID};

    fn marks(annotations: &[(&str, &str)]) -> Vec<(String, String)> {
        let annotations = annotations
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        marks_of(&annotations).into_iter().collect()
    }

    fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn annotations_of_another_controller_are_not_ours_without_a_record() {
        let others = [(LOAD_BALANCER_ID, "lb-1"), (LOAD_BALANCER_ADDRESS, "::1")];
        assert_eq!(marks(&others), []);
        assert_eq!(marks(&[]), []);
    }

    #[test]
    fn the_name_of_the_pool_is_replaced_whichever_controller_wrote_it() {
        let note = [(ALLOCATED_FROM_POOL, "public")];
        assert_eq!(marks(&note), owned(&note));
    }

    #[test]
    fn with_a_record_every_mark_that_is_there_is_ours_and_nothing_else_is() {
        assert_eq!(marks(&[(RECORD, "")]), owned(&[(RECORD, "")]));
        assert_eq!(
            marks(&[
                (RECORD, "v1 abc"),
                (LOAD_BALANCER_ID, "lb-1"),
                (LOAD_BALANCER_ADDRESS, "192.0.2.1"),
                ("landfall.dev/drain", "30s"),
                ("loadbalancer.openstack.org/lb-method", "SOURCE_IP"),
            ]),
            owned(&[
                (LOAD_BALANCER_ADDRESS, "192.0.2.1"),
                (LOAD_BALANCER_ID, "lb-1"),
                (RECORD, "v1 abc"),
            ])
        );
    }

    #[test]
    fn the_id_of_a_load_balancer_that_the_user_named_stays_the_users() {
        assert_eq!(
            marks(&[
                (RECORD, "v1 abc given"),
                (LOAD_BALANCER_ID, "lb-1"),
                (LOAD_BALANCER_ADDRESS, "192.0.2.1"),
            ]),
            owned(&[
                (LOAD_BALANCER_ADDRESS, "192.0.2.1"),
                (RECORD, "v1 abc given"),
            ])
        );
        let forgiven = marks(&[(RECORD, "v1 forgiven"), (LOAD_BALANCER_ID, "lb-1")]);
        assert_eq!(forgiven.len(), 2, "only the whole word counts");
    }
}
