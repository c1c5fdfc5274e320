use landfall_model::rows::PoolOrigin;
use landfall_model::status::ACCEPTED_VERSION;
use landfall_model::wire;
use landfall_testkit::build::namespace;
use landfall_testkit::{node, slice, svc};

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
fn a_fact_that_says_nothing_new_affects_no_service() {
    let mut world = World::default();
    let web = || svc("web").port(80).annotated("landfall.dev/drain", "3s");
    let ends = || slice("web").ready("10.0.0.1").row();
    assert_eq!(world.apply(Fact::Service(web().row())), services(&["web"]));
    assert_eq!(world.apply(Fact::Slice(ends())), services(&["web"]));
    assert_eq!(world.apply(Fact::Service(web().row())), Affected::None);
    assert_eq!(world.apply(Fact::Slice(ends())), Affected::None);
    let changed = web().port(81).row();
    assert_eq!(
        world.apply(Fact::Service(changed.clone())),
        services(&["web"])
    );
    assert_eq!(world.service(&key("web")), Some(changed));
    assert_eq!(world.apply(Fact::SliceGone(key("x"))), Affected::None);
    assert_eq!(world.apply(Fact::ServiceGone(key("x"))), Affected::None);
}

#[test]
fn a_node_that_is_to_be_emptied_affects_no_service_until_it_changes_otherwise() {
    let mut world = World::default();
    let changed = |change: fn(&mut NodeRow)| Fact::Node(node("n1", "10.0.0.1").with(change).row());
    assert_eq!(world.apply(changed(|_| {})), Affected::All);
    for change in [
        |row: &mut NodeRow| row.cordoned = true,
        |row: &mut NodeRow| row.leaving = true,
        |row: &mut NodeRow| (row.cordoned, row.leaving) = (true, true),
    ] {
        assert_eq!(world.apply(changed(change)), Affected::None);
    }
    // The autoscaler keeps it after all.
    assert_eq!(
        world.apply(changed(|row| row.cordoned = true)),
        Affected::All
    );
    assert_eq!(world.apply(changed(|row| row.ready = false)), Affected::All);
}

#[test]
fn what_an_earlier_process_gave_out_of_the_fallback_stays_in_a_pool() {
    let pool = |name: &str, range: &str, origin| {
        Fact::Pool(Arc::new(PoolRow {
            name: name.to_owned(),
            addresses: vec![range.to_owned()],
            auto_assign: true,
            origin,
            ..PoolRow::default()
        }))
    };
    let mut world = World::default();
    world.apply(pool("public", "192.0.2.0/24", PoolOrigin::Source));
    world.apply(pool("default", "127.77.0.0/24", PoolOrigin::Fallback));
    for (name, address) in [("old", "127.77.0.5"), ("new", "192.0.2.1")] {
        let row = svc(name).port(80).holding(address).row();
        world.apply(Fact::Service(row));
    }
    world.apply(Fact::Synced);
    assert_eq!(world.settle_pools(None), []);
    let pools = world.pools().iter();
    let pools: Vec<_> = pools
        .map(|it| (&*it.name, it.addresses.join(" "), it.auto_assign))
        .collect();
    let expected = [
        ("default", "127.77.0.5/32".to_owned(), false),
        ("public", "192.0.2.0/24".to_owned(), true),
    ];
    assert_eq!(pools, expected);
}

