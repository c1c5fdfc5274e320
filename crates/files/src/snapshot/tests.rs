//! Writing, reading back, refusing.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use landfall_model::reason::Code;
use landfall_model::status::HELD_ADDRESSES;
use serde_json::{Value, json};

use super::*;

fn about() -> About {
    About {
        written: "2026-01-02T03:04:05Z".parse().unwrap(),
        cluster: "https://127.0.0.1:6443 abc".to_owned(),
        configuration: "[]".to_owned(),
    }
}

fn service(name: &str) -> ServiceRow {
    let object = json!({
        "metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": "7",
            "annotations": {"landfall.dev/drain": "30s"},
            "finalizers": ["service.kubernetes.io/load-balancer-cleanup"]},
        "spec": {"type": "LoadBalancer", "ports": [{"name": "http", "port": 80}]},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]},
            "conditions": [{"type": "landfall.dev/Programmed", "status": "True",
                "reason": "Ready", "message": "it is",
                "lastTransitionTime": "2026-01-02T03:04:05Z"}]},
    });
    let object: wire::Service = serde_json::from_value(object).unwrap();
    object.into_admitted_row()
}

fn slice() -> SliceRow {
    let object = json!({
        "metadata": {"name": "web-x", "namespace": "shop",
            "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [
            {"addresses": ["10.0.0.1"], "nodeName": "n1", "targetRef": {"name": "web-1"}},
            {"addresses": ["10.0.0.2"], "conditions": {"ready": false, "serving": true,
                "terminating": true}},
        ],
    });
    let object: wire::EndpointSlice = serde_json::from_value(object).unwrap();
    object.into_admitted_row().unwrap().0
}

fn node() -> NodeRow {
    let object = json!({
        "metadata": {"name": "n1", "labels": {"zone": "a"}},
        "spec": {"providerID": "x://1", "podCIDRs": ["10.1.0.0/24"], "unschedulable": true},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.0.1.1"}],
            "conditions": [{"type": "Ready", "status": "True"},
                {"type": "NetworkUnavailable", "status": "True"}]},
    });
    let object: wire::Node = serde_json::from_value(object).unwrap();
    object.into_admitted_row().0
}

fn snapshot() -> Snapshot {
    let namespace = NamespaceRow {
        name: "shop".into(),
        labels: [("tier".to_owned(), "front".to_owned())].into(),
        annotations: [("landfall.dev/class".to_owned(), "edge".to_owned())].into(),
    };
    let pool = PoolRow {
        name: "public".to_owned(),
        addresses: vec!["192.0.2.0/24".to_owned()],
        auto_assign: true,
        ..PoolRow::default()
    };
    let faulty = ServiceRow {
        faults: vec![Reason::error(Code::InvalidManifest, "half of it").at("spec.ports")],
        ..service("odd")
    };
    let resource = |kind, spec| {
        let object = wire::Resource {
            api_version: "metallb.io/v1beta1".to_owned(),
            metadata: ObjectMeta {
                name: Some("edge".to_owned()),
                namespace: Some("metallb-system".to_owned()),
                uid: Some("u".to_owned()),
                generation: Some(4),
                ..ObjectMeta::default()
            },
            spec,
            status: serde_json::Value::Null,
        };
        Arc::new(object.into_admitted_row(kind))
    };
    let spec = serde_json::json!({"addresses": ["198.51.100.0/24"], "more": {"than": "needed"}});
    let whole = PoolRow {
        name: "edge".to_owned(),
        addresses: vec!["198.51.100.0/24".to_owned()],
        auto_assign: true,
        resource: Some(resource(ResourceKind::IpAddressPool, spec)),
        ..PoolRow::default()
    };
    let spec = serde_json::json!({"interfaces": ["eth0"]});
    let facts = vec![
        Fact::Pool(Arc::new(pool)),
        Fact::Pool(Arc::new(whole)),
        Fact::Resource(resource(ResourceKind::L2Advertisement, spec)),
        Fact::Node(Arc::new(node())),
        Fact::Namespace(Arc::new(namespace)),
        Fact::Slice(Arc::new(slice())),
        Fact::ClusterIps(
            ServiceKey::new("shop", "web"),
            ["10.96.0.7", "fd00::7"]
                .map(|it| it.parse().unwrap())
                .into(),
        ),
        Fact::Service(Arc::new(service("web"))),
        Fact::Service(Arc::new(faulty)),
    ];
    Snapshot {
        about: about(),
        facts,
    }
}

