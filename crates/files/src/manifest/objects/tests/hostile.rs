//! What no user writes by accident, and what must never happen whatever is written.

use proptest::prelude::*;

use super::super::*;
use super::{content, json_content, names, service, shown};

#[test]
fn an_alias_bomb_is_refused_at_once() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..30 {
        let inner = format!("*a{}, ", level - 1).repeat(10);
        text = format!("{text}a{level}: &a{level} [{inner}]\n");
    }
    let content = content(&format!("{text}---\n{}", service("web")));
    assert_eq!(names(&content), ["Service default/web"]);
    assert_eq!(
        shown(&content),
        [
            "web.yaml:5: the aliases expand to more than 100000 values; correct this line or one \
            shortly above it"
        ]
    );
}

#[test]
fn an_alias_to_what_it_stands_in_is_refused() {
    let content = content("a: &a [*a]\n");
    assert_eq!(
        shown(&content),
        [
            "web.yaml:1: an alias is inside of the value that it names; correct this line or one \
            shortly above it"
        ]
    );
}

#[test]
fn what_is_nested_too_deep_is_refused() {
    let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
    let chained: String = (0..40).fold("a0: &a0 [[[x]]]\n".to_owned(), |text, level| {
        format!("{text}a{}: &a{} [[*a{level}]]\n", level + 1, level + 1)
    });
    for text in [deep, chained] {
        let content = content(&text);
        assert!(
            content.unclear && content.reasons.len() == 1,
            "{:?}",
            shown(&content)
        );
    }
}

#[test]
fn a_megabyte_of_junk_is_reported_briefly() {
    let texts = [
        "x".repeat(1 << 20),
        "}{".repeat(1 << 19),
        "---\n[\n".repeat(1 << 17),
        "- ".repeat(1 << 19),
        "\u{0}".repeat(1 << 20),
        "&a *a ".repeat(1 << 17),
        "{\"a\":".repeat(1 << 17),
        "a: b\n".repeat(1 << 17),
    ];
    for text in texts {
        let content = content(&text);
        assert!(content.objects.is_empty());
        let reasons = shown(&content);
        let length: usize = reasons.iter().map(String::len).sum();
        assert!(!reasons.is_empty() && length < 20_000, "{length} bytes");
    }
}

#[test]
fn what_a_secret_holds_is_never_quoted() {
    let texts = [
        "data: topsecret",
        "data: {tls.key: [topsecret]}",
        "data: {tls.key: 12345678}",
        "stringData: {tls.key: 12345678}",
        "data: {tls.key: topsecret, tls.key: topsecret}",
        "type: [topsecret]",
        "data: {tls.key: 'topsecret!'}",
        "data: {tls.key: \"topsecret\\q\"}",
        "data: {tls.key: &topsecret x, tls.crt: *topsecrett}",
    ];
    for rest in texts {
        let head = "apiVersion: v1\nkind: Secret\nmetadata: {name: tls}\n";
        let content = content(&format!("{head}{rest}\n"));
        let shown = format!("{:?}{:?}", shown(&content), content);
        assert!(
            !shown.contains("topsecret") && !shown.contains("12345678"),
            "{shown}"
        );
    }
}

#[test]
fn a_file_of_mistakes_reports_a_hundred_and_how_many_more() {
    let text: String = (0..300).map(|_| "---\nkind: Service\n").collect();
    let content = content(&text);
    assert_eq!(content.reasons.len(), REASONS_LIMIT + 1);
    assert_eq!(
        content.reasons[REASONS_LIMIT].to_string(),
        "web.yaml:1: 200 more findings are omitted"
    );
}

fn yaml_like() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("apiVersion: v1\n".to_owned()),
        Just("kind: Service\n".to_owned()),
        Just("kind: List\nitems:\n- ".to_owned()),
        Just("metadata:\n  name: web\n".to_owned()),
        Just("spec:\n  ports:\n  - port: 80\n".to_owned()),
        Just("---\n".to_owned()),
        Just("&a ".to_owned()),
        Just("*a ".to_owned()),
        Just("<<: *a\n".to_owned()),
        Just("? ".to_owned()),
        Just("|\n ".to_owned()),
        Just("{\"a\": [".to_owned()),
        Just("]}".to_owned()),
        Just("\t".to_owned()),
        Just("%YAML 1.1\n".to_owned()),
        Just("!!binary ".to_owned()),
        "[ -~\n]{0,8}",
        "\\PC{0,4}",
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn no_text_makes_reading_panic(text in "\\PC{0,200}") {
        content(&text);
        json_content(&text);
    }

    #[test]
    fn no_text_that_looks_like_yaml_makes_reading_panic(text in yaml_like()) {
        content(&text);
        json_content(&text);
    }

    #[test]
    fn whatever_is_in_a_file_a_good_document_before_it_is_read(text in yaml_like()) {
        let content = content(&format!("{}---\n{text}", service("first")));
        let name = names(&content).first().cloned();
        prop_assert_eq!(name.as_deref(), Some("Service default/first"));
    }

    #[test]
    fn every_reason_stands_on_a_line_of_the_file(text in yaml_like()) {
        let lines = u32::try_from(text.lines().count()).unwrap() + 1;
        for reason in content(&text).reasons {
            let line = reason.origin.unwrap().line;
            prop_assert!((1..=lines.max(1)).contains(&line), "line {line} of {lines}");
        }
    }
}
