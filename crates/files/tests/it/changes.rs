//! Edits of every kind, good and bad.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;

use landfall_files::Options;
use landfall_model::Code;

use crate::stage::{Running, Stage, key, namespace, service};

#[tokio::test]
async fn a_file_replaced_by_renaming_is_reported_as_one_change() {
    let stage = Stage::new();
    stage.put("web.yaml", &(service("web", 80) + &service("dns", 53)));
    let mut running = stage.start().await;
    assert_eq!(
        running.received(),
        ["Service dns 53", "Service web 80", "Synced"]
    );
    stage.put("web.yaml", &(service("web", 81) + &service("dns", 53)));
    running.until_received("Service web 81").await;
    stage.put("end.yaml", &namespace("end"));
    running.until_received("Namespace end").await;
    assert_eq!(running.received(), ["Service web 81", "Namespace end"]);
    running.stop().await;
}

#[tokio::test]
async fn a_file_given_by_name_is_followed_through_replacement() {
    let stage = Stage::new();
    stage.put("web.yaml", &service("web", 80));
    let mut running = Running::start(Options {
        paths: vec![stage.path("web.yaml")],
        ..Options::default()
    })
    .await;
    for port in 81..84 {
        stage.put("web.yaml", &service("web", port));
        running.until_received(&format!("Service web {port}")).await;
    }
    stage.remove("web.yaml");
    running.until_received("ServiceGone web").await;
    stage.put("web.yaml", &service("web", 90));
    running.until_received("Service web 90").await;
}

#[tokio::test]
async fn a_file_written_in_place_is_not_read_while_it_is_empty_or_half_full() {
    let stage = Stage::new();
    stage.put("web.yaml", &(service("web", 80) + &service("dns", 53)));
    let mut running = stage.start().await;

    let mut file = File::create(stage.path("web.yaml")).unwrap();
    // Whatever else happens in the folder meanwhile leads to looks, too.
    stage.put("other.yaml", &namespace("first"));
    running.until_received("Namespace first").await;
    assert!(running.services.contains_key(&key("web")));

    let content = service("web", 81) + &service("dns", 54);
    file.write_all(&content.as_bytes()[..content.len() - 9])
        .unwrap();
    file.write_all(&content.as_bytes()[content.len() - 9..])
        .unwrap();
    drop(file);
    running
        .until("both new ports are reported", |running| {
            running.has_received("Service web 81") && running.has_received("Service dns 54")
        })
        .await;
    running
        .until("the file reads well", |running| {
            running.problem("web.yaml").is_empty()
        })
        .await;
    let received = running.received();
    assert!(
        !received
            .iter()
            .any(|received| received.starts_with("ServiceGone")),
        "{received:?}"
    );
}

#[tokio::test]
async fn a_config_map_is_followed_when_its_link_is_turned() {
    let stage = Stage::new();
    let volume = |version: &str, port| {
        let folder = stage.path(version);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("web.yaml"), service("web", port)).unwrap();
        let draft = stage.path("..data_tmp");
        symlink(version, &draft).unwrap();
        fs::rename(draft, stage.path("..data")).unwrap();
    };
    volume("..2026_01", 80);
    symlink("..data/web.yaml", stage.path("web.yaml")).unwrap();
    let mut running = stage.start().await;
    assert_eq!(running.row("web").ports[0].port.get(), 80);
    for (version, port) in [("..2026_02", 81), ("..2026_03", 82)] {
        volume(version, port);
        running.until_received(&format!("Service web {port}")).await;
    }
    fs::remove_dir_all(stage.path("..2026_01")).unwrap();
    let received = running.received();
    assert!(
        !received
            .iter()
            .any(|received| received.starts_with("ServiceGone")),
        "{received:?}"
    );
}

#[tokio::test]
async fn a_link_to_a_file_elsewhere_is_followed_when_that_file_is_edited() {
    let stage = Stage::new();
    let elsewhere = stage.root().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("real"), service("web", 80)).unwrap();
    symlink(elsewhere.join("real"), stage.path("web.yaml")).unwrap();
    let mut running = stage.start().await;
    fs::write(elsewhere.join("real"), service("web", 81)).unwrap();
    running.until_received("Service web 81").await;
}

#[tokio::test]
async fn files_that_come_and_go_are_reported() {
    let stage = Stage::new();
    let mut running = stage.start().await;
    stage.put("web.yaml", &service("web", 80));
    running.until_received("Service web 80").await;
    stage.put("dns.yml", &service("dns", 53));
    running.until_received("Service dns 53").await;
    fs::rename(stage.path("web.yaml"), stage.path("web.bak")).unwrap();
    running.until_received("ServiceGone web").await;
    assert_eq!(running.received().len(), 4);
}

#[tokio::test]
async fn a_file_that_is_renamed_withdraws_nothing() {
    let stage = Stage::new();
    stage.put("a.yaml", &service("web", 80));
    let mut running = stage.start().await;
    running.received();
    fs::rename(stage.path("a.yaml"), stage.path("b.yaml")).unwrap();
    running
        .until("the Service is reported in its new place", |running| {
            let origin = running.row("web").origin_of("").unwrap();
            origin.file.ends_with("b.yaml")
        })
        .await;
    assert_eq!(running.received(), ["Service web 80"]);
}

