//! The words of docs/glossary.md: prose and texts for users have none of those that it excludes.
//!
//! The table of the glossary is the only list. Identifiers of code are not checked.

use anyhow::{Context as _, ensure};

use super::{Findings, extension, literals};

/// Where the table is.
pub const GLOSSARY: &str = "docs/glossary.md";
const BEGIN: &str = "<!-- words:";
const END: &str = "<!-- end of words -->";

/// Written from names of tests, which are code.
const GENERATED_FROM_NAMES: &str = "docs/openstack-conformance.md";
/// Rust files whose doc comments users read: help, and the schema of landfall.yaml.
const HELP: &[&str] = &[
    "crates/landfall/src/cli.rs",
    "crates/landfall/src/cli/",
    "crates/config/src/file.rs",
];

/// One entry of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excluded {
    /// The words, in lower case: several for a phrase.
    words: Vec<String>,
    /// What to write.
    instead: String,
}

/// Reads the table of the glossary.
pub fn table(glossary: &str) -> anyhow::Result<Vec<Excluded>> {
    let (_, rest) = glossary.split_once(BEGIN).context("no table of words")?;
    let (rows, _) = rest.split_once(END).context("the table has no end")?;
    let mut found = Vec::new();
    for row in rows.lines() {
        let mut cells = row.split('|').skip(1);
        let (Some(not), Some(instead)) = (cells.next(), cells.next()) else {
            continue;
        };
        for word in not.split('`').skip(1).step_by(2) {
            found.push(Excluded {
                words: word.to_lowercase().split(' ').map(str::to_owned).collect(),
                instead: instead.trim().to_owned(),
            });
        }
    }
    ensure!(!found.is_empty(), "the table of words is empty");
    Ok(found)
}

/// Checks one file.
pub fn check_file(path: &str, text: &str, excluded: &[Excluded], findings: &mut Findings) {
    let tokens = match extension(path) {
        Some("md") if path != GENERATED_FROM_NAMES => tokens(&prose(text), 1),
        Some("rs") if is_program(path) => of_rust(path, text),
        Some("yaml" | "html") => tokens(text, 1),
        _ if path.ends_with("/NOTES.txt") => tokens(text, 1),
        _ => return,
    };
    for (at, token) in tokens.iter().enumerate() {
        let here = tokens.get(at..).unwrap_or_default();
        for entry in excluded.iter().filter(|entry| entry.begins(here)) {
            findings.errors.push(format!(
                "{path}:{}: `{}`: write {} ({GLOSSARY})",
                token.line,
                entry.words.join(" "),
                entry.instead
            ));
        }
    }
}

/// Returns whether a Rust file is part of a program, and not of its tests.
fn is_program(path: &str) -> bool {
    let source = path.starts_with("xtask/src/") || path.contains("/src/");
    let test = [
        "/tests/",
        "/tests.rs",
        "/testkit/",
        "/testing.rs",
        "/examples/",
    ];
    source && !test.iter().any(|part| path.contains(part))
}

/// Returns the words of string literals, and of doc comments that become help.
fn of_rust(path: &str, text: &str) -> Vec<Token> {
    let program = text.split("#[cfg(test)]\nmod tests {").next();
    let program = program.unwrap_or(text);
    let mut found = Vec::new();
    for literal in literals::of(program) {
        // One word is a key or a name.
        if literal.text.contains(' ') {
            found.extend(tokens(&without_placeholders(&literal.text), literal.line));
            found.push(Token::gap(literal.line));
        }
    }
    if HELP.iter().any(|help| path.starts_with(help)) {
        for (index, line) in program.lines().enumerate() {
            if let Some(doc) = line.trim_start().strip_prefix("///") {
                found.extend(tokens(&without_code(doc), index + 1));
            }
        }
    }
    found
}

/// A word of a text, in lower case, or a gap: punctuation or code, over which no phrase reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Token {
    line: usize,
    word: Option<String>,
}

// === impl Token ===

impl Token {
    fn gap(line: usize) -> Self {
        Self { line, word: None }
    }
}

// === impl Excluded ===

impl Excluded {
    /// Returns whether the tokens begin with these words.
    fn begins(&self, tokens: &[Token]) -> bool {
        tokens.len() >= self.words.len()
            && self
                .words
                .iter()
                .zip(tokens)
                .all(|(word, token)| token.word.as_ref() == Some(word))
    }
}

