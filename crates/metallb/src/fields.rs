//! Reading the fields of a spec one by one, so that everything that is wrong with it is found in
//! one go, each with its path.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::str::FromStr;

use landfall_model::reason::{Code, Reason, annotation_field};
use serde_json::{Map, Value};

/// The fields of one object within a spec. A field that is null is absent, as for the API server.
pub(crate) struct Fields<'v, 'f> {
    path: String,
    object: Option<&'v Map<String, Value>>,
    known: BTreeSet<&'static str>,
    reasons: &'f mut Vec<Reason>,
}

// === impl Fields ===

impl<'v, 'f> Fields<'v, 'f> {
    /// Begins with a spec.
    pub(crate) fn of_spec(spec: &'v Value, reasons: &'f mut Vec<Reason>) -> Self {
        Self::new("spec".to_owned(), spec, reasons)
    }

    fn new(path: String, value: &'v Value, reasons: &'f mut Vec<Reason>) -> Self {
        if !value.is_object() && !value.is_null() {
            // Its value may be a password in the wrong place.
            let reason = Reason::error(Code::InvalidResource, "not an object");
            reasons.push(reason.at(&path).remedy("write fields"));
        }
        Self {
            path,
            object: value.as_object(),
            known: BTreeSet::new(),
            reasons,
        }
    }

    /// Ends with a warning for each field that was not asked for.
    pub(crate) fn finish(self) {
        let fields = self.object.into_iter().flatten();
        let unknown = fields.filter(|(name, _)| !self.known.contains(name.as_str()));
        let known: Vec<&str> = self.known.iter().copied().collect();
        self.reasons.extend(unknown.map(|(name, _)| {
            Reason::warning(
                Code::InvalidResource,
                "there is no such field: it is ignored",
            )
            .at(format!("{}.{name}", self.path))
            .remedy(format!("remove it, or write one of {}", known.join(", ")))
        }));
    }

    /// Adds what is wrong with a field.
    pub(crate) fn refuse(
        &mut self,
        field: &str,
        value: impl Into<String>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let path = self.path_of(field);
        self.reasons.push(refusal(&path, value, message, remedy));
    }

    /// Adds what is wrong with an annotation.
    pub(crate) fn refuse_annotation(
        &mut self,
        key: &str,
        value: &str,
        message: &str,
        remedy: &str,
    ) {
        let reason = refusal(&annotation_field(key), value, message, remedy);
        self.reasons.push(reason);
    }

    /// Adds what is wrong with a field whose value must not be shown, or that is missing.
    pub(crate) fn refuse_unseen(
        &mut self,
        field: &str,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let path = self.path_of(field);
        let reason = Reason::error(Code::InvalidResource, message).at(path);
        self.reasons.push(reason.remedy(remedy));
    }

    /// Returns whether a field is there.
    pub(crate) fn has(&self, field: &str) -> bool {
        let value = self.object.and_then(|fields| fields.get(field));
        value.is_some_and(|value| !value.is_null())
    }

    /// Returns whether a field is there that can't be read as a text, which is reported already.
    pub(crate) fn has_other_than_text(&self, field: &str) -> bool {
        self.has(field) && !self.is_text(field)
    }

    /// Returns whether a field is an empty text.
    pub(crate) fn is_empty_text(&self, field: &str) -> bool {
        let value = self.object.and_then(|fields| fields.get(field));
        value.and_then(Value::as_str).is_some_and(str::is_empty)
    }

    fn is_text(&self, field: &str) -> bool {
        let value = self.object.and_then(|fields| fields.get(field));
        value.is_some_and(Value::is_string)
    }

    fn path_of(&self, field: &str) -> String {
        format!("{}.{field}", self.path)
    }

