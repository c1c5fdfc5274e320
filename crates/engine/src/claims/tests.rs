use std::sync::Arc;

use jiff::Timestamp;
use landfall_model::provider::{ProviderError, ProviderProfile, ProviderStatus, ProviderStep};
use landfall_model::recorded::{RECORDED, vouch};
use landfall_model::rows::Fact;
use landfall_model::status::{Condition, INSTANCE, IngressAddress};
use landfall_model::wire::{Service, accepted_to_text};
use landfall_model::{Applied, Intent, Plan, Protocol};
use landfall_testkit::build::{ServiceBuilder, ip, number};
use landfall_testkit::svc;
use serde::Serialize;

use super::*;

/// A provider of which only the abilities matter.
struct Paper(ProviderProfile);

/// This provider has no steps.
#[derive(Debug, Serialize)]
enum Never {}

impl std::fmt::Display for Never {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {}
    }
}

impl ProviderStep for Never {
    fn kind(&self) -> &'static str {
        match *self {}
    }
}

impl Provider for Paper {
    type Observed = ();
    type Step = Never;

    fn profile(&self) -> &ProviderProfile {
        &self.0
    }

    async fn observe(&self, _: &Intent) -> Result<(), ProviderError> {
        Ok(())
    }

    fn plan(&self, _: &Intent, (): &()) -> Result<Plan<Never>, Vec<Reason>> {
        Ok(Plan::default())
    }

    async fn apply(&self, step: &Never) -> Result<Applied, ProviderError> {
        match *step {}
    }

    fn status(&self, _: &Intent, (): &()) -> ProviderStatus {
        ProviderStatus::default()
    }

    async fn audit(&self) -> Result<Vec<Uid>, ProviderError> {
        Ok(Vec::new())
    }
}

fn providers(takes_pools: &[bool]) -> Vec<Arc<Paper>> {
    let paper = |takes_pools: &bool| {
        Arc::new(Paper(ProviderProfile {
            takes_pools: *takes_pools,
            ..ProviderProfile::default()
        }))
    };
    takes_pools.iter().map(paper).collect()
}

fn recorded(rows: Vec<Arc<ServiceRow>>) -> RecordedClaims {
    let mut world = World::default();
    for row in rows {
        world.apply(Fact::Service(row));
    }
    on_record(&world, &Classes::only("local"), &providers(&[true]))
}

fn web() -> ServiceBuilder {
    svc("web").port(80)
}

fn marked(key: &str, value: &str) -> impl FnOnce(&mut ServiceRow) {
    let mark = (key.to_owned(), value.to_owned());
    |row| row.status.marks.extend([mark])
}

fn publishing_a_name(row: &mut ServiceRow) {
    row.status.ingress = vec![IngressAddress {
        hostname: Some("web.example.com".to_owned()),
        ..IngressAddress::default()
    }];
}

fn programmed(row: &mut ServiceRow) {
    row.status.conditions = vec![Condition::met(
        ConditionType::Programmed,
        Code::Ready,
        "traffic flows",
        Timestamp::UNIX_EPOCH,
    )];
}

/// Service and address of each claim.
fn names(record: &RecordedClaims) -> Vec<String> {
    let claims = record.claims.iter().flatten();
    claims
        .map(|claim| format!("{} {:?}", claim.service.name(), claim.addresses))
        .collect()
}

#[test]
fn a_claim_is_read_from_the_service_however_wrong_it_is_otherwise() {
    let row = web()
        .holding("192.0.2.1")
        .annotated("landfall.dev/sharing-key", "front")
        .annotated("landfall.dev/addresses", "192.0.2.1")
        .annotated("landfall.dev/mode", "sideways")
        .annotated("landfall.dev/tls-secret", "missing")
        .local()
        .selecting("app", "web")
        .row();
    assert_eq!(
        claim(&row),
        Some(Claim {
            service: row.key.clone(),
            uid: row.uid.clone(),
            addresses: vec![ip("192.0.2.1")],
            requested: vec![ip("192.0.2.1")],
            sharing_key: Some("front".to_owned()),
            backend_key: "app=web".to_owned(),
            ports: vec![ListenerKey {
                protocol: Protocol::Tcp,
                port: number(80),
            }],
        })
    );
}

#[test]
fn an_address_that_the_field_asks_for_is_requested_and_nonsense_there_is_not() {
    let asking = |text: &str| {
        let row = web().holding("192.0.2.1").load_balancer_ip(text).row();
        claim(&row).unwrap().requested
    };
    assert_eq!(asking(" 192.0.2.7 "), [ip("192.0.2.7")]);
    assert_eq!(asking("tomorrow"), [] as [IpAddr; 0]);
}

