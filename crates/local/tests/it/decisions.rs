//! The provider's decisions, carried out on an offline machine: no socket is opened here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use landfall_engine::{World, resolve};
use landfall_local::Local;
use landfall_model::intent::{Claim, Intent};
use landfall_model::listener::ListenerKey;
use landfall_model::provider::{Applied, Provider};
use landfall_model::reason::{Code, Reason, Severity};
use landfall_model::rows::{Family, FamilyPolicy, PoolRow, ServiceRow};
use landfall_model::status::HELD_ADDRESSES;
use landfall_testkit::svc;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

fn machine(ranges: &[&str]) -> Local {
    let local = Local::offline();
    assert_eq!(set_pool(&local, ranges), []);
    local
}

fn set_pool(local: &Local, ranges: &[&str]) -> Vec<Reason> {
    let pool = PoolRow {
        name: "default".to_owned(),
        addresses: ranges.iter().map(ToString::to_string).collect(),
        auto_assign: true,
        ..PoolRow::default()
    };
    local.set_pools(&[Arc::new(pool)])
}

fn spec(row: &ServiceRow, local: &Local) -> Intent {
    resolve(row, &World::default(), local.profile()).expect("a valid Service")
}

fn removal(row: &ServiceRow) -> Intent {
    Intent::removal(row.key.clone(), row.uid.clone())
}

/// The steps that an intent needs now, as text.
async fn plan(local: &Local, intent: &Intent) -> Result<Vec<String>, Vec<Reason>> {
    let observed = local.observe(intent).await.expect("observing can't fail");
    Ok(local
        .plan(intent, &observed)?
        .steps
        .iter()
        .map(|it| it.step.to_string())
        .collect())
}

/// Carries an intent out and returns the steps that it took. What is planned once must not be
/// planned again.
async fn settle(local: &Local, intent: &Intent) -> Result<Vec<String>, Vec<Reason>> {
    let observed = local.observe(intent).await.expect("observing can't fail");
    let steps = local.plan(intent, &observed)?.steps;
    for planned in &steps {
        let applied = local
            .apply(&planned.step)
            .await
            .expect("an offline machine can't fail");
        if let Applied::Addressed(_) = applied {
            local.on_recorded(&intent.uid);
        }
    }
    if intent.load_balancer.is_none() {
        local.on_forgotten(&intent.uid);
    }
    match plan(local, intent).await {
        Ok(again) => assert_eq!(again, [] as [&str; 0], "planned twice"),
        // It gave up what it held, and now it is told why.
        Err(_) => assert!(held(local, intent).await.is_empty()),
    }
    Ok(steps
        .iter()
        .map(|planned| planned.step.to_string())
        .collect())
}

async fn held(local: &Local, intent: &Intent) -> Vec<String> {
    let observed = local.observe(intent).await.expect("observing can't fail");
    observed.held.iter().map(ToString::to_string).collect()
}

async fn codes_of_remarks(local: &Local, intent: &Intent) -> Vec<Code> {
    let observed = local.observe(intent).await.expect("observing can't fail");
    local
        .status(intent, &observed)
        .remarks
        .iter()
        .map(|remark| remark.code)
        .collect()
}

#[tokio::test]
async fn a_service_claims_then_opens_and_leaves_in_reverse() {
    let local = machine(&["127.77.0.0/30"]);
    let row = svc("web")
        .named_port("http", 80)
        .named_port("alt", 81)
        .row();
    assert_eq!(
        settle(&local, &spec(&row, &local)).await.unwrap(),
        [
            "claim 127.77.0.0 from pool default",
            "open 127.77.0.0:80/TCP (stream, 0 members)",
            "open 127.77.0.0:81/TCP (stream, 0 members)",
        ]
    );
    assert_eq!(
        settle(&local, &removal(&row)).await.unwrap(),
        [
            "close 127.77.0.0:80/TCP",
            "close 127.77.0.0:81/TCP",
            "release 127.77.0.0"
        ]
    );
}

#[tokio::test]
async fn members_and_options_change_in_place() {
    let local = machine(&["127.77.0.0/30"]);
    let with = |endpoints: &str, algorithm: &str| {
        svc("web")
            .port(80)
            .annotated("landfall.dev/endpoints", endpoints)
            .annotated("landfall.dev/algorithm", algorithm)
            .row()
    };
    settle(&local, &spec(&with("10.0.0.1:1", "ROUND_ROBIN"), &local))
        .await
        .unwrap();
    assert_eq!(
        settle(&local, &spec(&with("10.0.0.2:1", "SOURCE_IP"), &local))
            .await
            .unwrap(),
        ["change 127.77.0.0:80/TCP: +10.0.0.2:1; -10.0.0.1:1; algorithm ROUND_ROBIN -> SOURCE_IP"]
    );
}

