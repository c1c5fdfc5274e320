//! What was measured, as tables for people and as JSON for programs.

use std::collections::BTreeMap;
use std::fmt;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::contestant::{Contestant, Programs};
use super::figure::{Better, Figure};
use super::machine::{self, Facts, Machine};
use super::scenario::Scenario;
use super::sizes::Sizes;

/// Everything that one run has measured.
#[derive(Debug, Serialize)]
pub struct Report {
    machine: Facts,
    load_after: String,
    versions: Vec<String>,
    rounds: u16,
    sizes: Sizes,
    rows: Vec<Row>,
    failures: Vec<Failure>,
}

/// A proxy that did not do its work. It has no figures in that scenario: what it did before is no
/// measure.
#[derive(Debug, Serialize)]
struct Failure {
    scenario: Scenario,
    contestant: Contestant,
    reason: String,
}

/// One figure of one scenario, for every proxy, in the order of rounds.
#[derive(Debug, Serialize)]
struct Row {
    scenario: Scenario,
    figure: Figure,
    samples: BTreeMap<Contestant, Vec<f64>>,
}

/// A median between the extremes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Spread {
    min: f64,
    median: f64,
    max: f64,
}

impl Report {
    pub fn new(machine: &Machine, programs: &Programs, rounds: u16, sizes: Sizes) -> Self {
        Self {
            machine: machine.facts.clone(),
            load_after: String::new(),
            versions: programs.versions.clone(),
            rounds,
            sizes,
            rows: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Notes that a proxy failed in a scenario.
    pub fn fail(&mut self, scenario: Scenario, contestant: Contestant, reason: &anyhow::Error) {
        for row in &mut self.rows {
            if row.scenario == scenario {
                row.samples.remove(&contestant);
            }
        }
        self.failures.push(Failure {
            scenario,
            contestant,
            reason: format!("{reason:#}"),
        });
    }

    /// Whether a proxy failed in a scenario.
    pub fn has_failed(&self, scenario: Scenario, contestant: Contestant) -> bool {
        self.failures
            .iter()
            .any(|failure| failure.scenario == scenario && failure.contestant == contestant)
    }

    /// The scenarios in which Landfall itself failed.
    pub fn own_failures(&self) -> Vec<Scenario> {
        let own = |failure: &&Failure| failure.contestant == Contestant::Landfall;
        let failures = self.failures.iter().filter(own);
        failures.map(|failure| failure.scenario).collect()
    }

    /// Takes a sample in.
    pub fn add(&mut self, scenario: Scenario, figure: Figure, contestant: Contestant, value: f64) {
        let known = self
            .rows
            .iter_mut()
            .find(|row| row.scenario == scenario && row.figure == figure);
        if let Some(row) = known {
            row.samples.entry(contestant).or_default().push(value);
            return;
        }
        let samples = BTreeMap::from([(contestant, vec![value])]);
        self.rows.push(Row {
            scenario,
            figure,
            samples,
        });
    }

    /// Nothing more will be measured.
    pub fn finish(&mut self) {
        self.load_after = machine::load();
    }
}

impl Row {
    /// Landfall against the peer with the best median: how many times its figure, round by round.
    fn ratio(&self) -> Option<(Contestant, Spread)> {
        let ours = self.samples.get(&Contestant::Landfall)?;
        let median = |samples: &[f64]| Spread::of(samples).map(|spread| spread.median);
        let peers = self
            .samples
            .iter()
            .filter(|(contestant, _)| **contestant != Contestant::Landfall)
            .filter_map(|(contestant, samples)| Some((*contestant, samples, median(samples)?)));
        let (peer, theirs, _) = match self.figure.better() {
            Better::Higher => peers.max_by(|one, other| one.2.total_cmp(&other.2)),
            Better::Lower => peers.min_by(|one, other| one.2.total_cmp(&other.2)),
            Better::Neither => None,
        }?;
        let ratios: Vec<f64> = ours
            .iter()
            .zip(theirs)
            .map(|(ours, theirs)| ours / theirs)
            .collect();
        Some((peer, Spread::of(&ratios)?))
    }
}

impl Spread {
    fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let upper = *sorted.get(middle)?;
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(*sorted.get(middle.checked_sub(1)?)?, upper)
        } else {
            upper
        };
        Some(Self {
            min: *sorted.first()?,
            median,
            max: *sorted.last()?,
        })
    }
}

/// Three digits that matter.
fn short(value: f64) -> String {
    let size = value.abs();
    if size >= 100.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&short(self.median))?;
        if self.min < self.max {
            write!(out, "  ({}..{})", short(self.min), short(self.max))?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            out,
            "{}, {} CPUs, Linux {}",
            self.machine.cpu, self.machine.cpus, self.machine.kernel
        )?;
        writeln!(
            out,
            "load before {}, after {}",
            self.machine.load_before, self.load_after
        )?;
        for version in &self.versions {
            writeln!(out, "{version}")?;
        }
        writeln!(
            out,
            "one worker and one CPU each; median (least..most) of {} rounds that took turns",
            self.rounds
        )?;
        for scenario in Scenario::ALL {
            let rows: Vec<_> = self
                .rows
                .iter()
                .filter(|row| row.scenario == scenario)
                .collect();
            let failures: Vec<_> = self
                .failures
                .iter()
                .filter(|failure| failure.scenario == scenario)
                .collect();
            if rows.is_empty() && failures.is_empty() {
                continue;
            }
            writeln!(
                out,
                "\n{scenario}: {}\n{}",
                scenario.title(&self.sizes),
                table(&rows, &failures)
            )?;
            for Failure {
                contestant, reason, ..
            } in failures
            {
                writeln!(out, "{contestant} failed: {reason}")?;
            }
        }
        Ok(())
    }
}

