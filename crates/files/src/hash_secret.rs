//! A secret beside the state, for hashes of clients: identities of Services that come from
//! manifests are made of their names, so that a client could guess them.

use std::fs::{self, DirBuilder, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use crate::state::folder;

const NAME: &str = "hash.secret";
const LENGTH: usize = 16;

/// Returns the secret of the state directory, and writes one there if it is missing.
/// Processes that begin at the same time get the same one.
///
/// # Errors
/// The file can't be read or written, or holds something else.
pub fn hash_secret(directory: &Path) -> io::Result<[u8; LENGTH]> {
    if let Some(secret) = read(directory)? {
        return Ok(secret);
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let fresh = directory.join(format!("{NAME}.{}", std::process::id()));
    let linked = write(&fresh).and_then(|()| fs::hard_link(&fresh, directory.join(NAME)));
    let _ = fs::remove_file(&fresh);
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    read(directory)?.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Returns a secret for this process alone.
pub fn random_secret() -> [u8; LENGTH] {
    // Each state has keys of its own, from the system's random numbers.
    let half = || RandomState::new().hash_one(NAME).to_le_bytes();
    let mut secret = [0; LENGTH];
    for (byte, random) in secret.iter_mut().zip(half().into_iter().chain(half())) {
        *byte = random;
    }
    secret
}

fn read(directory: &Path) -> io::Result<Option<[u8; LENGTH]>> {
    let path = directory.join(NAME);
    let file = match folder::open(&path, File::options().read(true)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(LENGTH as u64 + 1).read_to_end(&mut bytes)?;
    let secret: Result<[u8; LENGTH], _> = bytes.try_into();
    secret
        .map(Some)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is no secret of 16 bytes"))
}

fn write(path: &Path) -> io::Result<()> {
    let _ = fs::remove_file(path);
    let mut file = folder::open(path, File::options().write(true).create_new(true))?;
    file.write_all(&random_secret())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_secret_is_the_same_after_a_restart_and_another_one_elsewhere() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let inside = folders[0].path().join("state");
        let secret = hash_secret(&inside).unwrap();
        assert_eq!(hash_secret(&inside).unwrap(), secret);
        assert_ne!(hash_secret(folders[1].path()).unwrap(), secret);
        assert_ne!(random_secret(), random_secret());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&inside), mode(&inside.join(NAME))), (0o700, 0o600));
        let names = fs::read_dir(&inside).unwrap();
        assert_eq!(names.count(), 1, "nothing else is left there");
    }

    #[test]
    fn a_file_that_holds_something_else_is_left_alone_and_reported() {
        let folder = tempfile::tempdir().unwrap();
        for text in ["", "short", "much longer than sixteen bytes"] {
            fs::write(folder.path().join(NAME), text).unwrap();
            let error = hash_secret(folder.path()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            assert_eq!(fs::read(folder.path().join(NAME)).unwrap(), text.as_bytes());
        }
    }
}
