//! What serves stays until something takes its place.

use std::time::Duration;

use http::Method;
use landfall_model::rows::{Family, FamilyPolicy};
use landfall_testkit::openstack::{CallInfo, Fault};
use landfall_testkit::{slice, svc};

use super::{OVN, members, podded, pods, to_pods, with_pods};
use crate::create::web;
use crate::dual::{old_octavia, with_both};
use crate::rig::Rig;
use crate::subnets::dual;
use crate::written::refusal;

const NODES: [&str; 2] = ["10.0.0.4:30080", "10.0.0.5:30080"];
const LONG: Duration = Duration::from_secs(3600);

fn has(call: &CallInfo, text: &str) -> bool {
    String::from_utf8_lossy(&call.body).contains(text)
}

#[tokio::test(start_paused = true)]
async fn nodes_stay_while_a_serial_provider_refuses_pods() {
    let mut rig = Rig::new("provider-requires-serial-api-calls=true");
    rig.cluster.put_slice(pods([1, 2]).row());
    rig.apply(web()).await;
    rig.sim.on_call(|call| {
        let adds = call.method == Method::POST && has(call, "10.244.0.");
        adds.then(|| Fault::status(call.service, 400, "not there"))
    });
    rig.apply(podded()).await;
    rig.wait(LONG).await;
    assert_eq!(rig.picture().await.members_at(80), NODES);
    rig.sim.on_call(|_| None);
    rig.wait(LONG).await;
    let expected = ["10.244.0.1:8080", "10.244.0.2:8080"];
    assert_eq!(rig.picture().await.members_at(80), expected);
}

#[tokio::test(start_paused = true)]
async fn nodes_and_their_group_stay_while_no_pod_is_usable() {
    let mut rig = Rig::new("manage-security-groups=true");
    rig.apply(web()).await;
    rig.cluster.put_slice(pods([]).row());
    rig.apply(podded()).await;
    assert_eq!(rig.picture().await.members_at(80), NODES);
    rig.forget();
    rig.wait(LONG).await;
    rig.restart().await;
    rig.wait(LONG).await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    assert_eq!(rig.picture().await.members_at(80), NODES);
    assert_eq!(rig.picture().await.groups.len(), 1);
    super::change(&rig, pods([1])).await;
    assert_eq!(rig.picture().await.members_at(80), ["10.244.0.1:8080"]);
    rig.wait(LONG).await;
    assert!(rig.picture().await.groups.is_empty());
}

#[tokio::test(start_paused = true)]
async fn pods_stay_while_nodes_have_no_port_to_take_their_place() {
    let mut rig = with_pods("", pods([1, 2])).await;
    let service = svc("web").port(80);
    rig.apply(service.with(|row| row.allocate_node_ports = false))
        .await;
    rig.forget();
    rig.wait(LONG).await;
    rig.restart().await;
    assert_eq!(members(&rig).await.len(), 2);
    assert_eq!(rig.writes(), Vec::<String>::new());
    rig.apply(web()).await;
    assert_eq!(rig.picture().await.members_at(80), NODES);
}

#[tokio::test(start_paused = true)]
async fn pods_stay_while_the_cloud_refuses_to_open_the_nodes() {
    let mut rig = with_pods("manage-security-groups=true", pods([1])).await;
    rig.sim.on_call(|call| {
        let opens = call.method == Method::POST && call.path.contains("/security-group");
        opens.then(|| Fault::status(call.service, 409, "OverQuota"))
    });
    rig.apply(web()).await;
    rig.wait(LONG).await;
    let both = ["10.0.0.4:30080", "10.0.0.5:30080", "10.244.0.1:8080"];
    assert_eq!(rig.picture().await.members_at(80), both);
    rig.sim.on_call(|_| None);
    rig.wait(LONG).await;
    assert_eq!(rig.picture().await.members_at(80), NODES);
    assert_eq!(rig.picture().await.groups.len(), 1);
    assert_eq!(refusal(&rig, "web"), "");
}

#[tokio::test(start_paused = true)]
async fn floating_ips_of_other_services_are_never_members() {
    let mut rig = Rig::new("");
    rig.apply(svc("other").port(81).node_port(30081)).await;
    rig.restart().await;
    let floating = rig.picture().await.floating_ips[0]
        .floating_ip_address
        .to_string();
    rig.cluster.put_slice(pods([1]).ready(&floating).row());
    rig.apply(podded()).await;
    assert_eq!(rig.picture().await.members_at(80), ["10.244.0.1:8080"]);
    let reported = rig.cluster.messages("MemberNotAllowed").join(" ");
    assert!(reported.contains(&floating), "{reported}");
}

#[tokio::test(start_paused = true)]
async fn ovn_serves_one_family_of_pods_where_two_are_preferred() {
    let subnet = Rig::new("").sim.subnet();
    let mut rig = old_octavia(&format!("{OVN}\nmember-subnet-id={subnet}"));
    with_both(&rig);
    rig.cluster.put_slice(pods([1]).row());
    let six = slice("web").named("web-6").family(Some(Family::V6));
    rig.cluster
        .put_slice(six.port("", 8080).ready("fd00:10:244::1").row());
    rig.apply(to_pods(dual(FamilyPolicy::PreferDualStack)))
        .await;
    let picture = rig.picture().await;
    assert_eq!(picture.balancers.len(), 1);
    assert_eq!(picture.members_at(80), ["10.244.0.1:8080"]);
    assert_eq!(rig.published("web").len(), 1);
    assert_eq!(refusal(&rig, "web"), "");
}
