//! Writing, reading back, refusing.

use landfall_model::reason::Code;
use landfall_model::status::{Condition, ConditionType, INSTANCE, IngressAddress, ServiceStatus};
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

fn write(state: &mut StateDir, rows: &[ServiceRow]) {
    let changes = rows.iter().map(|row| {
        let entry = Entry::Service(Arc::new(row.clone()));
        (entry.key(), Some(entry))
    });
    state.commit(&changes.collect()).unwrap();
}

fn rows_in(folder: &Path) -> Result<Vec<ServiceRow>, StateError> {
    let (_, remembered) = StateDir::open(folder)?;
    let services = remembered.services.iter();
    Ok(services.map(|row| ServiceRow::clone(row)).collect())
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

/// Opens without waiting.
fn hold(folder: &Path) -> Result<File, StateError> {
    StateDir::hold(folder, &mut |_| false)
}

#[test]
fn what_was_written_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("made/on/the/way");
    let leaving = ServiceRow {
        deleting: true,
        ..row("dns")
    };
    let rows = [leaving, row("web")];
    let (mut state, before) = StateDir::open(&folder).unwrap();
    assert!(before.services.is_empty() && before.pools.is_empty());
    write(&mut state, &rows);
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
    for row in rows {
        let folder = tempfile::tempdir().unwrap();
        let (mut state, _) = StateDir::open(folder.path()).unwrap();
        write(&mut state, std::slice::from_ref(&row));
        drop(state);
        assert_eq!(rows_in(folder.path()).unwrap(), [row]);
    }
}

#[test]
fn an_empty_state_is_read_back_as_nothing() {
    let folder = tempfile::tempdir().unwrap();
    drop(StateDir::open(folder.path()).unwrap());
    assert_eq!(rows_in(folder.path()).unwrap(), []);
}

#[test]
fn pools_are_read_back_beside_services() {
    let pool = PoolRow {
        name: "edge".to_owned(),
        addresses: vec!["192.0.2.0/28".to_owned()],
        auto_assign: true,
        ..PoolRow::default()
    };
    let folder = tempfile::tempdir().unwrap();
    let (mut state, _) = StateDir::open(folder.path()).unwrap();
    write(&mut state, &[row("web")]);
    let entry = Entry::Pool(Arc::new(pool.clone()));
    state
        .commit(&Changes::from([(entry.key(), Some(entry))]))
        .unwrap();
    drop(state);
    let (mut state, remembered) = StateDir::open(folder.path()).unwrap();
    assert_eq!(remembered.services, [Arc::new(row("web"))]);
    assert_eq!(remembered.pools, [Arc::new(pool)]);
    state
        .commit(&Changes::from([(Key::Pool("edge".to_owned()), None)]))
        .unwrap();
    drop(state);
    let (_, remembered) = StateDir::open(folder.path()).unwrap();
    assert_eq!(remembered.pools, []);
}

#[test]
fn every_line_of_the_journal_is_json_that_names_what_it_is_about() {
    let folder = tempfile::tempdir().unwrap();
    let (mut state, _) = StateDir::open(folder.path()).unwrap();
    write(&mut state, &[row("web")]);
    let text = fs::read_to_string(state.path()).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0]["format"], 2);
    assert_eq!(lines[1]["commit"], 1);
    assert_eq!(lines[2]["service"], "shop/web");
    assert_eq!(
        lines[2]["object"]["status"]["loadBalancer"]["ingress"][0]["ip"],
        "127.0.0.2"
    );
    assert_eq!(lines[3]["commit"], 2);
    assert_eq!(lines.len(), 4);
}

#[test]
fn the_directory_and_its_files_are_for_their_owner_alone() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("state");
    drop(StateDir::open(&folder).unwrap());
    assert_eq!(mode(&folder), 0o700);
    assert_eq!(mode(&folder.join("state.journal")), 0o600);
    assert_eq!(mode(&folder.join("lock")), 0o600);
}

#[test]
fn the_rights_that_an_earlier_version_gave_are_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["state.json", "lock"] {
        let path = folder.path().join(name);
        fs::write(&path, "{\"version\":1,\"services\":[]}").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    }
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    drop(StateDir::open(folder.path()).unwrap());
    assert_eq!(mode(folder.path()), 0o700);
    for name in ["state.journal", "state.json.migrated", "lock"] {
        assert_eq!(mode(&folder.path().join(name)), 0o600, "{name}");
    }
}

