//! The provider's decisions, carried out on an offline machine: no socket is opened here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use landfall_engine::{World, resolve};
use landfall_local::Local;
use landfall_model::intent::Intent;
use landfall_model::provider::{Applied, Provider};
use landfall_model::reason::{Code, Reason};
use landfall_model::rows::{Family, FamilyPolicy, PoolRow, ServiceRow};
use landfall_model::status::HELD_ADDRESSES;
use landfall_testkit::build::claim_of;
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
        // It gave up what it held, and now the reason is reported.
        Err(_) => assert!(held(local, intent).await.is_empty()),
    }
    Ok(steps
        .iter()
        .map(|planned| planned.step.to_string())
        .collect())
}

async fn held(local: &Local, intent: &Intent) -> Vec<String> {
    let observed = local.observe(intent).await.expect("observing can't fail");
    observed
        .addresses
        .held
        .iter()
        .map(ToString::to_string)
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
async fn a_service_that_must_give_up_closes_then_unpublishes_then_releases() {
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
async fn missing_endpoints_are_reported_once() {
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
async fn a_service_that_shares_publishes_its_new_port_before_it_opens_it() {
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
    fn plans_settle_and_no_two_services_share_a_listener(
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
