//! Calls: what is sent, lists in pages, timeout, quiet, and what is counted.

use std::time::Duration;

use landfall_openstack::client::{ApiVersion, CallKey, ErrorKind, NoAnswer, Tagged};
use landfall_openstack::objects::Id;
use serde_json::json;

use super::fake::{Fake, Reply, fault};

fn id(text: &str) -> Id {
    Id::new(text)
}

#[tokio::test]
async fn each_call_goes_to_its_place() {
    let fake = Fake::new(|seen, _| {
        let octavia = seen.path.starts_with("/octavia/v2.0/");
        let neutron = seen.path.starts_with("/neutron/v2.0/");
        let nothing = Reply::Full(202, vec![], String::new());
        (octavia || neutron).then_some(nothing)
    });
    let cloud = fake.cloud();
    cloud.delete_load_balancer(&id("a"), true).await.unwrap();
    cloud.delete_load_balancer(&id("a"), false).await.unwrap();
    cloud.failover(&id("a")).await.unwrap();
    cloud
        .set_members(&id("q"), &[json!({"address": "10.0.0.1"})], true)
        .await
        .unwrap();
    cloud.set_members(&id("q"), &[], false).await.unwrap();
    cloud.delete_member(&id("q"), &id("m")).await.unwrap();
    cloud.delete_monitor(&id("h")).await.unwrap();
    cloud
        .put_tags(Tagged::FloatingIp, &id("f"), &["x".to_owned()])
        .await
        .unwrap();
    cloud
        .put_tags(Tagged::SecurityGroup, &id("g"), &[])
        .await
        .unwrap();
    cloud.delete_rule(&id("r")).await.unwrap();
    cloud
        .update_port(&id("p"), &json!({}), Some(7))
        .await
        .unwrap_err();
    cloud
        .create_rules(&[json!({"direction": "ingress"})])
        .await
        .unwrap_err();
    cloud
        .networks(&[("router:external", "True")])
        .await
        .unwrap_err();
    cloud.security_groups(&[("name", "a b")]).await.unwrap_err();
    cloud.load_balancers_named("a&b").await.unwrap_err();
    cloud.listeners(Some(&id("a"))).await.unwrap_err();
    cloud.monitors(Some(&id("q"))).await.unwrap_err();
    cloud.monitors(None).await.unwrap_err();
    assert_eq!(
        fake.asked(),
        [
            "DELETE /octavia/v2.0/lbaas/loadbalancers/a?cascade=true",
            "DELETE /octavia/v2.0/lbaas/loadbalancers/a",
            "PUT /octavia/v2.0/lbaas/loadbalancers/a/failover",
            "PUT /octavia/v2.0/lbaas/pools/q/members?additive_only=true",
            "PUT /octavia/v2.0/lbaas/pools/q/members",
            "DELETE /octavia/v2.0/lbaas/pools/q/members/m",
            "DELETE /octavia/v2.0/lbaas/healthmonitors/h",
            "PUT /neutron/v2.0/floatingips/f/tags",
            "PUT /neutron/v2.0/security-groups/g/tags",
            "DELETE /neutron/v2.0/security-group-rules/r",
            "PUT /neutron/v2.0/ports/p",
            "POST /neutron/v2.0/security-group-rules",
            "GET /neutron/v2.0/networks?router%3Aexternal=True",
            "GET /neutron/v2.0/security-groups?name=a+b&project_id=p1",
            "GET /octavia/v2.0/lbaas/loadbalancers?name=a%26b&project_id=p1",
            "GET /octavia/v2.0/lbaas/listeners?loadbalancer_id=a",
            "GET /octavia/v2.0/lbaas/healthmonitors?pool_id=q",
            "GET /octavia/v2.0/lbaas/healthmonitors?project_id=p1",
        ]
    );
    let log = fake.log();
    let sent = |end: &str| {
        log.iter()
            .find(|seen| seen.path.ends_with(end))
            .unwrap()
            .clone()
    };
    assert_eq!(sent("true").body, json!(null));
    assert_eq!(
        sent("only=true").body,
        json!({"members": [{"address": "10.0.0.1"}]})
    );
    assert_eq!(sent("/members").body, json!({"members": []}));
    assert_eq!(sent("f/tags").body, json!({"tags": ["x"]}));
    assert_eq!(
        sent("ports/p").if_match.as_deref(),
        Some("revision_number=7")
    );
    let rules = json!({"security_group_rules": [{"direction": "ingress"}]});
    assert_eq!(sent("group-rules").body, rules);
}

