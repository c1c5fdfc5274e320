//! Claims over their life, as the engine would drive them.

#![expect(clippy::expect_used, reason = "helpers of tests")]

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_addressing::{AddressStep, Addressing, plan, plan_removal, published, remarks};
use landfall_engine::{World, resolve};
use landfall_model::ServiceKey;
use landfall_model::intent::Intent;
use landfall_model::plan::Planned;
use landfall_model::provider::{Applied, ProviderProfile, Target};
use landfall_model::reason::{Code, Reason, Severity};
use landfall_model::rows::{Family, FamilyPolicy, PoolRow, ServiceRow};
use landfall_model::status::IpMode;
use landfall_testkit::build::claim_of;
use landfall_testkit::svc;

const NOTHING: [&str; 0] = [];

/// Claims over pools, as a provider of bare metal keeps them.
#[derive(Default)]
struct Site(Addressing);

impl Site {
    fn with(ranges: &[&str]) -> Self {
        let mut site = Self::default();
        assert_eq!(site.0.set_pools(&[pool("default", ranges)]), []);
        site
    }

    fn plan(&self, want: &Intent) -> Result<Vec<Planned<AddressStep>>, Vec<Reason>> {
        let have = self.0.observe(want);
        let plan = match &want.load_balancer {
            Some(spec) => plan(want, &have, false, |held| {
                published(spec, held, IpMode::Vip)
            })?,
            None => plan_removal(want, &have),
        };
        Ok(plan.around(Vec::new()))
    }

    /// Carries a plan out, with a record of each claim, and returns its steps.
    fn settle(&mut self, want: &Intent) -> Result<Vec<String>, Vec<Reason>> {
        let steps = self.plan(want)?;
        for planned in &steps {
            let applied = self
                .0
                .apply(&planned.step, Instant::now())
                .expect("no other Service claims");
            if let Applied::Addressed(_) = applied {
                self.0.on_recorded(&want.uid);
            }
        }
        if want.load_balancer.is_none() {
            self.0.on_forgotten(&want.uid, Instant::now());
        }
        let again = self.plan(want).map(|it| texts(&it));
        assert_eq!(again, Ok(Vec::new()), "planned twice");
        Ok(texts(&steps))
    }

    fn held(&self, want: &Intent) -> Vec<String> {
        let held = self.0.observe(want).held;
        held.iter().map(ToString::to_string).collect()
    }

    fn remarks(&self, want: &Intent) -> Vec<(Code, Severity)> {
        let spec = want.load_balancer.as_ref().expect("a load balancer");
        let remarks = remarks(want, spec, &self.0.observe(want));
        remarks.iter().map(|it| (it.code, it.severity)).collect()
    }
}

fn texts(steps: &[Planned<AddressStep>]) -> Vec<String> {
    steps.iter().map(|it| it.step.to_string()).collect()
}

fn pool(name: &str, ranges: &[&str]) -> Arc<PoolRow> {
    Arc::new(PoolRow {
        name: name.to_owned(),
        addresses: ranges.iter().map(ToString::to_string).collect(),
        auto_assign: true,
        ..PoolRow::default()
    })
}

fn spec(row: &ServiceRow) -> Intent {
    let profile = ProviderProfile {
        target: Target::Pod,
        takes_pools: true,
        ..ProviderProfile::default()
    };
    resolve(row, &World::default(), &profile).expect("a valid Service")
}

fn web(name: &str) -> ServiceRow {
    ServiceRow::clone(&svc(name).port(80).row())
}

fn removal(row: &ServiceRow) -> Intent {
    Intent::removal(row.key.clone(), row.uid.clone())
}

#[test]
fn an_address_is_claimed_before_it_is_used_and_released_after() {
    #[derive(Debug)]
    enum Step {
        Address(AddressStep),
        Announce,
        Withdraw,
    }
    impl From<AddressStep> for Step {
        fn from(step: AddressStep) -> Self {
            Self::Address(step)
        }
    }
    let use_it = |step| Planned {
        step,
        because: String::new(),
        members_only: false,
        claims: false,
    };
    let mut site = Site::with(&["192.0.2.0/30"]);
    let row = web("web");
    let want = spec(&row);
    let publish = |_: &[_]| landfall_model::provider::Published::default();
    let first = plan(&want, &site.0.observe(&want), false, publish).unwrap();
    let steps = first.around(vec![use_it(Step::Announce)]);
    assert!(
        matches!(
            steps.iter().map(|it| &it.step).collect::<Vec<_>>()[..],
            [Step::Address(AddressStep::Claim { .. }), Step::Announce]
        ),
        "{steps:?}"
    );
    site.settle(&want).unwrap();
    let last = plan_removal(&removal(&row), &site.0.observe(&removal(&row)));
    let steps = last.around(vec![use_it(Step::Withdraw)]);
    assert!(
        matches!(
            steps.iter().map(|it| &it.step).collect::<Vec<_>>()[..],
            [Step::Withdraw, Step::Address(AddressStep::Release { .. })]
        ),
        "{steps:?}"
    );
}

