//! Addresses from pools, by annotations of MetalLB, over restarts and changes of pools.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use landfall_metal::{Metal, watch_cooling};
use landfall_model::intent::{Claim, Intent};
use landfall_model::provider::Provider;
use landfall_model::reason::Code;
use landfall_model::rows::{
    AddressRange, Cooling, CoolingAddress, Family, FamilyPolicy, PoolRow, ResourceKind,
    ResourceRow, ServiceRow,
};
use landfall_model::status::IpMode;
use landfall_testkit::build::claim_of;
use landfall_testkit::svc;
use proptest::prelude::*;
use serde_json::json;

use crate::rig::{Site, l2, pool, resource, web};

fn annotated(name: &str, key: &str, value: &str) -> ServiceRow {
    ServiceRow::clone(&svc(name).port(80).annotated(key, value).row())
}

#[tokio::test]
async fn a_service_gets_the_lowest_address_and_nodes_deliver_it() {
    let site = Site::with(&[pool("a", &["192.0.2.0/30"])]);
    let want = site.spec(&web("web"));
    assert_eq!(
        site.settle(&want).await.unwrap(),
        ["claim 192.0.2.0 from pool a"]
    );
    let ingress = site.status(&want).await.ingress;
    assert_eq!(ingress.len(), 1);
    assert_eq!(ingress[0].ip_mode, Some(IpMode::Vip));
    let marks: Vec<_> = site.status(&want).await.marks.into_iter().collect();
    let note = (
        "metallb.io/ip-allocated-from-pool".to_owned(),
        "a".to_owned(),
    );
    assert_eq!(marks, [note]);
    assert_eq!(site.addresses(&web("api")).await, ["192.0.2.1"]);
}

#[tokio::test]
async fn annotations_of_both_prefixes_ask_for_pool_and_addresses() {
    let site = Site::with(&[
        pool("a", &["192.0.2.0/24"]),
        pool("b", &["198.51.100.0/24"]),
    ]);
    for (number, prefix) in ["metallb.io", "metallb.universe.tf"].iter().enumerate() {
        let row = annotated(
            &format!("p{number}"),
            &format!("{prefix}/address-pool"),
            "b",
        );
        assert_eq!(site.addresses(&row).await, [format!("198.51.100.{number}")]);
        let asked = format!("192.0.2.{}", 70 + number);
        let key = format!("{prefix}/loadBalancerIPs");
        let row = annotated(&format!("a{number}"), &key, &asked);
        assert_eq!(site.addresses(&row).await, [asked]);
    }
}

#[tokio::test]
async fn services_share_an_address_by_the_key_of_metallb() {
    let site = Site::with(&[pool("a", &["192.0.2.0/24"])]);
    let shared = |name: &str, port| {
        let row = svc(name)
            .port(port)
            .annotated("metallb.io/allow-shared-ip", "office");
        ServiceRow::clone(&row.row())
    };
    assert_eq!(site.addresses(&shared("one", 80)).await, ["192.0.2.0"]);
    assert_eq!(site.addresses(&shared("two", 81)).await, ["192.0.2.0"]);
    assert_eq!(site.addresses(&shared("three", 80)).await, ["192.0.2.1"]);
}

#[tokio::test]
async fn a_change_to_a_taken_address_keeps_the_held_one_and_names_the_holder() {
    let site = Site::with(&[pool("a", &["192.0.2.0/30"])]);
    site.addresses(&web("first")).await;
    site.addresses(&web("second")).await;
    let greedy = annotated("second", "metallb.io/loadBalancerIPs", "192.0.2.0");
    assert_eq!(site.addresses(&greedy).await, ["192.0.2.1"]);
    let remarks = site.status(&site.spec(&greedy)).await.remarks;
    assert_eq!(remarks.len(), 1);
    assert_eq!(remarks[0].code, Code::AddressInUse);
    assert!(remarks[0].message.contains("first"), "{}", remarks[0]);
}

