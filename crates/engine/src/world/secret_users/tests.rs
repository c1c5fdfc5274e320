use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use landfall_model::rows::{Fact, SecretRow};
use landfall_model::status::ACCEPTED_VERSION;
use landfall_model::wire::accepted_to_text;
use landfall_testkit::build::bad_secret;
use landfall_testkit::{secret, svc};
use proptest::prelude::*;
use proptest::sample::subsequence;

use super::*;
use crate::follow::Follower;
use crate::world::{Affected, World};

const SECRET: &str = "landfall.dev/tls-secret";

const NAMESPACES: [&str; 2] = ["default", "shop"];

/// One is a part of another.
const SECRETS: [&str; 4] = ["web", "web-tls", "tls", "x"];

fn key(name: &str) -> ServiceKey {
    ServiceKey::new("default", name)
}

fn naming(service: &str, secrets: &str) -> Arc<ServiceRow> {
    svc(service).port(443).annotated(SECRET, secrets).row()
}

/// The Service with a record of the version that was accepted last.
fn recorded(mut row: Arc<ServiceRow>, accepted: &ServiceRow) -> Arc<ServiceRow> {
    let text = accepted_to_text(accepted).unwrap();
    let marks = &mut Arc::make_mut(&mut row).status.marks;
    marks.insert(ACCEPTED_VERSION.to_owned(), text);
    row
}

fn users(world: &World, secret: &str) -> Vec<String> {
    let found = world.users_of(&[key(secret)].into());
    found.iter().map(|it| it.name().to_owned()).collect()
}

fn searched(world: &World) -> usize {
    world.secret_users.searched.swap(0, Ordering::Relaxed)
}

fn secret_of(key: &ServiceKey, why: &str) -> Arc<SecretRow> {
    Arc::new(SecretRow {
        key: key.clone(),
        ..(*bad_secret("", why)).clone()
    })
}

#[test]
fn a_fact_about_a_secret_searches_none_but_the_services_that_name_it() {
    let mut follower = Follower::default();
    for number in 0..2000 {
        let (own, web) = (format!("own-{number}"), format!("web-{number}"));
        follower.apply(Fact::Service(naming(&web, &own)));
    }
    let new: Vec<String> = (0..64).map(|number| format!("new-{number}")).collect();
    for web in ["web-1", "web-2", "web-3"] {
        follower.apply(Fact::Service(naming(web, &new.join(","))));
    }
    follower.apply(Fact::Synced);
    let changes = follower.apply_all(new.iter().map(|name| Fact::Secret(secret(name))));
    assert_eq!(
        changes.services,
        ["web-1", "web-2", "web-3"].map(key).into()
    );
    let most = 64 * (3 + 1);
    let searched = searched(&follower);
    assert!(searched <= most, "{searched} of {most}");
}

#[test]
fn facts_about_one_secret_search_for_the_services_that_name_it_once() {
    let mut follower = Follower::default();
    for number in 0..100 {
        follower.apply(Fact::Service(naming(&format!("web-{number}"), "web-tls")));
    }
    let facts = (0..1000).map(|number| bad_secret("web-tls", &number.to_string()));
    let changes = follower.apply_all(facts.map(Fact::Secret));
    assert_eq!(changes.services.len(), 100);
    let searched = searched(&follower);
    assert!(searched <= 101, "{searched}");
}

#[test]
fn a_secret_that_says_nothing_new_or_was_never_there_affects_no_service() {
    let mut world = World::default();
    world.apply(Fact::Service(naming("web", "web-tls")));
    let fact = || Fact::Secret(secret("web-tls"));
    let gone = || Fact::SecretGone(key("web-tls"));
    let affected = Affected::Secret(key("web-tls"));
    assert_eq!(world.apply(gone()), Affected::None);
    assert_eq!(world.apply(fact()), affected);
    assert_eq!(world.apply(fact()), Affected::None);
    assert_eq!(world.apply(gone()), affected);
    assert_eq!(users(&world, "web-tls"), ["web"]);
}

