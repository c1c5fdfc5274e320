//! Calls of a cloud's API, over the shapes that clouds share: an object, in an envelope or not; a
//! list, in pages or not; an answer that is not read.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::Method;
use reqwest::Url;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::address::joined;
use super::auth::Authorize;
use super::error::{ApiError, ErrorKind};
use super::exchange::{ApiRequest, ApiResponse, Exchange};
use super::settings::Timeouts;

/// Parameters of a query.
pub type Query<'a> = &'a [(&'a str, &'a str)];

/// The parts of a client that differ between clouds.
pub trait Api: Send + Sync {
    /// Credentials in use, with what came with them.
    type Session: Authorize;
    /// A service of the cloud with an address of its own. Its text names it in errors.
    type Service: Copy + fmt::Display + Send + Sync;

    /// Returns the session in use, or authenticates. `refused` is a session that a service did not
    /// accept.
    fn session(
        &self,
        exchange: &Exchange,
        refused: Option<&Self::Session>,
    ) -> impl Future<Output = Result<Arc<Self::Session>, ApiError>> + Send;

    /// Returns the address under which the paths of a service are, or why the cloud has none.
    fn base<'s>(
        &'s self,
        session: &'s Self::Session,
        service: Self::Service,
    ) -> Result<&'s Url, String>;

    /// Returns the address of the page after `page` of a list. `envelope` is the body without the
    /// objects, `query` that of the first page.
    ///
    /// # Errors
    /// Says why a link to a next page is invalid.
    fn next_page(
        &self,
        _collection: &str,
        _envelope: &Map<String, Value>,
        _page: &Url,
        _query: Query<'_>,
    ) -> Result<Option<Url>, String> {
        Ok(None)
    }
}

/// A client of one API. Its owner adds one method per call.
#[derive(Debug)]
pub struct Client<A> {
    api: A,
    exchange: Exchange,
    timeouts: Timeouts,
    body_limit: AtomicUsize,
}

/// The place of an object or a list.
#[derive(Clone, Copy, Debug)]
pub struct At<'a, S> {
    service: S,
    resource: &'static str,
    path: &'a [&'a str],
    query: Query<'a>,
    envelope: Option<&'static str>,
    private: bool,
}

/// A request that changes something.
#[derive(Clone, Debug)]
pub struct Change {
    /// The method.
    pub method: Method,
    /// The body, as JSON.
    pub body: Option<Value>,
    /// The header `If-Match`.
    pub if_match: Option<String>,
}

/// The most pages that a list may have.
const MAX_PAGES: usize = 10_000;
/// A cloud that reads no body of this size can't be used.
const MIN_BODY_LIMIT: usize = 8 << 10;

// === impl At ===

impl<'a, S: Copy + fmt::Display> At<'a, S> {
    /// Makes the place at a path, without an envelope. `resource` is the kind of object, for the
    /// counters.
    pub const fn new(service: S, resource: &'static str, path: &'a [&'a str]) -> Self {
        Self {
            service,
            resource,
            path,
            query: &[],
            envelope: None,
            private: false,
        }
    }

    /// Adds a query.
    #[must_use]
    pub const fn query(self, query: Query<'a>) -> Self {
        Self { query, ..self }
    }

    /// Names the field of the answer that holds the object.
    #[must_use]
    pub const fn envelope(self, envelope: &'static str) -> Self {
        Self {
            envelope: Some(envelope),
            ..self
        }
    }

    /// Keeps bodies out of traces: they hold secrets.
    #[must_use]
    pub const fn private(self) -> Self {
        Self {
            private: true,
            ..self
        }
    }

    fn url<A: Api<Service = S>>(&self, api: &A, session: &A::Session) -> Result<Url, ApiError> {
        let base = api
            .base(session, self.service)
            .map_err(|why| ApiError::ours(ErrorKind::NoService, &self.name(), why))?;
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
        let mut url = joined(base, self.path);
        if !self.query.is_empty() {
            url.query_pairs_mut().extend_pairs(self.query);
        }
        Ok(url)
    }

    fn name(&self) -> String {
        format!("{} {}", self.service, self.path.join("/"))
    }
}

// === impl Change ===

impl Change {
    /// Makes a change.
    pub fn new(method: Method, body: Option<Value>) -> Self {
        Self {
            method,
            body,
            if_match: None,
        }
    }
}

// === impl Client ===

impl<A: Api> Client<A> {
    /// Makes a client. Nothing is sent yet. `body_limit`: the services refuse larger bodies.
    pub fn new(api: A, exchange: Exchange, timeouts: Timeouts, body_limit: usize) -> Self {
        Self {
            api,
            exchange,
            timeouts,
            body_limit: AtomicUsize::new(body_limit),
        }
    }

    /// Returns the parts that are of this cloud.
    pub fn api(&self) -> &A {
        &self.api
    }

    /// Returns the exchange, for requests of another shape.
    pub fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    /// Returns the session in use, or authenticates.
    pub async fn session(&self) -> Result<Arc<A::Session>, ApiError> {
        self.api.session(&self.exchange, None).await
    }

    /// Returns the limit of bodies in bytes: larger ones are not sent. It shrinks when the cloud
    /// refuses a smaller one.
    pub fn body_limit(&self) -> usize {
        self.body_limit.load(Ordering::Relaxed)
    }

