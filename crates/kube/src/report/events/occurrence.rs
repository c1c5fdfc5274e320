//! What happened to a Service or a custom resource, and how it is written as an event.

use std::sync::Arc;

use jiff::Timestamp;
use landfall_engine::report::Event;
use landfall_model::rows::{ResourceRow, ServiceRow};
use landfall_model::{ServiceKey, Uid};
use serde_json::{Value, json};

use crate::lease::micro;

/// Something that happened to an object at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::report) struct Occurrence {
    pub(super) saying: EventKey,
    pub(super) key: ServiceKey,
    /// API version and kind of the object.
    pub(super) object: (String, &'static str),
    pub(super) version: Option<Arc<str>>,
    pub(super) at: Timestamp,
}

/// The name that events carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::report) struct Reporter {
    /// The program in its role: `landfall.dev/controller`.
    pub(in crate::report) controller: &'static str,
    /// The process.
    pub(in crate::report) instance: String,
}

/// What is said, whenever it is said.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct EventKey {
    pub(super) uid: Uid,
    pub(super) reason: &'static str,
    pub(super) warning: bool,
    pub(super) message: String,
}

/// The API server's limits.
pub(super) const LONGEST_NOTE: usize = 1024;

pub(super) const LONGEST_INSTANCE: usize = 128;

impl Occurrence {
    pub(in crate::report) fn now(service: &ServiceRow, event: &Event) -> Self {
        Self {
            version: service.resource_version.clone(),
            ..Self::at_service(&service.key, &service.uid, event)
        }
    }

    /// Something that happens now to a Service in any version.
    pub(in crate::report) fn at_service(service: &ServiceKey, uid: &Uid, event: &Event) -> Self {
        Self {
            saying: EventKey {
                uid: uid.clone(),
                reason: event.reason,
                warning: event.warning,
                message: shortened(&event.message, LONGEST_NOTE),
            },
            key: service.clone(),
            object: ("v1".to_owned(), "Service"),
            version: None,
            at: Timestamp::now(),
        }
    }

    /// Something that happens now to a custom resource.
    pub(in crate::report) fn at_resource(row: &ResourceRow, uid: &Uid, event: &Event) -> Self {
        Self {
            object: (row.api_version.clone(), row.kind.name()),
            ..Self::at_service(&row.key, uid, event)
        }
    }

    pub(super) fn body(&self, name: &str, note: &str, count: u32, reporter: &Reporter) -> Value {
        let mut regarding = json!({
            "apiVersion": self.object.0, "kind": self.object.1,
            "namespace": self.key.namespace(),
            "name": self.key.name(), "uid": self.saying.uid.as_str(),
        });
        if let Some(version) = &self.version {
            regarding["resourceVersion"] = (**version).into();
        }
        let mut body = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": self.key.namespace()},
            "eventTime": micro(self.at),
            "reportingController": reporter.controller,
            "reportingInstance": shortened(&reporter.instance, LONGEST_INSTANCE),
            "action": action_of(self.saying.reason),
            "reason": self.saying.reason,
            "type": if self.saying.warning { "Warning" } else { "Normal" },
            "note": shortened(note, LONGEST_NOTE),
            "regarding": regarding,
        });
        if count > 1 {
            body["series"] = json!({"count": count, "lastObservedTime": micro(self.at)});
        }
        body
    }
}

fn shortened(text: &str, longest: usize) -> String {
    if text.len() <= longest {
        return text.to_owned();
    }
    format!(
        "{}…",
        &text[..text.floor_char_boundary(longest - '…'.len_utf8())]
    )
}

/// What was being done when it happened.
pub(super) fn action_of(reason: &str) -> &'static str {
    if reason.starts_with("Ensur") {
        "Ensure"
    } else if reason.starts_with("Delet") {
        "Delete"
    } else {
        "Sync"
    }
}

impl EventKey {
    /// What stands for every message of the reason.
    pub(super) fn combined(self) -> Self {
        Self {
            message: String::new(),
            ..self
        }
    }
}
