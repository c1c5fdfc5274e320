//! Annotations with wrong values, on a Service that serves: a reason names each, and what serves is
//! left as it is.

use landfall_model::rows::ServiceRow;
use landfall_testkit::build::number;
use landfall_testkit::exoscale::Sim;

use crate::rig::{Rig, key, web};

const NOTHING: Vec<String> = Vec::new();
const UNKNOWN: &str = "11111111-1111-4111-8111-111111111111";

/// Everything that is said of the Service `web`.
fn said(rig: &Rig) -> String {
    let service = rig.cluster.service("web").unwrap();
    let conditions = service.status.conditions.iter();
    let texts = conditions.map(|it| format!("{}: {}", it.reason, it.message));
    texts.collect::<Vec<_>>().join("\n")
}

fn set<'a>(values: &'a [(&'a str, &'a str)]) -> impl FnOnce(&mut ServiceRow) + 'a {
    move |row| {
        for (name, value) in values {
            row.annotations.insert(key(name), (*value).to_owned());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_annotation_with_a_wrong_value_is_named_and_what_serves_is_untouched() {
    let long = "x".repeat(256);
    let long = long.as_str();
    let cases: &[&[(&str, &str)]] = &[
        &[("name", "")],
        &[("name", long)],
        &[("description", long)],
        &[("service-name", "")],
        &[("service-name", long)],
        &[("service-description", long)],
        &[("service-instancepool-id", "abc")],
        &[("service-instancepool-id", UNKNOWN)],
        &[("sks-cluster-name", "none")],
        &[("service-sks-nodepool-name", "none")],
        &[("service-strategy", "")],
        &[("service-strategy", "least-conn")],
        &[("service-healthcheck-mode", "icmp")],
        &[("service-healthcheck-port", "http")],
        &[("service-healthcheck-port", "70000x")],
        &[
            ("service-healthcheck-uri", long),
            ("service-healthcheck-mode", "http"),
        ],
        &[("service-healthcheck-interval", "10")],
        &[("service-healthcheck-interval", "1s")],
        &[("service-healthcheck-interval", "301s")],
        &[("service-healthcheck-timeout", "1s")],
        &[("service-healthcheck-timeout", "61s")],
        &[("service-healthcheck-timeout", "11s")],
        &[("service-healthcheck-retries", "21")],
        &[("service-healthcheck-retries", "many")],
        &[
            ("service-healthcheck-tls-sni", long),
            ("service-healthcheck-mode", "https"),
        ],
    ];
    let mut problems = Vec::new();
    for case in cases {
        let mut rig = Rig::new();
        rig.apply(web()).await;
        let before = (rig.nlb(), rig.published("web"));
        rig.forget();
        rig.edit("web", set(case)).await;
        rig.restart().await;
        let (name, value) = case[0];
        let words = format!("{} of {value}", name.rsplit('-').next().unwrap());
        let words = words.replace("11s", "11 s");
        if !said(&rig).contains(&key(name)) && !said(&rig).contains(&words) {
            problems.push(format!("{case:?} is not named: {}", said(&rig)));
        }
        let service = |nlb: &serde_json::Value| {
            let service = &nlb["services"][0];
            (service["id"].clone(), service["target-port"].clone())
        };
        if (service(&rig.nlb()), rig.published("web")) != (service(&before.0), before.1) {
            problems.push(format!("{case:?} changes what serves: {:#}", rig.nlb()));
        }
        if case.len() == 1 && rig.writes() != NOTHING {
            problems.push(format!("{name} {value}: {:?}", rig.writes()));
        }
        rig.edit("web", |row| row.ports[0].node_port = Some(number(31_000)))
            .await;
        if rig.service(80)["target-port"] != 31_000 {
            problems.push(format!("{case:?}: the NodePort does not follow"));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn a_wrong_id_on_a_service_that_has_a_load_balancer_is_named_and_corrected() {
    for (id, reason) in [
        ("abc", "SyncLoadBalancerFailed"),
        (UNKNOWN, "CloudObjectNotFound"),
    ] {
        let event = format!("web {reason}");
        let mut rig = Rig::new();
        rig.apply(web()).await;
        let before = (rig.nlb(), rig.published("web"));
        rig.forget();
        rig.cluster.forget_events();
        rig.edit("web", set(&[("id", id)])).await;
        assert_eq!(rig.cluster.events(), [event.as_str()], "{id}");
        rig.restart().await;
        assert_eq!(rig.cluster.events(), [event.as_str()], "{id}");
        assert_eq!((rig.nlb(), rig.published("web")), before);
        assert_eq!(rig.writes(), NOTHING);
        let service = rig.cluster.service("web").unwrap();
        let written = service.status.marks[key("id").as_str()].clone();
        assert_eq!(written, before.0["id"].as_str().unwrap());
        rig.edit("web", |row| row.ports[0].node_port = Some(number(31_000)))
            .await;
        assert_eq!(rig.service(80)["target-port"], 31_000);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wrong_id_on_a_new_service_is_named() {
    for values in [
        &[("id", "abc")][..],
        &[("id", "abc"), ("external", "true")],
        &[("id", UNKNOWN), ("external", "true")],
    ] {
        let mut rig = Rig::new();
        let service = values
            .iter()
            .fold(web(), |it, (name, value)| it.annotated(&key(name), value));
        rig.apply(service).await;
        assert!(
            said(&rig).contains(&key("id")),
            "{values:?}: {}",
            said(&rig)
        );
        assert_eq!(rig.writes(), NOTHING);
        assert_eq!(rig.annotation("id").as_deref(), Some(values[0].1));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_of_another_zone_does_not_exist_in_this_one() {
    let elsewhere = Sim::new();
    // The ids of another zone are none of those here.
    let mut rig = Rig::new();
    for _ in 0..40 {
        elsewhere.add_pool("far");
    }
    let pool = elsewhere.add_pool("far");
    let nlb = elsewhere.add_load_balancer("far");
    rig.apply(web().annotated(&key("service-instancepool-id"), &pool))
        .await;
    assert!(
        said(&rig).contains("no such instance pool"),
        "{}",
        said(&rig)
    );
    assert_eq!(rig.writes(), NOTHING);
    let mut rig = Rig::new();
    let service = web().annotated(&key("external"), "true");
    rig.apply(service.annotated(&key("id"), &nlb)).await;
    assert!(
        said(&rig).contains("no such load balancer"),
        "{}",
        said(&rig)
    );
    assert_eq!(rig.writes(), NOTHING);
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_is_used_up_is_named_and_keeps_what_there_is() {
    let mut rig = Rig::new();
    rig.apply(web()).await;
    let before = rig.nlb();
    rig.sim
        .configure(|settings| settings.max_load_balancers = 1);
    rig.apply(landfall_testkit::svc("more").port(80).node_port(30_080))
        .await;
    let kind = landfall_model::status::ConditionType::Programmed;
    let more = rig.condition("more", kind);
    assert!(
        !more.status && more.message.contains("quota of 1"),
        "{}",
        more.message
    );
    assert_eq!(rig.nlb(), before);
    rig.edit("web", |row| row.ports[0].node_port = Some(number(31_000)))
        .await;
    assert_eq!(rig.service(80)["target-port"], 31_000);
    rig.sim
        .configure(|settings| settings.max_load_balancers = 2);
    rig.wait(std::time::Duration::from_secs(600)).await;
    assert!(rig.condition("more", kind).status);
}