#[tokio::test]
async fn what_is_not_there_is_none_and_is_well_deleted() {
    let fake = Fake::new(|_, _| None);
    let cloud = fake.cloud();
    assert_eq!(cloud.load_balancer(&id("a")).await.unwrap(), None);
    assert_eq!(cloud.statuses(&id("a")).await.unwrap(), None);
    assert_eq!(cloud.subnet(&id("s")).await.unwrap(), None);
    assert!(!cloud.secret_exists("s").await.unwrap());
    assert!(!cloud.container_exists("c").await.unwrap());
    cloud.delete_load_balancer(&id("a"), true).await.unwrap();
    cloud.delete_floating_ip(&id("f"), None).await.unwrap();
    assert_eq!(fake.asked()[3], "GET /barbican/v1/secrets/s");
    let error = cloud.update_pool(&id("q"), &json!({})).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound);
    assert_eq!(error.request, "PUT /octavia/v2.0/lbaas/pools/q");
}

#[tokio::test]
async fn a_proxys_page_does_not_make_an_object_gone() {
    let fake = Fake::new(|seen, _| {
        let page = "<html><h1>404 Not Found</h1></html>".to_owned();
        seen.path
            .contains("lbaas")
            .then(|| Reply::Full(404, vec![], page))
    });
    let cloud = fake.cloud();
    let error = cloud.load_balancer(&id("a")).await.unwrap_err();
    assert_eq!(
        (error.kind, error.message.as_str()),
        (ErrorKind::Unreadable, "404 Not Found")
    );
    cloud
        .delete_load_balancer(&id("a"), true)
        .await
        .unwrap_err();
}

#[tokio::test]
async fn what_is_no_id_is_never_sent() {
    let fake = Fake::new(|_, _| None);
    let cloud = fake.cloud();
    cloud.check().await.unwrap();
    for text in [
        "",
        ".",
        "..",
        "a/b",
        "a?cascade=true",
        "a b",
        "ä",
        "a#b",
        "%2e",
    ] {
        let error = cloud
            .delete_load_balancer(&id(text), true)
            .await
            .unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid, "{text:?}");
    }
    assert_eq!(fake.asked(), ["GET /octavia/"]);
}

#[tokio::test]
async fn a_list_is_read_to_its_last_page_with_its_filters() {
    let fake = Fake::new(|seen, _| {
        // As Octavia does: the link forgets the filters, and behind a proxy it has another scheme,
        // host and path.
        let (row, next) = match seen.path.split_once("pools?")?.1 {
            "loadbalancer_id=a" => (
                "1",
                Some("https://cloud/octavia/v2.0/lbaas/pools?limit=1&marker=1"),
            ),
            "limit=1&marker=1&loadbalancer_id=a" => (
                "2",
                Some(
                    "http://octavia_api:9876/v2.0/lbaas/pools?limit=1&loadbalancer_id=a&marker=2#x",
                ),
            ),
            "limit=1&loadbalancer_id=a&marker=2" => ("3", None),
            _ => return None,
        };
        let mut links = vec![json!({"rel": "previous", "href": "http://elsewhere/"})];
        links.extend(next.map(|next| json!({"rel": "next", "href": next})));
        Some(Reply::Json(
            200,
            json!({"pools": [{"id": row}], "pools_links": links}),
        ))
    });
    let pools = fake.cloud().pools(Some(&id("a"))).await.unwrap();
    let ids: Vec<_> = pools.iter().map(|pool| pool.id.as_str()).collect();
    assert_eq!(ids, ["1", "2", "3"]);
    assert!(
        fake.log()
            .iter()
            .all(|seen| seen.url.starts_with("http://cloud/"))
    );
}

