//! Tokens: how they are asked for, shared, renewed and replaced.

use std::time::Duration;

use landfall_openstack::client::auth::{
    Auth, CredentialRef, DomainRef, ProjectRef, Scope, UserRef,
};
use landfall_openstack::client::{ErrorKind, Interface};
use landfall_openstack::objects::Id;
use serde_json::{Value, json};

use super::fake::{Fake, PASSWORD, Reply, catalog, fault, grant, token};

fn named(name: &str, domain: &str) -> UserRef {
    UserRef::Name {
        name: name.to_owned(),
        domain: DomainRef::Name(domain.to_owned()),
    }
}

fn by_password(user: UserRef, scope: Scope) -> Auth {
    Auth::Password {
        user,
        password: PASSWORD.into(),
        scope,
    }
}

/// What is sent to Keystone for these credentials.
async fn sent(auth: Auth) -> (String, Value) {
    let fake = Fake::new(|_, _| None);
    fake.cloud_with(|config| config.auth = auth)
        .check()
        .await
        .unwrap();
    let first = fake.log().remove(0);
    (format!("{} {}", first.method, first.path), first.body)
}

#[tokio::test]
async fn each_credential_and_scope_has_its_body() {
    let project = Scope::Project(ProjectRef::Id("p1".to_owned()));
    let cases = [
        (
            by_password(UserRef::Id("u1".to_owned()), project.clone()),
            json!({"identity": {"methods": ["password"], "password": {"user": {"id": "u1",
                "password": PASSWORD}}},
                   "scope": {"project": {"id": "p1"}}}),
        ),
        (
            by_password(
                named("demo", "Default"),
                Scope::Project(ProjectRef::Name {
                    name: "demo".to_owned(),
                    domain: DomainRef::Id("default".to_owned()),
                }),
            ),
            json!({"identity": {"methods": ["password"], "password": {"user":
                        {"name": "demo", "domain": {"name": "Default"}, "password": PASSWORD}}},
                   "scope": {"project": {"name": "demo", "domain": {"id": "default"}}}}),
        ),
        (
            by_password(
                UserRef::Id("u1".to_owned()),
                Scope::Domain(DomainRef::Name("d".to_owned())),
            ),
            json!({"identity": {"methods": ["password"], "password": {"user": {"id": "u1",
                "password": PASSWORD}}},
                   "scope": {"domain": {"name": "d"}}}),
        ),
        (
            by_password(UserRef::Id("u1".to_owned()), Scope::Trust("t1".to_owned())),
            json!({"identity": {"methods": ["password"], "password": {"user": {"id": "u1",
                "password": PASSWORD}}},
                   "scope": {"OS-TRUST:trust": {"id": "t1"}}}),
        ),
        (
            by_password(UserRef::Id("u1".to_owned()), Scope::Unscoped),
            json!({"identity": {"methods": ["password"], "password": {"user": {"id": "u1",
                "password": PASSWORD}}}}),
        ),
        (
            Auth::ApplicationCredential {
                credential: CredentialRef::Id("c1".to_owned()),
                secret: "s".into(),
            },
            json!({"identity": {"methods": ["application_credential"],
                "application_credential": {"id": "c1", "secret": "s"}}}),
        ),
        (
            Auth::ApplicationCredential {
                credential: CredentialRef::Name {
                    name: "ci".to_owned(),
                    user: named("demo", "Default"),
                },
                secret: "s".into(),
            },
            json!({"identity": {"methods": ["application_credential"], "application_credential":
                        {"name": "ci", "user": {"name": "demo", "domain": {"name": "Default"}},
                            "secret": "s"}}}),
        ),
        (
            Auth::Token {
                token: "given".into(),
                scope: project,
            },
            json!({"identity": {"methods": ["token"], "token": {"id": "given"}},
                "scope": {"project": {"id": "p1"}}}),
        ),
    ];
    for (auth, body) in cases {
        let sent = sent(auth).await;
        assert_eq!(
            sent,
            (
                "POST /identity/v3/auth/tokens".to_owned(),
                json!({"auth": body})
            )
        );
    }
}

