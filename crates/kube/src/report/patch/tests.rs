use jiff::Timestamp;
use landfall_model::Protocol;
use landfall_model::reason::Reason;
use landfall_model::recorded::vouch;
use landfall_model::status::{HELD_ADDRESSES, IngressAddress, PortStatus};

use super::*;

fn entry(json: Value) -> IngressShape {
    serde_json::from_value(json).unwrap()
}

fn live(ingress: Value, conditions: Vec<Condition>) -> Live {
    let entries: Vec<Value> = serde_json::from_value(ingress).unwrap();
    Live {
        version: Some("7".to_owned()),
        ingress: entries.into_iter().map(entry).collect(),
        conditions,
        finalized: true,
        marks: BTreeMap::new(),
        recorded: None,
    }
}

fn addressed(message: &str) -> Condition {
    Condition::met(
        ConditionType::Addressed,
        Code::Assigned,
        message,
        Timestamp::UNIX_EPOCH,
    )
}

fn at(ip: &str) -> IngressAddress {
    IngressAddress {
        ip: Some(ip.parse().unwrap()),
        ..IngressAddress::default()
    }
}

fn named(hostname: &str) -> IngressAddress {
    IngressAddress {
        hostname: Some(hostname.to_owned()),
        ..IngressAddress::default()
    }
}

fn wanting(ingress: Vec<IngressAddress>, conditions: Vec<Condition>) -> ServiceStatus {
    ServiceStatus {
        ingress,
        conditions,
        ..ServiceStatus::default()
    }
}

/// The list of addresses that a patch writes.
fn list(live: &Live, wanted: &ServiceStatus) -> Value {
    status_patch("u", live, wanted).unwrap()["status"]["loadBalancer"]["ingress"].clone()
}

#[test]
fn a_status_that_says_it_already_is_not_written() {
    let there = live(
        json!([{"ip": "192.0.2.1", "ipMode": "VIP"}]),
        vec![addressed("x")],
    );
    assert_eq!(
        status_patch(
            "u",
            &there,
            &wanting(vec![at("192.0.2.1")], vec![addressed("x")])
        ),
        None
    );
    let nothing = live(json!([]), vec![]);
    assert_eq!(status_patch("u", &nothing, &ServiceStatus::default()), None);
}

#[test]
fn only_conditions_that_differ_are_sent_and_none_of_others() {
    let there = live(json!([{"ip": "192.0.2.1"}]), vec![addressed("x")]);
    let accepted = Condition::met(
        ConditionType::Accepted,
        Code::Accepted,
        "fine",
        Timestamp::UNIX_EPOCH,
    );
    let wanted = wanting(vec![at("192.0.2.1")], vec![accepted, addressed("x")]);
    assert_eq!(
        status_patch("u", &there, &wanted).unwrap(),
        json!({
            "metadata": {"uid": "u"},
            "status": {"conditions": [{
                "type": "landfall.dev/Accepted", "status": "True", "reason": "Accepted",
                "message": "fine", "lastTransitionTime": "1970-01-01T00:00:00Z"}]}
        })
    );
}

#[test]
fn what_others_put_beside_our_address_stays() {
    let ports = json!([{"port": 80, "protocol": "TCP", "error": "example.com/Odd"}]);
    let there = live(
        json!([
            {"hostname": "cdn.example.com"},
            {"ip": "192.0.2.1", "ipMode": "VIP", "hostname": "web.example.com", "ports": ports}]),
        vec![],
    );
    let two = wanting(vec![at("192.0.2.1"), at("192.0.2.2")], vec![]);
    let patch = status_patch("u", &there, &two).unwrap();
    assert_eq!(
        patch["metadata"],
        json!({"uid": "u", "resourceVersion": "7"})
    );
    assert_eq!(
        patch["status"]["loadBalancer"]["ingress"],
        json!([
            {"ip": "192.0.2.1", "ipMode": "VIP", "hostname": "web.example.com", "ports": ports},
            {"ip": "192.0.2.2"},
            {"hostname": "cdn.example.com"}])
    );
}

#[test]
fn an_address_that_is_not_wanted_any_more_goes() {
    let there = live(
        json!([{"ip": "192.0.2.1"}, {"hostname": "cdn.example.com"}]),
        vec![],
    );
    assert_eq!(
        list(&there, &wanting(vec![at("192.0.2.9")], vec![])),
        json!([{"ip": "192.0.2.9"}, {"hostname": "cdn.example.com"}])
    );
    assert_eq!(
        list(
            &live(json!([{"ip": "192.0.2.1"}]), vec![]),
            &ServiceStatus::default()
        ),
        Value::Null
    );
}

