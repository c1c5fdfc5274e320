//! Two tenants of one cluster: everything that one can write, against everything that the other
//! relies on.

mod attacks;

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use tokio::net::TcpListener;

use self::attacks::{HOST, LIMITS, Limit, TARPIT, limit, service, slice};
use crate::bed::{Bed, DEADLINE, LOOK, address, condition, only, without_annotations};
use crate::certificates::Certificate;
use crate::network::{Range, inside};
use crate::replica::Replica;
use crate::traffic::{Backend, answered_by, ask, http};

/// What the victim keeps to itself.
const SECRETS: [&str; 5] = ["s3cret-key", "victim-web", "victim-tls", "app=vault", INNER];

/// A name in the victim's certificate that is not public.
const INNER: &str = "vault.victim.internal";

/// The roles that let certificates be read.
const CERTIFICATES: &str = include_str!("../../../../deploy/rbac-certificates.yaml");

/// What keeps annotations from tenants.
const POLICY: &str = include_str!("../../../../deploy/admission.yaml");

/// How long an edit of the victim may take.
const EDIT: Duration = Duration::from_secs(2);

fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

/// What is reported in the attacker's namespace.
async fn reported(bed: &Bed) -> String {
    let mut reported = String::new();
    for kind in ["services", "events.events.k8s.io"] {
        let list = bed.run(&["get", kind, "-o", "json"]).await;
        let list: serde_json::Value = serde_json::from_str(&list).unwrap();
        for item in list["items"].as_array().unwrap() {
            let _ = writeln!(reported, "{} {}", item["status"], item["note"]);
        }
    }
    reported
}