/// Splits a text into words. A hyphen is a part of its word.
fn tokens(text: &str, first_line: usize) -> Vec<Token> {
    let mut found = Vec::new();
    let mut word = String::new();
    let mut line = first_line;
    for letter in text.chars().chain(['\n']) {
        if letter.is_alphanumeric() || "_-".contains(letter) {
            word.extend(letter.to_lowercase());
            continue;
        }
        if !word.is_empty() {
            found.push(Token {
                line,
                word: Some(std::mem::take(&mut word)),
            });
        }
        if !letter.is_whitespace() {
            found.push(Token::gap(line));
        }
        line += usize::from(letter == '\n');
    }
    found
}

/// Returns Markdown with its code, and nothing else, replaced by gaps; lines stay where they are.
fn prose(text: &str) -> String {
    let mut kept = String::new();
    let mut fenced = false;
    let mut code = true;
    for line in text.lines() {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        // Indented lines are code after an empty line or other code, else parts of a list.
        let blank = line.trim().is_empty();
        code = blank || (code && line.starts_with("    "));
        if !(fence || fenced || code) {
            kept.push_str(line);
        }
        kept.push('\n');
    }
    without_code(&kept)
}

/// Returns a text with what is between backticks replaced by a gap.
fn without_code(text: &str) -> String {
    let mut kept = String::new();
    for (index, part) in text.split('`').enumerate() {
        if index % 2 == 0 {
            kept.push_str(part);
        } else {
            kept.push('`');
            kept.extend(part.chars().filter(|letter| *letter == '\n'));
        }
    }
    kept
}

/// Returns a format string with its placeholders and code replaced by gaps.
fn without_placeholders(text: &str) -> String {
    let mut kept = String::new();
    let mut depth = 0_usize;
    for letter in without_code(text).chars() {
        match letter {
            '{' => depth += 1,
            '}' => {
                depth = depth.saturating_sub(1);
                kept.push('`');
            }
            '\n' => kept.push('\n'),
            letter if depth == 0 => kept.push(letter),
            _ => {}
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Words\n<!-- words: read by a check -->\n\n| not | but |\n|---|---|\n\
                        | `wish`, `wishes` | spec |\n| `look at` | read |\n\
                        <!-- end of words -->\n| `fine` | x |\n";

    fn errors(path: &str, text: &str) -> Vec<String> {
        let mut findings = Findings::default();
        check_file(path, text, &table(PAGE).unwrap(), &mut findings);
        findings.errors
    }

    #[test]
    fn the_table_of_the_glossary_is_the_list() {
        let words: Vec<_> = table(PAGE).unwrap();
        let words: Vec<_> = words.iter().map(|entry| entry.words.join(" ")).collect();
        assert_eq!(words, ["wish", "wishes", "look at"]);
        assert!(table("no table").is_err());
        assert!(table("<!-- words: --><!-- end of words -->").is_err());
    }

    #[test]
    fn an_excluded_word_is_an_error_with_its_place_and_what_to_write() {
        assert_eq!(
            errors("docs/a.md", "One.\n\nThe Wish, of a user.\n"),
            ["docs/a.md:3: `wish`: write spec (docs/glossary.md)"]
        );
        assert_eq!(errors("docs/a.md", "wishful, wish-list"), [""; 0]);
    }

    #[test]
    fn a_phrase_is_found_over_the_end_of_a_line_and_not_over_punctuation() {
        assert_eq!(errors("a.md", "they look\nat it").len(), 1);
        assert_eq!(errors("a.md", "they look, at night"), [""; 0]);
        assert_eq!(errors("a.md", "look `x` at"), [""; 0]);
    }

    #[test]
    fn code_in_markdown_is_not_checked() {
        let text = "A `wish` is:\n\n    wish\n\n```\nwish\n```\n\n- a list\n    with a wish\n";
        assert_eq!(
            errors("a.md", text),
            ["a.md:10: `wish`: write spec (docs/glossary.md)"]
        );
    }

    #[test]
    fn literals_of_programs_are_checked_and_names_and_placeholders_are_not() {
        let text = "fn wish() {\n    let wish = \"wish\";\n    \
                    print(\"no {wish} here\");\n    fail(\"no wish\");\n}\n";
        assert_eq!(
            errors("crates/a/src/lib.rs", text),
            ["crates/a/src/lib.rs:4: `wish`: write spec (docs/glossary.md)"]
        );
        assert_eq!(errors("crates/a/tests/it/main.rs", text), [""; 0]);
        let inside = "#[cfg(test)]\nmod tests {\n    fail(\"no wish\");\n}\n";
        assert_eq!(errors("crates/a/src/lib.rs", inside), [""; 0]);
    }

    #[test]
    fn doc_comments_are_checked_where_they_become_help() {
        let text = "/// The wish of a user\npub wish: String,\n";
        assert_eq!(errors("crates/landfall/src/cli/ask.rs", text).len(), 1);
        assert_eq!(errors("crates/landfall/src/up.rs", text), [""; 0]);
    }
}
