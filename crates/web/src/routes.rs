//! The routes: which question is answered with what.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Path, Query, State};
use axum::http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use http_body_util::LengthLimitError;
use landfall_model::ServiceKey;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;

use crate::error::ApiError;
use crate::events::Events;
use crate::guard::guard;
use crate::metrics::{Format, Scope};
use crate::texts::{Subject, Texts};
use crate::{Instance, Options, metrics, page, token};

/// Manifests of some thousand Services.
const MOST_BODY_BYTES: usize = 8 * 1024 * 1024;

/// How long a body of that size may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// A plan is work for the processor: one at a time, and a few may wait.
const MOST_PLANS: usize = 4;

/// How long a plan may take, waiting for its turn included.
const PLAN_TIMEOUT: Duration = Duration::from_secs(60);

const JSON: &str = "application/json";

/// What every handler may use.
struct Shared<I> {
    instance: Arc<I>,
    events: Events,
    plans: Arc<Plans>,
    texts: Texts,
}

struct Plans {
    /// Requests that plan or wait.
    places: Semaphore,
    /// The one that plans.
    turn: Semaphore,
}

/// One line of the index.
#[derive(Serialize)]
struct Entry {
    method: &'static str,
    path: &'static str,
    answers: &'static str,
}

#[derive(Deserialize)]
struct PlanQuery {
    #[serde(default)]
    prune: bool,
}

#[derive(Deserialize)]
struct ScrapeQuery {
    #[serde(default = "yes")]
    members: bool,
    #[serde(default = "yes")]
    histograms: bool,
}

const fn yes() -> bool {
    true
}

const INDEX: &[Entry] = &[
    entry("GET", "/", "the status page"),
    entry(
        "GET",
        "/healthz",
        "200 while the control loop works; /livez is the same",
    ),
    entry(
        "GET",
        "/readyz",
        "200 once every Service was reconciled once",
    ),
    entry(
        "GET",
        "/metrics",
        "metrics, as OpenMetrics or as the text format of Prometheus; ?members=false leaves out \
        the series of single members",
    ),
    entry("GET", "/api/v1/", "this list"),
    entry("GET", "/api/v1/instance", "all of the instance's data"),
    entry(
        "GET",
        "/api/v1/services",
        "the LoadBalancer Services with their status, as a Kubernetes v1 List",
    ),
    entry(
        "GET",
        "/api/v1/services/{namespace}/{name}",
        "one Service: spec, address, listeners, members and reasons",
    ),
    entry(
        "POST",
        "/api/v1/plan",
        "the steps that the manifests in the body would cause; changes nothing; ?prune=true treats \
        Services that are not among them as deleted",
    ),
    entry(
        "GET",
        "/api/v1/events",
        "a stream (text/event-stream) that notifies of changes",
    ),
];

const fn entry(method: &'static str, path: &'static str, answers: &'static str) -> Entry {
    Entry {
        method,
        path,
        answers,
    }
}

/// Whether it is what decides if the process is restarted and gets traffic.
pub(crate) fn is_probe(path: &str) -> bool {
    matches!(path, "/healthz" | "/livez" | "/readyz")
}

/// All routes of an instance, guarded.
pub(crate) fn router<I: Instance>(
    instance: Arc<I>,
    options: Options,
    cancel: CancellationToken,
) -> Router {
    let shared = Shared {
        instance,
        events: Events::new(cancel),
        plans: Arc::new(Plans {
            places: Semaphore::new(MOST_PLANS),
            turn: Semaphore::new(1),
        }),
        texts: Texts::default(),
    };
    let router = Router::new()
        .route("/", get(async || page::INDEX))
        .route("/assets/{name}", get(asset))
        .route("/healthz", get(healthz::<I>))
        .route("/livez", get(healthz::<I>))
        .route("/readyz", get(readyz::<I>))
        .route("/metrics", get(scrape::<I>))
        .route("/api/v1", get(async || Json(INDEX)))
        .route("/api/v1/", get(async || Json(INDEX)))
        .route("/api/v1/instance", get(view::<I>))
        .route("/api/v1/services", get(services::<I>))
        .route("/api/v1/services/{namespace}/{name}", get(service::<I>))
        .route("/api/v1/events", get(events::<I>))
        .route("/api/v1/plan", post(plan::<I>))
        .fallback(nowhere)
        .method_not_allowed_fallback(wrong_method)
        .layer(CompressionLayer::new().quality(CompressionLevel::Fastest));
    let router = match options.token {
        Some(token) => router.layer(middleware::from_fn_with_state(token, token::ask)),
        None => router,
    };
    router
        .layer(middleware::from_fn_with_state(options.names, guard))
        .with_state(Arc::new(shared))
}

async fn asset(Path(name): Path<String>) -> Result<page::Asset, ApiError> {
    page::asset(&name)
}

async fn healthz<I: Instance>(State(shared): State<Arc<Shared<I>>>) -> (StatusCode, String) {
    let heartbeat = shared.instance.heartbeat();
    if heartbeat.alive() {
        return (StatusCode::OK, "ok\n".to_owned());
    }
    let text = format!(
        "the control loop has not run for {} s; more than {} s means that it is stuck\n",
        heartbeat.age.as_secs(),
        heartbeat.limit.as_secs()
    );
    (StatusCode::SERVICE_UNAVAILABLE, text)
}

async fn readyz<I: Instance>(State(shared): State<Arc<Shared<I>>>) -> (StatusCode, String) {
    let readiness = shared.instance.readiness();
    if readiness.ready {
        return (StatusCode::OK, "ready\n".to_owned());
    }
    let waiting = if readiness.waiting.is_empty() {
        "starting".to_owned()
    } else {
        readiness.waiting.join("; ")
    };
    (
        StatusCode::SERVICE_UNAVAILABLE,
        format!("not ready: {waiting}\n"),
    )
}

