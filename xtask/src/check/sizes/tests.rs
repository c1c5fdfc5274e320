//! What counts as too long or as a circle.

use super::*;

fn crate_of(files: &[(&str, &str)]) -> Crate {
    let mut sources = Crate::default();
    for (path, text) in files {
        let path = format!("crates/a/src/{path}");
        sources.add(SourceFile::parse(&path, text).unwrap());
    }
    sources.drop_tests();
    sources
}

fn errors(files: &[(&str, &str)]) -> Vec<String> {
    let mut errors = Vec::new();
    measure("crates/a", &crate_of(files), &mut errors);
    errors
}

const NONE: [&str; 0] = [];

#[test]
fn a_file_over_500_lines_is_an_error() {
    assert_eq!(errors(&[("a.rs", &"\n".repeat(500))]), NONE);
    assert_eq!(
        errors(&[("a.rs", &"\n".repeat(501))]),
        ["file crates/a/src/a.rs: 501 lines; at most 500: split it by subject"]
    );
}

#[test]
fn a_function_over_80_lines_is_an_error_with_its_type() {
    let function = |lines: usize| format!("fn long() {{{}}}\n", "\n".repeat(lines - 1));
    assert_eq!(errors(&[("a.rs", &function(80))]), NONE);
    assert_eq!(
        errors(&[("a.rs", &function(81))]),
        ["function crates/a/src/a.rs long: 81 lines; at most 80"]
    );
    let method = format!("impl Some<u8> {{ {} }}", function(81));
    assert_eq!(
        errors(&[("a.rs", &method)]),
        ["function crates/a/src/a.rs Some::long: 81 lines; at most 80"]
    );
}

#[test]
fn tests_do_not_count() {
    let long = format!("fn long() {{{}}}\n", "\n".repeat(600));
    for path in [
        "crates/a/src/a/tests.rs",
        "crates/a/src/a/tests/b.rs",
        "crates/a/tests/b.rs",
    ] {
        assert_eq!(source::module_of(path), None, "{path}");
    }
    assert_eq!(
        errors(&[("a.rs", &format!("#[cfg(test)]\nmod b {{ {long} }}"))]),
        NONE
    );
    let files: [(&str, &str); 3] = [
        (
            "a.rs",
            "#[cfg(all(test, unix))]\nmod b;\n#[cfg(not(test))]\nmod c;",
        ),
        ("a/b/d.rs", &long),
        ("a/c.rs", &long),
    ];
    let errors = errors(&files);
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(
        errors.iter().all(|error| error.contains("a/c.rs")),
        "{errors:?}"
    );
}

#[test]
fn modules_of_one_parent_that_import_each_other_are_an_error() {
    let files = [
        ("lib.rs", "mod a; mod b;\npub use b::B;"),
        ("a.rs", "use crate::B;"),
        ("b.rs", "mod c;"),
        // A module counts together with those below it.
        ("b/c.rs", "fn c() -> crate::a::A { super::super::a::A }"),
    ];
    assert_eq!(
        errors(&files),
        ["2 modules of crates/a crate import each other:\n  \
          a -> b (crates/a/src/a.rs:1)\n  b -> a (crates/a/src/b/c.rs:1)"]
    );
}

#[test]
fn a_circle_of_three_modules_is_an_error_and_other_modules_are_not_in_it() {
    let files = [
        ("p/a.rs", "use super::b::B;"),
        ("p/b.rs", "use crate::p::{c::C, d::D};"),
        ("p/c.rs", "fn c() { use super::a; }"),
        ("p/d.rs", "use std::fmt;"),
        ("p.rs", "mod a; mod b; mod c; mod d;"),
    ];
    let errors = errors(&files);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(
        errors[0].starts_with("3 modules of crates/a crate::p import "),
        "{errors:?}"
    );
}

#[test]
fn parent_and_child_may_import_each_other_and_tests_anything() {
    let files = [
        ("p.rs", "mod a; mod b; use a::A; pub struct P;"),
        ("p/a.rs", "use super::P; use super::b::B;"),
        (
            "p/b.rs",
            "#[cfg(test)] mod tests { use crate::p::a::A; }\n#[cfg(test)] use super::a;",
        ),
    ];
    assert_eq!(errors(&files), NONE);
}

#[test]
fn this_checkout_keeps_the_limits() {
    let findings = check(&Place::find().unwrap()).unwrap();
    assert!(findings.errors.is_empty(), "{}", findings.errors.join("\n"));
}