#[test]
fn a_published_hostname_goes_with_its_annotation_and_one_of_another_controller_stays() {
    let condition = addressed("clients connect to old.example.com, 192.0.2.1");
    let there = live(
        json!([{"hostname": "old.example.com"}, {"hostname": "example.com"},
            {"ip": "192.0.2.1", "hostname": "old.example.com"}]),
        vec![condition],
    );
    assert_eq!(
        list(
            &there,
            &wanting(vec![named("new.example.com"), at("192.0.2.1")], vec![])
        ),
        json!([{"hostname": "new.example.com"}, {"ip": "192.0.2.1"}, {"hostname": "example.com"}])
    );
}

#[test]
fn ports_with_an_error_that_is_a_code_of_ours_are_ours() {
    let ours = json!([{"ip": "192.0.2.1", "ports": [
        {"port": 80, "protocol": "TCP"}, {"port": 81, "protocol": "TCP", "error": "PortInUse"}]}]);
    assert_eq!(
        list(&live(ours, vec![]), &wanting(vec![at("192.0.2.1")], vec![])),
        json!([{"ip": "192.0.2.1"}])
    );
    let theirs = json!([{"ip": "192.0.2.1", "ports": [{"port": 80, "protocol": "TCP"}]}]);
    let port = PortStatus {
        port: 80,
        protocol: Protocol::Tcp,
        error: Some("PortInUse".to_owned()),
    };
    let wanted = wanting(
        vec![IngressAddress {
            ports: vec![port],
            ..at("192.0.2.1")
        }],
        vec![],
    );
    assert_eq!(
        list(&live(theirs, vec![]), &wanted),
        json!([{"ip": "192.0.2.1", "ports": [{"error": "PortInUse", "port": 80,
            "protocol": "TCP"}]}])
    );
}

#[test]
fn conditions_go_when_nothing_is_wanted_any_more() {
    let unmet = Condition::unmet(
        ConditionType::Programmed,
        &Reason::error(Code::NoEndpoints, "none"),
        Timestamp::UNIX_EPOCH,
    );
    let there = live(json!([]), vec![addressed("x"), unmet]);
    assert_eq!(
        status_patch("u", &there, &ServiceStatus::default()).unwrap(),
        json!({"metadata": {"uid": "u"}, "status": {"conditions": [
            {"$patch": "delete", "type": "landfall.dev/Addressed"},
            {"$patch": "delete", "type": "landfall.dev/Programmed"}]}})
    );
}

#[test]
fn our_annotations_are_written_where_they_differ_and_taken_away_where_unwanted() {
    let mut there = live(json!([]), Vec::new());
    there.marks = BTreeMap::from([
        (
            "state.landfall.dev/load-balancer".to_owned(),
            "old".to_owned(),
        ),
        (
            "loadbalancer.openstack.org/load-balancer-id".to_owned(),
            "1".to_owned(),
        ),
    ]);
    let mut wanted = ServiceStatus::default();
    wanted.marks.insert(
        "state.landfall.dev/load-balancer".to_owned(),
        "new".to_owned(),
    );
    let patch = status_patch("u", &there, &wanted).unwrap();
    assert_eq!(
        patch["metadata"]["annotations"],
        json!({"state.landfall.dev/load-balancer": "new",
            "loadbalancer.openstack.org/load-balancer-id": null})
    );
    wanted.marks = there.marks.clone();
    there.recorded = vouch("u", &there.marks);
    assert_eq!(status_patch("u", &there, &wanted), None);
}

fn marked(marks: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    marks.iter().map(owned).collect()
}

#[test]
fn annotations_come_with_what_vouches_for_them_and_go_with_it_in_one_patch() {
    let mut wanted = wanting(vec![], vec![addressed("x")]);
    wanted.marks = marked(&[(HELD_ADDRESSES, "192.0.2.1")]);
    let mut there = live(json!([]), vec![addressed("x")]);
    let recorded = vouch("u", &wanted.marks).unwrap();
    assert_eq!(
        status_patch("u", &there, &wanted).unwrap(),
        json!({
            "metadata": {"uid": "u", "annotations": {(HELD_ADDRESSES): "192.0.2.1"}},
            "status": {"conditions": [{
                "type": "landfall.dev/Recorded", "status": "True", "reason": "Recorded",
                "message": recorded, "lastTransitionTime": "1970-01-01T00:00:00Z"}]},
        })
    );
    there.marks.clone_from(&wanted.marks);
    there.recorded = Some(recorded);
    assert_eq!(status_patch("u", &there, &wanted), None);
    wanted.marks.clear();
    assert_eq!(
        status_patch("u", &there, &wanted).unwrap(),
        json!({
            "metadata": {"uid": "u", "annotations": {(HELD_ADDRESSES): null}},
            "status": {"conditions": [{"$patch": "delete", "type": "landfall.dev/Recorded"}]},
        })
    );
    // What was taken off by hand is not vouched for any longer either: it could be put back.
    there.marks.clear();
    assert!(status_patch("u", &there, &wanted).is_some());
}

