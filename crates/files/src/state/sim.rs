//! A disk that fails as disks do: it fills up, errs, writes less than it was asked to, and forgets
//! at a power cut what was not synced, or part of it.

#![expect(clippy::unwrap_used, reason = "for tests alone")]
#![cfg_attr(
    not(test),
    expect(dead_code, reason = "for tests alone, here and elsewhere")
)]

mod disk;

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use super::folder::{Folder, OpenFile, Print};
use super::{Remembered, StateDir, StateError};
use disk::{Content, Disk, Kind, Operation, apply};

/// What happens at one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimFault {
    /// The power is cut just before it.
    CutBefore,
    /// The power is cut just after it.
    CutAfter,
    /// It fails. A write leaves half of it behind, a sync forgets what it was to keep.
    Fails,
    /// A write takes only half of what it is given.
    Short,
    /// There is no room from then on.
    Full,
}

/// A disk with one folder. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sim {
    disk: Arc<Mutex<Disk>>,
    /// Which of the processes that use the disk one after another this one belongs to.
    life: u64,
    /// The power was cut.
    off: Arc<Notify>,
}

#[derive(Debug)]
struct Handle {
    sim: Sim,
    file: usize,
}

// === impl Sim ===

impl Sim {
    /// A disk that holds one file.
    pub(crate) fn holding(name: &str, bytes: &[u8]) -> Self {
        let sim = Self::default();
        sim.put(name, bytes);
        sim
    }

    /// Puts a file of another program there.
    pub(crate) fn put(&self, name: &str, bytes: &[u8]) {
        let mut disk = self.disk();
        disk.files.push(Content {
            durable: bytes.to_vec(),
            pending: Vec::new(),
        });
        let file = disk.files.len() - 1;
        disk.durable.insert(name.to_owned(), file);
        disk.names.insert(name.to_owned(), file);
    }

    /// Opens a state directory on it, as a process does that starts.
    pub(crate) fn open(&self) -> Result<(StateDir, Remembered), StateError> {
        let lock = File::open("/dev/null").unwrap();
        StateDir::read(Path::new("/state"), Box::new(self.clone()), lock)
    }

    /// Lets something happen at the operation that is so many away.
    pub(crate) fn plan(&self, away: usize, trouble: SimFault) {
        let mut disk = self.disk();
        disk.trouble = Some((disk.done + away, trouble));
    }

    /// Everything is fine from now on, until the next plan.
    pub(crate) fn repair(&self) {
        let mut disk = self.disk();
        disk.trouble = None;
        disk.is_full = false;
    }

    /// How many operations there were.
    pub(crate) fn operations(&self) -> usize {
        self.disk().done
    }

    /// Whether the power is cut.
    pub(crate) fn is_off(&self) -> bool {
        self.disk().is_off
    }

    /// The names as they seem.
    pub(crate) fn names(&self) -> Vec<String> {
        self.disk().names.keys().cloned().collect()
    }

    /// What a file seems to hold.
    pub(crate) fn content(&self, name: &str) -> Option<Vec<u8>> {
        let disk = self.disk();
        let file = disk.files.get(*disk.names.get(name)?)?;
        Some(file.seen())
    }

    /// Everything that may be found after a power cut now.
    pub(crate) fn after_power_cut(&self) -> Vec<Self> {
        let disk = self.disk().clone();
        let mut found = Vec::new();
        let names_differ = disk.names != disk.durable;
        for keeps_names in [false, true]
            .into_iter()
            .take(1 + usize::from(names_differ))
        {
            let mut sims = vec![disk.after(keeps_names, |_| Vec::new())];
            sims.push(disk.after(keeps_names, |file| file.pending.clone()));
            let last = |file: &Content| match file.pending.last().map(|last| &last.kind) {
                Some(Kind::Write(_, bytes)) => bytes.len(),
                Some(Kind::Cut(_)) | None => 0,
            };
            let longest = disk.files.iter().map(last).max().unwrap_or(0);
            for length in 0..longest {
                // The last write ends early.
                sims.push(disk.after(keeps_names, |file| {
                    file.with_last(|bytes| bytes.truncate(length))
                }));
            }
            for start in (0..longest).step_by(32) {
                // A part of it is missing, although what follows is there.
                sims.push(disk.after(keeps_names, |file| {
                    file.with_last(|bytes| {
                        let part = bytes.iter_mut().skip(start).take(32);
                        part.for_each(|byte| *byte = 0);
                    })
                }));
            }
            found.extend(sims);
        }
        let found = found.into_iter();
        found.map(Self::of).collect()
    }

