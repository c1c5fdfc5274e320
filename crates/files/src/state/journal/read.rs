//! Reading a journal: pure.

use std::borrow::Cow;
use std::collections::BTreeMap;

use landfall_model::ServiceKey;
use serde::Deserialize;
use serde::de::IgnoredAny;
use sha2::Digest as _;

use super::format::{BatchEnd, End, FORMAT, Header, begin, shown};
use crate::state::entry::Key;

/// What a journal says.
#[derive(Debug)]
pub(crate) struct Reading<'a> {
    /// The newest line of every name.
    pub(crate) lines: BTreeMap<Key, &'a str>,
    /// What the first line says of the file that this one took the place of.
    pub(crate) migrated: Option<String>,
    /// Bytes at the end that were interrupted.
    pub(crate) interrupted: u64,
    pub(super) end: End,
}

/// Why a journal can't be understood.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Corruption {
    /// It was written by something newer.
    Format(u64),
    /// It is not as it was written.
    Broken(String),
}

/// A line, as far as it must be understood to find the newest of each name.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(default)]
    service: Option<ServiceKey>,
    #[serde(borrow, default)]
    pool: Option<Cow<'a, str>>,
    #[serde(default)]
    gone: bool,
    #[serde(default)]
    object: Option<IgnoredAny>,
}

/// Reads a journal. Pure.
pub(crate) fn read(bytes: &[u8]) -> Result<Reading<'_>, Corruption> {
    let first = bytes.split(|byte| *byte == b'\n').next();
    let header: Header<'_> =
        serde_json::from_slice(first.unwrap_or_default()).map_err(|error| {
            Corruption::Broken(format!(
                "the first line is not that of a journal: \
                                                {error}"
            ))
        })?;
    if header.format != FORMAT {
        return Err(Corruption::Format(header.format));
    }
    let mut reading = Reading {
        lines: BTreeMap::new(),
        migrated: header.migrated,
        interrupted: 0,
        end: End::default(),
    };
    let mut start = 0;
    while let Some(batch) = Batch::next(bytes, start, &reading.end) {
        let skipped = usize::from(start == 0);
        for line in batch.lines.iter().skip(skipped) {
            let (key, object) = understand(line).map_err(Corruption::Broken)?;
            match object {
                Some(text) => reading.lines.insert(key, text),
                None => reading.lines.remove(&key),
            };
        }
        reading.end = batch.end;
        start = usize::try_from(batch.end.place).unwrap_or(usize::MAX);
    }
    let tail = bytes.get(start..).unwrap_or_default();
    if start == 0 {
        let why = "the first batch is incomplete";
        return Err(Corruption::Broken(why.to_owned()));
    }
    if let Some(why) = why_not_interrupted(tail, reading.end.commits) {
        return Err(Corruption::Broken(format!("{why} (from byte {start} on)")));
    }
    reading.interrupted = tail.len() as u64;
    Ok(reading)
}

/// One batch that is complete.
struct Batch<'a> {
    lines: Vec<&'a str>,
    end: End,
}

impl<'a> Batch<'a> {
    fn next(bytes: &'a [u8], start: usize, before: &End) -> Option<Self> {
        let mut lines = Vec::new();
        let mut place = start;
        for line in whole_lines(bytes.get(start..)?) {
            let after = place + line.len() + 1;
            let text = std::str::from_utf8(line).ok()?;
            if let Some(conclusion) = conclusion(line) {
                let mut digest = begin(before);
                digest.update(bytes.get(start..place)?);
                let digest: [u8; 32] = digest.finalize().into();
                let is_whole =
                    conclusion.commit == before.commits + 1 && conclusion.sha256 == shown(&digest);
                let end = End {
                    place: after as u64,
                    commits: conclusion.commit,
                    digest,
                };
                return is_whole.then_some(Self { lines, end });
            }
            lines.push(text);
            place = after;
        }
        None
    }
}

/// Lines that end.
fn whole_lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut start = 0;
    memchr::memchr_iter(b'\n', bytes).filter_map(move |end| {
        let line = bytes.get(start..end);
        start = end + 1;
        line
    })
}

fn conclusion(line: &[u8]) -> Option<BatchEnd<'_>> {
    // Names and objects stand in lines that begin otherwise.
    line.starts_with(b"{\"commit\":")
        .then(|| serde_json::from_slice(line).ok())?
}

/// Why the end of a file is not simply a batch that was interrupted: then something that counted
/// may be lost in it.
fn why_not_interrupted(tail: &[u8], commits: u64) -> Option<&'static str> {
    let mut is_json = true;
    for line in whole_lines(tail) {
        if let Some(conclusion) = conclusion(line) {
            if conclusion.commit > commits + 1 {
                return Some("it is damaged in the middle");
            }
            if conclusion.commit == commits + 1 && is_json {
                return Some("it was changed after it was written");
            }
        }
        is_json &= serde_json::from_slice::<IgnoredAny>(line).is_ok();
    }
    None
}

/// Returns the Service that a line is about that has the form in which objects of Services are
/// written; `None`: it may have any other form.
fn written_subject(text: &str) -> Option<Key> {
    let (subject, rest) = text.strip_prefix("{\"service\":\"")?.split_once('"')?;
    let rest = rest.strip_prefix(",\"deleting\":true").unwrap_or(rest);
    let is_whole = rest.starts_with(",\"object\":{") && rest.ends_with("}}");
    if !is_whole || subject.contains('\\') {
        return None;
    }
    subject.parse().ok().map(Key::Service)
}

/// Returns what a line is about, and the line itself where it has an object. The object is read
/// later, and only the newest of each name: what is outdated is covered by the digest.
fn understand(text: &str) -> Result<(Key, Option<&str>), String> {
    if let Some(key) = written_subject(text) {
        return Ok((key, Some(text)));
    }
    let line: Line<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let key = match (line.service, line.pool) {
        (Some(service), None) => Some(Key::Service(service)),
        (None, Some(pool)) => Some(Key::Pool(pool.into_owned())),
        _ => None,
    };
    let key = key.ok_or_else(|| format!("a line has an unknown subject: {text}"))?;
    if !line.gone && line.object.is_none() {
        return Err(format!("a line has no object: {text}"));
    }
    Ok((key, (!line.gone).then_some(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(text: &str) -> Option<String> {
        written_subject(text).map(|key| format!("{key:?}"))
    }

    /// What a line is about by its JSON alone.
    fn by_json(text: &str) -> Option<String> {
        let line: Line<'_> = serde_json::from_str(text).unwrap();
        line.service.map(|key| format!("{:?}", Key::Service(key)))
    }

    #[test]
    fn the_subject_of_a_line_as_it_is_written_is_found_without_reading_its_object() {
        for text in [
            r#"{"service":"shop/web","object":{"spec":{}}}"#,
            r#"{"service":"shop/web","deleting":true,"object":{"spec":{"a":"}}"}}}"#,
        ] {
            assert_eq!(subject(text), by_json(text));
            assert!(subject(text).is_some());
        }
    }

    #[test]
    fn a_line_of_any_other_form_is_left_to_json() {
        for text in [
            r#"{"service":"shop/web","gone":true}"#,
            r#"{"service":"shop/web","object":{}, "gone":true}"#,
            r#"{"service":"shop\u002fweb","object":{"a":{}}}"#,
            r#"{ "service":"shop/web","object":{"a":{}}}"#,
            r#"{"pool":"all","object":{"a":{}}}"#,
            r#"{"service":"web","object":{"a":{}}}"#,
        ] {
            assert_eq!(subject(text), None, "{text}");
        }
    }
}
