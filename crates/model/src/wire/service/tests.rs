//! Defaults, rules, and the way to JSON and back.

use std::num::NonZeroU16;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::dialect::openstack::LOAD_BALANCER_ID;
use crate::listener::Protocol;
use crate::reason::Code;
use crate::rows::{Family, FamilyPolicy, ServicePort, TargetPort};
use crate::status::{
    ACCEPTED_VERSION, Condition, ConditionType, HELD_ADDRESSES, INSTANCE, IngressAddress, RECORD,
    ServiceStatus,
};
use crate::wire::{service_list, service_to_json};

fn read(value: Value) -> Result<ServiceRow, Vec<Reason>> {
    serde_json::from_value::<Service>(value).unwrap().into_row()
}

fn with_spec(spec: impl Into<Value>) -> Value {
    let spec = spec.into();
    json!({"metadata": {"name": "web", "uid": "u1"}, "spec": spec})
}

fn row_of(spec: Value) -> ServiceRow {
    read(with_spec(spec)).unwrap()
}

fn fields_of(spec: Value) -> Vec<String> {
    let reasons = read(with_spec(spec)).unwrap_err();
    assert!(
        reasons
            .iter()
            .all(|reason| reason.code == Code::InvalidField)
    );
    reasons
        .into_iter()
        .map(|reason| reason.field.unwrap())
        .collect()
}

fn port(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).unwrap()
}

fn minimal() -> ServiceRow {
    ServiceRow {
        key: ServiceKey::new("default", "web"),
        uid: Uid::new("u1"),
        generation: None,
        resource_version: None,
        recorded: None,
        created: None,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        finalized: false,
        deleting: false,
        wants_load_balancer: true,
        class: None,
        families: vec![Family::V4],
        family_policy: FamilyPolicy::SingleStack,
        headless: false,
        ports: vec![ServicePort {
            name: String::new(),
            protocol: Protocol::Tcp,
            port: port(80),
            target: TargetPort::Number(port(80)),
            node_port: None,
            app_protocol: None,
        }],
        selector: BTreeMap::new(),
        external_local: false,
        health_check_node_port: None,
        affinity: None,
        load_balancer_ip: None,
        source_ranges: Vec::new(),
        publish_not_ready: false,
        allocate_node_ports: true,
        node_fields: BTreeMap::new(),
        status: ServiceStatus::default(),
        faults: Vec::new(),
        source: None,
    }
}

#[test]
fn a_minimal_service_gets_kubernetes_defaults() {
    assert_eq!(
        row_of(json!({"type": "LoadBalancer", "ports": [{"port": 80}]})),
        minimal()
    );
}

#[test]
fn null_is_the_same_as_nothing() {
    let value = json!({
        "metadata": {"name": "web", "uid": "u1", "labels": null, "annotations": null,
            "creationTimestamp": null, "finalizers": null, "namespace": null},
        "spec": {"type": "LoadBalancer", "selector": null, "ipFamilies": null,
            "loadBalancerIP": null, "sessionAffinityConfig": null,
            "ports": [{"port": 80, "targetPort": null, "name": null, "nodePort": null}]},
        "status": null,
    });
    assert_eq!(read(value), Ok(minimal()));
}

