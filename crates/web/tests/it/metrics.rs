//! Metrics: the text, the table and the reference page agree.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::Path;

use landfall_web::metrics::{self, Format, Kind};

use crate::harness::Served;
use crate::stage::scenes;

/// What Prometheus prefers.
const OPEN_METRICS: &str = "Accept: application/openmetrics-text; version=1.0.0, text/plain; q=0.5";

/// Names of the samples in a scrape.
fn samples(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split(['{', ' ']).next().map(str::to_owned))
        .collect()
}

#[tokio::test]
async fn every_metric_of_the_table_is_written_and_no_other() {
    let served = Served::new(scenes::broken()).await;
    let answer = served.ask("GET", "/metrics", &[OPEN_METRICS], "").await;
    assert_eq!(
        answer.header("content-type"),
        Some(Format::OpenMetrics.content_type())
    );
    let expected: BTreeSet<_> = metrics::ALL
        .iter()
        .flat_map(|metric| {
            let name = metric.sample_name();
            match metric.kind {
                Kind::Histogram => ["_bucket", "_sum", "_count"]
                    .map(|end| name.clone() + end)
                    .to_vec(),
                Kind::Counter | Kind::Gauge | Kind::Info => vec![name],
            }
        })
        .collect();
    assert_eq!(samples(&answer.body), expected);
    assert!(answer.body.ends_with("# EOF\n"));
}

#[tokio::test]
async fn the_numbers_are_those_of_the_view() {
    let served = Served::new(scenes::shop()).await;
    let text = served.get("/metrics").await.body;
    for line in [
        "landfall_ready 1",
        "landfall_services 4",
        r#"landfall_service_conditions{condition="Programmed",status="true"} 3"#,
        r#"landfall_service_conditions{condition="Addressed",status="false"} 1"#,
        r#"landfall_service_programmed{namespace="shop",service="mail"} 0"#,
        r#"landfall_reasons{code="AddressInUse",severity="error"} 1"#,
        r#"landfall_left_out_endpoints{code="EndpointIgnored"} 1"#,
        r#"landfall_listeners{protocol="TCP",mode="https"} 1"#,
        r#"landfall_listener_up{namespace="shop",service="web",listener="443/TCP"} 1"#,
        r#"landfall_listener_members{namespace="shop",service="web",listener="80/TCP",health="down"} 1"#,
        r#"landfall_listener_members{namespace="shop",service="web",listener="80/TCP",health="draining"} 0"#,
        r#"landfall_member_up{namespace="shop",service="dns",listener="53/UDP",member="10.244.2.41:5353"} 0"#,
        r#"landfall_pool_assigned_addresses{pool="edge",family="IPv4"} 7"#,
        r#"landfall_pool_available_addresses{pool="edge",family="IPv6"} 9223372036854775807"#,
        r#"metallb_allocator_ipv4_addresses_in_use_total{pool="edge"} 7"#,
        r#"metallb_allocator_addresses_total{pool="edge"} 9223372036854775807"#,
        r#"landfall_plan_steps_total{kind="listen"} 7"#,
        r#"landfall_reconciles_total{outcome="unchanged"} 44"#,
        r#"landfall_reconcile_duration_seconds_bucket{le="0.01"} 49"#,
        r#"landfall_reconcile_duration_seconds_bucket{le="+Inf"} 52"#,
        "landfall_reconcile_duration_seconds_count 52",
        r#"landfall_listener_responses_total{namespace="shop",service="web",listener="80/TCP",class="2xx"} 51"#,
        r#"landfall_listener_refused_total{namespace="shop",service="web",listener="80/TCP",reason="no_member"} 1"#,
        r#"landfall_listener_local_failures_total{namespace="shop",service="web",listener="80/TCP",cause="ports"} 2"#,
        r#"landfall_listener_broken_total{namespace="shop",service="web",listener="80/TCP",cause="client_reset"} 4"#,
        r#"landfall_listener_request_duration_seconds_bucket{le="0.01",namespace="shop",service="web",listener="80/TCP"} 49"#,
        r#"landfall_listener_request_duration_seconds_bucket{le="+Inf",namespace="shop",service="web",listener="80/TCP"} 52"#,
        r#"landfall_listener_request_duration_seconds_sum{namespace="shop",service="web",listener="80/TCP"} 0.75"#,
        "landfall_descriptors_used 310",
        "landfall_overloaded 0",
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "{line} is not in\n{text}"
        );
    }
}

#[tokio::test]
async fn tools_that_ask_for_no_format_get_the_text_format_of_prometheus() {
    let served = Served::new(scenes::shop()).await;
    let open = served.ask("GET", "/metrics", &[OPEN_METRICS], "").await;
    for headers in [&[][..], &["Accept: */*"], &["Accept: text/plain"]] {
        let answer = served.ask("GET", "/metrics", headers, "").await;
        let kind = answer.header("content-type");
        assert_eq!(kind, Some(Format::Text.content_type()), "{headers:?}");
        assert_eq!(samples(&answer.body), samples(&open.body));
        let types: BTreeSet<_> = answer
            .body
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
            .collect();
        for name in samples(&answer.body) {
            let family = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| name.strip_suffix(end))
                .filter(|family| types.contains(family));
            assert!(
                family.is_some() || types.contains(&*name),
                "{name} has no type"
            );
        }
        assert!(!answer.body.contains("# EOF") && !answer.body.contains("# UNIT"));
    }
}

