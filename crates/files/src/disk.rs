//! Reads the file system: which files there are, and what stands in those that changed.
//!
//! Everything here blocks, and nothing here decides what a finding means.

mod places;
mod read;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::{self, Metadata};
use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use landfall_engine::parallel;
use landfall_model::reason::{Code, Reason};

use crate::catalog::{File, Finding, Survey};
use places::Places;
#[cfg(feature = "memory")]
pub(crate) use read::decode;
use read::{Print, beginning, io_reason, read_all, read_file};

/// How deep folders are followed with `recursive`, which also ends loops of symbolic links.
const FOLDER_DEPTH: usize = 32;

/// How many files are read while another thread starts that reads as many.
const SHARE: NonZeroUsize = NonZeroUsize::MIN.saturating_add(3);

/// The path that stands for standard input.
pub(crate) const STDIN: &str = "-";

/// Remembers what was read, so that only what changed is read again.
#[derive(Debug)]
pub(crate) struct Disk {
    paths: Vec<PathBuf>,
    recursive: bool,
    /// Never read: our own state lies there.
    state: Option<PathBuf>,
    seen: BTreeMap<Arc<str>, Print>,
    /// Paths at which there was a file when that was last reported.
    files: BTreeSet<Arc<str>>,
    /// Whether this is not the first look any more.
    has_looked: bool,
    /// Files that are no files (standard input, pipes): they are read once.
    streams: BTreeSet<Arc<str>>,
    /// Paths among those given that are folders.
    folders: BTreeSet<PathBuf>,
    places: Places,
}

/// One look around.
#[derive(Debug, Default)]
pub(crate) struct DiskSurvey {
    pub(crate) survey: Survey,
    /// Folders in which a change could matter.
    pub(crate) folders: BTreeSet<PathBuf>,
    /// Files of the survey that changed and are still to be read.
    unread: Vec<Unread>,
}

/// A file that is to be read.
#[derive(Debug)]
struct Unread {
    /// Its position among the files of the survey.
    position: usize,
    path: PathBuf,
    name: Arc<str>,
    print: Print,
}

/// A path given by the user that can't be used from the start.
#[derive(Debug)]
pub(crate) struct Missing {
    pub(crate) path: PathBuf,
    pub(crate) source: io::Error,
}

// === impl Disk ===

impl Disk {
    /// Will read these paths, and leave out the state file in the folder `state`.
    pub(crate) fn new(paths: Vec<PathBuf>, recursive: bool, state: Option<&Path>) -> Self {
        let mut given = HashSet::new();
        Self {
            paths: paths
                .into_iter()
                .filter(|path| given.insert(path.clone()))
                .collect(),
            recursive,
            state: state.and_then(|folder| fs::canonicalize(folder).ok()),
            seen: BTreeMap::new(),
            files: BTreeSet::new(),
            has_looked: false,
            streams: BTreeSet::new(),
            folders: BTreeSet::new(),
            places: Places::default(),
        }
    }

    /// Takes in that something is on record that stands in no file: a folder without manifests may
    /// not be the one that held it.
    pub(crate) fn set_unverified(&mut self) {
        for folder in &self.folders {
            self.places.unverify(folder.clone());
        }
    }

    /// The first path that is not there.
    pub(crate) fn missing(&self) -> Option<Missing> {
        self.paths
            .iter()
            .filter(|path| path.as_os_str() != STDIN)
            .find_map(|path| {
                let source = fs::metadata(path).err()?;
                Some(Missing {
                    path: path.clone(),
                    source,
                })
            })
    }

    /// Looks around, and reads what changed since the last time.
    pub(crate) fn look(&mut self, stdin: &mut dyn Read) -> DiskSurvey {
        let mut look = DiskSurvey::default();
        let mut taken = HashSet::new();
        for path in self.paths.clone() {
            if path.as_os_str() == STDIN {
                self.stream(&name_of(&path), stdin, &mut look);
                continue;
            }
            look.watch_around(&path);
            match fs::metadata(&path) {
                Ok(metadata) if metadata.is_dir() => {
                    // What stood in a file is not withdrawn because there is a folder now.
                    if self.files.contains(&name_of(&path)) {
                        look.not_a_file(&path, &metadata);
                    } else {
                        self.folders.insert(path.clone());
                    }
                    self.folder(&path, 0, &mut taken, &mut look);
                }
                Ok(metadata) if metadata.is_file() => {
                    let real = look.behind(&path);
                    self.file(&path, real, &metadata, &mut taken, &mut look);
                    self.places.found(folder_of(&path));
                }
                Ok(metadata) => self.pipe(&path, &metadata, &mut look),
                Err(error) => self.absent(&path, &error, &mut look),
            }
        }
        self.read(&mut look);
        let present: HashSet<&Arc<str>> = look.survey.files.iter().map(|file| &file.name).collect();
        self.seen.retain(|name, _| present.contains(name));
        self.files.retain(|name| present.contains(name));
        let unlisted = &look.survey.unlisted;
        self.places.retain(|folder| {
            let is_inside = |unlisted: &Arc<str>| folder.starts_with(&**unlisted);
            look.folders.contains(folder) || unlisted.iter().any(is_inside)
        });
        self.has_looked = true;
        look
    }

