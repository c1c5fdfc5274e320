use landfall_testkit::build::namespace;
use landfall_testkit::{slice, svc};

use super::*;

fn key(name: &str) -> ServiceKey {
    ServiceKey::new("default", name)
}

fn names(world: &World, service: &str) -> Vec<String> {
    let slices = world.slices_of(&key(service));
    slices.map(|row| row.key.name().to_owned()).collect()
}

fn services(names: &[&str]) -> Affected {
    Affected::Services(names.iter().map(|name| key(name)).collect())
}

#[test]
fn a_fact_that_says_nothing_new_affects_nobody() {
    let mut world = World::default();
    let web = || svc("web").port(80).annotated("landfall.dev/drain", "3s");
    let ends = || slice("web").ready("10.0.0.1").row();
    assert_eq!(world.apply(Fact::Service(web().row())), services(&["web"]));
    assert_eq!(world.apply(Fact::Slice(ends())), services(&["web"]));
    assert_eq!(world.apply(Fact::Service(web().row())), Affected::Nobody);
    assert_eq!(world.apply(Fact::Slice(ends())), Affected::Nobody);
    let changed = web().port(81).row();
    assert_eq!(
        world.apply(Fact::Service(changed.clone())),
        services(&["web"])
    );
    assert_eq!(world.service(&key("web")), Some(changed));
    assert_eq!(world.apply(Fact::SliceGone(key("x"))), Affected::Nobody);
    assert_eq!(world.apply(Fact::ServiceGone(key("x"))), Affected::Nobody);
}

#[test]
fn the_slices_of_a_service_are_its_own_in_the_order_of_their_names() {
    let mut world = World::default();
    for (service, name) in [
        ("web", "web-b"),
        ("we", "z"),
        ("web-2", "a"),
        ("web", "web-a"),
        ("web", "x"),
    ] {
        world.apply(Fact::Slice(slice(service).named(name).row()));
    }
    assert_eq!(names(&world, "web"), ["web-a", "web-b", "x"]);
    world.apply(Fact::Synced);
    assert_eq!(names(&world, "web"), ["web-a", "web-b", "x"]);
    assert_eq!(names(&world, "we"), ["z"]);
    assert_eq!(names(&world, "w"), Vec::<String>::new());
    let elsewhere = ServiceKey::new("shop", "web");
    assert_eq!(world.slices_of(&elsewhere).count(), 0);
}

#[test]
fn a_slice_that_changes_hands_affects_both() {
    let mut world = World::default();
    world.apply(Fact::Slice(slice("one").named("s").row()));
    let moved = slice("two").named("s").ready("10.0.0.1").row();
    assert_eq!(world.apply(Fact::Slice(moved)), services(&["one", "two"]));
    assert_eq!(names(&world, "one"), Vec::<String>::new());
    assert_eq!(names(&world, "two"), ["s"]);
    assert_eq!(world.apply(Fact::SliceGone(key("s"))), services(&["two"]));
    assert_eq!(names(&world, "two"), Vec::<String>::new());
}

#[test]
fn a_namespace_affects_its_services_and_a_secret_those_that_mention_it() {
    let mut world = World::default();
    let with_tls = |name| svc(name).port(443).annotated("landfall.dev/tls", "web-tls");
    world.apply(Fact::Service(with_tls("a").row()));
    world.apply(Fact::Service(svc("b").port(80).row()));
    world.apply(Fact::Service(with_tls("c").in_namespace("shop").row()));
    let row = namespace("default", &[]);
    assert_eq!(
        world.apply(Fact::Namespace(row.clone())),
        services(&["a", "b"])
    );
    assert_eq!(world.apply(Fact::Namespace(row)), Affected::Nobody);
    assert_eq!(
        world.apply(Fact::SecretGone(key("web-tls"))),
        Affected::Nobody
    );
    let secret = landfall_testkit::secret("web-tls");
    assert_eq!(world.apply(Fact::Secret(secret)), services(&["a"]));
}

#[test]
fn services_come_by_key() {
    let mut world = World::default();
    for (namespace, name) in [("b", "a"), ("a", "c"), ("a", "b")] {
        let row = svc(name).port(80).in_namespace(namespace).row();
        world.apply(Fact::Service(row));
    }
    let keys: Vec<_> = world.keys().map(|key| key.to_string()).collect();
    assert_eq!(keys, ["a/b", "a/c", "b/a"]);
    let rows: Vec<_> = world.services().map(|row| row.key.to_string()).collect();
    assert_eq!(rows, keys);
}
