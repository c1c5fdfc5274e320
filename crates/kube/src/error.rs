//! What a request that came to nothing means.

use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;

/// A request that came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// RBAC does not allow it.
    #[error(
        "the API server does not allow this identity to {what}: {message}; grant it in a role, as \
         deploy/rbac.yaml does"
    )]
    Denied {
        /// Verb and resource.
        what: String,
        /// What the server said.
        message: String,
    },
    /// The credentials are not (or no longer) valid.
    #[error("the API server does not accept the credentials: {message}")]
    Unauthorized {
        /// What the server said.
        message: String,
    },
    /// The server answered with another error.
    #[error("{what} failed: {message} ({code})")]
    Refused {
        /// Verb and resource.
        what: String,
        /// HTTP status.
        code: u16,
        /// Kubernetes' own word for it: `Conflict`, `Expired`, ...
        reason: String,
        /// What the server said: also the text of an admission webhook.
        message: String,
        /// When to come back, if the server said so.
        retry_after: Option<Duration>,
    },
    /// There was no answer.
    #[error("the API server can't be reached: {why}")]
    Unreachable {
        /// Why not.
        why: String,
    },
    /// There was no answer in time.
    #[error("the API server did not answer within {} s", .0.as_secs_f32())]
    Timeout(Duration),
    /// The answer can't be read.
    #[error("the answer to {what} can't be read: {why}")]
    Unreadable {
        /// Verb and resource.
        what: String,
        /// Why not.
        why: String,
    },
    /// There are no credentials.
    #[error("no credentials for the API server: {why}")]
    Credentials {
        /// Why not. Never holds what a credential command printed.
        why: String,
    },
    /// There is no client yet.
    #[error("the API server can't be asked yet: {why}")]
    NoClient {
        /// Why not.
        why: String,
    },
    /// Another replica leads, so this one may not write.
    #[error("this replica does not lead, so it writes nothing")]
    NotLeading,
}

/// `v1` Status: how the server says no, in answers and inside watches.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StatusShape {
    pub(crate) code: u16,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) details: Option<StatusDetails>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StatusDetails {
    pub(crate) retry_after_seconds: u64,
}

/// Why a certificate is not taken that has no extensions.
const OF_VERSION_1: &str = "the client certificate is of X.509 version 1; issue it again as \
                           version 3, which needs an extension (openssl x509 -req -extfile)";

/// One odd answer, of the API server or of a proxy before it, must not stop anything for long.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);

pub(super) fn of_status(what: String, code: StatusCode, body: &[u8]) -> ApiError {
    let mut shape: StatusShape = serde_json::from_slice(body).unwrap_or_default();
    shape.code = code.as_u16();
    if shape.message.is_empty() {
        let text = String::from_utf8_lossy(body);
        let line = text.lines().next().unwrap_or_default().trim();
        shape.message = if line.is_empty() {
            code.to_string()
        } else {
            line.chars().take(300).collect()
        };
    }
    of_status_shape(what, shape)
}

/// What an error of the server means.
pub(crate) fn of_status_shape(what: String, shape: StatusShape) -> ApiError {
    let StatusShape {
        code,
        reason,
        message,
        details,
    } = shape;
    match code {
        401 => ApiError::Unauthorized { message },
        // Admission answers with the same code; only the authorizer speaks like this.
        403 if message.contains("is forbidden: User ") && message.contains(" cannot ") => {
            ApiError::Denied { what, message }
        }
        _ => ApiError::Refused {
            what,
            code,
            reason,
            message,
            retry_after: details
                .map(|details| details.retry_after_seconds)
                .filter(|seconds| *seconds > 0)
                .map(|seconds| Duration::from_secs(seconds).min(LONGEST_RETRY_AFTER)),
        },
    }
}

/// Why there was no answer, without what a credential command printed.
pub(crate) fn of_client(error: &kube::Error) -> ApiError {
    use kube::client::AuthError;
    let of_auth = |error: &AuthError| ApiError::Credentials {
        why: match error {
            // Their own texts show the command with its environment, and what it printed.
            AuthError::AuthExecRun { out, .. } => {
                format!(
                    "the credential command of the kubeconfig ended with {}",
                    out.status
                )
            }
            AuthError::AuthExecParse(_) => {
                "the output of the credential command of the kubeconfig is not an ExecCredential"
                    .to_owned()
            }
            other => chain(other),
        },
    };
    match error {
        kube::Error::Auth(error) => of_auth(error),
        kube::Error::Service(error) => match error.downcast_ref::<AuthError>() {
            Some(error) => of_auth(error),
            None => ApiError::Unreachable {
                why: chain(&**error),
            },
        },
        other => match chain(other) {
            // The library blames the key, which is fine.
            text if text.contains("UnsupportedCertVersion") => ApiError::Credentials {
                why: OF_VERSION_1.to_owned(),
            },
            why => ApiError::Unreachable { why },
        },
    }
}

/// An error and what it comes from, each said once.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
        source = error.source();
    }
    text
}

impl ApiError {
    /// The HTTP status of the answer, if there was one.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Denied { .. } => Some(403),
            Self::Unauthorized { .. } => Some(401),
            Self::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// The object, or the kind of object, is not there.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// Another program wrote in between.
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, message: &str) -> ApiError {
        let shape = StatusShape {
            code,
            message: message.to_owned(),
            ..StatusShape::default()
        };
        of_status_shape("patch services/status".to_owned(), shape)
    }

    #[test]
    fn a_denial_names_verb_and_resource_and_what_to_do() {
        let text = "services \"web\" is forbidden: User \"lb\" cannot patch resource \
                   \"services/status\" in API group \"\" in the namespace \"shop\"";
        let error = status(403, text).to_string();
        assert!(error.contains("to patch services/status"), "{error}");
        assert!(
            error.contains("User \"lb\"") && error.contains("deploy/rbac.yaml"),
            "{error}"
        );
    }

    #[test]
    fn a_refusal_of_a_webhook_is_reported_in_its_own_words() {
        let error = status(
            403,
            "admission webhook \"guard.example.com\" denied the request: not on Fridays",
        );
        assert!(
            matches!(error, ApiError::Refused { code: 403, .. }),
            "{error:?}"
        );
        assert!(error.to_string().contains("not on Fridays"), "{error}");
    }

    #[test]
    fn an_answer_that_is_no_status_is_quoted_briefly() {
        let error = of_status(
            "list nodes".to_owned(),
            StatusCode::BAD_GATEWAY,
            b"<html>\nupstream</html>",
        );
        assert_eq!(error.to_string(), "list nodes failed: <html> (502)");
        let error = of_status("list nodes".to_owned(), StatusCode::BAD_GATEWAY, b"");
        assert_eq!(
            error.to_string(),
            "list nodes failed: 502 Bad Gateway (502)"
        );
    }

    #[test]
    fn the_server_may_say_when_to_come_back() {
        let body = br#"{"kind": "Status", "details": {"retryAfterSeconds": 7},
            "reason": "TooManyRequests"}"#;
        let error = of_status("list nodes".to_owned(), StatusCode::TOO_MANY_REQUESTS, body);
        assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
        // However odd the answer, nothing waits for days.
        let body = br#"{"kind": "Status", "details": {"retryAfterSeconds": 1000000}}"#;
        let error = of_status("list nodes".to_owned(), StatusCode::TOO_MANY_REQUESTS, body);
        assert_eq!(error.retry_after(), Some(Duration::from_secs(60)));
    }
}
