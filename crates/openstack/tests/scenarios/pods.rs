//! Pods as members, with their own addresses and ports (`landfall.dev/target-type: pod`).

mod kept;

use std::time::Duration;

use landfall_model::rows::{Endpoint, Family, FamilyPolicy};
use landfall_openstack::objects::Member;
use landfall_testkit::build::{ServiceBuilder, SliceBuilder, endpoint};
use landfall_testkit::{slice, svc};

use crate::addresses::lb;
use crate::create::web;
use crate::dual::{old_octavia, with_both};
use crate::rig::Rig;
use crate::rig::stage::Stage;
use crate::subnets::dual;
use crate::written::refusal;

const TARGET: &str = "landfall.dev/target-type";
const OVN: &str = "lb-provider=ovn\nlb-method=SOURCE_IP_PORT";

fn to_pods(service: ServiceBuilder) -> ServiceBuilder {
    service.annotated(TARGET, "pod")
}

/// The Service of the default world with pods as members.
fn podded() -> ServiceBuilder {
    to_pods(web())
}

/// Pods `web-LAST` at 10.244.0.LAST, all ready.
fn pods(last: impl IntoIterator<Item = u8>) -> SliceBuilder {
    let last = last.into_iter();
    last.fold(slice("web").port("", 8080), |slice, last| {
        slice.pod(&format!("web-{last}"), &format!("10.244.0.{last}"))
    })
}

/// A pod that shuts down and still serves.
fn draining(last: u8) -> Endpoint {
    Endpoint {
        name: Some(format!("web-{last}").into()),
        ready: false,
        terminating: true,
        ..endpoint(&format!("10.244.0.{last}"))
    }
}

/// A controller with the Service and these pods.
async fn with_pods(conf: &str, pods: SliceBuilder) -> Rig {
    let mut rig = Rig::new(conf);
    rig.cluster.put_slice(pods.row());
    rig.apply(podded()).await;
    rig
}

/// A project whose provider is `ovn` and whose members have the subnet of the nodes.
fn on_ovn(more: &str) -> Rig {
    let stage = Stage::new();
    let conf = format!("{OVN}\nmember-subnet-id={}\n{more}", stage.subnet());
    Rig::on(stage, &conf)
}

async fn change(rig: &Rig, slice: SliceBuilder) {
    rig.cluster.put_slice(slice.row());
    rig.settle().await;
}

async fn members(rig: &Rig) -> Vec<Member> {
    let picture = rig.picture().await;
    let mut members = picture.members[picture.pool_at(80).id.as_str()].clone();
    members.sort_by_key(|it| it.address);
    members
}

