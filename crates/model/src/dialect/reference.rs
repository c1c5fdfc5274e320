//! The reference page of annotations, printed from the tables.

use std::fmt::Write as _;

use super::{DIALECTS, Dialect, Effect, OptionRow};

const INTRODUCTION: &str = "\
<!-- Generated from the tables in crates/model/src/dialect. Do not edit; run
     UPDATE_DOCS=1 cargo test -p landfall-model reference_page -->

# Annotations

Everything that can be said about a Service's load balancer beyond its `spec`. Each annotation stands in
`metadata.annotations` of the Service.

**One port.** What is marked \"port\" below holds for every port of the Service, or, with the port's name behind a dot,
for that port alone: `landfall.dev/<option>.<port-name>`. A port's number does as well, which is the only way
for a port without a name: `landfall.dev/drain.8080`. What is written for a port wins over what is
written for the Service, and its name wins over its number.

```yaml
metadata:
  annotations:
    landfall.dev/timeout-client-data: 5m
    landfall.dev/mode.web: https
    landfall.dev/tls-secret.web: web-tls
```

**A port that can't.** What is written for the whole Service passes over ports that can't have it (an HTTP option on a
UDP port); where no port can, you are told. Written for that very port, it is an error.

**Several dialects.** They can be mixed. Where two say different things, the one that comes first on this page wins, and
you are told.

**Times** are numbers with units, the largest first: `250ms`, `30s`, `1m30s`, `2h`.
";

/// The reference page, Markdown.
pub fn reference_page() -> String {
    let mut page = INTRODUCTION.to_owned();
    for dialect in DIALECTS {
        // Writing into a String can't fail.
        let _ = write!(page, "\n## {}\n\n{}\n\n", dialect.title, dialect.about);
        page.push_str("| key | of | value | default | what it does | example |\n");
        page.push_str("|---|---|---|---|---|---|\n");
        for row in dialect.rows {
            line(&mut page, dialect, row);
        }
    }
    page
}

fn line(page: &mut String, dialect: &Dialect, row: &OptionRow) {
    let (scope, note) = match row.effect {
        Effect::Service { .. } => ("Service", String::new()),
        Effect::Port { .. } if dialect.per_port => ("port", String::new()),
        Effect::Port { .. } => ("all ports", String::new()),
        Effect::Cloud { why, .. } => (
            "Service",
            format!(" **Only on OpenStack**; elsewhere: {why}."),
        ),
        Effect::NotApplicable { why, .. } => ("-", format!(" **No effect**: {why}.")),
    };
    let cells = [
        format!("`{}{}`", dialect.prefix, row.name),
        scope.to_owned(),
        row.takes.to_owned(),
        row.default.to_owned(),
        format!("{}{note}", row.summary),
        format!("`{}`", row.example),
    ];
    for cell in cells {
        let _ = write!(page, "| {} ", cell.replace('|', "\\|"));
    }
    page.push_str("|\n");
}
