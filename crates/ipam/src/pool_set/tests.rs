use super::*;
use crate::PoolSpec;
use crate::testing::{ip, name, pool, pool_set};

fn parsed<const N: usize>(specs: [PoolSpec; N]) -> Vec<Pool> {
    specs
        .into_iter()
        .map(|spec| Pool::parse(&spec).unwrap())
        .collect()
}

fn names(set: &PoolSet) -> Vec<&str> {
    set.iter().map(|pool| pool.name().as_str()).collect()
}

#[test]
fn an_overlap_between_pools_names_both_pools_and_both_entries() {
    for specs in [
        [pool("a", "10.0.0.0/8"), pool("b", "10.9.0.0/16")],
        [pool("b", "10.9.0.0/16"), pool("a", "10.0.0.0/8")],
    ] {
        let errors = PoolSet::new(parsed(specs)).unwrap_err();
        assert_eq!(errors.len(), 1);
        assert_eq!(
            errors[0].to_string(),
            "pool b, entry \"10.9.0.0/16\" overlaps entry \"10.0.0.0/8\" of pool a"
        );
        assert!(
            errors[0].remedy().contains("10.0.0.0/8"),
            "{}",
            errors[0].remedy()
        );
    }
}

#[test]
fn an_entry_that_spans_several_others_is_reported_for_each() {
    let errors = PoolSet::new(parsed([
        pool("a", "10.0.0.0/8"),
        pool("b", "10.1.0.0/16"),
        pool("c", "10.2.0.0/16"),
    ]))
    .unwrap_err();
    assert_eq!(errors.len(), 2);
}

#[test]
fn two_pools_of_one_name_are_refused() {
    let errors = PoolSet::new(parsed([pool("a", "10.0.0.0/24"), pool("a", "10.0.1.0/24")]));
    assert_eq!(
        errors,
        Err(vec![PoolError::DuplicatePool { pool: name("a") }])
    );
}

#[test]
fn the_pool_of_an_address_is_found_at_both_ends_and_not_beyond() {
    let set = pool_set([
        pool("a", "10.0.0.5-10.0.0.7, fd00::/127"),
        pool("b", "10.0.0.8/32"),
    ]);
    let found = |address| set.pool_of(ip(address)).map(|pool| pool.name().as_str());
    assert_eq!(found("10.0.0.4"), None);
    assert_eq!(found("10.0.0.5"), Some("a"));
    assert_eq!(found("10.0.0.7"), Some("a"));
    assert_eq!(found("10.0.0.8"), Some("b"));
    assert_eq!(found("10.0.0.9"), None);
    assert_eq!(found("fd00::1"), Some("a"));
    assert_eq!(found("fd00::2"), None);
    assert_eq!(found("::1"), None);
}

#[test]
fn one_bad_pool_does_not_freeze_the_others() {
    let (set, errors) = PoolSet::keep_good(
        parsed([
            pool("c", "10.2.0.0/16"),
            pool("b", "10.0.9.0/24"),
            pool("a", "10.0.0.0/16"),
        ]),
        &PoolSet::default(),
    );
    assert_eq!(names(&set), ["a", "c"]);
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].pool(), Some(&name("b")));
}

#[test]
fn a_new_pool_gives_way_to_an_established_one_whatever_its_name() {
    let established = pool_set([pool("z", "10.0.0.0/16")]);
    let (set, errors) = PoolSet::keep_good(
        parsed([pool("a", "10.0.9.0/24"), pool("z", "10.0.0.0/16")]),
        &established,
    );
    assert_eq!(names(&set), ["z"]);
    assert_eq!(
        errors[0].to_string(),
        "pool a, entry \"10.0.9.0/24\" overlaps entry \"10.0.0.0/16\" of pool z"
    );
}

#[test]
fn a_changed_pool_that_collides_stays_as_it_was() {
    let established = pool_set([pool("a", "10.0.0.0/24"), pool("z", "10.1.0.0/24")]);
    let (set, errors) = PoolSet::keep_good(
        parsed([
            pool("a", "10.0.0.0/24, 10.1.0.0/16"),
            pool("b", "10.0.0.128/25"),
            pool("z", "10.1.0.0/24"),
        ]),
        &established,
    );
    assert_eq!(set, established);
    assert_eq!(
        errors
            .iter()
            .map(|error| error.pool().unwrap().as_str())
            .collect::<Vec<_>>(),
        ["a", "b"]
    );
}

#[test]
fn two_good_pools_of_one_name_leave_one_whatever_their_order() {
    let specs = || [pool("a", "10.0.0.0/24"), pool("a", "10.0.1.0/24")];
    let mut reversed = parsed(specs());
    reversed.reverse();
    let (set, errors) = PoolSet::keep_good(parsed(specs()), &PoolSet::default());
    assert_eq!(errors, [PoolError::DuplicatePool { pool: name("a") }]);
    assert_eq!(
        PoolSet::keep_good(reversed, &PoolSet::default()),
        (set, errors)
    );
}
