//! From documents to objects: which kind each is, its row, and what is wrong with it.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use landfall_model::dialect::closest;
use landfall_model::kinds::ObjectKind as Kind;
use landfall_model::marks::marks_of;
use landfall_model::reason::{Code, Origin, Reason, Severity};
use landfall_model::rows::{
    PoolRow, ResourceKind, ResourceRow, SecretRow, ServiceRow, SliceRow, SourceMap,
};
use landfall_model::status::ServiceStatus;
use landfall_model::{ServiceKey, wire};
use serde::de::DeserializeOwned;

use super::de::{Fault, from_node};
use super::documents::{Document, split};
use super::fields;
use super::object::{Object, ObjectKey};
use super::resource_fields;
use super::tree::{Flaw, Node, Value};
use crate::identity;

/// What one file says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    /// Its objects, in the order of the file.
    pub(crate) objects: Vec<Found>,
    /// Objects that stand in it but can't be used as they are, with the reasons.
    pub(crate) spoilt: BTreeMap<ObjectKey, Vec<Reason>>,
    /// Whether a part of it could not even be parsed: then nothing that it contained before can
    /// be taken as withdrawn.
    pub(crate) unclear: bool,
    /// What is wrong with it, in the order of its lines.
    pub(crate) reasons: Vec<Reason>,
}

/// An object and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) key: ObjectKey,
    pub(crate) origin: Origin,
    pub(crate) object: Object,
}

/// The largest number of reasons reported of one file; after these are fixed, the rest is reported.
const REASONS_LIMIT: usize = 100;

/// A parser notices a mistake where it can't go on, which is at the mistake or shortly after it.
const BROKEN_REMEDY: &str = "correct this line or one shortly above it";

/// How deep lists may hold lists.
const LIST_DEPTH: usize = 4;

/// Reads a file's text. `name` is how the file is called in messages.
pub(crate) fn read(name: &Arc<str>, text: &str) -> Content {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let must_be_json = std::path::Path::new(&**name)
        .extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    let mut reading = Reading {
        file: name,
        content: Content::default(),
        before: 0,
    };
    for document in split(text, must_be_json) {
        match document {
            Document::Broken(flaw) => reading.unclear(flaw, BROKEN_REMEDY),
            Document::Read { root, flaws } => reading.document(&root, flaws),
        }
    }
    let mut content = reading.content;
    if content.reasons.len() > REASONS_LIMIT {
        let more = content.reasons.len() - REASONS_LIMIT;
        // The worst must not be the ones that are left out.
        content
            .reasons
            .sort_by_key(|reason| std::cmp::Reverse(reason.severity));
        content.reasons.truncate(REASONS_LIMIT);
        content.reasons.push(
            Reason::warning(
                Code::InvalidManifest,
                format!("{more} more findings are omitted"),
            )
            .origin(Some(origin(name, 1))),
        );
    }
    content
}

fn origin(file: &Arc<str>, line: u32) -> Origin {
    Origin {
        file: file.clone(),
        line,
    }
}

/// The reading of one file.
struct Reading<'a> {
    file: &'a Arc<str>,
    content: Content,
    /// How many reasons there were before this document.
    before: usize,
}

// === impl Reading ===

