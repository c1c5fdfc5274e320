//! Objects of any kind as JSON, for commands that read what other programs have installed.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::api::{self, Ask, List, MERGE};
use crate::connect::Connection;
use crate::error::ApiError;

/// The longest that one request may take.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Returns the objects of a list; none, where the cluster has no such kind. `what`: `list pods`.
pub async fn list(connection: &Connection, path: &str, what: &str) -> Result<Vec<Value>, ApiError> {
    let ask = Ask::get(path.to_owned(), what);
    match api::request_json::<List<Value>>(connection, ask, TIMEOUT).await {
        Ok(list) => Ok(list.items),
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Returns an object; `None`: there is none.
pub async fn get(
    connection: &Connection,
    path: &str,
    what: &str,
) -> Result<Option<Value>, ApiError> {
    let ask = Ask::get(path.to_owned(), what);
    match api::request_json(connection, ask, TIMEOUT).await {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sets an annotation of an object. Repeating it changes nothing.
pub async fn annotate(
    connection: &Connection,
    path: &str,
    what: &str,
    (key, value): (&str, &str),
) -> Result<(), ApiError> {
    let body = json!({"metadata": {"annotations": {key: value}}});
    let ask = Ask::send(Method::PATCH, path.to_owned(), MERGE, &body, what);
    let _answer: Value = api::request_json(connection, ask, TIMEOUT).await?;
    Ok(())
}
