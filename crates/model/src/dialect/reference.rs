//! The reference page of annotations, printed from the tables.

use std::fmt::Write as _;

use super::{DIALECTS, Dialect, Effect, OptionRow};

const INTRODUCTION: &str = "\
<!-- Generated from the tables in crates/model/src/dialect. Do not edit; run
     UPDATE_DOCS=1 cargo test -p landfall-model reference_page -->

# Annotations

The options of a Service's load balancer beyond its `spec`. They are annotations in
`metadata.annotations` of the Service. `landfall check -f` validates them.

**One port.** An option with \"port\" in the column \"of\" applies to every port of the Service, or,
with the port's name after a dot, to that port only: `landfall.dev/<option>.<port-name>`. A port's
number works as well, and is the only way for a port without a name: `landfall.dev/drain.8080`. The
value for a port takes precedence over the value for the Service, and its name over its number.

```yaml
metadata:
  annotations:
    landfall.dev/timeout-client-data: 5m
    landfall.dev/mode.web: https
    landfall.dev/tls-secret.web: web-tls
```

**Ports without support.** An option for the whole Service is ignored on ports that don't support it
(an HTTP option on a UDP port); if no port does, a warning is reported. An option for one port that
does not support it is an error.

**Several dialects.** A Service may have annotations of several sections of this page. If two
contradict each other, that of the earlier section takes precedence, with a warning.

**Times** are numbers with units, the largest first: `250ms`, `30s`, `1m30s`, `2h`.
";

/// The reference page, Markdown.
pub fn reference_page() -> String {
    let mut page = INTRODUCTION.to_owned();
    for dialect in DIALECTS {
        // Writing into a String can't fail.
        let _ = write!(page, "\n## {}\n\n{}\n\n", dialect.title, dialect.about);
        page.push_str("| key | of | value | default | effect | example |\n");
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
        Effect::Extension { of, why, .. } => {
            ("Service", format!(" **Only on {of}**; elsewhere: {why}."))
        }
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
