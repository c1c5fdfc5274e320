//! Rights and links, on a real disk.

use std::os::unix::fs::symlink;

use super::*;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

#[test]
fn files_are_readable_by_their_owner_alone_and_other_modes_are_corrected() {
    let root = tempfile::tempdir().unwrap();
    let mut folder = RealFolder::new(root.path());
    folder.create("new").unwrap();
    assert_eq!(mode(&root.path().join("new")), 0o600);
    let old = root.path().join("old");
    fs::write(&old, "text").unwrap();
    fs::set_permissions(&old, Permissions::from_mode(0o644)).unwrap();
    assert_eq!(folder.read("old").unwrap().unwrap(), b"text");
    assert_eq!(mode(&old), 0o600);
}

#[test]
fn no_link_is_followed_and_none_is_written_through() {
    let root = tempfile::tempdir().unwrap();
    let elsewhere = root.path().join("elsewhere");
    fs::write(&elsewhere, "precious").unwrap();
    symlink(&elsewhere, root.path().join("link")).unwrap();
    symlink(root.path().join("nowhere"), root.path().join("broken")).unwrap();
    let mut folder = RealFolder::new(root.path());
    for name in ["link", "broken"] {
        let read = folder.read(name).unwrap_err().to_string();
        assert!(read.contains("symbolic link"), "{name}: {read}");
        let opened = folder.open(name).unwrap_err().to_string();
        assert!(opened.contains("symbolic link"), "{name}: {opened}");
        let mut file = folder.create(name).unwrap();
        file.write_at(b"new", 0).unwrap();
        assert_eq!(folder.read(name).unwrap().unwrap(), b"new");
    }
    assert_eq!(fs::read(&elsewhere).unwrap(), b"precious");
    assert!(!root.path().join("nowhere").exists());
}

#[test]
fn what_is_no_file_is_refused() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("folder")).unwrap();
    let mut folder = RealFolder::new(root.path());
    assert!(folder.read("folder").is_err());
    assert!(folder.open("folder").is_err());
    assert!(folder.create("folder").is_err());
    assert_eq!(folder.read("missing").unwrap(), None);
}
