//! What each route answers, and what it refuses.

use std::time::Duration;

use landfall_model::view::InstanceView;
use serde_json::json;

use crate::harness::Served;
use crate::stage::scenes;

#[tokio::test]
async fn the_instance_is_returned_as_it_is() {
    let served = Served::new(scenes::empty()).await;
    let answer = served.get("/api/v1/instance").await;
    let view: InstanceView = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(
        (answer.status, view),
        (
            200,
            InstanceView::clone(&landfall_web::Instance::view(&*served.stage))
        )
    );
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
}

#[tokio::test]
async fn services_are_returned_as_a_kubernetes_list() {
    let served = Served::new(scenes::healthy()).await;
    let list = served.get("/api/v1/services").await.json();
    assert_eq!(
        (&list["apiVersion"], &list["kind"]),
        (&json!("v1"), &json!("List"))
    );
    assert_eq!(list["items"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn one_service_is_returned_by_its_name() {
    let served = Served::new(scenes::shop()).await;
    let service = served.get("/api/v1/services/shop/dns").await.json();
    assert_eq!(service["key"], "shop/dns");
    assert_eq!(
        service["listeners"][0]["key"],
        json!({"protocol": "UDP", "port": 53})
    );
}

#[tokio::test]
async fn probes_and_questions_about_one_service_do_not_draw_all_of_them() {
    let served = Served::new(scenes::shop()).await;
    for (path, status) in [
        ("/readyz", 200),
        ("/healthz", 200),
        ("/api/v1/services/shop/dns", 200),
        ("/api/v1/services/shop/nothing", 404),
    ] {
        assert_eq!(served.get(path).await.status, status, "{path}");
    }
    assert_eq!(served.stage.views(), 0);
    served.get("/api/v1/instance").await;
    assert_eq!(served.stage.views(), 1);
}

#[tokio::test]
async fn a_service_that_is_not_there_is_a_json_error() {
    let served = Served::new(scenes::shop()).await;
    for path in [
        "/api/v1/services/shop/nothing",
        "/api/v1/services/%2e%2e/%2f",
        "/api/v2",
        "/assets/Cargo.toml",
    ] {
        assert_eq!(
            served.get(path).await.refusal(),
            (404, "NotFound".into()),
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_name_that_is_no_text_is_refused() {
    let served = Served::new(scenes::shop()).await;
    assert_eq!(served.get("/api/v1/services/shop/%ff").await.status, 400);
}

#[tokio::test]
async fn the_index_names_every_route_and_every_route_is_there() {
    let served = Served::new(scenes::empty()).await;
    for index in ["/api/v1", "/api/v1/"] {
        let entries = served.get(index).await.json();
        for entry in entries.as_array().unwrap() {
            let path = entry["path"].as_str().unwrap().replace(['{', '}'], "");
            let answer = served.ask("OPTIONS", &path, &[], "").await;
            assert_eq!(answer.status, 405, "{path}");
            let method = entry["method"].as_str().unwrap();
            assert!(
                answer.header("allow").unwrap().contains(method),
                "{path}: {answer:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_plan_gets_the_manifests_and_the_question() {
    let served = Served::new(scenes::empty()).await;
    for (query, prune) in [("", false), ("?prune=true", true), ("?prune=false", false)] {
        let path = format!("/api/v1/plan{query}");
        let answer = served.ask("POST", &path, &[], "kind: Service").await;
        assert_eq!(
            (answer.status, answer.json()),
            (200, json!({"bytes": 13, "prune": prune}))
        );
    }
}

#[tokio::test]
async fn a_plan_that_can_not_be_made_says_why() {
    let served = Served::new(scenes::empty()).await;
    let stuck = served.ask("POST", "/api/v1/plan", &[], "stuck").await;
    assert_eq!(stuck.refusal(), (503, "Unavailable".into()));
    let query = served
        .ask("POST", "/api/v1/plan?prune=perhaps", &[], "x")
        .await;
    assert_eq!(query.refusal(), (400, "InvalidQuery".into()));
}

#[tokio::test]
async fn a_wrong_method_is_refused_and_the_right_one_named() {
    let served = Served::new(scenes::empty()).await;
    for (method, path, allow) in [
        ("POST", "/", "GET,HEAD"),
        ("DELETE", "/api/v1/services/shop/web", "GET,HEAD"),
        ("PUT", "/metrics", "GET,HEAD"),
        ("GET", "/api/v1/plan", "POST"),
    ] {
        let answer = served.ask(method, path, &[], "").await;
        assert_eq!(
            answer.refusal(),
            (405, "MethodNotAllowed".into()),
            "{method} {path}"
        );
        assert_eq!(answer.header("allow"), Some(allow), "{method} {path}");
    }
}

#[tokio::test]
async fn head_answers_as_get_without_the_body() {
    let served = Served::new(scenes::empty()).await;
    for path in [
        "/",
        "/healthz",
        "/metrics",
        "/api/v1/services",
        "/assets/app.js",
        "/api/v1/events",
    ] {
        let answer = served.ask("HEAD", path, &[], "").await;
        assert_eq!((answer.status, answer.body.as_str()), (200, ""), "{path}");
    }
}

#[tokio::test]
async fn health_follows_the_control_loop() {
    let served = Served::new(scenes::starting()).await;
    let healthy = served.get("/healthz").await;
    assert_eq!((healthy.status, healthy.body.as_str()), (200, "ok\n"));
    served.stage.set_heartbeat_age(Duration::from_secs(42));
    let stuck = served.get("/healthz").await;
    assert_eq!(
        (stuck.status, stuck.body.as_str()),
        (
            503,
            "the control loop has not run for 42 s; more than 30 s means that it is stuck\n"
        )
    );
}

#[tokio::test]
async fn readiness_says_what_is_waited_for() {
    let served = Served::new(scenes::starting()).await;
    let starting = served.get("/readyz").await;
    assert_eq!(
        (starting.status, starting.body.as_str()),
        (
            503,
            "not ready: the first read of examples/shop; 2 Services to be reconciled\n"
        )
    );
    served.stage.play(scenes::empty());
    let ready = served.get("/readyz").await;
    assert_eq!((ready.status, ready.body.as_str()), (200, "ready\n"));
}

#[tokio::test]
async fn every_answer_carries_the_headers_that_protect_the_reader() {
    let served = Served::new(scenes::empty()).await;
    for path in [
        "/",
        "/assets/style.css",
        "/api/v1/instance",
        "/nowhere",
        "/metrics",
    ] {
        let answer = served.get(path).await;
        let policy = answer.header("content-security-policy").unwrap();
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self'"),
            "{path}"
        );
        assert!(!policy.contains("unsafe"), "{path}");
        assert_eq!(
            answer.header("x-content-type-options"),
            Some("nosniff"),
            "{path}"
        );
        assert_eq!(answer.header("x-frame-options"), Some("DENY"), "{path}");
        assert_eq!(
            answer.header("referrer-policy"),
            Some("no-referrer"),
            "{path}"
        );
        assert_eq!(
            answer.header("cross-origin-resource-policy"),
            Some("same-origin"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn foreign_host_names_are_refused_everywhere() {
    let served = Served::new(scenes::empty()).await;
    for path in [
        "/",
        "/healthz",
        "/metrics",
        "/api/v1/instance",
        "/assets/app.js",
        "/nowhere",
    ] {
        for host in [
            "evil.example",
            "127.0.0.1.evil.example:9640",
            "localhost.evil.example",
        ] {
            let answer = served
                .ask("GET", path, &[&format!("Host: {host}")], "")
                .await;
            assert_eq!(
                answer.refusal(),
                (403, "ForeignHost".into()),
                "{path} {host}"
            );
        }
    }
    let target = format!(
        "GET http://evil.example/healthz HTTP/1.1\r\nConnection: close\r\nHost: {}\r\n\r\n",
        served.address
    );
    assert_eq!(
        served.say(&target).await.refusal(),
        (403, "ForeignHost".into())
    );
}

#[tokio::test]
async fn own_names_and_addresses_are_answered() {
    let served = Served::new(scenes::empty()).await;
    for host in [
        "localhost:9640",
        "127.0.0.1",
        "[::1]:9640",
        "192.0.2.7",
        "ADMIN.example:80",
    ] {
        let answer = served
            .ask("GET", "/healthz", &[&format!("Host: {host}")], "")
            .await;
        assert_eq!(answer.status, 200, "{host}");
    }
}

#[tokio::test]
async fn requests_need_exactly_one_host() {
    let served = Served::new(scenes::empty()).await;
    let none = served
        .say("GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n")
        .await;
    assert_eq!(none.refusal(), (400, "InvalidHost".into()));
    let two = served
        .ask(
            "GET",
            "/healthz",
            &["Host: localhost", "Host: evil.example"],
            "",
        )
        .await;
    assert_eq!(two.refusal(), (400, "InvalidHost".into()));
    let old = served.say("GET /healthz HTTP/1.0\r\n\r\n").await;
    assert_eq!(old.status, 200);
}

#[tokio::test]
async fn pages_of_other_sites_get_nothing_but_may_link_here() {
    let served = Served::new(scenes::empty()).await;
    for site in ["cross-site", "same-site"] {
        let site = format!("Sec-Fetch-Site: {site}");
        let embedded = served
            .ask(
                "GET",
                "/api/v1/instance",
                &[&site, "Sec-Fetch-Mode: no-cors"],
                "",
            )
            .await;
        assert_eq!(embedded.refusal(), (403, "CrossSite".into()));
        let form = served
            .ask(
                "POST",
                "/api/v1/plan",
                &[&site, "Sec-Fetch-Mode: navigate"],
                "x",
            )
            .await;
        assert_eq!(form.refusal(), (403, "CrossSite".into()));
        let link = served
            .ask("GET", "/", &[&site, "Sec-Fetch-Mode: navigate"], "")
            .await;
        assert_eq!(link.status, 200);
    }
    let own = served
        .ask(
            "POST",
            "/api/v1/plan",
            &["Sec-Fetch-Site: same-origin"],
            "x",
        )
        .await;
    assert_eq!(own.status, 200);
}
