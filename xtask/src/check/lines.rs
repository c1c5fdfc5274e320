//! The length of lines in Rust and Markdown. rustfmt breaks code, but neither comments nor strings.

use super::{Findings, extension};

/// The columns that a line may have.
const MOST: usize = 100;

/// Checks the lines of one file.
pub fn check_file(path: &str, text: &str, findings: &mut Findings) {
    let markdown = match extension(path) {
        Some("md") => true,
        Some("rs") => false,
        _ => return,
    };
    for (index, line) in text.lines().enumerate() {
        let columns = line.chars().count();
        let is_fixed = if markdown {
            is_table_row(line)
        } else {
            is_raw_literal(line)
        };
        if columns > MOST && !is_fixed && can_break(line) {
            findings.errors.push(format!(
                "{path}:{}: {columns} columns; at most {MOST}",
                index + 1
            ));
        }
    }
}

/// Returns whether all of the line is one raw literal, which a line break would change.
fn is_raw_literal(line: &str) -> bool {
    let line = line.trim().trim_end_matches([',', ';']);
    line.starts_with("r#\"") && line.ends_with("\"#")
}

/// Returns whether Markdown allows no line break in this line.
fn is_table_row(line: &str) -> bool {
    line.trim_start().starts_with('|')
}

/// Returns whether there is a blank to break the line at: an address or a key has none.
fn can_break(line: &str) -> bool {
    line.split_whitespace().count() > 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(path: &str, text: &str) -> Vec<String> {
        let mut findings = Findings::default();
        check_file(path, text, &mut findings);
        findings.errors
    }

    /// Text of this many columns, with blanks.
    fn line(columns: usize) -> String {
        "a ".repeat(columns).chars().take(columns).collect()
    }

    #[test]
    fn a_line_over_the_limit_is_an_error_with_its_place() {
        let text = format!("{}\n{}\n", line(100), line(101));
        assert_eq!(errors("a.rs", &text), ["a.rs:2: 101 columns; at most 100"]);
        assert_eq!(errors("a.md", &text), ["a.md:2: 101 columns; at most 100"]);
        assert_eq!(errors("a.json", &text), Vec::<String>::new());
    }

    #[test]
    fn columns_are_characters_and_not_bytes() {
        assert_eq!(errors("a.md", &"ä b ".repeat(25)), Vec::<String>::new());
    }

    #[test]
    fn what_has_no_place_for_a_break_may_be_longer() {
        let address = format!("- https://example.org/{}", "a".repeat(100));
        assert_eq!(errors("a.md", &address), Vec::<String>::new());
        let row = format!("| {} |", line(120));
        assert_eq!(errors("a.md", &row), Vec::<String>::new());
        assert_eq!(errors("a.rs", &row).len(), 1);
        let raw = format!("f(\n    r#\"{}\"#,\n)", line(120));
        assert_eq!(errors("a.rs", &raw), Vec::<String>::new());
        assert_eq!(errors("a.rs", &raw.replace("r#", "")).len(), 1);
    }
}
