//! The state directory as the journal sees it: a few operations on few files.
//!
//! This is the seam at which tests let disks fill up, fail and lose power: the journal is the same.

use std::fmt;
use std::fs::{self, File, Permissions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use landfall_sys::files;

/// Files are for their owner alone.
const FILE_MODE: u32 = 0o600;

/// A directory whose files are named without a path.
pub(crate) trait Folder: fmt::Debug + Send {
    /// Returns what a file holds; `None`: it is not there.
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>>;

    /// Opens a file that is there for writing.
    fn open(&mut self, name: &str) -> io::Result<Box<dyn OpenFile>>;

    /// Makes an empty file, in place of what may have that name.
    fn create(&mut self, name: &str) -> io::Result<Box<dyn OpenFile>>;

    /// Puts a file in the place of another one.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;

    /// Gives a file a second name, in place of what may have that one.
    fn link(&mut self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file. None of that name is fine.
    fn remove(&mut self, name: &str) -> io::Result<()>;

    /// Returns when all names are on the disk.
    fn sync(&mut self) -> io::Result<()>;

    /// Returns which file has a name, where that can be found out.
    fn print(&self, _name: &str) -> Option<Print> {
        None
    }
}

/// Which file it is, and how long: device, inode and size.
pub(crate) type Print = (u64, u64, u64);

/// An open file.
pub(crate) trait OpenFile: fmt::Debug + Send {
    /// Writes at a place, and returns how much: it may be less than all.
    fn write_at(&mut self, bytes: &[u8], place: u64) -> io::Result<usize>;

    /// Cuts the file off.
    fn cut(&mut self, length: u64) -> io::Result<()>;

    /// Returns when the content is on the disk.
    fn sync(&mut self) -> io::Result<()>;

    /// Returns which file it is, where that can be found out.
    fn print(&self) -> Option<Print> {
        None
    }
}

/// A directory on a disk.
#[derive(Debug)]
pub(crate) struct RealFolder {
    path: PathBuf,
}

// === impl RealFolder ===

impl RealFolder {
    /// Will work in this directory.
    pub(crate) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }
}

impl Folder for RealFolder {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let mut file = match open(&self.path.join(name), File::options().read(true)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    fn open(&mut self, name: &str) -> io::Result<Box<dyn OpenFile>> {
        let file = open(&self.path.join(name), File::options().write(true))?;
        Ok(Box::new(file))
    }

    fn create(&mut self, name: &str) -> io::Result<Box<dyn OpenFile>> {
        // Never into what is there already, which may be a link to elsewhere.
        self.remove(name)?;
        let path = self.path.join(name);
        let file = open(&path, File::options().write(true).create_new(true))?;
        Ok(Box::new(file))
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn link(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.remove(to)?;
        match fs::hard_link(self.path.join(from), self.path.join(to)) {
            // Not every file system has links, and a directory never has a second name.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported
                ) =>
            {
                self.rename(from, to)
            }
            linked => linked,
        }
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    fn print(&self, name: &str) -> Option<Print> {
        let metadata = fs::symlink_metadata(self.path.join(name)).ok()?;
        Some((metadata.dev(), metadata.ino(), metadata.len()))
    }
}

impl OpenFile for File {
    fn print(&self) -> Option<Print> {
        let metadata = self.metadata().ok()?;
        Some((metadata.dev(), metadata.ino(), metadata.len()))
    }

    fn write_at(&mut self, bytes: &[u8], place: u64) -> io::Result<usize> {
        FileExt::write_at(self, bytes, place)
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Opens a file of ours: no link is followed, nothing but a file is taken, and no other user may
/// read it afterwards.
pub(crate) fn open(path: &Path, options: &mut fs::OpenOptions) -> io::Result<File> {
    let is_link = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
    let opened = options
        .mode(FILE_MODE)
        .custom_flags(files::NO_FOLLOW | files::NO_WAIT)
        .open(path);
    let file = match opened {
        Err(_) if is_link => {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is a symbolic link, which is not followed in a state directory",
            ));
        }
        opened => opened?,
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a regular file",
        ));
    }
    if metadata.uid() == files::user() && metadata.mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(FILE_MODE))?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests;
