//! The last accepted version of a Service as one text: what was asked for, and nothing that the API
//! server or this program adds. It is kept beside the status, for the process that comes next.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::marks::managed_annotations;
use crate::reason::{Code, Reason};
use crate::rows::ServiceRow;
use crate::status::ACCEPTED_VERSION;

use super::print::spec;
use super::{ObjectMeta, Service, ServiceSpec};

/// The longest text that is kept.
const LONGEST: usize = 100 * 1024;

/// The most that all annotations may take with it. The API server takes 256 KiB, and refuses every
/// write that would make it more.
const IN_ALL: usize = 224 * 1024;

/// Where `kubectl apply` keeps a copy of what it was given.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

#[derive(Deserialize)]
struct Version {
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    spec: ServiceSpec,
}

/// The same on its way out.
#[derive(Serialize)]
struct Printed<'a> {
    annotations: BTreeMap<&'a str, &'a str>,
    spec: ServiceSpec,
}

/// Writes down what a version of a Service asks for.
///
/// # Errors
/// The text would be too long to be kept.
pub fn accepted_to_text(row: &ServiceRow) -> Result<String, Box<Reason>> {
    let version = Printed {
        annotations: asked_for(row).collect(),
        spec: spec(row),
    };
    // Maps with text keys have a JSON form, always.
    let text = serde_json::to_string(&version).unwrap_or_default();
    let entries = row.annotations.iter();
    let others = entries.filter(|(key, _)| key.as_str() != ACCEPTED_VERSION);
    let others: usize = others.map(|(key, value)| key.len() + value.len()).sum();
    if text.len() > LONGEST || others + text.len() > IN_ALL {
        let message = format!(
            "the last valid version takes {} KiB, which is too large to be recorded on the \
            Service: it is served only while this process runs",
            text.len() / 1024
        );
        let reason = Reason::warning(Code::ServingPreviousVersion, message);
        return Err(Box::new(
            reason.remedy("correct the newest version before the next restart"),
        ));
    }
    Ok(text)
}

/// Returns the annotations of a Service if it asks for what this text says: then they are those of
/// the version that was accepted last. To write the text again is less work than to read it.
pub fn accepted_annotations(text: &str, row: &ServiceRow) -> Option<BTreeMap<String, String>> {
    let is_same = accepted_to_text(row).is_ok_and(|newest| newest == text);
    let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    is_same.then(|| asked_for(row).map(owned).collect())
}

/// Returns the annotations of a Service but those that this program and kubectl add.
fn asked_for(row: &ServiceRow) -> impl Iterator<Item = (&str, &str)> {
    let annotations = row.annotations.iter();
    let annotations = annotations.map(|(key, value)| (key.as_str(), value.as_str()));
    annotations
        .filter(|(key, _)| *key != LAST_APPLIED && managed_annotations().all(|it| it != *key))
}

