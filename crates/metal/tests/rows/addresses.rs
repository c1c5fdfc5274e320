//! First addresses, explicit addresses and named pools: rows 1 to 17.

use serde_json::json;

use crate::rig::{ADDRESSES, POOL, Rig, web};

const NONE: [&str; 0] = [];

#[tokio::test(start_paused = true)]
async fn row_01_the_first_service_gets_the_first_address_with_the_note_of_its_pool_and_an_event() {
    let rig = Rig::with(&[("a", json!({"addresses": ["10.0.0.0/30"]}))]).await;
    assert_eq!(rig.apply(web("web")).await, ["10.0.0.0"]);
    assert_eq!(rig.pool_of("web").as_deref(), Some("a"));
    assert_eq!(rig.events("web"), ["IPAllocated"]);
    assert!(rig.message("IPAllocated").contains("10.0.0.0"));
}

#[tokio::test(start_paused = true)]
async fn row_02_a_range_is_used_up_in_order_and_the_next_service_waits_with_a_warning() {
    let rig = Rig::with(&[("a", json!({"addresses": ["10.0.0.5 - 10.0.0.7"]}))]).await;
    for (name, address) in [("s1", "10.0.0.5"), ("s2", "10.0.0.6"), ("s3", "10.0.0.7")] {
        assert_eq!(rig.apply(web(name)).await, [address]);
    }
    assert_eq!(rig.apply(web("s4")).await, NONE);
    assert_eq!(rig.events("s4"), ["AllocationFailed"]);
    assert_eq!(rig.pool_of("s4"), None);
}

#[tokio::test(start_paused = true)]
async fn row_03_host_bits_of_a_prefix_are_masked() {
    let rig = Rig::with(&[("a", json!({"addresses": ["198.51.100.10/24"]}))]).await;
    assert_eq!(rig.apply(web("web")).await, ["198.51.100.0"]);
}

#[tokio::test(start_paused = true)]
async fn row_04_addresses_that_end_in_0_or_255_are_avoided_and_refused_on_request() {
    let pool = json!({"addresses": ["10.0.0.0/24"], "avoidBuggyIPs": true});
    let rig = Rig::with(&[("a", pool)]).await;
    assert_eq!(rig.apply(web("web")).await, ["10.0.0.1"]);
    for (name, address) in [("low", "10.0.0.0"), ("high", "10.0.0.255")] {
        let asking = web(name).annotated(ADDRESSES, address);
        assert_eq!(rig.apply(asking).await, NONE);
        assert_eq!(rig.events(name), ["AllocationFailed"]);
        assert!(rig.message("AllocationFailed").contains(address));
        rig.forget();
    }
}

#[tokio::test(start_paused = true)]
async fn row_05_a_released_address_goes_to_the_service_that_waits_untouched() {
    let rig = Rig::with(&[("a", json!({"addresses": ["10.0.0.1/32"]}))]).await;
    assert_eq!(rig.apply(web("holder")).await, ["10.0.0.1"]);
    assert_eq!(rig.apply(web("waiter")).await, NONE);
    rig.delete("holder").await;
    assert_eq!(rig.addresses("waiter"), ["10.0.0.1"]);
    assert_eq!(rig.events("waiter"), ["AllocationFailed", "IPAllocated"]);
}

#[tokio::test(start_paused = true)]
async fn row_06_a_service_that_is_no_load_balancer_any_more_gives_up_address_and_note() {
    let rig = Rig::with(&[("a", json!({"addresses": ["10.0.0.1/32"]}))]).await;
    rig.apply(web("web")).await;
    rig.cluster
        .edit("web", |row| row.wants_load_balancer = false);
    rig.settle().await;
    assert_eq!(rig.addresses("web"), NONE);
    assert_eq!(rig.pool_of("web"), None);
    assert_eq!(rig.apply(web("next")).await, ["10.0.0.1"]);
}

#[tokio::test(start_paused = true)]
async fn row_07_a_restart_moves_no_service_and_one_that_came_meanwhile_gets_a_free_address() {
    let mut rig = Rig::with(&[("a", json!({"addresses": ["10.0.0.0/26"]}))]).await;
    let names: Vec<String> = (0..50).map(|number| format!("s{number:02}")).collect();
    for name in &names {
        rig.cluster.apply(&web(name).row());
    }
    rig.settle().await;
    let held = |rig: &Rig| -> Vec<_> { names.iter().map(|name| rig.addresses(name)).collect() };
    let before = held(&rig);
    rig.kill();
    // Its name comes first.
    rig.cluster.apply(&web("a-new-one").row());
    let writes = rig.cluster.writes();
    rig.restart().await;
    assert_eq!(held(&rig), before);
    assert_eq!(rig.addresses("a-new-one"), ["10.0.0.50"]);
    // MetalLB writes each status again.
    assert_eq!(rig.cluster.writes(), writes + 1);
}

