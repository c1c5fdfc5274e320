//! Whether another controller is at work, by the events that it sends about Services. The API
//! server keeps events for an hour or so.

use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;

use crate::api::{self, Ask, List};
use crate::connect::Connection;
use crate::error::ApiError;

/// The latest event that a component has sent about a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatestEvent {
    /// Its reason: `EnsuredLoadBalancer`.
    pub reason: String,
    /// NAMESPACE/NAME of the Service.
    pub service: String,
    /// When it was sent last, by the clock of the component.
    pub at: Timestamp,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sent {
    #[serde(default)]
    reason: String,
    involved_object: Involved,
    last_timestamp: Option<Timestamp>,
    #[serde(rename = "eventTime")]
    first: Option<Timestamp>,
    series: Option<Series>,
}

#[derive(Deserialize)]
struct Involved {
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Series {
    last_observed_time: Option<Timestamp>,
}

/// The longest that the API server may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the latest event that a component has sent about a Service; `None`: the API server has
/// none.
///
/// # Errors
/// The API server does not answer, or refuses.
pub async fn latest_event(
    connection: &Connection,
    component: &str,
) -> Result<Option<LatestEvent>, ApiError> {
    let selected = format!("involvedObject.kind%3DService%2Csource%3D{component}");
    let path = format!("/api/v1/events?fieldSelector={selected}");
    let ask = Ask::get(path, "list events");
    let list: List<Sent> = api::request_json(connection, ask, TIMEOUT).await?;
    Ok(latest(list))
}

fn latest(list: List<Sent>) -> Option<LatestEvent> {
    let events = list.items.into_iter().filter_map(|event| {
        let series = event.series.and_then(|series| series.last_observed_time);
        let times = [event.last_timestamp, event.first, series];
        Some(LatestEvent {
            at: times.into_iter().flatten().max()?,
            reason: event.reason,
            service: format!(
                "{}/{}",
                event.involved_object.namespace, event.involved_object.name
            ),
        })
    });
    events.max_by_key(|event| event.at)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_latest_event_is_found_in_each_form_that_events_have() {
        let event = |name: &str, times: serde_json::Value| {
            let mut event = json!({
                "metadata": {"name": "x"}, "reason": "EnsuredLoadBalancer",
                "involvedObject": {"kind": "Service", "namespace": "shop", "name": name},
            });
            let fields = event.as_object_mut().unwrap();
            fields.extend(times.as_object().unwrap().clone());
            event
        };
        let found = |events: &[serde_json::Value]| {
            let list = serde_json::from_value(json!({"items": events})).unwrap();
            latest(list).map(|it| (it.service, it.at.to_string()))
        };
        let old = event("old", json!({"lastTimestamp": "2026-01-01T10:00:00Z"}));
        let new = event(
            "new",
            json!({"lastTimestamp": null, "eventTime": "2026-01-01T09:00:00.5Z",
                "series": {"count": 2, "lastObservedTime": "2026-01-01T11:00:00.000000Z"}}),
        );
        let bare = event("bare", json!({}));
        let expected = ("shop/new".to_owned(), "2026-01-01T11:00:00Z".to_owned());
        assert_eq!(found(&[old, new, bare.clone()]), Some(expected));
        assert_eq!(found(&[bare]), None);
        assert_eq!(found(&[]), None);
    }
}
