use std::time::Duration;

use landfall_model::limits::Limits;
use landfall_model::rows::ServiceRow;
use landfall_model::status::ACCEPTED_VERSION;
use landfall_model::wire;
use landfall_testkit::svc;

use super::*;

fn naming(service: &str, secrets: &str) -> Fact {
    let service = svc(service).in_namespace("shop").port(443);
    Fact::Service(service.annotated("landfall.dev/tls-secret", secrets).row())
}

fn key(name: &str) -> ServiceKey {
    ServiceKey::new("shop", name)
}

fn words(orders: &[Order]) -> Vec<String> {
    orders
        .iter()
        .map(|order| match order {
            Order::Watch(secret) => format!("watch {secret}"),
            Order::Unwatch(secret) => format!("unwatch {secret}"),
            Order::Send(Fact::Service(row)) => format!("send {}", row.key),
            Order::Send(Fact::ServiceGone(key)) => format!("gone {key}"),
            Order::Send(other) => format!("{other:?}"),
        })
        .collect()
}

/// Orders as words; the wait for a Secret ends at `until`.
fn take(specs: &mut SecretRefs, fact: Fact, until: Instant) -> Vec<String> {
    words(&specs.take(fact, until))
}

#[test]
fn a_service_waits_for_the_secret_that_it_names_first() {
    let mut specs = SecretRefs::default();
    let now = Instant::now();
    assert_eq!(
        take(&mut specs, naming("web", "tls"), now),
        ["watch shop/tls"]
    );
    assert!(!specs.is_settled());
    assert_eq!(words(&specs.know(&key("tls"))), ["send shop/web"]);
    assert!(specs.is_settled());
    // Known by now: the next one does not wait.
    assert_eq!(
        take(&mut specs, naming("api", "tls"), now),
        ["send shop/api"]
    );
}

#[test]
fn the_wait_for_a_secret_has_a_timeout() {
    let mut specs = SecretRefs::default();
    let now = Instant::now();
    let until = now + Duration::from_secs(3);
    take(&mut specs, naming("web", "tls"), until);
    assert_eq!(specs.next_due(), Some(until));
    assert_eq!(words(&specs.expire(now)), Vec::<String>::new());
    // A newer version takes the place of the one that waits, and waits no longer than it.
    assert_eq!(
        take(
            &mut specs,
            naming("web", "tls"),
            until + Duration::from_secs(9)
        ),
        Vec::<String>::new()
    );
    assert_eq!(words(&specs.expire(until)), ["send shop/web"]);
    assert_eq!(specs.next_due(), None);
}

#[test]
fn a_new_leader_begins_behind_the_secrets_that_its_services_name_for_the_first_time() {
    let mut specs = SecretRefs::default();
    let now = Instant::now();
    let until = now + Duration::from_secs(3);
    let current = |term| Fact::Current { term };
    let reported = |term| format!("{:?}", current(term));
    // Nothing is held back.
    assert_eq!(take(&mut specs, current(1), until), [reported(1)]);
    take(&mut specs, naming("web", "tls"), until);
    take(&mut specs, naming("api", "slow"), until);
    take(&mut specs, naming("old", "slow"), until);
    assert_eq!(
        take(&mut specs, current(2), until),
        [] as [&str; 0],
        "three Services come before it"
    );
    // What is held back later does not have to be waited for.
    take(
        &mut specs,
        naming("new", "newest"),
        until + Duration::from_secs(1),
    );
    assert_eq!(words(&specs.know(&key("tls"))), ["send shop/web"]);
    let gone = take(&mut specs, Fact::ServiceGone(key("old")), until);
    assert_eq!(gone, ["gone shop/old"]);
    // A Secret that can't be had keeps no leader from its work for longer than its Service.
    assert_eq!(
        words(&specs.expire(until)),
        ["send shop/api".to_owned(), reported(2)]
    );
    assert_eq!(words(&specs.know(&key("newest"))), ["send shop/new"]);
}