    fn take(&mut self, field: &'static str) -> Option<&'v Value> {
        self.known.insert(field);
        self.object?.get(field).filter(|value| !value.is_null())
    }

    /// Reads true or false.
    pub(crate) fn flag(&mut self, field: &'static str) -> Option<bool> {
        let value = self.take(field)?;
        if value.as_bool().is_none() {
            self.refuse(
                field,
                shown(value),
                "neither true nor false",
                "write true or false",
            );
        }
        value.as_bool()
    }

    /// Reads a whole number within bounds.
    pub(crate) fn number<N>(&mut self, field: &'static str, range: RangeInclusive<N>) -> Option<N>
    where
        N: TryFrom<u64> + PartialOrd + std::fmt::Display,
    {
        let value = self.take(field)?;
        let number = value.as_u64().and_then(|number| N::try_from(number).ok());
        let number = number.filter(|number| range.contains(number));
        if number.is_none() {
            let (from, to) = range.into_inner();
            let remedy = format!("write a whole number from {from} to {to}");
            self.refuse(field, shown(value), "not a number within bounds", remedy);
        }
        number
    }

    /// Reads a whole number.
    pub(crate) fn integer(&mut self, field: &'static str) -> Option<i64> {
        let value = self.take(field)?;
        if value.as_i64().is_none() {
            self.refuse(field, shown(value), "not a number", "write a whole number");
        }
        value.as_i64()
    }

    /// Reads a text. An empty one is absent.
    pub(crate) fn text(&mut self, field: &'static str) -> Option<&'v str> {
        let value = self.take(field)?;
        if value.as_str().is_none() {
            self.refuse(field, shown(value), "not a text", "write a text");
        }
        value.as_str().filter(|text| !text.is_empty())
    }

    /// Reads a text that is never shown. An empty one is absent.
    pub(crate) fn secret(&mut self, field: &'static str) -> Option<&'v str> {
        let value = self.take(field)?;
        if value.as_str().is_none() {
            self.refuse_unseen(field, "not a text", "write a text");
        }
        value.as_str().filter(|text| !text.is_empty())
    }

    /// Reads a text that must be one of a few.
    pub(crate) fn word<T: Copy>(
        &mut self,
        field: &'static str,
        words: &[(&'static str, T)],
    ) -> Option<T> {
        let text = self.text(field)?;
        let found = words.iter().find(|(word, _)| *word == text);
        if found.is_none() {
            let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let remedy = format!("write {}", all.join(" or "));
            self.refuse(field, text, "not one of the possible values", remedy);
        }
        found.map(|(_, meaning)| *meaning)
    }

    /// Reads a text that must be of a form.
    pub(crate) fn parsed<T: FromStr>(
        &mut self,
        field: &'static str,
        message: &str,
        remedy: &str,
    ) -> Option<T> {
        let text = self.text(field)?;
        let parsed = text.trim().parse().ok();
        if parsed.is_none() {
            self.refuse(field, text, message, remedy);
        }
        parsed
    }

    /// Reads a list of texts. Each is given with its own path.
    pub(crate) fn texts(&mut self, field: &'static str) -> Vec<(String, &'v str)> {
        let mut texts = Vec::new();
        for (index, value) in self.list(field).iter().enumerate() {
            let place = format!("{field}[{index}]");
            match value.as_str() {
                Some(text) => texts.push((place, text)),
                None => self.refuse(&place, shown(value), "not a text", "write a text"),
            }
        }
        texts
    }

    /// Reads a list of names without duplicates.
    pub(crate) fn names(&mut self, field: &'static str) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for (place, name) in self.texts(field) {
            if name.is_empty() {
                self.refuse(
                    &place,
                    name,
                    "a name is empty",
                    "remove it, or write a name",
                );
            } else if !names.insert(name.to_owned()) {
                self.refuse(&place, name, "listed twice", "list it once");
            }
        }
        names
    }

    /// Reads a list of objects.
    pub(crate) fn each(&mut self, field: &'static str, mut read: impl FnMut(&mut Fields<'v, '_>)) {
        for (index, value) in self.list(field).iter().enumerate() {
            let path = self.path_of(&format!("{field}[{index}]"));
            let mut fields = Fields::new(path, value, self.reasons);
            read(&mut fields);
            fields.finish();
        }
    }

    /// Reads an object.
    pub(crate) fn within<T>(
        &mut self,
        field: &'static str,
        read: impl FnOnce(&mut Fields<'v, '_>) -> T,
    ) -> Option<T> {
        let value = self.take(field)?;
        let mut fields = Fields::new(self.path_of(field), value, self.reasons);
        let read = read(&mut fields);
        fields.finish();
        Some(read)
    }

    /// Reads a map of texts.
    pub(crate) fn map(&mut self, field: &'static str) -> Vec<(&'v str, &'v str)> {
        let Some(value) = self.take(field) else {
            return Vec::new();
        };
        if !value.is_object() {
            self.refuse(field, shown(value), "not a map", "write keys and values");
        }
        let mut read = Vec::new();
        for (key, value) in value.as_object().into_iter().flatten() {
            if let Some(text) = value.as_str() {
                read.push((key.as_str(), text));
            } else {
                let place = format!("{field}[{key}]");
                self.refuse(&place, shown(value), "not a text", "write a text");
            }
        }
        read
    }

    fn list(&mut self, field: &'static str) -> &'v [Value] {
        let value = self.take(field);
        if let Some(value) = value
            && !value.is_array()
        {
            self.refuse(field, shown(value), "not a list", "write a list");
        }
        value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }
}

/// Makes the reason that a value of a field is refused.
pub(crate) fn refusal(
    field: &str,
    value: impl Into<String>,
    message: impl Into<String>,
    remedy: impl Into<String>,
) -> Reason {
    let reason = Reason::error(Code::InvalidResource, message).at(field);
    reason.value(value).remedy(remedy)
}

/// A value as its author wrote it, near enough: texts without quotes.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    }
}
