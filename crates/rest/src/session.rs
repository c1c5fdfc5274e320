//! The session of a client: one token for all calls, renewed before it expires, and replaced when
//! it is refused.
//!
//! While one call renews it early, the others use the old one. So do all calls, until it expires,
//! while the server that issues tokens can't be reached.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as Lock, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use secrecy::SecretString;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::auth::Authorize;
use super::error::{ApiError, ErrorKind};

/// What an authentication gave: a token, and what came with it.
#[derive(Debug)]
pub struct Grant<T> {
    /// The credentials for requests.
    pub value: T,
    /// How long they are valid from now on, if that is known and they can be renewed.
    pub lifetime: Option<Duration>,
}

/// A granted value in use.
#[derive(Debug)]
pub struct Session<T> {
    value: T,
    /// Counts the sessions, so that a refused one is not confused with its successor.
    number: u64,
    expires_at: Option<Instant>,
}

/// The sessions of one client, of which one is in use.
#[derive(Debug)]
pub struct Sessions<T> {
    latest: Lock<Latest<T>>,
    /// Held during an authentication, so that the others wait for its result.
    turn: Mutex<Option<Failure>>,
    /// Authentications that have ended, successful or not.
    attempts: AtomicU64,
}

#[derive(Debug)]
struct Latest<T> {
    session: Option<Arc<Session<T>>>,
    renew_at: Option<Instant>,
    /// The number of the last session.
    number: u64,
}

#[derive(Debug)]
struct Failure {
    error: ApiError,
    at: Instant,
}

/// A session is renewed when a tenth of its lifetime is left, but not earlier than this.
const MARGIN: Duration = Duration::from_secs(300);
/// Delay before the next attempt to renew a session that is still valid.
const RENEWAL_RETRY: Duration = Duration::from_secs(15);
/// Refused credentials are not tried again for so long: repeated failures lock users out.
const REFUSED_FOR: Duration = Duration::from_secs(5);

// === impl Sessions ===

impl<T> Default for Sessions<T> {
    fn default() -> Self {
        Self {
            latest: Lock::new(Latest {
                session: None,
                renew_at: None,
                number: 0,
            }),
            turn: Mutex::default(),
            attempts: AtomicU64::new(0),
        }
    }
}

impl<T> Sessions<T> {
    /// Returns the session in use, or authenticates with `grant`. `refused` is a session that a
    /// service did not accept.
    pub async fn session<F>(
        &self,
        refused: Option<&Session<T>>,
        grant: impl FnOnce() -> F,
    ) -> Result<Arc<Session<T>>, ApiError>
    where
        F: Future<Output = Result<Grant<T>, ApiError>>,
    {
        let seen = self.attempts.load(Ordering::Acquire);
        if let Some(refused) = refused {
            self.lock().forget(refused);
        }
        let valid = self.lock().valid();
        let mut failure = match valid {
            None => self.turn.lock().await,
            Some(session) => match self.turn.try_lock() {
                Ok(turn) => turn,
                // Another call is renewing it.
                Err(_) => return Ok(session),
            },
        };
        if let Some(session) = self.lock().fresh() {
            return Ok(session);
        }
        if let Some(failure) = &*failure {
            // One failure answers all calls that waited for it.
            let shared = self.attempts.load(Ordering::Acquire) != seen;
            let refused =
                failure.error.kind == ErrorKind::Unauthorized && failure.at.elapsed() < REFUSED_FOR;
            if shared || refused {
                return Err(failure.error.clone());
            }
        }
        let grant = grant().await;
        self.attempts.fetch_add(1, Ordering::Release);
        let result = match grant {
            Ok(grant) => Ok(self.lock().begin(grant)),
            Err(error) => self.lock().extend(error),
        };
        *failure = result.as_ref().err().map(|error| Failure {
            error: error.clone(),
            at: Instant::now(),
        });
        result
    }

    /// Authenticates with `grant`, for other credentials than before. The session in use stays if
    /// that fails.
    pub async fn replace<F>(&self, grant: impl FnOnce() -> F) -> Result<(), ApiError>
    where
        F: Future<Output = Result<Grant<T>, ApiError>>,
    {
        let mut failure = self.turn.lock().await;
        let grant = grant().await?;
        self.attempts.fetch_add(1, Ordering::Release);
        self.lock().begin(grant);
        *failure = None;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Latest<T>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Latest ===

impl<T> Latest<T> {
    /// Drops a session that a service did not accept.
    fn forget(&mut self, refused: &Session<T>) {
        self.session
            .take_if(|session| session.number == refused.number);
    }

    /// Returns the session, unless it has expired.
    fn valid(&self) -> Option<Arc<Session<T>>> {
        let session = self.session.as_ref()?;
        let valid = session.expires_at.is_none_or(|at| Instant::now() < at);
        valid.then(|| Arc::clone(session))
    }

    /// Returns the session, unless it should be renewed.
    fn fresh(&self) -> Option<Arc<Session<T>>> {
        self.valid()
            .filter(|_| self.renew_at.is_none_or(|at| Instant::now() < at))
    }

    fn begin(&mut self, grant: Grant<T>) -> Arc<Session<T>> {
        let now = Instant::now();
        self.number += 1;
        let session = Arc::new(Session {
            value: grant.value,
            number: self.number,
            expires_at: grant.lifetime.and_then(|life| now.checked_add(life)),
        });
        self.session = Some(Arc::clone(&session));
        self.renew_at = grant.lifetime.and_then(|life| renew_at(now, life));
        session
    }

    /// Keeps the session that could not be renewed, while it is valid and the error is transient. A
    /// service may have refused it meanwhile.
    fn extend(&mut self, error: ApiError) -> Result<Arc<Session<T>>, ApiError> {
        match self.valid().filter(|_| error.is_transient()) {
            Some(session) => {
                tracing::warn!(%error, "the token can't be renewed now; the old one is used");
                self.renew_at = Some(Instant::now() + RENEWAL_RETRY);
                Ok(session)
            }
            None => Err(error),
        }
    }
}

fn renew_at(now: Instant, lifetime: Duration) -> Option<Instant> {
    now.checked_add(lifetime.saturating_sub(MARGIN.min(lifetime / 10)))
}

// === impl Session ===

impl<T> Deref for Session<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Authorize> Authorize for Session<T> {
    fn authorize(&self, request: &mut Request<Bytes>) -> Result<(), String> {
        self.value.authorize(request)
    }

    fn secret(&self) -> Option<&SecretString> {
        self.value.secret()
    }
}
