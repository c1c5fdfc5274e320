//! Certificates of Secrets: put into Barbican for Octavia, replaced when the Secret changes, and
//! removed when no listener names them.

use std::time::Duration;

use http::Method;
use landfall_testkit::build::ServiceBuilder;
use landfall_testkit::openstack::{Fault, Service};
use landfall_testkit::svc;
use serde_json::{Value, json};

use crate::each_write::{LONG, SOON};
use crate::rig::Rig;
use crate::rig::stage::Stage;
use crate::written::{bodies, refusal, short};

fn pem(text: &str) -> String {
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
}

/// A Service whose port 443 ends TLS with these Secrets, and whose port 80 passes bytes.
fn https(secrets: &str) -> ServiceBuilder {
    let service = svc("web").named_port("https", 443).node_port(30_443);
    service
        .named_port("plain", 80)
        .node_port(30_080)
        .annotated("landfall.dev/mode.https", "https")
        .annotated("landfall.dev/tls-secret.https", secrets)
}

fn rig() -> Rig {
    let rig = Rig::new("create-monitor=true");
    rig.cluster.put_secret(
        "one",
        &format!("{}{}", pem("one"), pem("authority")),
        "key 1",
    );
    rig.cluster.put_secret("two", &pem("two"), "key 2");
    rig
}

/// What is written on the listener of port 443: the first certificate, and how many others.
async fn certificate(rig: &Rig) -> (String, usize) {
    let picture = rig.picture().await;
    let listener = picture.listener_at(443);
    let first = listener.default_tls_container_ref.clone();
    (first.unwrap_or_default(), listener.sni_container_refs.len())
}

/// Puts a new certificate with its key into a Secret.
fn renew(rig: &Rig, secret: &str) {
    let made = rcgen::generate_simple_self_signed(["web.example.org".to_owned()]).unwrap();
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    rig.cluster.put_secret(secret, &certificate, &key);
}

/// How many secrets and containers the project has.
fn kept(rig: &Rig) -> [Value; 2] {
    ["/v1/secrets", "/v1/containers"].map(|path| {
        let listed = rig
            .sim
            .hand(Service::KeyManager, &Method::GET, path, Value::Null);
        listed.unwrap()["total"].take()
    })
}

#[tokio::test(start_paused = true)]
async fn l45_the_certificate_of_a_secret_comes_is_renewed_and_goes() {
    let mut rig = Rig::new("");
    renew(&rig, "one");
    let service = https("one")
        .annotated(&short("tls-versions"), "TLSv1.3, TLSv1.2")
        .annotated(&short("alpn-protocols"), "h2,http/1.1")
        .annotated(&short("floating-ip-tags"), "team-a");
    rig.apply(service).await;
    assert_eq!(refusal(&rig, "web"), "");
    let (before, _) = certificate(&rig).await;
    assert_eq!(kept(&rig), [json!(2), json!(1)]);
    let picture = rig.picture().await;
    let listener = picture.listener_at(443);
    let words = |words: &Option<Vec<String>>| words.clone().unwrap_or_default().join(" ");
    assert_eq!(listener.protocol, "TERMINATED_HTTPS");
    assert_eq!(words(&listener.tls_versions), "TLSv1.2 TLSv1.3");
    assert_eq!(words(&listener.alpn_protocols), "h2 http/1.1");
    assert_eq!(picture.floating_ips[0].tags, ["team-a"]);
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());

    renew(&rig, "one");
    rig.settle().await;
    let (after, _) = certificate(&rig).await;
    assert_ne!(after, before);
    assert_eq!(refusal(&rig, "web"), "");
    assert_eq!(kept(&rig), [json!(2), json!(1)]);
    rig.delete("web").await;
    assert!(rig.picture().await.is_empty());
    assert_eq!(kept(&rig), [json!(0), json!(0)]);
}

