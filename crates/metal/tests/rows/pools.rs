//! Which pool, and what happens when pools change: rows 19 to 25 and 40 to 45.

use landfall_engine::Classes;
use landfall_model::rows::{Family, FamilyPolicy};
use serde_json::json;

use crate::rig::{ADDRESSES, Rig, web};

const NONE: [&str; 0] = [];

#[tokio::test(start_paused = true)]
async fn row_19_a_pool_for_a_namespace_serves_it_first_and_no_other() {
    let limited = json!({
        "addresses": ["10.0.0.1/32"], "serviceAllocation": {"namespaces": ["ns1"]},
    });
    let rig = Rig::with(&[("p", limited), ("q", json!({"addresses": ["10.0.1.0/24"]}))]).await;
    assert_eq!(
        rig.apply(web("first").in_namespace("ns1")).await,
        ["10.0.0.1"]
    );
    assert_eq!(
        rig.apply(web("other").in_namespace("ns2")).await,
        ["10.0.1.0"]
    );
    // The pool is used up.
    assert_eq!(
        rig.apply(web("second").in_namespace("ns1")).await,
        ["10.0.1.1"]
    );
}

#[tokio::test(start_paused = true)]
async fn row_20_a_service_that_loses_the_label_of_its_pool_moves() {
    let selecting = json!({
        "addresses": ["10.0.0.0/24"],
        "serviceAllocation": {"serviceSelectors": [{"matchLabels": {"tier": "front"}}]},
    });
    let rig = Rig::with(&[
        ("p", selecting),
        ("q", json!({"addresses": ["10.0.1.0/24"]})),
    ])
    .await;
    let labelled = web("web").labelled("tier", "front");
    assert_eq!(rig.apply(labelled).await, ["10.0.0.0"]);
    assert_eq!(rig.apply(web("web")).await, ["10.0.1.0"]);
    let expected = ["IPAllocated", "ClearAssignment", "IPAllocated"];
    assert_eq!(rig.events("web"), expected);
}

#[tokio::test(start_paused = true)]
async fn row_21_a_namespace_and_a_label_are_both_needed() {
    let both = json!({"addresses": ["10.0.0.0/24"], "serviceAllocation": {
        "namespaces": ["ns1"],
        "serviceSelectors": [{"matchLabels": {"tier": "front"}}],
    }});
    let rig = Rig::with(&[("p", both), ("q", json!({"addresses": ["10.0.1.0/24"]}))]).await;
    let front =
        |name: &str, namespace: &str| web(name).in_namespace(namespace).labelled("tier", "front");
    assert_eq!(rig.apply(web("a").in_namespace("ns1")).await, ["10.0.1.0"]);
    assert_eq!(rig.apply(front("b", "ns2")).await, ["10.0.1.1"]);
    assert_eq!(rig.apply(front("c", "ns1")).await, ["10.0.0.0"]);
}

#[tokio::test(start_paused = true)]
async fn row_22_lower_priority_comes_first_and_unset_comes_last() {
    let pool = |address: &str, limits| json!({"addresses": [address], "serviceAllocation": limits});
    let rig = Rig::with(&[
        ("a", pool("10.0.0.0/32", json!({"namespaces": ["default"]}))),
        (
            "b",
            pool(
                "10.0.1.0/32",
                json!({"namespaces": ["default"], "priority": 20}),
            ),
        ),
        (
            "c",
            pool(
                "10.0.2.0/32",
                json!({"namespaces": ["default"], "priority": 10}),
            ),
        ),
    ])
    .await;
    for (name, address) in [("s1", "10.0.2.0"), ("s2", "10.0.1.0"), ("s3", "10.0.0.0")] {
        assert_eq!(rig.apply(web(name)).await, [address]);
    }
}

#[tokio::test(start_paused = true)]
async fn row_23_a_pool_with_only_a_priority_comes_before_plain_pools() {
    let preferred = json!({"addresses": ["10.0.1.0/24"], "serviceAllocation": {"priority": 50}});
    let rig = Rig::with(&[
        ("a", json!({"addresses": ["10.0.0.0/24"]})),
        ("z", preferred),
    ])
    .await;
    assert_eq!(rig.apply(web("web")).await, ["10.0.1.0"]);
    assert_eq!(
        rig.apply(web("other").in_namespace("any")).await,
        ["10.0.1.1"]
    );
}

#[tokio::test(start_paused = true)]
async fn row_24_a_limited_pool_that_does_not_match_is_no_last_resort() {
    let limited = json!({
        "addresses": ["10.0.0.0/24"], "serviceAllocation": {"namespaces": ["ns1"]},
    });
    let rig = Rig::with(&[("p", limited)]).await;
    assert_eq!(rig.apply(web("web")).await, NONE);
    assert_eq!(rig.events("web"), ["AllocationFailed"]);
    let asking = web("web").annotated(ADDRESSES, "10.0.0.1");
    assert_eq!(rig.apply(asking).await, NONE);
}

#[tokio::test(start_paused = true)]
async fn row_25_of_equal_pools_the_first_by_name_is_used_on_every_run() {
    // MetalLB takes either.
    for _ in 0..20 {
        let rig = Rig::with(&[
            ("b", json!({"addresses": ["10.0.1.0/24"]})),
            ("a", json!({"addresses": ["10.0.0.0/24"]})),
        ])
        .await;
        assert_eq!(rig.apply(web("web")).await, ["10.0.0.0"]);
    }
}

