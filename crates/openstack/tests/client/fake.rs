//! A cloud in this process that answers as a test sets it up, and records the calls.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use landfall_openstack::client::auth::{Auth, DomainRef, ProjectRef, Scope, UserRef};
use landfall_openstack::client::{Cloud, CloudConfig, NoAnswer, Transport};
use serde_json::{Value, json};
use tokio::time::Instant;

pub const PASSWORD: &str = "p4ss\"word";
pub const PROJECT: &str = "p1";

/// A request that was seen.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: String,
    /// With scheme and host.
    pub url: String,
    /// Path and query.
    pub path: String,
    pub token: Option<String>,
    pub subject: Option<String>,
    pub if_match: Option<String>,
    pub body: Value,
    /// Since the fake was made.
    pub at: Duration,
}

/// What is answered.
pub enum Reply {
    Json(u16, Value),
    Full(u16, Vec<(&'static str, String)>, String),
    None(NoAnswer),
    /// After a while.
    Late(Duration, Box<Reply>),
}

type Answers = dyn Fn(&Seen, usize) -> Option<Reply> + Send + Sync;

/// The cloud. Keystone, a catalog and Octavia's versions are there by default.
#[derive(Clone)]
pub struct Fake {
    log: Arc<Mutex<Vec<Seen>>>,
    start: Instant,
    answers: Arc<Answers>,
}

impl Fake {
    /// `answers` gets each request and how many of the same method and path came before.
    pub fn new(answers: impl Fn(&Seen, usize) -> Option<Reply> + Send + Sync + 'static) -> Self {
        Self {
            log: Arc::default(),
            start: Instant::now(),
            answers: Arc::new(answers),
        }
    }

    pub fn cloud(&self) -> Cloud {
        self.cloud_with(|_| ())
    }

    pub fn cloud_with(&self, change: impl FnOnce(&mut CloudConfig)) -> Cloud {
        let mut config = CloudConfig::new("http://cloud/identity/v3", password());
        change(&mut config);
        let fake = self.clone();
        let transport = Transport::InProcess(Arc::new(move |request| {
            let fake = fake.clone();
            Box::pin(async move { fake.answer(&request).await })
        }));
        Cloud::over(config, transport).unwrap()
    }

    pub fn log(&self) -> Vec<Seen> {
        self.log.lock().unwrap().clone()
    }

    /// `GET /v2/lbaas/pools`, without those of Keystone.
    pub fn asked(&self) -> Vec<String> {
        let log = self.log();
        let others = log
            .iter()
            .filter(|seen| !seen.path.contains("/auth/tokens"));
        others
            .map(|seen| format!("{} {}", seen.method, seen.path))
            .collect()
    }

    /// Authentications.
    pub fn tokens(&self) -> usize {
        let log = self.log();
        log.iter()
            .filter(|seen| seen.path.ends_with("/v3/auth/tokens"))
            .count()
    }

    async fn answer(&self, request: &Request<Bytes>) -> Result<Response<Bytes>, NoAnswer> {
        let header = |name: &str| {
            let value = request.headers().get(name);
            value.map(|value| value.to_str().unwrap().to_owned())
        };
        let seen = Seen {
            method: request.method().to_string(),
            url: request.uri().to_string(),
            path: request.uri().path_and_query().unwrap().to_string(),
            token: header("x-auth-token"),
            subject: header("x-subject-token"),
            if_match: header("if-match"),
            body: serde_json::from_slice(request.body()).unwrap_or_default(),
            at: self.start.elapsed(),
        };
        let before = {
            let mut log = self.log.lock().unwrap();
            let before = log
                .iter()
                .filter(|old| old.method == seen.method && old.path == seen.path);
            let before = before.count();
            log.push(seen.clone());
            before
        };
        let mut reply = (self.answers)(&seen, before).unwrap_or_else(|| standard(&seen, before));
        while let Reply::Late(time, then) = reply {
            tokio::time::sleep(time).await;
            reply = *then;
        }
        let (status, headers, body) = match reply {
            Reply::Json(status, body) => (status, vec![], body.to_string()),
            Reply::Full(status, headers, body) => (status, headers, body),
            Reply::None(why) => return Err(why),
            Reply::Late(..) => unreachable!(),
        };
        let mut answer = Response::builder().status(status);
        for (name, value) in headers {
            answer = answer.header(name, value);
        }
        Ok(answer.body(Bytes::from(body)).unwrap())
    }
}

/// A user with a password, for a project.
pub fn password() -> Auth {
    let domain = || DomainRef::Id("default".to_owned());
    Auth::Password {
        user: UserRef::Name {
            name: "demo".to_owned(),
            domain: domain(),
        },
        password: PASSWORD.into(),
        scope: Scope::Project(ProjectRef::Name {
            name: "demo".to_owned(),
            domain: domain(),
        }),
    }
}

/// A token that lives an hour.
pub fn token(number: usize) -> Reply {
    let headers = vec![("x-subject-token", format!("token-{number}"))];
    Reply::Full(201, headers, grant(&catalog()).to_string())
}

/// What Keystone says of a token.
pub fn grant(catalog: &Value) -> Value {
    json!({"token": {
        "issued_at": "2026-11-20T10:00:00.000000Z",
        "expires_at": "2026-11-20T11:00:00.000000Z",
        "project": {"id": PROJECT, "name": "demo"},
        "catalog": catalog,
    }})
}

/// Everything under one host, Octavia with a version in its address.
pub fn catalog() -> Value {
    let service = |kind: &str, url: &str| {
        let endpoint =
            json!({"interface": "public", "region": "one", "region_id": "one", "url": url});
        json!({"type": kind, "name": kind, "endpoints": [endpoint]})
    };
    json!([
        service("load-balancer", "http://cloud/octavia/v2.0"),
        service("network", "http://cloud/neutron"),
        service("key-manager", "http://cloud/barbican/"),
    ])
}

/// Octavia's form of a refusal.
pub fn fault(status: u16, text: &str) -> Reply {
    Reply::Json(
        status,
        json!({"faultcode": "Client", "faultstring": text, "debuginfo": null}),
    )
}

fn standard(seen: &Seen, before: usize) -> Reply {
    match seen.path.as_str() {
        "/identity/v3/auth/tokens" => token(before + 1),
        "/octavia/" => Reply::Json(200, json!({"versions": [{"id": "v2.0"}, {"id": "v2.27"}]})),
        _ => fault(404, "Nothing here."),
    }
}