#[tokio::test]
async fn a_change_to_a_taken_address_keeps_the_held_one_and_names_the_holder() {
    let local = machine(&["127.77.0.0/30"]);
    let holder = svc("holder").port(80).row();
    settle(&local, &spec(&holder, &local)).await.unwrap();
    let row = svc("web").port(80).row();
    settle(&local, &spec(&row, &local)).await.unwrap();
    let asking = svc("web")
        .port(80)
        .annotated("landfall.dev/addresses", "127.77.0.0")
        .row();
    let asking = spec(&asking, &local);
    assert_eq!(settle(&local, &asking).await.unwrap(), [] as [&str; 0]);
    assert_eq!(held(&local, &asking).await, ["127.77.0.1"]);
    assert_eq!(
        codes_of_remarks(&local, &asking).await,
        [Code::AddressInUse]
    );
}

#[tokio::test]
async fn a_requested_address_moves_claim_and_listeners() {
    let local = machine(&["127.77.0.0/29"]);
    settle(&local, &spec(&svc("web").port(80).row(), &local))
        .await
        .unwrap();
    let asking = svc("web")
        .port(80)
        .annotated("landfall.dev/addresses", "127.77.0.5")
        .row();
    assert_eq!(
        settle(&local, &spec(&asking, &local)).await.unwrap(),
        [
            "claim 127.77.0.5 from pool default",
            "open 127.77.0.5:80/TCP (stream, 0 members)",
            "close 127.77.0.0:80/TCP",
            "release 127.77.0.0",
        ]
    );
}

#[tokio::test]
async fn a_claim_that_could_not_be_written_is_recorded_before_a_listener_opens() {
    let local = machine(&["127.77.0.0/30"]);
    let intent = spec(&svc("web").port(80).row(), &local);
    let observed = local.observe(&intent).await.unwrap();
    let steps = local.plan(&intent, &observed).unwrap().steps;
    local.apply(&steps[0].step).await.unwrap();
    // The status could not be written: the pass ends here, and the next one begins.
    assert_eq!(
        settle(&local, &intent).await.unwrap(),
        [
            "record 127.77.0.0",
            "open 127.77.0.0:80/TCP (stream, 0 members)",
        ]
    );
}

#[tokio::test]
async fn an_address_that_is_given_up_stays_reserved_until_that_is_on_record() {
    let local = machine(&["127.77.0.0/31"]);
    let web = svc("web").port(80);
    settle(&local, &spec(&web.clone().row(), &local))
        .await
        .unwrap();
    let moved = web.annotated("landfall.dev/addresses", "127.77.0.1").row();
    let moved = spec(&moved, &local);
    let observed = local.observe(&moved).await.unwrap();
    let steps = local.plan(&moved, &observed).unwrap().steps;
    local.apply(&steps[0].step).await.unwrap();
    let other = spec(&svc("other").port(80).row(), &local);
    let refused = plan(&local, &other).await.unwrap_err();
    assert_eq!(refused[0].code, Code::PoolExhausted);
    assert_eq!(
        settle(&local, &moved).await.unwrap(),
        [
            "record 127.77.0.1",
            "open 127.77.0.1:80/TCP (stream, 0 members)",
            "close 127.77.0.0:80/TCP",
            "release 127.77.0.0",
        ]
    );
    settle(&local, &other).await.unwrap();
    assert_eq!(held(&local, &other).await, ["127.77.0.0"]);
}

#[tokio::test]
async fn who_must_give_up_closes_then_unpublishes_then_releases() {
    let local = machine(&["127.77.0.0/31"]);
    let web = spec(&svc("web").port(80).row(), &local);
    settle(&local, &web).await.unwrap();
    set_pool(&local, &["fd00::/126"]);
    assert_eq!(
        settle(&local, &web).await.unwrap(),
        [
            "close 127.77.0.0:80/TCP",
            "withdraw 127.77.0.0",
            "release 127.77.0.0",
        ]
    );
}