#[test]
fn a_secret_is_watched_until_the_last_version_but_one_that_names_it_is_gone() {
    let mut specs = SecretRefs::default();
    let now = Instant::now();
    take(&mut specs, naming("web", "old"), now);
    specs.know(&key("old"));
    assert_eq!(
        take(&mut specs, naming("web", "new"), now),
        ["watch shop/new"]
    );
    assert_eq!(words(&specs.know(&key("new"))), ["send shop/web"]);
    // The same once more: a status change, say.
    assert_eq!(
        take(&mut specs, naming("web", "new"), now),
        ["send shop/web"]
    );
    assert_eq!(
        take(&mut specs, naming("web", "newest"), now),
        ["watch shop/newest", "unwatch shop/old"]
    );
    let gone = take(&mut specs, Fact::ServiceGone(key("web")), now);
    assert_eq!(
        gone,
        ["unwatch shop/new", "unwatch shop/newest", "gone shop/web"]
    );
    assert!(specs.is_settled());
}

#[test]
fn a_secret_of_two_services_is_watched_once() {
    let mut specs = SecretRefs::default();
    let now = Instant::now();
    take(&mut specs, naming("web", "tls"), now);
    assert_eq!(
        take(&mut specs, naming("api", "tls"), now),
        Vec::<String>::new()
    );
    assert_eq!(
        take(&mut specs, Fact::ServiceGone(key("web")), now),
        ["gone shop/web"]
    );
    assert_eq!(words(&specs.know(&key("tls"))), ["send shop/api"]);
    let gone = take(&mut specs, Fact::ServiceGone(key("api")), now);
    assert_eq!(gone, ["unwatch shop/tls", "gone shop/api"]);
}

#[test]
fn the_secrets_of_the_accepted_version_stay_watched_however_many_invalid_ones_follow() {
    let mut specs = SecretRefs::default();
    let now = Instant::now();
    take(&mut specs, naming("web", "a"), now);
    specs.know(&key("a"));
    let invalid = |name: &str| {
        let service = svc("web").in_namespace("shop").port(443);
        let service = service.annotated("landfall.dev/tls-secret", name);
        let accepted = svc("web").in_namespace("shop").port(443);
        let accepted = accepted.annotated("landfall.dev/tls-secret", "a").row();
        let accepted = wire::accepted_to_text(&accepted).unwrap();
        Fact::Service(
            service
                .with(|row| {
                    let marks = &mut row.status.marks;
                    marks.insert(ACCEPTED_VERSION.to_owned(), accepted.clone());
                })
                .row(),
        )
    };
    assert_eq!(take(&mut specs, invalid("b"), now), ["watch shop/b"]);
    specs.know(&key("b"));
    assert_eq!(take(&mut specs, invalid("c"), now), ["watch shop/c"]);
    specs.know(&key("c"));
    // The one in between is followed no longer, and the one that is served is.
    assert_eq!(
        take(&mut specs, invalid("d"), now),
        ["watch shop/d", "unwatch shop/b"]
    );
    // Accepted: its own is all that it needs, as soon as the version before is forgotten, too.
    specs.know(&key("d"));
    assert_eq!(
        take(&mut specs, naming("web", "d"), now),
        ["unwatch shop/a", "send shop/web"]
    );
}

#[test]
fn the_secret_of_a_version_that_is_served_in_place_of_the_newest_is_followed() {
    let served = svc("web").in_namespace("shop").port(443);
    let served = served.annotated("landfall.dev/tls-secret", "served");
    let text = wire::accepted_to_text(&served.row()).unwrap();
    let newest = svc("web").in_namespace("shop").port(443);
    let newest = newest.annotated("landfall.dev/tls-secret", "newest");
    let newest = newest.with(|row| {
        row.status.marks.insert(ACCEPTED_VERSION.to_owned(), text);
    });
    let mut specs = SecretRefs::default();
    let fact = Fact::Service(newest.row());
    assert_eq!(
        take(&mut specs, fact, Instant::now()),
        ["watch shop/newest", "watch shop/served"]
    );
}

