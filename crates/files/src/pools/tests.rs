//! Which pools are reported when something about them is wrong.

use super::*;

fn pool(name: &str, addresses: &str) -> Arc<PoolRow> {
    Arc::new(PoolRow {
        name: name.to_owned(),
        addresses: vec![addresses.to_owned()],
        auto_assign: true,
        ..PoolRow::default()
    })
}

fn pools(rows: &[Arc<PoolRow>]) -> Pools {
    rows.iter()
        .map(|row| (row.name.clone(), row.clone()))
        .collect()
}

fn refused(settled: &Settled) -> Vec<String> {
    let refused = settled.refused.iter();
    refused.map(|(_, reason)| reason.to_string()).collect()
}

#[test]
fn valid_pools_are_reported_and_remembered_as_they_are() {
    let fresh = pools(&[pool("a", "192.0.2.0/28"), pool("b", "192.0.2.16/28")]);
    let before = pools(&[pool("a", "192.0.2.0/29"), pool("gone", "192.0.2.64/28")]);
    let settled = settle(&fresh, &before, |_| false);
    let expected = Settled {
        reported: fresh.clone(),
        valid: fresh,
        ..Settled::default()
    };
    assert_eq!(settled, expected);
}

#[test]
fn a_pool_that_may_stand_in_an_unreadable_file_is_reported_as_remembered() {
    let before = pools(&[pool("a", "192.0.2.0/28"), pool("b", "192.0.2.16/28")]);
    let settled = settle(&Pools::new(), &before, |name| name == "a");
    let kept = pools(&[pool("a", "192.0.2.0/28")]);
    assert_eq!((&settled.reported, &settled.valid), (&kept, &kept));
    assert_eq!(settled.unverified, ["a"]);
}

#[test]
fn an_invalid_version_of_a_pool_does_not_take_the_place_of_a_valid_one() {
    let before = pools(&[pool("a", "192.0.2.0/28")]);
    for text in ["192.0.2.0/99", "banana", ""] {
        let settled = settle(&pools(&[pool("a", text)]), &before, |_| false);
        assert_eq!((&settled.reported, &settled.valid), (&before, &before));
        let refused = refused(&settled);
        assert!(
            refused[0].contains("the last valid version of IPAddressPool a is used"),
            "{refused:?}"
        );
    }
}

#[test]
fn a_pool_that_was_never_valid_is_reported_for_others_to_refuse_and_never_remembered() {
    let fresh = pools(&[pool("a", "banana")]);
    let settled = settle(&fresh, &Pools::new(), |_| true);
    let expected = Settled {
        reported: fresh,
        ..Settled::default()
    };
    assert_eq!(settled, expected);
}

#[test]
fn a_pool_that_grows_into_another_one_stays_as_it_was() {
    let before = pools(&[pool("a", "192.0.2.0/28"), pool("b", "192.0.2.16/28")]);
    let fresh = pools(&[pool("a", "192.0.2.0/27"), pool("b", "192.0.2.16/28")]);
    let settled = settle(&fresh, &before, |_| false);
    assert_eq!((&settled.reported, &settled.valid), (&before, &before));
    assert_eq!(refused(&settled).len(), 1);
    // The same after a restart, however often.
    let again = settle(&fresh, &settled.valid, |_| false);
    assert_eq!(again, settled);
}

#[test]
fn a_pool_kept_because_it_may_still_exist_is_not_replaced_by_a_new_one() {
    let before = pools(&[pool("a", "192.0.2.0/28")]);
    let fresh = pools(&[pool("new", "192.0.2.0/28")]);
    let settled = settle(&fresh, &before, |_| true);
    assert_eq!(settled.valid, before);
    assert_eq!(settled.reported["a"], before["a"]);
}
