//! What can't be had gets a reason that names file, key, value and remedy, everywhere the same; all
//! other Services go on being served; and mending it heals it.

use std::net::{SocketAddr, TcpListener};

use landfall_model::reason::{Code, Severity};
use landfall_model::status::ConditionType;
use landfall_model::view::InstanceView;
use serde_json::Value;

use crate::backend::Backend;
use crate::client;
use crate::lab::Lab;
use crate::manifest::{line_of, svc};
use crate::view::{at, condition, find, met};
use crate::witness::{Scene, origin};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_source_range_is_refused_by_field_value_and_line_and_heals() {
    let scene = Scene::set().await;
    let text = scene
        .web()
        .spec("loadBalancerSourceRanges:\n  - 127.0.0.0/8\n  - 10.0.0.0/33")
        .yaml();
    scene.lab.write("web.yaml", &text);
    let reason = scene.reported(Code::InvalidSourceRange).await;
    assert_eq!(reason.severity, Severity::Error);
    assert_eq!(
        reason.field.as_deref(),
        Some("spec.loadBalancerSourceRanges[1]")
    );
    assert_eq!(reason.value.as_deref(), Some("10.0.0.0/33"));
    let line = line_of(&text, "10.0.0.0/33");
    assert_eq!(reason.origin, Some(origin(&scene.lab, "web.yaml", line)));
    scene.checked(&reason).await;
    let web = scene.lab.service("default/web").await;
    for kind in ConditionType::ALL {
        assert_eq!(condition(&web, kind), (false, Code::InvalidSourceRange));
    }
    scene
        .lab
        .write("web.yaml", &text.replace("10.0.0.0/33", "10.0.0.0/24"));
    scene.healed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_services_that_ask_for_one_address_the_first_keeps_it() {
    let scene = Scene::set().await;
    let address = scene.lab.ranges.pool(77).to_string();
    let first = svc("first").tcp(8080).members(&[scene.backend.address]);
    let first = first.option("addresses", &address).yaml();
    scene.lab.write("first.yaml", &first);
    scene.lab.ready("default/first").await;
    let text = scene.web().option("addresses", &address).yaml();
    scene.lab.write("web.yaml", &text);

    let reason = scene.reported(Code::AddressInUse).await;
    assert_eq!(reason.severity, Severity::Error);
    assert_eq!(
        reason.field.as_deref(),
        Some("metadata.annotations[landfall.dev/addresses]")
    );
    assert_eq!(reason.value.as_deref(), Some(address.as_str()));
    assert_eq!(
        reason.message,
        format!("{address} is held by default/first")
    );
    let line = line_of(&text, "landfall.dev/addresses");
    assert_eq!(reason.origin, Some(origin(&scene.lab, "web.yaml", line)));
    scene.checked(&reason).await;
    let first = scene.lab.ready("default/first").await;
    assert_eq!(first.reasons, []);
    assert_eq!(client::member(at(&first, 8080)).await.unwrap(), "pod");

    // The first one goes, and the second one gets what it asked for.
    scene.lab.remove("first.yaml");
    let target = scene.healed().await;
    assert_eq!(target.ip().to_string(), address);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_that_another_process_has_is_reported_and_taken_once_it_is_free() {
    let scene = Scene::set().await;
    // The next free address is the one after the witness's.
    let address = scene.lab.ranges.pool(50);
    let other = TcpListener::bind((address, 8080)).unwrap();
    let text = svc("web")
        .port("taken", "TCP", 8080)
        .port("free", "TCP", 8081)
        .members(&[scene.backend.address])
        .option("addresses", &address.to_string())
        .yaml();
    scene.lab.write("web.yaml", &text);

    let reason = scene.reported(Code::PortInUse).await;
    assert_eq!(
        reason.message,
        format!("{address}:8080/TCP is in use by another process")
    );
    assert!(reason.remedy.contains("ss -ltnup"), "{reason}");
    let web = scene.lab.service("default/web").await;
    assert_eq!(
        condition(&web, ConditionType::Accepted),
        (true, Code::Accepted)
    );
    assert_eq!(
        condition(&web, ConditionType::Addressed),
        (true, Code::Assigned)
    );
    assert_eq!(
        condition(&web, ConditionType::Programmed),
        (false, Code::PortInUse)
    );
    // The other port of the Service does not suffer.
    assert_eq!(client::member((address, 8081).into()).await.unwrap(), "pod");
    assert_eq!(
        web.listeners
            .iter()
            .filter(|it| it.problem.is_some())
            .count(),
        1
    );

    drop(other);
    scene.healed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_that_is_full_is_reported_and_serves_a_waiting_service_when_it_is_not() {
    let lab = Lab::new();
    let range = format!("{}-{}", lab.ranges.pool(10), lab.ranges.pool(11));
    let scene = Scene::of(lab.options(&["--pool", &range])).await;
    let other = svc("other")
        .tcp(8080)
        .members(&[scene.backend.address])
        .yaml();
    scene.lab.write("other.yaml", &other);
    scene.lab.ready("default/other").await;
    scene.lab.write("web.yaml", &scene.web().yaml());

    let reason = scene.reported(Code::PoolExhausted).await;
    assert_eq!(reason.severity, Severity::Error);
    assert!(reason.message.contains("default"), "{reason}");
    assert!(reason.remedy.contains("add"), "{reason}");
    let web = scene.lab.service("default/web").await;
    assert_eq!(
        condition(&web, ConditionType::Accepted),
        (true, Code::Accepted)
    );
    assert_eq!(
        condition(&web, ConditionType::Addressed),
        (false, Code::PoolExhausted)
    );
    let ended = scene.check().await;
    assert_eq!(ended.code(), Some(1));
    assert!(
        ended.stdout.contains("error PoolExhausted: "),
        "{}",
        ended.stdout
    );

    scene.lab.remove("other.yaml");
    let view = scene.lab.ready("default/web").await;
    assert_eq!(at(&view, 8080).ip(), scene.lab.ranges.pool(11));
    assert_eq!(client::member(at(&view, 8080)).await.unwrap(), "pod");
    scene.witness_serves().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_annotation_leaves_the_previous_version_serving_and_members_follow() {
    let scene = Scene::set().await;
    let second = Backend::lines("second", scene.lab.ranges.backend(2, 3001)).await;
    let text = svc("web")
        .port("line", "TCP", 8080)
        .option("drain", "30s")
        .yaml();
    let slice = |pods: &[(&str, SocketAddr)]| crate::manifest::slice("web", "line", "TCP", pods);
    scene.lab.write("web.yaml", &text);
    scene
        .lab
        .write("slice.yaml", &slice(&[("pod", scene.backend.address)]));
    let target = at(&scene.lab.ready("default/web").await, 8080);

    let bad = text.replace("\"30s\"", "\"soon\"").replace("8080", "8081");
    scene.lab.write("web.yaml", &bad);
    let reason = scene.reported(Code::InvalidAnnotation).await;
    assert_eq!(
        reason.field.as_deref(),
        Some("metadata.annotations[landfall.dev/drain]")
    );
    assert_eq!(reason.value.as_deref(), Some("soon"));
    let line = line_of(&bad, "landfall.dev/drain");
    assert_eq!(reason.origin, Some(origin(&scene.lab, "web.yaml", line)));
    scene.checked(&reason).await;
    let web = scene.lab.service("default/web").await;
    assert_eq!(
        condition(&web, ConditionType::Accepted),
        (false, Code::InvalidAnnotation)
    );
    assert_eq!(
        condition(&web, ConditionType::Programmed),
        (true, Code::Ready)
    );
    assert!(
        web.reasons
            .iter()
            .any(|it| it.code == Code::ServingPreviousVersion)
    );
    assert_eq!(client::member(target).await.unwrap(), "pod");

    // Members are today's, although the newest options are invalid.
    scene
        .lab
        .write("slice.yaml", &slice(&[("second", second.address)]));
    scene
        .lab
        .until("default/web", "has its new member", |service| {
            let members = service.listeners.iter().flat_map(|it| &it.members);
            members.into_iter().any(|it| it.address == second.address)
        })
        .await;
    assert_eq!(client::member(target).await.unwrap(), "second");

    scene
        .lab
        .write("slice.yaml", &slice(&[("pod", scene.backend.address)]));
    scene.lab.write("web.yaml", &text);
    assert_eq!(scene.healed().await, target);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_annotation_is_answered_with_the_one_that_was_meant() {
    let scene = Scene::set().await;
    let text = scene.web().option("algoritm", "SOURCE_IP").yaml();
    scene.lab.write("web.yaml", &text);
    let reason = scene.reported(Code::UnknownAnnotation).await;
    assert_eq!(
        reason.field.as_deref(),
        Some("metadata.annotations[landfall.dev/algoritm]")
    );
    assert_eq!(reason.value.as_deref(), Some("SOURCE_IP"));
    assert!(
        reason
            .remedy
            .contains("did you mean landfall.dev/algorithm"),
        "{reason}"
    );
    let line = line_of(&text, "algoritm");
    assert_eq!(reason.origin, Some(origin(&scene.lab, "web.yaml", line)));
    scene.checked(&reason).await;
    scene
        .lab
        .write("web.yaml", &text.replace("algoritm", "algorithm"));
    scene.healed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_sctp_port_is_refused_with_a_way_out() {
    let scene = Scene::set().await;
    let text = svc("web")
        .port("main", "TCP", 8080)
        .port("signal", "SCTP", 8090)
        .members(&[scene.backend.address])
        .yaml();
    scene.lab.write("web.yaml", &text);
    let reason = scene.reported(Code::ProtocolNotSupported).await;
    assert_eq!(reason.field.as_deref(), Some("spec.ports[1].protocol"));
    assert_eq!(reason.value.as_deref(), Some("SCTP"));
    let line = line_of(&text, "SCTP");
    assert_eq!(reason.origin, Some(origin(&scene.lab, "web.yaml", line)));
    scene.checked(&reason).await;
    scene.lab.write("web.yaml", &text.replace("SCTP", "UDP"));
    scene.healed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traffic_for_members_of_one_node_alone_is_not_to_be_had_and_the_service_says_so() {
    let scene = Scene::set().await;
    let text = scene.web().spec("externalTrafficPolicy: Local").yaml();
    scene.lab.write("web.yaml", &text);
    let reason = scene.reported(Code::OptionNotSupported).await;
    assert_eq!(reason.severity, Severity::Warning);
    let field = reason.field.as_deref();
    assert_eq!(field, Some("spec.externalTrafficPolicy"));
    let line = line_of(&text, "externalTrafficPolicy");
    assert_eq!(reason.origin, Some(origin(&scene.lab, "web.yaml", line)));
    // It is served all the same.
    let web = scene.lab.ready("default/web").await;
    assert_eq!(client::member(at(&web, 8080)).await.unwrap(), "pod");
    let accepted = web.status.condition(ConditionType::Accepted).unwrap();
    assert_eq!(accepted.reason, Code::OptionNotSupported);
    assert_eq!(accepted.message, reason.to_string());
    let text = text.replace(
        "externalTrafficPolicy: Local",
        "externalTrafficPolicy: Cluster",
    );
    scene.lab.write("web.yaml", &text);
    scene.healed().await;
    let web = scene.lab.service("default/web").await;
    let accepted = condition(&web, ConditionType::Accepted);
    assert_eq!(accepted, (true, Code::Accepted));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_certificate_is_asked_for_by_name() {
    let scene = Scene::set().await;
    let text = scene
        .web()
        .option("mode", "tls")
        .option("tls-secret", "web-tls")
        .yaml();
    scene.lab.write("web.yaml", &text);
    let reason = scene.reported(Code::CertificateNotFound).await;
    assert_eq!(
        reason.field.as_deref(),
        Some("metadata.annotations[landfall.dev/tls-secret]")
    );
    assert_eq!(reason.value.as_deref(), Some("web-tls"));
    assert_eq!(reason.message, "there is no Secret default/web-tls");
    let line = line_of(&text, "tls-secret");
    assert_eq!(reason.origin, Some(origin(&scene.lab, "web.yaml", line)));
    scene.checked(&reason).await;
    scene.lab.write("web.yaml", &scene.web().yaml());
    scene.healed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_class_that_no_provider_serves_is_reported_and_not_touched() {
    let scene = Scene::set().await;
    let text = scene
        .web()
        .spec("loadBalancerClass: landfall.dev/locale")
        .yaml();
    scene.lab.write("web.yaml", &text);
    let reported = |view: &InstanceView| {
        let of_service = find(view, "default/web").map(|it| it.reasons.clone());
        let mut all = view.problems.iter().chain(of_service.iter().flatten());
        all.find(|reason| reason.code == Code::UnknownClass)
            .cloned()
    };
    let reason = scene.lab.wait("the class is reported", reported).await;
    assert_eq!(reason.field.as_deref(), Some("spec.loadBalancerClass"));
    assert_eq!(reason.value.as_deref(), Some("landfall.dev/locale"));
    assert!(reason.remedy.contains("landfall.dev/local"), "{reason}");
    let line = line_of(&text, "loadBalancerClass");
    assert_eq!(reason.origin, Some(origin(&scene.lab, "web.yaml", line)));
    let ended = scene.check().await;
    assert_eq!(ended.code(), Some(1), "{}", ended.stdout);
    assert!(
        ended.stdout.contains(&reason.to_string()),
        "{}",
        ended.stdout
    );
    scene.witness_serves().await;

    // A class of another controller is ignored.
    let foreign = text.replace("landfall.dev/locale", "example.org/other");
    scene.lab.write("web.yaml", &foreign);
    scene.lab.gone("default/web").await;
    let listed = scene.lab.landfall(&["get", "services"], &[]).await.good();
    assert!(!listed.contains("web"), "{listed}");

    scene
        .lab
        .write("web.yaml", &text.replace("locale", "local"));
    scene.healed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reasons_are_counted_in_the_metrics_by_their_codes() {
    let scene = Scene::set().await;
    let text = scene.web().option("algoritm", "SOURCE_IP").yaml();
    scene.lab.write("web.yaml", &text);
    scene.reported(Code::UnknownAnnotation).await;
    let metrics = scene.lab.text("/metrics").await;
    let lines: Vec<&str> = metrics
        .lines()
        .filter(|line| line.contains("UnknownAnnotation"))
        .collect();
    assert_eq!(lines.len(), 1, "{metrics}");
    assert!(lines[0].ends_with(" 1"), "{lines:?}");
    let listed = scene.lab.json("/api/v1/services").await;
    let items = listed["items"].as_array().unwrap();
    let web: &Value = items
        .iter()
        .find(|it| it["metadata"]["name"] == "web")
        .unwrap();
    let accepted = &web["status"]["conditions"][0];
    assert_eq!(accepted["type"], "landfall.dev/Accepted");
    assert_eq!(accepted["status"], "False");
    assert_eq!(accepted["reason"], "UnknownAnnotation");
    let web = scene.lab.service("default/web").await;
    assert!(!met(&web, ConditionType::Accepted));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_this_machine_does_not_have_is_reported_with_the_command_that_adds_it() {
    // A range for documentation: no machine has it.
    let lab = Lab::new().also(&["--pool", "192.0.2.64/30"]);
    let scene = Scene::of(lab).await;
    let text = scene.web().option("addresses", "192.0.2.65").yaml();
    scene.lab.write("web.yaml", &text);
    let reason = scene.reported(Code::AddressNotLocal).await;
    assert!(reason.message.contains("192.0.2.65:8080/TCP"), "{reason}");
    assert!(reason.remedy.contains("ip address add"), "{reason}");
    let web = scene.lab.service("default/web").await;
    let programmed = condition(&web, ConditionType::Programmed);
    assert_eq!(programmed, (false, Code::AddressNotLocal));
    let here = scene.lab.ranges.pool(60).to_string();
    let text = scene.web().option("addresses", &here).yaml();
    scene.lab.write("web.yaml", &text);
    assert_eq!(scene.healed().await.ip().to_string(), here);
}
