//! Objects in JSON.

use serde_json::{Value, json};

use super::*;

#[test]
fn an_id_of_a_user_is_a_uuid() {
    let id = Id::parse("11111111-2222-4333-8444-AAAAAAAAAAAA").unwrap();
    assert_eq!(id.as_str(), "11111111-2222-4333-8444-aaaaaaaaaaaa");
    for text in [
        "",
        "abc",
        "11111111222243338444555555555555",
        "11111111-2222-4333-8444-55555555555g",
        "11111111-2222-4333-8444-555555555555-",
        " 11111111-2222-4333-8444-555555555555",
        "11111111-2222-4333-8444-5555555555é",
    ] {
        assert_eq!(Id::parse(text), None, "{text}");
    }
}

#[test]
fn words_of_the_future_are_kept() {
    let state: LoadBalancerState = serde_json::from_value(json!("hibernating")).unwrap();
    assert_eq!(state, LoadBalancerState::Other("hibernating".to_owned()));
    assert_eq!(serde_json::to_value(&state).unwrap(), json!("hibernating"));
    for known in LoadBalancerState::KNOWN {
        assert_eq!(&LoadBalancerState::from(known.to_string()), known);
        assert!(!matches!(known, LoadBalancerState::Other(_)));
    }
}

#[test]
fn what_is_missing_or_null_is_empty_and_what_is_unknown_is_ignored() {
    let answer = json!({
        "id": "lb", "services": [{
            "id": "s", "description": null, "healthcheck-status": null, "healthcheck": null,
            "state": "reticulating", "instance-pool": {"id": "p", "name": "web", "size": 3},
        }, {
            "id": "t", "healthcheck-status": [{}, {"public-ip": "192.0.2.1", "status": "success"}],
        }],
        "labels": null, "shiny": {"new": true},
    });
    let lb: LoadBalancer = serde_json::from_value(answer).unwrap();
    let s = LoadBalancerService {
        id: Id::from("s"),
        state: ServiceState::Other("reticulating".to_owned()),
        instance_pool: Some(Reference { id: Id::from("p") }),
        ..LoadBalancerService::default()
    };
    let healthy = ServerStatus {
        public_ip: Some([192, 0, 2, 1].into()),
        status: Some(HealthcheckResult::Success),
    };
    let t = LoadBalancerService {
        id: Id::from("t"),
        healthcheck_status: vec![ServerStatus::default(), healthy],
        ..LoadBalancerService::default()
    };
    let expected = LoadBalancer {
        id: Id::from("lb"),
        services: vec![s, t],
        ..LoadBalancer::default()
    };
    assert_eq!(lb, expected);
}

#[test]
fn a_body_holds_what_is_given_and_nothing_else() {
    let create = CreateLoadBalancer {
        name: "k8s-1".to_owned(),
        description: None,
        labels: Labels::new(),
    };
    assert_eq!(as_json(&create), json!({"name": "k8s-1"}));
    assert_eq!(as_json(&UpdateLoadBalancer::default()), json!({}));
    let service = CreateService {
        name: "u-80".to_owned(),
        description: Some("web".to_owned()),
        instance_pool: Reference { id: Id::from("p") },
        protocol: Protocol::Tcp,
        strategy: Strategy::RoundRobin,
        port: 80,
        target_port: 32_672,
        healthcheck: Healthcheck {
            mode: Some(HealthcheckMode::Tcp),
            port: Some(32_672),
            interval: Some(10),
            timeout: Some(5),
            retries: Some(1),
            ..Healthcheck::default()
        },
    };
    let expected = json!({
        "name": "u-80", "description": "web", "instance-pool": {"id": "p"}, "protocol": "tcp",
        "strategy": "round-robin", "port": 80, "target-port": 32_672,
        "healthcheck": {"mode": "tcp", "port": 32_672, "interval": 10, "timeout": 5, "retries": 1},
    });
    assert_eq!(as_json(&service), expected);
    let update = UpdateService {
        target_port: Some(31_000),
        ..UpdateService::default()
    };
    assert_eq!(as_json(&update), json!({"target-port": 31_000}));
}

fn as_json(body: &impl Serialize) -> Value {
    serde_json::to_value(body).unwrap()
}