#[tokio::test]
async fn a_dual_stack_service_gets_both_families_ipv4_first() {
    let site = Site::with(&[pool("a", &["2001:db8::/120", "192.0.2.0/24"])]);
    let row = ServiceRow {
        families: vec![Family::V6, Family::V4],
        family_policy: FamilyPolicy::RequireDualStack,
        ..web("web")
    };
    // The first address of an IPv6 prefix is the anycast address of its routers.
    assert_eq!(site.addresses(&row).await, ["192.0.2.0", "2001:db8::1"]);
}

#[tokio::test]
async fn addresses_that_are_asked_for_are_published_in_the_order_of_their_texts_as_by_metallb() {
    let site = Site::with(&[pool(
        "a",
        &["2001:db8::/120", "192.0.2.0/24", "203.0.113.0/24"],
    )]);
    for (name, asked, published) in [
        (
            "web",
            "203.0.113.5,2001:db8::5",
            ["2001:db8::5", "203.0.113.5"],
        ),
        ("api", "2001:db8::6,192.0.2.6", ["192.0.2.6", "2001:db8::6"]),
    ] {
        let row = ServiceRow {
            families: vec![Family::V4, Family::V6],
            family_policy: FamilyPolicy::RequireDualStack,
            ..annotated(name, "metallb.io/loadBalancerIPs", asked)
        };
        assert_eq!(site.addresses(&row).await, published);
    }
}

#[tokio::test]
async fn claims_on_record_come_before_new_ones_and_nothing_is_done_for_them() {
    let site = Site::with(&[pool("a", &["192.0.2.0/30"])]);
    let old = web("old");
    site.provider.restore_claims(&[claim_of(&old, "192.0.2.0")]);
    assert_eq!(site.addresses(&web("new")).await, ["192.0.2.1"]);
    assert_eq!(site.settle(&site.spec(&old)).await.unwrap(), [""; 0]);
    assert_eq!(site.addresses(&old).await, ["192.0.2.0"]);
}

#[tokio::test]
async fn a_service_moves_when_its_pool_goes_and_another_one_has_room() {
    let site = Site::with(&[pool("a", &["192.0.2.0/30"])]);
    let row = web("web");
    site.addresses(&row).await;
    site.set(&[pool("b", &["198.51.100.0/30"])], &[l2(json!({}))]);
    let steps = site.settle(&site.spec(&row)).await.unwrap();
    assert_eq!(
        steps,
        ["claim 198.51.100.0 from pool b", "release 192.0.2.0"]
    );
}

#[tokio::test]
async fn a_pool_that_becomes_invalid_takes_no_address_away() {
    let site = Site::with(&[pool("a", &["192.0.2.0/30"])]);
    let row = web("web");
    site.addresses(&row).await;
    let problems = site.set(&[pool("a", &["192.0.2.0/99"])], &[l2(json!({}))]);
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].code, Code::InvalidPool);
    assert_eq!(site.addresses(&row).await, ["192.0.2.0"]);
}

#[tokio::test]
async fn a_dry_run_claims_in_a_copy() {
    let site = Site::with(&[pool("a", &["192.0.2.0/32"])]);
    let copy = Site {
        provider: site.provider.sandbox(),
        world: landfall_engine::World::default(),
    };
    assert_eq!(copy.addresses(&web("other")).await, ["192.0.2.0"]);
    assert_eq!(site.addresses(&web("web")).await, ["192.0.2.0"]);
}

#[tokio::test]
async fn another_leader_forgets_nothing_that_is_on_record() {
    let site = Site::with(&[pool("a", &["192.0.2.0/30"])]);
    let row = web("web");
    site.addresses(&row).await;
    site.provider.invalidate_caches(true);
    site.provider.restore_claims(&[claim_of(&row, "192.0.2.0")]);
    assert_eq!(site.addresses(&web("new")).await, ["192.0.2.1"]);
    assert_eq!(site.settle(&site.spec(&row)).await.unwrap(), [""; 0]);
}