#[test]
fn a_service_that_publishes_a_name_holds_what_is_noted_beside_it() {
    let row = web()
        .with(publishing_a_name)
        .with(marked(HELD_ADDRESSES, "192.0.2.1, x,2001:db8::1,"))
        .row();
    let held = claim(&row).unwrap().addresses;
    assert_eq!(held, [ip("192.0.2.1"), ip("2001:db8::1")]);
    let complaints = complaints(&row);
    assert_eq!(complaints.len(), 1, "{complaints:?}");
    assert_eq!(complaints[0].value.as_deref(), Some("x"));
    let unnoted = web().with(publishing_a_name).row();
    assert_eq!(claim(&unnoted), None);
}

/// A Service as the API server has it, with annotations that say that it holds `192.0.2.1`, and
/// that another version of it was accepted.
fn admitted(class: Option<&str>, vouched: bool) -> ServiceRow {
    let text = accepted_to_text(&web().row()).unwrap();
    let mut object = serde_json::json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "u", "annotations": {
            (HELD_ADDRESSES): "192.0.2.1", (ACCEPTED_VERSION): text,
            "state.landfall.dev/instance": "gone", "landfall.dev/addresses": "192.0.2.1",
            "landfall.dev/drain": "never"}},
        "spec": {"type": "LoadBalancer", "loadBalancerClass": class, "ports": [{"port": 80}]},
    });
    if vouched {
        let annotations = object["metadata"]["annotations"].clone();
        let marks = serde_json::from_value(annotations).unwrap();
        object["status"] = serde_json::json!({"conditions": [{
            "type": RECORDED, "status": "True", "message": vouch("u", &marks)}]});
    }
    serde_json::from_value::<Service>(object)
        .unwrap()
        .into_admitted_row()
}

#[test]
fn annotations_that_the_status_does_not_vouch_for_claim_and_serve_nothing() {
    for class in [None, Some("landfall.dev/gone"), Some("landfall.dev/local")] {
        let own = admitted(class, true);
        assert_eq!(claim(&own).unwrap().addresses, [ip("192.0.2.1")]);
        assert!(accepted(&own).is_some_and(|version| version.is_ok()));
        let forged = admitted(class, false);
        assert_eq!(claim(&forged), None);
        assert_eq!(accepted(&forged), None);
        let classes = Classes::only("local");
        let world = World::default();
        let is_lost = class != Some("landfall.dev/local");
        assert_eq!(foreign_claim(&own, &world, &classes).is_some(), is_lost);
        assert_eq!(foreign_claim(&forged, &world, &classes), None);
    }
}

#[test]
fn what_is_published_counts_before_what_is_noted() {
    let row = web().holding("192.0.2.1");
    let row = row.with(marked(HELD_ADDRESSES, "192.0.2.9")).row();
    assert_eq!(claim(&row).unwrap().addresses, [ip("192.0.2.1")]);
}

#[test]
fn a_service_that_is_being_deleted_holds_its_address_as_long_as_our_finalizer_is_on_it() {
    let row = |finalized: bool| {
        let row = web().holding("192.0.2.1");
        row.with(|row| (row.deleting, row.finalized) = (true, finalized))
            .row()
    };
    assert!(claim(&row(true)).is_some());
    assert_eq!(claim(&row(false)), None);
}

#[test]
fn a_service_that_gave_up_its_type_holds_its_address_until_it_is_cleared_away() {
    let row = |finalized: bool| {
        let row = web().holding("192.0.2.1").with(programmed);
        row.with(|row| (row.wants_load_balancer, row.finalized) = (false, finalized))
            .row()
    };
    assert_eq!(names(&recorded(vec![row(true)])), ["web [192.0.2.1]"]);
    assert_eq!(names(&recorded(vec![row(false)])), [] as [&str; 0]);
}

#[test]
fn the_terms_are_those_of_the_version_that_was_accepted() {
    let accepted = svc("web")
        .port(443)
        .annotated("landfall.dev/sharing-key", "front");
    let text = accepted_to_text(&accepted.row()).unwrap();
    let newest = web()
        .holding("192.0.2.1")
        .with(marked(ACCEPTED_VERSION, &text));
    let claim = claim(&newest.row()).unwrap();
    assert_eq!(claim.sharing_key.as_deref(), Some("front"));
    assert_eq!(claim.ports[0].port, number(443));
    assert_eq!(claim.addresses, [ip("192.0.2.1")]);
}

#[test]
fn sharers_keep_their_address_although_one_of_them_is_invalid() {
    let sharer = |name: &str, port: u16| {
        let row = svc(name).port(port).holding("192.0.2.1");
        row.annotated("landfall.dev/sharing-key", "front")
    };
    let invalid = sharer("a", 80).annotated("landfall.dev/mode", "sideways");
    let record = recorded(vec![invalid.row(), sharer("b", 81).row()]);
    assert_eq!(names(&record), ["a [192.0.2.1]", "b [192.0.2.1]"]);
    assert!(record.forfeited.is_empty());
}