#[tokio::test]
async fn pages_without_end_are_refused_and_the_token_never_goes_elsewhere() {
    for (href, why) in [
        (
            "http://evil/octavia/v2.0/lbaas/pools?marker=1",
            "the list has too many pages",
        ),
        (
            "http://cloud/octavia/v2.0/lbaas/pools",
            "the link to the next page is invalid",
        ),
        (
            "http://cloud/octavia/v2.0/lbaas/pools?marker=1",
            "the list has too many pages",
        ),
    ] {
        let fake = Fake::new(move |seen, _| {
            let links = json!([{"rel": "next", "href": href}]);
            let body = json!({"pools": [], "pools_links": links});
            seen.path
                .contains("pools")
                .then_some(Reply::Json(200, body))
        });
        let error = fake.cloud().pools(None).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unreadable);
        assert!(error.message.starts_with(why), "{error}");
        assert!(
            fake.log()
                .iter()
                .all(|seen| seen.url.starts_with("http://cloud/"))
        );
    }
}

#[tokio::test]
async fn a_good_answer_of_another_shape_is_unreadable() {
    for body in [
        "",
        "[]",
        "{}",
        "{\"pools\": {}}",
        "{\"pools\": [{\"id\": 4}]}",
        "<html>",
    ] {
        let fake = Fake::new(move |seen, _| {
            let body = body.to_owned();
            seen.path
                .contains("pools")
                .then(|| Reply::Full(200, vec![], body))
        });
        let error = fake.cloud().pools(None).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unreadable, "{body}");
    }
}

