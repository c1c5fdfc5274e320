//! Addresses that speakers serve themselves.

use landfall_engine::resolve;
use landfall_metal::{DataPlane, Metal};
use landfall_model::option::OptionId;
use landfall_model::provider::{Provider as _, Support};
use landfall_model::reason::Code;
use landfall_model::rows::ServiceRow;
use landfall_model::status::IpMode;
use landfall_testkit::svc;
use serde_json::json;

use crate::rig::{Site, l2, pool, web};

/// A site whose speakers serve.
fn serving() -> Site {
    let mut site = Site::with(&[]);
    site.provider = Metal::new(DataPlane::Landfall);
    site.set(&[pool("a", &["192.0.2.0/30"])], &[l2(json!({}))]);
    site
}

fn weighted() -> ServiceRow {
    let row = svc("web").port(80);
    let row = row.annotated("landfall.dev/proxy-protocol", "v2");
    ServiceRow::clone(&row.row())
}

#[tokio::test]
async fn kube_proxy_must_leave_addresses_alone_that_speakers_serve() {
    let site = serving();
    let want = site.spec(&web("web"));
    site.settle(&want).await.unwrap();
    let ingress = site.status(&want).await.ingress;
    assert_eq!(ingress[0].ip_mode, Some(IpMode::Proxy));
    let copy = site.provider.sandbox();
    let have = copy.observe(&want).await.unwrap();
    let ingress = copy.status(&want, &have).ingress;
    assert_eq!(ingress[0].ip_mode, Some(IpMode::Proxy), "in a dry run, too");
}

#[test]
fn options_of_traffic_are_refused_with_kube_proxy_and_accepted_with_speakers() {
    let by_kube_proxy = Site::with(&[]);
    let profile = by_kube_proxy.provider.profile();
    let refused = resolve(&weighted(), &by_kube_proxy.world, profile).unwrap_err();
    assert_eq!(refused[0].code, Code::OptionNotSupported, "{refused:?}");
    let site = serving();
    let want = site.spec(&weighted());
    let listener = &want.load_balancer.unwrap().listeners[0];
    assert!(listener.pool.proxy_protocol.is_some());
}

#[test]
fn only_what_no_data_plane_has_and_nodes_as_members_are_refused_with_speakers() {
    let support = serving().provider.profile().support;
    let refused: Vec<OptionId> = OptionId::ALL
        .iter()
        .copied()
        .filter(|option| matches!(support(*option), Support::Refused { .. }))
        .collect();
    assert_eq!(refused, [OptionId::TargetType, OptionId::ProtocolSctp]);
    let left_out = support(OptionId::ExternalIps);
    assert!(matches!(left_out, Support::LeftOut { .. }));
    let local = support(OptionId::ExternalTrafficPolicy);
    assert!(matches!(local, Support::Supported));
}