#[test]
fn every_field_of_a_full_service_reaches_the_row() {
    let value = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "u1", "generation": 4,
            "resourceVersion": "77", "creationTimestamp": "2026-01-02T03:04:05Z",
            "deletionTimestamp": "2026-01-03T00:00:00Z",
            "labels": {"app": "web"}, "annotations": {"landfall.dev/drain": "30s", "empty": null},
            "finalizers": ["other", "service.kubernetes.io/load-balancer-cleanup"],
            "managedFields": [{"manager": "kubectl"}],
        },
        "spec": {
            "type": "LoadBalancer", "loadBalancerClass": "landfall.dev/local",
            "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"],
            "ipFamilies": ["IPv6", "IPv4"], "ipFamilyPolicy": "RequireDualStack",
            "ports": [
                {"name": "http", "port": 80, "targetPort": "web", "nodePort": 30080,
                    "appProtocol": "kubernetes.io/h2c"},
                {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 5353},
            ],
            "selector": {"app": "web"},
            "externalTrafficPolicy": "Local", "internalTrafficPolicy": "Cluster",
            "healthCheckNodePort": 31000,
            "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
            "loadBalancerIP": "192.0.2.9", "loadBalancerSourceRanges": ["10.0.0.0/8", "oops"],
            "publishNotReadyAddresses": true, "allocateLoadBalancerNodePorts": false,
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}},
    });
    let expected = ServiceRow {
        key: ServiceKey::new("shop", "web"),
        generation: Some(4),
        resource_version: Some("77".into()),
        created: Some("2026-01-02T03:04:05Z".parse().unwrap()),
        labels: BTreeMap::from([("app".to_owned(), "web".to_owned())]),
        annotations: BTreeMap::from([
            ("empty".to_owned(), String::new()),
            ("landfall.dev/drain".to_owned(), "30s".to_owned()),
        ]),
        finalized: true,
        deleting: true,
        class: Some("landfall.dev/local".into()),
        families: vec![Family::V6, Family::V4],
        family_policy: FamilyPolicy::RequireDualStack,
        ports: vec![
            ServicePort {
                name: "http".to_owned(),
                protocol: Protocol::Tcp,
                port: port(80),
                target: TargetPort::Name("web".to_owned()),
                node_port: Some(port(30080)),
                app_protocol: Some("kubernetes.io/h2c".to_owned()),
            },
            ServicePort {
                name: "dns".to_owned(),
                protocol: Protocol::Udp,
                port: port(53),
                target: TargetPort::Number(port(5353)),
                node_port: None,
                app_protocol: None,
            },
        ],
        selector: BTreeMap::from([("app".to_owned(), "web".to_owned())]),
        external_local: true,
        health_check_node_port: Some(port(31000)),
        affinity: Some(Duration::from_secs(60)),
        load_balancer_ip: Some("192.0.2.9".to_owned()),
        source_ranges: vec!["10.0.0.0/8".to_owned(), "oops".to_owned()],
        publish_not_ready: true,
        allocate_node_ports: false,
        status: ServiceStatus {
            ingress: vec![IngressAddress {
                ip: Some("192.0.2.9".parse().unwrap()),
                ..IngressAddress::default()
            }],
            conditions: Vec::new(),
            ..ServiceStatus::default()
        },
        ..minimal()
    };
    assert_eq!(read(value), Ok(expected));
}

#[test]
fn families_are_filled_in_as_a_dual_stack_cluster_does() {
    use Family::{V4, V6};
    let cases = [
        (json!({}), vec![V4]),
        (json!({"clusterIP": "fd00::1"}), vec![V6]),
        (json!({"ipFamilies": ["IPv6"]}), vec![V6]),
        (json!({"ipFamilyPolicy": "PreferDualStack"}), vec![V4, V6]),
        (json!({"ipFamilyPolicy": "RequireDualStack"}), vec![V4, V6]),
        (
            json!({"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6"]}),
            vec![V6, V4],
        ),
        (
            json!({"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6", "IPv4"]}),
            vec![V6, V4],
        ),
        // What the API server of a cluster with one family answers.
        (
            json!({"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv4"],
                "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"]}),
            vec![V4],
        ),
    ];
    for (mut spec, expected) in cases {
        let shown = spec.to_string();
        spec["ports"] = json!([{"port": 80}]);
        assert_eq!(row_of(spec).families, expected, "{shown}");
    }
}

#[test]
fn client_affinity_without_a_time_out_lasts_three_hours() {
    let row = row_of(json!({"ports": [{"port": 80}], "sessionAffinity": "ClientIP"}));
    assert_eq!(row.affinity, Some(Duration::from_secs(10_800)));
}

#[test]
fn a_target_port_of_nothing_is_the_front_port() {
    for target in [json!(null), json!(0), json!("")] {
        let row = row_of(json!({"ports": [{"port": 80, "targetPort": target}]}));
        assert_eq!(row.ports[0].target, TargetPort::Number(port(80)));
    }
}

#[test]
fn the_same_port_over_two_protocols_is_fine() {
    let row = row_of(json!({"ports": [
        {"name": "dns", "port": 53}, {"name": "dns-udp", "port": 53, "protocol": "UDP"}]}));
    assert_eq!(row.ports.len(), 2);
}