impl Reading<'_> {
    fn report(&mut self, reason: Reason, line: u32) {
        let origin = origin(self.file, line);
        self.content.reasons.push(reason.origin(Some(origin)));
    }

    /// Something that can't be parsed.
    fn unclear(&mut self, flaw: Flaw, remedy: &str) {
        self.content.unclear = true;
        let reason = Reason::error(Code::InvalidManifest, flaw.message).remedy(remedy);
        self.report(reason, flaw.line);
    }

    fn document(&mut self, root: &Rc<Node>, flaws: Vec<Flaw>) {
        let damaged = !flaws.is_empty();
        self.before = self.content.reasons.len();
        for flaw in flaws {
            let reason =
                Reason::error(Code::InvalidManifest, flaw.message).remedy("keep one of them");
            self.report(reason, flaw.line);
        }
        self.object(root, None, damaged, LIST_DEPTH);
    }

    /// One object, or a list of them. `implied` is the kind that the list around it promises.
    fn object(&mut self, node: &Node, implied: Option<Kind>, damaged: bool, lists_left: usize) {
        if !matches!(node.value, Value::Map(_)) {
            let flaw = Flaw {
                line: node.line,
                message: "not a Kubernetes object: it is not a map of fields".to_owned(),
            };
            return self.unclear(flaw, "write apiVersion, kind, metadata and spec");
        }
        let (api_version, kind) = (text(node, "apiVersion"), text(node, "kind"));
        let (api_version, kind) = match (api_version, kind, implied) {
            (None, None, Some(kind)) => return self.of_kind(kind, node, damaged),
            (None, None, None) => {
                let reason = Reason::warning(
                    Code::InvalidManifest,
                    "not a Kubernetes object: it has no apiVersion and no kind",
                );
                return self.report(reason.remedy("move other files elsewhere"), node.line);
            }
            (Some(api_version), Some(kind), _) => (api_version, kind),
            (api_version, ..) => {
                let missing = if api_version.is_none() {
                    "apiVersion"
                } else {
                    "kind"
                };
                let flaw = Flaw {
                    line: node.line,
                    message: format!("the object has no {missing}"),
                };
                return self.unclear(flaw, "every Kubernetes object has it: add it");
            }
        };
        if let Some(items) = list_kind(api_version, kind) {
            return self.list(node, items, damaged, lists_left);
        }
        match kind_of(api_version, kind) {
            Some(kind) => self.of_kind(kind, node, damaged),
            None => self.of_foreign_kind(api_version, kind, node),
        }
    }

    fn list(&mut self, node: &Node, implied: Option<Kind>, damaged: bool, lists_left: usize) {
        let Some(items) = node.get("items") else {
            return;
        };
        match &items.value {
            Value::List(_) if lists_left == 0 => {
                let flaw = Flaw {
                    line: items.line,
                    message: "lists are nested too deep".to_owned(),
                };
                self.unclear(flaw, "put the objects into one list");
            }
            Value::List(items) => {
                for item in items {
                    self.object(item, implied, damaged, lists_left - 1);
                }
            }
            _ if items.is_null() => {}
            Value::Map(_) | Value::Scalar { .. } => {
                let flaw = Flaw {
                    line: items.line,
                    message: "the items of the list are no list".to_owned(),
                };
                self.unclear(flaw, "write each item with a dash in front");
            }
        }
    }

    /// A kind that is not read: silence, unless it looks like a slip or a misunderstanding.
    fn of_foreign_kind(&mut self, api_version: &str, kind: &str, node: &Node) {
        let line = |field: &str| node_line(node, field);
        let warning = |message: String| Reason::warning(Code::InvalidManifest, message);
        let error = |message: String| Reason::error(Code::InvalidManifest, message);
        if api_version == "v1" && kind == "Endpoints" {
            let reason = warning("Endpoints are not read".to_owned())
                .remedy("write an EndpointSlice of discovery.k8s.io/v1");
            return self.report(reason.at("kind"), line("kind"));
        }
        if let Some(ours) = Kind::ALL.into_iter().find(|ours| ours.row().name == kind) {
            // Other groups may have kinds of the same name; only what can be no group is a slip.
            let group = ours.row().group;
            let their_group = api_version.split_once('/').map_or("", |(group, _)| group);
            if their_group == group
                || their_group == "core"
                || closest(their_group, [group]).is_some()
            {
                // A slip must not withdraw what is served.
                self.content.unclear = true;
                let reason = error(format!("{kind} is not read in this version"))
                    .at("apiVersion")
                    .value(api_version)
                    .remedy(format!("write apiVersion: {}", ours.row().api_version()));
                self.report(reason, line("apiVersion"));
            }
            return;
        }
        if let Some(name) = mistyped_kind(kind)
            && (api_version == "v1"
                || Kind::ALL
                    .iter()
                    .any(|kind| kind.row().api_version() == api_version))
        {
            self.content.unclear = true;
            let reason = error("there is no such kind".to_owned())
                .at("kind")
                .value(kind)
                .remedy(format!("did you mean {name}?"));
            self.report(reason, line("kind"));
        }
    }

    fn of_kind(&mut self, kind: Kind, node: &Node, damaged: bool) {
        match kind {
            Kind::Namespace => self.take(node, kind, damaged, |shape: wire::Namespace, _| {
                shape.into_row().map(|row| Object::Namespace(Arc::new(row)))
            }),
            Kind::Node => self.take(node, kind, damaged, |shape: wire::Node, _| {
                shape.into_row().map(|row| Object::Node(Arc::new(row)))
            }),
            Kind::Resource(of @ ResourceKind::IpAddressPool) => {
                self.take(node, kind, damaged, |shape: wire::IpAddressPool, source| {
                    let row = shape.into_row()?;
                    let whole = from_node::<wire::Resource>(node).ok();
                    let whole = whole.map(|whole| resource(of, whole, source.clone()));
                    Ok(Object::Pool(Arc::new(PoolRow {
                        source: Some(source),
                        resource: whole.transpose()?.map(Arc::new),
                        ..row
                    })))
                });
            }
            Kind::Resource(of) => self.take(node, kind, damaged, |shape, source| {
                let row = resource(of, shape, source)?;
                Ok(Object::Resource(Arc::new(row)))
            }),
            Kind::Secret => self.take(node, kind, damaged, |shape: wire::Secret, source| {
                let row = shape.into_row()?;
                Ok(Object::Secret(Arc::new(SecretRow {
                    source: Some(source),
                    ..row
                })))
            }),
            Kind::Slice => self.take(node, kind, damaged, |shape: wire::EndpointSlice, source| {
                let row = shape.into_row()?;
                Ok(Object::Slice(Arc::new(SliceRow {
                    source: Some(source),
                    ..row
                })))
            }),
            Kind::Service => self.take(node, kind, damaged, service),
        }
    }

    /// Reads one object into a row; `damaged`: it must not be used, though it may look fine.
    fn take<T: DeserializeOwned>(
        &mut self,
        node: &Node,
        kind: Kind,
        damaged: bool,
        into_row: impl FnOnce(T, Arc<SourceMap>) -> Result<Object, Vec<Reason>>,
    ) {
        let name = name_of(node, kind);
        // What damages a document was found before its objects were read.
        let first = if damaged {
            self.before
        } else {
            self.content.reasons.len()
        };
        let source = Arc::new(SourceMap {
            document: origin(self.file, node.line),
            lines: fields::lines(node),
            newest_invalid: Vec::new(),
        });
        let mut reasons = fields::unknown(node, fields_of(kind));
        let object = match from_node::<T>(node) {
            Err(fault) => {
                reasons.push(fault_reason(&fault, kind));
                None
            }
            Ok(shape) => match into_row(shape, source.clone()) {
                Ok(object) => Some(object),
                Err(errors) => {
                    reasons.extend(errors);
                    None
                }
            },
        };
        let refused = reasons
            .iter()
            .any(|reason| reason.severity == Severity::Error);
        for reason in reasons {
            let place = reason
                .field
                .as_deref()
                .map_or_else(|| source.document.clone(), |field| source.origin_of(field));
            self.content.reasons.push(reason.origin(Some(place)));
        }
        match (object, name) {
            (Some(object), _) if !damaged => self.content.objects.push(Found {
                key: object.key(),
                origin: source.document.clone(),
                object,
            }),
            (None, _) if !refused => {}
            (_, Some(key)) => {
                let reasons = self.content.reasons.iter().skip(first);
                let errors = reasons.filter(|reason| reason.severity == Severity::Error);
                let errors = errors.cloned().collect();
                self.content.spoilt.insert(key, errors);
            }
            (_, None) => self.content.unclear = true,
        }
    }
}