#[tokio::test]
async fn a_token_without_scope_is_used_as_it_is() {
    let fake = Fake::new(|seen, _| {
        (seen.method == "GET" && seen.path.ends_with("/auth/tokens"))
            .then(|| Reply::Json(200, grant(&catalog())))
    });
    let cloud = fake.cloud_with(|config| {
        config.auth = Auth::Token {
            token: "given".into(),
            scope: Scope::Unscoped,
        };
    });
    cloud.check().await.unwrap();
    let log = fake.log();
    assert_eq!(log[0].subject.as_deref(), Some("given"));
    assert_eq!(log[0].token.as_deref(), Some("given"));
    assert_eq!(log[1].token.as_deref(), Some("given"));
}

#[tokio::test]
async fn a_refused_token_is_replaced_and_the_call_succeeds() {
    let fake = Fake::new(|seen, _| {
        let old = seen.token.as_deref() == Some("token-1");
        match seen.path.as_str() {
            "/octavia/v2.0/lbaas/pools" if old => Some(fault(401, "no")),
            "/octavia/v2.0/lbaas/pools" => Some(Reply::Json(201, json!({"pool": {"id": "q"}}))),
            _ => None,
        }
    });
    let pool = fake
        .cloud()
        .create_pool(&json!({"name": "x"}))
        .await
        .unwrap();
    assert_eq!(pool.id, Id::new("q"));
    assert_eq!(fake.tokens(), 2);
    let log = fake.log();
    let bodies: Vec<_> = log
        .iter()
        .filter(|seen| seen.path.ends_with("pools"))
        .collect();
    assert_eq!(bodies.len(), 2);
    assert_eq!(bodies[0].body, bodies[1].body);
    assert_eq!(bodies[1].body, json!({"pool": {"name": "x"}}));
}

