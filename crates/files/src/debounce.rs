//! When to look: changes come in bursts, and half a file is worse than an old one.
//!
//! The files are read once nothing has changed for a moment. While an editor has a manifest open
//! for writing the moment is longer; and however long changes continue, they are read in the end.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// After the last change of any kind.
pub(crate) const QUIET: Duration = Duration::from_millis(50);

/// After a single manifest was replaced or written to its end.
pub(crate) const BRISK: Duration = Duration::from_millis(10);

/// After the last change while a manifest is being written: `kubectl get -o yaml > web.yaml`
/// empties the file at once and fills it when the answer is there.
pub(crate) const WRITING: Duration = Duration::from_secs(1);

/// After the first change, whatever else happens.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(2);

/// What happened to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FsEvent {
    /// It was created or written, and may still be open.
    Written,
    /// A program that could have written into it closed it.
    Closed,
    /// It appeared, went, or changed in another way.
    Changed,
}

/// The state between a change and the look that follows it.
#[derive(Debug, Default)]
pub(crate) struct Debounce {
    since: Option<(Instant, Instant)>,
    writing: HashSet<PathBuf>,
    /// Manifests that changed in any way.
    changed_paths: HashSet<PathBuf>,
    /// Whether something else happened that may concern any file.
    is_vague: bool,
}

// === impl Debounce ===

impl Debounce {
    /// Something happened.
    pub(crate) fn record(&mut self, path: &Path, kind: FsEvent, now: Instant) {
        let first = self.since.map_or(now, |(first, _)| first);
        self.since = Some((first, now));
        if is_manifest(path) {
            self.changed_paths.insert(path.to_owned());
        } else if !is_hidden(path) {
            self.is_vague = true;
        }
        match kind {
            FsEvent::Written => {
                if is_manifest(path) {
                    self.writing.insert(path.to_owned());
                }
            }
            FsEvent::Closed | FsEvent::Changed => {
                self.writing.remove(path);
            }
        }
    }

    /// Something changed, and it is unknown what.
    pub(crate) fn record_unknown(&mut self, now: Instant) {
        let first = self.since.map_or(now, |(first, _)| first);
        self.since = Some((first, now));
        self.is_vague = true;
    }

    /// Whether all that happened is that one manifest was replaced, or written to its end: then
    /// there is little to wait for, but what is missing may still turn up in another file.
    pub(crate) fn is_brisk(&self) -> bool {
        self.changed_paths.len() == 1 && self.writing.is_empty() && !self.is_vague
    }

    /// When to look; `None`: there is no reason to.
    pub(crate) fn due(&self) -> Option<Instant> {
        let (first, last) = self.since?;
        let pause = if self.is_brisk() {
            BRISK
        } else if self.writing.is_empty() {
            QUIET
        } else {
            WRITING
        };
        Some((last + pause).min(first + TIMEOUT))
    }

    /// A look was taken.
    pub(crate) fn looked(&mut self) {
        self.since = None;
        self.writing.clear();
        self.changed_paths.clear();
        self.is_vague = false;
    }
}

/// Names with a dot in front are drafts of editors. (`..data`, which kubelets turn, is everything.)
fn is_hidden(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    name.first() == Some(&b'.') && name.get(1) != Some(&b'.')
}

fn is_manifest(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("yaml" | "yml" | "json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEB: &str = "/etc/landfall/web.yaml";
    const DNS: &str = "/etc/landfall/dns.yaml";

    fn after(start: Instant, milliseconds: u64) -> Instant {
        start + Duration::from_millis(milliseconds)
    }

    fn settle(start: Instant, events: &[(u64, &str, FsEvent)]) -> Debounce {
        let mut settle = Debounce::default();
        for (at, path, kind) in events {
            settle.record(Path::new(path), *kind, after(start, *at));
        }
        settle
    }

    #[test]
    fn without_a_change_no_scan_is_due() {
        assert_eq!(Debounce::default().due(), None);
    }

    #[test]
    fn a_look_follows_shortly_after_the_last_of_a_burst() {
        let start = Instant::now();
        let settle = settle(
            start,
            &[
                (0, WEB, FsEvent::Changed),
                (30, DNS, FsEvent::Changed),
                (60, WEB, FsEvent::Changed),
            ],
        );
        assert_eq!(settle.due(), Some(after(start, 110)));
        assert!(!settle.is_brisk());
    }

    #[test]
    fn a_single_manifest_that_was_replaced_is_read_sooner() {
        let start = Instant::now();
        let mut settle = settle(
            start,
            &[
                (0, "/etc/landfall/.web.yaml.swp", FsEvent::Written),
                (5, WEB, FsEvent::Changed),
            ],
        );
        assert_eq!(settle.due(), Some(after(start, 15)));
        assert!(settle.is_brisk());
        settle.record(
            Path::new("/etc/landfall/..data"),
            FsEvent::Changed,
            after(start, 6),
        );
        assert_eq!(settle.due(), Some(after(start, 56)));
    }

    #[test]
    fn a_manifest_that_is_being_written_gets_more_time() {
        let start = Instant::now();
        let mut settle = settle(start, &[(0, WEB, FsEvent::Written)]);
        assert_eq!(settle.due(), Some(start + WRITING));
        settle.record(Path::new(WEB), FsEvent::Closed, after(start, 300));
        assert_eq!(settle.due(), Some(after(start, 310)));
    }

    #[test]
    fn a_manifest_that_is_renamed_away_while_written_is_waited_for_no_longer() {
        let start = Instant::now();
        let settle = settle(
            start,
            &[(0, WEB, FsEvent::Written), (10, WEB, FsEvent::Changed)],
        );
        assert_eq!(settle.due(), Some(after(start, 20)));
    }

    #[test]
    fn a_log_file_that_grows_beside_the_manifests_delays_nothing_for_long() {
        let start = Instant::now();
        let mut settle = Debounce::default();
        for at in (0..10_000).step_by(40) {
            settle.record(
                Path::new("/var/log/x.log"),
                FsEvent::Written,
                after(start, at),
            );
        }
        assert_eq!(settle.due(), Some(start + TIMEOUT));
    }

    #[test]
    fn after_a_scan_the_debounce_starts_again() {
        let start = Instant::now();
        let mut settle = settle(start, &[(0, WEB, FsEvent::Written)]);
        settle.looked();
        assert_eq!(settle.due(), None);
        settle.record_unknown(after(start, 5_000));
        assert_eq!(settle.due(), Some(after(start, 5_050)));
    }
}