#[test]
fn a_change_to_a_taken_address_keeps_the_held_one_and_names_the_holder() {
    let mut site = Site::with(&["192.0.2.0/30"]);
    site.settle(&spec(&web("holder"))).unwrap();
    site.settle(&spec(&web("web"))).unwrap();
    let asking = svc("web")
        .port(80)
        .annotated("landfall.dev/addresses", "192.0.2.0")
        .row();
    let asking = spec(&asking);
    assert_eq!(site.settle(&asking).unwrap(), NOTHING);
    assert_eq!(site.held(&asking), ["192.0.2.1"]);
    assert_eq!(
        site.remarks(&asking),
        [(Code::AddressInUse, Severity::Error)]
    );
}

#[test]
fn a_refusal_names_where_the_address_was_requested() {
    let site = Site::with(&["192.0.2.0/30"]);
    let row = svc("web").port(80).load_balancer_ip("198.51.100.1").row();
    let reasons = site.plan(&spec(&row)).unwrap_err();
    assert_eq!(reasons.len(), 1);
    assert_eq!(reasons[0].code, Code::AddressNotInPool);
    assert_eq!(reasons[0].field.as_deref(), Some("spec.loadBalancerIP"));
    assert_eq!(reasons[0].value.as_deref(), Some("198.51.100.1"));
    assert!(reasons[0].remedy.contains("default"), "{reasons:?}");
}

#[test]
fn a_full_pool_refuses_until_an_address_is_released() {
    let mut site = Site::with(&["192.0.2.1-192.0.2.1"]);
    let (first, second) = (web("a"), web("b"));
    site.settle(&spec(&first)).unwrap();
    let refused = site.plan(&spec(&second)).unwrap_err();
    assert_eq!(refused[0].code, Code::PoolExhausted);
    assert_eq!(
        site.settle(&removal(&first)).unwrap(),
        ["release 192.0.2.1"]
    );
    assert_eq!(
        site.settle(&spec(&second)).unwrap(),
        ["claim 192.0.2.1 from pool default"]
    );
}

#[test]
fn a_released_address_stays_reserved_until_no_record_names_it() {
    let mut site = Site::with(&["192.0.2.1-192.0.2.1"]);
    let (first, second) = (web("a"), web("b"));
    site.settle(&spec(&first)).unwrap();
    let gone = removal(&first);
    for planned in site.plan(&gone).unwrap() {
        site.0.apply(&planned.step, Instant::now()).unwrap();
    }
    assert!(site.plan(&spec(&second)).is_err());
    site.0.on_forgotten(&first.uid, Instant::now());
    assert_eq!(site.settle(&spec(&second)).unwrap().len(), 1);
}

#[test]
fn two_services_with_a_sharing_key_share_an_address() {
    let mut site = Site::with(&["192.0.2.0/30"]);
    let sharing = |name: &str, port| {
        let service = svc(name).port(port);
        spec(&service.annotated("landfall.dev/sharing-key", "k").row())
    };
    let (a, b) = (sharing("a", 80), sharing("b", 81));
    site.settle(&a).unwrap();
    site.settle(&b).unwrap();
    assert_eq!(site.held(&a), site.held(&b));
    // Its new terms are checked against those of the other Service.
    let step = "claim 192.0.2.0 from pool default";
    assert_eq!(site.settle(&sharing("b", 82)).unwrap(), [step]);
    site.settle(&sharing("b", 80)).unwrap();
    assert_ne!(site.held(&a), site.held(&b));
}

fn several(name: &str, count: &str) -> Intent {
    let service = svc(name).port(80);
    spec(&service.annotated("landfall.dev/address-count", count).row())
}

#[test]
fn a_service_gets_as_many_addresses_of_each_family_as_it_wants_at_once() {
    let mut site = Site::with(&["192.0.2.0/29", "2001:db8::1-2001:db8::9"]);
    let both = svc("web")
        .port(80)
        .families(&[Family::V4, Family::V6], FamilyPolicy::RequireDualStack);
    let counted = |count: &str| {
        let row = both.clone().annotated("landfall.dev/address-count", count);
        spec(&row.row())
    };
    let three = counted("3");
    let all = "192.0.2.0, 192.0.2.1, 192.0.2.2, 2001:db8::1, 2001:db8::2, 2001:db8::3";
    let claim = format!("claim {all} from pool default");
    assert_eq!(site.settle(&three).unwrap(), [claim.as_str()]);
    assert_eq!(site.held(&three).join(", "), all);

    // Fewer: the last ones go, and are free once no record names them.
    let one = counted("1");
    assert_eq!(
        site.settle(&one).unwrap(),
        [
            "keep 192.0.2.0, 2001:db8::1 alone",
            "release 192.0.2.1, 192.0.2.2, 2001:db8::2, 2001:db8::3"
        ]
    );
    assert_eq!(site.held(&one), ["192.0.2.0", "2001:db8::1"]);
    let other = several("other", "2");
    site.settle(&other).unwrap();
    assert_eq!(site.held(&other), ["192.0.2.1", "192.0.2.2"]);
    let removed = site.settle(&removal(&web("other"))).unwrap();
    assert_eq!(removed, ["release 192.0.2.1, 192.0.2.2"]);
    assert_eq!(site.held(&other), NOTHING);
    // More: the first ones stay.
    assert_eq!(site.settle(&three).unwrap(), [claim.as_str()]);
    assert_eq!(site.held(&three).join(", "), all);
}