#[test]
fn of_two_services_with_one_address_the_better_claim_keeps_it_and_the_other_is_notified() {
    let old = Timestamp::UNIX_EPOCH;
    let new = Timestamp::from_second(9).unwrap();
    let born = |at: Timestamp| move |row: &mut ServiceRow| row.created = Some(at);
    let holding = |name: &str| svc(name).port(80).holding("192.0.2.1");
    // Each time, the name alone would decide for the other one.
    let pairs = [
        (holding("b").with(programmed), holding("a")),
        (holding("b").with(born(old)), holding("a").with(born(new))),
        (holding("b").with(born(new)), holding("a")),
        (holding("b").load_balancer_ip("192.0.2.1"), holding("a")),
        (
            holding("b").load_balancer_ip("192.0.2.1").with(programmed),
            holding("a").with(programmed),
        ),
        // A Service that is served loses its address to none that is not.
        (
            holding("b").with(programmed).with(born(new)),
            holding("a").load_balancer_ip("192.0.2.1").with(born(old)),
        ),
    ];
    for (keeper, loser) in pairs {
        let record = recorded(vec![loser.row(), keeper.row()]);
        assert_eq!(names(&record), ["b [192.0.2.1]"]);
        let forfeited = &record.forfeited[&Uid::new("uid-a")];
        assert_eq!(
            *forfeited,
            [LostClaim {
                address: ip("192.0.2.1"),
                holder: ServiceKey::new("default", "b"),
            }]
        );
        let elsewhere = forfeited[0].reason(&ServiceKey::new("other", "a"));
        assert!(!elsewhere.message.contains("default"), "{elsewhere}");
        let reason = forfeited[0].reason(&ServiceKey::new("default", "a"));
        assert_eq!(reason.code, Code::AddressInUse);
        assert!(reason.message.contains("default/b"), "{reason}");
    }
    let record = recorded(vec![holding("a").row(), holding("b").row()]);
    assert_eq!(names(&record), ["a [192.0.2.1]"]);
}

#[test]
fn a_service_that_loses_one_family_keeps_the_other() {
    let both = svc("b")
        .port(80)
        .holding("192.0.2.1")
        .holding("2001:db8::1");
    let record = recorded(vec![
        svc("a").port(80).holding("192.0.2.1").row(),
        both.row(),
    ]);
    assert_eq!(names(&record), ["a [192.0.2.1]", "b [2001:db8::1]"]);
}

#[test]
fn sharing_of_an_address_of_a_cloud_is_not_checked_here() {
    let mut world = World::default();
    for name in ["a", "b"] {
        let row = svc(name).port(80).holding("192.0.2.1").row();
        world.apply(Fact::Service(row));
    }
    let record = on_record(&world, &Classes::only("cloud"), &providers(&[false]));
    assert_eq!(names(&record), ["a [192.0.2.1]", "b [192.0.2.1]"]);
}

#[test]
fn a_claim_is_that_of_the_instance_on_record_whichever_is_the_default_today() {
    let mut world = World::default();
    let row = web().holding("192.0.2.1").with(marked(INSTANCE, "inner"));
    world.apply(Fact::Service(row.row()));
    let classes = Classes::new(vec!["edge".to_owned(), "inner".to_owned()], Some("edge"));
    let record = on_record(&world, &classes, &providers(&[true, true]));
    let counts: Vec<usize> = record.claims.iter().map(Vec::len).collect();
    assert_eq!(counts, [0, 1]);
}

#[test]
fn what_a_service_of_an_instance_that_is_gone_holds_is_reserved() {
    let mut world = World::default();
    let row = web().holding("192.0.2.1").with(marked(INSTANCE, "gone"));
    world.apply(Fact::Service(row.row()));
    let classes = Classes::only("local");
    assert_eq!(
        names(&on_record(&world, &classes, &providers(&[true]))),
        [] as [&str; 0]
    );
    let rows: Vec<_> = world.services().collect();
    let foreign = foreign_claims(rows.iter(), &world, &classes);
    let claim = &foreign[&ServiceKey::new("default", "web")];
    assert_eq!(claim.addresses, [ip("192.0.2.1")]);
}

#[test]
fn a_service_that_publishes_nothing_or_that_is_ours_is_no_claim_of_others() {
    let world = World::default();
    let classes = Classes::new(vec!["local".to_owned()], None);
    let claimed = |row: ServiceRow| foreign_claim(&row, &world, &classes).is_some();
    let of = |class: Option<&'static str>, address: Option<&str>| {
        let row = web().with(move |row| row.class = class.map(Into::into));
        let row = address.into_iter().fold(row, ServiceBuilder::holding);
        Arc::unwrap_or_clone(row.row())
    };
    for class in [None, Some("example.com/lb")] {
        assert!(claimed(of(class, Some("192.0.2.1"))));
        assert!(!claimed(of(class, None)));
        // Nothing shows yet that it stops publishing.
        let mut deleting = of(class, Some("192.0.2.1"));
        deleting.deleting = true;
        assert!(claimed(deleting));
    }
    assert!(!claimed(of(Some("landfall.dev/local"), Some("192.0.2.1"))));
    // What is left of ours is cleared away.
    let mut retired = of(None, Some("192.0.2.1"));
    programmed(&mut retired);
    retired.wants_load_balancer = false;
    assert!(!claimed(retired));
}
