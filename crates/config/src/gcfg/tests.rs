use proptest::prelude::*;

use super::*;

fn value(line: &str) -> Option<String> {
    let text = format!("[s]\n{line}");
    let document = parse(&text).unwrap_or_else(|error| panic!("{line:?}: {error}"));
    document.sections[0].entries[0].value.clone()
}

fn refused(text: &str) -> String {
    let error = parse(text).expect_err(text);
    format!("{}: {error}", error.line)
}

/// Name, subsection, keys with values.
type Content = (String, Option<String>, Vec<(String, Option<String>)>);

/// Lines and comments are not part of what is written.
fn content(document: &Document) -> Vec<Content> {
    let entries = |section: &Section| {
        let entries = section.entries.iter();
        entries
            .map(|entry| (entry.key.clone(), entry.value.clone()))
            .collect()
    };
    let sections = document.sections.iter();
    sections
        .map(|section| {
            (
                section.name.clone(),
                section.subsection.clone(),
                entries(section),
            )
        })
        .collect()
}

#[test]
fn sections_keys_and_lines_are_kept_in_order() {
    let text =
        "; first\n[Global]\nauth-url = http://a/v3\n\n[LoadBalancerClass \"Pub\"] # c\nuse\nuse=no";
    let document = parse(text).unwrap();
    let [global, class] = &document.sections[..] else {
        panic!("{document:?}");
    };
    assert!(global.is("GLOBAL") && global.line == 2 && global.subsection.is_none());
    assert!(global.entries[0].is("Auth-URL") && global.entries[0].line == 3);
    assert_eq!(class.subsection.as_deref(), Some("Pub"));
    let uses: Vec<_> = class
        .entries
        .iter()
        .map(|entry| (entry.line, entry.value.as_deref()))
        .collect();
    assert_eq!(uses, [(6, None), (7, Some("no"))]);
}

#[test]
fn values_are_unquoted_as_the_reference_does() {
    for (line, expected) in [
        ("k = a b  ", "a b"),
        ("k=a", "a"),
        ("k =", ""),
        ("k = ; nothing", ""),
        ("k = a # comment", "a"),
        ("k = \"a # b\" ; c", "a # b"),
        ("k = \"  a  \"  ", "  a  "),
        ("k = x\"y z\"w", "xy zw"),
        ("k = \"a\\\"b\\\\c\\nd\\te\"", "a\"b\\c\nd\te"),
        ("k = a\\\nb", "ab"),
        ("k = a \\\r\n  b\r\n", "a   b"),
        ("k = a \\\n  \n", "a "),
        ("k = a\r\nl = b", "a"),
        ("k = [x] = 'y'", "[x] = 'y'"),
    ] {
        assert_eq!(value(line).as_deref(), Some(expected), "{line:?}");
    }
    for bare in ["k", "k # c", "k ; c", "k\r\n"] {
        assert_eq!(value(bare), None, "{bare:?}");
    }
}

#[test]
fn a_comment_that_touches_the_value_is_noted() {
    let cut = |line: &str| parse(&format!("[s]\n{line}")).unwrap().sections[0].entries[0].cut;
    assert!(cut("password = ab#cd") && cut("k = a;b") && cut("k = \"a\"#b"));
    assert!(!cut("k = a # b") && !cut("k = #b") && !cut("k = \"a#b\"") && !cut("k = a\\\n#b"));
}

#[test]
fn mistakes_are_reported_with_line_key_and_remedy() {
    for (text, expected) in [
        (
            "a = b",
            "1: a: a key before the first section; begin with a section such as [Global]",
        ),
        (
            "[s]\nauth_url = b",
            "2: auth_url: a key can't have a _; write auth-url",
        ),
        (
            "[s]\n\nk = \"a\nb\"",
            "3: k: the quotes have no end; close them with a \"",
        ),
        (
            "[s]\nk = \"\\z\"",
            "2: k: unknown escape; write \\\\ for a backslash; \\\", \\n and \\t are the others",
        ),
        (
            "[s]\nk = C:\\temp",
            "2: k: a backslash outside of quotes; quote the value and write \\\\ for a backslash",
        ),
        ("[s]\nk: v", "2: k: ':' after the key; write key = value"),
        (
            "[s] k = v",
            "1: text after the heading of section s; write it on a line of its own",
        ),
        (
            "[s",
            "1: section s is not closed; write [s] or [s \"name\"]",
        ),
        ("[]", "1: a section without a name; write [Section]"),
        (
            "[s \"\"]",
            "1: the name of section s is empty; name it, or leave out the quotes",
        ),
        (
            "[s \"a\n\"]",
            "1: the name of section s has no end; close it with a \"",
        ),
        (
            "[s \"a\\n\"]",
            "1: unknown escape in the name of section s; write \\\\ for a backslash",
        ),
        (
            "[s]\n= v",
            "2: a line can't begin with '='; write [Section], key = value, or a comment after ; or \
            #",
        ),
        (
            "[s]\nk = a\0",
            "2: k: a NUL character; remove it; is this a text file?",
        ),
    ] {
        assert_eq!(refused(text), expected, "{text:?}");
    }
}