#[test]
fn a_version_before_is_forgotten_as_soon_as_the_newest_is_on_record() {
    let on_record = |fact: Fact| {
        let Fact::Service(row) = fact else {
            panic!("no Service");
        };
        let mut row = ServiceRow::clone(&row);
        let text = wire::accepted_to_text(&row).unwrap();
        row.status.marks.insert(ACCEPTED_VERSION.to_owned(), text);
        Fact::Service(Arc::new(row))
    };
    let mut specs = SecretRefs::default();
    let now = Instant::now();
    take(&mut specs, naming("web", "old"), now);
    take(&mut specs, naming("web", "new"), now);
    specs.know(&key("new"));
    assert_eq!(
        take(&mut specs, on_record(naming("web", "new")), now),
        ["unwatch shop/old", "send shop/web"]
    );
    // One that names none is on record with none of what it named.
    take(&mut specs, naming("web", ""), now);
    assert_eq!(
        take(&mut specs, on_record(naming("web", "")), now),
        ["unwatch shop/new", "send shop/web"]
    );
    assert!(specs.named.is_empty() && specs.secrets.is_empty());
}

fn few() -> SecretRefs {
    SecretRefs {
        limits: Limits {
            certificates_per_service: 3,
            secrets_per_namespace: 2,
            secrets: 4,
            ..Limits::default()
        },
        ..SecretRefs::default()
    }
}

/// Orders as words; a Secret that is sent appears by its name.
fn in_short(orders: &[Order]) -> Vec<String> {
    orders
        .iter()
        .map(|order| match order {
            Order::Send(Fact::Secret(row)) => {
                let why = row.certificate.as_ref().unwrap_err();
                assert!(why.contains("too many Secrets"), "{why}");
                format!("refuse {}", row.key)
            }
            Order::Send(Fact::SecretGone(key)) => format!("nothing of {key}"),
            _ => words(std::slice::from_ref(order)).remove(0),
        })
        .collect()
}

#[test]
fn secrets_over_the_limit_of_a_namespace_are_refused_and_no_service_waits_for_them() {
    let mut specs = few();
    let now = Instant::now();
    let orders = specs.take(naming("web", "a,b,c"), now);
    assert_eq!(
        in_short(&orders),
        ["watch shop/a", "watch shop/b", "refuse shop/c"]
    );
    specs.know(&key("a"));
    assert_eq!(words(&specs.know(&key("b"))), ["send shop/web"]);
    assert!(specs.is_settled());
    // Another namespace has its own.
    let other = svc("x").in_namespace("other").port(443);
    let other = Fact::Service(other.annotated("landfall.dev/tls-secret", "d").row());
    assert_eq!(in_short(&specs.take(other, now)), ["watch other/d"]);
    // What is given back is used for what was refused.
    specs.take(naming("web", "b,c"), now);
    let orders = specs.take(naming("web", "c,b"), now);
    assert_eq!(in_short(&orders), ["send shop/web"]);
    let orders = specs.take(Fact::ServiceGone(ServiceKey::new("shop", "web")), now);
    assert!(specs.refused.is_empty());
    assert_eq!(specs.watched.len(), 1);
    assert!(in_short(&orders).contains(&"gone shop/web".to_owned()));
}