#[tokio::test]
async fn a_second_refusal_is_an_error() {
    let fake = Fake::new(|seen, _| seen.path.contains("pools").then(|| fault(401, "still no")));
    let error = fake.cloud().pools(None).await.unwrap_err();
    assert_eq!(
        (error.kind, error.message.as_str()),
        (ErrorKind::Unauthorized, "still no")
    );
    assert_eq!((fake.tokens(), fake.asked().len()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn many_calls_share_one_authentication_and_one_replacement() {
    let fake = Fake::new(|seen, before| {
        let late = |reply| Some(Reply::Late(Duration::from_secs(1), Box::new(reply)));
        match seen.path.as_str() {
            "/identity/v3/auth/tokens" => late(token(before + 1)),
            _ if seen.token.as_deref() == Some("token-1") => late(fault(401, "expired")),
            _ => late(fault(404, "none")),
        }
    });
    let cloud = fake.cloud();
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..50 {
        let cloud = cloud.clone();
        tasks.spawn(async move { cloud.pool(&Id::new(&format!("p{n}"))).await });
    }
    for result in tasks.join_all().await {
        assert_eq!(result.unwrap(), None);
    }
    assert_eq!(fake.tokens(), 2);
}

#[tokio::test(start_paused = true)]
async fn refused_credentials_are_not_tried_by_everybody() {
    let refusal = json!({"error": {"code": 401, "message": "Wrong.", "title": "Unauthorized"}});
    let fake = Fake::new(move |seen, before| {
        let tokens = seen.path.ends_with("tokens") && before == 0;
        let reply = Reply::Json(401, refusal.clone());
        tokens.then(|| Reply::Late(Duration::from_secs(1), Box::new(reply)))
    });
    let cloud = fake.cloud();
    let calls = (0..20).map(|_| {
        let cloud = cloud.clone();
        async move { cloud.load_balancers().await.unwrap_err() }
    });
    let tasks: tokio::task::JoinSet<_> = calls.collect();
    for error in tasks.join_all().await {
        assert_eq!(
            (error.kind, error.message.as_str()),
            (ErrorKind::Unauthorized, "Wrong.")
        );
    }
    assert_eq!(fake.tokens(), 1);
    tokio::time::advance(Duration::from_secs(1)).await;
    cloud.check().await.unwrap_err();
    assert_eq!(fake.tokens(), 1);
    tokio::time::advance(Duration::from_secs(5)).await;
    cloud.check().await.unwrap();
    assert_eq!(fake.tokens(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_token_is_renewed_before_its_time_is_over() {
    let fake = Fake::new(|_, _| None);
    let cloud = fake.cloud();
    cloud.project_id().await.unwrap();
    tokio::time::advance(Duration::from_secs(54 * 60)).await;
    cloud.project_id().await.unwrap();
    assert_eq!(fake.tokens(), 1);
    tokio::time::advance(Duration::from_secs(61)).await;
    cloud.project_id().await.unwrap();
    assert_eq!(fake.tokens(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_can_not_be_renewed_is_used_to_its_end() {
    let minutes = |n: u64| tokio::time::advance(Duration::from_secs(60 * n));
    let fake = Fake::new(|seen, before| match seen.path.as_str() {
        "/identity/v3/auth/tokens" => (1..=3)
            .contains(&before)
            .then(|| Reply::Json(503, json!({}))),
        _ => Some(Reply::Json(200, json!({"pools": []}))),
    });
    let cloud = fake.cloud();
    cloud.pools(None).await.unwrap();
    minutes(56).await;
    // Not for every call Keystone is asked again.
    for _ in 0..5 {
        cloud.pools(None).await.unwrap();
    }
    assert_eq!(fake.tokens(), 2);
    minutes(1).await;
    cloud.pools(None).await.unwrap();
    assert_eq!(fake.tokens(), 3);
    minutes(4).await;
    let error = cloud.pools(None).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert_eq!(fake.tokens(), 4);
    cloud.pools(None).await.unwrap();
    let log = fake.log();
    let tokens: Vec<_> = log
        .iter()
        .filter_map(|seen| seen.token.as_deref())
        .collect();
    assert_eq!(tokens[..7], ["token-1"; 7]);
    assert_eq!(tokens[7..], ["token-5"]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_token_is_not_used_again_while_keystone_is_away() {
    let fake = Fake::new(|seen, before| match seen.path.as_str() {
        "/identity/v3/auth/tokens" => (before == 1).then(|| Reply::Json(503, json!({}))),
        _ if seen.token.as_deref() == Some("token-1") => Some(fault(401, "revoked")),
        _ => Some(Reply::Json(200, json!({"pools": []}))),
    });
    let cloud = fake.cloud();
    let error = cloud.pools(None).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    cloud.pools(None).await.unwrap();
    let log = fake.log();
    let tokens: Vec<_> = log
        .iter()
        .filter_map(|seen| seen.token.as_deref())
        .collect();
    assert_eq!(tokens, ["token-1", "token-3"]);
}

#[tokio::test(start_paused = true)]
async fn only_one_call_waits_for_an_early_renewal() {
    let fake = Fake::new(|seen, before| match seen.path.as_str() {
        "/identity/v3/auth/tokens" if before == 1 => {
            let late = Box::new(token(2));
            Some(Reply::Late(Duration::from_secs(20), late))
        }
        "/identity/v3/auth/tokens" => None,
        _ => Some(Reply::Json(200, json!({"pools": []}))),
    });
    let cloud = fake.cloud();
    cloud.pools(None).await.unwrap();
    tokio::time::advance(Duration::from_secs(56 * 60)).await;
    let start = tokio::time::Instant::now();
    let calls = (0..10).map(|_| {
        let cloud = cloud.clone();
        async move {
            cloud.pools(None).await.unwrap();
            start.elapsed().as_secs()
        }
    });
    let tasks: tokio::task::JoinSet<_> = calls.collect();
    let mut times = tasks.join_all().await;
    times.sort_unstable();
    assert_eq!(times, [0, 0, 0, 0, 0, 0, 0, 0, 0, 20]);
    assert_eq!(fake.tokens(), 2);
}

#[tokio::test]
async fn a_keystone_that_sends_away_is_named_with_what_to_write() {
    let cases = [
        // What was configured, what answers with which redirect, what is asked then, and what to
        // write.
        (
            "http://cloud/identity/v3",
            "/identity/v3/auth/tokens",
            "https://cloud/identity/v3/auth/tokens",
            Some("https://cloud/identity/v3"),
        ),
        (
            "http://cloud/identity",
            "/identity",
            "https://cloud:5000/identity/",
            Some("https://cloud:5000/identity"),
        ),
        (
            "http://cloud/old/v3",
            "/old/v3/auth/tokens",
            "/identity/v3/auth/tokens",
            Some("http://cloud/identity/v3"),
        ),
        // A `/` at the end is no other place.
        ("http://cloud/identity", "/identity", "/identity/", None),
    ];
    for (auth_url, path, to, written) in cases {
        let fake = Fake::new(move |seen, _| {
            let headers = vec![("location", to.to_owned())];
            (seen.path == path).then(|| Reply::Full(302, headers, String::new()))
        });
        let cloud = fake.cloud_with(|config| auth_url.clone_into(&mut config.auth_url));
        let outcome = cloud.check().await;
        let Some(written) = written else {
            outcome.unwrap();
            continue;
        };
        let error = outcome.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Moved);
        assert!(!error.is_transient());
        let reported = format!("; write {written} as auth-url");
        assert!(error.message.ends_with(&reported), "{error}");
        assert_eq!(fake.log().len(), 1, "{auth_url}");
    }
}

/// Configured address, status of the list, version, its link; where the token is asked for.
type Case = (&'static str, u16, &'static str, &'static str, &'static str);

#[tokio::test]
async fn version_three_is_found_under_the_address() {
    let document = |status: u16, version: &str, href: &str| {
        let link = json!({"rel": "self", "href": href});
        let versions = json!([
            {"id": "v2.0", "status": "deprecated", "links": []},
            {"id": version, "status": "stable", "links": [link]},
        ]);
        Reply::Json(status, json!({"versions": {"values": versions}}))
    };
    let cases: [Case; 5] = [
        (
            "http://cloud/identity",
            300,
            "v3.14",
            "http://cloud/identity/v3/",
            "http://cloud/identity/v3/auth/tokens",
        ),
        // Behind a proxy Keystone knows neither its host nor its scheme.
        (
            "http://cloud/identity/",
            200,
            "v3.14",
            "http://10.0.0.1:5000/identity/v3/",
            "http://cloud/identity/v3/auth/tokens",
        ),
        (
            "http://cloud",
            300,
            "v3.8",
            "http://cloud/moved/v3",
            "http://cloud/moved/v3/auth/tokens",
        ),
        (
            "http://cloud/identity/v2.0",
            300,
            "v3.8",
            "nonsense",
            "http://cloud/identity/v3/auth/tokens",
        ),
        (
            "http://cloud/identity",
            403,
            "v3.8",
            "",
            "http://cloud/identity/v3/auth/tokens",
        ),
    ];
    for (auth_url, status, version, href, url) in cases {
        let fake = Fake::new(move |seen, _| {
            if seen.path.ends_with("tokens") {
                return Some(token(1));
            }
            let root = matches!(seen.path.as_str(), "/identity" | "/identity/" | "/");
            root.then(|| document(status, version, href))
        });
        let cloud = fake.cloud_with(|config| auth_url.clone_into(&mut config.auth_url));
        cloud.project_id().await.unwrap();
        assert_eq!(fake.log().last().unwrap().url, url, "{auth_url}");
    }
}

#[tokio::test]
async fn a_catalog_without_octavia_is_an_error_that_names_what_is_there() {
    let fake = Fake::new(|seen, _| {
        let mut catalog = catalog();
        catalog.as_array_mut().unwrap().remove(0);
        let headers = vec![("x-subject-token", "t".to_owned())];
        seen.path
            .ends_with("tokens")
            .then(|| Reply::Full(201, headers, grant(&catalog).to_string()))
    });
    let error = fake.cloud().check().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NoService);
    assert_eq!(
        error.message,
        "the catalog has no load-balancer with interface public; it has network (public in one), \
         key-manager (public in one)"
    );
    let other = Fake::new(|_, _| None);
    let cloud = other.cloud_with(|config| config.interface = Interface::Internal);
    assert_eq!(cloud.check().await.unwrap_err().kind, ErrorKind::NoService);
}

#[tokio::test]
async fn an_answer_of_keystone_that_is_no_token_is_unreadable() {
    for (headers, body) in [
        (vec![], grant(&catalog()).to_string()),
        (
            vec![("x-subject-token", "t".to_owned())],
            "<html>".to_owned(),
        ),
    ] {
        let fake = Fake::new(move |seen, _| {
            seen.path
                .ends_with("tokens")
                .then(|| Reply::Full(201, headers.clone(), body.clone()))
        });
        let error = fake.cloud().check().await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unreadable, "{error}");
    }
}