/// A Service, which in a file has no status and no history: those are the store's.
fn service(mut shape: wire::Service, source: Arc<SourceMap>) -> Result<Object, Vec<Reason>> {
    shape.status = wire::ServiceStatusShape::default();
    for mark in marks_of(&shape.metadata.annotations).keys() {
        shape.metadata.annotations.remove(mark);
    }
    if shape.metadata.uid.as_deref().is_none_or(str::is_empty) {
        let name = shape.metadata.name.as_deref().unwrap_or_default();
        let key = ServiceKey::new(shape.metadata.namespace_or_default(), name);
        shape.metadata.uid = Some(identity::uid_of(&key).to_string());
    }
    let row = shape.into_row()?;
    Ok(Object::Service(Arc::new(ServiceRow {
        generation: None,
        resource_version: None,
        finalized: false,
        deleting: false,
        status: ServiceStatus::default(),
        source: Some(source),
        ..row
    })))
}

/// A custom resource with its place.
fn resource(
    kind: ResourceKind,
    shape: wire::Resource,
    source: Arc<SourceMap>,
) -> Result<ResourceRow, Vec<Reason>> {
    let row = shape.into_row(kind)?;
    Ok(ResourceRow {
        uid: None,
        generation: None,
        created: None,
        source: Some(source),
        ..row
    })
}