#[test]
fn each_broken_rule_is_reported_with_its_field() {
    let one = json!([{"port": 80}]);
    let cases = [
        (json!({}), "spec.ports"),
        (json!({"ports": [{}]}), "spec.ports[0].port"),
        (json!({"ports": [{"port": 0}]}), "spec.ports[0].port"),
        (json!({"ports": [{"port": -1}]}), "spec.ports[0].port"),
        (json!({"ports": [{"port": 70000}]}), "spec.ports[0].port"),
        (
            json!({"ports": [{"port": 80, "protocol": "tcp"}]}),
            "spec.ports[0].protocol",
        ),
        (
            json!({"ports": [{"port": 80, "targetPort": 65536}]}),
            "spec.ports[0].targetPort",
        ),
        (
            json!({"ports": [{"port": 80, "targetPort": "8080"}]}),
            "spec.ports[0].targetPort",
        ),
        (
            json!({"ports": [{"port": 80, "targetPort": "Web"}]}),
            "spec.ports[0].targetPort",
        ),
        (
            json!({"ports": [{"port": 80, "name": "Web"}]}),
            "spec.ports[0].name",
        ),
        (
            json!({"ports": [{"port": 80, "appProtocol": "a b"}]}),
            "spec.ports[0].appProtocol",
        ),
        (
            json!({"ports": [{"port": 80, "nodePort": 30000}]}),
            "spec.ports[0].nodePort",
        ),
        (
            json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 70000}]}),
            "spec.ports[0].nodePort",
        ),
        (
            json!({"ports": [{"name": "a", "port": 80}, {"name": "a", "port": 81}]}),
            "spec.ports[1].name",
        ),
        (
            json!({"ports": [{"name": "a", "port": 80}, {"port": 81}]}),
            "spec.ports[1].name",
        ),
        (
            json!({"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 80}]}),
            "spec.ports[1].port",
        ),
        (
            json!({"type": "NodePort", "ports": [{"name": "a", "port": 80, "nodePort": 30000},
                {"name": "b", "port": 81, "nodePort": 30000}]}),
            "spec.ports[1].nodePort",
        ),
        (json!({"type": "Loadbalancer", "ports": one}), "spec.type"),
        (
            json!({"type": "LoadBalancer", "clusterIP": "None", "ports": one}),
            "spec.clusterIP",
        ),
        (
            json!({"clusterIP": "10.0.0", "ports": one}),
            "spec.clusterIP",
        ),
        (
            json!({"loadBalancerClass": "a/b", "ports": one}),
            "spec.loadBalancerClass",
        ),
        (
            json!({"type": "LoadBalancer", "loadBalancerClass": "a b", "ports": one}),
            "spec.loadBalancerClass",
        ),
        (
            json!({"loadBalancerSourceRanges": ["10.0.0.0/8"], "ports": one}),
            "spec.loadBalancerSourceRanges",
        ),
        (
            json!({"allocateLoadBalancerNodePorts": false, "ports": one}),
            "spec.allocateLoadBalancerNodePorts",
        ),
        (
            json!({"externalTrafficPolicy": "Local", "ports": one}),
            "spec.externalTrafficPolicy",
        ),
        (
            json!({"type": "LoadBalancer", "externalTrafficPolicy": "local", "ports": one}),
            "spec.externalTrafficPolicy",
        ),
        (
            json!({"type": "LoadBalancer", "healthCheckNodePort": 31000, "ports": one}),
            "spec.healthCheckNodePort",
        ),
        (
            json!({"ipFamilies": ["IPv4", "IPv4"], "ports": one}),
            "spec.ipFamilies[1]",
        ),
        (
            json!({"ipFamilies": ["ipv4"], "ports": one}),
            "spec.ipFamilies[0]",
        ),
        (
            json!({"ipFamilies": ["IPv4", "IPv6"], "ports": one}),
            "spec.ipFamilyPolicy",
        ),
        (
            json!({"ipFamilyPolicy": "DualStack", "ports": one}),
            "spec.ipFamilyPolicy",
        ),
        (
            json!({"sessionAffinity": "Cookie", "ports": one}),
            "spec.sessionAffinity",
        ),
        (
            json!({"sessionAffinityConfig": {"clientIP": {}}, "ports": one}),
            "spec.sessionAffinityConfig",
        ),
        (
            json!({"sessionAffinity": "ClientIP", "ports": one,
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 86401}}}),
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
        ),
        (
            json!({"selector": {"app": "a b"}, "ports": one}),
            "spec.selector[app]",
        ),
    ];
    for (spec, field) in cases {
        let shown = spec.to_string();
        assert_eq!(fields_of(spec), [field], "{shown}");
    }
}

