//! Access to more than probes and metrics: clients that have the token, where one is configured.
//!
//! Must never show a token, nor say how much of one was right.

use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq as _;

use crate::error::ApiError;

/// What is answered to every client.
const OPEN: [&str; 4] = ["/healthz", "/livez", "/readyz", "/metrics"];

/// Shorter ones can be guessed.
const SHORTEST: usize = 16;
/// Longer files hold something else.
const LONGEST: usize = 4096;

/// Where the token stands. The file is read for each request, so that a new one counts at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenFile(Arc<PathBuf>);

/// A token file that is of no use.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// It can't be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// What stands in it is no token.
    #[error("{}: a token has from {SHORTEST} to {LONGEST} visible characters", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
    },
}

// === impl TokenFile ===

impl TokenFile {
    /// A file that holds a token and nothing else but white space around it.
    pub fn new(path: PathBuf) -> Self {
        Self(Arc::new(path))
    }

    /// Reads the token.
    ///
    /// # Errors
    /// The file can't be read, or holds no valid token.
    pub async fn read(&self) -> Result<String, TokenError> {
        let path = || self.0.to_path_buf();
        let text = tokio::fs::read_to_string(&*self.0)
            .await
            .map_err(|source| TokenError::Unreadable {
                path: path(),
                source,
            })?;
        let token = text.trim();
        let visible = token.bytes().all(|byte| byte.is_ascii_graphic());
        if visible && (SHORTEST..=LONGEST).contains(&token.len()) {
            return Ok(token.to_owned());
        }
        Err(TokenError::Unusable { path: path() })
    }
}

/// Lets through what is open to all, and clients that show the token.
pub(crate) async fn ask(State(file): State<TokenFile>, request: Request, next: Next) -> Response {
    if OPEN.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    let Some(shown) = shown(request.headers()) else {
        return refused("a token is needed: Authorization: Bearer TOKEN");
    };
    match file.read().await {
        Ok(token) if bool::from(token.as_bytes().ct_eq(shown.as_bytes())) => {
            next.run(request).await
        }
        Ok(_) => refused("the token does not match"),
        Err(error) => {
            tracing::error!(%error, "the admin endpoint refuses all requests that need a token");
            let text = "the token can't be read; the log has the cause";
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "NoToken", text).into_response()
        }
    }
}

/// The token of a request: a bearer token, or the password that a browser asked for.
fn shown(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, word) = text.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(word.trim().to_owned());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(STANDARD.decode(word.trim()).ok()?).ok()?;
    let (_, password) = decoded.split_once(':')?;
    Some(password.to_owned())
}

fn refused(text: &str) -> Response {
    let mut response =
        ApiError::new(StatusCode::UNAUTHORIZED, "Unauthorized", text).into_response();
    // Browsers ask for a name and a password; the name does not matter.
    let challenge = HeaderValue::from_static("Basic realm=\"landfall\", charset=\"UTF-8\"");
    response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown_in(text: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_str(text).unwrap());
        shown(&headers)
    }

    #[test]
    fn a_token_is_shown_as_bearer_or_as_password() {
        assert_eq!(shown_in("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(shown_in("bearer  abc ").as_deref(), Some("abc"));
        let basic = format!("Basic {}", STANDARD.encode("admin:a:b"));
        assert_eq!(shown_in(&basic).as_deref(), Some("a:b"));
        for wrong in ["abc", "Digest abc", "Basic abc", "Basic !", ""] {
            assert_eq!(shown_in(wrong), None, "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_file_without_a_token_opens_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let file = TokenFile::new(path.clone());
        assert!(matches!(
            file.read().await,
            Err(TokenError::Unreadable { .. })
        ));
        for text in ["", "\n", "short", "two words are no token"] {
            std::fs::write(&path, text).unwrap();
            assert!(
                matches!(file.read().await, Err(TokenError::Unusable { .. })),
                "{text:?}"
            );
        }
        std::fs::write(&path, "0123456789abcdef\n").unwrap();
        assert_eq!(file.read().await.unwrap(), "0123456789abcdef");
    }
}
