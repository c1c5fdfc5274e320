//! Tables as kubectl prints them: aligned columns, no lines.

use comfy_table::{ContentArrangement, Table, presets};

/// Renders rows under a header.
pub fn render(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.iter().copied());
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 3));
    }
    let lines = table.lines().map(|line| line.trim_end().to_owned());
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_have_no_tail() {
        let rows = vec![
            vec!["demo/web".to_owned(), "3/4".to_owned()],
            vec!["a/b".to_owned(), String::new()],
        ];
        assert_eq!(
            render(&["SERVICE", "HEALTHY"], rows),
            "SERVICE    HEALTHY\ndemo/web   3/4\na/b"
        );
    }
}