#[test]
fn a_folder_that_holds_other_things_too_keeps_its_rights() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("web.yaml"), "").unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    drop(StateDir::open(folder.path()).unwrap());
    assert_eq!(mode(folder.path()), 0o755);
    assert_eq!(mode(&folder.path().join("state.journal")), 0o600);
}

#[test]
fn a_link_in_the_directory_is_refused_by_name_and_what_it_points_to_is_untouched() {
    for name in ["lock", "state.json", "state.journal"] {
        let root = tempfile::tempdir().unwrap();
        let precious = root.path().join("precious");
        fs::write(&precious, "precious").unwrap();
        let folder = root.path().join("state");
        fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink(&precious, folder.join(name)).unwrap();
        let error = StateDir::open(&folder).unwrap_err().to_string();
        assert!(error.contains(&format!("state/{name}: ")), "{error}");
        assert!(error.contains("symbolic link"), "{error}");
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    }
}

#[test]
fn the_directory_itself_may_be_a_link() {
    // As systemd makes it for a service with a user of its own.
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("private")).unwrap();
    let link = root.path().join("state");
    std::os::unix::fs::symlink(root.path().join("private"), &link).unwrap();
    let (mut state, _) = StateDir::open(&link).unwrap();
    write(&mut state, &[row("web")]);
    drop(state);
    assert_eq!(rows_in(&link).unwrap(), [row("web")]);
}

#[test]
fn a_second_holder_gets_an_error_that_names_the_first_one() {
    let folder = tempfile::tempdir().unwrap();
    let first = StateDir::open(folder.path()).unwrap();
    let error = hold(folder.path()).unwrap_err().to_string();
    let number = std::process::id().to_string();
    assert!(
        error.contains(&format!("in use by process {number} (")),
        "{error}"
    );
    drop(first);
    StateDir::open(folder.path()).unwrap();
}

#[test]
fn a_directory_is_waited_for_while_its_last_holder_comes_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = Some(hold(folder.path()).unwrap());
    let mut attempts = Vec::new();
    let held = StateDir::hold(folder.path(), &mut |attempt| {
        attempts.push(attempt);
        if attempt == 2 {
            first = None;
        }
        attempt < 5
    });
    held.unwrap();
    assert_eq!(attempts, [0, 1, 2]);
}

#[test]
fn waiting_for_a_directory_comes_to_an_end() {
    let folder = tempfile::tempdir().unwrap();
    let _first = hold(folder.path()).unwrap();
    let mut attempts = 0;
    let error = StateDir::hold(folder.path(), &mut |attempt| {
        attempts += 1;
        attempt < 5
    });
    assert!(matches!(error, Err(StateError::InUse { .. })));
    assert_eq!(attempts, 6);
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
        let path = folder.path().join(FORMER);
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
    fs::write(folder.path().join(FORMER), text).unwrap();
    let error = rows_in(folder.path()).unwrap_err();
    assert!(
        matches!(error, StateError::Version { found: 2, .. }),
        "{error}"
    );
}

#[test]
fn a_code_of_a_newer_version_costs_no_more_than_its_meaning() {
    let folder = tempfile::tempdir().unwrap();
    let (mut state, _) = StateDir::open(folder.path()).unwrap();
    write(&mut state, &[row("web")]);
    let text = fs::read_to_string(state.path()).unwrap();
    drop(state);
    let line = text.lines().find(|line| line.contains("shop/web")).unwrap();
    let line = line.replace("\"Assigned\"", "\"FromTheFuture\"");
    let key = Key::Service(row("web").key);
    let Entry::Service(read) = Entry::read(&key, &line).unwrap() else {
        panic!("no Service");
    };
    let mut expected = row("web");
    for condition in &mut expected.status.conditions {
        condition.reason = Code::Unknown;
    }
    assert_eq!(*read, expected);
}

#[test]
fn what_is_noted_on_a_service_is_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let (mut state, _) = StateDir::open(folder.path()).unwrap();
    let mut noted = row("web");
    let mark = (INSTANCE.to_owned(), "edge".to_owned());
    noted.status.marks.extend([mark]);
    write(&mut state, std::slice::from_ref(&noted));
    drop(state);
    // As it is while the process runs.
    noted.annotations.extend(noted.status.marks.clone());
    assert_eq!(rows_in(folder.path()).unwrap(), [noted]);
}