fn fault_reason(fault: &Fault, kind: Kind) -> Reason {
    let field = fault.field();
    let reason = Reason::error(Code::InvalidManifest, fault.message.clone());
    let reason = if field.is_empty() {
        reason
    } else {
        reason.at(field)
    };
    match &fault.value {
        Some(value) if kind != Kind::Secret => {
            let cut: String = value.chars().take(80).collect();
            reason.value(cut)
        }
        _ => reason,
    }
}

/// The object's identity, as far as it can be read from a tree whose shape may be wrong.
fn name_of(node: &Node, kind: Kind) -> Option<ObjectKey> {
    let metadata = node.get("metadata")?;
    let name = text(metadata, "name").filter(|name| !name.is_empty())?;
    let namespace = text(metadata, "namespace")
        .filter(|namespace| !namespace.is_empty())
        .unwrap_or(wire::DEFAULT_NAMESPACE);
    Some(match kind {
        Kind::Namespace => ObjectKey::Namespace(name.into()),
        Kind::Node => ObjectKey::Node(name.into()),
        Kind::Resource(ResourceKind::IpAddressPool) => ObjectKey::Pool(name.to_owned()),
        Kind::Resource(of) => ObjectKey::Resource(of, ServiceKey::new(namespace, name)),
        Kind::Secret => ObjectKey::Secret(ServiceKey::new(namespace, name)),
        Kind::Slice => ObjectKey::Slice(ServiceKey::new(namespace, name)),
        Kind::Service => ObjectKey::Service(ServiceKey::new(namespace, name)),
    })
}

fn text<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    match &node.get(key)?.value {
        Value::Scalar { text, .. } => Some(text),
        Value::List(_) | Value::Map(_) => None,
    }
}

fn node_line(node: &Node, key: &str) -> u32 {
    node.get(key).map_or(node.line, |value| value.line)
}

/// The kind of a list's items; `Some(None)` where each item says its own.
#[expect(clippy::option_option, reason = "both kinds of nothing mean something")]
fn list_kind(api_version: &str, kind: &str) -> Option<Option<Kind>> {
    if api_version == "v1" && kind == "List" {
        return Some(None);
    }
    let items = kind.strip_suffix("List")?;
    kind_of(api_version, items).map(Some)
}

/// The kind that was meant: our kinds and the list, but for case, a plural, or a slip.
fn mistyped_kind(kind: &str) -> Option<&'static str> {
    let names = Kind::ALL.iter().map(|kind| kind.row().name).chain(["List"]);
    let singular = kind.strip_suffix('s').unwrap_or(kind);
    let mut same = names
        .clone()
        .filter(|name| name.eq_ignore_ascii_case(kind) || name.eq_ignore_ascii_case(singular));
    // Short words are near to too many real kinds.
    same.next()
        .or_else(|| closest(kind, names.filter(|name| name.len() > 5)))
}

/// Returns the kind that an object names.
fn kind_of(api_version: &str, name: &str) -> Option<Kind> {
    Kind::ALL
        .into_iter()
        .find(|kind| kind.row().name == name && kind.row().reads_version(api_version))
}

/// Returns the fields that are read of a kind.
fn fields_of(kind: Kind) -> &'static [(&'static str, &'static [&'static str])] {
    match kind {
        Kind::Namespace | Kind::Node => fields::METADATA_ONLY,
        Kind::Resource(of) => resource_fields::of(of),
        Kind::Secret => fields::SECRET,
        Kind::Slice => fields::SLICE,
        Kind::Service => fields::SERVICE,
    }
}

#[cfg(test)]
mod tests;