#[test]
fn an_answer_of_the_api_server_is_believed_as_far_as_it_is_vouched_for() {
    let marks = marked(&[(HELD_ADDRESSES, "192.0.2.1"), (INSTANCE, "edge")]);
    let answer = |recorded: Option<String>| {
        let conditions: Vec<Value> = recorded
            .iter()
            .map(|it| json!({"type": "landfall.dev/Recorded", "status": "True", "message": it}))
            .collect();
        let object = json!({
            "metadata": {"name": "web", "uid": "u", "annotations": marks},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
            "status": {"conditions": conditions},
        });
        let service: wire::Service = serde_json::from_value(object).unwrap();
        let row = service.clone().into_admitted_row();
        let live = Live::of_answer(service);
        assert_eq!(live.marks, row.status.marks);
        assert_eq!(live.recorded.as_deref(), row.recorded.as_deref());
        live
    };
    let vouched = answer(vouch("u", &marks));
    assert_eq!(vouched.marks, marks);
    assert!(vouched.recorded.is_some());
    let instance = marked(&[(INSTANCE, "edge")]);
    assert_eq!(answer(None).marks, instance);
    assert_eq!(answer(vouch("another", &marks)).marks, instance);
}

#[test]
fn an_instance_that_is_requested_meanwhile_is_not_overwritten() {
    let mut there = live(json!([]), Vec::new());
    let mut wanted = ServiceStatus::default();
    wanted.marks.insert(INSTANCE.to_owned(), "edge".to_owned());
    let patch = status_patch("u", &there, &wanted).unwrap();
    assert_eq!(
        patch["metadata"]["annotations"],
        json!({(INSTANCE): "edge"})
    );
    there.marks.insert(INSTANCE.to_owned(), "inner".to_owned());
    let patch = status_patch("u", &there, &wanted).unwrap();
    assert_eq!(patch["metadata"], json!({"uid": "u"}));
    // With the condition that names the instance in place, nothing is written at all.
    let message = patch["status"]["conditions"][0]["message"].as_str();
    there.recorded = message.map(str::to_owned);
    assert_eq!(status_patch("u", &there, &wanted), None);
}

#[test]
fn the_finalizer_goes_with_everything_of_ours_in_one_patch() {
    let mut there = live(
        json!([{"ip": "192.0.2.1"}, {"hostname": "cdn.example.com"}]),
        vec![addressed("x")],
    );
    there.marks.insert(INSTANCE.to_owned(), "edge".to_owned());
    assert_eq!(
        release_patch("u", &there).unwrap(),
        json!({
            "metadata": {
                "uid": "u", "resourceVersion": "7", "annotations": {(INSTANCE): null},
                "$deleteFromPrimitiveList/finalizers":
                    ["service.kubernetes.io/load-balancer-cleanup"],
            },
            "status": {
                "loadBalancer": {"ingress": [{"hostname": "cdn.example.com"}]},
                "conditions": [{"$patch": "delete", "type": "landfall.dev/Addressed"}],
            },
        })
    );
    assert_eq!(
        release_patch("u", &live(json!([]), Vec::new())).unwrap(),
        json!({"metadata": {
            "uid": "u",
            "$deleteFromPrimitiveList/finalizers":
                ["service.kubernetes.io/load-balancer-cleanup"],
        }})
    );
}

#[test]
fn the_finalizer_comes_with_the_status_and_goes_with_it() {
    let bare = Live {
        finalized: false,
        ..live(json!([]), vec![])
    };
    let wanted = wanting(vec![at("192.0.2.1")], vec![addressed("x")]);
    let put = finalizer_patch("u", &bare, Some(&wanted)).unwrap();
    let finalizer = json!(["service.kubernetes.io/load-balancer-cleanup"]);
    assert_eq!(
        put["metadata"],
        json!({"uid": "u", "resourceVersion": "7", "finalizers": finalizer})
    );
    assert_eq!(
        put["status"]["loadBalancer"]["ingress"],
        json!([{"ip": "192.0.2.1"}])
    );
    assert_eq!(
        put["status"]["conditions"][0]["type"],
        "landfall.dev/Addressed"
    );
    assert_eq!(
        finalizer_patch("u", &bare, None).unwrap(),
        json!({"metadata": {"uid": "u", "finalizers": finalizer}})
    );

    let there = live(json!([{"ip": "192.0.2.1"}]), vec![addressed("x")]);
    assert_eq!(finalizer_patch("u", &there, Some(&wanted)), None);
    assert_eq!(
        release_patch("u", &there).unwrap(),
        json!({
            "metadata": {"uid": "u", "resourceVersion": "7",
                "$deleteFromPrimitiveList/finalizers": finalizer},
            "status": {
                "loadBalancer": {"ingress": null},
                "conditions": [{"$patch": "delete", "type": "landfall.dev/Addressed"}],
            },
        })
    );
    assert_eq!(release_patch("u", &bare), None, "nothing of ours");
}
