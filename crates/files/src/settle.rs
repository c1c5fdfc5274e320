//! When to look: changes come in bursts, and half a file is worse than an old one.
//!
//! A look follows once nothing has stirred for a moment. While somebody has a manifest open for
//! writing the moment is longer; and however long the stirring goes on, a look comes in the end.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// After the last change of any kind.
pub(crate) const QUIET: Duration = Duration::from_millis(50);

/// After the last change while a manifest is being written: `kubectl get -o yaml > web.yaml` empties
/// the file at once and fills it when the answer is there.
pub(crate) const WRITING: Duration = Duration::from_secs(1);

/// After the first change, whatever else happens.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// What happened to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stir {
    /// Somebody made it or wrote into it, and may have it open still.
    Written,
    /// Somebody who could have written into it closed it.
    Closed,
    /// It appeared, went, or changed in another way.
    Changed,
}

/// The state between a change and the look that follows it.
#[derive(Debug, Default)]
pub(crate) struct Settle {
    since: Option<(Instant, Instant)>,
    writing: HashSet<PathBuf>,
}

// === impl Settle ===

impl Settle {
    /// Something happened.
    pub(crate) fn stir(&mut self, path: &Path, stir: Stir, now: Instant) {
        let first = self.since.map_or(now, |(first, _)| first);
        self.since = Some((first, now));
        match stir {
            Stir::Written => {
                if is_manifest(path) {
                    self.writing.insert(path.to_owned());
                }
            }
            Stir::Closed | Stir::Changed => {
                self.writing.remove(path);
            }
        }
    }

    /// Something happened, and nobody knows what.
    pub(crate) fn stir_somewhere(&mut self, now: Instant) {
        let first = self.since.map_or(now, |(first, _)| first);
        self.since = Some((first, now));
    }

    /// When to look; `None`: there is no reason to.
    pub(crate) fn due(&self) -> Option<Instant> {
        let (first, last) = self.since?;
        let pause = if self.writing.is_empty() {
            QUIET
        } else {
            WRITING
        };
        Some((last + pause).min(first + PATIENCE))
    }

    /// A look was taken.
    pub(crate) fn looked(&mut self) {
        self.since = None;
        self.writing.clear();
    }
}

fn is_manifest(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("yaml" | "yml" | "json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEB: &str = "/etc/landfall/web.yaml";

    fn after(start: Instant, milliseconds: u64) -> Instant {
        start + Duration::from_millis(milliseconds)
    }

    fn settle(start: Instant, stirs: &[(u64, &str, Stir)]) -> Settle {
        let mut settle = Settle::default();
        for (at, path, stir) in stirs {
            settle.stir(Path::new(path), *stir, after(start, *at));
        }
        settle
    }

    #[test]
    fn nothing_happened_so_nobody_looks() {
        assert_eq!(Settle::default().due(), None);
    }

    #[test]
    fn a_look_follows_shortly_after_the_last_of_a_burst() {
        let start = Instant::now();
        let settle = settle(
            start,
            &[
                (0, WEB, Stir::Changed),
                (30, WEB, Stir::Changed),
                (60, WEB, Stir::Changed),
            ],
        );
        assert_eq!(settle.due(), Some(after(start, 110)));
    }

    #[test]
    fn a_manifest_that_is_being_written_gets_more_time() {
        let start = Instant::now();
        let mut settle = settle(start, &[(0, WEB, Stir::Written)]);
        assert_eq!(settle.due(), Some(start + WRITING));
        settle.stir(Path::new(WEB), Stir::Closed, after(start, 300));
        assert_eq!(settle.due(), Some(after(start, 350)));
    }

    #[test]
    fn a_manifest_that_is_renamed_away_while_written_is_waited_for_no_longer() {
        let start = Instant::now();
        let settle = settle(start, &[(0, WEB, Stir::Written), (10, WEB, Stir::Changed)]);
        assert_eq!(settle.due(), Some(after(start, 60)));
    }

    #[test]
    fn a_log_file_that_grows_beside_the_manifests_delays_nothing_for_long() {
        let start = Instant::now();
        let mut settle = Settle::default();
        for at in (0..10_000).step_by(40) {
            settle.stir(Path::new("/var/log/x.log"), Stir::Written, after(start, at));
        }
        assert_eq!(settle.due(), Some(start + PATIENCE));
    }

    #[test]
    fn after_a_look_everything_begins_anew() {
        let start = Instant::now();
        let mut settle = settle(start, &[(0, WEB, Stir::Written)]);
        settle.looked();
        assert_eq!(settle.due(), None);
        settle.stir_somewhere(after(start, 5_000));
        assert_eq!(settle.due(), Some(after(start, 5_050)));
    }
}