#[tokio::test(start_paused = true)]
async fn row_08_a_requested_address_is_given_although_its_pool_does_not_assign_by_itself() {
    let pool = json!({"addresses": ["10.0.0.0/24"], "autoAssign": false});
    let rig = Rig::with(&[("a", pool)]).await;
    assert_eq!(rig.apply(web("plain")).await, NONE);
    let asking = web("web").annotated(ADDRESSES, "10.0.0.9");
    assert_eq!(rig.apply(asking).await, ["10.0.0.9"]);
    assert_eq!(rig.pool_of("web").as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn row_09_the_field_in_the_spec_asks_as_the_annotation_does() {
    let rig = Rig::with(&[("a", json!({"addresses": ["10.0.0.0/24"]}))]).await;
    let asking = web("web").load_balancer_ip("10.0.0.9");
    assert_eq!(rig.apply(asking).await, ["10.0.0.9"]);
}

#[tokio::test(start_paused = true)]
async fn row_10_asking_in_both_places_is_an_error_and_a_service_that_holds_an_address_keeps_it() {
    let rig = Rig::with(&[("a", json!({"addresses": ["10.0.0.0/24"]}))]).await;
    let both = |name: &str| {
        web(name)
            .load_balancer_ip("10.0.0.8")
            .annotated(ADDRESSES, "10.0.0.9")
    };
    assert_eq!(rig.apply(both("web")).await, NONE);
    assert_eq!(rig.events("web"), ["AllocationFailed"]);
    assert_eq!(rig.apply(web("held")).await, ["10.0.0.0"]);
    rig.forget();
    assert_eq!(rig.apply(both("held")).await, ["10.0.0.0"]);
    assert_eq!(rig.events("held"), ["LoadBalancerFailed"]);
}

#[tokio::test(start_paused = true)]
async fn row_11_an_address_in_no_pool_is_refused_by_name() {
    let rig = Rig::with(&[("a", json!({"addresses": ["10.0.0.0/24"]}))]).await;
    let asking = web("web").annotated(ADDRESSES, "192.0.2.1");
    assert_eq!(rig.apply(asking).await, NONE);
    assert_eq!(rig.events("web"), ["AllocationFailed"]);
    assert!(rig.message("AllocationFailed").contains("192.0.2.1"));
}

#[tokio::test(start_paused = true)]
async fn row_13_a_change_to_another_free_address_moves_the_service() {
    let rig = Rig::with(&[("a", json!({"addresses": ["10.0.0.0/24"]}))]).await;
    let asking = |address| web("web").annotated(ADDRESSES, address);
    assert_eq!(rig.apply(asking("10.0.0.8")).await, ["10.0.0.8"]);
    assert_eq!(rig.apply(asking("10.0.0.9")).await, ["10.0.0.9"]);
    let expected = ["IPAllocated", "ClearAssignment", "IPAllocated"];
    assert_eq!(rig.events("web"), expected);
    assert_eq!(
        rig.apply(web("web")).await,
        ["10.0.0.9"],
        "kept without the annotation"
    );
}

#[tokio::test(start_paused = true)]
async fn row_14_a_change_to_a_taken_address_keeps_the_old_one_and_names_the_holder() {
    // With MetalLB the Service has no address then.
    let rig = Rig::with(&[("a", json!({"addresses": ["10.0.0.0/24"]}))]).await;
    assert_eq!(rig.apply(web("first")).await, ["10.0.0.0"]);
    assert_eq!(rig.apply(web("second")).await, ["10.0.0.1"]);
    rig.forget();
    let greedy = web("second").annotated(ADDRESSES, "10.0.0.0");
    assert_eq!(rig.apply(greedy).await, ["10.0.0.1"]);
    assert_eq!(rig.events("second"), ["LoadBalancerFailed"]);
    assert!(rig.message("LoadBalancerFailed").contains("default/first"));
}

#[tokio::test(start_paused = true)]
async fn row_15_the_named_pool_is_used_and_another_name_moves_the_service() {
    let rig = Rig::with(&[
        ("a", json!({"addresses": ["10.0.0.0/24"]})),
        ("b", json!({"addresses": ["10.0.1.0/24"]})),
    ])
    .await;
    let named = |pool| web("web").annotated(POOL, pool);
    assert_eq!(rig.apply(named("b")).await, ["10.0.1.0"]);
    assert_eq!(rig.pool_of("web").as_deref(), Some("b"));
    assert_eq!(rig.apply(named("a")).await, ["10.0.0.0"]);
    assert_eq!(rig.pool_of("web").as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn row_16_an_address_of_one_pool_with_the_name_of_another_is_refused() {
    let rig = Rig::with(&[
        ("a", json!({"addresses": ["10.0.0.0/24"]})),
        ("b", json!({"addresses": ["10.0.1.0/24"]})),
    ])
    .await;
    let asking = web("web")
        .annotated(POOL, "b")
        .annotated(ADDRESSES, "10.0.0.1");
    assert_eq!(rig.apply(asking).await, NONE);
    assert_eq!(rig.events("web"), ["AllocationFailed"]);
}

#[tokio::test(start_paused = true)]
async fn row_17_the_old_prefix_works_with_a_warning_and_the_new_one_wins() {
    let rig = Rig::with(&[
        ("a", json!({"addresses": ["10.0.0.0/24"]})),
        ("b", json!({"addresses": ["10.0.1.0/24"]})),
    ])
    .await;
    let old = web("old").annotated("metallb.universe.tf/address-pool", "b");
    assert_eq!(rig.apply(old).await, ["10.0.1.0"]);
    let events = rig.events("old");
    assert_eq!(events, ["deprecatedAnnotation", "IPAllocated"]);
    rig.reconcile("old", 3).await;
    assert_eq!(rig.events("old"), events, "said once");
    let both = web("both")
        .annotated("metallb.universe.tf/address-pool", "b")
        .annotated(POOL, "a");
    assert_eq!(rig.apply(both).await, ["10.0.0.0"]);
}