#[test]
fn several_addresses_of_a_family_are_kept_over_a_restart_in_their_order() {
    let mut site = Site::with(&["192.0.2.0/29"]);
    let want = several("web", "3");
    let mut claim = claim_of(&web("web"), "192.0.2.5");
    let further = ["192.0.2.3", "192.0.2.4", "192.0.2.5"];
    let further = further.map(|it| it.parse::<IpAddr>().expect("an address"));
    claim.addresses.extend(further);
    site.0.restore_claims(&[claim]);
    assert_eq!(site.settle(&want).unwrap(), NOTHING);
    assert_eq!(site.held(&want), ["192.0.2.5", "192.0.2.3", "192.0.2.4"]);
    for number in 0..5 {
        let other = spec(&web(&format!("other-{number}")));
        site.settle(&other).unwrap();
        assert!(!site.held(&want).contains(&site.held(&other)[0]));
    }
    // A record of less, as another process left it, is what counts then.
    site.0.restore_claims(&[claim_of(&web("web"), "192.0.2.5")]);
    assert_eq!(site.held(&want), ["192.0.2.5"]);
}

#[test]
fn a_service_gets_all_of_its_addresses_or_none_and_keeps_what_it_has() {
    let mut site = Site::with(&["192.0.2.1-192.0.2.3"]);
    site.settle(&spec(&web("other"))).unwrap();
    let want = several("web", "3");
    let refused = site.settle(&want).unwrap_err();
    assert_eq!(refused[0].code, Code::PoolExhausted);
    assert_eq!(site.held(&want), NOTHING);
    site.settle(&several("web", "1")).unwrap();
    assert_eq!(site.settle(&want).unwrap(), NOTHING);
    assert_eq!(site.held(&want), ["192.0.2.2"]);
    let remarks = site.remarks(&want);
    assert_eq!(remarks, [(Code::PoolExhausted, Severity::Error)]);
    site.settle(&removal(&web("other"))).unwrap();
    site.settle(&want).unwrap();
    assert_eq!(site.held(&want), ["192.0.2.2", "192.0.2.1", "192.0.2.3"]);
    assert_eq!(site.remarks(&want), []);
}

#[test]
fn several_addresses_can_be_requested_by_name() {
    let mut site = Site::with(&["192.0.2.0/29", "2001:db8::/125"]);
    site.settle(&spec(&web("other"))).unwrap();
    let named = |addresses: &str| {
        let service = svc("web").port(80);
        spec(&service.annotated("landfall.dev/addresses", addresses).row())
    };
    let want = named("192.0.2.5, 192.0.2.3");
    let claim = "claim 192.0.2.5, 192.0.2.3 from pool default";
    assert_eq!(site.settle(&want).unwrap(), [claim]);
    // Another order, or one less, moves nothing.
    assert_eq!(
        site.settle(&named("192.0.2.3, 192.0.2.5")).unwrap(),
        NOTHING
    );
    site.settle(&named("192.0.2.3")).unwrap();
    assert_eq!(site.held(&want), ["192.0.2.3"]);
    // One of them has another Service: what is held stays.
    let taken = named("192.0.2.3, 192.0.2.0");
    assert_eq!(site.settle(&taken).unwrap(), NOTHING);
    let remarks = site.remarks(&taken);
    assert_eq!(remarks, [(Code::AddressInUse, Severity::Error)]);
    // A Service without any gets all of them or none.
    let fresh = svc("fresh").port(80);
    let fresh = fresh.annotated("landfall.dev/addresses", "192.0.2.6, 192.0.2.0");
    let fresh = spec(&fresh.row());
    let refused = site.settle(&fresh).unwrap_err();
    assert_eq!(refused[0].code, Code::AddressInUse);
    assert_eq!(site.held(&fresh), NOTHING);
    site.settle(&removal(&web("other"))).unwrap();
    site.settle(&taken).unwrap();
    assert_eq!(site.held(&taken), ["192.0.2.3", "192.0.2.0"]);
}

#[test]
fn requested_addresses_replace_others_all_at_once_or_not_at_all() {
    let mut site = Site::with(&["192.0.2.0/29"]);
    site.settle(&spec(&web("other"))).unwrap();
    let named = |addresses: &str| {
        let service = svc("web").port(80);
        spec(&service.annotated("landfall.dev/addresses", addresses).row())
    };
    let before = ["192.0.2.2", "192.0.2.1"];
    site.settle(&named("192.0.2.2, 192.0.2.1")).unwrap();
    // The first is held by another Service: as one of several that move, and as one more.
    for taken in [
        "192.0.2.0, 192.0.2.5",
        "192.0.2.5, 192.0.2.0",
        "192.0.2.4, 192.0.2.5, 192.0.2.0",
        "192.0.2.0, 192.0.2.4, 192.0.2.5",
    ] {
        let want = named(taken);
        assert_eq!(site.settle(&want).unwrap(), NOTHING, "{taken}");
        assert_eq!(site.held(&want), before, "{taken}");
        let remarks = site.remarks(&want);
        assert_eq!(remarks, [(Code::AddressInUse, Severity::Error)], "{taken}");
    }
    site.settle(&removal(&web("other"))).unwrap();
    let want = named("192.0.2.0, 192.0.2.5");
    site.settle(&want).unwrap();
    assert_eq!(site.held(&want), ["192.0.2.0", "192.0.2.5"]);
}