#[test]
fn all_errors_are_reported_at_once() {
    let value = json!({
        "metadata": {"name": "Web", "namespace": "a.b", "labels": {"a b": "ok"},
            "annotations": {"x/y/z": ""}},
        "spec": {"type": "Magic", "ports": [{"port": 0, "protocol": "QUIC", "targetPort": "-"}]},
    });
    let reasons = read(value).unwrap_err();
    let fields: Vec<_> = reasons
        .iter()
        .map(|r| r.field.as_deref().unwrap())
        .collect();
    assert_eq!(
        fields,
        [
            "metadata.name",
            "metadata.namespace",
            "metadata.labels[a b]",
            "metadata.annotations[x/y/z]",
            "metadata.uid",
            "spec.type",
            "spec.ports[0].protocol",
            "spec.ports[0].port",
            "spec.ports[0].targetPort",
        ]
    );
    assert_eq!(
        reasons[7].to_string(),
        "spec.ports[0].port: \"0\": not a port; write a number from 1 to 65535"
    );
}

#[test]
fn more_annotations_than_kubernetes_keeps_are_refused() {
    let value = json!({
        "metadata": {"name": "web", "uid": "u1", "annotations": {"a": "x".repeat(262_144)}},
        "spec": {"ports": [{"port": 80}]},
    });
    let reasons = read(value).unwrap_err();
    assert_eq!(reasons.len(), 1);
    assert_eq!(reasons[0].field.as_deref(), Some("metadata.annotations"));
}

#[test]
fn an_external_name_needs_no_ports() {
    let row = row_of(json!({"type": "ExternalName", "externalName": "example.com"}));
    assert!(!row.wants_load_balancer && row.ports.is_empty());
}

#[test]
fn a_printed_service_is_read_back_as_it_was() {
    let row = row_of(json!({
        "type": "LoadBalancer", "loadBalancerClass": "landfall.dev/local",
        "ipFamilyPolicy": "PreferDualStack",
        "ports": [{"name": "http", "port": 80, "targetPort": "web", "nodePort": 30080},
                  {"name": "dns", "port": 53, "protocol": "UDP"}],
        "selector": {"app": "web"}, "externalTrafficPolicy": "Local",
        "healthCheckNodePort": 31000, "sessionAffinity": "ClientIP",
        "loadBalancerIP": "192.0.2.9", "loadBalancerSourceRanges": ["10.0.0.0/8"],
        "publishNotReadyAddresses": true, "allocateLoadBalancerNodePorts": false,
    }));
    let row = ServiceRow {
        finalized: true,
        created: Some("2026-01-02T03:04:05Z".parse().unwrap()),
        status: ServiceStatus {
            ingress: vec![IngressAddress {
                ip: Some("192.0.2.9".parse().unwrap()),
                ..IngressAddress::default()
            }],
            conditions: vec![Condition::met(
                ConditionType::Programmed,
                Code::Ready,
                "traffic flows",
                "2026-01-02T03:04:06Z".parse().unwrap(),
            )],
            ..ServiceStatus::default()
        },
        ..row
    };
    assert_eq!(read(service_to_json(&row, &row.status)), Ok(row));
}

#[test]
fn our_annotations_are_printed_and_read_back_as_part_of_the_status_only() {
    let mut row = minimal();
    row.status.marks = BTreeMap::from([(INSTANCE.to_owned(), "edge".to_owned())]);
    let json = service_to_json(&row, &row.status);
    assert_eq!(json["metadata"]["annotations"], json!({(INSTANCE): "edge"}));
    assert_eq!(read(json), Ok(row));
}

