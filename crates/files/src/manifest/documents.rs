//! From a file's text to the documents in it: YAML with `---`, or JSON objects one after another.
//!
//! A document that is broken is reported with its line and left out; the ones after it are read, as
//! far as their beginnings can be found.

use std::rc::Rc;

use serde::de::IgnoredAny;
use serde_saphyr::granit_parser::{Event, Options, Parser};

use super::tree::{Builder, DEPTH_LIMIT, Flaw, Node, line_of};

/// One document of a file.
pub(super) enum Document {
    /// It could be read.
    Read {
        /// Its content.
        root: Rc<Node>,
        /// What is wrong with it nevertheless: keys that stand twice.
        flaws: Vec<Flaw>,
    },
    /// It could not be read, and nothing is known of it.
    Broken(Flaw),
}

/// After so many broken documents the rest of a file is not worth reading.
const BROKEN_LIMIT: usize = 20;

/// The longest key that JSON may have here. YAML itself stops at 1024.
const LONGEST_KEY: usize = 64 * 1024;

/// Splits a file. `must_be_json` says that its name promises JSON, so that there is no second try.
pub(super) fn split(text: &str, must_be_json: bool) -> Vec<Document> {
    let begins_as_json = text.trim_start().starts_with(['{', '[']);
    if !begins_as_json && !must_be_json {
        return split_yaml(text, 0);
    }
    if text.trim_start().starts_with("{{") {
        let line = text.lines().take_while(|line| line.trim().is_empty());
        return vec![Document::Broken(Flaw {
            line: u32::try_from(line.count() + 1).unwrap_or(u32::MAX),
            message: "a template, not a manifest: it begins with {{, so render it first".to_owned(),
        })];
    }
    let documents = split_json(text);
    let broken = |documents: &[Document]| documents.iter().any(Document::is_broken);
    let separated = || text.lines().any(|line| line.trim_end() == "---");
    if broken(&documents) && (!must_be_json || separated()) {
        // YAML may begin with a brace, too; and separators between JSON documents are YAML's.
        let as_yaml = split_yaml(text, 0);
        if !broken(&as_yaml) {
            return as_yaml;
        }
    }
    documents
}

impl Document {
    fn is_broken(&self) -> bool {
        matches!(self, Self::Broken(_))
    }
}

fn split_json(text: &str) -> Vec<Document> {
    let mut documents = Vec::new();
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    let mut position = Position::default();
    loop {
        let before = values.byte_offset();
        match values.next() {
            None => return documents,
            Some(Ok(IgnoredAny)) => {
                let value = text.get(before..values.byte_offset()).unwrap_or_default();
                let lines_before = position.advance(text, before);
                documents.extend(split_yaml(value, lines_before));
            }
            Some(Err(error)) => {
                let line = u32::try_from(error.line()).unwrap_or(u32::MAX);
                documents.push(Document::Broken(Flaw {
                    line,
                    message: format!("not JSON: {}", without_position(&error)),
                }));
                return documents;
            }
        }
    }
}

/// Counts line ends without starting again for each document.
#[derive(Default)]
struct Position {
    offset: usize,
    lines: u32,
}

impl Position {
    fn advance(&mut self, text: &str, offset: usize) -> u32 {
        let passed = text.get(self.offset..offset).unwrap_or_default();
        let lines = passed.matches('\n').count();
        self.lines = self
            .lines
            .saturating_add(u32::try_from(lines).unwrap_or(u32::MAX));
        self.offset = offset;
        self.lines
    }
}

/// The message alone: the line is reported beside it, and the column helps little.
fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

fn split_yaml(text: &str, lines_before: u32) -> Vec<Document> {
    let options = options();
    let mut parser = Parser::new_from_str_with_options(text, options);
    let mut builder = Builder::default();
    let mut documents = Vec::new();
    let mut broken = 0;
    loop {
        let flaw = match parser.next_event() {
            None | Some(Ok((Event::StreamEnd, _))) => return documents,
            Some(Ok((Event::DocumentStart(..), _))) => {
                builder.start_document();
                continue;
            }
            Some(Ok((Event::DocumentEnd, _))) => {
                let finished = builder.end_document();
                documents.extend(
                    finished
                        .filter(|(root, _)| !root.is_null())
                        .map(|(root, flaws)| Document::Read { root, flaws }),
                );
                continue;
            }
            Some(Ok((event, span))) => {
                let mut start = span.start;
                if lines_before > 0 {
                    start = moved(&start, lines_before);
                }
                match builder.event(event, &start) {
                    Ok(()) => continue,
                    Err(flaw) => flaw,
                }
            }
            Some(Err(error)) => Flaw {
                line: line_of(error.marker()).saturating_add(lines_before),
                message: format!("not YAML: {}", error.info()),
            },
        };
        documents.push(Document::Broken(flaw));
        broken += 1;
        builder.start_document();
        if broken >= BROKEN_LIMIT || !matches!(parser.proceed_next_document(), Ok(true)) {
            return documents;
        }
    }
}

fn moved(
    marker: &serde_saphyr::granit_parser::Marker,
    lines: u32,
) -> serde_saphyr::granit_parser::Marker {
    serde_saphyr::granit_parser::Marker::new(
        marker.index(),
        marker.line() + lines as usize,
        marker.col(),
    )
}

fn options() -> Options {
    let mut options = Options::default();
    options.set_emit_comments(false);
    options.flow_nesting_limit = DEPTH_LIMIT;
    options.block_nesting_limit = DEPTH_LIMIT;
    options.simple_key_max_lookahead = LONGEST_KEY;
    options
}
