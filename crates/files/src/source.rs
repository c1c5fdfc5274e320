//! The source: reads files when something changes, and sends facts about what differs.

mod remembering;

use std::fs::File;
use std::io::{self, Read};
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, ScopedJoinHandle};

use jiff::Timestamp;
use landfall_model::ServiceKey;
use landfall_model::reason::Reason;
use landfall_model::rows::Fact;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::blocking::Blocking;
use crate::catalog::{Catalog, Changes};
use crate::debounce::Debounce;
use crate::disk::Disk;
use crate::manifest::{Object, ObjectKey};
#[cfg(feature = "memory")]
use crate::memory_files::FilesView;
use crate::pools;
use crate::registry::{Pools, Registry, Wanted};
use crate::reported::{FactDiff, Problems};
use crate::scanner::{Files, Scan, Scanner, routine, unwatched};
use crate::state::{StateDir, StateError};
use crate::store::ManifestStore;
use crate::watch::{self, Hint, Hints};
use remembering::HOLD;

/// The name under which problems of watching are reported.
const WATCHING: &str = "file watching";

/// What to serve, and where to remember it.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Files, folders (their `*.yaml`, `*.yml` and `*.json`), and `-` for standard input. Pipes and
    /// standard input are read once.
    pub paths: Vec<PathBuf>,
    /// Whether folders in folders are read.
    pub recursive: bool,
    /// The directory that keeps finalizers and statuses over restarts; `None`: nothing does.
    pub state: Option<PathBuf>,
}