#[tokio::test]
async fn pools_report_what_is_left() {
    let site = Site::with(&[pool("a", &["192.0.2.0/30", "2001:db8::/48"])]);
    site.addresses(&web("web")).await;
    let pools = site.provider.pools();
    assert_eq!((pools[0].assigned_ipv4, pools[0].available_ipv4), (1, 3));
    assert_eq!(pools[0].available_ipv6, i64::MAX as u64);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_waits_for_an_address_that_cools_down_is_named_when_it_is_over() {
    let row = PoolRow {
        cool_down: Some(Duration::from_secs(90)),
        ..PoolRow::clone(&pool("a", &["192.0.2.0/32"]))
    };
    let mut site = Site::with(&[Arc::new(row)]);
    let provider = Arc::new(std::mem::take(&mut site.provider));
    let (wakes, mut woken) = tokio::sync::mpsc::channel(8);
    let cancel = tokio_util::sync::CancellationToken::new();
    let watch = tokio::spawn(watch_cooling(provider.clone(), wakes, cancel.clone()));
    let settle = async |want: Intent| {
        let have = provider.observe(&want).await.unwrap();
        let steps = provider.plan(&want, &have).map(|plan| plan.steps);
        for planned in steps.iter().flatten() {
            provider.apply(&planned.step).await.unwrap();
            provider.on_recorded(&want.uid);
        }
        provider.on_planned(&want.uid, steps.is_err());
        if want.load_balancer.is_none() {
            provider.on_forgotten(&want.uid);
        }
    };
    let (first, second) = (web("first"), web("second"));
    settle(site.spec(&first)).await;
    settle(site.spec(&second)).await;
    let removal = Intent::removal(first.key.clone(), first.uid.clone());
    settle(removal).await;
    let named = tokio::time::timeout(Duration::from_secs(89), woken.recv());
    assert!(named.await.is_err(), "not yet");
    let named = tokio::time::timeout(Duration::from_secs(2), woken.recv());
    assert_eq!(named.await.unwrap(), Some(second.uid.clone()));
    cancel.cancel();
    watch.await.unwrap();
}

/// A pool with a cool-down, and what an earlier process recorded.
fn cooled(addresses: &str, released: Vec<CoolingAddress>, held: Vec<AddressRange>) -> Arc<PoolRow> {
    let object = ResourceRow {
        cooling: Cooling { released, held },
        ..ResourceRow::clone(&resource(ResourceKind::IpAddressPool, "a", json!({})))
    };
    Arc::new(PoolRow {
        cool_down: Some(Duration::from_secs(90)),
        resource: Some(Arc::new(object)),
        ..PoolRow::clone(&pool("a", &[addresses]))
    })
}

fn range(first: &str, last: &str) -> AddressRange {
    AddressRange {
        first: first.parse().unwrap(),
        last: last.parse().unwrap(),
    }
}

#[tokio::test(start_paused = true)]
async fn an_address_that_was_released_just_before_a_crash_cools_down_without_a_record_of_that() {
    let site = Site::with(&[cooled("192.0.2.0/29", Vec::new(), Vec::new())]);
    for name in ["one", "two", "three", "four"] {
        site.addresses(&web(name)).await;
    }
    let recorded = site.provider.pools().remove(0);
    assert_eq!(recorded.held, [range("192.0.2.0", "192.0.2.3")]);
    // Two are released, and the process ends before anything is recorded of that.
    let record = vec![cooled("192.0.2.0/29", recorded.cooling, recorded.held)];
    let next = Site::with(&record);
    let claims = [("one", "192.0.2.0"), ("three", "192.0.2.2")];
    let claims = claims.map(|(name, address)| claim_of(&web(name), address));
    next.provider.restore_claims(&claims);
    let shown = next.provider.pools().remove(0);
    let held = [
        range("192.0.2.0", "192.0.2.0"),
        range("192.0.2.2", "192.0.2.2"),
    ];
    assert_eq!(shown.held, held);
    let cooling: Vec<String> = shown
        .cooling
        .iter()
        .map(|it| it.address.to_string())
        .collect();
    assert_eq!(cooling, ["192.0.2.1", "192.0.2.3"]);
    assert_eq!(next.addresses(&web("one")).await, ["192.0.2.0"]);
    assert_eq!(next.addresses(&web("five")).await, ["192.0.2.4"]);
    // Neither pools that change nor the old record make it begin again.
    tokio::time::advance(Duration::from_secs(91)).await;
    next.set(&record, &[l2(json!({}))]);
    assert_eq!(next.addresses(&web("six")).await, ["192.0.2.1"]);

    // A process that led before looks again when it leads again, and a pool may come later.
    next.provider.invalidate_caches(true);
    next.set(&[], &[]);
    next.provider.restore_claims(&claims);
    next.set(&record, &[]);
    assert_eq!(next.addresses(&web("seven")).await, ["192.0.2.4"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_service_of_others_has_is_not_kept_from_it_by_an_old_record() {
    let held = vec![
        range("192.0.2.0", "192.0.2.1"),
        // Neither is one that this process could have written.
        range("192.0.2.9", "192.0.2.2"),
        range("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ];
    let next = Site::with(&[cooled("192.0.2.0/30", Vec::new(), held)]);
    next.provider.restore_claims(&[]);
    let others = claim_of(&web("others"), "192.0.2.1");
    next.provider.set_foreign_claim(&others.uid, Some(&others));
    let shown = next.provider.pools().remove(0);
    assert_eq!(shown.held, []);
    assert_eq!(shown.cooling.len(), 1);
    next.provider.set_foreign_claim(&others.uid, None);
    assert_eq!(next.addresses(&web("one")).await, ["192.0.2.1"]);
}

#[tokio::test(start_paused = true)]
async fn a_cool_down_goes_on_in_the_next_process_as_the_pool_has_it_on_record() {
    let row = |released| cooled("192.0.2.0/32", released, Vec::new());
    let site = Site::with(&[row(Vec::new())]);
    let first = web("first");
    site.addresses(&first).await;
    let removal = Intent::removal(first.key.clone(), first.uid.clone());
    site.settle(&removal).await.unwrap();
    let recorded = || site.provider.pools().remove(0).cooling;
    let released = recorded();
    assert_eq!(released.len(), 1);
    assert_eq!(released[0].service, "default/first");
    // It is shown as it was, so that nothing is written for it.
    tokio::time::advance(Duration::from_secs(7)).await;
    assert_eq!(recorded(), released);

    // Another process: with the pools first, and with claims first after it led before.
    let next = Site::with(&[row(released.clone())]);
    next.provider.restore_claims(&[]);
    assert_eq!(next.provider.pools()[0].cooling, released);
    next.provider.invalidate_caches(true);
    next.provider.restore_claims(&[]);
    let second = web("second");
    assert_eq!(next.addresses(&second).await, [""; 0]);
    tokio::time::advance(Duration::from_secs(92)).await;
    assert_eq!(next.addresses(&second).await, ["192.0.2.0"]);
    assert_eq!(next.provider.pools()[0].cooling, []);
    // What is over is not kept again although it is on record.
    assert_eq!(next.set(&[row(released)], &[l2(json!({}))]), []);
    assert_eq!(next.addresses(&second).await, ["192.0.2.0"]);
}

#[tokio::test(start_paused = true)]
async fn a_cool_down_on_record_lasts_no_longer_than_that_of_the_pool() {
    let released = landfall_model::rows::CoolingAddress {
        address: "192.0.2.0".parse().unwrap(),
        until: jiff::Timestamp::now() + Duration::from_secs(86_400),
        service: "default/first".to_owned(),
    };
    let site = Site::with(&[cooled("192.0.2.0/32", vec![released], Vec::new())]);
    site.provider.restore_claims(&[]);
    let second = web("second");
    assert_eq!(site.addresses(&second).await, [""; 0]);
    tokio::time::advance(Duration::from_secs(92)).await;
    assert_eq!(site.addresses(&second).await, ["192.0.2.0"]);
}

/// What happens to one of a few Services.
#[derive(Clone, Debug)]
enum Event {
    Reconcile(u8),
    Ask(u8, u8),
    Count(u8, u8),
    Delete(u8),
    Pools(u8),
    Restart,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => (0..6_u8).prop_map(Event::Reconcile),
        2 => (0..6_u8, 0..8_u8).prop_map(|(service, address)| Event::Ask(service, address)),
        2 => (0..6_u8, 1..4_u8).prop_map(|(service, count)| Event::Count(service, count)),
        2 => (0..6_u8).prop_map(Event::Delete),
        1 => (0..3_u8).prop_map(Event::Pools),
        1 => Just(Event::Restart),
    ];
    prop::collection::vec(event, 1..40)
}

fn pools(number: u8) -> Vec<Arc<PoolRow>> {
    match number {
        0 => vec![pool("a", &["192.0.2.0/30"])],
        1 => vec![pool("a", &["192.0.2.2/31"]), pool("b", &["192.0.2.4/31"])],
        _ => vec![pool("a", &["192.0.2.0/30"]), pool("b", &["192.0.2.3/32"])],
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn each_service_gets_all_of_its_own_addresses_and_no_restart_moves_any(events in events()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut site = Site::with(&pools(0));
            let mut current = 0;
            let mut rows: Vec<ServiceRow> = (0..6).map(|it| web(&format!("s{it}"))).collect();
            let mut held: Vec<Vec<String>> = vec![Vec::new(); 6];
            let mut counts = [1; 6];
            for event in events {
                match event {
                    Event::Reconcile(service) => {
                        let service = usize::from(service);
                        let before = std::mem::take(&mut held[service]);
                        held[service] = site.addresses(&rows[service]).await;
                        let all_or_none = [0, counts[service]].contains(&held[service].len());
                        assert!(all_or_none || !before.is_empty(), "{held:?}");
                    }
                    Event::Count(service, count) => {
                        let service = usize::from(service);
                        counts[service] = usize::from(count);
                        let (key, count) = ("landfall.dev/address-count", count.to_string());
                        rows[service] = annotated(&format!("s{service}"), key, &count);
                    }
                    Event::Ask(service, address) => {
                        let service = usize::from(service);
                        let (name, asked) = (format!("s{service}"), format!("192.0.2.{address}"));
                        rows[service] = annotated(&name, "metallb.io/loadBalancerIPs", &asked);
                        counts[service] = 1;
                        held[service] = site.addresses(&rows[service]).await;
                    }
                    Event::Delete(service) => {
                        let service = usize::from(service);
                        let row = &rows[service];
                        let removal = Intent::removal(row.key.clone(), row.uid.clone());
                        site.settle(&removal).await.unwrap();
                        held[service].clear();
                    }
                    Event::Pools(number) => {
                        current = number;
                        site.set(&pools(number), &[]);
                    }
                    Event::Restart => {
                        site.provider = Metal::default();
                        site.set(&pools(current), &[]);
                        let claims: Vec<_> = rows.iter().zip(&held)
                            .filter(|(_, held)| !held.is_empty())
                            .map(|(row, held)| Claim {
                                addresses: held.iter().map(|it| it.parse().unwrap()).collect(),
                                ..claim_of(row, &held[0])
                            })
                            .collect();
                        site.provider.restore_claims(&claims);
                        for (row, held) in rows.iter().zip(&held) {
                            let want = site.spec(row);
                            let have = site.provider.observe(&want).await.unwrap();
                            let now: Vec<String> =
                                have.addresses.held.iter().map(ToString::to_string).collect();
                            assert_eq!(&now, held);
                        }
                    }
                }
                let all: Vec<&String> = held.iter().flatten().collect();
                let distinct: BTreeSet<&&String> = all.iter().collect();
                assert_eq!(all.len(), distinct.len(), "{held:?}");
            }
        });
    }
}
