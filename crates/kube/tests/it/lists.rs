//! Lists that fail, break off or come late: nothing is made up, and the rest goes on.

use std::collections::BTreeSet;
use std::time::Duration;

use landfall_engine::leadership::Role;
use landfall_kube::{CustomResources, SourceConfig};
use tokio::sync::watch;

use crate::fake::{Fake, Lists};
use crate::support::{DEADLINE, Watching, connect_by};

const NODE: &str = r#"{"metadata": {"name": "n1", "resourceVersion": "1"}}"#;
const NAMESPACE: &str = r#"{"metadata": {"name": "shop", "resourceVersion": "1"}}"#;
const SLICE: &str = r#"{"metadata": {"name": "web-1", "namespace": "shop", "resourceVersion": "1",
    "labels": {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4", "endpoints": []}"#;

fn lists(objects: &[&str]) -> Lists {
    let line = |text: &&str| text.replace('\n', " ");
    Lists::Of(objects.iter().map(line).collect())
}

/// Nothing is waited for that what is known may stand in for.
fn at_once() -> SourceConfig {
    SourceConfig {
        resources: CustomResources {
            kinds: BTreeSet::new(),
            ..CustomResources::default()
        },
        stands_in_after: Duration::ZERO,
        ..SourceConfig::default()
    }
}

async fn watch_as(
    fake: &Fake,
    config: SourceConfig,
    role: Option<watch::Receiver<Role>>,
) -> Watching {
    let connection = connect_by(&fake.kubeconfig(), "landfall/lists").await;
    Watching::start_as(&connection, config, role)
}

/// Waits until lists of a resource were asked for so often.
async fn asked(fake: &Fake, resource: &str, times: usize) {
    let often = async {
        while fake.asked(resource).len() < times {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let asked = tokio::time::timeout(DEADLINE, often).await;
    asked.unwrap_or_else(|_| panic!("{resource}: {:?}", fake.asked(resource)));
}

#[tokio::test]
async fn a_kind_that_can_not_be_listed_keeps_no_new_leader_from_its_work() {
    for (resource, object) in [
        ("nodes", NODE),
        ("namespaces", NAMESPACE),
        ("endpointslices", SLICE),
    ] {
        for status in [403, 410, 500] {
            let fake = Fake::start(&[(resource, lists(&[object]))]).await;
            let (role, followed) = watch::channel(Role::Standby);
            let mut watching = watch_as(&fake, at_once(), Some(followed)).await;
            watching.until("synced").await;
            fake.set(resource, Lists::Failing(status));
            role.send_replace(Role::Leading { term: 1 });
            let reported = watching.until("current in term 1").await;
            // What was known of it stands, and it is shown.
            let gone = reported.iter().find(|word| word.starts_with('-'));
            assert_eq!(gone, None, "{resource}, {status}: {reported:?}");
            watching.connected(false).await;
            fake.set(resource, lists(&[]));
            watching.connected(true).await;
            let gone = watching.next().await;
            let gone = crate::support::word(&gone);
            assert!(
                gone.starts_with('-') || gone.starts_with("fine "),
                "{gone:?}"
            );
        }
    }
}

#[tokio::test]
async fn what_was_never_listed_is_not_taken_for_empty() {
    for resource in ["services", "nodes", "namespaces", "endpointslices"] {
        let fake = Fake::start(&[(resource, Lists::Failing(500))]).await;
        let (_role, followed) = watch::channel(Role::Leading { term: 1 });
        let mut watching = watch_as(&fake, at_once(), Some(followed)).await;
        let before = fake.asked(resource).len();
        asked(&fake, resource, before + 4).await;
        assert_eq!(watching.so_far(), [] as [&str; 0], "{resource}");
        fake.set(resource, lists(&[]));
        watching.until("synced").await;
    }
}

#[tokio::test]
async fn a_speaker_waits_for_kinds_that_it_may_not_read_and_a_controller_does_not() {
    let pools = CustomResources::default();
    let config = |needs_access| SourceConfig {
        resources: pools.clone(),
        needs_access,
        ..at_once()
    };
    let fake = Fake::start(&[("ipaddresspools", Lists::Denied)]).await;
    let mut controller = watch_as(&fake, config(false), None).await;
    controller.until("synced").await;
    let mut speaker = watch_as(&fake, config(true), None).await;
    let before = fake.asked("ipaddresspools").len();
    asked(&fake, "ipaddresspools", before + 3).await;
    let reported = speaker.so_far();
    assert!(!reported.iter().any(|it| it == "synced"), "{reported:?}");
    speaker.connected(false).await;
    fake.set("ipaddresspools", lists(&[]));
    speaker.until("synced").await;
}

#[tokio::test]
async fn nothing_stands_in_for_the_services_that_the_leader_before_has_written() {
    let fake = Fake::start(&[]).await;
    let (role, followed) = watch::channel(Role::Standby);
    let mut watching = watch_as(&fake, at_once(), Some(followed)).await;
    watching.until("synced").await;
    fake.set("services", Lists::Failing(500));
    // With them everything fails, as where the API server is away.
    fake.set("nodes", Lists::Failing(500));
    role.send_replace(Role::Leading { term: 1 });
    asked(&fake, "services", 5).await;
    assert_eq!(watching.so_far(), [] as [&str; 0]);
    fake.set("nodes", lists(&[NODE]));
    let before = fake.asked("nodes").len();
    asked(&fake, "nodes", before + 1).await;
    fake.set("services", lists(&[]));
    let reported = watching.until("current in term 1").await;
    assert_eq!(reported, ["+Node n1", "current in term 1"]);
}

#[tokio::test]
async fn a_list_that_breaks_off_again_and_again_is_asked_for_less_and_less_often() {
    let fake = Fake::start(&[("nodes", Lists::Breaking(NODE.to_owned()))]).await;
    let mut watching = watch_as(&fake, at_once(), None).await;
    watching.connected(false).await;
    asked(&fake, "nodes", 5).await;
    let asked = fake.asked("nodes");
    // At least 125, 250, 500 and 1000 ms. Without growth it would be 1 s at most.
    let lasted = asked[4].duration_since(asked[0]);
    assert!(lasted >= Duration::from_millis(1500), "{lasted:?}");
    fake.set("nodes", lists(&[NODE]));
    let reported = watching.until("synced").await;
    assert_eq!(reported, ["+Node n1", "synced"]);
}

#[tokio::test]
async fn a_new_leader_receives_a_service_together_with_its_certificate() {
    let fake = Fake::start(&[("secrets", Lists::Waiting)]).await;
    let (role, followed) = watch::channel(Role::Standby);
    let config = SourceConfig {
        secret_timeout: DEADLINE * 2,
        ..at_once()
    };
    let mut watching = watch_as(&fake, config, Some(followed)).await;
    watching.until("synced").await;
    fake.set(
        "services",
        lists(&[
            r#"{"metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "2",
            "annotations": {"landfall.dev/tls-secret": "tls"}},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 443}]}}"#,
        ]),
    );
    role.send_replace(Role::Leading { term: 1 });
    asked(&fake, "secrets", 1).await;
    for resource in ["services", "nodes", "namespaces", "endpointslices"] {
        asked(&fake, resource, 2).await;
    }
    assert_eq!(watching.so_far(), [] as [&str; 0]);
    let tls = r#"{"metadata": {"name": "tls", "namespace": "shop", "resourceVersion": "1"}}"#;
    fake.set("secrets", lists(&[tls]));
    let reported = watching.until("current in term 1").await;
    assert_eq!(
        reported,
        ["+Secret shop/tls", "+Service shop/web", "current in term 1"]
    );
}