#[tokio::test]
async fn what_a_deleted_service_held_is_reserved_until_its_record_is_gone() {
    let local = machine(&["127.77.0.0/32"]);
    let row = svc("web").port(80).row();
    settle(&local, &spec(&row, &local)).await.unwrap();
    let removal = removal(&row);
    let observed = local.observe(&removal).await.unwrap();
    for planned in &local.plan(&removal, &observed).unwrap().steps {
        local.apply(&planned.step).await.unwrap();
    }
    assert_eq!(plan(&local, &removal).await, Ok(Vec::new()));
    let other = spec(&svc("other").port(80).row(), &local);
    let refused = plan(&local, &other).await.unwrap_err();
    assert_eq!(refused[0].code, Code::PoolExhausted);
    local.on_forgotten(&removal.uid);
    settle(&local, &other).await.unwrap();
    assert_eq!(held(&local, &other).await, ["127.77.0.0"]);
}

#[tokio::test]
async fn a_name_in_place_of_the_address_is_published_from_the_first_write_on() {
    let local = machine(&["127.77.0.0/30", "fd00::/126"]);
    let row = svc("web")
        .port(80)
        .families(&[Family::V4, Family::V6], FamilyPolicy::RequireDualStack)
        .annotated("landfall.dev/hostname", "web.example.com")
        .row();
    let intent = spec(&row, &local);
    let observed = local.observe(&intent).await.unwrap();
    let steps = local.plan(&intent, &observed).unwrap().steps;
    let Ok(Applied::Addressed(published)) = local.apply(&steps[0].step).await else {
        panic!("a claim is published");
    };
    assert_eq!(published.ingress.len(), 1);
    assert_eq!(
        published.ingress[0].hostname.as_deref(),
        Some("web.example.com")
    );
    assert_eq!(published.ingress[0].ip, None);
    let marks = BTreeMap::from([(HELD_ADDRESSES.to_owned(), "127.77.0.0,fd00::1".to_owned())]);
    assert_eq!(published.marks, marks);
    local.on_recorded(&intent.uid);
    let observed = local.observe(&intent).await.unwrap();
    let standing = local.status(&intent, &observed);
    assert_eq!(
        (standing.ingress, standing.marks),
        (published.ingress, marks)
    );
}

#[tokio::test]
async fn a_refusal_names_where_the_address_was_asked_for() {
    let local = machine(&["127.77.0.0/30"]);
    let row = svc("web").port(80).load_balancer_ip("192.0.2.1").row();
    let reasons = plan(&local, &spec(&row, &local)).await.unwrap_err();
    assert_eq!(reasons.len(), 1);
    assert_eq!(reasons[0].code, Code::AddressNotInPool);
    assert_eq!(reasons[0].field.as_deref(), Some("spec.loadBalancerIP"));
    assert_eq!(reasons[0].value.as_deref(), Some("192.0.2.1"));
    assert!(
        reasons[0].remedy.contains("default"),
        "{}",
        reasons[0].remedy
    );
}

#[tokio::test]
async fn a_full_pool_refuses_until_somebody_leaves() {
    let local = machine(&["127.77.0.1-127.77.0.1"]);
    let (first, second) = (svc("a").port(80).row(), svc("b").port(80).row());
    settle(&local, &spec(&first, &local)).await.unwrap();
    let refused = plan(&local, &spec(&second, &local)).await.unwrap_err();
    assert_eq!(refused[0].code, Code::PoolExhausted);
    settle(&local, &removal(&first)).await.unwrap();
    assert_eq!(
        settle(&local, &spec(&second, &local)).await.unwrap().len(),
        2
    );
}

#[tokio::test]
async fn dual_stack_opens_each_port_on_both_addresses() {
    let local = machine(&["127.77.0.0/30", "fd00::/126"]);
    let row = svc("web")
        .port(80)
        .families(&[Family::V6, Family::V4], FamilyPolicy::RequireDualStack)
        .row();
    assert_eq!(
        settle(&local, &spec(&row, &local)).await.unwrap(),
        [
            "claim 127.77.0.0, fd00::1 from pool default",
            "open 127.77.0.0:80/TCP (stream, 0 members)",
            "open [fd00::1]:80/TCP (stream, 0 members)",
        ]
    );
}

#[tokio::test]
async fn who_prefers_both_families_is_content_with_one_and_told_so() {
    let local = machine(&["127.77.0.0/30"]);
    for (policy, severity) in [
        (FamilyPolicy::PreferDualStack, Some(Severity::Warning)),
        (FamilyPolicy::SingleStack, None),
    ] {
        let row = svc(&format!("{policy:?}").to_lowercase())
            .port(80)
            .families(&[Family::V4, Family::V6], policy)
            .row();
        let intent = spec(&row, &local);
        assert_eq!(settle(&local, &intent).await.unwrap().len(), 2);
        let observed = local.observe(&intent).await.unwrap();
        let remarks = local.status(&intent, &observed).remarks;
        let severities: Vec<_> = remarks.iter().map(|remark| remark.severity).collect();
        assert_eq!(severities, Vec::from_iter(severity), "{remarks:?}");
    }
}

