//! A YAML or JSON document as a tree that knows its lines, and how it is built from parser events.
//!
//! Aliases share the node that they name, so an alias bomb costs nothing until it is read; and it
//! is never read, because what all aliases of a document stand for together is limited.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use serde_saphyr::granit_parser::{Event, Marker, ScalarStyle};

/// How deep lists and maps may be nested, aliases included. Kubernetes' own objects stay below 20.
pub(super) const DEPTH_LIMIT: usize = 64;

/// How many values the aliases of one document may stand for, each counted as often as it is named.
const ALIAS_LIMIT: usize = 100_000;

/// How many values one file may hold. Bounds memory, which files of separate scalars would exhaust
/// long before the limit on their size.
const NODE_LIMIT: usize = 2_000_000;

/// The keys of a map of so many entries are found fastest by comparing all.
const SMALL: usize = 16;

/// A value and the line on which it begins. No `Debug`: it may hold a Secret.
pub(super) struct Node {
    /// Counted from 1.
    pub(super) line: u32,
    /// The value.
    pub(super) value: Value,
    /// Values in it, itself included, with aliases written out.
    weight: usize,
    /// Levels of lists and maps in it.
    depth: usize,
}

/// A value.
pub(super) enum Value {
    /// A text, or what a plain one stands for.
    Scalar {
        /// As written, with escapes resolved.
        text: String,
        /// Neither quoted nor tagged as a text, so that it may mean a number, a truth value,
        /// nothing.
        plain: bool,
    },
    /// A list.
    List(Vec<Rc<Node>>),
    /// A map, in the order of the file.
    Map(Vec<Entry>),
}

/// An entry of a map.
pub(super) struct Entry {
    /// The key's text.
    pub(super) key: String,
    /// Where the key stands.
    pub(super) line: u32,
    /// The value.
    pub(super) value: Rc<Node>,
}

/// Something wrong at a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flaw {
    /// Counted from 1.
    pub(super) line: u32,
    /// A sentence that quotes no value.
    pub(super) message: String,
}

/// Builds the trees of a file, document by document.
#[derive(Default)]
pub(super) struct Builder {
    stack: Vec<Open>,
    root: Option<Rc<Node>>,
    anchors: HashMap<usize, Rc<Node>>,
    aliased: usize,
    nodes: usize,
    flaws: Vec<Flaw>,
}

/// A list or map whose end has not been seen.
struct Open {
    line: u32,
    anchor: usize,
    items: Items,
}

enum Items {
    List(Vec<Rc<Node>>),
    Map {
        entries: Vec<Entry>,
        /// Where keys stand that are looked up: of a map that is large.
        places: HashMap<String, usize>,
        merges: Vec<Rc<Node>>,
        key: Option<Key>,
    },
}

struct Key {
    text: String,
    line: u32,
    merge: bool,
}

// === impl Node ===

impl Node {
    fn scalar(line: u32, text: String, plain: bool) -> Self {
        Self {
            line,
            value: Value::Scalar { text, plain },
            weight: 1,
            depth: 0,
        }
    }

    /// An entry of a map by its key.
    pub(super) fn get(&self, key: &str) -> Option<&Rc<Node>> {
        match &self.value {
            Value::Map(entries) => entries
                .iter()
                .find(|entry| entry.key == key)
                .map(|entry| &entry.value),
            Value::Scalar { .. } | Value::List(_) => None,
        }
    }

    /// Whether it is nothing: `null`, `~`, or left out.
    pub(super) fn is_null(&self) -> bool {
        match &self.value {
            Value::Scalar { text, plain } => {
                *plain && super::scalar::resolve(text) == super::scalar::Resolved::Null
            }
            Value::List(_) | Value::Map(_) => false,
        }
    }

    fn depth_around(children: impl Iterator<Item = usize>) -> usize {
        1 + children.max().unwrap_or(0)
    }
}

// === impl Builder ===