fn batches(rig: &Rig) -> Vec<String> {
    let sent = rig.sent().into_iter();
    let batches = sent.filter(|it| it.line.starts_with("PUT") && it.line.contains("/members"));
    batches
        .map(|it| String::from_utf8(it.body).unwrap())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn ready_pods_are_members_at_their_own_addresses_and_ports() {
    let rig = with_pods("", pods([1, 2]).not_ready("10.244.0.3")).await;
    let members = members(&rig).await;
    let seen: Vec<_> = members
        .iter()
        .map(|it| {
            let address = it.address.unwrap().to_string();
            (it.name.as_str(), address, it.protocol_port, it.weight)
        })
        .collect();
    let pod = |name, address: &str| (name, address.to_owned(), 8080, Some(1));
    assert_eq!(
        seen,
        [
            pod("default/web-1", "10.244.0.1"),
            pod("default/web-2", "10.244.0.2")
        ]
    );
    // No subnet: another port of the amphora would be plugged into it.
    assert!(members.iter().all(|it| it.subnet_id.is_none()));
    assert_eq!(
        rig.writes(),
        ["POST /v2/lbaas/loadbalancers", "POST /v2.0/floatingips"]
    );
    assert_eq!(rig.published("web").len(), 1);
    assert_eq!(refusal(&rig, "web"), "");
}

#[tokio::test(start_paused = true)]
async fn without_the_annotation_nodes_are_members_whatever_pods_there_are() {
    let mut rig = Rig::new("");
    rig.cluster.put_slice(pods([1, 2]).row());
    rig.apply(web()).await;
    let expected = ["10.0.0.4:30080", "10.0.0.5:30080"];
    assert_eq!(rig.picture().await.members_at(80), expected);
    rig.forget();
    change(&rig, pods([3])).await;
    assert_eq!(rig.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_instance_may_have_pods_as_members_of_all_services_but_those_that_say_node() {
    let mut rig = Rig::new("");
    rig.settings.target = landfall_model::provider::Target::Pod;
    rig.cluster.put_slice(pods([1]).row());
    rig.apply(web()).await;
    assert_eq!(rig.picture().await.members_at(80), ["10.244.0.1:8080"]);
    let other = svc("other").port(81).node_port(30081);
    rig.apply(other.annotated(TARGET, "node")).await;
    assert_eq!(
        rig.picture().await.members_at(81),
        ["10.0.0.4:30081", "10.0.0.5:30081"]
    );
}

#[tokio::test(start_paused = true)]
async fn pods_need_neither_node_ports_nor_the_health_port_of_nodes() {
    let mut rig = Rig::new("manage-security-groups=true\ncreate-monitor=true");
    rig.cluster.put_slice(pods([1]).row());
    let service = svc("web").port(80).local();
    let service = service.with(|row| row.allocate_node_ports = false);
    rig.apply(to_pods(service)).await;
    let picture = rig.picture().await;
    assert_eq!(picture.members_at(80), ["10.244.0.1:8080"]);
    assert_eq!(picture.monitors.len(), 1);
    assert_eq!(picture.monitors[0].kind, "TCP");
    assert!(
        members(&rig)
            .await
            .iter()
            .all(|it| it.monitor_port.is_none())
    );
    assert!(picture.groups.is_empty(), "{:?}", picture.groups);
    assert_eq!(rig.published("web").len(), 1);
    assert_eq!(refusal(&rig, "web"), "");
}

#[tokio::test(start_paused = true)]
async fn several_ports_at_one_address_are_several_members() {
    let first = slice("web").port("", 8080).ready("10.0.0.4");
    let mut rig = with_pods("", first).await;
    let second = slice("web").named("web-2").port("", 8081).ready("10.0.0.4");
    change(&rig, second).await;
    let expected = ["10.0.0.4:8080", "10.0.0.4:8081"];
    assert_eq!(rig.picture().await.members_at(80), expected);
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    rig.cluster.remove_slice("web-1");
    rig.settle().await;
    assert_eq!(rig.picture().await.members_at(80), ["10.0.0.4:8081"]);
}

#[tokio::test(start_paused = true)]
async fn pods_that_come_and_go_cost_one_batch_and_the_service_no_write() {
    let rig = with_pods("", pods([1, 2])).await;
    let before = rig.cluster.writes();
    rig.forget();
    change(&rig, pods([2, 3, 4])).await;
    let expected = ["10.244.0.2:8080", "10.244.0.3:8080", "10.244.0.4:8080"];
    assert_eq!(rig.picture().await.members_at(80), expected);
    assert_eq!(rig.writes().len(), 1, "{:?}", rig.writes());
    assert_eq!(rig.cluster.writes(), before);
    // Without any pod the members go, and the load balancer stays.
    change(&rig, pods([])).await;
    assert_eq!(members(&rig).await, []);
    assert_eq!(rig.published("web").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_slice_that_is_split_and_another_name_at_an_address_are_no_change() {
    let mut rig = with_pods("", pods([1, 2])).await;
    rig.forget();
    let moved = slice("web").named("web-2").port("", 8080);
    change(&rig, moved.pod("web-2", "10.244.0.2")).await;
    change(&rig, pods([1])).await;
    change(&rig, slice("web").port("", 8080).pod("new", "10.244.0.1")).await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    // The name follows with the next change.
    let more = slice("web").port("", 8080).pod("new", "10.244.0.1");
    change(&rig, more.pod("web-9", "10.244.0.9")).await;
    assert_eq!(members(&rig).await.len(), 3);
    assert_eq!(batches(&rig).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_shuts_down_gets_no_new_connections_and_goes_when_it_stops_serving() {
    let rig = with_pods("", pods([1, 2])).await;
    let weights = async |rig: &Rig| -> Vec<Option<u16>> {
        members(rig).await.iter().map(|it| it.weight).collect()
    };
    change(&rig, pods([1]).endpoint(draining(2))).await;
    assert_eq!(weights(&rig).await, [Some(1), Some(0)]);
    let gone = Endpoint {
        serving: false,
        ..draining(2)
    };
    change(&rig, pods([1]).endpoint(gone)).await;
    assert_eq!(weights(&rig).await, [Some(1)]);
    // The address of an earlier pod comes back with another one.
    change(&rig, pods([1]).endpoint(draining(2))).await;
    change(&rig, pods([1, 2])).await;
    assert_eq!(weights(&rig).await, [Some(1), Some(1)]);
    // The last ones go on getting connections.
    rig.forget();
    let last = slice("web").port("", 8080);
    change(&rig, last.endpoint(draining(1)).endpoint(draining(2))).await;
    assert_eq!(rig.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn ovn_keeps_a_pod_that_shuts_down_until_it_stops_serving() {
    let mut rig = on_ovn("");
    rig.cluster.put_slice(pods([1, 2]).row());
    rig.apply(podded()).await;
    assert_eq!(refusal(&rig, "web"), "");
    let subnet = rig.sim.subnet();
    for member in members(&rig).await {
        assert_eq!(member.subnet_id.unwrap().as_str(), subnet);
    }
    rig.forget();
    change(&rig, pods([1]).endpoint(draining(2))).await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    change(&rig, pods([1])).await;
    assert_eq!(rig.picture().await.members_at(80), ["10.244.0.1:8080"]);
}

#[tokio::test(start_paused = true)]
async fn ovn_reaches_pods_over_a_named_subnet_only_and_nothing_changes_without() {
    let mut rig = Rig::new(OVN);
    rig.cluster.put_slice(pods([1]).row());
    rig.apply(podded()).await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    let reported = refusal(&rig, "web");
    assert!(reported.contains("member-subnet-id"), "{reported}");
    // What serves stays, with pods as without.
    rig.apply(web()).await;
    rig.forget();
    rig.apply(podded()).await;
    rig.cluster.put_slice(pods([]).row());
    rig.settle().await;
    assert_eq!(
        rig.picture().await.members_at(80),
        ["10.0.0.4:30080", "10.0.0.5:30080"]
    );
    assert_eq!(rig.writes(), Vec::<String>::new());
    // Named by an annotation it will do.
    rig.cluster.put_slice(pods([1]).row());
    let subnet = rig.sim.subnet();
    rig.apply(podded().annotated(&lb("member-subnet-id"), &subnet))
        .await;
    assert_eq!(rig.picture().await.members_at(80), ["10.244.0.1:8080"]);
    assert_eq!(refusal(&rig, "web"), "");
}

#[tokio::test(start_paused = true)]
async fn ovn_gets_no_monitor_of_pods_and_loses_that_of_nodes_before_pods_come() {
    let mut rig = on_ovn("create-monitor=true");
    rig.cluster.put_slice(pods([1]).row());
    rig.apply(web()).await;
    let monitor = rig.picture().await.monitors[0].id.clone();
    rig.forget();
    rig.apply(podded()).await;
    let picture = rig.picture().await;
    assert_eq!(picture.members_at(80), ["10.244.0.1:8080"]);
    assert!(picture.monitors.is_empty());
    let writes = rig.writes();
    assert!(writes[0].contains(monitor.as_str()), "{writes:?}");
    let reported = rig.cluster.messages("OptionNotSupported").join(" ");
    assert!(reported.contains("only their readiness"), "{reported}");
    // And back.
    rig.apply(web()).await;
    assert_eq!(rig.picture().await.monitors.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn source_ranges_that_nothing_enforces_for_pods_on_ovn_are_refused() {
    let mut rig = on_ovn("manage-security-groups=true");
    rig.cluster.put_slice(pods([1]).row());
    rig.apply(podded().source_range("192.0.2.0/24")).await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    let reported = refusal(&rig, "web");
    assert!(reported.contains("groups of pods"), "{reported}");
}

/// The batches of a Service that changes from one kind of members to the other: the first one adds
/// the new ones, and the second one has these alone.
fn assert_union(rig: &Rig, additive: bool, old: &str, new: &str) {
    let batches = batches(rig);
    assert_eq!(batches.len(), 2, "{batches:?}");
    assert!(batches[0].contains(new), "{batches:?}");
    assert!(additive || batches[0].contains(old), "{batches:?}");
    let writes = rig.writes();
    let mut adding = writes.iter().filter(|it| it.contains("additive_only=true"));
    assert_eq!(adding.next().is_some(), additive, "{writes:?}");
    assert!(!batches[1].contains(old), "{batches:?}");
}

#[tokio::test(start_paused = true)]
async fn pods_and_nodes_take_over_from_each_other_side_by_side() {
    for minor in [27, 10] {
        let mut rig = Rig::new("manage-security-groups=true");
        rig.sim.configure(|settings| settings.api_minor = minor);
        rig.cluster.put_slice(pods([1, 2]).row());
        rig.apply(web()).await;
        let before = rig.picture().await;
        assert_eq!(before.groups.len(), 1);
        rig.forget();
        rig.apply(podded()).await;
        let after = rig.picture().await;
        let expected = ["10.244.0.1:8080", "10.244.0.2:8080"];
        assert_eq!(after.members_at(80), expected, "{minor}");
        assert_union(&rig, minor > 10, "10.0.0.4", "10.244.0.1");
        assert_eq!(after.pool_at(80).id, before.pool_at(80).id);
        assert_eq!(after.listener_at(80).id, before.listener_at(80).id);
        // The nodes' group goes after the nodes.
        assert!(after.groups.is_empty(), "{:?}", after.groups);
        let writes = rig.writes();
        let last_batch = writes.iter().rposition(|it| it.contains("/members"));
        let first_of_group = writes
            .iter()
            .position(|it| it.contains("/security-groups") || it.contains("/ports/"));
        assert!(last_batch < first_of_group, "{writes:?}");

        rig.forget();
        rig.apply(web()).await;
        let after = rig.picture().await;
        assert_eq!(after.members_at(80), ["10.0.0.4:30080", "10.0.0.5:30080"]);
        assert_union(&rig, minor > 10, "10.244.0.1", "10.0.0.4");
        assert_eq!(after.groups.len(), 1);
        let writes = rig.writes();
        let group = writes.iter().position(|it| it.contains("/security-group"));
        let members = writes.iter().position(|it| it.contains("/members"));
        assert!(group < members, "{writes:?}");
        assert_eq!(refusal(&rig, "web"), "");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_to_pods_that_ends_halfway_is_finished_by_the_next_process() {
    let mut rig = Rig::new("");
    rig.cluster.put_slice(pods([1]).row());
    rig.apply(web()).await;
    rig.forget();
    rig.cluster.apply(&podded().row());
    while batches(&rig).is_empty() {
        rig.wait(Duration::from_millis(50)).await;
    }
    rig.kill();
    let both = ["10.0.0.4:30080", "10.0.0.5:30080", "10.244.0.1:8080"];
    assert_eq!(rig.picture().await.members_at(80), both);
    rig.restart().await;
    assert_eq!(rig.picture().await.members_at(80), ["10.244.0.1:8080"]);
}

#[tokio::test(start_paused = true)]
async fn pods_that_are_all_replaced_leave_no_dead_ones_behind() {
    let rig = with_pods("", pods([1, 2])).await;
    rig.forget();
    change(&rig, pods([3, 4])).await;
    assert_eq!(batches(&rig).len(), 1);
    let expected = ["10.244.0.3:8080", "10.244.0.4:8080"];
    assert_eq!(rig.picture().await.members_at(80), expected);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_pods_that_are_replaced_within_ten_seconds_are_few_batches() {
    let mut rig = Rig::new("");
    let address = |last: u16| format!("10.244.{}.{}", last / 200, last % 200 + 1);
    let window = |first: u16| {
        (first..first + 50).fold(slice("web").port("", 8080), |slice, last| {
            slice.pod(&format!("web-{last}"), &address(last))
        })
    };
    rig.cluster.put_slice(window(0).row());
    rig.apply(podded()).await;
    rig.forget();
    for first in (10..=1000).step_by(10) {
        rig.cluster.put_slice(window(first).row());
        rig.wait(Duration::from_millis(100)).await;
    }
    rig.settle().await;
    assert_eq!(members(&rig).await.len(), 50);
    let (batches, calls) = (batches(&rig).len(), rig.calls().len());
    assert!((2..=7).contains(&batches), "{batches}");
    assert!(calls <= 60, "{calls}");
}

#[tokio::test(start_paused = true)]
async fn addresses_that_are_no_pods_are_never_members() {
    let mut rig = Rig::new("");
    rig.apply(svc("other").port(81).node_port(30081)).await;
    let vip = rig.picture().await.balancers[0].vip_address.unwrap();
    let slice = pods([1])
        .ready("127.0.0.1")
        .ready("169.254.169.254")
        .ready(&vip.to_string());
    rig.cluster.put_slice(slice.row());
    rig.apply(podded()).await;
    assert_eq!(rig.picture().await.members_at(80), ["10.244.0.1:8080"]);
    let reported = rig.cluster.messages("MemberNotAllowed").join(" ");
    assert!(reported.contains(&vip.to_string()), "{reported}");
    assert!(reported.contains("loopback"), "{reported}");
}

#[tokio::test(start_paused = true)]
async fn only_pods_in_the_prefixes_that_the_operator_allows_are_members() {
    let mut rig = Rig::new("");
    rig.settings.members.slices = Some(vec!["10.244.0.0/24".parse().unwrap()]);
    rig.cluster.put_slice(pods([1]).ready("10.0.0.99").row());
    rig.apply(podded()).await;
    assert_eq!(rig.picture().await.members_at(80), ["10.244.0.1:8080"]);
    let reported = rig.cluster.messages("MemberNotAllowed").join(" ");
    assert!(reported.contains("10.0.0.99"), "{reported}");
}

#[tokio::test(start_paused = true)]
async fn more_pods_than_a_service_may_have_are_left_out_and_reported() {
    let mut rig = Rig::new("");
    rig.settings.members_per_service = 3;
    rig.cluster.put_slice(pods(1..9).row());
    rig.apply(podded()).await;
    assert_eq!(members(&rig).await.len(), 3);
    let reported = rig.cluster.messages("LimitReached").join(" ");
    assert!(reported.contains("5 are left out"), "{reported}");
    // Nodes are as many as there are.
    rig.settings.members_per_service = 1;
    rig.apply(web()).await;
    rig.restart().await;
    assert_eq!(members(&rig).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn pods_follow_while_the_cloud_refuses_another_part_of_the_service() {
    let mut rig = with_pods("", pods([1, 2])).await;
    rig.edit("web", |row| {
        row.annotations.insert(lb("class"), "none".to_owned());
    })
    .await;
    assert_ne!(refusal(&rig, "web"), "");
    change(&rig, pods([2, 3]).endpoint(draining(1))).await;
    let weights: Vec<_> = members(&rig).await.iter().map(|it| it.weight).collect();
    assert_eq!(weights, [Some(0), Some(1), Some(1)]);
    change(&rig, pods([2, 3])).await;
    let expected = ["10.244.0.2:8080", "10.244.0.3:8080"];
    assert_eq!(rig.picture().await.members_at(80), expected);
}

#[tokio::test(start_paused = true)]
async fn pods_of_the_vip_s_family_are_members() {
    let mut rig = Rig::new("");
    rig.settings.prefer_dual_stack = false;
    rig.cluster.put_slice(pods([1]).row());
    let six = slice("web").named("web-6").family(Some(Family::V6));
    rig.cluster
        .put_slice(six.port("", 8080).ready("fd00:10:244::1").row());
    let both = [Family::V4, Family::V6];
    rig.apply(podded().families(&both, FamilyPolicy::PreferDualStack))
        .await;
    assert_eq!(rig.picture().await.members_at(80), ["10.244.0.1:8080"]);
    // An amphora translates where there is no other.
    rig.cluster.remove_slice("web-1");
    rig.settle().await;
    assert_eq!(rig.picture().await.members_at(80), ["fd00:10:244::1:8080"]);
}

#[tokio::test(start_paused = true)]
async fn each_of_two_load_balancers_has_the_pods_of_its_family() {
    let mut rig = old_octavia("manage-security-groups=true");
    with_both(&rig);
    rig.cluster.put_slice(pods([1]).row());
    let six = slice("web").named("web-6").family(Some(Family::V6));
    let six = |address: &str| six.clone().port("", 8080).ready(address).row();
    rig.cluster.put_slice(six("fd00:10:244::1"));
    let both = dual(FamilyPolicy::RequireDualStack);
    rig.apply(to_pods(both)).await;
    let addresses = async |rig: &Rig| -> Vec<String> {
        let picture = rig.picture().await;
        assert_eq!(picture.balancers.len(), 2);
        assert!(picture.groups.is_empty());
        let pools = picture.members.values();
        let mut all: Vec<String> = pools
            .map(|members| {
                assert_eq!(members.len(), 1, "{members:?}");
                assert_eq!(members[0].subnet_id, None);
                members[0].address.unwrap().to_string()
            })
            .collect();
        all.sort();
        all
    };
    assert_eq!(addresses(&rig).await, ["10.244.0.1", "fd00:10:244::1"]);
    rig.cluster.put_slice(six("fd00:10:244::2"));
    rig.settle().await;
    assert_eq!(addresses(&rig).await, ["10.244.0.1", "fd00:10:244::2"]);
    assert_eq!(refusal(&rig, "web"), "");
}

#[tokio::test(start_paused = true)]
async fn a_deletion_while_pods_change_leaves_nothing() {
    let rig = with_pods("", pods([1, 2])).await;
    rig.cluster.put_slice(pods([2, 3]).row());
    rig.wait(Duration::from_millis(50)).await;
    rig.cluster.remove_slice("web-1");
    rig.cluster.delete("web");
    rig.settle().await;
    assert!(rig.picture().await.is_empty());
    assert!(rig.cluster.service("web").is_none());
}
