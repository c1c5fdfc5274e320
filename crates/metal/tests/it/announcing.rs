//! What is said of addresses that no speaker may announce.

use landfall_model::provider::Provider as _;
use landfall_model::reason::Code;
use landfall_model::rows::{ResourceKind, ServiceRow};
use landfall_testkit::svc;
use serde_json::json;

use crate::rig::{Site, bgp, l2, pool, resource, web};

#[tokio::test]
async fn with_an_endpoint_and_an_advertisement_traffic_may_arrive() {
    let mut site = Site::with(&[pool("a", &["192.0.2.0/30"])]);
    site.serve("web");
    let row = web("web");
    site.addresses(&row).await;
    assert_eq!(site.waiting(&row).await, []);
}

#[tokio::test]
async fn without_an_endpoint_the_address_stays_and_no_traffic_arrives() {
    let site = Site::with(&[pool("a", &["192.0.2.0/30"])]);
    let row = web("web");
    assert_eq!(site.addresses(&row).await, ["192.0.2.0"]);
    assert_eq!(site.waiting(&row).await, [Code::NoEndpoints]);
}

#[tokio::test]
async fn an_address_without_an_advertisement_is_assigned_and_reported_with_a_remedy() {
    let mut site = Site::with(&[pool("a", &["192.0.2.0/30"])]);
    site.serve("web");
    let row = web("web");
    for (resources, says) in [
        (vec![], "there is no L2Advertisement"),
        (
            vec![l2(json!({"ipAddressPools": ["other"]}))],
            "no L2Advertisement or BGPAdvertisement is for pool a and this Service",
        ),
        (
            vec![l2(
                json!({"serviceSelectors": [{"matchLabels": {"app": "x"}}]}),
            )],
            "no L2Advertisement or BGPAdvertisement is for pool a and this Service",
        ),
    ] {
        site.set(&[pool("a", &["192.0.2.0/30"])], &resources);
        assert_eq!(site.addresses(&row).await, ["192.0.2.0"]);
        let waiting = site.status(&site.spec(&row)).await.waiting;
        assert_eq!(waiting.len(), 1, "{waiting:?}");
        assert_eq!(waiting[0].code, Code::NotAnnounced);
        assert!(waiting[0].message.contains(says), "{}", waiting[0]);
        assert!(waiting[0].remedy.contains("L2Advertisement for pool a"));
    }
}

#[tokio::test]
async fn a_sharing_key_and_an_advertisement_that_selects_services_exclude_each_other() {
    let mut site = Site::with(&[pool("a", &["192.0.2.0/30"])]);
    site.serve("web");
    let selects = l2(json!({"serviceSelectors": [{"matchLabels": {"app": "web"}}]}));
    site.set(&[pool("a", &["192.0.2.0/30"])], &[selects]);
    let labelled = svc("web").port(80).labelled("app", "web");
    let alone = ServiceRow::clone(&labelled.clone().row());
    site.addresses(&alone).await;
    assert_eq!(site.waiting(&alone).await, []);
    let sharing = labelled.annotated("metallb.io/allow-shared-ip", "k").row();
    site.addresses(&sharing).await;
    assert_eq!(site.waiting(&sharing).await, [Code::NotAnnounced]);
}

#[tokio::test]
async fn an_advertisement_by_bgp_alone_announces_an_address() {
    let mut site = Site::with(&[pool("a", &["192.0.2.0/30"])]);
    site.serve("web");
    let row = web("web");
    assert_eq!(site.set(&[pool("a", &["192.0.2.0/30"])], &[bgp()]), []);
    site.addresses(&row).await;
    let status = site.status(&site.spec(&row)).await;
    assert_eq!(status.waiting, []);
    assert_eq!(status.remarks, []);
    site.set(&[pool("a", &["192.0.2.0/30"])], &[]);
    assert_eq!(site.waiting(&row).await, [Code::NotAnnounced]);
}

#[tokio::test]
async fn what_is_wrong_with_any_object_is_reported_and_takes_nothing_from_the_others() {
    let mut site = Site::with(&[pool("a", &["192.0.2.0/30"])]);
    site.serve("web");
    let row = web("web");
    let broken = resource(ResourceKind::BgpPeer, "tor", json!({"myASN": 0}));
    let problems = site.set(&[pool("a", &["192.0.2.0/30"])], &[l2(json!({})), broken]);
    let fields: Vec<_> = problems
        .iter()
        .filter_map(|it| it.field.as_deref())
        .collect();
    assert_eq!(fields, ["spec.myASN", "spec.peerASN", "spec.peerAddress"]);
    for problem in &problems {
        assert_eq!(problem.code, Code::InvalidResource);
        assert!(
            problem.message.starts_with("BGPPeer metallb-system/tor: "),
            "{problem}"
        );
    }
    site.addresses(&row).await;
    assert_eq!(site.waiting(&row).await, []);
}

#[tokio::test]
async fn what_is_wrong_with_a_resource_is_known_by_object_until_it_is_corrected() {
    let site = Site::with(&[pool("a", &["192.0.2.0/30"])]);
    let wrong = resource(
        ResourceKind::L2Advertisement,
        "edge",
        json!({"preferredNodeSelectors": [{"weight": 0, "preference": {}}]}),
    );
    let reasons = site.set(
        &[pool("a", &["192.0.2.0/30"])],
        std::slice::from_ref(&wrong),
    );
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    let problems = site.provider.resource_problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(
        (problems[0].kind, &problems[0].key),
        (wrong.kind, &wrong.key)
    );
    site.set(&[pool("a", &["192.0.2.0/30"])], &[l2(json!({}))]);
    assert_eq!(site.provider.resource_problems(), []);
}
