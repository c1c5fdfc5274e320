//! How Exoscale's services word their errors.

use landfall_rest::{ErrorBody, ErrorFormat};
use serde_json::{Map, Value};

/// The format of all services. What can be done about an error follows from the status alone: texts
/// are not documented.
pub(super) const FORMAT: ErrorFormat = ErrorFormat {
    request_id: "x-request-id",
    read,
    classify: |_, _, _| None,
};

/// Reads `message`, `error`, or `detail` and `title` (RFC 9457), and the list `errors`, which says
/// what in a body is wrong.
fn read(body: &Map<String, Value>) -> ErrorBody {
    let text = |key: &str| body.get(key).and_then(Value::as_str);
    let first = ["message", "error", "detail", "title"]
        .into_iter()
        .find_map(text);
    let list = body.get("errors").and_then(Value::as_array);
    let details: Vec<_> = list.into_iter().flatten().filter_map(detail).collect();
    let message = match (first, details.is_empty()) {
        (Some(first), true) => Some(first.to_owned()),
        (Some(first), false) => Some(format!("{first}: {}", details.join("; "))),
        (None, false) => Some(details.join("; ")),
        (None, true) => None,
    };
    let code = text("type").filter(|kind| *kind != "about:blank");
    ErrorBody {
        message,
        code: code.map(str::to_owned),
    }
}

/// Returns one entry of `errors` as a text.
fn detail(error: &Value) -> Option<String> {
    if let Some(text) = error.as_str() {
        return Some(text.to_owned());
    }
    let text = |key: &str| error.get(key).and_then(Value::as_str);
    let what = text("detail").or_else(|| text("message"))?;
    let place = ["location", "path", "pointer"].into_iter().find_map(text);
    Some(match place {
        Some(place) => format!("{place}: {what}"),
        None => what.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use landfall_rest::{ApiError, ErrorKind};

    use super::*;

    fn error(status: u16, body: &str) -> (ErrorKind, String) {
        let status = http::StatusCode::from_u16(status).unwrap();
        let headers = http::HeaderMap::new();
        let error = ApiError::answered(&FORMAT, "GET /v2/x", status, &headers, body.as_bytes());
        (error.kind, error.message)
    }

    #[test]
    fn every_shape_of_an_error_is_readable() {
        let shapes = [
            (404, r#"{"message":"gone"}"#, ErrorKind::NotFound, "gone"),
            (
                400,
                r#"{"message":"bad","errors":[{"message":"name is missing"}]}"#,
                ErrorKind::Invalid,
                "bad: name is missing",
            ),
            (
                422,
                r#"{"type":"about:blank","title":"Invalid Request Body","status":422,
                   "errors":[{"detail":"too long","location":"body","pointer":"/name"},"why"]}"#,
                ErrorKind::Invalid,
                "Invalid Request Body: body: too long; why",
            ),
            (
                409,
                r#"{"title":"Conflict","detail":"the name is taken"}"#,
                ErrorKind::Conflict,
                "the name is taken",
            ),
            (500, r#"{"error":"oops"}"#, ErrorKind::Unavailable, "oops"),
            (
                502,
                "<html><h1>Bad Gateway</h1></html>",
                ErrorKind::Unavailable,
                "Bad Gateway",
            ),
            (403, r#"{"message":"no"}"#, ErrorKind::Forbidden, "no"),
        ];
        for (status, body, kind, text) in shapes {
            assert_eq!(error(status, body), (kind, text.to_owned()), "{body}");
        }
    }

    #[test]
    fn a_gateway_that_knows_no_path_does_not_say_that_an_object_is_gone() {
        assert_eq!(error(404, "no route").0, ErrorKind::Unreadable);
    }
}