#[tokio::test]
async fn missing_endpoints_are_told_once() {
    let local = machine(&["127.77.0.0/30"]);
    let row = svc("web").port(80).row();
    let intent = spec(&row, &local);
    settle(&local, &intent).await.unwrap();
    let observed = local.observe(&intent).await.unwrap();
    let waiting = local.status(&intent, &observed).waiting;
    assert_eq!(waiting, intent.remarks);
    assert_eq!(waiting.len(), 1, "{waiting:?}");
}

#[tokio::test]
async fn a_service_that_shares_tells_its_new_port_before_it_opens_it() {
    let local = machine(&["127.77.0.0/30"]);
    let sharing = |name: &str, port| {
        svc(name)
            .port(port)
            .annotated("landfall.dev/sharing-key", "k")
            .row()
    };
    settle(&local, &spec(&sharing("a", 80), &local))
        .await
        .unwrap();
    settle(&local, &spec(&sharing("b", 81), &local))
        .await
        .unwrap();
    let moved = spec(&sharing("b", 82), &local);
    assert_eq!(
        settle(&local, &moved).await.unwrap()[0],
        "claim 127.77.0.0 from pool default"
    );
    let clashing = spec(&sharing("b", 80), &local);
    settle(&local, &clashing).await.unwrap();
    assert_ne!(
        held(&local, &clashing).await,
        ["127.77.0.0"],
        "port 80 there is a's"
    );
}

#[tokio::test]
async fn claims_on_record_come_back_as_they_were() {
    let local = machine(&["127.77.0.0/29"]);
    let row = svc("web").port(80).row();
    local.restore_claims(&[claim_of(&row, "127.77.0.6")]);
    assert_eq!(
        settle(&local, &spec(&row, &local)).await.unwrap(),
        ["open 127.77.0.6:80/TCP (stream, 0 members)"]
    );
}

#[tokio::test]
async fn a_pool_with_a_typo_leaves_the_pool_as_it_was() {
    let local = machine(&["127.77.0.0/30"]);
    let row = svc("web").port(80).row();
    settle(&local, &spec(&row, &local)).await.unwrap();
    let problems = set_pool(&local, &["127.77.0.0/33"]);
    assert_eq!(
        problems.iter().map(|it| it.code).collect::<Vec<_>>(),
        [Code::InvalidPool]
    );
    assert_eq!(
        settle(&local, &spec(&row, &local)).await.unwrap(),
        [] as [&str; 0]
    );
    let other = svc("other").port(80).row();
    assert_eq!(
        settle(&local, &spec(&other, &local)).await.unwrap().len(),
        2
    );
}

#[tokio::test]
async fn a_sandbox_changes_nothing_outside_itself() {
    let local = machine(&["127.77.0.0/30"]);
    let row = svc("web").port(80).row();
    settle(&local.sandbox(), &spec(&row, &local)).await.unwrap();
    assert!(held(&local, &spec(&row, &local)).await.is_empty());
}

proptest! {
    // Beside no lib.rs or main.rs, proptest would not know where to keep what has failed.
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    /// Whatever Services come, change and go, a carried-out plan leaves nothing to do, and no port
    /// of an address is two Services' at once.
    #[test]
    fn plans_settle_and_nobody_shares_a_listener(
        acts in prop::collection::vec((0..6u8, 0..4u16, 0..4u8, any::<bool>()), 1..40)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let local = machine(&["127.77.0.0/30"]);
            let mut rows = std::collections::BTreeMap::new();
            for (name, port, asked, stays) in acts {
                let name = format!("s{name}");
                let mut service = svc(&name).port(80 + port);
                if asked < 3 {
                    let address = format!("127.77.0.{asked}");
                    service = service.annotated("landfall.dev/addresses", &address);
                }
                if port % 2 == 0 {
                    service = service.annotated("landfall.dev/sharing-key", "k");
                }
                let row = service.row();
                let intent = if stays { spec(&row, &local) } else { removal(&row) };
                rows.insert(name, intent.clone());
                // A refusal is as good an outcome; it must only be the same the next time.
                if let Err(reasons) = settle(&local, &intent).await {
                    assert!(plan(&local, &intent).await.is_err(), "{reasons:?}");
                }
                let mut listeners = BTreeSet::new();
                for intent in rows.values() {
                    let observed = local.observe(intent).await.unwrap();
                    for id in observed.listeners.keys() {
                        assert!(listeners.insert(*id), "{id} is open twice");
                    }
                }
            }
        });
    }
}