#[test]
fn requested_addresses_of_both_families_stay_where_they_are_held() {
    let mut site = Site::with(&["192.0.2.0/29", "2001:db8::/125"]);
    let named = |addresses: &str| {
        let service = svc("web")
            .port(80)
            .families(&[Family::V4, Family::V6], FamilyPolicy::RequireDualStack);
        spec(&service.annotated("landfall.dev/addresses", addresses).row())
    };
    let want = named("192.0.2.1, 2001:db8::1, 192.0.2.2, 2001:db8::2");
    site.settle(&want).unwrap();
    let held = ["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"];
    assert_eq!(site.held(&want), held);
    let crossed = named("192.0.2.1, 2001:db8::2, 192.0.2.2, 2001:db8::1");
    assert_eq!(site.settle(&crossed).unwrap(), NOTHING);
    let other = named("192.0.2.2, 2001:db8::2, 192.0.2.3, 2001:db8::1");
    site.settle(&other).unwrap();
    let held = ["192.0.2.3", "192.0.2.2", "2001:db8::1", "2001:db8::2"];
    assert_eq!(site.held(&other), held);
}

#[test]
fn several_addresses_come_from_the_first_pool_that_has_all_of_them() {
    let mut site = Site::default();
    let (small, large) = (
        pool("a", &["192.0.2.1-192.0.2.1"]),
        pool("b", &["198.51.100.0/30"]),
    );
    assert_eq!(site.0.set_pools(&[small.clone(), large]), []);
    let want = several("web", "2");
    let claim = "claim 198.51.100.0, 198.51.100.1 from pool b";
    assert_eq!(site.settle(&want).unwrap(), [claim]);
    // They move together, or those that can't are given up.
    site.0.set_pools(&[small, pool("c", &["203.0.113.0/31"])]);
    site.settle(&want).unwrap();
    assert_eq!(site.held(&want), ["192.0.2.1"]);
    site.settle(&removal(&web("web"))).unwrap();
    site.settle(&want).unwrap();
    assert_eq!(site.held(&want), ["203.0.113.0", "203.0.113.1"]);
}

#[test]
fn a_pool_that_shrinks_takes_only_those_addresses_that_it_does_not_have_any_more() {
    let mut site = Site::with(&["192.0.2.0-192.0.2.2"]);
    let want = several("web", "3");
    site.settle(&want).unwrap();
    site.0
        .set_pools(&[pool("default", &["192.0.2.0/32", "192.0.2.2/32"])]);
    let steps = site.settle(&want).unwrap();
    assert_eq!(
        steps,
        ["keep 192.0.2.0, 192.0.2.2 alone", "release 192.0.2.1"]
    );
    assert_eq!(
        site.remarks(&want),
        [(Code::PoolExhausted, Severity::Error)]
    );
    site.0.set_pools(&[pool("default", &["192.0.2.0/29"])]);
    site.settle(&want).unwrap();
    assert_eq!(site.held(&want), ["192.0.2.0", "192.0.2.2", "192.0.2.1"]);
}

#[test]
fn a_pool_that_is_split_moves_no_address_that_another_pool_has() {
    let mut site = Site::with(&["192.0.2.0/28"]);
    let service = svc("web").port(80);
    let service = service.annotated("landfall.dev/addresses", "192.0.2.8, 192.0.2.9");
    site.settle(&spec(&service.row())).unwrap();
    site.0.set_pools(&[
        pool("default", &["192.0.2.0/29"]),
        pool("upper", &["192.0.2.8/29"]),
    ]);
    let want = several("web", "2");
    site.settle(&want).unwrap();
    assert_eq!(site.held(&want), ["192.0.2.8", "192.0.2.9"]);
}

#[test]
fn the_quota_of_a_namespace_counts_each_address() {
    let mut site = Site::default();
    let limited = PoolRow {
        addresses_per_namespace: Some(3),
        ..PoolRow::clone(&pool("default", &["192.0.2.0/24"]))
    };
    site.0.set_pools(&[Arc::new(limited)]);
    site.settle(&several("web", "2")).unwrap();
    assert!(site.settle(&several("other", "2")).is_err());
    site.settle(&several("other", "1")).unwrap();
    assert!(site.settle(&spec(&web("third"))).is_err());
}

#[test]
fn what_a_smaller_count_releases_cools_down() {
    let mut site = Site::default();
    let cooled = PoolRow {
        cool_down: Some(Duration::from_secs(90)),
        ..PoolRow::clone(&pool("default", &["192.0.2.0/31"]))
    };
    site.0.set_pools(&[Arc::new(cooled)]);
    site.settle(&several("web", "2")).unwrap();
    site.settle(&several("web", "1")).unwrap();
    assert!(site.settle(&spec(&web("other"))).is_err());
    site.0.warm(Instant::now() + Duration::from_secs(91));
    site.settle(&spec(&web("other"))).unwrap();
    assert_eq!(site.held(&spec(&web("other"))), ["192.0.2.1"]);
}

#[test]
fn services_with_a_sharing_key_share_each_of_several_addresses() {
    let mut site = Site::with(&["192.0.2.0/30"]);
    let sharing = |name: &str, port| {
        let service = svc(name).port(port);
        let service = service.annotated("landfall.dev/sharing-key", "k");
        spec(&service.annotated("landfall.dev/address-count", "2").row())
    };
    let (a, b, c) = (sharing("a", 80), sharing("b", 81), sharing("c", 80));
    for want in [&a, &b, &c] {
        site.settle(want).unwrap();
    }
    assert_eq!(site.held(&a), ["192.0.2.0", "192.0.2.1"]);
    assert_eq!(site.held(&b), site.held(&a));
    assert_eq!(site.held(&c), ["192.0.2.2", "192.0.2.3"]);
    // Other ports are new terms for all of its addresses.
    assert_eq!(site.settle(&sharing("b", 82)).unwrap().len(), 1);
    assert_eq!(site.held(&b), site.held(&a));
}