fn table(rows: &[&Row], failures: &[&Failure]) -> Table {
    let failed = |one: &Contestant| failures.iter().any(|failure| failure.contestant == *one);
    let contestants: Vec<Contestant> = Contestant::ALL
        .into_iter()
        .filter(|one| failed(one) || rows.iter().any(|row| row.samples.contains_key(one)))
        .collect();
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    let head = std::iter::once(String::new())
        .chain(contestants.iter().map(ToString::to_string))
        .chain(std::iter::once("Landfall : best peer".to_owned()));
    table.set_header(head);
    for row in rows {
        let figures = contestants.iter().map(|one| {
            row.samples
                .get(one)
                .and_then(|samples| Spread::of(samples))
                .map_or_else(
                    || {
                        if failed(one) {
                            "failed".to_owned()
                        } else {
                            String::new()
                        }
                    },
                    |spread| spread.to_string(),
                )
        });
        let ratio = row.ratio().map_or_else(String::new, |(peer, spread)| {
            let better = if row.figure.better() == Better::Higher {
                "more"
            } else {
                "less"
            };
            format!("{spread} x {peer}; {better} is better")
        });
        let line = std::iter::once(row.figure.to_string())
            .chain(figures)
            .chain(std::iter::once(ratio));
        table.add_row(line);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(figure: Figure, samples: &[(Contestant, &[f64])]) -> Row {
        Row {
            scenario: Scenario::Bulk,
            figure,
            samples: samples
                .iter()
                .map(|(one, samples)| (*one, samples.to_vec()))
                .collect(),
        }
    }

    #[test]
    fn a_median_lies_between_the_extremes() {
        assert_eq!(
            Spread::of(&[3.0, 1.0, 2.0]),
            Some(Spread {
                min: 1.0,
                median: 2.0,
                max: 3.0
            })
        );
        assert_eq!(
            Spread::of(&[4.0, 1.0]),
            Some(Spread {
                min: 1.0,
                median: 2.5,
                max: 4.0
            })
        );
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn the_ratio_is_to_the_better_peer_round_by_round() {
        use Contestant::{Haproxy, Landfall, Nginx};
        let samples: [(Contestant, &[f64]); 3] = [
            (Landfall, &[9.0, 10.0, 8.0]),
            (Haproxy, &[10.0, 10.0, 10.0]),
            (Nginx, &[20.0, 20.0, 16.0]),
        ];
        assert_eq!(
            row(Figure::CpuPerConnection, &samples).ratio(),
            Some((
                Haproxy,
                Spread {
                    min: 0.8,
                    median: 0.9,
                    max: 1.0
                }
            ))
        );
        assert_eq!(
            row(Figure::GbitPerCpuSecond, &samples).ratio(),
            Some((
                Nginx,
                Spread {
                    min: 0.45,
                    median: 0.5,
                    max: 0.5
                }
            ))
        );
    }

    #[test]
    fn without_landfall_or_without_a_peer_there_is_no_ratio() {
        let peer: [(Contestant, &[f64]); 1] = [(Contestant::Nginx, &[1.0])];
        let ours: [(Contestant, &[f64]); 1] = [(Contestant::Landfall, &[1.0])];
        assert_eq!(row(Figure::GbitPerSecond, &peer).ratio(), None);
        assert_eq!(row(Figure::GbitPerSecond, &ours).ratio(), None);
        assert_eq!(row(Figure::CpuShare, &[peer[0], ours[0]]).ratio(), None);
    }

    #[test]
    fn figures_show_three_digits_and_their_spread() {
        assert_eq!(
            Spread {
                min: 98.7,
                median: 123.4,
                max: 150.0
            }
            .to_string(),
            "123  (98.7..150)"
        );
        assert_eq!(
            Spread {
                min: 1.0,
                median: 1.0,
                max: 1.0
            }
            .to_string(),
            "1.00"
        );
    }

    fn report() -> Report {
        let machine = Machine::prepare(0).unwrap();
        let programs = Programs::none();
        let mut report = Report::new(&machine, &programs, 2, Sizes::QUICK);
        for round in [10.0, 20.0] {
            for (one, factor) in [
                (Contestant::Landfall, 1.0),
                (Contestant::Haproxy, 2.0),
                (Contestant::Nginx, 0.5),
            ] {
                report.add(Scenario::Memory, Figure::MemoryIdle, one, round * factor);
            }
        }
        report
    }

    #[test]
    fn a_peer_that_failed_is_shown_as_failed_and_the_ratio_is_to_those_that_did_not() {
        let mut report = report();
        let reason = anyhow::anyhow!("too few connections").context("nginx failed at memory");
        report.fail(Scenario::Memory, Contestant::Nginx, &reason);
        let text = report.to_string();
        assert!(text.contains("0.50 x haproxy; less is better"), "{text}");
        assert!(text.contains("| failed |"), "{text}");
        assert!(
            text.contains("nginx failed: nginx failed at memory: too few connections\n"),
            "{text}"
        );
        assert!(report.has_failed(Scenario::Memory, Contestant::Nginx));
        assert!(!report.has_failed(Scenario::Bulk, Contestant::Nginx));
        assert_eq!(report.own_failures(), []);
    }

    #[test]
    fn failures_of_landfall_are_reported_separately() {
        let mut report = report();
        let reason = anyhow::anyhow!("gone");
        report.fail(Scenario::Bulk, Contestant::Landfall, &reason);
        assert_eq!(report.own_failures(), [Scenario::Bulk]);
        // A scenario of which there are no figures at all is in the report nevertheless.
        let text = report.to_string();
        assert!(text.contains("landfall failed: gone\n"), "{text}");
    }
}
