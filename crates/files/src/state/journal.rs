//! The journal: every change is one line of JSON at the end of one file, and counts from when the
//! line that concludes its batch is on the disk.
//!
//! ```text
//!  {"landfall":"state","format":2,...}
//!  {"service":"shop/web","object":{...}}       the newest line of a name counts
//!  {"service":"shop/old","gone":true}
//!  {"commit":1,"sha256":"..."}                 over everything up to here
//! ```
//!
//! What follows the last conclusion was interrupted and is cut off. A batch that is damaged
//! although others follow it was not interrupted: such a file is refused. Once most of the file is
//! outdated, it is rewritten beside itself and takes its own place.
//!
//! After a failed write the file is cut back to its last conclusion. After a failed sync it is
//! unknown what is on the disk, so the next commit rewrites everything.

mod format;
mod pen;
mod read;

use std::collections::BTreeMap;
use std::io;

use super::entry::{Entry, Key};
use super::folder::{Folder, OpenFile, Print};
pub(crate) use format::FORMAT;
use format::{End, header};
use pen::BatchWriter;
pub(crate) use read::{Corruption, Reading, read};

/// The file.
pub(crate) const JOURNAL: &str = "state.journal";

/// Its successor while that is written.
pub(crate) const FRESH: &str = "state.journal.new";

/// A journal that another process left in a directory which was made again meanwhile.
pub(crate) const FOREIGN: &str = "state.journal.other";

/// Changes of entries; `None`: it is gone.
pub(crate) type Changes = BTreeMap<Key, Option<Entry>>;

/// Smaller journals are not worth writing again. A volume must have room for that much, and for
/// what counts in it once more.
const COMPACT_FROM: u64 = 128 * 1024;

/// So many times what counts in it may a journal measure.
const COMPACT_AT: u64 = 3;

/// An open journal. Everything in it is on the disk.
#[derive(Debug)]
pub(crate) struct Journal {
    folder: Box<dyn Folder>,
    /// What was changed without success since then is not in it.
    entries: BTreeMap<Key, Kept>,
    /// The size of the lines of `entries`.
    size: u64,
    end: End,
    tail: Tail,
    /// The file that was put in the place of the journal last.
    placed: Option<Print>,
    /// No journal below this size is rewritten.
    compact_from: u64,
}

/// An entry and the size of its line.
#[derive(Debug)]
struct Kept {
    entry: Entry,
    size: u64,
}

/// The file beyond its end.
#[derive(Debug)]
enum Tail {
    /// There is nothing.
    Clean(Box<dyn OpenFile>),
    /// There may be something, which must be cut off first.
    Uncut(Box<dyn OpenFile>),
    /// The file can't be trusted with anything more.
    Lost,
}

/// A journal that was written beside the old one, its end, and the sizes of the lines of changes.
type Fresh = (Box<dyn OpenFile>, End, Vec<u64>);

/// What failed, and with which file.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) file: &'static str,
    pub(crate) what: &'static str,
    pub(crate) source: io::Error,
}

// === impl Journal ===

impl Journal {
    /// Makes a journal with these entries in place of what may be there. When it returns, it is on
    /// the disk. `migrated` names what it takes the place of.
    pub(crate) fn create(
        folder: Box<dyn Folder>,
        entries: &Changes,
        migrated: Option<String>,
    ) -> Result<Self, Fault> {
        let mut journal = Self {
            folder,
            entries: BTreeMap::new(),
            size: 0,
            end: End::default(),
            tail: Tail::Lost,
            placed: None,
            compact_from: COMPACT_FROM,
        };
        journal.rewrite(entries, migrated)?;
        Ok(journal)
    }

    /// Goes on with a journal that was read.
    pub(crate) fn resume(
        mut folder: Box<dyn Folder>,
        entries: BTreeMap<Key, (Entry, u64)>,
        reading: &Reading<'_>,
    ) -> Result<Self, Fault> {
        let tail = match folder.open(JOURNAL) {
            // The process that wrote it may have died before it was synced, or before its name was.
            Ok(mut medium) => match medium.sync().and_then(|()| folder.sync()) {
                Ok(()) => Tail::Uncut(medium),
                Err(_) => Tail::Lost,
            },
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => Tail::Lost,
            Err(error) => return Err(fault(JOURNAL, "can't be opened")(error)),
        };
        let entries: BTreeMap<Key, Kept> = entries
            .into_iter()
            .map(|(key, (entry, size))| (key, Kept { entry, size }))
            .collect();
        let mut journal = Self {
            folder,
            size: entries.values().map(|kept| kept.size).sum(),
            entries,
            end: reading.end,
            tail,
            placed: None,
            compact_from: COMPACT_FROM,
        };
        // A file system that is full or broken right now must not keep anything from being served:
        // the next commit tries again.
        let _ = journal.medium();
        Ok(journal)
    }

