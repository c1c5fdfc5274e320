//! Limits of the process.

use std::io;

use crate::check;

/// Raises the number of files that the process may have open to the most that it is allowed, and
/// returns it.
pub fn raise_open_files() -> io::Result<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid place for the result.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    if limit.rlim_cur < limit.rlim_max {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: `limit` lives across the call.
        check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) })?;
    }
    Ok(limit.rlim_cur)
}

/// Whether the process runs with the rights of root.
pub fn is_root() -> bool {
    user() == 0
}

/// The user with whose rights the process runs.
pub fn user() -> u32 {
    // SAFETY: the call takes nothing and can't fail.
    unsafe { libc::geteuid() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raising_twice_changes_nothing_more() {
        let first = raise_open_files().unwrap();
        assert!(first > 0);
        assert_eq!(raise_open_files().unwrap(), first);
    }
}