#[test]
fn annotations_of_an_admitted_service_are_believed_only_where_the_status_vouches_for_them() {
    let read = |json: &Value| {
        let service = serde_json::from_value::<Service>(json.clone()).unwrap();
        service.into_admitted_row()
    };
    let mut row = minimal();
    row.status.marks = [
        (INSTANCE, "edge"),
        (HELD_ADDRESSES, "192.0.2.1"),
        (ACCEPTED_VERSION, "{}"),
        (RECORD, "v1 x"),
        (LOAD_BALANCER_ID, "lb-1"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    let json = service_to_json(&row, &row.status);
    let vouched = read(&json);
    assert_eq!(vouched.status.marks, row.status.marks);
    assert!(vouched.recorded.is_some());
    assert_eq!(
        vouched.status.conditions,
        [],
        "it says nothing of the Service"
    );

    let forged = |change: &dyn Fn(&mut Value)| {
        let mut json = json.clone();
        change(&mut json);
        let row = read(&json);
        assert!(
            row.annotations
                .keys()
                .all(|key| !key.starts_with(STATE_DOMAIN))
        );
        row.status.marks.into_keys().collect::<Vec<_>>()
    };
    let no_status = forged(&|json| json["status"] = json!({}));
    assert_eq!(
        no_status,
        [INSTANCE],
        "a load balancer's id is the user's without a record"
    );
    assert_eq!(
        forged(&|json| json["metadata"]["uid"] = json!("u2")),
        [INSTANCE]
    );
    let address = |json: &mut Value| json["metadata"]["annotations"][HELD_ADDRESSES] = json!("::1");
    assert_eq!(
        forged(&address),
        [LOAD_BALANCER_ID, ACCEPTED_VERSION, INSTANCE, RECORD]
    );
    let untrue = |json: &mut Value| json["status"]["conditions"][0]["status"] = json!("False");
    assert_eq!(forged(&untrue), [INSTANCE]);
}

#[test]
fn a_service_prints_as_kubectl_prints_it() {
    let row = ServiceRow {
        finalized: true,
        ..minimal()
    };
    let status = ServiceStatus {
        ingress: vec![IngressAddress {
            ip: Some("127.0.0.2".parse().unwrap()),
            ..IngressAddress::default()
        }],
        conditions: vec![Condition::met(
            ConditionType::Accepted,
            Code::Accepted,
            "fine",
            "2026-01-02T03:04:06Z".parse().unwrap(),
        )],
        ..ServiceStatus::default()
    };
    let expected = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "finalizers": ["service.kubernetes.io/load-balancer-cleanup"],
            "name": "web", "namespace": "default", "uid": "u1",
        },
        "spec": {
            "allocateLoadBalancerNodePorts": true, "externalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
            "sessionAffinity": "None", "type": "LoadBalancer",
        },
        "status": {
            "conditions": [{
                "lastTransitionTime": "2026-01-02T03:04:06Z", "message": "fine",
                "reason": "Accepted", "status": "True", "type": "landfall.dev/Accepted",
            }],
            "loadBalancer": {"ingress": [{"ip": "127.0.0.2"}]},
        },
    });
    assert_eq!(service_to_json(&row, &status), expected);
    assert_eq!(
        service_list([(row.clone(), status.clone())]),
        json!({
            "apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""},
            "items": [expected],
        })
    );
}

#[test]
fn what_is_asked_of_the_nodes_is_kept_where_it_is_not_the_default() {
    let node_fields = |spec: serde_json::Value| {
        let object = json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u"},
            "spec": spec,
        });
        let service: Service = serde_json::from_value(object).unwrap();
        service.into_row().unwrap().node_fields
    };
    let asked = node_fields(json!({
        "type": "LoadBalancer", "ports": [{"port": 80}], "internalTrafficPolicy": "Local",
        "trafficDistribution": "PreferClose", "externalIPs": ["192.0.2.1", "192.0.2.2"],
    }));
    let expected = [
        ("externalIPs", "192.0.2.1,192.0.2.2"),
        ("internalTrafficPolicy", "Local"),
        ("trafficDistribution", "PreferClose"),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(asked, expected.into());
    let usual = node_fields(json!({
        "type": "LoadBalancer", "ports": [{"port": 80}], "internalTrafficPolicy": "Cluster",
    }));
    assert_eq!(usual, BTreeMap::new());
}