#[tokio::test]
async fn the_version_is_asked_for_once_but_a_failure_is_not_kept() {
    let fake = Fake::new(|seen, before| {
        (seen.path == "/octavia/" && before < 2).then(|| match before {
            0 => fault(500, "down"),
            _ => Reply::Json(200, json!({"versions": []})),
        })
    });
    let cloud = fake.cloud();
    assert_eq!(
        cloud.versions().await.unwrap_err().kind,
        ErrorKind::Unavailable
    );
    assert_eq!(
        cloud.versions().await.unwrap_err().kind,
        ErrorKind::Unreadable
    );
    for _ in 0..3 {
        assert_eq!(cloud.versions().await.unwrap(), ApiVersion::new(2, 27));
    }
    assert_eq!(fake.asked().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn the_version_is_asked_for_again_after_an_hour_and_holds_while_there_is_no_answer() {
    let fake = Fake::new(|seen, before| {
        (seen.path == "/octavia/").then(|| match before {
            0 => Reply::Json(200, json!({"versions": [{"id": "v2.20"}]})),
            1 => fault(500, "down"),
            _ => Reply::Json(200, json!({"versions": [{"id": "v2.27"}]})),
        })
    });
    let cloud = fake.cloud();
    for minor in [20, 20, 27] {
        for _ in 0..2 {
            assert_eq!(cloud.versions().await.unwrap(), ApiVersion::new(2, minor));
        }
        tokio::time::advance(Duration::from_secs(3601)).await;
    }
    let asked = fake.asked();
    let asked = asked.iter().filter(|it| *it == "GET /octavia/");
    assert_eq!(asked.count(), 3);
}

#[tokio::test]
async fn where_versions_can_not_be_read_a_version_is_taken_that_is_certainly_there() {
    for (zones, flavors, version) in [
        (200, 200, Some(ApiVersion::new(2, 14))),
        (403, 404, Some(ApiVersion::new(2, 14))),
        (404, 200, Some(ApiVersion::new(2, 6))),
        (404, 404, None),
    ] {
        let fake = Fake::new(move |seen, _| match seen.path.as_str() {
            "/octavia/" => Some(Reply::Full(404, vec![], "<html>No such page".to_owned())),
            "/octavia/v2.0/lbaas/availabilityzones" => Some(fault(zones, "no")),
            "/octavia/v2.0/lbaas/flavors" => Some(fault(flavors, "no")),
            _ => None,
        });
        let found = fake.cloud().versions().await;
        assert_eq!(found.as_ref().ok(), version.as_ref(), "{zones} {flavors}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_call_has_its_timeout() {
    let fake = Fake::new(|seen, before| {
        let keystone = seen.path.ends_with("tokens") && before > 0;
        let slow = Reply::Late(Duration::from_secs(500), Box::new(fault(404, "late")));
        (keystone || !seen.path.ends_with("tokens")).then_some(slow)
    });
    let cloud = fake.cloud_with(|config| {
        config.timeouts.read = Duration::from_secs(20);
        config.timeouts.write = Duration::from_secs(40);
        config.timeouts.auth = Duration::from_secs(30);
    });
    for write in [false, true] {
        let start = tokio::time::Instant::now();
        let error = if write {
            cloud.create_pool(&json!({})).await.unwrap_err()
        } else {
            cloud.pools(None).await.unwrap_err()
        };
        let time = if write { 40 } else { 20 };
        assert_eq!(start.elapsed(), Duration::from_secs(time));
        assert_eq!(error.kind, ErrorKind::Lost);
        assert_eq!(error.message, format!("no answer within {time} s"));
        assert!(error.may_be_done());
    }
    tokio::time::advance(Duration::from_secs(3600)).await;
    let start = tokio::time::Instant::now();
    assert_eq!(
        cloud.pools(None).await.unwrap_err().request,
        "POST /identity/v3/auth/tokens"
    );
    assert_eq!(start.elapsed(), Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn after_too_many_requests_all_calls_wait_together() {
    let fake = Fake::new(|seen, before| {
        let headers = vec![("retry-after", "30".to_owned())];
        let throttled = Reply::Full(429, headers, String::new());
        (seen.path.contains("lbaas/pools") && before == 0).then_some(throttled)
    });
    let cloud = fake.cloud();
    let error = cloud.pools(None).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Throttled);
    assert_eq!(error.retry_after, Some(Duration::from_secs(30)));
    let calls = (0..5).map(|n| {
        let cloud = cloud.clone();
        async move { cloud.port(&id(&format!("p{n}"))).await }
    });
    let tasks: tokio::task::JoinSet<_> = calls.collect();
    for result in tasks.join_all().await {
        assert_eq!(result.unwrap(), None);
    }
    let log = fake.log();
    let late = log.iter().filter(|seen| seen.at >= Duration::from_secs(30));
    assert_eq!((late.count(), log.len()), (5, 7));
}

#[tokio::test(start_paused = true)]
async fn sixteen_requests_are_in_flight_at_most() {
    let fake = Fake::new(|seen, _| {
        let slow = Reply::Late(Duration::from_secs(1), Box::new(fault(404, "none")));
        seen.path.contains("ports").then_some(slow)
    });
    let cloud = fake.cloud();
    let calls = (0..50).map(|n| {
        let cloud = cloud.clone();
        async move { cloud.port(&id(&format!("p{n}"))).await }
    });
    let tasks: tokio::task::JoinSet<_> = calls.collect();
    assert_eq!(tasks.join_all().await.len(), 50);
    let log = fake.log();
    let ports = log.iter().filter(|seen| seen.path.contains("ports"));
    let mut in_second = [0; 4];
    for seen in ports {
        in_second[usize::try_from(seen.at.as_secs()).unwrap()] += 1;
    }
    assert_eq!(in_second, [16, 16, 16, 2]);
}

#[tokio::test]
async fn a_body_above_the_limit_is_not_sent() {
    let fake = Fake::new(|_, _| None);
    let cloud = fake.cloud_with(|config| config.body_limit = 100);
    let long = "x".repeat(100);
    let error = cloud.create_pool(&json!({"name": long})).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::TooLarge);
    assert_eq!(error.message, "120 bytes; 100 are the limit");
    assert_eq!(fake.asked(), [""; 0]);
}

#[tokio::test]
async fn after_a_body_was_too_large_the_next_ones_are_half_as_large_at_most() {
    // A proxy before Octavia, which reads less than Octavia does.
    let fake = Fake::new(|seen, _| {
        let page = || "<html><h1>413 Request Entity Too Large</h1></html>".to_owned();
        match seen.body.to_string().len() {
            _ if !seen.path.contains("pools") => None,
            length if length > 4_000 => Some(Reply::Full(413, vec![], page())),
            _ => Some(Reply::Json(201, json!({"pool": {"id": "q"}}))),
        }
    });
    let cloud = fake.cloud();
    let of = |length: usize| json!({"name": "x".repeat(length - r#"{"pool":{"name":""}}"#.len())});
    assert_eq!(cloud.body_limit(), 114_688);
    for (length, kind, limit) in [
        (100_001, ErrorKind::Halved, 50_000),
        (50_001, ErrorKind::TooLarge, 50_000),
        (30_000, ErrorKind::Halved, 15_000),
        (15_000, ErrorKind::Halved, 8_192),
        (8_192, ErrorKind::TooLarge, 8_192),
        (5_000, ErrorKind::TooLarge, 8_192),
    ] {
        let error = cloud.create_pool(&of(length)).await.unwrap_err();
        assert_eq!((error.kind, cloud.body_limit()), (kind, limit), "{length}");
        assert_eq!(error.is_transient(), kind == ErrorKind::Halved);
        assert!(!error.may_be_done());
    }
    cloud.create_pool(&of(4_000)).await.unwrap();
    assert_eq!(cloud.body_limit(), 8_192);
    let own = fake.cloud_with(|config| config.body_limit = 6_000);
    let error = own.create_pool(&of(5_000)).await.unwrap_err();
    assert_eq!((error.kind, own.body_limit()), (ErrorKind::TooLarge, 6_000));
}

#[tokio::test]
async fn a_request_that_got_nowhere_differs_from_one_without_an_answer() {
    for (why, kind) in [
        (
            NoAnswer::Unreachable("refused".to_owned()),
            ErrorKind::Unreachable,
        ),
        (NoAnswer::Lost("reset".to_owned()), ErrorKind::Lost),
        (NoAnswer::TooLong, ErrorKind::Unreadable),
    ] {
        let fake = Fake::new(move |seen, _| {
            seen.path
                .contains("pools")
                .then(|| Reply::None(why.clone()))
        });
        let error = fake.cloud().create_pool(&json!({})).await.unwrap_err();
        assert_eq!(error.kind, kind);
        assert_eq!(error.may_be_done(), kind != ErrorKind::Unreachable);
        assert_eq!(fake.asked().len(), 1, "never repeated");
    }
}

#[tokio::test]
async fn calls_are_counted_by_method_resource_and_outcome() {
    let fake = Fake::new(|seen, _| {
        let busy = fault(409, "Load Balancer a is immutable and cannot be updated.");
        (seen.method == "POST" && seen.path.contains("lbaas")).then_some(busy)
    });
    let cloud = fake.cloud();
    for _ in 0..2 {
        let error = cloud.create_listener(&json!({})).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Busy);
    }
    cloud.port(&id("p")).await.unwrap();
    let calls = cloud.calls();
    let counts: Vec<_> = calls
        .iter()
        .map(|(key, count)| (*key, count.count))
        .collect();
    let key = |method, resource, outcome| CallKey {
        method,
        resource,
        outcome,
    };
    assert_eq!(
        counts,
        [
            (key("GET", "port", "not_found"), 1),
            (key("POST", "listener", "busy"), 2),
            (key("POST", "token", "ok"), 1),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn r10_an_answer_is_waited_for_as_long_as_is_configured() {
    for (time_limit, served) in [(120, true), (60, false)] {
        let fake = Fake::new(|seen, _| {
            let pools = Reply::Json(200, json!({"pools": []}));
            let slow = || Reply::Late(Duration::from_secs(90), Box::new(pools));
            seen.path.contains("lbaas/pools").then(slow)
        });
        let cloud = fake.cloud_with(|config| {
            config.timeouts.read = Duration::from_secs(time_limit);
        });
        let pools = cloud.pools(None).await;
        assert_eq!(pools.is_ok(), served, "{pools:?}");
    }
}
