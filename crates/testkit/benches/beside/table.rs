//! The lines of both programs, side by side.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use super::bed::Line;

/// What is printed of one cluster's scenes.
pub struct Table {
    title: String,
    theirs: Vec<Line>,
    ours: Vec<Line>,
    routes: bool,
}

// === impl Table ===

impl Table {
    pub const fn new(title: String, theirs: Vec<Line>, ours: Vec<Line>, routes: bool) -> Self {
        Self {
            title,
            theirs,
            ours,
            routes,
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "\n{}", self.title)?;
        writeln!(
            out,
            "calls: all (writes + polls + other reads), logins apart; s until served / the last \
             call"
        )?;
        let cells = |what: &str, [a, b, c, d]: [String; 4]| {
            format!("{what:<44} {a:>22} {b:>15}   {c:>22} {d:>15}")
        };
        let heads = ["reference: calls", "s", "Landfall: calls", "s"].map(str::to_owned);
        writeln!(out, "{}", cells("", heads))?;
        for (theirs, ours) in self.theirs.iter().zip(&self.ours) {
            let figures = [
                theirs.counts.to_string(),
                times(theirs),
                ours.counts.to_string(),
                times(ours),
            ];
            writeln!(out, "{}", cells(&ours.what, figures))?;
            if self.routes {
                routes(out, theirs, ours)?;
            }
        }
        Ok(())
    }
}

fn times(line: &Line) -> String {
    let seconds = |time: Duration| format!("{:.1}", time.as_secs_f64());
    let served = line.served.map_or_else(|| "-".to_owned(), seconds);
    format!("{served} / {}", seconds(line.last))
}

/// How often each was called, by either.
fn routes(out: &mut fmt::Formatter<'_>, theirs: &Line, ours: &Line) -> fmt::Result {
    let (theirs, ours) = (&theirs.counts.routes, &ours.counts.routes);
    let all: BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
    for route in all {
        let count = |of: &std::collections::BTreeMap<String, usize>| {
            of.get(route).copied().unwrap_or_default()
        };
        writeln!(
            out,
            "    {route:<60} {:>5} {:>5}",
            count(theirs),
            count(ours)
        )?;
    }
    Ok(())
}
