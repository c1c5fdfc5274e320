//! IPv4 and IPv6: rows 32 to 39.

use landfall_model::rows::{Family, FamilyPolicy};
use landfall_testkit::build::ServiceBuilder;
use serde_json::{Value, json};

use crate::rig::{Rig, web};

const NONE: [&str; 0] = [];
const V4_FIRST: [Family; 2] = [Family::V4, Family::V6];
const V6_FIRST: [Family; 2] = [Family::V6, Family::V4];

fn requiring(families: [Family; 2]) -> ServiceBuilder {
    web("web").families(&families, FamilyPolicy::RequireDualStack)
}

fn preferring(families: &[Family]) -> ServiceBuilder {
    web("web").families(families, FamilyPolicy::PreferDualStack)
}

fn dual() -> Value {
    json!({"addresses": ["10.0.1.0/24", "fd00::-fd00::ff"]})
}

#[tokio::test(start_paused = true)]
async fn row_32_required_dual_stack_gives_ipv4_before_ipv6() {
    let rig = Rig::with(&[("a", dual())]).await;
    assert_eq!(rig.apply(requiring(V6_FIRST)).await, ["10.0.1.0", "fd00::"]);
    assert_eq!(rig.events("web"), ["IPAllocated"]);
}

#[tokio::test(start_paused = true)]
async fn row_33_required_dual_stack_is_refused_by_a_pool_of_one_family() {
    let rig = Rig::with(&[("a", json!({"addresses": ["10.0.0.0/24"]}))]).await;
    assert_eq!(rig.apply(requiring(V4_FIRST)).await, NONE);
    assert_eq!(rig.events("web"), ["AllocationFailed"]);
}

#[tokio::test(start_paused = true)]
async fn row_34_preferred_dual_stack_chooses_the_pool_with_both() {
    let rig = Rig::with(&[
        ("a", json!({"addresses": ["10.0.0.0/24"]})),
        ("b", json!({"addresses": ["fd09::-fd09::ff"]})),
        ("c", dual()),
    ])
    .await;
    assert_eq!(
        rig.apply(preferring(&V4_FIRST)).await,
        ["10.0.1.0", "fd00::"]
    );
}

#[tokio::test(start_paused = true)]
async fn row_35_preferred_dual_stack_falls_back_to_the_first_family_and_says_so_once() {
    let rig = Rig::with(&[
        ("a", json!({"addresses": ["10.0.0.0/24"]})),
        ("b", json!({"addresses": ["fd09::-fd09::ff"]})),
    ])
    .await;
    assert_eq!(rig.apply(preferring(&V6_FIRST)).await, ["fd09::"]);
    // MetalLB says it on every reconcile.
    rig.reconcile("web", 5).await;
    let events = rig.events("web");
    let failed = events.iter().filter(|it| **it == "AdditionalAssignFailed");
    assert_eq!(failed.count(), 1, "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn row_36_a_service_that_prefers_both_gains_the_other_family_in_its_own_pool() {
    let mut rig = Rig::with(&[("a", json!({"addresses": ["10.0.1.0/24"]}))]).await;
    assert_eq!(rig.apply(preferring(&V4_FIRST)).await, ["10.0.1.0"]);
    rig.forget();
    rig.pool("a", dual()).await;
    assert_eq!(rig.addresses("web"), ["10.0.1.0", "fd00::"]);
    assert_eq!(rig.events("web"), ["IPAllocated"]);
    assert!(rig.message("IPAllocated").contains("fd00::"));
}

#[tokio::test(start_paused = true)]
async fn row_37_a_service_with_one_address_does_not_jump_to_a_new_dual_pool() {
    let mut rig = Rig::with(&[("single", json!({"addresses": ["10.0.0.0/24"]}))]).await;
    assert_eq!(rig.apply(preferring(&V4_FIRST)).await, ["10.0.0.0"]);
    rig.pool("dual", dual()).await;
    assert_eq!(rig.addresses("web"), ["10.0.0.0"]);
}

#[tokio::test(start_paused = true)]
async fn row_38_preferring_both_on_a_single_stack_cluster_settles_at_one_address() {
    // MetalLB gives one, then two, then none, for ever.
    let rig = Rig::with(&[("a", dual())]).await;
    assert_eq!(rig.apply(preferring(&[Family::V4])).await, ["10.0.1.0"]);
    let (writes, events) = (rig.cluster.writes(), rig.events("web"));
    assert_eq!(events, ["IPAllocated"]);
    rig.reconcile("web", 30).await;
    assert_eq!(rig.addresses("web"), ["10.0.1.0"]);
    assert_eq!((rig.cluster.writes(), rig.events("web")), (writes, events));
}

#[tokio::test(start_paused = true)]
async fn row_39_requiring_both_with_one_cluster_address_is_refused_with_a_warning() {
    let rig = Rig::with(&[("a", dual())]).await;
    let service = web("web").families(&[Family::V4], FamilyPolicy::RequireDualStack);
    assert_eq!(rig.apply(service).await, NONE);
    // MetalLB's reason has spaces, which no reason should have.
    assert_eq!(rig.events("web"), ["AllocationFailed"]);
}
