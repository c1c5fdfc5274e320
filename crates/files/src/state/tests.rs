//! Writing, reading back, refusing.

use landfall_model::reason::Code;
use landfall_model::status::{Condition, ConditionType, IngressAddress, ServiceStatus};
use serde_json::{Value, json};

use super::*;

fn row(name: &str) -> ServiceRow {
    let service = json!({
        "metadata": {"name": name, "namespace": "shop", "uid": "u1",
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "annotations": {"landfall.dev/drain": "30s"},
            "finalizers": ["service.kubernetes.io/load-balancer-cleanup"]},
        "spec": {"type": "LoadBalancer", "loadBalancerClass": "landfall.dev/local",
            "ports": [{"name": "http", "port": 80, "targetPort": "web"}]},
    });
    let row = read_row(service);
    ServiceRow {
        status: ServiceStatus {
            ingress: vec![IngressAddress {
                ip: Some("127.0.0.2".parse().unwrap()),
                ..IngressAddress::default()
            }],
            conditions: vec![Condition::met(
                ConditionType::Addressed,
                Code::Assigned,
                "it has an address",
                "2026-01-02T03:04:06.5Z".parse().unwrap(),
            )],
            ..ServiceStatus::default()
        },
        ..row
    }
}

fn read_row(service: Value) -> ServiceRow {
    let shape: wire::Service = serde_json::from_value(service).unwrap();
    shape.into_row().unwrap()
}

fn write(state: &StateDir, rows: &[ServiceRow]) {
    let records: Vec<_> = rows
        .iter()
        .cloned()
        .map(Record::new)
        .map(Arc::new)
        .collect();
    state.write(&records).unwrap();
}

fn rows_in(folder: &Path) -> Result<Vec<ServiceRow>, StateError> {
    let (_, records) = StateDir::open(folder)?;
    Ok(records
        .iter()
        .map(|record| ServiceRow::clone(&record.row))
        .collect())
}

#[test]
fn what_was_written_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("made/on/the/way");
    let leaving = ServiceRow {
        deleting: true,
        ..row("dns")
    };
    let rows = [row("web"), leaving];
    let (state, before) = StateDir::open(&folder).unwrap();
    assert!(before.is_empty());
    write(&state, &rows);
    drop(state);
    assert_eq!(rows_in(&folder).unwrap(), rows);
}

#[test]
fn every_type_of_service_can_be_read_back() {
    let specs = [
        json!({"type": "NodePort", "externalTrafficPolicy": "Local",
            "ports": [{"port": 80, "nodePort": 30080}]}),
        json!({"type": "ClusterIP", "clusterIP": "None"}),
        json!({"type": "ClusterIP", "ports": [{"port": 80}]}),
        json!({"type": "ExternalName", "externalName": "example.com"}),
        json!({"type": "LoadBalancer", "ipFamilyPolicy": "RequireDualStack",
            "ipFamilies": ["IPv6"], "ports": [{"port": 80}]}),
    ];
    let rows: Vec<ServiceRow> = specs
        .into_iter()
        .map(|spec| read_row(json!({"metadata": {"name": "web", "uid": "u"}, "spec": spec})))
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let (state, _) = StateDir::open(folder.path()).unwrap();
    write(&state, &rows);
    drop(state);
    assert_eq!(rows_in(folder.path()).unwrap(), rows);
}

#[test]
fn an_empty_state_is_read_back_as_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (state, _) = StateDir::open(folder.path()).unwrap();
    write(&state, &[]);
    drop(state);
    assert_eq!(rows_in(folder.path()).unwrap(), []);
}

#[test]
fn a_second_holder_is_told_who_the_first_one_is() {
    let folder = tempfile::tempdir().unwrap();
    let first = StateDir::open(folder.path()).unwrap();
    let error = StateDir::open(folder.path()).unwrap_err().to_string();
    let number = std::process::id().to_string();
    assert!(
        error.contains(&format!("in use by process {number} (")),
        "{error}"
    );
    drop(first);
    StateDir::open(folder.path()).unwrap();
}

#[test]
fn a_state_that_makes_no_sense_is_refused_and_left_as_it_is() {
    let cases = [
        "",
        "{",
        "[]",
        "{}",
        "{\"version\":1}",
        "{\"version\":1,\"services\":[{\"service\":{\"metadata\":{\"name\":\"web\"}}}]}",
        "\u{0}\u{0}\u{0}",
    ];
    for text in cases {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(STATE_FILE);
        fs::write(&path, text).unwrap();
        let error = rows_in(folder.path()).unwrap_err();
        assert!(
            matches!(error, StateError::Corrupt { .. }),
            "{text:?}: {error}"
        );
        assert!(error.to_string().contains("move it away"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}

#[test]
fn a_state_of_a_newer_format_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let text = "{\"version\":2,\"services\":{}}";
    fs::write(folder.path().join(STATE_FILE), text).unwrap();
    let error = rows_in(folder.path()).unwrap_err();
    assert!(
        matches!(error, StateError::Version { found: 2, .. }),
        "{error}"
    );
}

#[test]
fn a_condition_with_a_code_of_a_newer_version_is_still_ours() {
    let folder = tempfile::tempdir().unwrap();
    let (state, _) = StateDir::open(folder.path()).unwrap();
    write(&state, &[row("web")]);
    drop(state);
    let path = folder.path().join(STATE_FILE);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"Assigned\"", "\"FromTheFuture\"")).unwrap();
    let mut expected = row("web");
    for condition in &mut expected.status.conditions {
        condition.reason = Code::Unknown;
    }
    assert_eq!(rows_in(folder.path()).unwrap(), [expected]);
}

#[test]
fn what_a_crash_left_half_written_does_not_matter() {
    let folder = tempfile::tempdir().unwrap();
    let (state, _) = StateDir::open(folder.path()).unwrap();
    write(&state, &[row("web")]);
    fs::write(folder.path().join(FRESH_FILE), "{\"version\":1,\"serv").unwrap();
    drop(state);
    let (state, _) = StateDir::open(folder.path()).unwrap();
    write(&state, &[row("dns")]);
    drop(state);
    assert_eq!(rows_in(folder.path()).unwrap(), [row("dns")]);
}

#[test]
fn a_folder_that_can_not_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let error = rows_in(&file.join("state")).unwrap_err().to_string();
    assert!(error.contains("file/state: can't be made"), "{error}");
}