#[tokio::test]
async fn new_folders_are_followed_when_asked_for() {
    let stage = Stage::new();
    let mut running = Running::start(Options {
        recursive: true,
        ..stage.options()
    })
    .await;
    let deep = stage.path("shop/front");
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("web.yaml"), service("web", 80)).unwrap();
    running.until_received("Service web 80").await;
    fs::write(deep.join("web.yaml"), service("web", 81)).unwrap();
    running.until_received("Service web 81").await;
    fs::remove_dir_all(stage.path("shop")).unwrap();
    running.until_received("ServiceGone web").await;
}

#[tokio::test]
async fn a_broken_file_keeps_what_it_held_and_heals() {
    let stage = Stage::new();
    stage.put("web.yaml", &service("web", 80));
    stage.put("dns.yaml", &service("dns", 53));
    let mut running = stage.start().await;
    running.received();

    stage.put(
        "web.yaml",
        "apiVersion: v1\nkind: Service\nmetadata: {name: web\n",
    );
    running.until_received("problems web.yaml 2").await;
    let problem = running.problem("web.yaml");
    assert!(problem.contains("web.yaml:3: not YAML: "), "{problem}");
    assert!(
        problem.contains("Service default/web stays as it was"),
        "{problem}"
    );

    // Everything else goes on.
    stage.put("dns.yaml", &service("dns", 54));
    running.until_received("Service dns 54").await;

    stage.put("web.yaml", &service("web", 81));
    running.until_received("problems web.yaml 0").await;
    running.until_received("Service web 81").await;
    let received = running.received();
    assert!(
        !received
            .iter()
            .any(|received| received.starts_with("ServiceGone")),
        "{received:?}"
    );
}

#[tokio::test]
async fn a_service_with_a_bad_field_keeps_its_last_good_version() {
    let stage = Stage::new();
    stage.put("web.yaml", &(service("web", 80) + &service("dns", 53)));
    let mut running = stage.start().await;
    stage.put("web.yaml", &(service("web", 70_000) + &service("dns", 54)));
    running.until_received("Service dns 54").await;
    assert_eq!(running.row("web").ports[0].port.get(), 80);
    let problem = running.problem("web.yaml");
    assert!(
        problem.contains("web.yaml:9: spec.ports[0].port: \"70000\": not a port"),
        "{problem}"
    );
}

#[tokio::test]
async fn bytes_that_are_no_text_keep_what_was_there() {
    let stage = Stage::new();
    stage.put("web.yaml", &service("web", 80));
    let mut running = stage.start().await;
    let mut junk = service("web", 81).into_bytes();
    junk.extend([0xc3, 0x28]);
    fs::write(stage.path("web.yaml"), junk).unwrap();
    running.until_received("problems web.yaml 2").await;
    assert!(
        running
            .problem("web.yaml")
            .contains("web.yaml:10: the file is not UTF-8 text")
    );
    assert_eq!(running.row("web").ports[0].port.get(), 80);
    stage.put("web.yaml", &service("web", 82));
    running.until_received("Service web 82").await;
}

#[tokio::test]
async fn the_same_service_in_two_files_is_reported_and_used_once() {
    let stage = Stage::new();
    stage.put("b.yaml", &service("web", 81));
    let mut running = stage.start().await;
    stage.put("a.yaml", &service("web", 80));
    running.until_received("Service web 80").await;
    let reasons = &running.problems["b.yaml"];
    assert_eq!((reasons.len(), reasons[0].code), (1, Code::DuplicateObject));
    assert!(
        reasons[0].message.contains("a.yaml:2; this one is ignored"),
        "{}",
        reasons[0]
    );
    stage.remove("a.yaml");
    running.until_received("Service web 81").await;
    running.until_received("problems b.yaml 0").await;
}

#[tokio::test]
async fn a_folder_that_is_gone_for_a_while_withdraws_nothing_and_is_followed_again() {
    let stage = Stage::new();
    stage.put("web.yaml", &service("web", 80));
    let mut running = stage.start().await;
    running.received();
    let away = stage.root().join("away");
    fs::rename(stage.folder(), &away).unwrap();
    running.until_received("problems manifests 1").await;
    fs::create_dir(stage.folder()).unwrap();
    stage.put("web.yaml", &service("web", 81));
    running.until_received("Service web 81").await;
    running.until_received("problems manifests 0").await;
    stage.put("web.yaml", &service("web", 82));
    running.until_received("Service web 82").await;
    let received = running.received();
    assert!(
        !received
            .iter()
            .any(|received| received.starts_with("ServiceGone")),
        "{received:?}"
    );
}

#[tokio::test]
async fn a_burst_longer_than_any_queue_is_not_missed() {
    let stage = Stage::new();
    let mut running = stage.start().await;
    for index in 0..500 {
        fs::write(
            stage.path(&format!("{index}.yaml")),
            service(&format!("web{index}"), 80),
        )
        .unwrap();
    }
    running
        .until("all are reported", |running| running.services.len() == 500)
        .await;
    for index in 0..500 {
        stage.remove(&format!("{index}.yaml"));
    }
    running
        .until("all are gone", |running| running.services.is_empty())
        .await;
}