#[test]
fn nothing_is_claimed_where_another_service_came_first() {
    let mut site = Site::with(&["192.0.2.0-192.0.2.2"]);
    let want = several("web", "3");
    let steps = site.plan(&want).unwrap();
    let mut late = claim_of(&web("other"), "192.0.2.2");
    late.sharing_key = None;
    site.0.restore_claims(&[late]);
    assert!(site.0.apply(&steps[0].step, Instant::now()).is_err());
    assert_eq!(site.held(&want), NOTHING);
    // What it had for a moment is cleared away.
    let steps = site.plan(&want).unwrap();
    assert_eq!(
        texts(&steps),
        [
            "record that it has no address",
            "release 192.0.2.0, 192.0.2.1"
        ]
    );
    for planned in &steps {
        site.0.apply(&planned.step, Instant::now()).unwrap();
        site.0.on_recorded(&want.uid);
    }
    site.settle(&several("third", "2")).unwrap();
}

#[test]
fn of_several_addresses_a_service_keeps_the_one_that_it_asks_for() {
    let mut site = Site::with(&["192.0.2.0/29"]);
    site.settle(&several("web", "3")).unwrap();
    let asking = svc("web").port(80);
    let asking = spec(
        &asking
            .annotated("landfall.dev/addresses", "192.0.2.1")
            .row(),
    );
    assert_eq!(
        site.settle(&asking).unwrap(),
        ["keep 192.0.2.1 alone", "release 192.0.2.0, 192.0.2.2"]
    );
}

#[test]
fn what_others_publish_is_reserved_also_where_it_is_several_addresses_of_a_family() {
    let mut site = Site::with(&["192.0.2.1-192.0.2.4"]);
    let theirs = web("theirs");
    let mut claim = claim_of(&theirs, "192.0.2.2");
    claim.addresses.push("192.0.2.1".parse().unwrap());
    site.0.set_foreign_claim(&theirs.uid, Some(&claim));
    let want = several("web", "2");
    site.settle(&want).unwrap();
    assert_eq!(site.held(&want), ["192.0.2.3", "192.0.2.4"]);
    site.0.set_foreign_claim(&theirs.uid, None);
    let other = several("other", "2");
    site.settle(&other).unwrap();
    assert_eq!(site.held(&other), ["192.0.2.1", "192.0.2.2"]);
}

#[test]
fn one_family_serves_a_service_that_prefers_both() {
    let mut site = Site::with(&["192.0.2.0/30"]);
    for (policy, severity) in [
        (FamilyPolicy::PreferDualStack, Some(Severity::Warning)),
        (FamilyPolicy::SingleStack, None),
    ] {
        let row = svc(&format!("{policy:?}").to_lowercase())
            .port(80)
            .families(&[Family::V4, Family::V6], policy)
            .row();
        let intent = spec(&row);
        assert_eq!(site.settle(&intent).unwrap().len(), 1);
        let severities = site.remarks(&intent).into_iter().map(|(_, it)| it);
        assert_eq!(severities.collect::<Vec<_>>(), Vec::from_iter(severity));
    }
}

#[test]
fn claims_on_record_are_restored() {
    let mut site = Site::with(&["192.0.2.0/29"]);
    let row = web("web");
    site.0.restore_claims(&[claim_of(&row, "192.0.2.6")]);
    assert_eq!(site.settle(&spec(&row)).unwrap(), NOTHING);
    assert_eq!(site.held(&spec(&row)), ["192.0.2.6"]);
}

#[test]
fn a_pool_with_a_typo_stays_as_it_was() {
    let mut site = Site::with(&["192.0.2.0/30"]);
    let want = spec(&web("web"));
    site.settle(&want).unwrap();
    let problems = site.0.set_pools(&[pool("default", &["192.0.2.0/33"])]);
    let codes: Vec<_> = problems.iter().map(|it| it.code).collect();
    assert_eq!(codes, [Code::InvalidPool]);
    assert_eq!(site.settle(&want).unwrap(), NOTHING);
    assert_eq!(site.settle(&spec(&web("other"))).unwrap().len(), 1);
}

#[test]
fn claims_of_services_that_are_not_served_here_are_neither_assigned_nor_released() {
    let mut site = Site::with(&["192.0.2.1-192.0.2.2"]);
    let lost = web("lost");
    let claim = claim_of(&lost, "192.0.2.1");
    site.0.set_foreign_claim(&lost.uid, Some(&claim));
    let (want_web, want_api) = (spec(&web("web")), spec(&web("api")));
    site.settle(&want_web).expect("one address is left");
    assert_eq!(site.held(&want_web), ["192.0.2.2"]);
    let refused = site.plan(&want_api).expect_err("nothing is left");
    assert_eq!(refused[0].code, Code::PoolExhausted);
    assert_eq!(
        site.plan(&removal(&lost)).map(|it| texts(&it)),
        Ok(Vec::new())
    );

    // It is gone.
    site.0.set_foreign_claim(&lost.uid, None);
    site.settle(&want_api).expect("one address is left");
    assert_eq!(site.held(&want_api), ["192.0.2.1"]);
}

