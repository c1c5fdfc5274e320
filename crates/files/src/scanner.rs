//! Reading the files, and watching the folders in which they may change. Everything here blocks.

use std::io::Read;
use std::time::Duration;

use landfall_model::reason::{Code, Reason};
use tokio::time::Instant;

use crate::catalog::Survey;
use crate::disk::{Disk, DiskSurvey};
#[cfg(feature = "memory")]
use crate::memory_files::FilesView;
use crate::watch::Watcher;

/// How often everything is read without a notification: file systems whose changes come from
/// elsewhere (NFS) notify the kernel of nothing.
const ROUTINE: Duration = Duration::from_secs(10);

/// The same where the kernel notifies of no changes.
const ROUTINE_UNWATCHED: Duration = Duration::from_secs(2);

/// With very many files a look takes long, and comes once in so many times that long at most.
const ROUTINE_SHARE: u32 = 2000;

/// It comes in the end.
const ROUTINE_LONGEST: Duration = Duration::from_secs(60);

/// The same two where the kernel notifies of no changes.
const ROUTINE_SHARE_UNWATCHED: u32 = 50;
const ROUTINE_LONGEST_UNWATCHED: Duration = Duration::from_secs(10);

/// How often folders that came to be watched are checked again at once.
const LOOKS: usize = 3;

/// What blocks: handed to a blocking thread for each look.
#[derive(Debug)]
pub(crate) struct Scanner {
    pub(crate) files: Files,
    pub(crate) watcher: Option<Watcher>,
}

/// What is checked.
#[derive(Debug)]
pub(crate) enum Files {
    Disk(Disk),
    #[cfg(feature = "memory")]
    Memory(FilesView),
}

/// What one or more looks found, and why changes may go unnoticed.
pub(crate) struct Scan {
    pub(crate) surveys: Vec<Survey>,
    pub(crate) unwatched: Option<Reason>,
    /// How long looking took.
    pub(crate) took: Duration,
}

// === impl Scanner ===

impl Default for Scanner {
    fn default() -> Self {
        Self {
            files: Files::Disk(Disk::new(Vec::new(), false, None)),
            watcher: None,
        }
    }
}

impl Scanner {
    /// Takes in that something is on record that stands in no file.
    pub(crate) fn set_unverified(&mut self) {
        match &mut self.files {
            Files::Disk(disk) => disk.set_unverified(),
            #[cfg(feature = "memory")]
            Files::Memory(_) => {}
        }
    }

    /// Looks until every folder is watched in which a change could matter, or a few times.
    pub(crate) fn scan(&mut self, stdin: &mut dyn Read) -> Scan {
        let began = Instant::now();
        let mut scan = Scan {
            surveys: Vec::new(),
            unwatched: None,
            took: Duration::ZERO,
        };
        for _ in 0..LOOKS {
            let look = self.files.look(stdin);
            scan.surveys.push(look.survey);
            let Some(watcher) = &mut self.watcher else {
                break;
            };
            let (is_new, failure) = watcher.follow(&look.folders);
            scan.unwatched = failure.map(|(_, error)| unwatched(&error));
            if !is_new {
                break;
            }
        }
        scan.took = began.elapsed();
        scan
    }
}

// === impl Files ===

impl Files {
    fn look(&mut self, stdin: &mut dyn Read) -> DiskSurvey {
        match self {
            Self::Disk(disk) => disk.look(stdin),
            #[cfg(feature = "memory")]
            Self::Memory(view) => view.look(),
        }
    }
}

/// When to look although nothing changed, after a look that took so long.
pub(crate) fn routine(is_watched: bool, took: Duration) -> Duration {
    if is_watched {
        took.saturating_mul(ROUTINE_SHARE)
            .clamp(ROUTINE, ROUTINE_LONGEST)
    } else {
        took.saturating_mul(ROUTINE_SHARE_UNWATCHED)
            .clamp(ROUTINE_UNWATCHED, ROUTINE_LONGEST_UNWATCHED)
    }
}

/// Says why changes may go unnoticed for a while.
pub(crate) fn unwatched(error: &notify::Error) -> Reason {
    Reason::warning(
        Code::ChangesNoticedLate,
        format!(
            "changes are noticed only every {} s: {error}",
            ROUTINE_UNWATCHED.as_secs()
        ),
    )
    .remedy("raise fs.inotify.max_user_instances and fs.inotify.max_user_watches")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_that_take_long_come_less_often_but_come() {
        let milliseconds = Duration::from_millis;
        assert_eq!(routine(true, milliseconds(1)), ROUTINE);
        assert_eq!(routine(true, milliseconds(20)), Duration::from_secs(40));
        assert_eq!(routine(true, milliseconds(5_000)), ROUTINE_LONGEST);
        assert_eq!(routine(false, milliseconds(1)), ROUTINE_UNWATCHED);
        assert_eq!(
            routine(false, milliseconds(5_000)),
            ROUTINE_LONGEST_UNWATCHED
        );
    }
}
