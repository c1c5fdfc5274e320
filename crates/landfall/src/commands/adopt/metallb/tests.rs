//! What is decided of facts, without a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use landfall_config::file;
use landfall_files::Loaded;
use landfall_l2::election::hash;
use landfall_model::rows::{Fact, Family, FamilyPolicy, ResourceKind};
use landfall_model::wire;
use landfall_testkit::build::ServiceBuilder;
use landfall_testkit::{node, slice, svc};
use serde_json::{Value, json};

use super::installed::Part;
use super::*;

fn pool(name: &str, spec: &Value) -> Fact {
    let object = json!({
        "apiVersion": "metallb.io/v1beta1", "kind": "IPAddressPool",
        "metadata": {"name": name, "namespace": METALLB_NAMESPACE}, "spec": spec,
    });
    let shape: wire::IpAddressPool = serde_json::from_value(object.clone()).unwrap();
    let resource: wire::Resource = serde_json::from_value(object).unwrap();
    let mut row = shape.into_row().unwrap();
    row.resource = Some(Arc::new(
        resource.into_row(ResourceKind::IpAddressPool).unwrap(),
    ));
    Fact::Pool(Arc::new(row))
}

fn advertisement(kind: ResourceKind, spec: &Value) -> Fact {
    let shape: wire::Resource = serde_json::from_value(json!({
        "apiVersion": "metallb.io/v1beta1", "kind": kind.to_string(),
        "metadata": {"name": "all", "namespace": METALLB_NAMESPACE}, "spec": spec,
    }))
    .unwrap();
    Fact::Resource(Arc::new(shape.into_row(kind).unwrap()))
}

/// A Service that MetalLB has given an address of the pool `lan`.
fn held(name: &str, address: &str) -> ServiceBuilder {
    svc(name)
        .port(80)
        .holding(address)
        .annotated("metallb.io/ip-allocated-from-pool", "lan")
}

fn cluster(services: Vec<ServiceBuilder>) -> Vec<Fact> {
    let mut facts = vec![
        pool("lan", &json!({"addresses": ["192.0.2.0/24"]})),
        advertisement(ResourceKind::L2Advertisement, &json!({})),
    ];
    for (name, address) in [("n1", "10.0.0.1"), ("n2", "10.0.0.2"), ("n3", "10.0.0.3")] {
        facts.push(Fact::Node(node(name, address).row()));
    }
    for service in services {
        let row = service.row();
        let slice = slice(row.key.name()).port("", 8080).ready("10.8.0.1");
        let mut slice = (*slice.row()).clone();
        slice.service = row.key.clone();
        slice.key = ServiceKey::new(row.key.namespace(), slice.key.name());
        facts.extend([Fact::Slice(Arc::new(slice)), Fact::Service(row)]);
    }
    facts
}

async fn surveyed(facts: Vec<Fact>, installed: &Installed) -> Survey {
    let config = file::parse("landfall.yaml", &assumed(installed)).unwrap();
    let instances = Instances::of_config(config).await.unwrap().in_cluster();
    let loaded = Loaded {
        facts,
        ..Loaded::default()
    };
    survey::survey(&instances, loaded, installed).await
}

fn installed() -> Installed {
    Installed {
        namespace: METALLB_NAMESPACE.to_owned(),
        ..Installed::default()
    }
}

/// MetalLB with a controller and a speaker on each of these nodes.
fn running(nodes: &[&str]) -> Installed {
    let speakers = nodes
        .iter()
        .map(|it| (format!("speaker-{it}"), Some((*it).to_owned())));
    Installed {
        controller: Part {
            workloads: BTreeSet::from(["deployment/controller".to_owned()]),
            pods: BTreeMap::from([("controller-x".to_owned(), None)]),
        },
        speaker: Part {
            workloads: BTreeSet::from(["daemonset/speaker".to_owned()]),
            pods: speakers.collect(),
        },
        ..installed()
    }
}

#[tokio::test]
async fn addresses_are_kept_and_announced_from_the_same_node() {
    let facts = cluster(vec![held("web", "192.0.2.7"), held("api", "192.0.2.9")]);
    let survey = surveyed(facts, &installed()).await;
    assert!(survey.is_sound() && survey.first.is_empty(), "{survey:#?}");
    assert_eq!(survey.takes().len(), 2);
    for takeover in &survey.services {
        let kept = &takeover.addresses[0];
        let nodes = ["n1", "n2", "n3"];
        let least = nodes.into_iter().min_by_key(|it| hash(it, kept.address));
        assert_eq!(kept.metallb_elects.as_deref(), least);
        assert_eq!(kept.landfall_elects.as_deref(), least);
        assert_eq!(kept.pool.as_deref(), Some("lan"));
        assert!(
            !takeover.moves && takeover.steps.is_empty(),
            "{takeover:#?}"
        );
    }
    let text = text::describe(&survey, Some("instances: []\n"));
    let kept = "default/web (metal)\n  keeps 192.0.2.7 of pool lan, announced from n";
    assert!(text.contains(kept), "{text}");
    let summary = "2 Services: 0 would lose an address, 0 would be announced from another \
                   node, \
                   0 taken over already; --apply writes the status of 2 others and an annotation \
                   of 0 pools\n";
    assert!(text.ends_with(summary), "{text}");
}