#[test]
fn a_refused_secret_is_watched_once_there_is_room() {
    let mut specs = few();
    let now = Instant::now();
    specs.take(naming("one", "a"), now);
    specs.take(naming("two", "b"), now);
    let orders = specs.take(naming("three", "c"), now);
    assert_eq!(in_short(&orders), ["refuse shop/c", "send shop/three"]);
    let orders = specs.take(Fact::ServiceGone(ServiceKey::new("shop", "one")), now);
    assert_eq!(
        in_short(&orders),
        [
            "unwatch shop/a",
            "nothing of shop/c",
            "watch shop/c",
            "gone shop/one"
        ]
    );
    // One that was refused and is named no more leaves nothing behind.
    specs.take(naming("four", "d"), now);
    let orders = specs.take(Fact::ServiceGone(ServiceKey::new("shop", "four")), now);
    assert_eq!(in_short(&orders), ["nothing of shop/d", "gone shop/four"]);
}

#[test]
fn whatever_namespaces_name_no_more_than_all_are_watched_and_each_leaves_something() {
    let mut specs = SecretRefs {
        limits: Limits::default().within_files(1024),
        ..SecretRefs::default()
    };
    let now = Instant::now();
    let mut name = |namespace: &str, service: usize| {
        let secret = format!("secret-{service}");
        let row = svc(&format!("web-{service}"))
            .in_namespace(namespace)
            .port(443);
        let row = row.annotated("landfall.dev/tls-secret", &secret).row();
        specs.take(Fact::Service(row), now);
        let counts = specs.counts();
        assert_eq!(counts.limit, 128);
        assert!(counts.watched <= counts.limit, "{counts:?}");
        let most: usize = specs.watched.values().sum();
        assert_eq!(most as u64, counts.watched);
        (
            specs.watched.get(namespace).copied().unwrap_or_default(),
            counts,
        )
    };
    let mut each = Vec::new();
    for namespace in ["a", "b", "c", "d", "e"] {
        let last = (0..100).map(|service| name(namespace, service)).last();
        each.push(last.unwrap().0);
    }
    assert_eq!(each, [32, 32, 32, 16, 8]);
    let (here, counts) = name("f", 0);
    assert_eq!((here, counts.watched, counts.refused), (1, 121, 500 - 120));
}

#[test]
fn no_more_secrets_of_a_service_are_watched_than_it_may_name() {
    let mut specs = SecretRefs {
        limits: Limits {
            certificates_per_service: 2,
            ..Limits::default()
        },
        ..SecretRefs::default()
    };
    let orders = specs.take(naming("web", "a,b,c,d"), Instant::now());
    assert_eq!(in_short(&orders), ["watch shop/a", "watch shop/b"]);
}

#[test]
fn facts_cost_the_same_however_many_secrets_are_refused() {
    let looks = |refused: usize| {
        let mut specs = few();
        let now = Instant::now();
        specs.take(naming("web", "a,b"), now);
        for number in 0..refused {
            let name = format!("greedy-{number}");
            specs.take(naming(&name, &format!("secret-{number}")), now);
        }
        let before = specs.looks;
        specs.take(naming("web", "a,b"), now);
        assert_eq!(specs.looks, before, "nothing was given back");
        specs.take(Fact::ServiceGone(key("web")), now);
        specs.looks - before
    };
    // One for each of the two that are watched in their place, and one to see that there is no
    // room.
    assert_eq!(looks(3), 3);
    assert_eq!(looks(300), 3);
}

#[test]
fn the_version_on_record_keeps_no_more_secrets_watched_than_a_service_may_name() {
    let names: Vec<String> = (0..9).map(|number| format!("s{number}")).collect();
    let version = svc("web").in_namespace("shop").port(443);
    let version = version.annotated("landfall.dev/tls-secret", &names.join(","));
    let text = wire::accepted_to_text(&version.row()).unwrap();
    let newest = svc("web").in_namespace("shop").port(443).with(|row| {
        row.status.marks.insert(ACCEPTED_VERSION.to_owned(), text);
    });
    let mut specs = few();
    let orders = specs.take(Fact::Service(newest.row()), Instant::now());
    assert_eq!(
        in_short(&orders),
        [
            "watch shop/s0",
            "watch shop/s1",
            "refuse shop/s2",
            "send shop/web"
        ]
    );
}
