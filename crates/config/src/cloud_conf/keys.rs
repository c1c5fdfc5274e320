//! Taking typed values out of a section. What has not been taken at the end is unknown.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use landfall_model::dialect::closest;
use landfall_model::reason::{Code, Reason};
use secrecy::SecretString;

use super::value;
use crate::cloud::{ConfError, origin};
use crate::gcfg::Entry;

/// The keys of a section, be it written once or in several parts.
pub(super) struct Keys<'a> {
    file: &'a Arc<str>,
    section: String,
    entries: Vec<&'a Entry>,
    known: Vec<&'static str>,
    warnings: &'a mut Vec<Reason>,
}

/// A value and where it stands.
struct Found<'a> {
    text: &'a str,
    line: u32,
}

impl<'a> Keys<'a> {
    pub fn new(
        file: &'a Arc<str>,
        section: impl Into<String>,
        entries: Vec<&'a Entry>,
        warnings: &'a mut Vec<Reason>,
    ) -> Self {
        Self {
            file,
            section: section.into(),
            entries,
            known: Vec::new(),
            warnings,
        }
    }

    /// The value of a key that takes one. Of several the last counts.
    fn found(&mut self, key: &'static str) -> Result<Option<Found<'a>>, ConfError> {
        let Some(entry) = self.entry(key) else {
            return Ok(None);
        };
        match &entry.value {
            Some(text) => Ok(Some(Found {
                text,
                line: entry.line,
            })),
            None => Err(ConfError::Syntax {
                place: origin(self.file, entry.line).to_string(),
                why: format!("{}: has no value; write {key} = value", self.name(key)),
            }),
        }
    }

    fn entry(&mut self, key: &'static str) -> Option<&'a Entry> {
        self.known.push(key);
        let entries = self.entries.iter().copied();
        let all: Vec<&Entry> = entries.filter(|entry| entry.is(key)).collect();
        let last = all.last().copied()?;
        if all.len() > 1 {
            let message = "given more than once; the last one counts";
            let reason = Reason::info(Code::ConflictingOptions, message);
            self.report(reason.at(self.name(key)), last.line);
        }
        self.note_cut(last, key);
        Some(last)
    }

    fn note_cut(&mut self, entry: &Entry, key: &str) {
        if entry.cut {
            let message = "ends where a ; or # begins a comment";
            let reason = Reason::warning(Code::ConflictingOptions, message).at(self.name(key));
            let remedy = "quote the value if that character is part of it";
            self.report(reason.remedy(remedy), entry.line);
        }
    }

    fn name(&self, key: &str) -> String {
        format!("{} {key}", self.section)
    }

    fn report(&mut self, reason: Reason, line: u32) {
        let origin = origin(self.file, line);
        self.warnings.push(reason.origin(Some(origin)));
    }

    /// A value that a function reads; the function says what is wrong with others.
    pub fn parsed<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, ConfError> {
        let Some(found) = self.found(key)? else {
            return Ok(None);
        };
        let value = read(found.text).map_err(|why| ConfError::Value {
            place: origin(self.file, found.line).to_string(),
            key: self.name(key),
            value: found.text.to_owned(),
            why,
        })?;
        Ok(Some(value))
    }

    /// As [`parsed`](Self::parsed), where an empty value is as good as none.
    pub fn parsed_unless_empty<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, ConfError> {
        let read = |text: &str| match text {
            "" => Ok(None),
            text => read(text).map(Some),
        };
        Ok(self.parsed(key, read)?.flatten())
    }

    /// A text; an empty one is as good as none.
    pub fn text(&mut self, key: &'static str) -> Result<Option<String>, ConfError> {
        Ok(self.raw(key)?.filter(|text| !text.is_empty()))
    }

    /// A text, which may be empty.
    pub fn raw(&mut self, key: &'static str) -> Result<Option<String>, ConfError> {
        Ok(self.found(key)?.map(|found| found.text.to_owned()))
    }

    pub fn secret(&mut self, key: &'static str) -> Result<Option<SecretString>, ConfError> {
        Ok(self.text(key)?.map(SecretString::from))
    }

    pub fn path(&mut self, key: &'static str) -> Result<Option<PathBuf>, ConfError> {
        Ok(self.text(key)?.map(PathBuf::from))
    }

    /// A truth value; a bare key is true.
    pub fn flag(&mut self, key: &'static str) -> Result<Option<bool>, ConfError> {
        if self.entry(key).is_some_and(|entry| entry.value.is_none()) {
            return Ok(Some(true));
        }
        self.quietly(|keys| keys.parsed(key, value::flag))
    }

    pub fn count(&mut self, key: &'static str) -> Result<Option<u32>, ConfError> {
        self.parsed(key, value::count)
    }

    pub fn duration(&mut self, key: &'static str) -> Result<Option<Duration>, ConfError> {
        self.parsed(key, value::duration)
    }

    /// All values of a key; a bare key forgets those before it.
    pub fn list(&mut self, key: &'static str) -> Vec<String> {
        self.known.push(key);
        let mut values = Vec::new();
        for entry in self.entries.clone() {
            if entry.is(key) {
                self.note_cut(entry, key);
                match &entry.value {
                    Some(value) => values.push(value.clone()),
                    None => values.clear(),
                }
            }
        }
        values
    }

    /// Where the key stands.
    pub fn place(&self, key: &str) -> Option<String> {
        let entry = self.entries.iter().rev().find(|entry| entry.is(key))?;
        Some(origin(self.file, entry.line).to_string())
    }

    /// Adds a warning about a value.
    pub fn warn(&mut self, key: &str, code: Code, message: &str, remedy: &str) {
        let entry = self.entries.iter().rev().find(|entry| entry.is(key));
        let Some(entry) = entry.copied() else { return };
        let reason = Reason::warning(code, message)
            .at(self.name(key))
            .remedy(remedy);
        let value = entry.value.as_deref().unwrap_or_default();
        self.report(reason.value(value), entry.line);
    }

    /// Keys that older versions of the reference knew.
    pub fn historic(&mut self, keys: &[&'static str]) {
        for key in keys {
            self.known.push(key);
            if let Some(entry) = self.entries.iter().copied().find(|entry| entry.is(key)) {
                let message = "has no effect any more";
                let reason = Reason::info(Code::OptionNotApplicable, message).at(self.name(key));
                self.report(reason.remedy("remove it"), entry.line);
            }
        }
    }

    /// Warns about every key that is not known.
    pub fn finish(mut self) {
        for entry in std::mem::take(&mut self.entries) {
            if self.known.iter().any(|key| entry.is(key)) {
                continue;
            }
            if let Some(above) = &entry.below {
                let message = "has no value, and no key follows on the next line (it is not shown: \
                              it may be the secret)";
                let reason =
                    Reason::warning(Code::OptionNotApplicable, message).at(self.name(above));
                let remedy =
                    format!("write {above} = value on one line, with quotes around the value");
                self.report(reason.remedy(remedy), entry.line);
                continue;
            }
            let reason = Reason::warning(Code::OptionNotApplicable, "no such key; it is ignored");
            let near = closest(&entry.key.to_ascii_lowercase(), self.known.iter().copied());
            let remedy = near.map(|near| format!("did you mean {near}"));
            let reason = reason
                .at(self.name(&entry.key))
                .remedy(remedy.unwrap_or_default());
            self.report(reason, entry.line);
        }
    }

    /// Does something without repeating warnings.
    fn quietly<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> T {
        let reported = self.warnings.len();
        let outcome = act(self);
        self.warnings.truncate(reported);
        outcome
    }
}
