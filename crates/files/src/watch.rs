//! Notifications of changes by the kernel. Folders are watched, not files: editors replace a file
//! by renaming another one over it, and kubelets by turning a symbolic link.
//!
//! A notification is a hint to read and never more: events may be lost or late, and the survey
//! finds out what there is.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Config, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;

use crate::debounce::FsEvent;

/// Hints that may wait. A burst that is longer is the same as "look everywhere".
const HINTS: usize = 256;

/// A hint that something changed.
#[derive(Debug)]
pub(crate) struct Hint {
    pub(crate) path: PathBuf,
    pub(crate) kind: FsEvent,
}

/// The receiving end.
#[derive(Debug)]
pub(crate) struct Hints {
    receiver: mpsc::Receiver<Hint>,
    lost: Arc<AtomicBool>,
}

/// The folders that are watched.
#[derive(Debug)]
pub(crate) struct Watcher {
    watcher: RecommendedWatcher,
    /// By device and inode: a watch stays with its folder when another one takes the path, and two
    /// paths to one folder share a watch.
    folders: BTreeMap<Identity, PathBuf>,
}

/// Device and inode.
type Identity = (u64, u64);

/// Starts watching nothing yet.
///
/// # Errors
/// The kernel grants no more watchers.
pub(crate) fn start() -> Result<(Watcher, Hints), notify::Error> {
    let (sender, receiver) = mpsc::channel(HINTS);
    let lost = Arc::new(AtomicBool::new(false));
    let handler = {
        let lost = lost.clone();
        move |event: notify::Result<notify::Event>| {
            let hints = match event {
                Ok(event) if !event.need_rescan() => Some(hints_of(event)),
                Ok(_) | Err(_) => None,
            };
            let delivered = hints
                .is_some_and(|hints| hints.into_iter().all(|hint| sender.try_send(hint).is_ok()));
            if !delivered {
                lost.store(true, Ordering::Release);
                // Wakes the receiver if it sleeps; if the queue is full, it is awake.
                let _ = sender.try_send(Hint {
                    path: PathBuf::new(),
                    kind: FsEvent::Changed,
                });
            }
        }
    };
    let watcher = RecommendedWatcher::new(handler, Config::default())?;
    let watcher = Watcher {
        watcher,
        folders: BTreeMap::new(),
    };
    Ok((watcher, Hints { receiver, lost }))
}

/// What an event hints at. Reading a file is an event, too, and hints at nothing.
fn hints_of(event: notify::Event) -> Vec<Hint> {
    let kind = match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => FsEvent::Closed,
        EventKind::Access(_) => return Vec::new(),
        EventKind::Modify(ModifyKind::Data(_)) => FsEvent::Written,
        EventKind::Any
        | EventKind::Create(_)
        | EventKind::Modify(_)
        | EventKind::Remove(_)
        | EventKind::Other => FsEvent::Changed,
    };
    let hints = event.paths.into_iter().map(|path| Hint { path, kind });
    hints.collect()
}

// === impl Hints ===

impl Hints {
    /// The next hint; `None` once the watcher is gone. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Hint> {
        self.receiver.recv().await
    }

    /// Whether hints were lost since this was last asked.
    pub(crate) fn were_lost(&self) -> bool {
        self.lost.swap(false, Ordering::AcqRel)
    }
}

// === impl Watcher ===

impl Watcher {
    /// Watches these folders and no others. Returns whether anything new is watched, in which case
    /// changes may have gone unseen just before; and the first folder that can't be watched.
    pub(crate) fn follow(
        &mut self,
        folders: &BTreeSet<PathBuf>,
    ) -> (bool, Option<(PathBuf, notify::Error)>) {
        let mut wanted = BTreeMap::new();
        for folder in folders {
            if let Some((identity, folder)) = identity_of(folder) {
                wanted.insert(identity, folder);
            }
        }
        let outdated: Vec<Identity> = self
            .folders
            .iter()
            .filter(|(identity, folder)| wanted.get(*identity) != Some(folder))
            .map(|(identity, _)| *identity)
            .collect();
        for identity in outdated {
            if let Some(folder) = self.folders.remove(&identity) {
                // The kernel has dropped the watch already if the folder was deleted.
                let _ = self.watcher.unwatch(&folder);
            }
        }
        let mut is_new = false;
        let mut failure = None;
        for (identity, folder) in wanted {
            if self.folders.contains_key(&identity) {
                continue;
            }
            match self.watcher.watch(&folder, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    is_new = true;
                    self.folders.insert(identity, folder);
                }
                Err(error) => {
                    failure.get_or_insert((folder, error));
                }
            }
        }
        (is_new, failure)
    }
}

fn identity_of(folder: &Path) -> Option<(Identity, PathBuf)> {
    let folder = std::fs::canonicalize(folder).ok()?;
    let metadata = std::fs::metadata(&folder).ok()?;
    let identity = (metadata.dev(), metadata.ino());
    metadata.is_dir().then_some((identity, folder))
}
