//! The token in use: got once for all who need it, renewed before its time is over, and anew when
//! it is refused.
//!
//! While it is renewed early, the others go on with the old one; and so does everybody, as long as
//! it lives, where Keystone can't be reached.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as Lock, PoisonError};
use std::time::Duration;

use secrecy::SecretString;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::catalog::Endpoints;
use super::error::{ApiError, ErrorKind};
use super::exchange::Exchange;
use super::identity::Identity;
use super::settings::CloudConfig;
use crate::objects::Id;

/// A token and what came with it.
pub(super) struct Session {
    pub token: SecretString,
    pub project_id: Option<Id>,
    pub endpoints: Endpoints,
    /// Counts the tokens, to tell a refused one from its successor.
    number: u64,
    expires_at: Option<Instant>,
}

/// The one session of a client.
pub(super) struct Sessions {
    identity: Identity,
    latest: Lock<Latest>,
    /// Held while a token is asked for: that is what makes the others wait for it.
    turn: Mutex<Option<Failure>>,
    /// Authentications that have ended, well or not.
    attempts: AtomicU64,
}

#[derive(Clone, Default)]
struct Latest {
    session: Option<Arc<Session>>,
    renew_at: Option<Instant>,
    /// The number of the last one.
    number: u64,
}

struct Failure {
    error: ApiError,
    at: Instant,
}

/// A token is renewed when a tenth of its life is left, but not more than this.
const MARGIN: Duration = Duration::from_secs(300);
/// Where Keystone could not be reached for that, it is asked again after so long.
const RENEWED_AGAIN: Duration = Duration::from_secs(15);
/// Credentials that were refused are not tried again for so long: users get locked out for less.
const REFUSED_FOR: Duration = Duration::from_secs(5);

// === impl Sessions ===

impl Sessions {
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            latest: Lock::default(),
            turn: Mutex::default(),
            attempts: AtomicU64::new(0),
        }
    }

    /// The session in use, or a new one. `refused` is one that a service did not accept.
    pub async fn session(
        &self,
        exchange: &Exchange,
        config: &CloudConfig,
        refused: Option<&Session>,
    ) -> Result<Arc<Session>, ApiError> {
        let seen = self.attempts.load(Ordering::Acquire);
        if let Some(refused) = refused {
            self.lock().forget(refused);
        }
        let mut failure = match self.latest().living() {
            None => self.turn.lock().await,
            Some(session) => match self.turn.try_lock() {
                Ok(turn) => turn,
                // Somebody is renewing it.
                Err(_) => return Ok(session),
            },
        };
        let latest = self.latest();
        if let Some(session) = latest.living()
            && latest.renew_at.is_none_or(|at| Instant::now() < at)
        {
            return Ok(session);
        }
        if let Some(failure) = &*failure {
            // One failure answers all who waited for it.
            let shared = self.attempts.load(Ordering::Acquire) != seen;
            let refused =
                failure.error.kind == ErrorKind::Unauthorized && failure.at.elapsed() < REFUSED_FOR;
            if shared || refused {
                return Err(failure.error.clone());
            }
        }
        let grant = self.identity.grant(exchange, config).await;
        self.attempts.fetch_add(1, Ordering::Release);
        let now = Instant::now();
        match grant {
            Ok(grant) => {
                let number = latest.number + 1;
                let session = Arc::new(Session {
                    token: grant.token,
                    project_id: grant.project_id,
                    endpoints: grant.endpoints,
                    number,
                    expires_at: grant.lifetime.and_then(|life| now.checked_add(life)),
                });
                *self.lock() = Latest {
                    session: Some(Arc::clone(&session)),
                    renew_at: grant.lifetime.and_then(|life| renew_at(now, life)),
                    number,
                };
                *failure = None;
                Ok(session)
            }
            Err(error) => {
                // A service may have refused it meanwhile.
                let old = self.latest().living().filter(|_| error.is_passing());
                if let Some(session) = old {
                    tracing::warn!(%error, "the token can't be renewed at present; the old one is \
                                           used");
                    self.lock().renew_at = Some(now + RENEWED_AGAIN);
                    return Ok(session);
                }
                *failure = Some(Failure {
                    error: error.clone(),
                    at: now,
                });
                Err(error)
            }
        }
    }

    fn latest(&self) -> Latest {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Latest> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Latest ===

impl Latest {
    /// Lets go of a session that a service did not accept.
    fn forget(&mut self, refused: &Session) {
        self.session
            .take_if(|session| session.number == refused.number);
    }

    /// The session, unless its time is over.
    fn living(&self) -> Option<Arc<Session>> {
        let session = self.session.as_ref()?;
        let lives = session.expires_at.is_none_or(|at| Instant::now() < at);
        lives.then(|| Arc::clone(session))
    }
}

fn renew_at(now: Instant, lifetime: Duration) -> Option<Instant> {
    now.checked_add(lifetime.saturating_sub(MARGIN.min(lifetime / 10)))
}
