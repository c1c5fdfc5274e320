//! String literals of Rust sources. No full lexer: enough to distinguish strings from comments,
//! characters and lifetimes.

/// A string literal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Literal {
    /// The line that it begins on.
    pub line: usize,
    /// What is between its quotes, without escapes; line ends are kept.
    pub text: String,
    /// Whether it is raw: every character is a part of it, line ends too.
    pub raw: bool,
}

/// Returns all string literals, in order.
pub fn of(source: &str) -> Vec<Literal> {
    let mut found = Vec::new();
    let mut rest = source;
    let mut line = 1;
    while let Some(letter) = rest.chars().next() {
        let (text, length) = match letter {
            '/' if rest.starts_with("//") => (None, until(rest, "\n")),
            '/' if rest.starts_with("/*") => (None, until(rest, "*/")),
            '\'' => (None, character(rest)),
            '"' => string(rest),
            'r' if raw_hashes(rest).is_some() => raw(rest),
            letter if letter.is_alphanumeric() || letter == '_' => (None, word(rest)),
            letter => (None, letter.len_utf8()),
        };
        if let Some(text) = text {
            let raw = letter == 'r';
            found.push(Literal { line, text, raw });
        }
        let (passed, after) = rest.split_at_checked(length).unwrap_or((rest, ""));
        line += passed.matches('\n').count();
        rest = after;
    }
    found
}

/// Returns the length of a text up to its first `end`, which counts.
fn until(rest: &str, end: &str) -> usize {
    rest.find(end).map_or(rest.len(), |at| at + end.len())
}

/// Returns the length of the word at the beginning; before a quote, the prefix of a literal.
fn word(rest: &str) -> usize {
    let end = |letter: char| !letter.is_alphanumeric() && letter != '_';
    let length = rest.find(end).unwrap_or(rest.len());
    // `br"..."` and `cr"..."`: the `r` belongs to the literal.
    match rest.get(..length) {
        Some("br" | "cr") if raw_hashes(rest.get(1..).unwrap_or_default()).is_some() => 1,
        _ => length,
    }
}

/// Returns the length of a character, or of the quote of a lifetime.
fn character(rest: &str) -> usize {
    let mut letters = rest.char_indices().skip(1);
    match letters.next() {
        Some((_, '\\')) => {
            letters.next();
            letters
                .find(|(_, letter)| *letter == '\'')
                .map_or(rest.len(), |(at, _)| at + 1)
        }
        Some(_) => match letters.next() {
            Some((at, '\'')) => at + 1,
            _ => 1,
        },
        None => 1,
    }
}

/// Returns the text of a literal that begins here, and its length.
fn string(rest: &str) -> (Option<String>, usize) {
    let mut text = String::new();
    let mut letters = rest.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (Some(text), at + 1),
            '\\' => match letters.next() {
                Some((_, 'n' | 't' | 'r')) | None => text.push(' '),
                Some((_, escaped)) => text.push(escaped),
            },
            letter => text.push(letter),
        }
    }
    (Some(text), rest.len())
}

/// Returns how many `#` a raw literal that begins here has; `None`: it is not one.
fn raw_hashes(rest: &str) -> Option<usize> {
    let after = rest.strip_prefix('r')?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    after.get(hashes..)?.starts_with('"').then_some(hashes)
}

/// Returns the text of a raw literal that begins here, and its length.
fn raw(rest: &str) -> (Option<String>, usize) {
    let hashes = raw_hashes(rest).unwrap_or_default();
    let end = format!("\"{}", "#".repeat(hashes));
    let begin = hashes + 2;
    let body = rest.get(begin..).unwrap_or_default();
    let length = body.find(&end).unwrap_or(body.len());
    let text = body.get(..length).unwrap_or_default();
    (Some(text.to_owned()), begin + length + end.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<String> {
        of(source).into_iter().map(|one| one.text).collect()
    }

    #[test]
    fn literals_have_their_text_and_line() {
        let found = of("let a = \"one\";\nlet b = b\"two\";\n");
        assert_eq!(
            found,
            [
                Literal {
                    line: 1,
                    text: "one".to_owned(),
                    raw: false,
                },
                Literal {
                    line: 2,
                    text: "two".to_owned(),
                    raw: false,
                }
            ]
        );
    }

    #[test]
    fn comments_characters_and_lifetimes_are_no_literals() {
        let source = "// \"no\"\n/* \"no\" */ fn f<'a>(c: &'a str) { '\"'; '\\''; '\\u{22}'; }";
        assert_eq!(texts(source), [""; 0]);
    }

    #[test]
    fn escapes_and_raw_literals_end_where_they_end() {
        assert_eq!(texts(r#"f("a \" b\n", "c")"#), ["a \" b ", "c"]);
        assert_eq!(
            texts("f(r\"a\\\", r#\"b \" c\"#, br#\"d\"#)"),
            ["a\\", "b \" c", "d"]
        );
    }

    #[test]
    fn a_continued_line_is_one_text_and_counts_as_a_line() {
        let found = of("f(\"one \\\n   two\", \"three\")");
        assert_eq!(found.first().unwrap().text, "one \n   two");
        assert_eq!(found.last().unwrap().line, 2);
    }

    #[test]
    fn a_literal_without_an_end_ends_with_the_source() {
        assert_eq!(texts("f(\"one"), ["one"]);
        assert_eq!(texts("f(r#\"two\""), ["two\""]);
        assert_eq!(texts("'\\"), [""; 0]);
    }
}
