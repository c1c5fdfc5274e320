//! A call of a service: its address from the catalog, the token, a second try after a refused
//! token, and the shapes that all services share: one object in an envelope, a list in pages,
//! nothing.

use std::collections::BTreeSet;

use http::Method;
use reqwest::Url;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::Cloud;
use super::catalog::{Service, joined};
use super::error::{ApiError, ErrorKind};
use super::exchange::{Answer, Ask};
use super::session::Session;
use crate::objects::Id;

/// Parameters of a query.
pub type Query<'a> = &'a [(&'a str, &'a str)];

/// Where an object or a list is.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    pub service: Service,
    /// For the counters.
    pub resource: &'static str,
    pub path: &'a [&'a str],
    pub query: Query<'a>,
}

/// A change.
pub(super) struct Change {
    pub method: Method,
    pub body: Option<Value>,
    pub if_match: Option<u64>,
}

/// A list is not longer than so many pages.
const MOST_PAGES: usize = 10_000;

// === impl At ===

impl<'a> At<'a> {
    pub const fn new(service: Service, resource: &'static str, path: &'a [&'a str]) -> Self {
        Self {
            service,
            resource,
            path,
            query: &[],
        }
    }

    pub const fn query(self, query: Query<'a>) -> Self {
        Self { query, ..self }
    }

    fn url(&self, session: &Session) -> Result<Url, ApiError> {
        let endpoints = &session.endpoints;
        let base = match self.service {
            Service::LoadBalancer => &endpoints.load_balancer,
            Service::Network => &endpoints.network,
            Service::KeyManager => endpoints.key_manager.as_ref().ok_or_else(|| {
                let why = "the catalog has no key-manager";
                ApiError::ours(ErrorKind::NoService, &self.name(), why)
            })?,
        };
        // An id comes from annotations, too. It must not lead to another object.
        let plain = |part: &str| {
            !part.is_empty()
                && !part.starts_with('.')
                && part
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        };
        if !self.path.iter().all(|part| plain(part)) {
            let why = "not an id";
            return Err(ApiError::ours(ErrorKind::Invalid, &self.name(), why));
        }
        let mut url = joined(&base.api, self.path);
        if !self.query.is_empty() {
            url.query_pairs_mut().extend_pairs(self.query);
        }
        Ok(url)
    }

    fn name(&self) -> String {
        format!("{} {}", self.service.kind(), self.path.join("/"))
    }
}

// === impl Change ===

impl Change {
    pub fn new(method: Method, body: Option<Value>) -> Self {
        Self {
            method,
            body,
            if_match: None,
        }
    }
}

// === impl Cloud ===

impl Cloud {
    /// An object; `None` when it isn't there.
    pub(super) async fn object<T: DeserializeOwned>(
        &self,
        at: At<'_>,
        envelope: &str,
    ) -> Result<Option<T>, ApiError> {
        match self.read(at).await {
            Ok((url, answer)) => taken_out(&answer, envelope, &get(&url)).map(Some),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether an object is there.
    pub(super) async fn exists(&self, at: At<'_>) -> Result<bool, ApiError> {
        match self.read(at).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A list, all its pages.
    pub(super) async fn list<T: DeserializeOwned>(
        &self,
        at: At<'_>,
        collection: &str,
    ) -> Result<Vec<T>, ApiError> {
        let (first, mut answer) = self.read(at).await?;
        let name = get(&first);
        let mut page = first.clone();
        let mut seen = BTreeSet::new();
        let mut all = Vec::new();
        loop {
            let mut envelope: Map<String, Value> = read(&answer, &name)?;
            let links = envelope.remove(&format!("{collection}_links"));
            let rows = envelope.remove(collection).ok_or_else(|| {
                unreadable(&answer, &name, format!("no {collection} in the answer"))
            })?;
            let rows: Vec<T> = serde_json::from_value(rows)
                .map_err(|why| unreadable(&answer, &name, format!("{collection}: {why}")))?;
            all.extend(rows);
            let Some(next) = next_page(links.as_ref(), &page, at.query)
                .map_err(|why| unreadable(&answer, &name, why))?
            else {
                return Ok(all);
            };
            if !seen.insert(next.clone()) || seen.len() > MOST_PAGES {
                let why = "the list has too many pages".to_owned();
                return Err(unreadable(&answer, &name, why));
            }
            page = next;
            answer = self.send(&at, Some(&page), None).await?.1;
        }
    }

    /// A change that answers the object.
    pub(super) async fn changed<T: DeserializeOwned>(
        &self,
        at: At<'_>,
        envelope: &str,
        change: Change,
    ) -> Result<T, ApiError> {
        let name = change.method.to_string();
        let (url, answer) = self.send(&at, None, Some(change)).await?;
        taken_out(&answer, envelope, &format!("{name} {}", url.path()))
    }

    /// A change of which the answer is not read.
    pub(super) async fn done(&self, at: At<'_>, change: Change) -> Result<(), ApiError> {
        self.send(&at, None, Some(change)).await.map(drop)
    }

    /// Takes an object away; it is well when it is gone already.
    pub(super) async fn gone(&self, at: At<'_>) -> Result<(), ApiError> {
        match self.done(at, Change::new(Method::DELETE, None)).await {
            Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    pub(super) async fn read(&self, at: At<'_>) -> Result<(Url, Answer), ApiError> {
        self.send(&at, None, None).await
    }

    /// Sends it with the token; a refused one is replaced once.
    async fn send(
        &self,
        at: &At<'_>,
        page: Option<&Url>,
        change: Option<Change>,
    ) -> Result<(Url, Answer), ApiError> {
        let mut change = change.unwrap_or_else(|| Change::new(Method::GET, None));
        let body = change
            .body
            .take()
            .map(|body| bytes::Bytes::from(body.to_string()));
        let mut session = self.session(None).await?;
        let mut again = true;
        loop {
            let url = match page {
                Some(page) => page.clone(),
                None => at.url(&session)?,
            };
            let result = self
                .send_once(at, url.clone(), &change, body.clone(), &session)
                .await;
            match result {
                Err(error) if error.kind == ErrorKind::Unauthorized && again => {
                    again = false;
                    session = self.session(Some(&session)).await?;
                }
                Err(error) => return Err(error),
                Ok(answer) => return Ok((url, answer)),
            }
        }
    }

    async fn send_once(
        &self,
        at: &At<'_>,
        url: Url,
        change: &Change,
        body: Option<bytes::Bytes>,
        session: &Session,
    ) -> Result<Answer, ApiError> {
        let timeouts = self.config().timeouts;
        let time_limit = match change.method {
            Method::GET => timeouts.read,
            _ => timeouts.write,
        };
        let ask = Ask {
            token: Some(&session.token),
            if_match: change.if_match,
            ..Ask::new(change.method.clone(), url, at.resource, time_limit)
        };
        let size = body.as_ref().map_or(0, bytes::Bytes::len);
        if size > self.body_limit() {
            let why = format!("{size} bytes; {} are the limit", self.body_limit());
            return Err(ApiError::ours(ErrorKind::TooLarge, &ask.name(), why));
        }
        let outcome = self.exchange().ask(Ask { body, ..ask }).await;
        outcome.map_err(|error| match error.kind {
            ErrorKind::TooLarge if self.halve(size) => ApiError {
                kind: ErrorKind::Halved,
                ..error
            },
            _ => error,
        })
    }
}

fn get(url: &Url) -> String {
    format!("GET {}", url.path())
}

fn unreadable(answer: &Answer, name: &str, why: String) -> ApiError {
    ApiError {
        request_id: answer.request_id.clone(),
        ..ApiError::ours(ErrorKind::Unreadable, name, why)
    }
}

fn read<T: DeserializeOwned>(answer: &Answer, name: &str) -> Result<T, ApiError> {
    serde_json::from_slice(&answer.body).map_err(|why| unreadable(answer, name, why.to_string()))
}

fn taken_out<T: DeserializeOwned>(
    answer: &Answer,
    envelope: &str,
    name: &str,
) -> Result<T, ApiError> {
    let mut body: Map<String, Value> = read(answer, name)?;
    let Some(object) = body.remove(envelope) else {
        let why = format!("no {envelope} in the answer");
        return Err(unreadable(answer, name, why));
    };
    serde_json::from_value(object)
        .map_err(|why| unreadable(answer, name, format!("{envelope}: {why}")))
}

/// The next page: what the link asks for, at the address that we know. Behind a proxy, services
/// write links with a scheme, a host and a port of their own, which are not looked at: another host
/// must not get the token. Octavia's links forget the filters of the list (its pagination repeats
/// `limit`, `sort` and `marker` only), so that they are put in again.
fn next_page(links: Option<&Value>, page: &Url, query: Query<'_>) -> Result<Option<Url>, String> {
    let links = links.and_then(Value::as_array);
    let mut links = links.into_iter().flatten();
    let Some(next) = links.find(|link| link["rel"] == "next") else {
        return Ok(None);
    };
    let href = next["href"].as_str().unwrap_or_default();
    let (_, asked) = href
        .split_once('?')
        .ok_or_else(|| format!("the link to the next page is invalid: {href:?}"))?;
    let mut next = page.clone();
    next.set_query(asked.split('#').next());
    for (key, value) in query {
        if !next.query_pairs().any(|(known, _)| known == *key) {
            next.query_pairs_mut().append_pair(key, value);
        }
    }
    Ok(Some(next))
}

/// The project's id as a filter, where there is one.
pub(super) fn of_project(project: Option<&Id>) -> Option<(&'static str, &str)> {
    project.map(|id| ("project_id", id.as_str()))
}
