//! Keys that are wrong, and keys that change; zones.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall_exoscale::client::credentials::CredentialsSource;
use landfall_exoscale::client::{Cloud, CloudConfig, ErrorKind, Transport};
use landfall_testkit::exoscale::{KEY, SECRET, Sim};

use crate::rig::{cloud, cloud_with, config, key, transport};

#[tokio::test(start_paused = true)]
async fn the_zone_is_asked_for_once_without_a_signature_and_all_else_is_signed() {
    let sim = Sim::new();
    let cloud = cloud(&sim);
    cloud.check().await.unwrap();
    cloud.load_balancers().await.unwrap();
    let calls: Vec<_> = sim
        .calls()
        .iter()
        .map(|it| (it.line(), it.signed))
        .collect();
    let expected = [
        ("GET /zone".to_owned(), false),
        ("GET /quota/network-load-balancer".to_owned(), true),
        ("GET /load-balancer".to_owned(), true),
    ];
    assert_eq!(calls, expected);
    assert!(
        sim.calls()
            .iter()
            .all(|it| it.user_agent == "landfall/test")
    );
}

#[tokio::test(start_paused = true)]
async fn only_the_zones_are_asked_of_the_given_address_and_all_else_of_the_zones_own() {
    let sim = Sim::new();
    let Transport::InProcess(inner) = transport(&sim) else {
        panic!("in process");
    };
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    let recording = Transport::InProcess(Arc::new(move |request| {
        let uri = request.uri();
        let line = format!("{} {}", uri.host().unwrap(), uri.path());
        log.lock().unwrap().push(line);
        inner(request)
    }));
    let config = CloudConfig {
        endpoint: "http://first.test/v2".to_owned(),
        ..config(&sim)
    };
    let cloud = Cloud::over(config, recording).unwrap();
    cloud.load_balancers().await.unwrap();
    cloud.instances().await.unwrap();
    let expected = [
        "first.test /v2/zone",
        "exoscale.test /v2/load-balancer",
        "exoscale.test /v2/instance",
    ];
    assert_eq!(*asked.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_zone_that_does_not_exist_is_named_with_those_that_do() {
    let sim = Sim::new();
    let config = CloudConfig {
        zone: "ch-gva-9".to_owned(),
        ..config(&sim)
    };
    let cloud = Cloud::over(config, transport(&sim)).unwrap();
    let error = cloud.check().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NoService);
    assert!(error.message.contains("\"ch-gva-9\"") && error.message.contains("ch-gva-2"));
    assert!(sim.calls().iter().all(|it| !it.signed));
}

#[tokio::test(start_paused = true)]
async fn wrong_keys_are_refused_in_the_clouds_words_and_nothing_else_is() {
    for (key, why) in [
        (key(KEY, "other"), "wrong"),
        (key("EXOother", SECRET), "known"),
    ] {
        for (status, kind) in [(401, ErrorKind::Unauthorized), (403, ErrorKind::Forbidden)] {
            let sim = Sim::new();
            sim.configure(|it| it.refused_key = status);
            let error = cloud_with(&sim, key.clone()).check().await.unwrap_err();
            assert_eq!(error.kind, kind);
            assert!(error.message.contains(why), "{error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_wrong_by_hours_is_refused() {
    for (ahead, accepted) in [(590, true), (-2900, true), (700, false), (-3700, false)] {
        let sim = Sim::new();
        sim.configure(|it| it.clock_ahead = ahead);
        let result = cloud(&sim).check().await;
        assert_eq!(result.is_ok(), accepted, "{ahead}");
        if let Err(error) = result {
            assert!(error.message.contains("expires"), "{error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_key_on_disk_is_used_without_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("exoscale.json");
    let write = |key: &str, secret: &str| {
        let text = format!(r#"{{"api_key":"{key}","api_secret":"{secret}"}}"#);
        std::fs::write(&path, text).unwrap();
    };
    write(KEY, SECRET);
    let sim = Sim::new();
    let cloud = cloud_with(&sim, CredentialsSource::Path(path.clone()));
    cloud.check().await.unwrap();

    // After a 401 at once.
    sim.configure(|it| it.refused_key = 401);
    sim.set_key("EXOsecond", "second");
    write("EXOsecond", "second");
    cloud.check().await.unwrap();

    // Otherwise soon.
    sim.configure(|it| it.refused_key = 403);
    sim.set_key("EXOthird", "third");
    write("EXOthird", "third");
    cloud.check().await.unwrap_err();
    tokio::time::sleep(Duration::from_secs(10)).await;
    cloud.check().await.unwrap();

    // A file that is broken for a while changes nothing.
    std::fs::write(&path, "{").unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    cloud.check().await.unwrap();
    std::fs::remove_file(&path).unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    cloud.check().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn credentials_that_can_not_be_read_at_the_start_are_an_error_with_the_file() {
    let sim = Sim::new();
    let cloud = cloud_with(
        &sim,
        CredentialsSource::Path("/nowhere/exoscale.json".into()),
    );
    let error = cloud.check().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unauthorized);
    assert!(error.message.contains("/nowhere/exoscale.json"), "{error}");
}