    /// A path that was given and is not there (any more), or can't be asked for.
    fn absent(&self, path: &Path, error: &io::Error, look: &mut DiskSurvey) {
        let name = name_of(path);
        let reason = io_reason(&name, "can't be read", error);
        if self.folders.contains(path) {
            // A folder that is gone may be a volume that is not mounted. Withdrawing everything
            // that was in it takes emptying it.
            look.survey.unlisted.push(name.clone());
        } else if !is_gone(path, error) {
            let finding = Finding::Unreadable(reason);
            return look.survey.files.push(File { name, finding });
        } else if self.files.contains(&name) && self.places.is_unverified(folder_of(path)) {
            let finding = Finding::Unreadable(places::missing(&name));
            return look.survey.files.push(File { name, finding });
        }
        look.survey.troubles.insert(name, reason);
    }

    fn folder(
        &mut self,
        folder: &Path,
        depth: usize,
        taken: &mut HashSet<PathBuf>,
        look: &mut DiskSurvey,
    ) {
        look.folders.insert(folder.to_owned());
        let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let mut entries = match entries {
            Ok(entries) => entries,
            Err(error) => return look.unlisted(folder, &error),
        };
        entries.sort_by_cached_key(fs::DirEntry::file_name);
        // Found once for all files in it: thousands of them are checked every time.
        let real_folder = fs::canonicalize(folder).ok();
        if let Some(real) = &real_folder {
            look.folders.insert(real.clone());
        }
        // Names with a dot in front are editors' and kubelets' own business.
        let is_hidden =
            |it: &fs::DirEntry| it.file_name().as_encoded_bytes().first() == Some(&b'.');
        entries.retain(|it| !is_hidden(it));
        let (before, is_bare) = (look.survey.files.len(), entries.is_empty());
        for entry in entries {
            self.entry(&entry, real_folder.as_deref(), depth, taken, look);
        }
        if look.survey.files.len() > before {
            self.places.found(folder);
        } else if is_bare && self.places.is_unverified(folder) {
            let name = name_of(folder);
            look.survey.unlisted.push(name.clone());
            let reason = places::unverified(&name);
            look.survey.troubles.insert(name, reason);
        }
    }