#[test]
fn what_a_crash_left_half_written_does_not_matter() {
    let folder = tempfile::tempdir().unwrap();
    let (mut state, _) = StateDir::open(folder.path()).unwrap();
    write(&mut state, &[row("web")]);
    drop(state);
    fs::write(folder.path().join("state.journal.new"), "{\"landfall\"").unwrap();
    let path = folder.path().join("state.journal");
    let mut text = fs::read(&path).unwrap();
    text.extend_from_slice(b"{\"service\":\"shop/x\",\"obj");
    fs::write(&path, text).unwrap();
    let (mut state, _) = StateDir::open(folder.path()).unwrap();
    write(&mut state, &[row("dns")]);
    drop(state);
    assert_eq!(rows_in(folder.path()).unwrap(), [row("dns"), row("web")]);
}

#[test]
fn a_folder_that_can_not_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let error = rows_in(&file.join("state")).unwrap_err().to_string();
    assert!(error.contains("file/state: can't be created"), "{error}");
}

#[test]
fn a_journal_that_is_removed_replaced_or_cut_off_underneath_is_written_again() {
    for meddle in [
        (|path: &Path| fs::remove_file(path).unwrap()) as fn(&Path),
        |path| {
            fs::remove_file(path).unwrap();
            fs::write(path, "something else").unwrap();
        },
        |path| fs::write(path, "").unwrap(),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (mut state, _) = StateDir::open(folder.path()).unwrap();
        write(&mut state, &[row("web")]);
        // Also where nothing is written any more.
        meddle(&state.path());
        assert!(state.keep_hold().unwrap());
        assert!(!state.keep_hold().unwrap());
        let text = fs::read_to_string(state.path()).unwrap();
        assert!(text.contains("web"), "{text}");
        meddle(&state.path());
        write(&mut state, &[row("dns")]);
        drop(state);
        let mut found = rows_in(folder.path()).unwrap();
        found.sort_by_key(|row| row.key.clone());
        assert_eq!(found, [row("dns"), row("web")]);
    }
}

#[test]
fn a_directory_that_is_removed_is_made_again_with_all_that_is_remembered() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("state");
    let (mut state, _) = StateDir::open(&folder).unwrap();
    write(&mut state, &[row("web")]);
    assert!(!state.keep_hold().unwrap());
    fs::remove_dir_all(&folder).unwrap();
    assert!(state.keep_hold().unwrap());
    assert!(!state.keep_hold().unwrap());
    assert!(matches!(hold(&folder), Err(StateError::InUse { .. })));
    assert_eq!(mode(&folder), FOLDER_MODE);
    // The same where what is written next finds it gone.
    fs::remove_dir_all(&folder).unwrap();
    write(&mut state, &[row("dns")]);
    // Without its lock only.
    fs::remove_file(folder.join(LOCK)).unwrap();
    assert!(state.keep_hold().unwrap());
    assert!(matches!(hold(&folder), Err(StateError::InUse { .. })));
    drop(state);
    assert_eq!(rows_in(&folder).unwrap(), [row("dns"), row("web")]);
    assert!(!folder.join(journal::FOREIGN).exists());
}

#[test]
fn a_directory_that_another_process_holds_by_now_is_not_written_to() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("state");
    let (mut state, _) = StateDir::open(&folder).unwrap();
    write(&mut state, &[row("web")]);
    fs::remove_dir_all(&folder).unwrap();
    let (mut second, remembered) = StateDir::open(&folder).unwrap();
    assert!(remembered.services.is_empty());
    write(&mut second, &[row("dns")]);
    let theirs = fs::read(folder.join(journal::JOURNAL)).unwrap();
    assert!(matches!(state.keep_hold(), Err(StateError::InUse { .. })));
    let changes = Changes::from([(Entry::Service(Arc::new(row("new"))).key(), None)]);
    assert!(matches!(
        state.commit(&changes),
        Err(StateError::InUse { .. })
    ));
    assert_eq!(fs::read(folder.join(journal::JOURNAL)).unwrap(), theirs);
    // Once that one has ended, this one goes on, and what that one wrote is not lost.
    drop(second);
    assert!(state.keep_hold().unwrap());
    assert_eq!(fs::read(folder.join(journal::FOREIGN)).unwrap(), theirs);
    drop(state);
    assert_eq!(rows_in(&folder).unwrap(), [row("web")]);
}
