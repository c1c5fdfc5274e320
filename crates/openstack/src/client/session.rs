//! The token in use: got once for all who need it, renewed before its time is over, and anew when it is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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
    renew_at: Option<Instant>,
}

/// The one session of a client.
pub(super) struct Sessions {
    identity: Identity,
    /// Held while a token is asked for: that is what makes the others wait for it.
    state: Mutex<State>,
    /// Authentications that have ended, well or not.
    attempts: AtomicU64,
}

#[derive(Default)]
struct State {
    session: Option<Arc<Session>>,
    failure: Option<Failure>,
}

struct Failure {
    error: ApiError,
    at: Instant,
}

/// A token is renewed when a tenth of its life is left, but not more than this.
const MARGIN: Duration = Duration::from_secs(300);
/// Credentials that were refused are not tried again for so long: users get locked out for less.
const REFUSED_FOR: Duration = Duration::from_secs(5);

// === impl Sessions ===

impl Sessions {
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            state: Mutex::default(),
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
        let mut state = self.state.lock().await;
        let number = state.session.as_ref().map_or(0, |session| session.number);
        if let Some(session) = &state.session
            && refused.is_none_or(|refused| refused.number != session.number)
            && session.renew_at.is_none_or(|at| Instant::now() < at)
        {
            return Ok(Arc::clone(session));
        }
        if let Some(failure) = &state.failure {
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
        match grant {
            Ok(grant) => {
                let session = Arc::new(Session {
                    token: grant.token,
                    project_id: grant.project_id,
                    endpoints: grant.endpoints,
                    number: number + 1,
                    renew_at: grant.lifetime.map(renew_at),
                });
                *state = State {
                    session: Some(Arc::clone(&session)),
                    failure: None,
                };
                Ok(session)
            }
            Err(error) => {
                let at = Instant::now();
                state.failure = Some(Failure {
                    error: error.clone(),
                    at,
                });
                Err(error)
            }
        }
    }
}

fn renew_at(lifetime: Duration) -> Instant {
    Instant::now() + lifetime.saturating_sub(MARGIN.min(lifetime / 10))
}
