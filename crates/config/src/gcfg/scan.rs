//! Reading: the text once, letter by letter.

use std::iter::Peekable;
use std::str::Chars;

use super::{Document, Entry, Section, SyntaxError};

/// Reads a text. A byte order mark at its beginning is skipped.
pub fn parse(text: &str) -> Result<Document, SyntaxError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut scan = Scan {
        letters: text.chars().peekable(),
        line: 1,
    };
    let mut document = Document::default();
    loop {
        scan.skip_blanks();
        match scan.peek() {
            None => return Ok(document),
            Some('\n') => {
                scan.next();
            }
            Some(';' | '#') => scan.skip_comment(),
            Some(letter) => {
                let awaited = awaited(&document);
                scan.line(letter, &mut document, awaited.as_deref())
                    .map_err(|error| error.below(awaited))?;
            }
        }
    }
}

/// The key of a secret that has no value, right above the line that is read.
fn awaited(document: &Document) -> Option<String> {
    let above = document.sections.last()?.entries.last()?;
    above.awaited().map(str::to_owned)
}

impl SyntaxError {
    /// The same without a word of the line, where that may be the secret of the key above.
    fn below(self, awaited: Option<String>) -> Self {
        let Some(key) = awaited else { return self };
        Self {
            line: self.line,
            what: format!(
                "has no value, and line {} below it can't be read (it is not shown: it may be the \
                secret)",
                self.line
            ),
            remedy: format!("write {key} = value on one line, with quotes around the value"),
            key: Some(key),
        }
    }
}

struct Scan<'a> {
    letters: Peekable<Chars<'a>>,
    line: u32,
}

