//! What opening and checking files takes beyond the standard library.

/// The flag of `open` that refuses a symbolic link as the last part of a path.
pub const NO_FOLLOW: i32 = libc::O_NOFOLLOW;

/// The flag of `open` that does not wait for the other end of a pipe. Files are as without it.
pub const NO_WAIT: i32 = libc::O_NONBLOCK;

/// Returns the user in whose name the process accesses files.
pub fn user() -> u32 {
    // SAFETY: the call takes nothing and can't fail.
    unsafe { libc::geteuid() }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_symbolic_link_is_refused_with_the_flag_and_a_file_is_not() {
        let folder = std::env::temp_dir().join(format!("landfall-sys-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let (file, link) = (folder.join("file"), folder.join("link"));
        std::fs::write(&file, "").unwrap();
        symlink(&file, &link).unwrap();
        let open = |path| {
            File::options()
                .read(true)
                .custom_flags(NO_FOLLOW)
                .open(path)
        };
        let owner = open(&file).unwrap().metadata().unwrap().uid();
        assert_eq!(owner, user());
        assert!(open(&link).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