#[test]
fn what_another_pool_gave_out_of_the_fallback_s_range_is_not_the_fallback_s_without_that_pool() {
    let pool = |name: &str, range: &str, origin| {
        Fact::Pool(Arc::new(PoolRow {
            name: name.to_owned(),
            addresses: vec![range.to_owned()],
            auto_assign: true,
            origin,
            ..PoolRow::default()
        }))
    };
    let names = |world: &World| -> Vec<String> {
        let pools = world.pools().iter();
        pools.map(|row| row.name.clone()).collect()
    };
    for given_out_before in [false, true] {
        let mut world = World::default();
        world.apply(pool("default", "127.77.0.0/24", PoolOrigin::Fallback));
        world.apply(pool("other", "192.0.2.0/24", PoolOrigin::Source));
        world.apply(pool("public", "127.77.0.0/25", PoolOrigin::Source));
        let held = Fact::Service(svc("web").port(80).holding("127.77.0.5").row());
        if given_out_before {
            world.apply(held.clone());
        }
        world.apply(Fact::Synced);
        assert_eq!(world.settle_pools(None), []);
        world.apply(held);
        assert_eq!(world.settle_pools(None), []);
        world.apply(Fact::PoolGone("public".to_owned()));
        assert_eq!(world.settle_pools(None), []);
        assert_eq!(names(&world), ["other"], "{given_out_before}");
    }
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
fn a_namespace_affects_its_services_and_a_secret_those_that_name_it() {
    let mut world = World::default();
    let with_tls = |name| {
        let service = svc(name).port(443);
        service.annotated("landfall.dev/tls-secret", "web-tls")
    };
    world.apply(Fact::Service(with_tls("a").row()));
    world.apply(Fact::Service(svc("b").port(80).row()));
    world.apply(Fact::Service(with_tls("c").in_namespace("shop").row()));
    let row = namespace("default", &[]);
    assert_eq!(
        world.apply(Fact::Namespace(row.clone())),
        services(&["a", "b"])
    );
    assert_eq!(world.apply(Fact::Namespace(row)), Affected::None);
    assert_eq!(
        world.apply(Fact::SecretGone(key("web-tls"))),
        Affected::None
    );
    let secret = landfall_testkit::secret("web-tls");
    let affected = Affected::Secret(key("web-tls"));
    assert_eq!(world.apply(Fact::Secret(secret)), affected);
    assert_eq!(world.users_of(&[key("web-tls")].into()), [key("a")].into());
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

fn resource(kind: ResourceKind, name: &str, spec: &serde_json::Value) -> Arc<ResourceRow> {
    let shape = wire::Resource {
        metadata: wire::ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("metallb-system".to_owned()),
            ..wire::ObjectMeta::default()
        },
        spec: spec.clone(),
        ..wire::Resource::default()
    };
    Arc::new(shape.into_row(kind).unwrap())
}

fn listed(world: &World, kinds: &[ResourceKind]) -> Vec<String> {
    let rows = world.resources(kinds);
    rows.map(|row| format!("{} {}", row.kind, row.key.name()))
        .collect()
}

#[test]
fn resources_are_listed_by_kind_as_asked_and_by_name_whatever_came_first() {
    use ResourceKind::{BgpPeer, Community, IpAddressPool, L2Advertisement};
    let mut world = World::default();
    let spec = serde_json::json!({"interfaces": ["eth0"]});
    for (kind, name) in [
        (L2Advertisement, "b"),
        (Community, "x"),
        (L2Advertisement, "a"),
    ] {
        let row = resource(kind, name, &spec);
        assert_eq!(world.apply(Fact::Resource(row)), Affected::Resources);
    }
    for name in ["inner", "edge"] {
        let row = PoolRow {
            name: name.to_owned(),
            resource: Some(resource(IpAddressPool, name, &spec)),
            ..PoolRow::default()
        };
        assert_eq!(world.apply(Fact::Pool(Arc::new(row))), Affected::Pools);
    }
    // Not an object: it was configured.
    world.apply(Fact::Pool(Arc::new(PoolRow {
        name: "flag".to_owned(),
        origin: PoolOrigin::Configured,
        ..PoolRow::default()
    })));
    assert_eq!(
        listed(&world, &[L2Advertisement, IpAddressPool, BgpPeer]),
        [
            "L2Advertisement a",
            "L2Advertisement b",
            "IPAddressPool edge",
            "IPAddressPool inner",
        ]
    );
    assert_eq!(listed(&world, &[Community]), ["Community x"]);
    assert_eq!(
        world.apply(Fact::PoolGone("inner".to_owned())),
        Affected::Pools
    );
    assert_eq!(listed(&world, &[IpAddressPool]), ["IPAddressPool edge"]);
}

#[test]
fn a_resource_that_says_nothing_new_or_was_never_there_affects_nothing() {
    let kind = ResourceKind::L2Advertisement;
    let mut world = World::default();
    let spec = |name: &str| serde_json::json!({"interfaces": [name]});
    let fact = |name: &str| Fact::Resource(resource(kind, "edge", &spec(name)));
    assert_eq!(world.apply(fact("eth0")), Affected::Resources);
    assert_eq!(world.apply(fact("eth0")), Affected::None);
    assert_eq!(world.apply(fact("eth1")), Affected::Resources);
    let gone = |kind, name| Fact::ResourceGone(kind, ServiceKey::new("metallb-system", name));
    assert_eq!(world.apply(gone(kind, "other")), Affected::None);
    assert_eq!(
        world.apply(gone(ResourceKind::Community, "edge")),
        Affected::None
    );
    assert_eq!(listed(&world, &ResourceKind::ALL), ["L2Advertisement edge"]);
    assert_eq!(world.apply(gone(kind, "edge")), Affected::Resources);
    assert_eq!(listed(&world, &ResourceKind::ALL), [] as [String; 0]);
}

fn cluster_ips(service: &str, addresses: &[&str]) -> Fact {
    let addresses = addresses.iter().map(|text| text.parse().unwrap());
    Fact::ClusterIps(ServiceKey::new("other", service), addresses.collect())
}

#[test]
fn a_cluster_ip_affects_those_that_name_it_once_everything_is_known() {
    let mut world = World::default();
    let naming = |names: &str| svc("annotated").annotated("landfall.dev/endpoints.80", names);
    for fact in [
        Fact::Slice(slice("sliced").ready("10.0.0.1").ready("10.96.0.7").row()),
        Fact::Slice(slice("else").ready("10.0.0.7").row()),
        Fact::Service(naming("10.0.0.1:80 weight=3,[::ffff:a60:7]:80").row()),
        Fact::Service(svc("plain").annotated("landfall.dev/drain", "3s").row()),
    ] {
        world.apply(fact);
    }
    assert_eq!(
        world.apply(cluster_ips("old", &["10.96.0.6"])),
        Affected::None
    );
    world.apply(Fact::Synced);
    let changes = |addresses: &[&str]| {
        let addresses = addresses.iter().map(|text| text.parse().unwrap());
        Affected::Naming(addresses.collect())
    };
    let seven = changes(&["10.96.0.7"]);
    assert_eq!(world.apply(cluster_ips("a", &["10.96.0.7"])), seven);
    // Nothing new, and what another Service has as well.
    for again in ["a", "b"] {
        assert_eq!(
            world.apply(cluster_ips(again, &["10.96.0.7"])),
            Affected::None
        );
    }
    let others = world.apply(cluster_ips("a", &["10.96.0.8", "fd00::7"]));
    assert_eq!(others, changes(&["10.96.0.8", "fd00::7"]));
    assert_eq!(world.apply(cluster_ips("b", &[])), seven);
    assert_eq!(world.apply(cluster_ips("b", &[])), Affected::None);
    let gone = world.apply(cluster_ips("old", &[]));
    assert_eq!(gone, changes(&["10.96.0.6"]));

    let named = |world: &World, text: &str| {
        let found = world.naming(&[text.parse().unwrap()].into());
        let names = found.iter().map(|key| key.name().to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(named(&world, "10.96.0.7"), ["annotated", "sliced"]);
    let none = Vec::<String>::new();
    assert_eq!(named(&world, "10.96.0.8"), none);
    world.apply(Fact::Service(naming("10.96.0.8:80").row()));
    assert_eq!(named(&world, "10.96.0.7"), ["sliced"]);
    assert_eq!(named(&world, "10.96.0.8"), ["annotated"]);
    world.apply(Fact::ServiceGone(key("annotated")));
    assert_eq!(named(&world, "10.96.0.8"), none);
}

#[test]
fn a_cluster_ip_affects_a_service_whose_accepted_version_names_it() {
    let named = |world: &World| world.naming(&[[10, 96, 0, 7].into()].into());
    let naming = |names: &str| {
        svc("web")
            .port(80)
            .annotated("landfall.dev/endpoints", names)
    };
    let accepted = naming("10.96.0.7:80,\n10.0.0.1:80").row();
    let text = wire::accepted_to_text(&accepted).unwrap();
    let mut world = World::default();
    // The newest version is refused, so that the other one is served.
    let mut newest = ServiceRow::clone(&naming("10.0.0.1:80 twice").row());
    newest
        .status
        .marks
        .insert(ACCEPTED_VERSION.to_owned(), text);
    world.apply(Fact::Service(Arc::new(newest)));
    assert_eq!(named(&world), BTreeSet::from([key("web")]));
    world.apply(Fact::Service(naming("10.0.0.1:80").row()));
    assert_eq!(named(&world), BTreeSet::new());
}
