//! Tag expressions: which subnets a floating IP may come from, by their tags.

use std::fmt;

use super::PatternError;

/// An expression on tags: `a,b` at least one; `&a,b` all; `!a,b` none; `!&a,b` not all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagExpression {
    text: String,
    negated: bool,
    all: bool,
    tags: Vec<String>,
}

impl TagExpression {
    /// Reads an expression: an optional `!`, an optional `&`, then tags separated by commas or
    /// white space.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let rest = text.trim_start();
        let (negated, rest) = strip(rest, '!');
        let (all, rest) = strip(rest, '&');
        let tags = rest.split(|letter: char| letter == ',' || letter.is_whitespace());
        let tags: Vec<String> = tags
            .filter(|tag| !tag.is_empty())
            .map(str::to_owned)
            .collect();
        if tags.is_empty() {
            return Err(PatternError {
                why: "no tag is named; write tags separated by commas, such as public,ipv4"
                    .to_owned(),
            });
        }
        Ok(Self {
            text: text.to_owned(),
            negated,
            all,
            tags,
        })
    }

    /// What to ask Neutron, so that it answers what the expression means.
    ///
    /// Neutron's `not-tags` leaves out what has **all** of the tags, and `not-tags-any` what has
    /// **any** of them. cloud-provider-openstack has these two the wrong way round, so that `!a,b`
    /// finds subnets with only one of the tags. For a single tag both ask the same; there its
    /// choice is kept.
    pub fn query(&self) -> Vec<(&'static str, String)> {
        let single = self.tags.len() == 1;
        let key = match (self.negated, self.all) {
            (false, false) => "tags-any",
            (false, true) => "tags",
            (true, false) if single => "not-tags",
            (true, true) if single => "not-tags-any",
            (true, false) => "not-tags-any",
            (true, true) => "not-tags",
        };
        vec![(key, self.tags.join(","))]
    }

    /// Whether an object with these tags is meant.
    pub fn matches<T: AsRef<str>>(&self, tags: &[T]) -> bool {
        let has = |tag: &String| tags.iter().any(|other| other.as_ref() == tag);
        let found = if self.all {
            self.tags.iter().all(has)
        } else {
            self.tags.iter().any(has)
        };
        found != self.negated
    }
}

impl fmt::Display for TagExpression {
    /// As it was written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn strip(text: &str, mark: char) -> (bool, &str) {
    match text.strip_prefix(mark) {
        Some(rest) => (true, rest),
        None => (false, text),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What Neutron answers: `neutron.db.tag_db` in our words.
    fn neutron_keeps(query: &[(&str, String)], subnet: &[&str]) -> bool {
        query.iter().all(|(key, tags)| {
            let mut tags = tags.split(',').map(|tag| subnet.contains(&tag));
            match *key {
                "tags" => tags.all(|has| has),
                "tags-any" => tags.any(|has| has),
                "not-tags" => !tags.all(|has| has),
                "not-tags-any" => !tags.any(|has| has),
                other => panic!("{other}"),
            }
        })
    }

    #[test]
    fn queries_say_what_the_expressions_mean() {
        for (text, key, tags) in [
            ("a,b", "tags-any", "a,b"),
            ("a b", "tags-any", "a,b"),
            ("&a,b", "tags", "a,b"),
            ("& a, b ", "tags", "a,b"),
            ("!a", "not-tags", "a"),
            ("!&a", "not-tags-any", "a"),
            ("!a,b", "not-tags-any", "a,b"),
            ("!&a,b", "not-tags", "a,b"),
        ] {
            let query = TagExpression::parse(text).unwrap().query();
            assert_eq!(query, [(key, tags.to_owned())], "{text}");
        }
    }

    #[test]
    fn none_of_two_tags_leaves_out_subnets_with_one_of_them() {
        let expression = TagExpression::parse("!a,b").unwrap();
        assert!(!expression.matches(&["a"]) && expression.matches(&["c"]));
        let query = expression.query();
        assert!(!neutron_keeps(&query, &["a"]) && neutron_keeps(&query, &["c"]));
    }

    #[test]
    fn an_expression_without_tags_is_refused() {
        for text in ["", " ", "!", "&", "!&", "!& , "] {
            let error = TagExpression::parse(text).expect_err(text);
            assert!(error.to_string().contains("no tag is named"));
        }
    }

    proptest! {
        #[test]
        fn the_query_and_the_local_meaning_agree(
            text in "!?&?[abc]([, ][abc]){0,2}",
            subnet in proptest::sample::subsequence(vec!["a", "b", "c", "d"], 0..=4),
        ) {
            let expression = TagExpression::parse(&text).unwrap();
            prop_assert_eq!(expression.matches(&subnet), neutron_keeps(&expression.query(),
                &subnet));
        }

        #[test]
        fn no_text_makes_it_panic(text in any::<String>()) {
            if let Ok(expression) = TagExpression::parse(&text) {
                prop_assert_eq!(expression.to_string(), text);
                prop_assert!(!expression.query().is_empty());
            }
        }
    }
}
