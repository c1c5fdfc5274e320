//! Regular expressions in RE2's syntax, as Go programs read them, carried over to the `regex`
//! crate.
//!
//! Both match leftmost-first in linear time, and most of the syntax is the same. What differs is
//! rewritten: in a character class the crate reads `[`, `&&`, `--` and `~~` as set operations; `{`
//! without a count is an error there and a letter in RE2; `\w`, `\d` and `\s` mean ASCII in RE2;
//! and `\Q...\E` quotes.

use std::iter::Peekable;
use std::str::Chars;

use regex::Regex;

/// Compiles an expression; the error is one line that says what is wrong.
pub(super) fn compile(expression: &str) -> Result<Regex, String> {
    Regex::new(&translate(expression)).map_err(|error| {
        let shown = error.to_string();
        // The crate draws a picture first; its last line is the sentence.
        let last = shown.lines().last().unwrap_or_default();
        last.trim().trim_start_matches("error: ").to_owned()
    })
}

fn translate(expression: &str) -> String {
    let mut output = String::with_capacity(expression.len() + 8);
    let mut letters = expression.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => escape(&mut letters, &mut output, false),
            '[' => class(&mut letters, &mut output),
            '{' => match count(&letters) {
                Some(count) => {
                    letters.nth(count.len() - 1);
                    output.push('{');
                    output.push_str(&count);
                }
                None => output.push_str("\\{"),
            },
            '}' => output.push_str("\\}"),
            other => output.push(other),
        }
    }
    output
}

/// The rest of `{2}`, `{2,}` or `{2,5}`, if that is what follows.
fn count(letters: &Peekable<Chars<'_>>) -> Option<String> {
    let rest: String = letters
        .clone()
        .take_while(|letter| *letter != '}')
        .collect();
    let (low, high) = rest.split_once(',').unwrap_or((&rest, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let closed = letters.clone().nth(rest.chars().count()) == Some('}');
    (closed && !low.is_empty() && digits(low) && digits(high)).then(|| rest + "}")
}

fn escape(letters: &mut Peekable<Chars<'_>>, output: &mut String, in_class: bool) {
    let (open, close) = if in_class { ("", "") } else { ("[", "]") };
    match letters.next() {
        None => output.push('\\'),
        Some('d') => output.extend([open, "0-9", close]),
        Some('s') => output.extend([open, r"\t\n\f\r ", close]),
        Some('w') => output.extend([open, "0-9A-Za-z_", close]),
        Some('D') => output.push_str("[^0-9]"),
        Some('S') => output.push_str(r"[^\t\n\f\r ]"),
        Some('W') => output.push_str("[^0-9A-Za-z_]"),
        Some('Q') if !in_class => {
            let mut quoted = String::new();
            while let Some(letter) = letters.next() {
                if letter == '\\' && letters.next_if_eq(&'E').is_some() {
                    break;
                }
                quoted.push(letter);
            }
            output.push_str(&regex::escape(&quoted));
        }
        Some(other) => output.extend(['\\', other]),
    }
}

/// The rest of a character class, whose `[` has been read.
fn class(letters: &mut Peekable<Chars<'_>>, output: &mut String) {
    output.push('[');
    if letters.next_if_eq(&'^').is_some() {
        output.push('^');
    }
    // A first `]` is a letter, as it is for the crate.
    if letters.next_if_eq(&']').is_some() {
        output.push_str("\\]");
    }
    while let Some(letter) = letters.next() {
        match letter {
            ']' => {
                output.push(']');
                return;
            }
            '\\' => escape(letters, output, true),
            '[' if letters.peek() == Some(&':') => {
                let name: String = letters
                    .clone()
                    .skip(1)
                    .take_while(|letter| *letter != ':')
                    .collect();
                let end = letters.clone().skip(name.chars().count() + 1).take(2);
                if end.eq([':', ']']) {
                    letters.nth(name.chars().count() + 2);
                    output.extend(["[:", &name, ":]"]);
                } else {
                    output.push_str("\\[");
                }
            }
            '[' | '&' | '~' => output.extend(['\\', letter]),
            '-' if letters.peek() == Some(&'-') => output.push_str("\\-"),
            other => output.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finds(expression: &str, text: &str) -> bool {
        let regex = compile(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
        regex.is_match(text)
    }

    #[test]
    fn syntax_that_differs_means_what_it_does_in_re2() {
        for (expression, yes, no) in [
            (r"^[a&&b]$", "&", "c"),
            (r"^[a~~b[]$", "[", "c"),
            (r"^[[:alpha:]_]$", "z", "1"),
            (r"^[^[:alpha:]]$", "1", "z"),
            (r"^[[:x]$", ":", "y"),
            (r"^[]a]$", "]", "b"),
            (r"^[\w.]$", ".", "é"),
            (r"^[\W]$", "é", "e"),
            (r"^\d{2}$", "12", "٣٣"),
            (r"^a{2,3}$", "aaa", "a"),
            (r"^a{2,}$", "aaaa", "a"),
            (r"^a{,2}$", "a{,2}", "aa"),
            (r"^{a}$", "{a}", "a"),
            (r"^\Qa.b\E.$", "a.bc", "axbc"),
            (r"^\Qa|", "a|", "a"),
        ] {
            assert!(finds(expression, yes), "{expression} should find {yes}");
            assert!(!finds(expression, no), "{expression} should not find {no}");
        }
    }

    #[test]
    fn what_is_wrong_is_one_line() {
        let error = compile("a(b").unwrap_err();
        assert_eq!(error, "unclosed group");
        assert!(!compile(r"\").unwrap_err().contains('\n'));
        assert!(
            !compile(&format!("(?:{}){{1000}}{{1000}}", "a".repeat(900)))
                .unwrap_err()
                .contains('\n')
        );
    }
}