    /// The disk for the next process. The one before has no effect on it any more, and what a sync
    /// that failed has forgotten is not read again.
    pub(crate) fn next_life(&self) -> Self {
        let mut disk = self.disk();
        disk.is_off = false;
        disk.life += 1;
        for file in &mut disk.files {
            file.pending.retain(|operation| !operation.is_forgotten);
        }
        Self {
            disk: self.disk.clone(),
            life: disk.life,
            off: Arc::default(),
        }
    }

    fn of(disk: Disk) -> Self {
        Self {
            disk: Arc::new(Mutex::new(disk)),
            ..Self::default()
        }
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap()
    }

    /// One operation. `act` does it, all or half.
    fn operate<R>(
        &self,
        act: impl FnOnce(&mut Disk, Option<SimFault>) -> io::Result<R>,
    ) -> io::Result<R> {
        let mut disk = self.disk();
        if disk.is_off || disk.life != self.life {
            return Err(io::Error::other("the power is cut"));
        }
        let number = disk.done;
        disk.done += 1;
        let trouble = match disk.trouble {
            Some((at, trouble)) if at == number => Some(trouble),
            _ => None,
        };
        if trouble == Some(SimFault::CutBefore) {
            disk.is_off = true;
            self.off.notify_one();
            return Err(io::Error::other("the power is cut"));
        }
        if trouble == Some(SimFault::Full) {
            disk.is_full = true;
        }
        let result = act(&mut disk, trouble);
        if trouble == Some(SimFault::CutAfter) {
            disk.is_off = true;
            self.off.notify_one();
            return Err(io::Error::other("the power is cut"));
        }
        result
    }
}

/// What a model test does with the disk of one process after the other.
#[cfg(feature = "memory")]
impl Sim {
    /// A disk as a power cut may leave this one now: with nothing of what was not synced, or with
    /// all of it.
    pub(crate) fn survivor(&self, keeps_all: bool) -> Self {
        let disk = self.disk();
        let left = |file: &Content| {
            if keeps_all {
                file.pending.clone()
            } else {
                Vec::new()
            }
        };
        Self::of(disk.after(keeps_all, left))
    }

    /// Loses power, and with it what was not synced or part of that: `choose` returns a number
    /// below the one it is given.
    pub(crate) fn cut_power(&self, mut choose: impl FnMut(usize) -> usize) {
        let mut disk = self.disk();
        let keeps_names = choose(2) == 0;
        let way = choose(5);
        let part = choose(17);
        let share = move |length: usize| length * part / 16;
        let after = disk.after(keeps_names, |file| match way {
            0 => Vec::new(),
            1 => file.pending.clone(),
            2 => file.with_last(|bytes| bytes.truncate(share(bytes.len()))),
            3 => file.with_last(|bytes| {
                let start = share(bytes.len());
                let hole = bytes.iter_mut().skip(start).take(32);
                hole.for_each(|byte| *byte = 0);
            }),
            _ => {
                let count = share(file.pending.len());
                file.pending.iter().take(count).cloned().collect()
            }
        });
        *disk = Disk {
            done: disk.done,
            is_full: disk.is_full,
            is_off: true,
            life: disk.life,
            ..after
        };
    }