    /// Reads an object; `None` when it does not exist.
    pub async fn object<T: DeserializeOwned>(
        &self,
        at: At<'_, A::Service>,
    ) -> Result<Option<T>, ApiError> {
        match self.read(at).await {
            Ok((url, answer)) => content(&answer, at.envelope, &get(&url)).map(Some),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns whether an object exists.
    pub async fn exists(&self, at: At<'_, A::Service>) -> Result<bool, ApiError> {
        match self.read(at).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads a list with all its pages. `collection` is the field of the answer that holds it.
    pub async fn list<T: DeserializeOwned>(
        &self,
        at: At<'_, A::Service>,
        collection: &str,
    ) -> Result<Vec<T>, ApiError> {
        let (first, mut answer) = self.read(at).await?;
        let name = get(&first);
        let mut page = first;
        let mut seen = BTreeSet::new();
        let mut all = Vec::new();
        loop {
            let mut envelope: Map<String, Value> = answer.json(&name)?;
            let rows = envelope.remove(collection).ok_or_else(|| {
                answer.unreadable(&name, format!("no {collection} in the answer"))
            })?;
            let rows: Vec<T> = serde_json::from_value(rows)
                .map_err(|why| answer.unreadable(&name, format!("{collection}: {why}")))?;
            all.extend(rows);
            let next = self.api.next_page(collection, &envelope, &page, at.query);
            let Some(next) = next.map_err(|why| answer.unreadable(&name, why))? else {
                return Ok(all);
            };
            if !seen.insert(next.clone()) || seen.len() > MAX_PAGES {
                return Err(answer.unreadable(&name, "the list has too many pages"));
            }
            page = next;
            answer = self.send(&at, Some(&page), None).await?.1;
        }
    }

    /// Makes a change that is answered by an object.
    pub async fn changed<T: DeserializeOwned>(
        &self,
        at: At<'_, A::Service>,
        change: Change,
    ) -> Result<T, ApiError> {
        let method = change.method.to_string();
        let (url, answer) = self.send(&at, None, Some(change)).await?;
        content(&answer, at.envelope, &format!("{method} {}", url.path()))
    }

    /// Makes a change of which the answer is not read.
    pub async fn done(&self, at: At<'_, A::Service>, change: Change) -> Result<(), ApiError> {
        self.send(&at, None, Some(change)).await.map(drop)
    }

    /// Deletes an object. An object that does not exist any more is deleted.
    pub async fn delete(&self, at: At<'_, A::Service>) -> Result<(), ApiError> {
        match self.done(at, Change::new(Method::DELETE, None)).await {
            Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    async fn read(&self, at: At<'_, A::Service>) -> Result<(Url, ApiResponse), ApiError> {
        self.send(&at, None, None).await
    }

    /// Sends it with the session; a refused one is replaced once.
    async fn send(
        &self,
        at: &At<'_, A::Service>,
        page: Option<&Url>,
        change: Option<Change>,
    ) -> Result<(Url, ApiResponse), ApiError> {
        let mut change = change.unwrap_or_else(|| Change::new(Method::GET, None));
        let body = change.body.take().map(|body| Bytes::from(body.to_string()));
        let mut session = self.session().await?;
        let mut again = true;
        loop {
            let url = match page {
                Some(page) => page.clone(),
                None => at.url(&self.api, &session)?,
            };
            let result = self
                .send_once(at, url.clone(), &change, body.clone(), &session)
                .await;
            match result {
                Err(error) if error.kind == ErrorKind::Unauthorized && again => {
                    again = false;
                    session = self.api.session(&self.exchange, Some(&session)).await?;
                }
                Err(error) => return Err(error),
                Ok(answer) => return Ok((url, answer)),
            }
        }
    }

    async fn send_once(
        &self,
        at: &At<'_, A::Service>,
        url: Url,
        change: &Change,
        body: Option<Bytes>,
        session: &A::Session,
    ) -> Result<ApiResponse, ApiError> {
        let timeout = match change.method {
            Method::GET => self.timeouts.read,
            _ => self.timeouts.write,
        };
        let request = ApiRequest {
            auth: Some(session),
            if_match: change.if_match.clone(),
            private: at.private,
            ..ApiRequest::new(change.method.clone(), url, at.resource, timeout)
        };
        let size = body.as_ref().map_or(0, Bytes::len);
        let limit = self.body_limit();
        if size > limit {
            let why = format!("{size} bytes; {limit} are the limit");
            return Err(ApiError::ours(ErrorKind::TooLarge, &request.name(), why));
        }
        let result = self.exchange.send(ApiRequest { body, ..request }).await;
        result.map_err(|error| match error.kind {
            ErrorKind::TooLarge if self.halve_limit(size) => ApiError {
                kind: ErrorKind::Halved,
                ..error
            },
            _ => error,
        })
    }

    /// Lowers the limit after a body of this size was refused, as a proxy before the services may
    /// be stricter than they are. Returns whether the next body is smaller for it.
    fn halve_limit(&self, size: usize) -> bool {
        let limit = (size / 2).max(MIN_BODY_LIMIT);
        if size <= limit {
            return false;
        }
        let before = self.body_limit.fetch_min(limit, Ordering::Relaxed);
        if limit < before {
            tracing::warn!(
                size,
                limit,
                "a request is too large for the cloud; the next ones are smaller"
            );
        }
        true
    }
}

fn get(url: &Url) -> String {
    format!("GET {}", url.path())
}

fn content<T: DeserializeOwned>(
    answer: &ApiResponse,
    envelope: Option<&str>,
    name: &str,
) -> Result<T, ApiError> {
    let Some(envelope) = envelope else {
        return answer.json(name);
    };
    let mut body: Map<String, Value> = answer.json(name)?;
    let Some(object) = body.remove(envelope) else {
        return Err(answer.unreadable(name, format!("no {envelope} in the answer")));
    };
    serde_json::from_value(object)
        .map_err(|why| answer.unreadable(name, format!("{envelope}: {why}")))
}
