//! `ServiceL2Status` as speakers of MetalLB write and read it.

use landfall_metallb::ServiceL2Status;
use landfall_model::ServiceKey;
use serde_json::json;

fn status(interfaces: &[&str]) -> ServiceL2Status {
    ServiceL2Status {
        node: "node-a".to_owned(),
        service: ServiceKey::new("shop", "web"),
        interfaces: interfaces.iter().map(|name| (*name).to_owned()).collect(),
    }
}

#[test]
fn a_status_names_node_service_and_interfaces() {
    let it = status(&["eth1", "eth0"]);
    assert_eq!(
        it.status(),
        json!({
            "node": "node-a", "serviceName": "web", "serviceNamespace": "shop",
            "interfaces": [{"name": "eth0"}, {"name": "eth1"}],
        })
    );
    let labels: Vec<(&str, String)> = it.labels().into_iter().collect();
    assert_eq!(
        labels,
        [
            ("metallb.io/node", "node-a".to_owned()),
            ("metallb.io/service-name", "web".to_owned()),
            ("metallb.io/service-namespace", "shop".to_owned()),
        ]
    );
}

#[test]
fn what_is_written_is_read_again_and_what_is_incomplete_is_not() {
    for it in [status(&[]), status(&["eth0"])] {
        assert_eq!(ServiceL2Status::read(&it.status()), Some(it));
    }
    for incomplete in [
        json!(null),
        json!({}),
        json!({"node": "a", "serviceName": "web"}),
    ] {
        assert_eq!(ServiceL2Status::read(&incomplete), None);
    }
}
