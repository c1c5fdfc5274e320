//! Lists: filters by any field, tags, chosen fields and pages, as far as both services do them
//! alike.

use serde_json::{Value, json};

use super::wire::{Ask, Row, encode};

/// Parameters which are no filters.
const CONTROL: [&str; 9] = [
    "limit",
    "marker",
    "sort",
    "sort_key",
    "sort_dir",
    "fields",
    "page_reverse",
    "offset",
    "cascade",
];

/// One filter: the values of one parameter; any of them matches.
pub(super) struct Filters<'a> {
    fields: Vec<(&'a str, Vec<&'a str>)>,
    tags: Vec<(TagRule, Vec<&'a str>)>,
}

#[derive(Clone, Copy)]
enum TagRule {
    /// Has all of them.
    All,
    /// Has one of them.
    Any,
    /// Lacks at least one of them.
    NotAll,
    /// Has none of them.
    NotAny,
}

impl<'a> Filters<'a> {
    /// Reads the query; `skip` names parameters that the caller has honoured already.
    pub fn of(ask: &'a Ask<'_>, skip: &[&str]) -> Self {
        let mut filters = Self {
            fields: Vec::new(),
            tags: Vec::new(),
        };
        for (key, value) in &ask.query {
            let key = key.as_str();
            if CONTROL.contains(&key) || skip.contains(&key) {
                continue;
            }
            let rule = match key {
                "tags" => Some(TagRule::All),
                "tags-any" => Some(TagRule::Any),
                "not-tags" => Some(TagRule::NotAll),
                "not-tags-any" => Some(TagRule::NotAny),
                _ => None,
            };
            if let Some(rule) = rule {
                filters.tags.push((rule, value.split(',').collect()));
            } else if let Some(found) = filters.fields.iter_mut().find(|(k, _)| *k == key) {
                found.1.push(value);
            } else {
                filters.fields.push((key, vec![value]));
            }
        }
        filters
    }

    /// The names of the fields filtered by.
    pub fn names(&self) -> impl Iterator<Item = &'a str> {
        self.fields.iter().map(|(key, _)| *key)
    }

    /// Whether the row is wanted.
    pub fn admit(&self, row: &Row) -> bool {
        let fields = self.fields.iter().all(|(key, values)| {
            let have = row.get(*key);
            values.iter().any(|value| equal(have, value))
        });
        fields && (self.tags.is_empty() || self.admit_tags(row))
    }

    fn admit_tags(&self, row: &Row) -> bool {
        let none = Vec::new();
        let have = row.get("tags").and_then(Value::as_array).unwrap_or(&none);
        let has = |tag: &&str| have.iter().any(|own| own.as_str() == Some(tag));
        self.tags.iter().all(|(rule, tags)| match rule {
            TagRule::All => tags.iter().all(has),
            TagRule::Any => tags.iter().any(has),
            TagRule::NotAll => !tags.iter().all(has),
            TagRule::NotAny => !tags.iter().any(has),
        })
    }
}

/// Compares a field with a parameter's text. A list matches if it holds the text, or an object with
/// it as id.
fn equal(have: Option<&Value>, want: &str) -> bool {
    match have {
        None | Some(Value::Null) => want.is_empty() || want == "None",
        Some(Value::String(text)) => text == want,
        Some(Value::Bool(flag)) => match want {
            "true" | "True" | "1" => *flag,
            "false" | "False" | "0" => !*flag,
            _ => false,
        },
        Some(Value::Number(number)) => number.to_string() == want,
        Some(Value::Array(items)) => items.iter().any(|item| match item {
            Value::Object(inner) => holds(inner, want),
            other => other.as_str() == Some(want),
        }),
        Some(Value::Object(inner)) => holds(inner, want),
    }
}

/// An object inside a list: `key=value` names a field, anything else is an id.
fn holds(inner: &Row, want: &str) -> bool {
    match want.split_once('=') {
        Some((key, value)) => inner.get(key).and_then(Value::as_str) == Some(value),
        None => inner.get("id").and_then(Value::as_str) == Some(want),
    }
}

/// Keeps only the fields asked for.
pub(super) fn prune(ask: &Ask<'_>, row: &mut Row) {
    let wanted = ask.query.iter().filter(|(key, _)| key == "fields");
    let wanted: Vec<&str> = wanted.map(|(_, value)| value.as_str()).collect();
    if !wanted.is_empty() {
        row.retain(|key, _| wanted.contains(&key.as_str()));
    }
}

/// Links to the neighbouring pages. Octavia forgets the filters in them, Neutron keeps them.
pub(super) fn links(ask: &Ask<'_>, limit: usize, first: &str, last: &str, keep: bool) -> Value {
    let mut query = String::new();
    if keep {
        for (key, value) in &ask.query {
            if !["limit", "marker", "page_reverse"].contains(&key.as_str()) {
                query.extend([&encode(key), "=", &encode(value), "&"]);
            }
        }
    }
    let url = &ask.url;
    let next = json!({"rel": "next", "href": format!("{url}?{query}limit={limit}&marker={last}")});
    if ask.param("marker").is_none() {
        return json!([next]);
    }
    let back = format!("{url}?{query}limit={limit}&marker={first}&page_reverse=True");
    json!([{"rel": "previous", "href": back}, next])
}