impl Scan<'_> {
    fn peek(&mut self) -> Option<char> {
        self.letters.peek().copied()
    }

    fn next(&mut self) -> Option<char> {
        let letter = self.letters.next();
        if letter == Some('\n') {
            self.line = self.line.saturating_add(1);
        }
        letter
    }

    /// A line that begins with this letter.
    fn line(
        &mut self,
        first: char,
        document: &mut Document,
        below: Option<&str>,
    ) -> Result<(), SyntaxError> {
        match first {
            '[' => {
                let section = self.heading()?;
                document.sections.push(section);
            }
            first if first.is_alphabetic() => {
                let mut entry = self.entry()?;
                entry.below = below.map(str::to_owned);
                let line = entry.line;
                let Some(section) = document.sections.last_mut() else {
                    return Err(SyntaxError {
                        line,
                        key: Some(entry.key),
                        what: "a key before the first section".to_owned(),
                        remedy: "begin with a section such as [Global]".to_owned(),
                    });
                };
                section.entries.push(entry);
            }
            first => {
                return Err(self.error(
                    None,
                    format!("a line can't begin with {first:?}"),
                    "write [Section], key = value, or a comment after ; or #",
                ));
            }
        }
        Ok(())
    }

    fn skip_blanks(&mut self) {
        while self.peek().is_some_and(is_blank) {
            self.next();
        }
    }

    fn skip_comment(&mut self) {
        while self.peek().is_some_and(|letter| letter != '\n') {
            self.next();
        }
    }

    fn error(&self, key: Option<&str>, what: impl Into<String>, remedy: &str) -> SyntaxError {
        SyntaxError {
            line: self.line,
            key: key.map(str::to_owned),
            what: what.into(),
            remedy: remedy.to_owned(),
        }
    }

    /// Letters, digits and `-`, after a letter.
    fn name(&mut self) -> Option<String> {
        let mut name = String::new();
        while let Some(letter) = self.peek() {
            let inner = letter.is_numeric() || letter == '-';
            if !letter.is_alphabetic() && (name.is_empty() || !inner) {
                break;
            }
            name.push(letter);
            self.next();
        }
        (!name.is_empty()).then_some(name)
    }

    /// `[name]` or `[name "subsection"]`, alone on its line.
    fn heading(&mut self) -> Result<Section, SyntaxError> {
        self.next();
        let line = self.line;
        self.skip_blanks();
        let Some(name) = self.name() else {
            return Err(self.error(None, "a section without a name", "write [Section]"));
        };
        self.skip_blanks();
        let mut subsection = None;
        if self.peek() == Some('"') {
            self.next();
            subsection = Some(self.subsection(&name)?);
            self.skip_blanks();
        }
        if self.peek() != Some(']') {
            let remedy = format!("write [{name}] or [{name} \"name\"]");
            return Err(self.error(None, format!("section {name} is not closed"), &remedy));
        }
        self.next();
        self.skip_blanks();
        if !matches!(self.peek(), None | Some('\n' | ';' | '#')) {
            return Err(self.error(
                None,
                format!("text after the heading of section {name}"),
                "write it on a line of its own",
            ));
        }
        Ok(Section {
            name,
            subsection,
            line,
            entries: Vec::new(),
        })
    }

    /// The rest of a quoted name: only `\"` and `\\` are escapes here.
    fn subsection(&mut self, section: &str) -> Result<String, SyntaxError> {
        let mut name = String::new();
        loop {
            let letter = match self.peek() {
                None | Some('\n') => {
                    let what = format!("the name of section {section} has no end");
                    return Err(self.error(None, what, "close it with a \""));
                }
                Some(letter) => letter,
            };
            self.next();
            match letter {
                '"' if name.is_empty() => {
                    let what = format!("the name of section {section} is empty");
                    return Err(self.error(None, what, "name it, or leave out the quotes"));
                }
                '"' => return Ok(name),
                '\0' => return Err(self.nul(None)),
                '\\' => {
                    let Some(escaped @ ('\\' | '"')) = self.peek() else {
                        let what = format!("unknown escape in the name of section {section}");
                        return Err(self.error(None, what, "write \\\\ for a backslash"));
                    };
                    self.next();
                    name.push(escaped);
                }
                other => name.push(other),
            }
        }
    }

    /// `key`, `key =` or `key = value`.
    fn entry(&mut self) -> Result<Entry, SyntaxError> {
        let line = self.line;
        let key = self.name().unwrap_or_default();
        self.skip_blanks();
        let mut entry = Entry {
            key,
            value: None,
            line,
            cut: false,
            below: None,
        };
        match self.peek() {
            None | Some('\n' | ';' | '#') => Ok(entry),
            Some('=') => {
                self.next();
                self.skip_blanks();
                let (value, cut) = self.value(&entry.key)?;
                entry.value = Some(value);
                entry.cut = cut;
                Ok(entry)
            }
            Some('_') => {
                let rest: String = std::iter::from_fn(|| {
                    self.letters
                        .next_if(|letter| letter.is_alphanumeric() || matches!(letter, '-' | '_'))
                })
                .collect();
                let key = entry.key + &rest;
                let remedy = format!("write {}", key.replace('_', "-"));
                Err(self.error(Some(&key), "a key can't have a _", &remedy))
            }
            Some(letter) => Err(self.error(
                Some(&entry.key),
                format!("{letter:?} after the key"),
                "write key = value",
            )),
        }
    }

    /// A value up to the end of its line or a comment, and whether the comment touches it.
    fn value(&mut self, key: &str) -> Result<(String, bool), SyntaxError> {
        let mut value = String::new();
        // How much of it stays: trailing blanks go, unless they were quoted.
        let mut kept = 0;
        let mut quoted = false;
        let mut cut = false;
        let mut touching = false;
        loop {
            match self.peek() {
                Some('\n') | None if quoted => {
                    return Err(self.error(
                        Some(key),
                        "the quotes have no end",
                        "close them with a \"",
                    ));
                }
                Some('\n') | None => break,
                Some(';' | '#') if !quoted => {
                    cut = touching;
                    break;
                }
                Some(_) => {}
            }
            let Some(letter) = self.next() else { break };
            touching = !is_blank(letter);
            match letter {
                '\0' => return Err(self.nul(Some(key))),
                '\\' if quoted => value.push(self.escaped(key)?),
                '\\' => {
                    self.letters.next_if_eq(&'\r');
                    if self.peek() != Some('\n') {
                        let remedy = "quote the value and write \\\\ for a backslash";
                        return Err(self.error(Some(key), "a backslash outside of quotes", remedy));
                    }
                    self.next();
                    touching = false;
                }
                '"' => quoted = !quoted,
                // Files from Windows: a carriage return is no part of a value, even inside quotes.
                '\r' => continue,
                other => value.push(other),
            }
            if quoted || !is_blank(letter) {
                kept = value.len();
            }
        }
        value.truncate(kept);
        Ok((value, cut))
    }

    fn escaped(&mut self, key: &str) -> Result<char, SyntaxError> {
        let meant = match self.peek() {
            Some('n') => '\n',
            Some('t') => '\t',
            Some(same @ ('\\' | '"')) => same,
            _ => {
                let remedy = "write \\\\ for a backslash; \\\", \\n and \\t are the others";
                return Err(self.error(Some(key), "unknown escape", remedy));
            }
        };
        self.next();
        Ok(meant)
    }

    fn nul(&self, key: Option<&str>) -> SyntaxError {
        self.error(key, "a NUL character", "remove it; is this a text file?")
    }
}

fn is_blank(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\r')
}