#[tokio::test(start_paused = true)]
async fn the_certificate_of_a_secret_is_put_into_barbican_before_a_listener_names_it() {
    let mut rig = rig();
    rig.apply(https("one")).await;
    assert_eq!(refusal(&rig, "web"), "");
    let (reference, others) = certificate(&rig).await;
    assert_eq!(others, 0);
    let picture = rig.picture().await;
    assert_eq!(picture.listener_at(443).protocol, "TERMINATED_HTTPS");
    assert_eq!(picture.pool_at(443).protocol, "HTTP");
    assert_eq!(picture.listener_at(80).protocol, "TCP");
    assert_eq!(picture.listener_at(80).default_tls_container_ref, None);
    let held = |name| rig.sim.payload(&reference, name);
    assert_eq!(held("certificate"), Some(pem("one")));
    assert_eq!(held("intermediates"), Some(pem("authority")));
    assert_eq!(held("private_key").as_deref(), Some("key 1"));
    let (secrets, containers) = rig.sim.certificates();
    assert_eq!((secrets.len(), containers.len()), (3, 1));
    let all = || secrets.iter().chain(&containers);
    assert!(
        all().all(|name| name.starts_with("landfall_tls_ks-1_uid-web_")),
        "{secrets:?} {containers:?}"
    );
    let writes = rig.writes();
    assert_eq!(
        writes[..5],
        [
            "POST /v1/secrets",
            "POST /v1/secrets",
            "POST /v1/secrets",
            "POST /v1/containers",
            "POST /v2/lbaas/loadbalancers"
        ]
    );
    // Nothing more is done, however often one starts again, and little is asked.
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    let asked = rig.calls();
    let asked = asked.iter().filter(|line| line.contains("/v1/"));
    assert_eq!(asked.count(), 1);
    rig.wait(SOON).await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    rig.delete("web").await;
    assert!(rig.picture().await.is_empty());
    assert_eq!(rig.sim.certificates(), (vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_changes_has_a_successor_before_its_certificate_goes() {
    let mut rig = rig();
    rig.apply(https("one")).await;
    let (before, _) = certificate(&rig).await;
    let picture = rig.picture().await;
    let (listener, pool) = (&picture.listener_at(443).id, &picture.pool_at(443).id);
    rig.forget();
    rig.cluster.put_secret("one", &pem("renewed"), "key 3");
    rig.settle().await;
    let (after, _) = certificate(&rig).await;
    assert_ne!(after, before);
    assert_eq!(
        rig.sim.payload(&after, "private_key").as_deref(),
        Some("key 3")
    );
    assert_eq!(
        rig.writes().len(),
        8,
        "two secrets and a container, the listener, and what was before: {:?}",
        rig.writes()
    );
    let update = format!("PUT /v2/lbaas/listeners/{listener}");
    assert_eq!(rig.writes()[3], update);
    assert!(rig.writes()[4].starts_with("DELETE /v1/secrets/"));
    assert!(rig.writes()[7].starts_with("DELETE /v1/containers/"));
    let picture = rig.picture().await;
    assert_eq!(picture.listener_at(443).id, *listener);
    assert_eq!(picture.pool_at(443).id, *pool);
    let (secrets, containers) = rig.sim.certificates();
    assert_eq!((secrets.len(), containers.len()), (2, 1));
    assert_eq!(
        rig.cluster.messages("LoadBalancerDrift"),
        Vec::<String>::new()
    );
}

#[tokio::test(start_paused = true)]
async fn several_secrets_are_for_the_names_that_clients_ask_for() {
    let mut rig = rig();
    rig.apply(https("one,two")).await;
    let (first, others) = certificate(&rig).await;
    assert_eq!(others, 1);
    assert_eq!(
        rig.sim.payload(&first, "private_key").as_deref(),
        Some("key 1")
    );
    // In another order, and then without the first.
    rig.apply(https("two,one")).await;
    let (first, others) = certificate(&rig).await;
    assert_eq!(others, 1);
    assert_eq!(
        rig.sim.payload(&first, "private_key").as_deref(),
        Some("key 2")
    );
    rig.apply(https("two")).await;
    assert_eq!(certificate(&rig).await, (first, 0));
    assert_eq!(rig.sim.certificates().1.len(), 1);
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_port_that_ends_no_tls_any_more_leaves_no_certificate() {
    let mut rig = rig();
    rig.apply(https("one")).await;
    let plain = || {
        let service = svc("web").named_port("https", 443).node_port(30_443);
        service.named_port("plain", 80).node_port(30_080)
    };
    // Neither does a process that begins only then, and knows what is there by the record.
    rig.kill();
    rig.cluster.apply(&plain().row());
    rig.restart().await;
    let picture = rig.picture().await;
    assert_eq!(picture.listener_at(443).protocol, "TCP");
    assert_eq!(picture.members_at(443).len(), 2);
    assert_eq!(rig.sim.certificates(), (vec![], vec![]));
    rig.forget();
    rig.restart().await;
    rig.wait(SOON).await;
    let asked = rig.calls();
    assert!(!asked.iter().any(|line| line.contains("/v1/")), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_certificate_of_barbican_takes_the_place_of_all_those_of_secrets() {
    let mut rig = rig();
    rig.apply(https("one,two")).await;
    let mine = rig.sim.add_secret();
    let service = svc("web").named_port("https", 443).node_port(30_443);
    let named = service.annotated(&short("default-tls-container-ref"), &mine);
    rig.apply(named).await;
    assert_eq!(refusal(&rig, "web"), "");
    assert_eq!(certificate(&rig).await, (mine, 0));
    assert_eq!(rig.sim.certificates().1, Vec::<String>::new());
    assert_eq!(rig.sim.certificates().0, ["certificate"]);
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn what_is_not_the_service_s_or_still_in_use_stays_in_barbican() {
    let mut rig = rig();
    let by_hand = rig.sim.add_container();
    rig.apply(https("one")).await;
    let (reference, _) = certificate(&rig).await;
    // Another one names the container of the Service, too.
    rig.cluster.put_secret("other", &pem("other"), "key 9");
    let guest = svc("guest").port(443).node_port(31_443);
    let named = guest.annotated(&short("default-tls-container-ref"), &reference);
    rig.apply(named).await;
    assert_eq!(refusal(&rig, "guest"), "");
    rig.delete("web").await;
    rig.wait(SOON).await;
    assert!(rig.sim.payload(&reference, "private_key").is_some());
    let (secrets, containers) = rig.sim.certificates();
    assert_eq!((secrets.len(), containers.len()), (3, 2));
    assert!(containers.contains(&"certificate".to_owned()), "{by_hand}");
    assert_eq!(rig.picture().await.members_at(443).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_a_pool_or_the_authorities_of_a_listener_s_clients_name_stays_in_barbican() {
    let pool = ("pool", "tls_container_ref");
    let listener = ("listener", "client_ca_tls_container_ref");
    for (kind, field) in [pool, ("pool", "ca_tls_container_ref"), listener] {
        let mut rig = rig();
        rig.apply(https("one")).await;
        let (reference, _) = certificate(&rig).await;
        rig.apply(svc("guest").port(81).node_port(31_081)).await;
        let picture = rig.picture().await;
        let id = match kind {
            "pool" => &picture.pool_at(81).id,
            _ => &picture.listener_at(81).id,
        };
        let body = json!({kind: {field: reference}});
        let path = format!("/v2/lbaas/{kind}s/{id}");
        let put = rig
            .sim
            .hand(Service::LoadBalancer, &Method::PUT, &path, body);
        put.unwrap();
        rig.wait(SOON).await;
        rig.delete("web").await;
        rig.wait(SOON).await;
        assert!(rig.cluster.service("web").is_none(), "{field}");
        let key = rig.sim.payload(&reference, "private_key");
        assert!(key.is_some(), "{field}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_barbican_refuses_keeps_nothing_else_from_being_done() {
    let plain = || svc("web").named_port("plain", 80).node_port(30_080);
    for (method, path) in [
        (Method::GET, "/v1/containers"),
        (Method::GET, "/v1/secrets"),
        (Method::POST, "/v1/secrets"),
        (Method::POST, "/v1/containers"),
    ] {
        let mut rig = rig();
        rig.apply(plain()).await;
        let (refused, at) = (method.clone(), path.to_owned());
        rig.sim.on_call(move |call| {
            let hit = call.method == refused && call.path == at;
            hit.then(|| Fault::status(call.service, 403, "Secret creation is not allowed"))
        });
        rig.apply(https("one")).await;
        rig.add_node("c", "10.0.0.6");
        rig.settle().await;
        let context = format!("{method} {path}: {}", refusal(&rig, "web"));
        let picture = rig.picture().await;
        assert_eq!(picture.members_at(80).len(), 3, "{context}");
        assert!(refusal(&rig, "web").contains("tls-secret"), "{context}");
        rig.sim.on_call(|_| None);
        rig.wait(LONG).await;
        rig.settle().await;
        assert_eq!(refusal(&rig, "web"), "", "{context}");
        assert_eq!(rig.picture().await.members_at(443).len(), 3, "{context}");
        let (secrets, containers) = rig.sim.certificates();
        assert_eq!((secrets.len(), containers.len()), (3, 1), "{context}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_listener_goes_on_with_its_certificate_while_the_next_one_can_not_be_had() {
    let mut rig = rig();
    rig.apply(https("one")).await;
    let (before, _) = certificate(&rig).await;
    rig.sim.on_call(|call| {
        let hit = call.is_write() && call.path == "/v1/containers";
        hit.then(|| Fault::status(call.service, 403, "no"))
    });
    rig.cluster.put_secret("one", &pem("renewed"), "key 3");
    rig.settle().await;
    rig.add_node("c", "10.0.0.6");
    rig.settle().await;
    assert_eq!(certificate(&rig).await.0, before);
    assert_eq!(rig.picture().await.members_at(443).len(), 3);
    assert_eq!(rig.picture().await.members_at(80).len(), 3);
    assert!(rig.sim.payload(&before, "private_key").is_some());
    // Nor does it end when the Secret is gone.
    rig.cluster.remove_secret("one");
    rig.settle().await;
    assert_eq!(certificate(&rig).await.0, before);
    assert_eq!(rig.published("web").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn killed_after_any_write_it_leaves_one_certificate_and_in_the_end_none() {
    for last in 1..=12 {
        let mut rig = rig();
        let mut count = 0;
        rig.sim.on_call(move |call| {
            count += i32::from(call.is_write() && !call.path.contains("/auth/"));
            (call.is_write() && count >= last).then_some(Fault::HangAfter)
        });
        rig.cluster.apply(&https("one").row());
        rig.start();
        rig.wait(Duration::from_secs(30)).await;
        rig.kill();
        rig.sim.heal();
        rig.restart().await;
        let (secrets, containers) = rig.sim.certificates();
        assert_eq!((secrets.len(), containers.len()), (3, 1), "{last}");
        assert_eq!(refusal(&rig, "web"), "", "{last}");
        rig.delete("web").await;
        assert_eq!(rig.sim.certificates(), (vec![], vec![]), "{last}");
    }
}

#[tokio::test(start_paused = true)]
async fn octavia_ends_tls_for_requests_only_and_needs_a_barbican() {
    let mut rig = rig();
    rig.apply(https("one").annotated("landfall.dev/mode.https", "tls"))
        .await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    assert!(
        refusal(&rig, "web").contains("HTTP only"),
        "{}",
        refusal(&rig, "web")
    );
    let sim = Stage::new();
    sim.configure(|settings| {
        settings
            .services
            .retain(|service| service.name() != "key-manager");
    });
    let mut rig = Rig::on(sim, "");
    rig.cluster.put_secret("one", &pem("one"), "key 1");
    rig.apply(https("one")).await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    let why = refusal(&rig, "web");
    assert!(
        why.contains("key-manager") && why.contains("tls-secret"),
        "{why}"
    );
}

#[tokio::test(start_paused = true)]
async fn listeners_that_end_tls_speak_what_the_service_asks_for() {
    let mut rig = rig();
    let asked = || {
        https("one")
            .annotated(&short("tls-versions"), "TLSv1.3, TLSv1.2")
            .annotated(&short("tls-ciphers"), "ECDHE-RSA-AES128-GCM-SHA256")
            .annotated(&short("alpn-protocols"), "h2,http/1.1")
    };
    rig.apply(asked()).await;
    let picture = rig.picture().await;
    let listener = picture.listener_at(443);
    let words = |words: &[&str]| Some(words.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>());
    assert_eq!(listener.tls_versions, words(&["TLSv1.2", "TLSv1.3"]));
    assert_eq!(
        listener.tls_ciphers.as_deref(),
        Some("ECDHE-RSA-AES128-GCM-SHA256")
    );
    assert_eq!(listener.alpn_protocols, words(&["h2", "http/1.1"]));
    assert_eq!(picture.listener_at(80).tls_ciphers, None);
    // Each is one write, and what is set by hand is put right.
    rig.forget();
    rig.apply(asked().annotated(&short("alpn-protocols"), "http/1.1"))
        .await;
    assert_eq!(
        bodies(&rig, "PUT", "listeners"),
        [json!({"alpn_protocols": ["http/1.1"]})]
    );
    let id = rig.picture().await.listener_at(443).id.to_string();
    rig.sim.relabel(&id, &json!({"tls_versions": ["TLSv1"]}));
    rig.wait(Duration::from_secs(200)).await;
    rig.settle().await;
    let listener = rig.picture().await;
    let listener = listener.listener_at(443);
    assert_eq!(listener.tls_versions, words(&["TLSv1.2", "TLSv1.3"]));
    // Without the annotations what is there stays.
    rig.forget();
    rig.apply(https("one")).await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    rig.apply(https("one").annotated("landfall.dev/tls-minimum-version", "1.3"))
        .await;
    assert_eq!(
        bodies(&rig, "PUT", "listeners"),
        [json!({"tls_versions": ["TLSv1.3"]})]
    );
}

#[tokio::test(start_paused = true)]
async fn an_octavia_that_is_too_old_for_what_tls_must_be_like_serves_nothing_weaker() {
    for (key, value, minor) in [
        ("tls-versions", "TLSv1.3", 16),
        ("tls-ciphers", "ECDHE-RSA-AES128-GCM-SHA256", 14),
    ] {
        let sim = Stage::new();
        sim.configure(|settings| settings.api_minor = minor);
        let mut rig = Rig::on(sim, "");
        rig.cluster.put_secret("one", &pem("one"), "key 1");
        rig.apply(https("one").annotated(&short(key), value)).await;
        assert_eq!(rig.picture().await.balancers, [], "{key}");
        assert!(
            refusal(&rig, "web").contains("needs version")
                || refusal(&rig, "web").contains("need version")
        );
    }
    let mut rig = rig();
    rig.apply(https("one").annotated(&short("tls-versions"), "TLSv9"))
        .await;
    assert!(refusal(&rig, "web").contains("TLSv9"));
}

#[tokio::test(start_paused = true)]
async fn further_certificates_of_barbican_are_for_the_names_that_clients_ask_for() {
    let stage = Stage::new();
    let (first, second) = (stage.add_secret(), stage.add_container());
    let mut rig = Rig::on(stage, "");
    let asked = || {
        let service = svc("web").port(443).node_port(30_443);
        service.annotated(&short("default-tls-container-ref"), &first)
    };
    let sni = short("sni-container-refs");
    rig.apply(asked().annotated(&sni, &format!("{second}, {first}")))
        .await;
    assert_eq!(certificate(&rig).await, (first.clone(), 1));
    let picture = rig.picture().await;
    assert_eq!(picture.listener_at(443).sni_container_refs, [second]);
    // Where a port ends no TLS, it is said that this has no effect.
    let plain = svc("plain").port(80).node_port(30_080);
    rig.apply(plain.annotated(&sni, &first)).await;
    let said = rig.cluster.messages("OptionNotApplicable");
    assert!(
        said.iter().any(|it| it.contains("sni-container-refs")),
        "{said:?}"
    );
}
