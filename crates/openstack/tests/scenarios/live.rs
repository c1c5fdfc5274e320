//! The provider's view of a Service, which needs no call.

use landfall_model::Uid;
use landfall_model::provider::Provider as _;
use landfall_model::view::ListenerView;

use crate::create::web;
use crate::rig::Rig;

fn live(rig: &Rig, service: &str) -> Vec<ListenerView> {
    let before = rig.calls().len();
    let provider = rig.provider.as_ref().unwrap();
    let listeners = provider.live(&Uid::new(&format!("uid-{service}")));
    assert_eq!(rig.calls().len(), before, "the cloud was asked");
    listeners
}

/// Each as `80/TCP http -> 10.0.0.4:30080 10.0.0.5:30080`.
fn lines(rig: &Rig, service: &str) -> Vec<String> {
    let line = |listener: &ListenerView| {
        let mut text = format!("{} {} ->", listener.key, listener.mode);
        for member in &listener.members {
            text.push_str(&format!(" {}", member.address));
        }
        text
    };
    live(rig, service).iter().map(line).collect()
}

const BOTH: &str = "80/TCP stream -> 10.0.0.4:30080 10.0.0.5:30080";

#[tokio::test(start_paused = true)]
async fn listeners_and_members_are_shown_as_long_as_they_are_there() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    assert_eq!(lines(&rig, "web"), [BOTH]);
    let shown = live(&rig, "web");
    let vip = rig.picture().await.balancers[0].vip_address.unwrap();
    assert_eq!(shown[0].addresses, [vip]);
    assert_eq!(shown[0].members[0].node.as_deref(), Some("a"));
    assert_eq!(shown[0].problem, None);

    let two = landfall_testkit::svc("web")
        .named_port("http", 80)
        .node_port(30080)
        .named_port("tls", 443)
        .node_port(30443);
    rig.apply(two).await;
    let second = "443/TCP stream -> 10.0.0.4:30443 10.0.0.5:30443";
    assert_eq!(lines(&rig, "web"), [BOTH, second]);
    rig.delete("web").await;
    assert_eq!(lines(&rig, "web"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_new_process_shows_what_it_has_not_read() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    rig.restart().await;
    assert_eq!(lines(&rig, "web"), [BOTH]);
    assert_eq!(lines(&rig, "another"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn of_a_shared_load_balancer_each_service_shows_its_own_listeners() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let id = rig.picture().await.balancers[0].id.to_string();
    let other = landfall_testkit::svc("api")
        .port(8080)
        .node_port(30088)
        .annotated("loadbalancer.openstack.org/load-balancer-id", &id);
    rig.apply(other).await;
    assert_eq!(lines(&rig, "web"), [BOTH]);
    assert_eq!(
        lines(&rig, "api"),
        ["8080/TCP stream -> 10.0.0.4:30088 10.0.0.5:30088"]
    );
}
