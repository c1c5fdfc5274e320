//! Name patterns: a glob or a regular expression, possibly negated.

use std::fmt;

use regex::Regex;

use super::{PatternError, regexp};

/// A pattern on names, as `floating-subnet` writes it: `public-*`, `~pub-(a|b)`, `!internal`.
///
/// A first `!` negates what follows. `~` begins a regular expression whose leftmost match must be
/// the whole name; among alternatives the first that fits is taken, so `~a|ab` does not match `ab`.
/// Everything else is a glob over the whole name:
///
/// | glob | stands for |
/// |---|---|
/// | `*` | any run without `/` |
/// | `?` | any one character |
/// | `{a,b}` | alternatives; `{{` is a `{` |
/// | `[a-c]` | one of these characters |
/// | `**/`, `/**/` | zero or more path parts of letters, digits and `. { } _ -` and space |
/// | `/**` at the end | everything below |
#[derive(Clone, Debug)]
pub struct NamePattern {
    text: String,
    negated: bool,
    regex: Regex,
}

impl NamePattern {
    /// Reads a pattern.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let (negated, rest) = match text.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (expression, kind) = match rest.strip_prefix('~') {
            Some(expression) => (expression.to_owned(), "regular expression"),
            None => (glob(rest), "glob"),
        };
        let regex = regexp::compile(&expression).map_err(|why| PatternError {
            why: format!("not a {kind}: {why}"),
        })?;
        Ok(Self {
            text: text.to_owned(),
            negated,
            regex,
        })
    }

    /// Whether a name is meant.
    pub fn matches(&self, name: &str) -> bool {
        let found = self.regex.find(name);
        let whole = found.is_some_and(|found| found.as_str().len() == name.len());
        whole != self.negated
    }
}

impl fmt::Display for NamePattern {
    /// As it was written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialEq for NamePattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for NamePattern {}

/// The regular expression, in RE2's syntax, that a glob stands for.
fn glob(text: &str) -> String {
    const PARTS: &str = r"(?:[.{}\w\- ]+/)*";
    let mut expression = String::from("^");
    let mut in_group = false;
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let mut taken = letter.len_utf8();
        match letter {
            '\\' | '$' | '^' | '+' | '.' | '(' | ')' | '=' | '!' | '|' => {
                expression.extend(['\\', letter]);
            }
            '/' if rest.starts_with("/**/") => {
                expression.push('/');
                expression.push_str(PARTS);
                taken = 4;
            }
            '/' if rest == "/**" => {
                expression.push_str("/.*");
                taken = 3;
            }
            '*' if rest.starts_with("**/") => {
                expression.push_str(PARTS);
                taken = 3;
            }
            '*' => expression.push_str("[^/]*"),
            '?' => expression.push('.'),
            '{' if rest.starts_with("{{") => {
                expression.push_str("\\{");
                taken = 2;
            }
            '{' => {
                in_group = true;
                expression.push('(');
            }
            '}' if in_group => {
                in_group = false;
                expression.push(')');
            }
            ',' if in_group => expression.push('|'),
            other => expression.push(other),
        }
        rest = rest.get(taken..).unwrap_or_default();
    }
    expression.push('$');
    expression
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        let parsed = NamePattern::parse(pattern);
        parsed
            .unwrap_or_else(|error| panic!("{pattern}: {error}"))
            .matches(name)
    }

    #[test]
    fn names_are_matched_as_the_reference_does() {
        for (pattern, yes, no) in [
            (
                "pub-a",
                vec!["pub-a"],
                vec!["pub-ab", "xpub-a", "Pub-a", ""],
            ),
            ("pub-*", vec!["pub-", "pub-a.b"], vec!["pub", "pub-a/b"]),
            (
                "pub-?",
                vec!["pub-a", "pub-é", "pub-/"],
                vec!["pub-", "pub-ab"],
            ),
            ("{a,b}-x", vec!["a-x", "b-x"], vec!["c-x", "a,b-x"]),
            ("a,b", vec!["a,b"], vec!["a"]),
            ("[a-c]1", vec!["a1", "c1"], vec!["d1", "-1"]),
            ("[a[b]1", vec!["a1", "[1", "b1"], vec!["]1"]),
            ("[^a]1", vec!["a1", "^1"], vec!["b1"]),
            ("**/x", vec!["x", "a/x", "a b/c.d/x"], vec!["a:b/x", "ax"]),
            ("a/**/x", vec!["a/x", "a/b/c/x"], vec!["a", "ax"]),
            ("a/**", vec!["a/", "a/b/c"], vec!["a", "b/a/"]),
            (
                "a.b+(c)|d^e$f=g!h\\i",
                vec!["a.b+(c)|d^e$f=g!h\\i"],
                vec!["aXb"],
            ),
            ("{{a}", vec!["{a}"], vec!["a"]),
            ("a}", vec!["a}"], vec!["a"]),
            ("a&&b~~c--d#e f", vec!["a&&b~~c--d#e f"], vec!["a"]),
            ("", vec![""], vec!["a"]),
            ("!pub-a", vec!["pub-b", ""], vec!["pub-a"]),
            (
                "~pub-(a|b)",
                vec!["pub-a", "pub-b"],
                vec!["pub-c", "xpub-a", "pub-ab"],
            ),
            ("~a|ab", vec!["a"], vec!["ab"]),
            ("~ab|a", vec!["a", "ab"], vec!["abc"]),
            ("!~^pub", vec!["pub-a", "x"], vec!["pub"]),
            ("~(?i)PUB", vec!["pub", "Pub"], vec!["pu"]),
            ("~", vec![""], vec!["a"]),
            ("~!a", vec!["!a"], vec!["b"]),
        ] {
            for name in yes {
                assert!(matches(pattern, name), "{pattern:?} should match {name:?}");
            }
            for name in no {
                assert!(
                    !matches(pattern, name),
                    "{pattern:?} should not match {name:?}"
                );
            }
        }
    }

    #[test]
    fn a_malformed_pattern_is_an_error_and_no_panic() {
        for (pattern, kind) in [
            ("pub-[a", "not a glob: "),
            ("{a", "not a glob: "),
            ("[]", "not a glob: "),
            ("a{b{c}}", "not a glob: "),
            ("~(a", "not a regular expression: "),
            ("!~a)", "not a regular expression: "),
            ("~*", "not a regular expression: "),
        ] {
            let error = NamePattern::parse(pattern).expect_err(pattern).to_string();
            assert!(
                error.starts_with(kind) && !error.contains('\n'),
                "{pattern}: {error}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in any::<String>(), name in any::<String>()) {
            if let Ok(pattern) = NamePattern::parse(&text) {
                let negation = NamePattern::parse(&format!("!{text}"));
                // `!!a` is the negation of the glob `!a`.
                if let (Ok(negation), false) = (negation, text.starts_with('!')) {
                    prop_assert_ne!(pattern.matches(&name), negation.matches(&name));
                }
                prop_assert_eq!(pattern.to_string(), text);
            }
        }

        #[test]
        fn a_name_without_special_letters_matches_itself_alone(
            name in "[a-zA-Z0-9 ._:#&~-][a-zA-Z0-9 ._:#&~()+|-]{0,10}",
            other in "[a-z-]{0,10}",
        ) {
            prop_assume!(!name.starts_with('~'));
            prop_assert!(matches(&name, &name));
            prop_assert_eq!(matches(&name, &other), name == other);
        }
    }
}
