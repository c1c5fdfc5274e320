use landfall_model::rows::{Family, FamilyPolicy};
use landfall_testkit::build::{ip, namespace};

use super::*;

fn address(service: ServiceBuilder) -> landfall_model::AddressSpec {
    spec(service).0.address
}

#[test]
fn a_service_that_asks_for_nothing_takes_any_address_of_its_family() {
    let plain = address(web().labelled("app", "web").holding("192.0.2.7"));
    assert_eq!(
        plain,
        landfall_model::AddressSpec {
            namespace_labels: [(
                "kubernetes.io/metadata.name".to_owned(),
                "default".to_owned()
            )]
            .into(),
            labels: [("app".to_owned(), "web".to_owned())].into(),
            families: vec![Family::V4],
            policy: FamilyPolicy::SingleStack,
            requested: Vec::new(),
            requested_by: String::new(),
            pool: None,
            count: 1,
            sharing_key: None,
            backend_key: String::new(),
            held: vec![ip("192.0.2.7")],
        }
    );
}

#[test]
fn labels_of_the_namespace_are_part_of_the_spec() {
    let world = world([Fact::Namespace(namespace("shop", &[("team", "a")]))]);
    let (spec, _) = spec_in(&world, web().in_namespace("shop"));
    let labels = spec.address.namespace_labels;
    assert_eq!(labels.get("team").map(String::as_str), Some("a"));
    assert_eq!(
        labels
            .get("kubernetes.io/metadata.name")
            .map(String::as_str),
        Some("shop")
    );
}

#[test]
fn addresses_pool_and_sharing_key_come_from_annotations() {
    let asked = address(
        web()
            .annotated("landfall.dev/addresses", "192.0.2.10")
            .annotated("metallb.io/address-pool", "public")
            .annotated("metallb.io/allow-shared-ip", "office"),
    );
    assert_eq!(asked.requested, [ip("192.0.2.10")]);
    assert_eq!(
        asked.requested_by,
        "metadata.annotations[landfall.dev/addresses]"
    );
    assert_eq!(asked.pool.as_deref(), Some("public"));
    assert_eq!(asked.sharing_key.as_deref(), Some("office"));
}

#[test]
fn several_addresses_are_wanted_by_number_or_by_name() {
    let counted = |count| web().annotated("landfall.dev/address-count", count);
    assert_eq!(address(counted("3")).count, 3);
    for count in ["0", "9", "two"] {
        assert_eq!(error(counted(count)).value.as_deref(), Some(count));
    }
    let both = "192.0.2.10, 192.0.2.12";
    let asked = address(web().annotated("metallb.io/loadBalancerIPs", both));
    assert_eq!(asked.requested, [ip("192.0.2.10"), ip("192.0.2.12")]);
    assert_eq!(asked.count, 2);
    let named = |count| counted(count).annotated("landfall.dev/addresses", both);
    assert_eq!(address(named("2")).count, 2);
    let reason = error(named("1"));
    assert_eq!(reason.code, Code::ConflictingOptions);
    assert_eq!(
        reason.field.as_deref(),
        Some("metadata.annotations[landfall.dev/address-count]")
    );
}

#[test]
fn the_field_of_the_spec_asks_for_an_address_too() {
    let asked = address(web().load_balancer_ip(" 192.0.2.10 "));
    assert_eq!(asked.requested, [ip("192.0.2.10")]);
    assert_eq!(asked.requested_by, "spec.loadBalancerIP");
    assert_eq!(
        address(web().load_balancer_ip("")).requested,
        Vec::<std::net::IpAddr>::new()
    );
}

#[test]
fn requests_that_agree_are_one_and_those_that_do_not_an_error() {
    let asking = |metallb: &str| {
        web()
            .annotated("landfall.dev/addresses", "192.0.2.10")
            .annotated("metallb.io/loadBalancerIPs", metallb)
            .load_balancer_ip("192.0.2.10")
    };
    assert_eq!(address(asking("192.0.2.10")).requested, [ip("192.0.2.10")]);
    assert_eq!(
        error(asking("192.0.2.11")),
        Reason::error(
            Code::ConflictingOptions,
            "metadata.annotations[landfall.dev/addresses] requests other addresses: 192.0.2.10"
        )
        .at_annotation("metallb.io/loadBalancerIPs")
        .value("192.0.2.11")
        .remedy("keep one of the two")
    );
}

#[test]
fn an_address_of_a_family_that_the_service_lacks_is_refused() {
    let reason = error(web().annotated("landfall.dev/addresses", "2001:db8::1"));
    assert_eq!(reason.code, Code::AddressFamilyMismatch);
    assert_eq!(
        reason.message,
        "2001:db8::1 is IPv6, and the Service is IPv4"
    );
}

#[test]
fn families_follow_the_policy() {
    let both = [Family::V6, Family::V4];
    let families = |policy| address(web().families(&both, policy)).families;
    assert_eq!(families(FamilyPolicy::SingleStack), [Family::V6]);
    assert_eq!(families(FamilyPolicy::PreferDualStack), both);
    assert_eq!(families(FamilyPolicy::RequireDualStack), both);
    let one = address(web().families(&[Family::V4], FamilyPolicy::PreferDualStack));
    assert_eq!(one.families, [Family::V4]);
}

#[test]
fn requiring_both_families_needs_both_families() {
    let reason = error(web().families(&[Family::V4], FamilyPolicy::RequireDualStack));
    assert_eq!(reason.code, Code::AddressFamilyMismatch);
    assert_eq!(reason.field.as_deref(), Some("spec.ipFamilyPolicy"));
}

#[test]
fn requiring_both_families_needs_two_requested_addresses_and_preferring_does_not() {
    let asking = |policy| {
        web()
            .families(&[Family::V4, Family::V6], policy)
            .load_balancer_ip("192.0.2.1")
    };
    assert_eq!(
        error(asking(FamilyPolicy::RequireDualStack)).code,
        Code::AddressFamilyMismatch
    );
    let preferred = address(asking(FamilyPolicy::PreferDualStack));
    assert_eq!(preferred.requested, [ip("192.0.2.1")]);
}

#[test]
fn services_with_local_traffic_share_only_with_their_like() {
    let key = |service: ServiceBuilder| address(service).backend_key;
    let selecting = |name: &str| {
        svc(name)
            .port(80)
            .selecting("tier", "front")
            .selecting("app", "a")
    };
    assert_eq!(key(selecting("one")), "");
    assert_eq!(key(selecting("one").local()), "app=a,tier=front");
    assert_eq!(key(selecting("one").local()), key(selecting("two").local()));
    let without = key(svc("one").port(80).local());
    assert_ne!(
        without, "",
        "must not look like externalTrafficPolicy: Cluster"
    );
    assert_ne!(without, key(svc("two").port(80).local()));
}

#[test]
fn a_host_name_is_published_in_place_of_the_address() {
    let (spec, remarks) = spec(web().annotated("landfall.dev/hostname", "web.example.org"));
    assert_eq!(spec.hostname.as_deref(), Some("web.example.org"));
    assert_eq!(remarks, []);
}