/// Why the manifests can't be served.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A path is not there or can't be read.
    #[error("{}: {source}", path.display())]
    Path {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No thread can be started that reads the state.
    #[error("the state can't be read: {0}")]
    Thread(#[source] io::Error),
    /// The state directory can't be used.
    #[error(transparent)]
    State(#[from] StateError),
}

/// A source of facts whose objects are manifests in files.
#[derive(Debug)]
pub struct Manifests {
    scanner: Scanner,
    hints: Option<Hints>,
    store: ManifestStore,
    catalog: Catalog,
    /// The pools of the files that can be read.
    pools: Pools,
    reported: FactDiff,
    /// What vanished and is still to be sent, after the Services.
    vanished: Vec<Fact>,
    /// What is wrong with the files, as of the last look.
    file_problems: Problems,
    /// What is wrong with what is remembered.
    state_problems: Vec<Reason>,
    /// Pools that are sent as remembered, because they are in no readable file.
    unverified_pools: Vec<String>,
    debounce: Debounce,
    asked: Arc<Notify>,
    /// Whether the last look came so soon that what is missing may be on its way to another file.
    is_brisk: bool,
    /// Whether something was found and not sent for that reason.
    is_untold: bool,
    routine: Instant,
    unwatched: Option<Reason>,
    /// When to look next whether the state directory is held.
    hold_check: Instant,
    /// Why it is not.
    not_held: Option<String>,
    /// Whether the disk of the state did not answer in time.
    is_disk_silent: bool,
}

/// The receiver of the facts is gone.
struct ReceiverGone;

/// Where facts go.
struct FactSender {
    facts: mpsc::Sender<Fact>,
    cancel: CancellationToken,
}

// === impl Manifests ===

impl Manifests {
    /// Reads everything for the first time. Blocks, and takes standard input to its end if that is
    /// among the paths.
    ///
    /// # Errors
    /// A path is not there, or the state directory can't be used. Manifests with errors are no
    /// error here: they are reported as facts.
    pub fn open(options: Options) -> Result<(Self, ManifestStore), OpenError> {
        Self::open_with(options, &mut io::stdin())
    }

    pub(crate) fn open_with(
        options: Options,
        stdin: &mut dyn Read,
    ) -> Result<(Self, ManifestStore), OpenError> {
        let Options {
            paths,
            recursive,
            state,
        } = options;
        let held = match state {
            Some(folder) => Some((StateDir::take_hold(&folder)?, folder)),
            None => None,
        };
        let folder = held.as_ref().map(|(_, folder)| &**folder);
        let disk = Disk::new(paths, recursive, folder);
        if let Some(missing) = disk.missing() {
            return Err(OpenError::Path {
                path: missing.path,
                source: missing.source,
            });
        }
        let (watcher, hints, unwatched) = match watch::start() {
            Ok((watcher, hints)) => (Some(watcher), Some(hints), None),
            Err(error) => (None, None, Some(unwatched(&error))),
        };
        let files = Files::Disk(disk);
        let mut scanner = Scanner { files, watcher };
        let (state, registry, scan) = match held {
            Some((lock, folder)) => {
                let (state, registry, scan) = read(&folder, lock, || scanner.scan(stdin))?;
                (Some(state), registry, scan)
            }
            None => (None, Registry::default(), scanner.scan(stdin)),
        };
        let store = ManifestStore::new(registry, state, Blocking::Threads);
        let mut manifests = Self::new(scanner, store.clone());
        manifests.hints = hints;
        manifests.unwatched = unwatched;
        manifests.take_in(scan);
        if manifests.misses_recorded() {
            manifests.scanner.set_unverified();
            let again = manifests.scanner.scan(&mut io::empty());
            manifests.take_in(again);
        }
        Ok((manifests, store))
    }

    /// Reads files in memory for the first time, and remembers in a journal there.
    #[cfg(feature = "memory")]
    pub(crate) fn open_in_memory(view: FilesView, store: ManifestStore) -> Self {
        let files = Files::Memory(view);
        let watcher = None;
        let mut manifests = Self::new(Scanner { files, watcher }, store);
        let scan = manifests.scanner.scan(&mut io::empty());
        manifests.take_in(scan);
        manifests
    }

    fn new(scanner: Scanner, store: ManifestStore) -> Self {
        Self {
            scanner,
            hints: None,
            store,
            catalog: Catalog::default(),
            pools: Pools::new(),
            reported: FactDiff::default(),
            vanished: Vec::new(),
            file_problems: Problems::new(),
            state_problems: Vec::new(),
            unverified_pools: Vec::new(),
            debounce: Debounce::default(),
            asked: Arc::default(),
            is_brisk: false,
            is_untold: false,
            routine: Instant::now(),
            unwatched: None,
            hold_check: Instant::now() + HOLD,
            not_held: None,
            is_disk_silent: false,
        }
    }

    /// Whether something is on record that stands in no file.
    fn misses_recorded(&self) -> bool {
        let found = self.catalog.changes();
        let is_found = |key: ObjectKey| matches!(found.get(&key), Some(Some(_)));
        self.store.with(|registry| {
            let mut services = registry.unverified().cloned().map(ObjectKey::Service);
            let mut pools = registry.pools().keys().cloned().map(ObjectKey::Pool);
            !services.all(is_found) || !pools.all(is_found)
        })
    }

    /// Looks also when this is raised, whatever changed.
    #[must_use]
    pub fn look_when(mut self, asked: Arc<Notify>) -> Self {
        self.asked = asked;
        self
    }

    /// Sends everything that is there, then [`Fact::Synced`], then every change, until cancelled or
    /// until the receiver is gone.
    pub async fn run(mut self, facts: mpsc::Sender<Fact>, cancel: CancellationToken) {
        let sender = FactSender { facts, cancel };
        if self.serve(&sender).await.is_err() {
            tracing::debug!("the manifest source stopped");
        }
    }

    async fn serve(&mut self, sender: &FactSender) -> Result<(), ReceiverGone> {
        self.report_objects(sender).await?;
        self.report_services(sender).await?;
        sender.report(vec![Fact::Synced]).await?;
        let mut has_looked = true;
        loop {
            // What manifests say needs no record to be acted upon, and traffic need not wait for
            // the disk. What is written for it goes to the disk together with it, or after it.
            self.report_services(sender).await?;
            let is_news = self.remember(has_looked).await;
            self.report_services(sender).await?;
            if is_news {
                self.report_problems(sender).await?;
            }
            has_looked = self.next_event(sender).await?;
            if has_looked && self.look().await? {
                self.report_objects(sender).await?;
            }
        }
    }

    /// Waits for something to do. Returns whether that is a look.
    async fn next_event(&mut self, sender: &FactSender) -> Result<bool, ReceiverGone> {
        loop {
            let next_scan = match self.debounce.due() {
                Some(due) => self.routine.min(Instant::from_std(due)),
                None => self.routine,
            };
            // Every branch is cancel-safe: a permit, a channel, a point in time.
            tokio::select! {
                () = sender.cancel.cancelled() => return Err(ReceiverGone),
                () = self.store.changed() => return Ok(false),
                hint = next_hint(self.hints.as_mut()) => self.record(&hint),
                () = self.asked.notified() => return Ok(true),
                () = tokio::time::sleep_until(self.hold_check) => {
                    if self.check_hold().await {
                        return Ok(false);
                    }
                }
                () = tokio::time::sleep_until(next_scan) => return Ok(true),
            }
        }
    }

    fn record(&mut self, hint: &Hint) {
        let now = Instant::now().into_std();
        if self.hints.as_ref().is_some_and(Hints::were_lost) {
            self.debounce.record_unknown(now);
        } else {
            self.debounce.record(&hint.path, hint.kind, now);
        }
    }

    /// Returns whether there may be something to send.
    async fn look(&mut self) -> Result<bool, ReceiverGone> {
        self.is_brisk = self.debounce.is_brisk();
        // Before the look, so that what changes meanwhile leads to the next one.
        self.debounce.looked();
        let mut scanner = std::mem::take(&mut self.scanner);
        let looked = self.store.blocking().run(move || {
            let scan = scanner.scan(&mut io::empty());
            (scanner, scan)
        });
        match looked.await {
            Ok((scanner, scan)) => {
                self.scanner = scanner;
                Ok(self.take_in(scan) | self.is_untold)
            }
            Err(error) => {
                // The runtime is going down, or reading panicked, which it must not.
                tracing::error!(%error, "manifests can't be read any more");
                Err(ReceiverGone)
            }
        }
    }

    fn take_in(&mut self, scan: Scan) -> bool {
        let mut is_news = false;
        for survey in scan.surveys {
            is_news |= self.catalog.update(survey);
        }
        if self.scanner.watcher.is_some() {
            is_news |= self.unwatched != scan.unwatched;
            self.unwatched = scan.unwatched;
        }
        self.routine = Instant::now() + routine(self.unwatched.is_none(), scan.took);
        is_news
    }

    async fn report_objects(&mut self, sender: &FactSender) -> Result<(), ReceiverGone> {
        let (mut services, mut objects) = (Wanted::new(), Changes::new());
        for (key, object) in self.catalog.changes() {
            match (key, object) {
                (ObjectKey::Service(key), Some(Object::Service(row))) => {
                    services.insert(key, Some(row));
                }
                (ObjectKey::Service(key), _) => drop(services.insert(key, None)),
                (ObjectKey::Pool(name), Some(Object::Pool(row))) => {
                    self.pools.insert(name, row);
                }
                (ObjectKey::Pool(name), _) => drop(self.pools.remove(&name)),
                (key, object) => drop(objects.insert(key, object)),
            }
        }
        self.is_untold = self.is_brisk && {
            let misses_service = self.store.with(|registry| registry.misses_any(&services));
            misses_service || self.reported.misses_any(&objects, &self.pools)
        };
        if self.is_untold {
            self.debounce.record_unknown(Instant::now().into_std());
            return Ok(());
        }
        self.catalog.settle();
        self.file_problems = self.catalog.problems();
        let catalog = &self.catalog;
        let unreadable_parts = catalog.unreadable_parts();
        let pools = &self.pools;
        let settled = self.store.change(|registry| {
            let incomplete =
                |key: &ServiceKey| unreadable_parts.may_hide(&ObjectKey::Service(key.clone()));
            let why = |key: &ServiceKey| catalog.why_hidden(key);
            registry.want(services, incomplete, why, Timestamp::now());
            let settled = pools::settle(pools, registry.pools(), |name| {
                unreadable_parts.may_hide(&ObjectKey::Pool(name.to_owned()))
            });
            registry.want_pools(settled.valid.clone());
            settled
        });
        for (row, reason) in settled.refused {
            if let Some(source) = &row.source {
                let file = source.document.file.clone();
                self.file_problems.entry(file).or_default().push(reason);
            }
        }
        self.unverified_pools = settled.unverified;
        let no_more = self
            .reported
            .pools()
            .filter(|it| !settled.reported.contains_key(*it));
        objects.extend(no_more.map(|name| (ObjectKey::Pool(name.clone()), None)));
        let reported = settled.reported.into_iter();
        objects
            .extend(reported.map(|(name, row)| (ObjectKey::Pool(name), Some(Object::Pool(row)))));
        let (mut appeared, vanished) = self.reported.objects(objects);
        self.vanished.extend(vanished);
        appeared.extend(
            self.reported
                .set_pools_incomplete(self.catalog.may_hide_pools()),
        );
        sender.report(appeared).await?;
        self.report_problems(sender).await
    }

    async fn report_services(&mut self, sender: &FactSender) -> Result<(), ReceiverGone> {
        let changes = self.store.with(Registry::take_changed);
        sender.report(self.reported.services(changes)).await?;
        sender.report(std::mem::take(&mut self.vanished)).await
    }

    async fn report_problems(&mut self, sender: &FactSender) -> Result<(), ReceiverGone> {
        let mut problems = self.file_problems.clone();
        if let Some(reason) = &self.unwatched {
            problems.insert(WATCHING.into(), vec![reason.clone()]);
        }
        if let Some(path) = self.store.state_file()
            && !self.state_problems.is_empty()
        {
            problems.insert(path.to_string_lossy().into(), self.state_problems.clone());
        }
        sender.report(self.reported.problems(problems)).await
    }
}

/// Reads what is remembered while `scan` reads the manifests: each takes as long as the other, and
/// in parts of both only one thread is busy.
fn read(
    folder: &Path,
    lock: File,
    scan: impl FnOnce() -> Scan,
) -> Result<(StateDir, Registry, Scan), OpenError> {
    let remembered = move || {
        let (state, remembered) = StateDir::open_held(folder, lock)?;
        Ok::<_, StateError>((state, Registry::new(remembered)))
    };
    let (read, scan) = thread::scope(|scope| {
        let reading = thread::Builder::new().spawn_scoped(scope, remembered);
        let scan = scan();
        (reading.map(ScopedJoinHandle::join), scan)
    });
    let read = read.map_err(OpenError::Thread)?;
    let (state, registry) = read.unwrap_or_else(|panic| panic::resume_unwind(panic))?;
    Ok((state, registry, scan))
}

async fn next_hint(hints: Option<&mut Hints>) -> Hint {
    match hints {
        Some(hints) => match hints.next().await {
            Some(hint) => hint,
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

// === impl FactSender ===

impl FactSender {
    async fn report(&self, facts: Vec<Fact>) -> Result<(), ReceiverGone> {
        for fact in facts {
            match self.cancel.run_until_cancelled(self.facts.send(fact)).await {
                Some(Ok(())) => {}
                Some(Err(_)) | None => return Err(ReceiverGone),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
