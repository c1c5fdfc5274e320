//! The words of docs/glossary.md: prose and code have none of those that it excludes.
//!
//! The table of the glossary is the only list. Code is checked whole, tests included: comments,
//! literals and identifiers, of which each part is a word.

use anyhow::{Context as _, ensure};

use super::{Findings, extension};

/// Where the table is.
pub const GLOSSARY: &str = "docs/glossary.md";
const BEGIN: &str = "<!-- words:";
const END: &str = "<!-- end of words -->";

/// Quotes excluded words in its own tests.
const THIS: &str = "xtask/src/check/words.rs";

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
        Some("md") => tokens(&prose(text)),
        Some("rs") if path != THIS => tokens(&parts_of_code(text)),
        Some("yaml" | "html" | "toml" | "sh" | "py") => tokens(&parts_of_code(text)),
        _ if path.ends_with("/NOTES.txt") => tokens(text),
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

/// Returns code with identifiers split into their parts, and comments without their marks, so that
/// a phrase is found over the end of a line.
fn parts_of_code(text: &str) -> String {
    let mut kept = String::new();
    for line in text.lines() {
        let line = line.trim_start().trim_start_matches(['/', '!', '#']);
        let mut after_lower = false;
        for letter in line.chars() {
            if after_lower && letter.is_uppercase() {
                kept.push(' ');
            }
            after_lower = letter.is_lowercase() || letter.is_ascii_digit();
            kept.push(if letter == '_' { ' ' } else { letter });
        }
        kept.push('\n');
    }
    kept
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
fn tokens(text: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let mut word = String::new();
    let mut line = 1;
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
    fn comments_literals_and_identifiers_of_code_are_checked_in_tests_as_well() {
        for code in [
            "// A wish.\n",
            "/// The wish of a user\npub x: String,\n",
            "fn a_wish_is_granted() {}\n",
            "struct FirstWish;\n",
            "fail(\"no wish\");\n",
            "// They look\n// at it.\n",
            "fn look_at() {}\n",
        ] {
            assert_eq!(errors("crates/a/tests/it/main.rs", code).len(), 1, "{code}");
        }
        let fine = "fn wishful(look: At) {}\n";
        assert_eq!(errors("crates/a/src/lib.rs", fine), [""; 0]);
    }
}
