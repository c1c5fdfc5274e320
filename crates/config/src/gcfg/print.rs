//! Writing a document so that reading it gives the same document.

use super::{Document, Entry, Section};

impl Document {
    /// The document as text, with its values, secrets among them. What [`parse`](super::parse) has
    /// read comes back the same, except for lines and comments.
    pub fn to_text(&self) -> String {
        self.sections.iter().map(Section::to_text).collect()
    }
}

impl Section {
    fn to_text(&self) -> String {
        let mut text = format!("[{}", self.name);
        if let Some(subsection) = &self.subsection {
            // Here only these two can be escaped.
            let escaped = subsection.replace('\\', "\\\\").replace('"', "\\\"");
            text.extend([" \"", &escaped, "\""]);
        }
        text.push_str("]\n");
        text.extend(self.entries.iter().map(Entry::to_text));
        text
    }
}

impl Entry {
    fn to_text(&self) -> String {
        let Some(value) = &self.value else {
            return format!("{}\n", self.key);
        };
        let mut quoted = String::with_capacity(value.len() + 2);
        for letter in value.chars() {
            match letter {
                '\\' => quoted.push_str("\\\\"),
                '"' => quoted.push_str("\\\""),
                '\n' => quoted.push_str("\\n"),
                '\t' => quoted.push_str("\\t"),
                other => quoted.push(other),
            }
        }
        format!("{} = \"{quoted}\"\n", self.key)
    }
}
