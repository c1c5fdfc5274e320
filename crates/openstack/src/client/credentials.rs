//! The credentials in use, and those that their source has now.
//!
//! Credentials change while a process runs: a password is rotated, an application credential is
//! replaced. The source is read again every few seconds and when a service refuses a token. What is
//! there then is used once Keystone has accepted it, for the same project; until then, and where
//! nothing can be read, those from before stay in use. Certificates of the connections come from
//! the same source, and are used once they are valid.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use landfall_rest::{Exchange, Timeouts, Tls, Transport};
use tokio::time::Instant;

use super::auth::{Auth, body};
use super::settings::CloudConfig;
use super::source::CredentialsSource;
use crate::objects::Id;

/// The credentials of a client.
pub(super) struct Credentials {
    source: Option<CredentialsSource>,
    timeouts: Timeouts,
    state: Mutex<State>,
    /// The project of the first token; `None`: it is for none.
    project: OnceLock<Option<Id>>,
    /// Held while the source is read and what it has is tried.
    turn: tokio::sync::Mutex<()>,
}

struct State {
    in_use: Arc<Auth>,
    /// What the source has and Keystone has not accepted yet.
    next: Option<Next>,
    /// Of the connections.
    tls: Tls,
    read_at: Instant,
    /// Why the source is not followed.
    problem: Option<String>,
}

struct Next {
    auth: Arc<Auth>,
    /// Why another attempt would fail, too: Keystone does not accept them, and locks users out
    /// after too many failures.
    refused: Option<String>,
}

/// How long credentials are used before the source is read again. It costs no request.
const READ_EVERY: Duration = Duration::from_secs(10);

// === impl Credentials ===

impl Credentials {
    pub fn new(config: &CloudConfig) -> Self {
        Self {
            source: config.source.clone(),
            timeouts: config.timeouts,
            state: Mutex::new(State {
                in_use: Arc::new(config.auth.clone()),
                next: None,
                tls: config.tls.clone(),
                read_at: Instant::now(),
                problem: None,
            }),
            project: OnceLock::new(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    pub fn in_use(&self) -> Arc<Auth> {
        Arc::clone(&self.lock().in_use)
    }

    /// Returns what the source has and is not in use.
    pub fn next(&self) -> Option<Arc<Auth>> {
        let state = self.lock();
        state.next.as_ref().map(|next| Arc::clone(&next.auth))
    }

    /// Returns why the source is not followed.
    pub fn problem(&self) -> Option<String> {
        self.lock().problem.clone()
    }

    /// Returns the turn to read the source, if it is time to; `refused`: a token was refused, so
    /// that it is, unless another call has read it meanwhile.
    pub async fn turn(&self, refused: bool) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        self.source.as_ref()?;
        let arrived = Instant::now();
        let turn = if refused {
            self.turn.lock().await
        } else {
            self.turn.try_lock().ok()?
        };
        let read_at = self.lock().read_at;
        let is_due = if refused {
            read_at < arrived
        } else {
            arrived.saturating_duration_since(read_at) >= READ_EVERY
        };
        is_due.then_some(turn)
    }

    /// Reads the source, and uses its certificates. Returns whether it has credentials that should
    /// be tried now.
    pub async fn read(&self, exchange: &Exchange) -> bool {
        let Some(source) = &self.source else {
            return false;
        };
        let read = source.read().await;
        let mut state = self.lock();
        state.read_at = Instant::now();
        let read = read.and_then(|access| {
            state.connect(access.tls, &self.timeouts, exchange)?;
            Ok(access.auth)
        });
        let auth = match read {
            Ok(auth) => auth,
            Err(why) => {
                state.report(format!("the credentials can't be read again: {why}"));
                return false;
            }
        };
        if is_same(&auth, &state.in_use) {
            state.next = None;
            state.problem = None;
            return false;
        }
        let known = state.next.take();
        let known = known.filter(|next| is_same(&auth, &next.auth));
        let next = known.unwrap_or_else(|| Next {
            auth: Arc::new(auth),
            refused: None,
        });
        let refused = next.refused.clone();
        state.next = Some(next);
        match refused {
            Some(why) => {
                state.report(why);
                false
            }
            None => true,
        }
    }

    /// Takes what Keystone has accepted, and the project that it is for. The first time it may be
    /// any.
    ///
    /// # Errors
    /// These are for another project, where the objects of this one would be missed.
    pub fn accept(&self, auth: &Arc<Auth>, project: Option<&Id>) -> Result<(), String> {
        let known = self.project.get_or_init(|| project.cloned());
        if known.as_ref() != project {
            let named = |id: Option<&Id>| id.map_or("none", Id::as_str).to_owned();
            return Err(format!(
                "they are for the project {}, not {}; to change the project, start again",
                named(project),
                named(known.as_ref())
            ));
        }
        let mut state = self.lock();
        if !Arc::ptr_eq(auth, &state.in_use) {
            tracing::info!("the new credentials are in use");
            state.in_use = Arc::clone(auth);
            state.next = None;
            state.problem = None;
        }
        Ok(())
    }

    /// Notes why what the source has is not in use; `refused`: another attempt would fail, too.
    pub fn refuse(&self, refused: bool, why: &str) {
        let why = format!("the new credentials can't be used: {why}");
        let mut state = self.lock();
        if let Some(next) = &mut state.next {
            next.refused = refused.then(|| why.clone());
        }
        state.report(why);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl State ===

impl State {
    /// Makes connections with these certificates from now on.
    fn connect(
        &mut self,
        tls: Tls,
        timeouts: &Timeouts,
        exchange: &Exchange,
    ) -> Result<(), String> {
        if !self.tls.is_same(&tls) {
            let transport = Transport::network(&tls, timeouts);
            exchange.reconnect(transport.map_err(|error| error.to_string())?);
            tracing::info!("the new certificates are in use");
            self.tls = tls;
        }
        Ok(())
    }

    /// Says once what is wrong.
    fn report(&mut self, problem: String) {
        if self.problem.as_ref() != Some(&problem) {
            tracing::error!("{problem}; those from before stay in use");
            self.problem = Some(problem);
        }
    }
}

/// Whether Keystone is sent the same.
fn is_same(one: &Auth, other: &Auth) -> bool {
    body(one) == body(other)
}