#[test]
fn services_that_name_no_secret_take_no_room_and_those_that_go_leave_none() {
    let mut world = World::default();
    for number in 0..100 {
        let row = svc(&format!("plain-{number}")).port(80);
        let row = row.annotated("landfall.dev/hostname", "web-tls").row();
        world.apply(Fact::Service(recorded(row.clone(), &row)));
    }
    assert!(world.secret_users.of.is_empty());
    let web = naming("web", "a,b");
    world.apply(Fact::Service(web.clone()));
    world.apply(Fact::Service(recorded(web.clone(), &web)));
    let of_namespace = &world.secret_users.of["default"];
    assert_eq!((of_namespace.names.len(), of_namespace.users.len()), (1, 2));
    world.apply(Fact::ServiceGone(key("web")));
    assert!(world.secret_users.of.is_empty());
}

#[test]
fn a_service_goes_on_to_be_found_by_what_it_named_until_its_newest_version_is_on_record() {
    let mut world = World::default();
    let found = |world: &World| ["old", "new"].map(|secret| users(world, secret).len());
    let (old, new) = (naming("web", "old"), naming("web", "new"));
    world.apply(Fact::Service(old.clone()));
    assert_eq!(found(&world), [1, 0]);
    // It may be invalid.
    world.apply(Fact::Service(new.clone()));
    assert_eq!(found(&world), [1, 1]);
    let labelled = |row: &Arc<ServiceRow>| {
        let mut row = row.clone();
        Arc::make_mut(&mut row)
            .labels
            .insert("a".into(), "b".into());
        row
    };
    world.apply(Fact::Service(labelled(&new)));
    assert_eq!(found(&world), [1, 1]);
    // It is.
    world.apply(Fact::Service(recorded(new.clone(), &old)));
    assert_eq!(found(&world), [1, 1]);
    // It is valid by now.
    world.apply(Fact::Service(recorded(new.clone(), &new)));
    assert_eq!(found(&world), [0, 1]);
    // One that is too long to be on record is followed by one that names nothing.
    world.apply(Fact::Service(old));
    world.apply(Fact::Service(svc("web").port(443).row()));
    assert_eq!(found(&world), [1, 0]);
    let plain = svc("web").port(443).row();
    world.apply(Fact::Service(recorded(plain.clone(), &plain)));
    assert_eq!(found(&world), [0, 0]);
    assert!(world.secret_users.of.is_empty());
}

#[test]
fn every_option_that_names_secrets_makes_a_user_of_each() {
    for (option, names) in [
        ("tls-secret", "a,b"),
        ("tls-secret.443", " a , b "),
        ("tls-secret.https", "b,a"),
        ("member-ca-secret", "a"),
        ("member-ca-secret.443", "a"),
        ("member-client-secret", "a"),
        ("member-client-secret.https", "a"),
    ] {
        let annotation = format!("landfall.dev/{option}");
        let web = svc("web").named_port("https", 443);
        let web = web.annotated(&annotation, names).row();
        let mut world = World::default();
        world.apply(Fact::Service(web.clone()));
        assert_eq!(users(&world, "a"), ["web"], "{option}");
        assert_eq!(users(&world, "b").len(), names.matches('b').count());
        // As what is served while the newest version is refused, after a restart.
        let mut world = World::default();
        let refused = svc("web").named_port("https", 443).row();
        world.apply(Fact::Service(recorded(refused, &web)));
        assert_eq!(users(&world, "a"), ["web"], "{option}");
    }
}