#[test]
fn values_are_never_shown() {
    let document = parse("[s]\npassword = hunter2").unwrap();
    assert!(!format!("{document:?}").contains("hunter2"));
    assert!(!refused("[s]\npassword = hun\\ter2").contains("hun"));
}

#[test]
fn a_secret_on_the_line_below_its_key_is_never_shown() {
    for (below, line) in [
        ("abcDEF-12_xyz", 4),
        ("\n; c\nabcDEF_", 6),
        ("abcDEF/xyz", 4),
        ("abcDEF = \"xyz", 4),
        ("1abcDEF", 4),
        ("[abcDEF", 4),
        ("[abcDEF] xyz", 4),
        ("abc\nDEF\nabcDEF_xyz", 6),
        ("abcDEF==\nabcDEF_xyz", 5),
    ] {
        for key in [
            "Application-Credential-Secret =",
            "token",
            "trustee-password = ; c",
        ] {
            let error = refused(&format!("[Global]\nregion = a\n{key}\n{below}"));
            let name = key.split(' ').next().unwrap();
            assert_eq!(
                error,
                format!(
                    "{line}: {name}: has no value, and line {line} below it can't be read (it is \
                    not shown: it may be the secret); write {name} = value on one line, with \
                    quotes around the value"
                ),
                "{below:?}"
            );
        }
    }
    let read = parse("[Global]\ntoken =\nabcDEF").unwrap();
    assert!(!format!("{read:?}").contains("abcDEF"), "{read:?}");
    // An empty secret is no reason to be silent about what comes further down.
    assert_eq!(
        refused("[Global]\ntoken =\nregion = a\nauth_url = b"),
        "4: auth_url: a key can't have a _; write auth-url"
    );
}

#[test]
fn a_byte_order_mark_is_skipped() {
    assert_eq!(parse("\u{feff}[s]\n").unwrap().sections.len(), 1);
}

fn documents() -> impl Strategy<Value = Document> {
    let entry = (
        "[a-zA-Z][a-zA-Z0-9-]{0,8}",
        proptest::option::of("[^\r\0]{0,12}"),
    );
    let entry = entry.prop_map(|(key, value)| Entry {
        key,
        value,
        line: 0,
        cut: false,
        below: None,
    });
    let entries = proptest::collection::vec(entry, 0..5);
    let name = proptest::option::of("[^\n\0]{1,12}");
    let section = ("[a-zA-Z][a-zA-Z0-9-]{0,8}", name, entries);
    let section = section.prop_map(|(name, subsection, entries)| Section {
        name,
        subsection,
        line: 0,
        entries,
    });
    proptest::collection::vec(section, 0..4).prop_map(|sections| Document { sections })
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in any::<String>()) {
        let _ = parse(&text);
    }

    #[test]
    fn what_is_read_is_written_and_read_alike(
        pieces in proptest::collection::vec(
            prop_oneof![
                Just("[s]"), Just("[s \"x\"]"), Just("\n"), Just("\n"), Just("key"), Just(" = "),
                Just("\""), Just("\\"), Just("\\\n"), Just("#"), Just(";"), Just(" "), Just("\t"),
                Just("é"), Just("\r"), Just("\\n"), Just("\0"), Just("_"),
            ],
            0..40,
        ),
    ) {
        if let Ok(document) = parse(&format!("[s]\n{}", pieces.concat())) {
            let again = parse(&document.to_text()).unwrap();
            prop_assert_eq!(content(&again), content(&document));
        }
    }

    #[test]
    fn what_is_written_is_read(document in documents()) {
        let read = parse(&document.to_text()).unwrap();
        prop_assert_eq!(content(&read), content(&document));
    }
}
