//! Several Services at one address: rows 26 to 31.

use landfall_testkit::build::ServiceBuilder;
use landfall_testkit::svc;
use serde_json::json;

use crate::rig::{ADDRESSES, KEY, Rig};

const NONE: [&str; 0] = [];

/// A Service that allows to share its address.
fn sharing(name: &str, key: &str, port: u16) -> ServiceBuilder {
    svc(name).port(port).annotated(KEY, key)
}

async fn with_room() -> Rig {
    Rig::with(&[("a", json!({"addresses": ["10.0.0.0/24"]}))]).await
}

#[tokio::test(start_paused = true)]
async fn row_26_services_with_one_key_and_different_ports_share() {
    let rig = with_room().await;
    assert_eq!(rig.apply(sharing("one", "k", 80)).await, ["10.0.0.0"]);
    assert_eq!(rig.apply(sharing("two", "k", 81)).await, ["10.0.0.0"]);
    rig.delete("one").await;
    assert_eq!(rig.addresses("two"), ["10.0.0.0"]);
}

#[tokio::test(start_paused = true)]
async fn row_27_services_with_one_key_and_one_port_get_different_addresses() {
    let rig = with_room().await;
    assert_eq!(rig.apply(sharing("one", "k", 80)).await, ["10.0.0.0"]);
    assert_eq!(rig.apply(sharing("two", "k", 80)).await, ["10.0.0.1"]);
}

#[tokio::test(start_paused = true)]
async fn row_28_one_port_number_of_two_protocols_can_be_shared() {
    let rig = with_room().await;
    assert_eq!(rig.apply(sharing("tcp", "k", 53)).await, ["10.0.0.0"]);
    let udp = svc("udp").udp_port("dns", 53).annotated(KEY, "k");
    assert_eq!(rig.apply(udp).await, ["10.0.0.0"]);
}

#[tokio::test(start_paused = true)]
async fn row_29_a_requested_address_with_another_key_is_refused() {
    let rig = with_room().await;
    let asking = |name, key, port| sharing(name, key, port).annotated(ADDRESSES, "10.0.0.7");
    assert_eq!(rig.apply(asking("one", "k", 80)).await, ["10.0.0.7"]);
    assert_eq!(rig.apply(asking("two", "j", 81)).await, NONE);
    assert_eq!(rig.events("two"), ["AllocationFailed"]);
}

#[tokio::test(start_paused = true)]
async fn row_30_a_service_without_a_key_shares_with_none() {
    let rig = with_room().await;
    assert_eq!(rig.apply(sharing("one", "k", 80)).await, ["10.0.0.0"]);
    let asking = svc("two").port(81).annotated(ADDRESSES, "10.0.0.0");
    assert_eq!(rig.apply(asking).await, NONE);
    // An empty key is none.
    let empty = sharing("three", "", 82).annotated(ADDRESSES, "10.0.0.0");
    assert_eq!(rig.apply(empty).await, NONE);
}

#[tokio::test(start_paused = true)]
async fn row_31_a_service_that_alone_becomes_local_loses_the_shared_address_until_both_are() {
    let rig = Rig::with(&[("a", json!({"addresses": ["10.0.0.1/32"]}))]).await;
    let pods = |service: ServiceBuilder| service.selecting("app", "web");
    assert_eq!(
        rig.apply(pods(sharing("first", "k", 80))).await,
        ["10.0.0.1"]
    );
    assert_eq!(
        rig.apply(pods(sharing("second", "k", 81))).await,
        ["10.0.0.1"]
    );
    rig.forget();
    assert_eq!(
        rig.apply(pods(sharing("second", "k", 81)).local()).await,
        NONE
    );
    assert_eq!(rig.addresses("first"), ["10.0.0.1"]);
    assert_eq!(
        rig.events("second"),
        ["ClearAssignment", "AllocationFailed"]
    );
    let first = pods(sharing("first", "k", 80)).local();
    assert_eq!(rig.apply(first).await, ["10.0.0.1"]);
    assert_eq!(rig.addresses("second"), ["10.0.0.1"]);
}