#[test]
fn a_claim_of_others_follows_the_addresses_that_they_publish() {
    let mut site = Site::with(&["192.0.2.1-192.0.2.2"]);
    let theirs = web("theirs");
    for address in ["192.0.2.1", "192.0.2.2"] {
        let claim = claim_of(&theirs, address);
        site.0.set_foreign_claim(&theirs.uid, Some(&claim));
    }
    let want = spec(&web("web"));
    site.settle(&want).expect("the first one is free again");
    assert_eq!(site.held(&want), ["192.0.2.1"]);
    assert!(site.plan(&spec(&web("api"))).is_err());
}

#[test]
fn what_others_publish_is_theirs_once_the_service_that_held_it_is_gone() {
    let mut site = Site::with(&["192.0.2.1-192.0.2.2"]);
    let ours = web("ours");
    site.settle(&spec(&ours)).unwrap();
    assert_eq!(site.held(&spec(&ours)), ["192.0.2.1"]);
    let theirs = web("theirs");
    let claim = claim_of(&theirs, "192.0.2.1");
    site.0.set_foreign_claim(&theirs.uid, Some(&claim));
    assert_eq!(site.settle(&spec(&ours)).unwrap(), NOTHING);
    for planned in site.plan(&removal(&ours)).unwrap() {
        site.0.apply(&planned.step, Instant::now()).unwrap();
    }
    site.0.on_forgotten(&ours.uid, Instant::now());

    let (first, second) = (spec(&web("first")), spec(&web("second")));
    site.settle(&first).unwrap();
    assert_eq!(site.held(&first), ["192.0.2.2"]);
    assert!(site.plan(&second).is_err());
    site.0.set_foreign_claim(&theirs.uid, None);
    site.settle(&second).unwrap();
    assert_eq!(site.held(&second), ["192.0.2.1"]);
}

#[test]
fn a_service_that_comes_back_from_another_instance_keeps_its_address() {
    let mut site = Site::with(&["192.0.2.1-192.0.2.9"]);
    let lost = web("lost");
    let claim = claim_of(&lost, "192.0.2.5");
    site.0.set_foreign_claim(&lost.uid, Some(&claim));
    site.0.restore_claims(&[claim]);
    site.0.set_foreign_claim(&lost.uid, None);
    site.settle(&spec(&lost)).expect("it has an address");
    assert_eq!(site.held(&spec(&lost)), ["192.0.2.5"]);
}

#[test]
fn a_pool_that_is_invalid_at_the_start_moves_no_service() {
    let mut site = Site::default();
    let row = web("web");
    let good = pool("good", &["192.0.2.0/30"]);
    let typo = pool("typo", &["198.51.100.0/240"]);
    assert_eq!(site.0.set_pools(&[good.clone(), typo]).len(), 1);
    site.0.restore_claims(&[claim_of(&row, "198.51.100.9")]);
    let (want, want_new) = (spec(&row), spec(&web("new")));
    site.settle(&want).expect("it keeps what it has");
    assert_eq!(site.held(&want), ["198.51.100.9"]);
    assert_eq!(
        site.remarks(&want),
        [(Code::PoolsIncomplete, Severity::Warning)]
    );
    site.settle(&want_new).expect("one pool is good");
    assert_eq!(site.held(&want_new), ["192.0.2.0"]);

    let corrected = pool("typo", &["198.51.100.0/24"]);
    assert_eq!(site.0.set_pools(&[good, corrected]), []);
    assert_eq!(site.plan(&want).map(|it| texts(&it)), Ok(Vec::new()));
    assert_eq!(site.remarks(&want), []);
}

#[test]
fn a_source_that_may_hide_pools_moves_no_service_until_it_can_be_read() {
    let mut site = Site::default();
    let row = web("web");
    site.0.set_pools_incomplete(true);
    assert_eq!(site.0.set_pools(&[pool("good", &["192.0.2.0/30"])]), []);
    site.0.restore_claims(&[claim_of(&row, "198.51.100.9")]);
    let want = spec(&row);
    site.settle(&want).expect("it keeps what it has");
    assert_eq!(site.held(&want), ["198.51.100.9"]);

    site.0.set_pools_incomplete(false);
    assert_eq!(site.0.set_pools(&[pool("good", &["192.0.2.0/30"])]), []);
    site.settle(&want).expect("it moves");
    assert_eq!(site.held(&want), ["192.0.2.0"]);
}

#[test]
fn a_clone_changes_nothing_outside_itself() {
    let site = Site::with(&["192.0.2.0/30"]);
    let want = spec(&web("web"));
    Site(site.0.clone()).settle(&want).unwrap();
    assert_eq!(site.held(&want), NOTHING);
}