    /// The directory.
    pub(crate) fn folder(&mut self) -> &mut dyn Folder {
        &mut *self.folder
    }

    /// Writes changes. When it returns, they are on the disk; if it fails, they may be or not, but
    /// what was there before still is.
    pub(crate) fn commit(&mut self, changes: &Changes) -> Result<(), Fault> {
        if changes.is_empty() {
            return Ok(());
        }
        if matches!(self.tail, Tail::Lost) {
            return self.rewrite(changes, None);
        }
        self.append(changes)?;
        if self.end.place >= self.compact_from.max(self.size.saturating_mul(COMPACT_AT)) {
            // What it is about is on the disk already: a failure costs nothing but space.
            self.compact_from = match self.rewrite(&Changes::new(), None) {
                Ok(()) => COMPACT_FROM,
                Err(_) => self.end.place.saturating_mul(2),
            };
        }
        Ok(())
    }

    /// Makes sure that the journal is in its directory, which was another one for a while. What is
    /// there under its name and is not this one is put aside.
    pub(crate) fn reinstate(&mut self) -> Result<(), Fault> {
        let there = self.folder.print(JOURNAL);
        let is_ours = match &self.tail {
            Tail::Clean(medium) | Tail::Uncut(medium) => medium.print() == there,
            Tail::Lost => false,
        };
        if is_ours {
            return Ok(());
        }
        // An attempt before this one may have put ours there, and not for certain.
        let is_foreign = there.is_some() && there != self.placed;
        self.tail = Tail::Lost;
        self.replace(&Changes::new(), None, is_foreign)
    }

    /// Writes the journal again where another program has removed, replaced or cut it off. Returns
    /// whether that was needed. After a failure the next commit is to find out what is there.
    pub(crate) fn restore(&mut self) -> Result<bool, Fault> {
        let Tail::Clean(medium) = &self.tail else {
            return Ok(false);
        };
        if self.is_in_place(medium.print()) {
            return Ok(false);
        }
        self.tail = Tail::Lost;
        self.rewrite(&Changes::new(), None).map(|()| true)
    }

    /// Whether the file that is open, of which this is the print, has the journal's name, and ends
    /// where the journal does.
    fn is_in_place(&self, print: Option<Print>) -> bool {
        let is_whole = print.is_none_or(|(_, _, size)| size == self.end.place);
        self.folder.print(JOURNAL) == print && is_whole
    }

    /// Writes the journal again as soon as it is worth it, however small it is.
    #[cfg(any(test, feature = "memory"))]
    pub(super) fn compact_soon(&mut self) {
        self.compact_from = 0;
    }

    fn append(&mut self, changes: &Changes) -> Result<(), Fault> {
        let end = self.end;
        let print = self.medium()?.print();
        if !self.is_in_place(print) {
            // It was removed, replaced or cut off by another program: all of it is written again.
            self.tail = Tail::Lost;
            return self.rewrite(changes, None);
        }
        let medium = self.medium()?;
        let mut sizes = Vec::with_capacity(changes.len());
        let mut pen = BatchWriter::new(&mut **medium, end);
        let written = changes
            .iter()
            .try_for_each(|(key, entry)| {
                sizes.push(pen.line(&key.line(entry.as_ref()))?);
                Ok(())
            })
            .and_then(|()| pen.conclude());
        let end = match written {
            Ok(end) => end,
            Err(error) => {
                self.suspect();
                // Gives back the room that half a batch has taken.
                let _ = self.medium();
                // What counts may fit where all that was ever written does not.
                let is_long = self.end.place >= self.size.saturating_mul(COMPACT_AT);
                if is_long && self.rewrite(changes, None).is_ok() {
                    return Ok(());
                }
                return Err(fault(JOURNAL, "can't be written")(error));
            }
        };
        if let Err(error) = medium.sync() {
            self.tail = Tail::Lost;
            return Err(fault(JOURNAL, "can't be synced")(error));
        }
        self.end = end;
        self.keep(changes, sizes);
        Ok(())
    }