#[tokio::test]
async fn as_root_nothing_that_a_tenant_writes_harms_another_or_discloses_its_data() {
    let test = "tenants::as_root_nothing_that_a_tenant_writes_harms_another_or_discloses_its_data";
    if !inside(test).await {
        return;
    }
    let bed = Bed::open("attacker").await;
    let victim = bed.cluster.namespace("victim").await.unwrap();
    bed.kubectl().apply(CERTIFICATES).await.unwrap();
    let _one = Backend::start("one", at("10.77.0.11", 8000)).await;
    let _own = Backend::start("own", at("10.77.0.13", 8000)).await;
    let admin = Range::claim().admin(1);
    let config = without_annotations("10.77.200.0/28") + LIMITS;
    // What connects is never accepted.
    let _tarpit = TcpListener::bind((Ipv4Addr::UNSPECIFIED, TARPIT))
        .await
        .unwrap();
    let replica = Replica::alone(&bed, admin, &config).await;
    let in_victim = async |arguments: &[&str], input: &str| {
        let all = [&["-n", victim.as_str()], arguments].concat();
        bed.kubectl().run_with(&all, input).await.unwrap()
    };
    let shared = [
        ("landfall.dev/sharing-key", "s3cret-key".to_owned()),
        ("landfall.dev/monitor", "tcp".to_owned()),
        ("landfall.dev/monitor-delay", "500ms".to_owned()),
        ("landfall.dev/monitor-timeout", "500ms".to_owned()),
        ("landfall.dev/monitor-max-retries-down", "1".to_owned()),
    ];
    let web = service(
        "victim-web",
        &shared,
        &[8080],
        "  externalTrafficPolicy: Cluster\n",
    );
    let web = [
        web,
        slice("victim-web", 8080, &["10.77.0.11", "10.77.0.12"]),
    ]
    .concat();
    let certificates = [0, 1].map(|_| Certificate::of(&[HOST, INNER]));
    let ends_tls = [
        ("landfall.dev/mode", "tls".to_owned()),
        ("landfall.dev/tls-secret", "victim-cert".to_owned()),
    ];
    let tls = [
        certificates[0].secret("victim-cert"),
        service("victim-tls", &ends_tls, &[8443], ""),
        slice("victim-tls", 8443, &["10.77.0.11"]),
    ];
    in_victim(&["apply", "-f", "-"], &[web, tls.concat()].concat()).await;
    let programmed = "--for=condition=landfall.dev/Programmed";
    let both = ["service/victim-web", "service/victim-tls"];
    in_victim(
        &[&["wait", "--timeout=60s", programmed], &both[..]].concat(),
        "",
    )
    .await;
    let read = async |name: &str| {
        let json = in_victim(&["get", "service", name, "-o", "json"], "").await;
        serde_json::from_str::<serde_json::Value>(&json).unwrap()
    };
    let held = address(&read("victim-web").await).unwrap().to_owned();
    let secure = address(&read("victim-tls").await).unwrap().to_owned();
    let mut port = 8080;
    let mut shown = 0;
    answered_by(at(&held, port), &["one"]).await;

    for (what, manifest) in attacks::all(&held, &secure, admin) {
        // What the API server refuses does no harm either.
        let before = counted(admin, &what).await;
        let arguments = ["-n", bed.namespace.as_str(), "apply", "-f", "-"];
        let _ = bed.kubectl().run_with(&arguments, &manifest).await;
        settled(&bed, &what).await;
        reached(&bed, admin, &what, before).await;
        // A new Service gets an address.
        in_victim(&["apply", "-f", "-"], &service("later", &[], &[8080], "")).await;
        let addressed = "--for=jsonpath={.status.loadBalancer.ingress[0].ip}";
        let wait = ["wait", "--timeout=60s", addressed, "service/later"];
        in_victim(&wait, "").await;
        in_victim(&["delete", "service", "later", "--timeout=60s"], "").await;
        // Traffic, also while the attacker's clients are at work.
        let ((), attacker) = tokio::join!(answered_by(at(&held, port), &["one"]), clients(&bed));
        for answer in attacker {
            assert_ne!(
                answer, "one",
                "{what}: the attacker's address leads to the victim"
            );
        }
        // Certificates: the victim's is served to its clients, and at no address of the attacker.
        let own = &certificates[shown];
        assert!(own.is_served_at(at(&secure, 8443)).await, "{what}");
        for address in addresses(&bed).await {
            for certificate in &certificates {
                assert!(
                    !certificate.is_served_at(at(&address, 8443)).await,
                    "{what}"
                );
                assert!(
                    !certificate.is_served_at(at(&address, 8080)).await,
                    "{what}"
                );
            }
        }
        // A new one is served soon.
        let mut took = Vec::new();
        while took.len() < 3 && took.iter().all(|took| *took >= EDIT) {
            shown = 1 - shown;
            let began = Instant::now();
            in_victim(
                &["apply", "-f", "-"],
                &certificates[shown].secret("victim-cert"),
            )
            .await;
            while !certificates[shown].is_served_at(at(&secure, 8443)).await {
                assert!(began.elapsed() < DEADLINE, "{what}: no new certificate");
                tokio::time::sleep(LOOK).await;
            }
            took.push(began.elapsed());
        }
        assert!(
            took.iter().any(|took| *took < EDIT),
            "{what}: certificates took {took:?}"
        );
        // Health: a member that comes gets its turns, and one that dies no more of them.
        let other = Backend::start("two", at("10.77.0.12", 8000)).await;
        answered_by(at(&held, port), &["one", "two"]).await;
        drop(other);
        answered_by(at(&held, port), &["one"]).await;
        // An edit: the port that clients use. What slows all edits down slows the third down, too.
        let mut took = Vec::new();
        while took.len() < 3 && took.iter().all(|took| *took >= EDIT) {
            port = if port == 8080 { 9090 } else { 8080 };
            let patch =
                format!(r#"[{{"op": "replace", "path": "/spec/ports/0/port", "value": {port}}}]"#);
            let began = Instant::now();
            let edit = [
                "patch",
                "service",
                "victim-web",
                "--type=json",
                "-p",
                &patch,
            ];
            in_victim(&edit, "").await;
            while ask(at(&held, port)).await.is_err() {
                assert!(
                    began.elapsed() < DEADLINE,
                    "{what}: the edit is not followed"
                );
                tokio::time::sleep(LOOK).await;
            }
            took.push(began.elapsed());
        }
        assert!(
            took.iter().any(|took| *took < EDIT),
            "{what}: edits took {took:?}"
        );
        // Address and health.
        for (name, held) in [("victim-web", &held), ("victim-tls", &secure)] {
            assert_eq!(address(&read(name).await), Some(held.as_str()), "{what}");
        }
        assert_eq!(http(admin, "/healthz").await.unwrap().0, 200, "{what}");
        // Secrecy.
        let reported = reported(&bed).await;
        for secret in SECRETS {
            assert!(
                !reported.contains(secret),
                "{what} discloses {secret}: {reported}"
            );
        }
        let all = [
            "delete",
            "services,endpointslices,secrets",
            "--all",
            "--timeout=60s",
        ];
        bed.run(&all).await;
    }
    replica.stop().await;
}

/// A Service with a member, and with annotations that say what it asks for and, in our own words,
/// that it holds an address and that a version of it was accepted.
fn forging(name: &str, held: &str, class: &str, more: &[(&str, String)]) -> String {
    let accepted = r#"{"annotations":{},"spec":{"type":"LoadBalancer","ports":[{"port":8080}]}}"#;
    let annotations = [
        ("landfall.dev/addresses", held.to_owned()),
        ("landfall.dev/mode", "nonsense".to_owned()),
        ("state.landfall.dev/addresses", held.to_owned()),
        ("state.landfall.dev/accepted", accepted.to_owned()),
    ];
    service(name, &[&annotations, more].concat(), &[8080], class)
}

#[tokio::test]
async fn annotations_in_our_own_words_take_no_address_neither_at_once_nor_after_a_restart() {
    let bed = Bed::open("victim").await;
    let attacker = bed.cluster.namespace("attacker").await.unwrap();
    let apply = async |manifest: &str| {
        let arguments = ["-n", attacker.as_str(), "apply", "-f", "-"];
        bed.kubectl().run_with(&arguments, manifest).await.unwrap();
    };
    let range = Range::claim();
    let _one = Backend::start("one", range.member(1)).await;
    let config = only(&range.pool());
    let members = ("landfall.dev/endpoints", range.member(1).to_string());
    let replica = Replica::alone(&bed, range.admin(1), &config).await;

    // Older than what it is after, and refused from the start.
    let mode = [("landfall.dev/mode", "nonsense".to_owned())];
    apply(&service("attack", &mode, &[8080], "")).await;
    bed.apply(&service("web", std::slice::from_ref(&members), &[8080], ""))
        .await;
    bed.programmed(&["web"]).await;
    let held = address(&bed.service("web").await).unwrap().to_owned();
    let recorded = [
        (
            "state.landfall.dev/instance",
            "an-instance-of-old".to_owned(),
        ),
        members.clone(),
    ];
    apply(&forging("attack", &held, "", &[])).await;
    apply(&forging("older", &held, "", &recorded)).await;

    // The address that the pool assigns next, requested by the Service that forges a claim to it.
    let next: std::net::Ipv4Addr = held.parse().unwrap();
    let next = std::net::Ipv4Addr::from(u32::from(next) + 1).to_string();
    let class = "  loadBalancerClass: landfall.dev/none\n";
    apply(&forging("lost", &next, class, &[])).await;
    let asking = [members, ("landfall.dev/addresses", next.clone())];
    bed.apply(&service("later", &asking, &[8080], "")).await;
    bed.programmed(&["later"]).await;
    assert_eq!(address(&bed.service("later").await), Some(next.as_str()));

    replica.kill().await;
    let replica = Replica::alone(&bed, range.admin(1), &config).await;
    for (name, held) in [("web", &held), ("later", &next)] {
        assert_eq!(address(&bed.service(name).await), Some(held.as_str()));
        answered_by(at(held, 8080), &["one"]).await;
    }
    for name in ["attack", "older", "lost"] {
        let arguments = ["-n", attacker.as_str(), "service", name];
        let service = bed.kubectl().get(&arguments).await.unwrap();
        assert_eq!(address(&service), None, "{name}");
    }
    replica.stop().await;
}

#[tokio::test]
async fn a_version_that_was_accepted_is_served_after_a_restart_as_the_status_vouches_for_it() {
    let bed = Bed::open("invalid").await;
    let range = Range::claim();
    let _one = Backend::start("one", range.member(1)).await;
    let config = only(&range.pool());
    let members = ("landfall.dev/endpoints", range.member(1).to_string());
    let replica = Replica::alone(&bed, range.admin(1), &config).await;
    let valid = service("web", std::slice::from_ref(&members), &[8080], "");
    bed.apply(&valid).await;
    bed.programmed(&["web"]).await;
    let mode = ("landfall.dev/mode", "nonsense".to_owned());
    bed.apply(&service("web", &[members, mode], &[8080], ""))
        .await;
    let accepted = |service: &serde_json::Value| {
        condition(service, "Accepted").is_some_and(|(truth, _)| truth == "True")
    };
    let vouched = |service: &serde_json::Value| {
        condition(service, "Recorded") == Some(("True".to_owned(), "Recorded".to_owned()))
    };
    let refused = |service: &serde_json::Value| !accepted(service) && vouched(service);
    let before = bed.until("web", "refused", refused).await;
    let held = address(&before).unwrap().to_owned();
    replica.kill().await;
    let replica = Replica::alone(&bed, range.admin(1), &config).await;
    answered_by(at(&held, 8080), &["one"]).await;
    assert_eq!(bed.service("web").await, before, "nothing is written");
    bed.apply(&valid).await;
    let after = bed.until("web", "valid again", accepted).await;
    assert!(vouched(&after), "{after:#}");
    assert_eq!(address(&after), Some(held.as_str()));
    replica.stop().await;
}

/// What the metric stands at whose rise shows that an attack reached its limit.
async fn counted(admin: SocketAddr, what: &str) -> f64 {
    let Some(Limit::Counted(metric)) = limit(what) else {
        return 0.0;
    };
    let (_, metrics) = http(admin, "/metrics?members=false").await.unwrap();
    let series = |line: &str| line.strip_prefix(metric)?.trim().parse().ok();
    metrics.lines().find_map(series).unwrap()
}

/// Waits until an attack has reached its limit.
async fn reached(bed: &Bed, admin: SocketAddr, what: &str, before: f64) {
    let began = Instant::now();
    loop {
        let is_reached = match limit(what) {
            None => true,
            Some(Limit::Reported(reason)) => reported(bed).await.contains(reason),
            Some(Limit::Counted(_)) => counted(admin, what).await > before,
        };
        if is_reached {
            return;
        }
        assert!(began.elapsed() < DEADLINE, "{what} reaches no limit");
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits until something was said of every Service of the attacker.
async fn settled(bed: &Bed, what: &str) {
    let began = Instant::now();
    loop {
        let list = bed.run(&["get", "services", "-o", "json"]).await;
        let list: serde_json::Value = serde_json::from_str(&list).unwrap();
        let items = list["items"].as_array().unwrap();
        let said = |item: &serde_json::Value| item["status"]["conditions"].is_array();
        if items.iter().all(said) {
            return;
        }
        assert!(
            began.elapsed() < DEADLINE,
            "{what}: nothing is said of a Service"
        );
        tokio::time::sleep(LOOK).await;
    }
}

/// The attacker's addresses.
async fn addresses(bed: &Bed) -> Vec<String> {
    let list = bed.run(&["get", "services", "-o", "json"]).await;
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    let items = list["items"].as_array().unwrap().iter();
    items.filter_map(address).map(str::to_owned).collect()
}

/// What the attacker's clients get at the attacker's addresses.
async fn clients(bed: &Bed) -> Vec<String> {
    let list = bed.run(&["get", "services", "-o", "json"]).await;
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    let mut answers = Vec::new();
    for item in list["items"].as_array().unwrap() {
        let name = item["metadata"]["name"].as_str().unwrap();
        // Its checks go to a member of the victim, which any client on this network can reach.
        if name.starts_with("check-") {
            continue;
        }
        if let Some(held) = address(item) {
            answers.extend(ask(at(held, 8080)).await);
        }
    }
    answers
}

#[tokio::test]
async fn the_admission_policy_keeps_reserved_annotations_from_namespaces_that_are_not_trusted() {
    let bed = Bed::open("policed").await;
    let kubectl = bed.kubectl();
    let plain = service("plain", &[], &[80], "");
    let named =
        |name: &str, key: &str| service(name, &[(key, "10.0.0.1:80".to_owned())], &[80], "");
    bed.apply(&named("old", "landfall.dev/endpoints")).await;
    kubectl.apply(POLICY).await.unwrap();
    let arguments = ["-n", bed.namespace.as_str(), "apply", "-f", "-"];
    let refused = async |manifest: &str| {
        let outcome = kubectl.run_with(&arguments, manifest).await;
        outcome.err().map(|error| format!("{error:#}"))
    };
    // A policy takes a moment to come into force.
    let began = Instant::now();
    let probe = named("probe", "landfall.dev/endpoints");
    let text = loop {
        if let Some(text) = refused(&probe).await {
            break text;
        }
        assert!(began.elapsed() < DEADLINE, "the policy is not in force");
        bed.run(&["delete", "service", "probe"]).await;
        tokio::time::sleep(LOOK).await;
    };
    assert!(
        text.contains(
            "only Services of namespaces with the label landfall.dev/trusted may have the \
             annotation landfall.dev/endpoints"
        ),
        "{text}"
    );
    let of_port = named("probe", "landfall.dev/endpoints.p80");
    assert!(refused(&of_port).await.is_some());
    assert_eq!(refused(&plain).await, None);
    let other = named("other", "landfall.dev/endpointsettings");
    assert_eq!(refused(&other).await, None);
    // What stands there stays, and the Service can be changed in other ways.
    bed.run(&["label", "service", "old", "color=blue"]).await;
    bed.run(&["annotate", "service", "old", "example.org/x=y"])
        .await;
    let more = [
        "annotate",
        "--overwrite",
        "service",
        "old",
        "landfall.dev/endpoints=10.0.0.2:80",
    ];
    let all = [&["-n", bed.namespace.as_str()], &more[..]].concat();
    assert!(kubectl.run(&all).await.is_err());
    // The administrator trusts a namespace.
    kubectl
        .run(&[
            "label",
            "namespace",
            &bed.namespace,
            "landfall.dev/trusted=yes",
        ])
        .await
        .unwrap();
    let began = Instant::now();
    while let Some(text) = refused(&probe).await {
        assert!(began.elapsed() < DEADLINE, "{text}");
        tokio::time::sleep(LOOK).await;
    }
}