/// Reads the last accepted version of a Service; `today` is its newest one.
///
/// # Errors
/// The text is damaged.
pub fn accepted_from_text(text: &str, today: &ServiceRow) -> Result<ServiceRow, Box<Reason>> {
    let damaged = |why: String| {
        let message = format!("the last valid version is unknown: {why}");
        Box::new(
            Reason::warning(Code::ServingPreviousVersion, message)
                .at_annotation(ACCEPTED_VERSION)
                .remedy("correct the newest version; only this program writes the annotation"),
        )
    };
    let Version { annotations, spec } =
        serde_json::from_str::<Version>(text).map_err(|error| damaged(error.to_string()))?;
    let metadata = ObjectMeta {
        annotations,
        name: Some(today.key.name().to_owned()),
        namespace: Some(today.key.namespace().to_owned()),
        uid: Some(today.uid.to_string()),
        ..ObjectMeta::default()
    };
    let service = Service {
        metadata,
        spec,
        ..Service::default()
    };
    let row = service.into_row().map_err(|reasons| {
        let texts: Vec<String> = reasons.iter().map(ToString::to_string).collect();
        damaged(texts.join("; "))
    })?;
    // What the Service is does not go back to what it was.
    Ok(ServiceRow {
        key: today.key.clone(),
        uid: today.uid.clone(),
        generation: today.generation,
        resource_version: today.resource_version.clone(),
        recorded: today.recorded.clone(),
        created: today.created,
        labels: today.labels.clone(),
        finalized: today.finalized,
        deleting: today.deleting,
        status: today.status.clone(),
        source: today.source.clone(),
        ..row
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(json: serde_json::Value) -> ServiceRow {
        serde_json::from_value::<Service>(json)
            .unwrap()
            .into_row()
            .unwrap()
    }

    fn accepted() -> ServiceRow {
        row(json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u", "annotations": {
                "landfall.dev/sharing-key": "front", "state.landfall.dev/instance": "edge",
                (LAST_APPLIED): "{}"}},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30080}],
                "selector": {"app": "web"}, "externalTrafficPolicy": "Local",
                "healthCheckNodePort": 31000}
        }))
    }

    fn newest() -> ServiceRow {
        row(json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u", "generation": 7,
                "labels": {"tier": "front"},
                "finalizers": ["service.kubernetes.io/load-balancer-cleanup"],
                "annotations": {"landfall.dev/mode": "sideways"}},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 81}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
        }))
    }

    #[test]
    fn what_was_accepted_reads_back_beside_what_the_service_is_today() {
        let (accepted, newest) = (accepted(), newest());
        let text = accepted_to_text(&accepted).unwrap();
        let read = accepted_from_text(&text, &newest).unwrap();
        let mut annotations = accepted.annotations.clone();
        annotations.remove(LAST_APPLIED);
        let expected = ServiceRow {
            annotations,
            generation: newest.generation,
            labels: newest.labels.clone(),
            finalized: true,
            status: newest.status.clone(),
            ..accepted
        };
        assert_eq!(read, expected);
        assert_eq!(accepted_to_text(&read), Ok(text));
    }

    #[test]
    fn the_annotations_of_what_was_accepted_are_known_without_reading_it_if_it_is_the_newest() {
        let (mut accepted, newest) = (accepted(), newest());
        let text = accepted_to_text(&accepted).unwrap();
        accepted
            .annotations
            .insert(ACCEPTED_VERSION.to_owned(), text.clone());
        let read = accepted_from_text(&text, &accepted).unwrap();
        let annotations = accepted_annotations(&text, &accepted);
        assert_eq!(annotations, Some(read.annotations));
        assert_eq!(accepted_annotations(&text, &newest), None);
        assert_eq!(accepted_annotations("{", &accepted), None);
    }

    /// It is compared with what is on record, so its fields have an order for good.
    #[test]
    fn the_fields_of_the_text_are_in_the_order_of_their_names() {
        let mut row = accepted();
        row.node_fields = [
            ("externalIPs".to_owned(), "192.0.2.9".to_owned()),
            ("internalTrafficPolicy".to_owned(), "Local".to_owned()),
            ("trafficDistribution".to_owned(), "PreferClose".to_owned()),
        ]
        .into();
        row.affinity = Some(std::time::Duration::from_secs(9));
        row.load_balancer_ip = Some("192.0.2.1".to_owned());
        row.source_ranges = vec!["10.0.0.0/8".to_owned()];
        row.class = Some("fast".into());
        row.headless = true;
        row.publish_not_ready = true;
        let text = accepted_to_text(&row).unwrap();
        let sorted: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(text, sorted.to_string());
        assert_eq!(sorted["spec"].as_object().unwrap().len(), 19);
    }

    #[test]
    fn the_text_holds_neither_our_own_annotations_nor_the_copy_of_kubectl() {
        let text = accepted_to_text(&accepted()).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            json["annotations"],
            json!({"landfall.dev/sharing-key": "front"})
        );
        assert_eq!(json["spec"]["ports"][0]["nodePort"], 30080);
        assert_eq!(json.as_object().unwrap().len(), 2);
    }

    #[test]
    fn a_version_that_is_too_long_is_not_kept_and_that_is_reported() {
        let mut row = accepted();
        let long = "x".repeat(LONGEST);
        row.annotations
            .insert("landfall.dev/endpoints".to_owned(), long);
        let reason = accepted_to_text(&row).unwrap_err();
        assert_eq!(reason.code, Code::ServingPreviousVersion);
        assert!(reason.message.contains("100 KiB"), "{}", reason.message);
    }

    #[test]
    fn a_version_is_not_kept_where_annotations_would_be_more_than_the_api_server_takes() {
        let mut row = accepted();
        let long = "x".repeat(IN_ALL);
        row.annotations.insert(LAST_APPLIED.to_owned(), long);
        assert!(accepted_to_text(&row).is_err());
        row.annotations
            .insert(LAST_APPLIED.to_owned(), String::new());
        assert!(accepted_to_text(&row).is_ok());
    }

    #[test]
    fn a_damaged_text_is_a_reason_that_names_the_annotation() {
        for text in ["", "{", "[]", r#"{"annotations": {}}"#] {
            let reason = accepted_from_text(text, &newest()).unwrap_err();
            assert_eq!(
                reason.field.as_deref(),
                Some("metadata.annotations[state.landfall.dev/accepted]"),
                "{text}"
            );
        }
    }
}