#[tokio::test]
async fn a_secret_that_can_not_be_listed_keeps_no_other_service_waiting() {
    let web = r#"{"metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion":
        "2", "annotations": {"landfall.dev/tls-secret": "tls"}},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 443}]}}"#;
    let rules = [
        ("services", lists(&[web])),
        ("secrets", Lists::Failing(500)),
    ];
    let fake = Fake::start(&rules).await;
    let config = SourceConfig {
        secret_timeout: Duration::ZERO,
        ..at_once()
    };
    let mut watching = watch_as(&fake, config, None).await;
    let reported = watching.until("synced").await;
    assert_eq!(reported, ["+Service shop/web", "synced"]);
}

/// Slices of a megabyte each.
fn big(slices: usize) -> Vec<String> {
    let endpoint = format!(
        r#"{{"addresses": ["10.0.0.1"], "targetRef": {{"name": "{}"}}}}"#,
        "x".repeat(1 << 20)
    );
    let slice = |number: usize| {
        SLICE
            .replace("web-1", &format!("web-{number:02}"))
            .replace(
                r#""endpoints": []"#,
                &format!(r#""endpoints": [{endpoint}]"#),
            )
            .replace('\n', " ")
    };
    (0..slices).map(slice).collect()
}

#[tokio::test]
async fn a_page_of_a_list_that_is_long_is_asked_for_in_parts() {
    let fake = Fake::start(&[("endpointslices", Lists::Of(big(40)))]).await;
    let config = SourceConfig {
        streaming: false,
        ..at_once()
    };
    let mut watching = watch_as(&fake, config, None).await;
    watching.until("synced").await;
    assert_eq!(
        fake.paged("endpointslices"),
        ["limit=500", "limit=125", "limit=31", "limit=62&continue=31"]
            .map(|page| format!("labelSelector=kubernetes.io%2Fservice-name&{page}"))
    );
}

#[tokio::test]
async fn what_was_refused_for_lack_of_room_is_listed_again_when_a_watch_ends_and_there_is_some() {
    let all = big(32);
    let fake = Fake::start(&[("endpointslices", Lists::Of(all.clone()))]).await;
    let mut watching = watch_as(&fake, at_once(), None).await;
    let reported = watching.until("synced").await;
    let is_there = |name: &str| reported.iter().any(|word| word == name);
    assert!(is_there("+Slice shop/web-30") && is_there("+Slice shop/web-31 (cut)"));
    drop(watching);

    fake.set(
        "endpointslices",
        Lists::Deleting(all.clone(), vec![all[0].clone()]),
    );
    let mut watching = watch_as(&fake, at_once(), None).await;
    watching.until("-Slice shop/web-00").await;
    fake.set("endpointslices", Lists::Of(all[1..].to_vec()));
    // Once before, once at the second start, and then because of the room.
    asked(&fake, "endpointslices", 3).await;
    watching.until("+Slice shop/web-31").await;
}