#[tokio::test]
async fn a_controller_that_runs_is_in_the_way_with_the_command_that_stops_it() {
    let facts = || cluster(vec![held("web", "192.0.2.7")]);
    let survey = surveyed(facts(), &running(&["n2"])).await;
    assert!(survey.is_sound(), "a dry run is made while it runs");
    let refused = refuse(survey.first.iter().filter(|it| it.blocks))
        .unwrap_err()
        .to_string();
    let command = "kubectl -n metallb-system scale deployment/controller --replicas=0";
    assert!(
        refused.contains(command) && refused.contains("nothing was written"),
        "{refused}"
    );
    // Only nodes with one of its speakers are candidates.
    let kept = &survey.services[0].addresses[0];
    assert_eq!(kept.metallb_elects.as_deref(), Some("n2"));
    assert_eq!(kept.landfall_elects.as_deref(), Some("n2"));
    let next: Vec<&str> = survey.next.iter().map(|it| it.remedy.as_str()).collect();
    assert!(
        next.iter().any(|it| it.contains("patch daemonset/speaker")),
        "{next:?}"
    );
    let survey = surveyed(facts(), &installed()).await;
    refuse(survey.first.iter().filter(|it| it.blocks)).unwrap();
}

#[tokio::test]
async fn a_pool_whose_address_namespaces_share_gets_the_annotation() {
    let key = "metallb.io/allow-shared-ip";
    let dns = held("dns", "192.0.2.7").annotated(key, "k");
    let dns = dns
        .in_namespace("other")
        .with(|row| row.ports.clear())
        .port(53);
    let services = vec![held("web", "192.0.2.7").annotated(key, "k"), dns];
    let survey = surveyed(cluster(services), &installed()).await;
    assert_eq!(survey.pools, [ServiceKey::new(METALLB_NAMESPACE, "lan")]);
    assert!(survey.is_sound(), "{survey:#?}");
    // MetalLB's webhook would refuse it.
    let webhooks = BTreeSet::from(["metallb-webhook-configuration".to_owned()]);
    let with = Installed {
        webhooks,
        ..installed()
    };
    let alone = surveyed(cluster(vec![held("web", "192.0.2.7")]), &with).await;
    assert!(alone.is_sound() && alone.first.len() == 1, "{alone:#?}");
}

#[tokio::test]
async fn what_no_speaker_of_ours_would_announce_is_in_the_way() {
    let mut facts = cluster(vec![held("web", "192.0.2.7")]);
    facts.retain(|fact| !matches!(fact, Fact::Resource(_)));
    facts.push(advertisement(ResourceKind::BgpAdvertisement, &json!({})));
    let survey = surveyed(facts, &installed()).await;
    assert!(!survey.is_sound());
    let what = &survey.first[0].what;
    assert!(
        what.starts_with("1 Service of pool lan would not be announced"),
        "{what}"
    );
    assert!(what.ends_with("default/web"), "{what}");
}

#[tokio::test]
async fn services_of_a_class_that_no_instance_serves_are_in_the_way() {
    let other = held("web", "192.0.2.7").with(|row| row.class = Some("lan".into()));
    let survey = surveyed(cluster(vec![other]), &installed()).await;
    assert!(survey.services.is_empty() && !survey.is_sound());
    assert!(
        survey.first[0].remedy.contains("classNames: [lan]"),
        "{:?}",
        survey.first
    );
    // With the class of MetalLB's own flag the configuration serves it.
    let other = held("web", "192.0.2.7").with(|row| row.class = Some("lan".into()));
    let of_class = Installed {
        class: Some("lan".to_owned()),
        ..installed()
    };
    let survey = surveyed(cluster(vec![other]), &of_class).await;
    assert!(
        survey.is_sound() && survey.services.len() == 1,
        "{survey:#?}"
    );
}

#[tokio::test]
async fn an_address_that_is_in_no_pool_any_more_moves_and_is_not_taken_over_silently() {
    let survey = surveyed(cluster(vec![held("web", "198.51.100.7")]), &installed()).await;
    let takeover = &survey.services[0];
    assert!(takeover.moves && !survey.is_sound(), "{survey:#?}");
    let text = text::describe(&survey, None);
    assert!(text.contains("  loses 198.51.100.7"), "{text}");
}

#[tokio::test]
async fn two_services_with_one_address_and_no_sharing_key_are_not_both_taken_over() {
    let services = vec![held("web", "192.0.2.7"), held("api", "192.0.2.7")];
    let survey = surveyed(cluster(services), &installed()).await;
    let moves = survey
        .services
        .iter()
        .filter(|it| it.moves || it.is_refused())
        .count();
    assert_eq!(moves, 1, "{survey:#?}");
}

#[tokio::test]
async fn the_order_of_addresses_that_a_service_asks_for_is_kept_and_with_it_the_node() {
    let web = held("web", "2001:db8::1").holding("203.0.113.7");
    let web = web.annotated("metallb.io/loadBalancerIPs", "203.0.113.7,2001:db8::1");
    let families = [Family::V4, Family::V6];
    let web = web.families(&families, FamilyPolicy::RequireDualStack);
    let mut facts = cluster(vec![web]);
    let spec = json!({"addresses": ["203.0.113.0/24", "2001:db8::/120"]});
    facts.push(pool("lan", &spec));
    let survey = surveyed(facts, &installed()).await;
    let takeover = &survey.services[0];
    let held: Vec<_> = takeover.addresses.iter().map(|it| it.address).collect();
    assert_eq!(takeover.after, held);
    assert!(survey.is_sound() && !takeover.changes_node(), "{survey:#?}");
}

#[test]
fn the_assumed_configuration_serves_what_metallb_serves() {
    assert_eq!(
        assumed(&installed()),
        "instances:\n- name: metal\n  provider: metal\n  default: true\n"
    );
    let other = Installed {
        namespace: "networking".to_owned(),
        class: Some("lan".to_owned()),
        ..Installed::default()
    };
    assert_eq!(
        assumed(&other),
        "metallbNamespace: networking\ninstances:\n- name: metal\n  provider: metal\n  \
         classNames: [\"lan\"]\n"
    );
}