async fn scrape<I: Instance>(
    State(shared): State<Arc<Shared<I>>>,
    query: Result<Query<ScrapeQuery>, axum::extract::rejection::QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let Ok(Query(scope)) = query else {
        return Err(ApiError::new(
            StatusCode::BAD_REQUEST,
            "InvalidQuery",
            "members is either true or false, and histograms as well",
        ));
    };
    let scope = Scope {
        members: scope.members,
        histograms: scope.histograms,
    };
    let accept = headers.get_all(ACCEPT).iter();
    let format = Format::accepted(accept.filter_map(|value| value.to_str().ok()));
    let instance = shared.instance.clone();
    let make = move || {
        let age = instance.heartbeat().age;
        let text = metrics::encode(instance.view(), instance.metrics(), age, scope);
        let text = text.map_err(|error| format!("the metrics can't be written: {error}"))?;
        Ok(format.convert(text).into_bytes())
    };
    let text = shared.texts.get(Subject::Metrics(scope, format), make);
    let described = [(CONTENT_TYPE, format.content_type()), (VARY, "accept")];
    Ok((described, text.await?.into_body()).into_response())
}

async fn view<I: Instance>(State(shared): State<Arc<Shared<I>>>) -> Result<Response, ApiError> {
    let instance = shared.instance.clone();
    let make = move || json(&*instance.view());
    let text = shared.texts.get(Subject::Instance, make).await?;
    Ok(([(CONTENT_TYPE, JSON)], text.into_body()).into_response())
}

async fn services<I: Instance>(State(shared): State<Arc<Shared<I>>>) -> Result<Response, ApiError> {
    let instance = shared.instance.clone();
    let make = move || json(&instance.services_json());
    let text = shared.texts.get(Subject::Services, make).await?;
    Ok(([(CONTENT_TYPE, JSON)], text.into_body()).into_response())
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, String> {
    serde_json::to_vec(value).map_err(|error| error.to_string())
}

async fn service<I: Instance>(
    State(shared): State<Arc<Shared<I>>>,
    Path((namespace, name)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let key = ServiceKey::new(&namespace, &name);
    let found = shared.instance.service(&key).await;
    found
        .map(|service| Json(service).into_response())
        .ok_or_else(|| {
            ApiError::not_found(format!(
                "no Service {key} of type LoadBalancer is served by this instance{}",
                others(&shared.instance.similar(&key))
            ))
        })
}

/// Names Services that may have been meant.
fn others(similar: &[ServiceKey]) -> String {
    let named: Vec<String> = similar.iter().map(ToString::to_string).collect();
    if named.is_empty() {
        "; it serves none".to_owned()
    } else {
        format!("; it serves {}, for example", named.join(", "))
    }
}

async fn events<I: Instance>(
    State(shared): State<Arc<Shared<I>>>,
) -> Result<impl IntoResponse, ApiError> {
    shared.events.stream(shared.instance.changed())
}

async fn plan<I: Instance>(
    State(shared): State<Arc<Shared<I>>>,
    query: Result<Query<PlanQuery>, axum::extract::rejection::QueryRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let Ok(Query(PlanQuery { prune })) = query else {
        return Err(ApiError::new(
            StatusCode::BAD_REQUEST,
            "InvalidQuery",
            "prune is either true or false",
        ));
    };
    let plans = Arc::clone(&shared.plans);
    let _place = plans.places.try_acquire().map_err(|_| too_many_plans())?;
    let manifests = read(&headers, body).await?;
    let planned = tokio::time::timeout(PLAN_TIMEOUT, async {
        let _turn = plans.turn.acquire().await.map_err(|_| too_many_plans())?;
        let planned = shared.instance.plan(manifests.into(), prune).await;
        planned.map_err(ApiError::from)
    });
    match planned.await {
        Ok(planned) => Ok(Json(planned?).into_response()),
        Err(_) => Err(ApiError::busy(format!(
            "no plan within {} s",
            PLAN_TIMEOUT.as_secs()
        ))),
    }
}

fn too_many_plans() -> ApiError {
    ApiError::busy("other plans are being made; try again in a moment")
}

/// The body, within bounds of size and time.
async fn read(headers: &HeaderMap, body: Body) -> Result<Bytes, ApiError> {
    let too_large = || {
        ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "TooLarge",
            format!("the manifests are larger than {MOST_BODY_BYTES} bytes"),
        )
    };
    let announced = headers.get(CONTENT_LENGTH);
    let announced = announced.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > MOST_BODY_BYTES) {
        return Err(too_large());
    }
    match tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, MOST_BODY_BYTES)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if is_length_limit(&error) => Err(too_large()),
        Ok(Err(_)) => Err(ApiError::new(
            StatusCode::BAD_REQUEST,
            "BrokenBody",
            "the body ended before its announced end",
        )),
        Err(_) => Err(ApiError::new(
            StatusCode::REQUEST_TIMEOUT,
            "Timeout",
            format!("the body took longer than {} s", BODY_TIMEOUT.as_secs()),
        )),
    }
}

fn is_length_limit(error: &axum::Error) -> bool {
    std::error::Error::source(error).is_some_and(<dyn std::error::Error>::is::<LengthLimitError>)
}

async fn nowhere(uri: Uri) -> ApiError {
    ApiError::not_found(format!("{} does not exist; see /api/v1/", uri.path()))
}

async fn wrong_method() -> ApiError {
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "MethodNotAllowed",
        "this path does not support that method; see /api/v1/",
    )
}