impl Builder {
    /// Forgets what is left of a document, whether it ended or broke.
    pub(super) fn start_document(&mut self) {
        self.stack.clear();
        self.root = None;
        self.anchors.clear();
        self.aliased = 0;
        self.flaws.clear();
    }

    /// The finished document, unless it was empty, and flaws that did not keep it from being read.
    pub(super) fn end_document(&mut self) -> Option<(Rc<Node>, Vec<Flaw>)> {
        let root = self.root.take()?;
        Some((root, std::mem::take(&mut self.flaws)))
    }

    /// Takes one event of the current document.
    ///
    /// # Errors
    /// The document can't be read. It is to be abandoned.
    pub(super) fn event(&mut self, event: Event<'_>, start: &Marker) -> Result<(), Flaw> {
        let line = line_of(start);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.count(line)?;
                let plain = style == ScalarStyle::Plain
                    && !tag.is_some_and(|tag| tag.is_yaml_core_schema_tag("str"));
                let node = Rc::new(Node::scalar(line, text.into_owned(), plain));
                self.anchor(anchor, &node);
                self.place(node)
            }
            Event::Alias(id) => self.alias(id, line),
            Event::SequenceStart(_, anchor, _) => self.open(line, anchor, Items::List(Vec::new())),
            Event::MappingStart(_, anchor, _) => self.open(
                line,
                anchor,
                Items::Map {
                    entries: Vec::new(),
                    places: HashMap::new(),
                    merges: Vec::new(),
                    key: None,
                },
            ),
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            _ => Ok(()),
        }
    }

    fn count(&mut self, line: u32) -> Result<(), Flaw> {
        self.nodes += 1;
        if self.nodes > NODE_LIMIT {
            return Err(Flaw {
                line,
                message: format!("the file holds more than {NODE_LIMIT} values"),
            });
        }
        Ok(())
    }

    fn open(&mut self, line: u32, anchor: usize, items: Items) -> Result<(), Flaw> {
        self.count(line)?;
        if self.stack.len() >= DEPTH_LIMIT {
            return Err(too_deep(line));
        }
        self.stack.push(Open {
            line,
            anchor,
            items,
        });
        Ok(())
    }

    fn close(&mut self) -> Result<(), Flaw> {
        let Some(open) = self.stack.pop() else {
            return Ok(());
        };
        let (value, weight, depth) = match open.items {
            Items::List(items) => {
                let weight = weigh(items.iter());
                let depth = Node::depth_around(items.iter().map(|item| item.depth));
                (Value::List(items), weight, depth)
            }
            Items::Map {
                mut entries,
                places,
                merges,
                ..
            } => {
                merge(&mut entries, &places, &merges)?;
                let weight = weigh(entries.iter().map(|entry| &entry.value));
                let depth = Node::depth_around(entries.iter().map(|entry| entry.value.depth));
                (Value::Map(entries), weight, depth)
            }
        };
        if depth > DEPTH_LIMIT {
            return Err(too_deep(open.line));
        }
        let node = Rc::new(Node {
            line: open.line,
            value,
            weight,
            depth,
        });
        self.anchor(open.anchor, &node);
        self.place(node)
    }

    fn alias(&mut self, id: usize, line: u32) -> Result<(), Flaw> {
        let Some(node) = self.anchors.get(&id).cloned() else {
            return Err(Flaw {
                line,
                message: "an alias is inside of the value that it names".to_owned(),
            });
        };
        self.count(line)?;
        self.aliased = self.aliased.saturating_add(node.weight);
        if self.aliased > ALIAS_LIMIT {
            return Err(Flaw {
                line,
                message: format!("the aliases expand to more than {ALIAS_LIMIT} values"),
            });
        }
        self.place(node)
    }

    fn anchor(&mut self, id: usize, node: &Rc<Node>) {
        if id != 0 {
            self.anchors.insert(id, node.clone());
        }
    }

    /// Puts a finished value where it belongs.
    fn place(&mut self, node: Rc<Node>) -> Result<(), Flaw> {
        let Some(open) = self.stack.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        match &mut open.items {
            Items::List(items) => items.push(node),
            Items::Map {
                key: key @ None, ..
            } => *key = Some(Key::of(&node)?),
            Items::Map {
                entries,
                places,
                merges,
                key,
            } => {
                let Some(key) = key.take() else {
                    return Ok(());
                };
                let line = key.line;
                if key.merge {
                    merges.push(node);
                } else if let Some(first) = known(entries, places, &key.text) {
                    let (first, key) = (first.line, shown(&key.text));
                    self.flaws.push(Flaw {
                        line,
                        message: format!("the key {key} is already on line {first}"),
                    });
                } else {
                    entries.push(Entry {
                        key: key.text,
                        line,
                        value: node,
                    });
                    note_places(entries, places);
                }
            }
        }
        Ok(())
    }
}

