//! What lists and watches say on the wire.

use std::collections::BTreeMap;

use landfall_model::wire::ListMeta;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The annotation of the bookmark that ends the initial events of a streamed list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// What a watch says in one line.
#[derive(Deserialize)]
pub(super) struct Event<'a> {
    #[serde(rename = "type")]
    pub(super) kind: EventKind,
    #[serde(borrow)]
    pub(super) object: &'a RawValue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum EventKind {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
    #[serde(other)]
    Unknown,
}

#[derive(Deserialize)]
pub(super) struct Bookmark {
    pub(super) metadata: BookmarkMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BookmarkMeta {
    pub(super) resource_version: String,
    #[serde(default)]
    pub(super) annotations: BTreeMap<String, String>,
}

/// One page of a list.
#[derive(Deserialize)]
pub(super) struct Page<'a> {
    #[serde(default)]
    pub(super) metadata: ListMeta,
    #[serde(borrow, default)]
    pub(super) items: Option<Vec<&'a RawValue>>,
}

// === impl Bookmark ===

impl Bookmark {
    /// Whether everything that there was has been sent before it.
    pub(super) fn ends_listing(&self) -> bool {
        let ends = self.metadata.annotations.get(INITIAL_EVENTS_END);
        ends.is_some_and(|truth| truth == "true")
    }
}
