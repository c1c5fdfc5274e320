//! What is refused in the bodies of requests.

use serde_json::{Map, Value};

use super::wire::Refused;

/// A body that was read, and what is wrong with it.
pub(super) struct Checked<'a> {
    body: &'a Map<String, Value>,
    errors: Vec<String>,
}

// === impl Checked ===

impl<'a> Checked<'a> {
    pub fn new(body: &'a Map<String, Value>, known: &[&str]) -> Self {
        let unknown = body.keys().filter(|key| !known.contains(&key.as_str()));
        let errors = unknown.map(|key| format!("{key} is not known")).collect();
        Self { body, errors }
    }

    pub fn require(&mut self, keys: &[&str]) {
        let missing = keys.iter().filter(|key| !self.body.contains_key(**key));
        let missing: Vec<_> = missing.map(|key| format!("{key} is required")).collect();
        self.errors.extend(missing);
    }

    pub fn text(&mut self, key: &str, min: usize) {
        let Some(value) = self.body.get(key) else {
            return;
        };
        let length = value.as_str().map(|text| text.chars().count());
        if !length.is_some_and(|length| (min..=255).contains(&length)) {
            self.errors
                .push(format!("{key} needs {min} to 255 characters"));
        }
    }

    pub fn number(&mut self, key: &str, min: u64, max: u64) {
        let Some(value) = self.body.get(key) else {
            return;
        };
        if !value.as_u64().is_some_and(|it| (min..=max).contains(&it)) {
            self.errors
                .push(format!("{key} must be from {min} to {max}"));
        }
    }

    pub fn word(&mut self, key: &str, words: &[&str]) {
        let Some(value) = self.body.get(key) else {
            return;
        };
        if !value.as_str().is_some_and(|it| words.contains(&it)) {
            self.errors
                .push(format!("{key} must be one of {}", words.join(", ")));
        }
    }

    pub fn labels(&mut self) {
        let Some(value) = self.body.get("labels") else {
            return;
        };
        let texts = value
            .as_object()
            .is_some_and(|it| it.values().all(Value::is_string));
        if !texts {
            self.errors.push("labels must be texts by name".to_owned());
        }
    }

    pub fn also(&mut self, errors: Vec<String>) {
        self.errors.extend(errors);
    }

    pub fn done(self) -> Result<(), Refused> {
        if self.errors.is_empty() {
            return Ok(());
        }
        Err(Refused {
            errors: self.errors,
            ..Refused::new(400, "Invalid request")
        })
    }
}

/// Returns what is wrong with a health check.
pub(super) fn healthcheck(value: &Value) -> Vec<String> {
    let Some(body) = value.as_object() else {
        return vec!["healthcheck must be an object".to_owned()];
    };
    let known = [
        "mode", "port", "uri", "interval", "timeout", "retries", "tls-sni",
    ];
    let mut checked = Checked::new(body, &known);
    checked.word("mode", &["tcp", "http", "https"]);
    checked.number("port", 1, 65_535);
    checked.number("interval", 5, 300);
    checked.number("timeout", 2, 60);
    checked.number("retries", 1, 20);
    checked.text("uri", 1);
    checked.text("tls-sni", 1);
    let number = |key: &str, default| body.get(key).and_then(Value::as_u64).unwrap_or(default);
    let mut errors = checked.errors;
    if number("interval", 10) < number("timeout", 2) {
        errors.push("interval must not be less than timeout".to_owned());
    }
    let http = matches!(
        body.get("mode").and_then(Value::as_str),
        Some("http" | "https")
    );
    if http && !body.contains_key("uri") {
        errors.push("uri is required for http and https".to_owned());
    }
    errors
}