    /// Writes everything again.
    fn rewrite(&mut self, changes: &Changes, migrated: Option<String>) -> Result<(), Fault> {
        self.replace(changes, migrated, false)
    }

    /// Writes everything, and puts it in the place of what is there, which keeps another name if it
    /// is to be put aside: at no time is there no journal.
    fn replace(
        &mut self,
        changes: &Changes,
        migrated: Option<String>,
        puts_aside: bool,
    ) -> Result<(), Fault> {
        let written = self.write_fresh(changes, migrated).and_then(|written| {
            if puts_aside {
                let linked = self.folder.link(JOURNAL, FOREIGN);
                linked.map_err(fault(JOURNAL, "can't be moved aside"))?;
            }
            Ok(written)
        });
        let (medium, end, sizes) = match written {
            Ok(written) => written,
            Err(fault) => {
                let _ = self.folder.remove(FRESH);
                return Err(fault);
            }
        };
        // From here on neither the old file nor the new one has a name that is certain to stay.
        self.tail = Tail::Lost;
        self.folder
            .rename(FRESH, JOURNAL)
            .map_err(fault(JOURNAL, "can't be replaced"))?;
        self.placed = medium.print();
        self.folder
            .sync()
            .map_err(fault(JOURNAL, "the replacement can't be synced"))?;
        self.tail = Tail::Clean(medium);
        self.end = end;
        self.keep(changes, sizes);
        Ok(())
    }

    fn write_fresh(&mut self, changes: &Changes, migrated: Option<String>) -> Result<Fresh, Fault> {
        let mut medium = self
            .folder
            .create(FRESH)
            .map_err(fault(FRESH, "can't be created"))?;
        let mut sizes = Vec::with_capacity(changes.len());
        let mut pen = BatchWriter::new(&mut *medium, End::default());
        let written = pen
            .line(&header(migrated))
            .and_then(|_| {
                let unchanged = self
                    .entries
                    .iter()
                    .filter(|(key, _)| !changes.contains_key(key));
                for (key, kept) in unchanged {
                    pen.line(&key.line(Some(&kept.entry)))?;
                }
                for (key, entry) in changes {
                    sizes.push(match entry {
                        Some(entry) => pen.line(&key.line(Some(entry)))?,
                        None => 0,
                    });
                }
                Ok(())
            })
            .and_then(|()| pen.conclude());
        let end = written.map_err(fault(FRESH, "can't be written"))?;
        medium.sync().map_err(fault(FRESH, "can't be synced"))?;
        Ok((medium, end, sizes))
    }

    /// The file, with nothing beyond its end.
    fn medium(&mut self) -> Result<&mut Box<dyn OpenFile>, Fault> {
        if let Tail::Uncut(medium) = &mut self.tail {
            medium
                .cut(self.end.place)
                .map_err(fault(JOURNAL, "can't be truncated"))?;
            if let Tail::Uncut(medium) = std::mem::replace(&mut self.tail, Tail::Lost) {
                self.tail = Tail::Clean(medium);
            }
        }
        match &mut self.tail {
            Tail::Clean(medium) => Ok(medium),
            Tail::Uncut(_) | Tail::Lost => Err(Fault {
                file: JOURNAL,
                what: "can't be written",
                source: io::ErrorKind::Other.into(),
            }),
        }
    }

    /// Notes that there may be something beyond the end.
    fn suspect(&mut self) {
        self.tail = match std::mem::replace(&mut self.tail, Tail::Lost) {
            Tail::Clean(medium) | Tail::Uncut(medium) => Tail::Uncut(medium),
            Tail::Lost => Tail::Lost,
        };
    }

    fn keep(&mut self, changes: &Changes, sizes: Vec<u64>) {
        for ((key, entry), size) in changes.iter().zip(sizes) {
            let before = match entry {
                Some(entry) => {
                    self.size += size;
                    let entry = entry.clone();
                    self.entries.insert(key.clone(), Kept { entry, size })
                }
                None => self.entries.remove(key),
            };
            self.size -= before.map_or(0, |kept| kept.size);
        }
    }
}

fn fault(file: &'static str, what: &'static str) -> impl Fn(io::Error) -> Fault {
    move |source| Fault { file, what, source }
}