fn claim_of(row: &ServiceRow, address: &str) -> Claim {
    let ports = row.ports.iter().map(|port| ListenerKey {
        protocol: port.protocol,
        port: port.port,
    });
    Claim {
        service: row.key.clone(),
        uid: row.uid.clone(),
        addresses: vec![address.parse().expect("an address")],
        requested: Vec::new(),
        sharing_key: None,
        backend_key: String::new(),
        ports: ports.collect(),
    }
}

#[tokio::test]
async fn what_services_hold_that_nobody_serves_is_neither_given_away_nor_given_back() {
    let local = machine(&["127.77.0.1-127.77.0.2"]);
    let (lost, web, api) = (
        svc("lost").port(80).row(),
        svc("web").port(80).row(),
        svc("api").port(80).row(),
    );
    local.set_foreign_claims(&[claim_of(&lost, "127.77.0.1")]);
    let (wish_web, wish_api) = (spec(&web, &local), spec(&api, &local));
    settle(&local, &wish_web)
        .await
        .expect("one address is left");
    assert_eq!(held(&local, &wish_web).await, ["127.77.0.2"]);
    let refused = plan(&local, &wish_api).await.expect_err("nothing is left");
    assert_eq!(refused[0].code, Code::PoolExhausted);
    assert_eq!(plan(&local, &removal(&lost)).await, Ok(Vec::new()));

    // It is gone.
    local.set_foreign_claims(&[]);
    settle(&local, &wish_api)
        .await
        .expect("one address is left");
    assert_eq!(held(&local, &wish_api).await, ["127.77.0.1"]);
}

#[tokio::test]
async fn a_service_that_nobody_served_and_that_comes_back_has_its_address() {
    let local = machine(&["127.77.0.1-127.77.0.9"]);
    let lost = svc("lost").port(80).row();
    let claim = claim_of(&lost, "127.77.0.5");
    local.set_foreign_claims(std::slice::from_ref(&claim));
    local.restore_claims(&[claim]);
    local.set_foreign_claims(&[]);
    let want = spec(&lost, &local);
    settle(&local, &want).await.expect("it has an address");
    assert_eq!(held(&local, &want).await, ["127.77.0.5"]);
}

fn pool(name: &str, range: &str) -> Arc<PoolRow> {
    Arc::new(PoolRow {
        name: name.to_owned(),
        addresses: vec![range.to_owned()],
        auto_assign: true,
        ..PoolRow::default()
    })
}

#[tokio::test]
async fn a_pool_that_is_invalid_at_the_start_moves_no_service() {
    let local = Local::offline();
    let (web, new) = (svc("web").port(80).row(), svc("new").port(80).row());
    let good = pool("good", "127.77.0.0/30");
    let problems = local.set_pools(&[good.clone(), pool("typo", "127.77.1.0/240")]);
    assert_eq!(problems.len(), 1);
    local.restore_claims(&[claim_of(&web, "127.77.1.9")]);
    let (want, want_new) = (spec(&web, &local), spec(&new, &local));
    settle(&local, &want).await.expect("it keeps what it has");
    assert_eq!(held(&local, &want).await, ["127.77.1.9"]);
    assert_eq!(codes_of_remarks(&local, &want).await, [Code::PoolsInDoubt]);
    settle(&local, &want_new).await.expect("one pool is good");
    assert_eq!(held(&local, &want_new).await, ["127.77.0.0"]);

    let mended = [good.clone(), pool("typo", "127.77.1.0/24")];
    assert_eq!(local.set_pools(&mended), []);
    assert_eq!(plan(&local, &want).await, Ok(Vec::new()));
    assert_eq!(codes_of_remarks(&local, &want).await, [] as [Code; 0]);
}

#[tokio::test]
async fn a_source_that_may_hide_pools_moves_no_service_until_it_can_be_read() {
    let local = Local::offline();
    let web = svc("web").port(80).row();
    local.set_pools_incomplete(true);
    assert_eq!(local.set_pools(&[pool("good", "127.77.0.0/30")]), []);
    local.restore_claims(&[claim_of(&web, "127.77.1.9")]);
    let want = spec(&web, &local);
    settle(&local, &want).await.expect("it keeps what it has");
    assert_eq!(held(&local, &want).await, ["127.77.1.9"]);

    local.set_pools_incomplete(false);
    assert_eq!(local.set_pools(&[pool("good", "127.77.0.0/30")]), []);
    settle(&local, &want).await.expect("it moves");
    assert_eq!(held(&local, &want).await, ["127.77.0.0"]);
}