/// Annotations of one version, and what a dialect reads there.
type Version = BTreeMap<String, (String, BTreeSet<&'static str>)>;

/// What happens.
#[derive(Clone, Debug)]
enum Event {
    /// A Service changes, with the version that is on record.
    Service(ServiceKey, Version, Option<Version>),
    ServiceGone(ServiceKey),
    Secret(ServiceKey),
    SecretGone(ServiceKey),
    Synced,
}

/// What a Service names, by the newest version, by that on record and by the one before.
#[derive(Default)]
struct Model(BTreeMap<ServiceKey, [BTreeSet<&'static str>; 3]>);

// === impl Model ===

impl Model {
    fn take(&mut self, event: &Event) {
        let names = |version: &Version| {
            let names = version.values().flat_map(|(_, names)| names);
            names.copied().collect::<BTreeSet<_>>()
        };
        match event {
            Event::Service(key, newest, accepted) => {
                let [newest_before, _, before] = self.0.remove(key).unwrap_or_default();
                let newest = names(newest);
                let accepted = accepted.as_ref().map(names);
                let before = if accepted.as_ref() == Some(&newest) {
                    BTreeSet::new()
                } else if newest == newest_before {
                    before
                } else {
                    newest_before
                };
                let versions = [newest, accepted.unwrap_or_default(), before];
                self.0.insert(key.clone(), versions);
            }
            Event::ServiceGone(key) => drop(self.0.remove(key)),
            _ => {}
        }
    }

    /// Searches all Services.
    fn users(&self, secret: &ServiceKey) -> BTreeSet<ServiceKey> {
        let named = |versions: &[BTreeSet<&str>; 3]| {
            let mut versions = versions.iter();
            versions.any(|names| names.contains(secret.name()))
        };
        let here = self.0.iter();
        let here = here.filter(|(key, _)| key.namespace() == secret.namespace());
        let users = here.filter(|(_, versions)| named(versions));
        users.map(|(key, _)| key.clone()).collect()
    }
}

fn any_version() -> impl Strategy<Value = Version> {
    let option = prop::sample::select(vec![
        ("tls-secret", 4),
        ("member-ca-secret", 1),
        ("member-client-secret", 1),
        ("hostname", 0),
    ]);
    let port = prop::sample::select(vec![
        ("", true),
        (".443", true),
        (".https", true),
        (".9", false),
    ]);
    let names = subsequence(SECRETS.to_vec(), 1..=SECRETS.len());
    let annotation = (option, port, names, prop::bool::weighted(0.9));
    let annotation = annotation.prop_map(|((option, most), (port, is_one), names, valid)| {
        let faulty = if valid { "" } else { ",other/x" };
        let value = format!("{}{faulty}", names.join(", "));
        let read = is_one && valid && names.len() <= most;
        let names = if read { names } else { Vec::new() };
        let key = format!("landfall.dev/{option}{port}");
        (key, (value, names.into_iter().collect()))
    });
    prop::collection::vec(annotation, 0..4).prop_map(|all| all.into_iter().collect())
}

fn any_event() -> impl Strategy<Value = Event> {
    let key = |names: &'static [&'static str]| {
        let both = (
            prop::sample::select(&NAMESPACES[..]),
            prop::sample::select(names),
        );
        both.prop_map(|(namespace, name)| ServiceKey::new(namespace, name))
    };
    // Named as Secrets are.
    let service = || key(&["web", "tls", "other"]);
    let recorded = prop::option::of(any_version());
    prop_oneof![
        8 => (service(), any_version(), recorded).prop_map(|(key, newest, recorded)| {
            Event::Service(key, newest, recorded)
        }),
        // Its newest version is on record.
        2 => (service(), any_version()).prop_map(|(key, newest)| {
            Event::Service(key, newest.clone(), Some(newest))
        }),
        2 => service().prop_map(Event::ServiceGone),
        2 => key(&SECRETS).prop_map(Event::Secret),
        1 => key(&SECRETS).prop_map(Event::SecretGone),
        1 => Just(Event::Synced),
    ]
}

fn row(key: &ServiceKey, version: &Version) -> Arc<ServiceRow> {
    let row = svc(key.name()).named_port("https", 443);
    let mut row = row.in_namespace(key.namespace());
    for (annotation, (value, _)) in version {
        row = row.annotated(annotation, value);
    }
    row.row()
}

proptest! {
    #[test]
    fn users_of_secrets_are_those_that_a_search_of_all_services_finds(
        events in prop::collection::vec(any_event(), 1..40)
    ) {
        let (mut world, mut model) = (World::default(), Model::default());
        for (number, event) in events.into_iter().enumerate() {
            model.take(&event);
            let copy = world.clone();
            world.apply(match event {
                Event::Service(key, newest, accepted) => {
                    let newest = row(&key, &newest);
                    let accepted = accepted.map(|version| row(&key, &version));
                    Fact::Service(match accepted {
                        Some(accepted) => recorded(newest, &accepted),
                        None => newest,
                    })
                }
                Event::ServiceGone(key) => Fact::ServiceGone(key),
                Event::Secret(key) => Fact::Secret(secret_of(&key, &number.to_string())),
                Event::SecretGone(key) => Fact::SecretGone(key),
                Event::Synced => Fact::Synced,
            });
            drop(copy);
            for namespace in NAMESPACES {
                for name in SECRETS {
                    let secret = ServiceKey::new(namespace, name);
                    let found = world.users_of(&[secret.clone()].into());
                    prop_assert_eq!(found, model.users(&secret), "{}", secret);
                }
            }
        }
    }
}
