use super::*;
use crate::entry::EntryError;
use crate::selector::{ExpressionSpec, SelectorError};
use crate::testing::{exists, name, pool, selector};

fn errors(spec: &PoolSpec) -> Vec<PoolError> {
    Pool::parse(spec).unwrap_err()
}

#[test]
fn a_pool_is_what_was_written() {
    let spec = pool("a", "10.0.0.0/24, fd00::1-fd00::9")
        .avoiding()
        .priority(5)
        .namespace("ns")
        .namespaces_with(exists("team"))
        .services_with(selector("a=b"));
    let pool = Pool::parse(&spec).unwrap();
    assert_eq!(pool.name().as_str(), "a");
    assert_eq!(
        pool.entries().iter().map(Entry::text).collect::<Vec<_>>(),
        spec.addresses
    );
    assert!(pool.auto_assign());
    assert!(pool.avoid_buggy_ips());
    assert!(pool.has_family(Family::V4) && pool.has_family(Family::V6));
    let allocation = pool.allocation().unwrap();
    assert_eq!(allocation.priority(), 5);
    assert_eq!(allocation.namespaces(), &BTreeSet::from(["ns".to_owned()]));
    assert_eq!(allocation.namespace_selectors().len(), 1);
    assert_eq!(allocation.service_selectors().len(), 1);
}

#[test]
fn all_mistakes_of_a_pool_are_reported_at_once() {
    let spec = pool("a", "10.0.0.1, 10.0.0.0/24, 10.0.0.9-10.0.0.1")
        .namespace("n")
        .namespace("n");
    let found = errors(&spec);
    let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "pool a, entry \"10.0.0.1\": an address alone is neither a prefix nor a range",
            "pool a, entry \"10.0.0.9-10.0.0.1\": the range begins with 10.0.0.9, which is after \
            its end 10.0.0.1",
            "pool a lists the namespace \"n\" twice",
        ]
    );
    let remedies: Vec<String> = found.iter().map(PoolError::remedy).collect();
    assert_eq!(
        remedies,
        [
            "write 10.0.0.1/32 for this one address",
            "write 10.0.0.1-10.0.0.9",
            "list \"n\" once",
        ]
    );
    assert!(found.iter().all(|error| error.pool() == Some(&name("a"))));
}

#[test]
fn a_range_over_two_families_is_refused_rather_than_empty() {
    let found = errors(&pool("a", "10.0.0.1-fd00::1"));
    assert!(matches!(
        &found[..],
        [PoolError::Entry {
            source: EntryError::MixedFamilies { .. },
            ..
        }]
    ));
}

#[test]
fn a_pool_needs_a_name_and_an_entry() {
    let found = errors(&PoolSpec::new("", [] as [&str; 0]));
    assert_eq!(
        found,
        [PoolError::NoName, PoolError::NoAddresses { pool: name("") }]
    );
    assert_eq!(found[0].pool(), None);
}

#[test]
fn entries_of_one_pool_must_not_overlap() {
    let found = errors(&pool("a", "10.0.0.0/24, 10.0.1.0/24, 10.0.0.255-10.0.1.0"));
    assert_eq!(
        found.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            "pool a, entry \"10.0.0.255-10.0.1.0\" overlaps entry \"10.0.0.0/24\" of pool a",
            "pool a, entry \"10.0.1.0/24\" overlaps entry \"10.0.0.255-10.0.1.0\" of pool a",
        ]
    );
    assert!(Pool::parse(&pool("a", "10.0.0.0/24, 10.0.1.0/24, 11.0.0.0/8, 2000::/3")).is_ok());
}

#[test]
fn selectors_must_be_valid_and_different() {
    let spec = pool("a", "10.0.0.0/24")
        .services_with(selector("a=b"))
        .services_with(selector("a=b"))
        .namespaces_with(SelectorSpec {
            match_expressions: vec![ExpressionSpec {
                key: "k".into(),
                operator: "Near".into(),
                values: vec![],
            }],
            ..SelectorSpec::default()
        });
    assert_eq!(
        errors(&spec),
        [
            PoolError::Selector {
                pool: name("a"),
                field: "namespaceSelectors",
                source: SelectorError::UnknownOperator {
                    key: "k".into(),
                    operator: "Near".into()
                },
            },
            PoolError::DuplicateSelector {
                pool: name("a"),
                field: "serviceSelectors",
                selector: LabelSelector::parse(&selector("a=b")).unwrap(),
            },
        ]
    );
}

#[test]
fn addresses_that_no_load_balancer_can_have_are_refused_with_what_they_are() {
    let refused = |text: &str| {
        let errors = Pool::parse(&pool("a", text)).err()?;
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        Some(errors.join("; "))
    };
    for (text, kind) in [
        ("224.0.0.0/30", "multicast"),
        ("223.255.255.255-224.0.0.0", "multicast"),
        ("0.0.0.0/30", "unspecified"),
        ("255.255.255.255/32", "broadcast"),
        ("::/126", "unspecified"),
        ("ff02::/64", "multicast"),
    ] {
        let reported = refused(text).unwrap_or_default();
        assert!(reported.contains(kind), "{text}: {reported:?}");
    }
    for text in ["127.0.0.0/8", "::1/128", "192.0.2.0/24", "240.0.0.0/24"] {
        assert_eq!(refused(text), None, "{text}");
    }
}
