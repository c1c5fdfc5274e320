//! Operations: the answer to every change, asked for until it has ended.

use landfall_rest::{ApiError, ErrorKind, Operation as Pending, OperationState, Polling};
use tokio::time::Instant;

use crate::objects::{Id, Operation, OperationReason, OperationStatus};

/// A change that was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begun {
    /// It is done. The object that it was about, where the answer names one: for an NLB service,
    /// its NLB.
    Done(Option<Id>),
    /// It goes on.
    Pending(Pending),
}

// === impl Begun ===

impl Begun {
    /// Evaluates the answer to a change, which may be final already.
    ///
    /// # Errors
    /// The operation has failed, or has no id to ask for.
    pub fn of(
        request: &str,
        answer: &Operation,
        polling: Polling,
        now: Instant,
    ) -> Result<Self, ApiError> {
        match state(answer) {
            OperationState::Done(id) => Ok(Self::Done(id)),
            OperationState::Failed(kind, why) => Err(ApiError::ours(kind, request, why)),
            OperationState::Pending => {
                let missing = || {
                    let why = "an operation without an id";
                    ApiError::ours(ErrorKind::Unreadable, request, why)
                };
                let id = answer.id.as_ref().ok_or_else(missing)?;
                Ok(Self::Pending(Pending::new(id.as_str(), polling, now)))
            }
        }
    }
}

/// Returns the state of an operation. A state that is not known counts as pending: that is bounded,
/// and what it led to is read afterwards.
pub(super) fn state(operation: &Operation) -> OperationState<Option<Id>> {
    match &operation.state {
        OperationStatus::Success => {
            let id = operation.reference.as_ref().and_then(|it| it.id.clone());
            OperationState::Done(id)
        }
        OperationStatus::Pending | OperationStatus::Other(_) => OperationState::Pending,
        OperationStatus::Failure => {
            let kind = operation
                .reason
                .as_ref()
                .map_or(ErrorKind::Unavailable, kind);
            OperationState::Failed(kind, words(operation))
        }
        OperationStatus::Timeout => OperationState::Failed(ErrorKind::Lost, words(operation)),
    }
}

/// Returns the cloud's words for a failure.
fn words(operation: &Operation) -> String {
    let reason = operation.reason.as_ref().map(OperationReason::as_str);
    let message = operation.message.as_deref().filter(|text| !text.is_empty());
    match (reason, message) {
        (Some(reason), Some(message)) => format!("{reason}: {message}"),
        (Some(word), None) | (None, Some(word)) => word.to_owned(),
        (None, None) => operation.state.to_string(),
    }
}

fn kind(reason: &OperationReason) -> ErrorKind {
    match reason {
        OperationReason::Incorrect => ErrorKind::Invalid,
        OperationReason::Forbidden => ErrorKind::Forbidden,
        OperationReason::Busy => ErrorKind::Busy,
        OperationReason::NotFound => ErrorKind::NotFound,
        OperationReason::Unsupported => ErrorKind::Unsupported,
        OperationReason::Conflict => ErrorKind::Conflict,
        OperationReason::Unknown
        | OperationReason::Unavailable
        | OperationReason::Fault
        | OperationReason::Partial
        | OperationReason::Interrupted
        | OperationReason::Other(_) => ErrorKind::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn begun(answer: Value) -> Result<Begun, ApiError> {
        let answer: Operation = serde_json::from_value(answer).unwrap();
        Begun::of("POST /v2/x", &answer, Polling::default(), Instant::now())
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_may_be_final_or_not() {
        let done = begun(json!({"id": "o", "state": "success", "reference": {"id": "lb"}}));
        assert_eq!(done, Ok(Begun::Done(Some(Id::from("lb")))));
        assert_eq!(begun(json!({"state": "success"})), Ok(Begun::Done(None)));
        for state in ["pending", "paused"] {
            let pending = begun(json!({"id": "o", "state": state}));
            let expected = Pending::new("o", Polling::default(), Instant::now());
            assert_eq!(pending, Ok(Begun::Pending(expected)));
        }
    }

    #[test]
    fn a_failure_is_an_error_even_if_it_is_the_first_answer() {
        let failed = |answer| begun(answer).map_err(|error| (error.kind, error.message));
        assert_eq!(
            failed(json!({"id": "o", "state": "failure", "reason": "busy", "message": "later"})),
            Err((ErrorKind::Busy, "busy: later".to_owned()))
        );
        assert_eq!(
            failed(json!({"id": "o", "state": "failure", "reason": "cursed"})),
            Err((ErrorKind::Unavailable, "cursed".to_owned()))
        );
        assert_eq!(
            failed(json!({"id": "o", "state": "timeout"})),
            Err((ErrorKind::Lost, "timeout".to_owned()))
        );
        let error = begun(json!({"state": "pending"})).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unreadable);
        assert!(error.may_be_done());
    }
}