fn shown(facts: &[Fact]) -> Vec<String> {
    facts.iter().map(|fact| format!("{fact:?}")).collect()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn what_was_served_is_read_back_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("made/on/the/way");
    let mut file = SnapshotFile::at(&state);
    assert!(file.read().unwrap().is_none());
    file.write(&snapshot().encode()).unwrap();
    let read = file.read().unwrap().unwrap();
    assert_eq!(read.about, about());
    assert_eq!(shown(&read.facts), shown(&snapshot().facts));
    assert_eq!(read.print(), snapshot().print());
    assert_eq!((mode(&state), mode(&state.join(SNAPSHOT))), (0o700, 0o600));
    file.remove().unwrap();
    assert!(file.read().unwrap().is_none());
}

#[test]
fn our_annotations_are_believed_again_when_they_are_read_back() {
    let mut row = service("web");
    let mark = (HELD_ADDRESSES.to_owned(), "192.0.2.7".to_owned());
    row.status.marks.extend([mark]);
    let snapshot = Snapshot {
        about: about(),
        facts: vec![Fact::Service(Arc::new(row.clone()))],
    };
    let read = Snapshot::decode(&snapshot.encode()).unwrap();
    let [Fact::Service(read)] = &read.facts[..] else {
        panic!("{read:?}");
    };
    assert_eq!(read.status, row.status);
}

#[test]
fn secrets_have_no_place_in_it() {
    let object = json!({
        "metadata": {"name": "web-tls", "namespace": "shop"}, "type": "kubernetes.io/tls",
        "data": {"tls.crt": "c2VjcmV0", "tls.key": "c2VjcmV0"},
    });
    let object: wire::Secret = serde_json::from_value::<wire::Secret>(object).unwrap();
    let secret = Snapshot {
        about: about(),
        facts: vec![Fact::Secret(Arc::new(object.into_admitted_row()))],
    };
    let text = String::from_utf8(secret.encode()).unwrap();
    assert!(
        !text.contains("web-tls") && !text.contains("c2VjcmV0"),
        "{text}"
    );
    assert!(Snapshot::decode(text.as_bytes()).unwrap().facts.is_empty());
}

#[test]
fn a_file_that_is_not_whole_is_as_good_as_none_wherever_it_ends_or_was_changed() {
    let whole = snapshot().encode();
    for length in 0..whole.len() {
        assert!(Snapshot::decode(&whole[..length]).is_err(), "{length}");
    }
    for place in (0..whole.len()).step_by(7) {
        let mut changed = whole.clone();
        changed[place] ^= 1;
        assert!(Snapshot::decode(&changed).is_err(), "{place}");
    }
    let other: Value = json!({"landfall": "served", "format": 2, "written": about().written,
        "cluster": "", "configuration": ""});
    let mut newer = Vec::new();
    write_line(&mut newer, &other);
    let sha256 = digest(&newer);
    write_line(&mut newer, &Seal { sha256 });
    assert_eq!(
        Snapshot::decode(&newer).unwrap_err(),
        "its format is served 2"
    );
}

#[test]
fn what_cant_be_written_leaves_what_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = SnapshotFile::at(folder.path());
    file.write(&snapshot().encode()).unwrap();
    // Nothing can be made under the name of its successor.
    fs::create_dir(folder.path().join(SNAPSHOT_FRESH)).unwrap();
    let error = file.write(b"else").unwrap_err().to_string();
    assert!(
        error.contains("served.snapshot: can't be written"),
        "{error}"
    );
    assert!(file.read().unwrap().is_some());
}

#[test]
fn a_link_is_not_followed_and_a_directory_that_is_held_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = folder.path().join("elsewhere");
    let state = folder.path().join("state");
    let mut file = SnapshotFile::at(&state);
    assert!(file.read().unwrap().is_none());
    fs::write(&elsewhere, snapshot().encode()).unwrap();
    std::os::unix::fs::symlink(&elsewhere, state.join(SNAPSHOT)).unwrap();
    assert!(
        file.read()
            .unwrap_err()
            .to_string()
            .contains("symbolic link")
    );
    file.write(b"mine").unwrap();
    assert_eq!(fs::read(&elsewhere).unwrap(), snapshot().encode());
    let mut second = SnapshotFile::at(&state);
    assert!(matches!(
        second.write(b"other"),
        Err(StateError::InUse { .. })
    ));
    assert!(matches!(second.read(), Err(StateError::InUse { .. })));
    assert_eq!(fs::read(state.join(SNAPSHOT)).unwrap(), b"mine");
}
