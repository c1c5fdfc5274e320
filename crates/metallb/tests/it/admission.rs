//! What a webhook answers before an object is written.

use std::sync::Arc;

use landfall_metallb::{ObjectName, Proposal, Verdict};
use landfall_model::ServiceKey;
use landfall_model::rows::ResourceKind::{
    self, BfdProfile, BgpAdvertisement, BgpPeer, Community, L2Advertisement,
};
use landfall_model::rows::{PoolRow, ResourceRow};
use serde_json::{Value, json};

use crate::objects::{NAMESPACE, aged_pool, labelled, object, pool};

const PEER: [(&str, u64); 2] = [("myASN", 64512), ("peerASN", 64513)];

fn peer(name: &str, more: &Value) -> Arc<ResourceRow> {
    let mut spec = json!({"peerAddress": "10.0.0.1"});
    for (field, number) in PEER {
        spec[field] = json!(number);
    }
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    object(BgpPeer, name, spec)
}

fn refusals(
    proposal: Proposal,
    pools: &[Arc<PoolRow>],
    objects: &[Arc<ResourceRow>],
) -> Vec<String> {
    let verdict = Verdict::of(&proposal, pools, objects, NAMESPACE);
    assert_eq!(verdict.is_admitted(), verdict.refused.is_empty());
    verdict.refused.iter().map(ToString::to_string).collect()
}

fn of_object(row: Arc<ResourceRow>, objects: &[Arc<ResourceRow>]) -> Vec<String> {
    refusals(Proposal::Object(row), &[], objects)
}

fn elsewhere(row: &Arc<ResourceRow>) -> Arc<ResourceRow> {
    Arc::new(ResourceRow {
        key: ServiceKey::new("shop", row.key.name()),
        ..ResourceRow::clone(row)
    })
}

#[test]
fn row_79_an_object_of_each_kind_outside_of_the_namespace_is_refused() {
    let kinds = [L2Advertisement, BgpAdvertisement, Community, BfdProfile];
    let empty = |kind: ResourceKind| object(kind, "x", json!({}));
    let mut rows: Vec<_> = kinds.map(empty).into();
    rows.push(peer("x", &json!({})));
    for row in rows {
        assert_eq!(of_object(row.clone(), &[]), [""; 0], "{row}");
        let refused = of_object(elsewhere(&row), &[]);
        assert_eq!(refused.len(), 1, "{row}");
        assert!(refused[0].contains(NAMESPACE), "{refused:?}");
    }
    let here = pool("x", &["10.0.0.0/24"]);
    assert_eq!(refusals(Proposal::Pool(here.clone()), &[], &[]), [""; 0]);
    let row = PoolRow {
        resource: here.resource.as_ref().map(elsewhere),
        ..PoolRow::clone(&here)
    };
    assert_eq!(refusals(Proposal::Pool(Arc::new(row)), &[], &[]).len(), 1);
}

#[test]
fn row_80_a_length_that_announces_too_much_is_refused_whatever_comes_first() {
    let small = pool("small", &["10.0.0.0/28"]);
    let long = |more: Value| object(BgpAdvertisement, "all", more);
    let wide = long(json!({"aggregationLength": 26}));
    let refused = refusals(Proposal::Object(wide.clone()), &[small.clone()], &[]);
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!(
        of_object(long(json!({"aggregationLength": 33})), &[]).len(),
        1
    );
    let selecting = json!({"aggregationLength": 26, "serviceSelectors": [{"matchLabels": {}}]});
    assert!(!of_object(long(selecting), &[]).is_empty());
    // Without the pool it is fine.
    assert_eq!(of_object(wide, &[]), [""; 0]);
}

#[test]
fn row_81_an_invalid_community_is_refused() {
    for value in ["99999999:1", "lar:1:2:3"] {
        let spec = json!({"communities": [{"name": "x", "value": value}]});
        let refused = of_object(object(Community, "x", spec), &[]);
        assert_eq!(refused.len(), 1, "{value}");
        assert!(refused[0].contains("communit"), "{refused:?}");
    }
}

#[test]
fn row_82_a_profile_in_use_can_not_be_deleted_until_its_peer_is_gone() {
    let naming = peer("tor", &json!({"bfdProfile": "fast"}));
    let deletion = || {
        Proposal::Deletion(ObjectName {
            kind: BfdProfile,
            key: ServiceKey::new(NAMESPACE, "fast"),
        })
    };
    let refused = refusals(deletion(), &[], &[naming]);
    assert!(refused[0].contains("tor"), "{refused:?}");
    assert_eq!(refusals(deletion(), &[], &[]), [""; 0]);
    let others = peer("tor", &json!({"bfdProfile": "slow"}));
    assert_eq!(refusals(deletion(), &[], &[others]), [""; 0]);
}

#[test]
fn row_83_a_peer_that_is_wrong_or_repeats_another_is_refused_with_its_field() {
    let wrong = of_object(peer("tor", &json!({"holdTime": "2s"})), &[]);
    assert!(wrong[0].contains("holdTime"), "{wrong:?}");
    let first = peer("a", &json!({}));
    let second = of_object(peer("b", &json!({})), &[first.clone()]);
    assert_eq!(second.len(), 1);
    // An object does not stand in its own way.
    assert_eq!(of_object(first.clone(), &[first]), [""; 0]);
}

#[test]
fn what_an_object_names_may_come_later() {
    let naming = peer("tor", &json!({"bfdProfile": "fast"}));
    assert_eq!(of_object(naming, &[]), [""; 0]);
    let alias = json!({"communities": ["later"], "ipAddressPools": ["later"]});
    let proposal = Proposal::Object(object(BgpAdvertisement, "all", alias));
    let verdict = Verdict::of(&proposal, &[], &[], NAMESPACE);
    assert!(verdict.is_admitted(), "{verdict:?}");
    assert_eq!(verdict.warnings.len(), 2, "{verdict:?}");
}

#[test]
fn a_pool_that_overlaps_another_is_refused_however_old_it_is() {
    let there = pool("a", &["10.0.0.0/24"]);
    let proposed = pool("b", &["10.0.0.128/25"]);
    let refused = refusals(Proposal::Pool(proposed), &[there.clone()], &[]);
    assert!(refused[0].contains("pool a"), "{refused:?}");
    // An edit of the older one as well.
    let others = pool("b", &["10.0.1.0/24"]);
    let wider = pool("a", &["10.0.0.0/23"]);
    let refused = refusals(Proposal::Pool(wider), &[there, others], &[]);
    assert_eq!(refused.len(), 1, "{refused:?}");
}

#[test]
fn what_was_wrong_before_does_not_stand_in_the_way_of_an_edit() {
    let (first, second) = (
        pool("a", &["10.0.0.0/24"]),
        aged_pool("b", 9, &["10.0.0.0/25"]),
    );
    let there = [first, second.clone()];
    let labelled = labelled(&second, &[("tier", "front")]);
    let verdict = Verdict::of(&Proposal::Pool(labelled), &there, &[], NAMESPACE);
    assert!(verdict.is_admitted(), "{verdict:?}");
    assert_eq!(verdict.warnings.len(), 1);
    let moved = aged_pool("b", 9, &["10.0.0.128/25"]);
    assert!(!Verdict::of(&Proposal::Pool(moved), &there, &[], NAMESPACE).is_admitted());
}
