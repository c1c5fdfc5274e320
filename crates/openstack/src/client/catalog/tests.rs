use serde_json::{Value, json};

use super::*;

fn service(kind: &str, endpoints: &[(&str, &str, &str)]) -> Value {
    let endpoints = endpoints.iter().map(|(interface, region, url)| {
        json!({"interface": interface, "region": region, "region_id": region, "url": url})
    });
    json!({"type": kind, "name": kind, "endpoints": endpoints.collect::<Vec<_>>()})
}

fn catalog(services: &[Value]) -> Vec<Entry> {
    services
        .iter()
        .map(|service| serde_json::from_value(service.clone()).unwrap())
        .collect()
}

#[test]
fn the_first_endpoint_of_type_interface_and_region_is_taken() {
    let catalog = catalog(&[
        service("compute", &[("public", "two", "http://nova")]),
        service("network", &[("public", "two", "http://net.two:9696")]),
        service(
            "load-balancer",
            &[
                ("public", "one", "http://lb.one"),
                ("internal", "two", "http://lb.inside"),
                ("public", "two", "https://lb.two/load-balancer/"),
                ("public", "two", "https://lb.late"),
            ],
        ),
    ]);
    let endpoints = Endpoints::pick(&catalog, Interface::Public, Some("two")).unwrap();
    let base = endpoints.load_balancer;
    assert_eq!(base.api.as_str(), "https://lb.two/load-balancer/v2");
    assert_eq!(base.root.as_str(), "https://lb.two/load-balancer/");
    assert_eq!(endpoints.network.api.as_str(), "http://net.two:9696/v2.0");
    assert_eq!(endpoints.key_manager, None);
    let first = Endpoints::pick(&catalog, Interface::Public, None).unwrap();
    assert_eq!(first.load_balancer.api.as_str(), "http://lb.one/v2");
}

#[test]
fn a_version_in_the_address_is_kept() {
    for (url, api, root) in [
        ("http://c/lb/v2.0", "http://c/lb/v2.0", "http://c/lb"),
        ("http://c/v2.0/", "http://c/v2.0/", "http://c/"),
        ("http://c/lb/v2", "http://c/lb/v2", "http://c/lb"),
        ("http://c/lb", "http://c/lb/v2", "http://c/lb"),
        ("http://c/vip", "http://c/vip/v2", "http://c/vip"),
    ] {
        let base = Base::new(url, Service::LoadBalancer).unwrap();
        assert_eq!(
            (base.api.as_str(), base.root.as_str()),
            (api, root),
            "{url}"
        );
        let lists = joined(&base.api, &["lbaas", "pools"]);
        assert!(!lists.path().contains("//"), "{lists}");
    }
}

#[test]
fn what_the_catalog_lacks_is_named_beside_what_it_has() {
    let catalog = catalog(&[
        service("network", &[("public", "one", "http://net")]),
        service("load-balancer", &[("public", "one", "http://lb")]),
    ]);
    let why = Endpoints::pick(&catalog, Interface::Public, Some("two")).unwrap_err();
    assert_eq!(
        why,
        "the catalog has no load-balancer with interface public in region two; it has network \
         (public in one), load-balancer (public in one)"
    );
    let why = Endpoints::pick(&[], Interface::Admin, None).unwrap_err();
    assert_eq!(
        why,
        "the catalog has no load-balancer with interface admin; it has nothing: is the token for \
         a project?"
    );
}

#[test]
fn an_endpoint_that_is_no_address_is_named() {
    let catalog = catalog(&[
        service("network", &[("public", "one", "http://net")]),
        service("load-balancer", &[("public", "one", "lb.example:9876")]),
    ]);
    let why = Endpoints::pick(&catalog, Interface::Public, None).unwrap_err();
    assert!(
        why.starts_with("load-balancer in the catalog: \"lb.example:9876\""),
        "{why}"
    );
}