    /// Lets nothing happen any more.
    pub(crate) fn kill(&self) {
        self.disk().is_off = true;
    }

    /// There is no room from now on.
    pub(crate) fn fill(&self) {
        self.disk().is_full = true;
    }

    /// Returns when the power was cut by an operation.
    pub(crate) async fn went_off(&self) {
        self.off.notified().await;
    }
}

fn full() -> io::Error {
    io::ErrorKind::StorageFull.into()
}

fn broken() -> io::Error {
    io::Error::other("input/output error")
}

impl Folder for Sim {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.content(name))
    }

    fn open(&mut self, name: &str) -> io::Result<Box<dyn OpenFile>> {
        let file = *self.disk().names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(Handle {
            sim: self.clone(),
            file,
        }))
    }

    fn create(&mut self, name: &str) -> io::Result<Box<dyn OpenFile>> {
        let file = self.operate(|disk, trouble| {
            if trouble == Some(SimFault::Fails) {
                return Err(broken());
            }
            if disk.is_full {
                return Err(full());
            }
            disk.files.push(Content::default());
            let file = disk.files.len() - 1;
            disk.names.insert(name.to_owned(), file);
            Ok(file)
        })?;
        Ok(Box::new(Handle {
            sim: self.clone(),
            file,
        }))
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.operate(|disk, trouble| {
            if trouble == Some(SimFault::Fails) {
                return Err(broken());
            }
            let file = disk.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
            disk.names.insert(to.to_owned(), file);
            Ok(())
        })
    }

    fn link(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.operate(|disk, trouble| {
            if trouble == Some(SimFault::Fails) {
                return Err(broken());
            }
            if disk.is_full {
                return Err(full());
            }
            let file = *disk.names.get(from).ok_or(io::ErrorKind::NotFound)?;
            disk.names.insert(to.to_owned(), file);
            Ok(())
        })
    }

    fn print(&self, name: &str) -> Option<Print> {
        let disk = self.disk();
        let file = *disk.names.get(name)?;
        disk.print(file)
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.operate(|disk, trouble| {
            if trouble == Some(SimFault::Fails) {
                return Err(broken());
            }
            disk.names.remove(name);
            Ok(())
        })
    }

    fn sync(&mut self) -> io::Result<()> {
        self.operate(|disk, trouble| {
            if trouble == Some(SimFault::Fails) {
                return Err(broken());
            }
            disk.durable = disk.names.clone();
            Ok(())
        })
    }
}

impl OpenFile for Handle {
    fn print(&self) -> Option<Print> {
        self.sim.disk().print(self.file)
    }

    fn write_at(&mut self, bytes: &[u8], place: u64) -> io::Result<usize> {
        self.sim.operate(|disk, trouble| {
            if disk.is_full {
                return Err(full());
            }
            let length = match trouble {
                Some(SimFault::Fails | SimFault::Short) => bytes.len().div_ceil(2),
                _ => bytes.len(),
            };
            disk.files[self.file].pending.push(Operation {
                kind: Kind::Write(place, bytes[..length].to_vec()),
                is_forgotten: false,
            });
            match trouble {
                Some(SimFault::Fails) => Err(broken()),
                _ => Ok(length),
            }
        })
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.sim.operate(|disk, trouble| {
            if trouble == Some(SimFault::Fails) {
                return Err(broken());
            }
            disk.files[self.file].pending.push(Operation {
                kind: Kind::Cut(length),
                is_forgotten: false,
            });
            Ok(())
        })
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sim.operate(|disk, trouble| {
            let file = &mut disk.files[self.file];
            if trouble == Some(SimFault::Fails) {
                for operation in &mut file.pending {
                    operation.is_forgotten = true;
                }
                return Err(broken());
            }
            let (forgotten, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut file.pending)
                .into_iter()
                .partition(|operation| operation.is_forgotten);
            file.durable = apply(&file.durable, &kept);
            file.pending = forgotten;
            Ok(())
        })
    }
}