#[test]
fn a_released_address_is_given_to_another_service_after_its_pool_lets_it_and_at_once_to_the_same() {
    let minute = Duration::from_secs(60);
    let row = PoolRow {
        cool_down: Some(minute),
        ..PoolRow::clone(&pool("default", &["192.0.2.0/31"]))
    };
    let mut site = Site::default();
    assert_eq!(site.0.set_pools(&[Arc::new(row)]), []);
    let (first, second) = (web("first"), web("second"));
    let began = Instant::now();
    site.settle(&spec(&first)).unwrap();
    site.settle(&removal(&first)).unwrap();
    assert_eq!(
        site.settle(&spec(&second)).unwrap(),
        ["claim 192.0.2.1 from pool default"]
    );
    // The only one that is left cools down.
    let third = spec(&web("third"));
    let refused = site.settle(&third).unwrap_err();
    assert_eq!(refused[0].code, Code::PoolExhausted);
    let due = site.0.next_warm().unwrap();
    assert!(due >= began + minute);
    site.0
        .warm(due.checked_sub(Duration::from_nanos(1)).unwrap());
    assert!(site.settle(&third).is_err());
    site.0.warm(due);
    assert_eq!(site.0.next_warm(), None);
    assert_eq!(
        site.settle(&third).unwrap(),
        ["claim 192.0.2.0 from pool default"]
    );
    // A Service that comes back to its address does not wait.
    site.settle(&removal(&second)).unwrap();
    let second = svc("second")
        .port(80)
        .annotated("landfall.dev/addresses", "192.0.2.1")
        .row();
    assert_eq!(
        site.settle(&spec(&second)).unwrap(),
        ["claim 192.0.2.1 from pool default"]
    );
    let asked = svc("fourth")
        .port(80)
        .annotated("landfall.dev/addresses", "192.0.2.1")
        .row();
    site.settle(&removal(&second)).unwrap();
    let refused = site.settle(&spec(&asked)).unwrap_err();
    assert_eq!(refused[0].code, Code::AddressInUse);
    assert!(
        refused[0].message.contains("released recently"),
        "{refused:?}"
    );
}

#[test]
fn an_address_that_an_earlier_process_released_is_kept_unless_a_service_has_it_on_record() {
    let minute = Duration::from_secs(60);
    let row = PoolRow {
        cool_down: Some(minute),
        ..PoolRow::clone(&pool("default", &["192.0.2.0/31"]))
    };
    let mut site = Site::default();
    assert_eq!(site.0.set_pools(&[Arc::new(row)]), []);
    let until = Instant::now() + minute;
    let service = || ServiceKey::new("shop", "gone");
    for address in ["192.0.2.0", "192.0.2.1"] {
        let address = address.parse().unwrap();
        assert!(site.0.restore_cooling(address, service(), until));
        assert!(!site.0.restore_cooling(address, service(), until), "twice");
    }
    let outside = "198.51.100.1".parse().unwrap();
    assert!(!site.0.restore_cooling(outside, service(), until));
    let shown: Vec<_> = site.0.cooling().map(|it| it.2.to_string()).collect();
    assert_eq!(shown, ["shop/gone", "shop/gone"]);
    // One that a Service has on record was assigned again.
    let held = svc("held").port(80).holding("192.0.2.0").row();
    site.0.restore_claims(&[claim_of(&held, "192.0.2.0")]);
    assert_eq!(site.held(&spec(&held)), ["192.0.2.0"]);
    assert_eq!(site.0.cooling().count(), 1);
    let waits = spec(&web("waits"));
    let refused = site.settle(&waits).unwrap_err();
    assert_eq!(refused[0].code, Code::PoolExhausted);
    site.0.warm(until);
    assert_eq!(
        site.settle(&waits).unwrap(),
        ["claim 192.0.2.1 from pool default"]
    );
}

#[test]
fn a_pool_that_does_not_ask_for_it_keeps_no_address() {
    let mut site = Site::with(&["192.0.2.0/31"]);
    let address = "192.0.2.0".parse().unwrap();
    let service = ServiceKey::new("shop", "gone");
    assert!(!site.0.restore_cooling(address, service, Instant::now()));
}

/// Carries a plan out of which nothing can be recorded: it breaks off at the first record.
fn fail_to_record(site: &mut Site, want: &Intent) {
    for planned in site.plan(want).expect("a plan") {
        let applied = site
            .0
            .apply(&planned.step, Instant::now())
            .expect("no other Service claims");
        if let Applied::Addressed(_) = applied {
            return;
        }
    }
}

#[test]
fn a_service_that_comes_back_before_its_end_is_recorded_gets_its_own_address_back() {
    for range in ["192.0.2.1-192.0.2.1", "192.0.2.1-192.0.2.9"] {
        let mut site = Site::with(&[range]);
        let (first, second) = (web("a"), web("b"));
        if range.ends_with('9') {
            site.settle(&spec(&second)).unwrap();
        }
        site.settle(&spec(&first)).unwrap();
        let before = site.held(&spec(&first));
        if range.ends_with('9') {
            // A lower address is free by then.
            site.settle(&removal(&second)).unwrap();
        }
        fail_to_record(&mut site, &removal(&first));
        assert_eq!(site.held(&spec(&first)), NOTHING);
        fail_to_record(&mut site, &spec(&first));
        assert_eq!(site.held(&spec(&first)), before);
        site.settle(&spec(&first)).unwrap();
        assert_eq!(site.held(&spec(&first)), before);
        assert_eq!(site.0.observe(&spec(&first)).leaving.len(), 0);
    }
}