#[tokio::test]
async fn a_scrape_without_members_has_everything_else() {
    let served = Served::new(scenes::shop()).await;
    let all = served.get("/metrics").await.body;
    let fewer = served.get("/metrics?members=false").await.body;
    let names = |text: &str| -> BTreeSet<String> {
        let mut names = samples(text);
        names.retain(|name| !name.starts_with("landfall_member_"));
        names
    };
    assert!(all.contains("member="), "{all}");
    assert!(!fewer.contains("member="), "{fewer}");
    assert_eq!(names(&fewer), names(&all));
    let wrong = served.get("/metrics?members=2").await;
    assert_eq!(wrong.status, 400);
    assert!(
        wrong.body.contains("members is either true or false"),
        "{}",
        wrong.body
    );
}

#[tokio::test]
async fn a_scrape_without_histograms_has_everything_else() {
    let served = Served::new(scenes::shop()).await;
    let all = served.get("/metrics").await.body;
    let fewer = served.get("/metrics?histograms=false").await.body;
    let names = |text: &str| -> BTreeSet<String> {
        let mut names = samples(text);
        let of_listener = |name: &str| name.starts_with("landfall_listener_");
        names.retain(|name| !(of_listener(name) && name.contains("_duration_seconds")));
        names
    };
    assert!(
        all.contains("landfall_listener_request_duration_seconds_bucket"),
        "{all}"
    );
    assert_eq!(samples(&fewer), names(&all));
}

#[tokio::test]
async fn a_scrape_is_compressed_for_clients_that_take_it() {
    let served = Served::new(scenes::many(500)).await;
    let plain = served.get("/metrics").await;
    assert_eq!(plain.header("content-encoding"), None);
    // Version 1.0 has no chunks: the body is what follows the head.
    let request = format!(
        "GET /metrics HTTP/1.0\r\nHost: {}\r\nAccept-Encoding: gzip\r\n\r\n",
        served.address
    );
    let answer = served.bytes(&request).await;
    let end = answer
        .windows(4)
        .position(|bytes| bytes == b"\r\n\r\n")
        .unwrap();
    let (head, packed) = answer.split_at(end + 4);
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    assert!(head.contains("content-encoding: gzip"), "{head}");
    assert!(
        packed.len() * 5 < plain.body.len(),
        "{} bytes",
        packed.len()
    );
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed)
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(samples(&text), samples(&plain.body));
}

#[tokio::test]
async fn series_vanish_with_their_object() {
    let served = Served::new(scenes::shop()).await;
    assert!(
        served
            .get("/metrics")
            .await
            .body
            .contains("service=\"web\"")
    );
    served.stage.play(scenes::empty());
    let text = served.get("/metrics").await.body;
    // What a speaker announces is not from the scene.
    let lines = text.lines();
    let lines = lines.filter(|line| !line.starts_with("metallb_speaker_announced"));
    let text: String = lines.collect::<Vec<_>>().join("\n");
    assert!(!text.contains("service="), "{text}");
    assert!(!text.contains("member="), "{text}");
}

#[tokio::test]
async fn no_series_is_written_twice_and_labels_can_not_break_out() {
    let mut scene = scenes::hostile();
    let twice = scene.services[1].listeners[0].members[0].clone();
    scene.services[1].listeners[0].members.push(twice);
    scene.services[0].key = landfall_model::ServiceKey::new("a\"} 1\nlandfall_ready 7", "b\\");
    let served = Served::new(scene).await;
    let text = served.get("/metrics").await.body;
    let mut seen = BTreeSet::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
        assert!(seen.insert(series), "{series} stands twice");
    }
    assert!(seen.contains("landfall_ready") && !text.contains("\nlandfall_ready 7"));
}

#[test]
fn names_follow_the_conventions_of_prometheus() {
    let mut names = BTreeSet::new();
    for metric in metrics::ALL {
        let name = metric.sample_name();
        // Some have the names that dashboards for MetalLB ask for.
        let of_metallb = ["allocator", "speaker", "bgp", "bfd"].map(|it| format!("metallb_{it}_"));
        let is_known = of_metallb.iter().any(|prefix| name.starts_with(prefix));
        assert!(name.starts_with("landfall_") || is_known, "{name}");
        assert!(
            name.chars()
                .all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '_'),
            "{name}"
        );
        assert!(metric.help.ends_with('.'), "{name}: {}", metric.help);
        assert!(names.insert(name.clone()), "{name} stands twice");
    }
}

/// Writes the page again with `LANDFALL_BLESS=1 cargo test -p landfall-web`.
#[test]
fn the_reference_page_is_what_the_table_says() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let page = metrics::reference();
    if std::env::var_os("LANDFALL_BLESS").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, &page).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        written == page,
        "docs/metrics.md is behind the table; run LANDFALL_BLESS=1 cargo test -p landfall-web \
        --test it metrics"
    );
}
