//! The API of one zone: its address, and the credentials in use.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Method, Request};
use jiff::Timestamp;
use landfall_rest::{
    Api, ApiError, ApiRequest, Authorize, ErrorKind, Exchange, Url, http_url, joined,
};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::credentials::{Credentials, CredentialsError, CredentialsSource};
use super::settings::CloudConfig;
use super::signature::{Signed, VALIDITY};
use crate::objects::{Zone, Zones};

/// The API of a zone.
#[derive(Debug)]
pub(super) struct ZoneApi {
    source: CredentialsSource,
    zone: String,
    endpoint: Url,
    auth_timeout: Duration,
    /// The zone's own address.
    base: OnceCell<Url>,
    latest: Mutex<Option<Latest>>,
}

/// Credentials in use, and where.
#[derive(Debug)]
pub(super) struct ZoneSession {
    credentials: Credentials,
    base: Url,
}

/// All services of a zone have one address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Service;

#[derive(Debug)]
struct Latest {
    session: Arc<ZoneSession>,
    read_at: Instant,
}

/// How long credentials are used before they are read again. It costs no request.
const READ_EVERY: Duration = Duration::from_secs(10);

impl std::fmt::Display for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("exoscale")
    }
}

// === impl ZoneApi ===

impl ZoneApi {
    pub fn new(config: &CloudConfig) -> Result<Self, String> {
        Ok(Self {
            source: config.credentials.clone(),
            zone: config.zone.clone(),
            endpoint: http_url(&config.endpoint)?,
            auth_timeout: config.timeouts.auth,
            base: OnceCell::new(),
            latest: Mutex::default(),
        })
    }

    /// Returns the zone's own address.
    async fn base(&self, exchange: &Exchange) -> Result<&Url, ApiError> {
        let find = || async {
            let url = joined(&self.endpoint, &["zone"]);
            // Everyone may read the list, also with keys that are restricted to other calls.
            let request = ApiRequest::new(Method::GET, url, "zone", self.auth_timeout);
            let name = request.name();
            let zones: Zones = exchange.send(request).await?.json(&name)?;
            address(&zones.zones, &self.zone)
                .map_err(|why| ApiError::ours(ErrorKind::NoService, &name, why))
        };
        self.base.get_or_try_init(find).await
    }

    /// Returns the session in use, unless its credentials should be read again.
    fn fresh(&self) -> Option<Arc<ZoneSession>> {
        let latest = self.lock();
        let latest = latest.as_ref()?;
        let given = matches!(self.source, CredentialsSource::Given(_));
        let fresh = given || latest.read_at.elapsed() < READ_EVERY;
        fresh.then(|| Arc::clone(&latest.session))
    }

    /// Takes what was read. What can't be read changes nothing while there is a session.
    fn renew(
        &self,
        base: &Url,
        read: Result<Credentials, CredentialsError>,
    ) -> Result<Arc<ZoneSession>, CredentialsError> {
        let mut latest = self.lock();
        let now = Instant::now();
        let credentials = match (read, latest.as_mut()) {
            (Err(error), None) => return Err(error),
            (Err(error), Some(latest)) => {
                tracing::warn!(%error, "the credentials can't be read; the old ones are used");
                latest.read_at = now;
                return Ok(Arc::clone(&latest.session));
            }
            (Ok(credentials), Some(latest)) if latest.session.credentials == credentials => {
                latest.read_at = now;
                return Ok(Arc::clone(&latest.session));
            }
            (Ok(credentials), _) => credentials,
        };
        tracing::info!(key = credentials.key, "credentials read");
        let session = Arc::new(ZoneSession {
            credentials,
            base: base.clone(),
        });
        *latest = Some(Latest {
            session: Arc::clone(&session),
            read_at: now,
        });
        Ok(session)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Latest>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Api for ZoneApi {
    type Session = ZoneSession;
    type Service = Service;

    /// Refused credentials are read again. If they are still the same, the request is sent again
    /// with a newer signature.
    async fn session(
        &self,
        exchange: &Exchange,
        refused: Option<&ZoneSession>,
    ) -> Result<Arc<ZoneSession>, ApiError> {
        if refused.is_none()
            && let Some(session) = self.fresh()
        {
            return Ok(session);
        }
        let base = self.base(exchange).await?;
        let read = self.source.read().await;
        self.renew(base, read).map_err(|error| {
            ApiError::ours(ErrorKind::Unauthorized, "credentials", error.to_string())
        })
    }

    fn base<'s>(&'s self, session: &'s ZoneSession, _: Service) -> Result<&'s Url, String> {
        Ok(&session.base)
    }
}

impl Authorize for ZoneSession {
    fn authorize(&self, request: &mut Request<Bytes>) -> Result<(), String> {
        let validity = i64::try_from(VALIDITY.as_secs()).unwrap_or_default();
        let signed = Signed {
            method: request.method().as_str(),
            path: request.uri().path(),
            query: request.uri().query().unwrap_or_default(),
            body: request.body(),
            expires: Timestamp::now().as_second().saturating_add(validity),
        };
        let secret = self.credentials.secret.expose_secret();
        let header = signed.header(&self.credentials.key, secret);
        let mut value = HeaderValue::try_from(header)
            .map_err(|_| "the API key can't stand in a header".to_owned())?;
        value.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, value);
        Ok(())
    }

    fn secret(&self) -> Option<&SecretString> {
        Some(&self.credentials.secret)
    }
}

/// Finds the address of a zone in the list of all.
fn address(zones: &[Zone], name: &str) -> Result<Url, String> {
    let Some(zone) = zones.iter().find(|zone| zone.name == name) else {
        let names: Vec<_> = zones.iter().map(|zone| zone.name.as_str()).collect();
        return Err(format!("no zone {name:?}: there are {}", names.join(", ")));
    };
    let Some(endpoint) = &zone.api_endpoint else {
        return Err(format!("zone {name} has no api-endpoint"));
    };
    http_url(endpoint).map_err(|why| format!("api-endpoint of zone {name}: {why}"))
}