    /// Takes in what stands in a folder, which is really there: `real_folder`.
    fn entry(
        &mut self,
        entry: &fs::DirEntry,
        real_folder: Option<&Path>,
        depth: usize,
        taken: &mut HashSet<PathBuf>,
        look: &mut DiskSurvey,
    ) {
        let path = entry.path();
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => {
                let known = self.files.contains(&name_of(&path));
                if known || !self.recursive && is_manifest(&path) {
                    look.not_a_file(&path, &metadata);
                }
                if self.recursive && depth < FOLDER_DEPTH {
                    self.folder(&path, depth + 1, taken, look);
                }
            }
            Ok(metadata) if metadata.is_file() && is_manifest(&path) => {
                let is_link = entry.file_type().map_or(true, |kind| kind.is_symlink());
                let real = match real_folder {
                    Some(folder) if !is_link => Some(folder.join(entry.file_name())),
                    Some(_) | None => look.behind(&path),
                };
                self.file(&path, real, &metadata, taken, look);
            }
            Err(error) if !is_gone(&path, &error) => {
                if is_manifest(&path) {
                    let name = name_of(&path);
                    let reason = io_reason(&name, "can't be read", &error);
                    let finding = Finding::Unreadable(reason);
                    look.survey.files.push(File { name, finding });
                }
                // A link into nowhere is a folder only if it was one.
                let may_be_folder =
                    error.kind() != io::ErrorKind::NotFound || self.places.has(&path);
                if self.recursive && depth < FOLDER_DEPTH && may_be_folder {
                    look.unlisted(&path, &error);
                }
            }
            Ok(metadata) if !metadata.is_file() && is_manifest(&path) => {
                look.not_a_file(&path, &metadata);
            }
            // Not a manifest by its name, or gone.
            Ok(_) | Err(_) => {}
        }
    }

    fn file(
        &mut self,
        path: &Path,
        real: Option<PathBuf>,
        metadata: &Metadata,
        taken: &mut HashSet<PathBuf>,
        look: &mut DiskSurvey,
    ) {
        if let Some(real) = real
            && (self.is_ours(&real) || !taken.insert(real))
        {
            return;
        }
        let name = name_of(path);
        self.files.insert(name.clone());
        let print = Print::of(metadata);
        if self.seen.get(&name) != Some(&print) {
            look.unread.push(Unread {
                position: look.survey.files.len(),
                path: path.to_owned(),
                name: name.clone(),
                print,
            });
        }
        let finding = Finding::Same;
        look.survey.files.push(File { name, finding });
    }

    /// Reads what changed.
    fn read(&mut self, look: &mut DiskSurvey) {
        let unread = std::mem::take(&mut look.unread);
        let findings = parallel::map(&unread, SHARE, |it| read_file(&it.path, &it.name, it.print));
        for (Unread { position, name, .. }, (finding, print)) in unread.into_iter().zip(findings) {
            match print {
                Some(print) => self.seen.insert(name, print),
                None => self.seen.remove(&name),
            };
            if let Some(file) = look.survey.files.get_mut(position) {
                file.finding = finding;
            }
        }
    }

    fn is_ours(&self, real: &Path) -> bool {
        let in_state = |folder: &PathBuf| real.parent() == Some(folder);
        self.state.as_ref().is_some_and(in_state)
            && real.file_name().is_some_and(crate::state::is_own_file)
    }

    fn pipe(&mut self, path: &Path, metadata: &Metadata, look: &mut DiskSurvey) {
        let name = name_of(path);
        if self.streams.contains(&name) {
            return self.stream(&name, &mut io::empty(), look);
        }
        // Opening a pipe waits for its writer: only what was given at the start is
        // waited for.
        if self.has_looked {
            return look.not_a_file(path, metadata);
        }
        match fs::File::open(path) {
            Ok(mut file) => self.stream(&name, &mut file, look),
            Err(error) => {
                let finding = Finding::Unreadable(io_reason(&name, "can't be read", &error));
                look.survey.files.push(File { name, finding });
            }
        }
    }

    fn stream(&mut self, name: &Arc<str>, stream: &mut dyn Read, look: &mut DiskSurvey) {
        let finding = if self.streams.insert(name.clone()) {
            read_all(stream, name)
        } else {
            Finding::Same
        };
        look.survey.files.push(File {
            name: name.clone(),
            finding,
        });
    }
}

// === impl DiskSurvey ===

impl DiskSurvey {
    /// A look that found this, and has nothing left to read.
    #[cfg(feature = "memory")]
    pub(crate) fn of(survey: Survey) -> Self {
        Self {
            survey,
            ..Self::default()
        }
    }

    /// Notes that it is not known what is in a folder.
    fn unlisted(&mut self, folder: &Path, error: &io::Error) {
        let name = name_of(folder);
        let reason = io_reason(&name, "the folder can't be listed", error);
        self.survey.unlisted.push(name.clone());
        self.survey.troubles.insert(name, reason);
    }

    /// Notes that something else is where a file is to be, so that what was in the file stays.
    fn not_a_file(&mut self, path: &Path, metadata: &Metadata) {
        let name = name_of(path);
        let kind = metadata.file_type();
        let what = if kind.is_dir() {
            "a directory"
        } else if kind.is_fifo() {
            "a pipe"
        } else if kind.is_socket() {
            "a socket"
        } else {
            "a device"
        };
        let reason = Reason::error(
            Code::InvalidManifest,
            format!("can't be read: it is {what}, not a file"),
        )
        .remedy("restore the file; to remove its objects, delete what is there")
        .origin(Some(beginning(&name)));
        let finding = Finding::Unreadable(reason);
        self.survey.files.push(File { name, finding });
    }

    /// Returns where a file really is, and notes that it can be replaced there.
    fn behind(&mut self, path: &Path) -> Option<PathBuf> {
        let real = fs::canonicalize(path).ok()?;
        self.watch_around(&real);
        Some(real)
    }

    /// A path can be replaced in the folder that it stands in.
    fn watch_around(&mut self, path: &Path) {
        self.folders.insert(folder_of(path).to_owned());
    }
}

/// Whether a path was deleted that could not be asked for, for this reason: its folder is there,
/// and no link into nowhere is left of it, which would be one that is just being turned. Any other
/// error says nothing about what is there.
fn is_gone(path: &Path, error: &io::Error) -> bool {
    let is_missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    is_missing(error)
        && folder_of(path).is_dir()
        && fs::symlink_metadata(path).is_err_and(|error| is_missing(&error))
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn is_manifest(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("yaml" | "yml" | "json"))
}

fn name_of(path: &Path) -> Arc<str> {
    path.to_string_lossy().into()
}

#[cfg(test)]
mod tests;