#[test]
fn a_service_goes_back_to_what_is_on_record_from_a_claim_that_never_was() {
    let mut site = Site::with(&["192.0.2.1-192.0.2.9"]);
    let row = web("a");
    site.settle(&spec(&row)).unwrap();
    let asking = svc("a").port(80);
    let asking = asking
        .annotated("landfall.dev/addresses", "192.0.2.6")
        .row();
    for _ in 0..2 {
        fail_to_record(&mut site, &spec(&asking));
        assert_eq!(site.held(&spec(&asking)), ["192.0.2.6"], "asked for");
    }
    let why = site.0.observe(&spec(&row));
    let outcome = why.answer.unwrap().outcome.unwrap();
    assert_eq!(
        outcome.decision.why().unwrap().to_string(),
        "it is still on record with 192.0.2.1"
    );
    fail_to_record(&mut site, &spec(&row));
    assert_eq!(site.held(&spec(&row)), ["192.0.2.1"]);
    // What it never had on record is reserved until the record is known.
    let other = svc("b").port(80);
    let other = other.annotated("landfall.dev/addresses", "192.0.2.6").row();
    assert!(site.plan(&spec(&other)).is_err());
    site.settle(&spec(&row)).unwrap();
    site.settle(&spec(&other)).unwrap();
    // Once it is recorded it stays where it is.
    let mut site = Site::with(&["192.0.2.1-192.0.2.9"]);
    site.settle(&spec(&row)).unwrap();
    site.settle(&spec(&asking)).unwrap();
    assert_eq!(site.settle(&spec(&row)).unwrap(), NOTHING);
    assert_eq!(site.held(&spec(&row)), ["192.0.2.6"]);
}

#[test]
fn a_service_that_comes_back_without_its_pool_is_served_as_one_that_never_went() {
    let others = || pool("others", &["203.0.113.1-203.0.113.2"]);
    let cases: [(&[Arc<PoolRow>], bool, &str); 3] = [
        (&[], false, "192.0.2.1"),
        (&[others()], true, "192.0.2.1"),
        (&[others()], false, "203.0.113.1"),
    ];
    for (pools, incomplete, after) in cases {
        let mut moved = Site::with(&["192.0.2.1-192.0.2.9"]);
        let mut back = Site::with(&["192.0.2.1-192.0.2.9"]);
        let row = web("a");
        moved.settle(&spec(&row)).unwrap();
        back.settle(&spec(&row)).unwrap();
        fail_to_record(&mut back, &removal(&row));
        for site in [&mut moved, &mut back] {
            site.0.set_pools_incomplete(incomplete);
            site.0.set_pools(pools);
            site.settle(&spec(&row)).unwrap();
            assert_eq!(site.held(&spec(&row)), [after], "{pools:?} {incomplete}");
            assert_eq!(site.0.observe(&spec(&row)).leaving.len(), 0);
        }
    }
}

#[test]
fn a_service_that_comes_back_to_other_pools_that_are_full_waits() {
    let mut site = Site::with(&["192.0.2.1-192.0.2.9"]);
    let (row, other) = (web("a"), web("b"));
    site.settle(&spec(&row)).unwrap();
    fail_to_record(&mut site, &removal(&row));
    site.0
        .set_pools(&[pool("others", &["203.0.113.1-203.0.113.1"])]);
    site.settle(&spec(&other)).unwrap();
    // That it holds nothing is put on record before it is refused.
    let want = spec(&row);
    for planned in site.plan(&want).unwrap() {
        site.0.apply(&planned.step, Instant::now()).unwrap();
        site.0.on_recorded(&want.uid);
    }
    let refused = site.plan(&want).unwrap_err();
    assert_eq!(refused[0].code, Code::PoolExhausted);
    assert_eq!(site.0.observe(&want).leaving.len(), 0);
}

#[test]
fn each_part_of_a_claim_comes_back_to_what_its_record_names() {
    let counted = |count: &str, asks: Option<&str>| {
        let mut service = svc("a").port(80);
        service = service.annotated("landfall.dev/address-count", count);
        if let Some(addresses) = asks {
            service = service.annotated("landfall.dev/addresses", addresses);
        }
        spec(&service.row())
    };
    let both = ["192.0.2.1", "192.0.2.2"];
    let site = || {
        let mut site = Site::with(&["192.0.2.1-192.0.2.9"]);
        site.settle(&counted("2", None)).unwrap();
        assert_eq!(site.held(&counted("2", None)), both);
        site
    };
    // Only the second is left, and goes and comes back, whether or not it is asked for.
    for again in [Some("192.0.2.2"), None] {
        let mut site = site();
        let second = counted("1", Some("192.0.2.2"));
        site.settle(&second).unwrap();
        assert_eq!(site.held(&second), ["192.0.2.2"]);
        fail_to_record(&mut site, &removal(&svc("a").row()));
        let back = counted("1", again);
        fail_to_record(&mut site, &back);
        assert_eq!(site.held(&back), ["192.0.2.2"]);
        site.settle(&back).unwrap();
    }
    // An edit that gives the first one up is undone.
    let mut site = site();
    let second = counted("1", Some("192.0.2.2"));
    fail_to_record(&mut site, &second);
    assert_eq!(site.held(&second), ["192.0.2.2"]);
    fail_to_record(&mut site, &counted("2", None));
    assert_eq!(site.held(&counted("2", None)), both);
    // All of it goes, and comes back asking for what it had.
    fail_to_record(&mut site, &removal(&svc("a").row()));
    let asking = counted("2", Some("192.0.2.2,192.0.2.1"));
    fail_to_record(&mut site, &asking);
    assert_eq!(site.held(&asking), both);
}