// === impl Key ===

impl Key {
    fn of(node: &Node) -> Result<Self, Flaw> {
        match &node.value {
            Value::Scalar { text, plain } => Ok(Self {
                text: text.clone(),
                line: node.line,
                merge: *plain && text == "<<",
            }),
            Value::List(_) | Value::Map(_) => Err(Flaw {
                line: node.line,
                message: "a list or map where a key is needed".to_owned(),
            }),
        }
    }
}

/// Returns an entry of a map that is not finished.
fn known<'a>(
    entries: &'a [Entry],
    places: &HashMap<String, usize>,
    key: &str,
) -> Option<&'a Entry> {
    if places.is_empty() {
        return entries.iter().find(|entry| entry.key == key);
    }
    entries.get(*places.get(key)?)
}

/// Notes the place of the last entry, and of all once they are many.
fn note_places(entries: &[Entry], places: &mut HashMap<String, usize>) {
    let from = match (entries.len(), places.is_empty()) {
        (0..=SMALL, _) => return,
        (_, true) => 0,
        (count, false) => count - 1,
    };
    let new = entries.iter().enumerate().skip(from);
    places.extend(new.map(|(place, entry)| (entry.key.clone(), place)));
}

/// Adds the entries of merged maps (`<<`) that the map does not have itself; earlier ones go first.
fn merge(
    entries: &mut Vec<Entry>,
    places: &HashMap<String, usize>,
    merges: &[Rc<Node>],
) -> Result<(), Flaw> {
    let count = entries.len();
    let mut present = HashSet::new();
    for source in merges {
        let maps = match &source.value {
            Value::List(items) => items.as_slice(),
            Value::Map(_) | Value::Scalar { .. } => std::slice::from_ref(source),
        };
        for map in maps {
            let Value::Map(additions) = &map.value else {
                return Err(Flaw {
                    line: source.line,
                    message: "only maps can be merged with <<".to_owned(),
                });
            };
            for entry in additions {
                let own = entries.get(..count).unwrap_or_default();
                let is_own = known(own, places, &entry.key).is_some();
                if !is_own && present.insert(entry.key.clone()) {
                    entries.push(Entry {
                        key: entry.key.clone(),
                        line: entry.line,
                        value: entry.value.clone(),
                    });
                }
            }
        }
    }
    Ok(())
}

fn weigh<'a>(children: impl Iterator<Item = &'a Rc<Node>>) -> usize {
    children.fold(1, |sum: usize, child| sum.saturating_add(child.weight))
}

fn too_deep(line: u32) -> Flaw {
    Flaw {
        line,
        message: format!("lists and maps are nested more than {DEPTH_LIMIT} deep"),
    }
}

/// A key in quotes, cut where it is too long to be read.
pub(super) fn shown(text: &str) -> String {
    const LONGEST: usize = 60;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// The line of a parser position.
pub(super) fn line_of(marker: &Marker) -> u32 {
    u32::try_from(marker.line()).unwrap_or(u32::MAX)
}