#[tokio::test(start_paused = true)]
async fn row_40_when_its_pool_is_deleted_a_service_moves_to_another() {
    let mut rig = Rig::with(&[
        ("a", json!({"addresses": ["10.0.0.0/24"]})),
        ("b", json!({"addresses": ["10.0.1.0/24"]})),
    ])
    .await;
    assert_eq!(rig.apply(web("web")).await, ["10.0.0.0"]);
    rig.drop_pool("a").await;
    assert_eq!(rig.addresses("web"), ["10.0.1.0"]);
    assert_eq!(rig.pool_of("web").as_deref(), Some("b"));
}

#[tokio::test(start_paused = true)]
async fn row_41_without_any_pool_services_keep_their_addresses_and_have_them_when_it_returns() {
    // MetalLB empties every status at once, and gives other addresses later.
    let mut rig = Rig::with(&[("a", json!({"addresses": ["10.0.0.0/24"]}))]).await;
    assert_eq!(rig.apply(web("s1")).await, ["10.0.0.0"]);
    assert_eq!(rig.apply(web("s2")).await, ["10.0.0.1"]);
    rig.delete("s1").await;
    rig.drop_pool("a").await;
    assert_eq!(rig.addresses("s2"), ["10.0.0.1"]);
    assert_eq!(rig.apply(web("s3")).await, NONE);
    rig.restart().await;
    assert_eq!(rig.addresses("s2"), ["10.0.0.1"]);
    rig.pool("a", json!({"addresses": ["10.0.0.0/24"]})).await;
    assert_eq!(rig.addresses("s2"), ["10.0.0.1"]);
    assert_eq!(rig.addresses("s3"), ["10.0.0.0"]);
}

#[tokio::test(start_paused = true)]
async fn row_42_a_renamed_pool_keeps_its_services_and_they_note_its_new_name() {
    let mut rig = Rig::with(&[
        ("a", json!({"addresses": ["10.0.0.0/24"]})),
        ("spare", json!({"addresses": ["10.0.9.0/24"]})),
    ])
    .await;
    assert_eq!(rig.apply(web("web")).await, ["10.0.0.0"]);
    rig.rename_pool("a", "b", json!({"addresses": ["10.0.0.0/24"]}))
        .await;
    assert_eq!(rig.addresses("web"), ["10.0.0.0"]);
    assert_eq!(rig.pool_of("web").as_deref(), Some("b"));
    assert_eq!(rig.events("web"), ["IPAllocated"]);
}

#[tokio::test(start_paused = true)]
async fn row_43_a_service_outside_of_its_shrunk_pool_moves_and_an_event_says_so() {
    let mut rig = Rig::with(&[("a", json!({"addresses": ["10.0.0.0/24"]}))]).await;
    assert_eq!(rig.apply(web("web")).await, ["10.0.0.0"]);
    rig.forget();
    rig.pool("a", json!({"addresses": ["10.0.0.8-10.0.0.9"]}))
        .await;
    assert_eq!(rig.addresses("web"), ["10.0.0.8"]);
    assert_eq!(rig.events("web"), ["ClearAssignment", "IPAllocated"]);
    assert!(rig.message("ClearAssignment").contains("10.0.0.0"));
}

#[tokio::test(start_paused = true)]
async fn row_44_services_of_the_class_are_served_or_those_without_one_and_never_others() {
    let of = |name: &str, class: Option<&str>| {
        let class = class.map(Into::into);
        web(name).with(|row| row.class = class)
    };
    let class = || vec![vec!["example.com/lb".to_owned()]];
    // Of the class alone, and of none.
    let only = Classes::new(vec!["metal".to_owned()], None).serving(class());
    for (classes, with, without) in [
        (only, vec!["10.0.0.0".to_owned()], vec![]),
        (Classes::only("metal"), vec![], vec!["10.0.0.0".to_owned()]),
    ] {
        let pools = [("a", json!({"addresses": ["10.0.0.0/24"]}))];
        let rig = Rig::of_class(classes, &pools).await;
        assert_eq!(rig.apply(of("with", Some("example.com/lb"))).await, with);
        assert_eq!(rig.apply(of("without", None)).await, without);
    }
}

#[tokio::test(start_paused = true)]
async fn row_45_the_four_counters_follow_and_a_large_ipv6_pool_saturates() {
    let rig = Rig::with(&[
        (
            "a",
            json!({"addresses": ["10.0.0.0/24", "fd00::-fd00::ff"]}),
        ),
        (
            "big",
            json!({"addresses": ["fd01::/48"], "autoAssign": false}),
        ),
    ])
    .await;
    assert_eq!(rig.counters("a"), [0, 256, 0, 256]);
    assert_eq!(rig.counters("big"), [0, 0, 0, i64::MAX as u64]);
    let both = [Family::V4, Family::V6];
    let dual = web("dual").families(&both, FamilyPolicy::RequireDualStack);
    rig.apply(dual).await;
    rig.apply(web("four")).await;
    assert_eq!(rig.counters("a"), [2, 254, 1, 255]);
    rig.delete("dual").await;
    assert_eq!(rig.counters("a"), [1, 255, 0, 256]);
}
