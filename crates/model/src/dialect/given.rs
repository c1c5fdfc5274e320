//! A typed value with the annotation that gave it.

use serde::{Deserialize, Serialize};

use super::{AnnotationError, Outcome, Text};

/// A value and the annotation that gave it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given<T> {
    /// The value.
    pub value: T,
    /// The whole key of the annotation.
    pub annotation: String,
}

/// Fills a slot that nothing of higher rank has filled.
pub(super) fn put<T: PartialEq>(
    slot: &mut Option<Given<T>>,
    text: Text<'_>,
    value: T,
) -> Result<Outcome, AnnotationError> {
    match slot {
        None => {
            *slot = Some(Given {
                value,
                annotation: text.annotation.to_owned(),
            });
            Ok(Outcome::Decided)
        }
        Some(given) if given.value == value => Ok(Outcome::Nothing),
        Some(given) => Err(AnnotationError::Overridden {
            by: given.annotation.clone(),
        }),
    }
}
