//! What is remembered of cluster IPs.

use landfall_testkit::build::ServiceBuilder;
use landfall_testkit::{slice, svc};

use super::*;

/// The facts that are remembered of a Service with an address, in a cluster with cluster IPs.
fn remembered(web: &ServiceBuilder, slice: Arc<SliceRow>) -> Vec<Fact> {
    let mut world = World::default();
    let web = web.clone().port(80).holding("192.0.2.1").row();
    let dns = ServiceKey::new("other", "dns");
    let addresses = [7, 8].map(|last| IpAddr::from([10, 96, 0, last]));
    for fact in [
        Fact::Service(web.clone()),
        Fact::Slice(slice),
        Fact::ClusterIps(dns, addresses.into()),
    ] {
        world.apply(fact);
    }
    facts_of(&world, &[web.key.clone()].into())
}

#[test]
fn an_endpoint_that_is_a_cluster_ip_is_not_remembered() {
    let slice = slice("web").port("", 8080);
    let slice = slice.ready("10.0.0.1").ready("10.96.0.7").row();
    let facts = remembered(&svc("web"), slice);
    let endpoints = facts.iter().find_map(|fact| match fact {
        Fact::Slice(row) => Some(row.endpoints.iter().map(|it| it.address.to_string())),
        _ => None,
    });
    assert_eq!(endpoints.unwrap().collect::<Vec<_>>(), ["10.0.0.1"]);
    let is_cluster_ips = |fact: &Fact| matches!(fact, Fact::ClusterIps(..));
    assert!(!facts.iter().any(is_cluster_ips), "{facts:?}");
}

#[test]
fn of_all_cluster_ips_those_that_an_annotation_names_are_remembered() {
    let named = "10.96.0.7:80, 10.0.0.1:80";
    let web = svc("web").annotated("landfall.dev/endpoints", named);
    let snapshot = Snapshot {
        about: About {
            written: Timestamp::UNIX_EPOCH,
            cluster: String::new(),
            configuration: String::new(),
        },
        facts: remembered(&web, slice("web").ready("10.96.0.8").row()),
    };
    let mut next = World::default();
    for fact in Snapshot::decode(&snapshot.encode()).unwrap().facts {
        next.apply(fact);
    }
    let cluster_ips = [1, 7, 8].map(|last| next.is_cluster_ip([10, 96, 0, last].into()));
    assert_eq!(cluster_ips, [false, true, false]);
}
