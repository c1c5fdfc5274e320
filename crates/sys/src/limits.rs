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

/// Returns how many bytes of memory the process may use: what its control groups allow, else what
/// the machine has.
pub fn memory() -> u64 {
    memory_by(|path| std::fs::read_to_string(path).ok())
}

fn memory_by(read: impl Fn(&str) -> Option<String>) -> u64 {
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    let limits = groups.lines().flat_map(|line| {
        // Number, controllers and path; the second version has no controllers.
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next(), parts.next().unwrap_or_default());
        let (root, name) = match controllers {
            Some("") => ("/sys/fs/cgroup", "memory.max"),
            Some(names) if names.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            Some(_) | None => return Vec::new(),
        };
        // A limit of any group above binds, too. In a container only the last one may be there.
        let mut path = path.trim_end_matches('/');
        let mut found = Vec::new();
        loop {
            found.extend(read(&format!("{root}{path}/{name}")));
            match path.rfind('/') {
                Some(end) => path = path.get(..end).unwrap_or_default(),
                None => break found,
            }
        }
    });
    let machine = read("/proc/meminfo").and_then(|facts| {
        let line = facts.lines().find(|line| line.starts_with("MemTotal:"))?;
        let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
        kibibytes.checked_mul(1024)
    });
    let limits = limits.filter_map(|limit| limit.trim().parse().ok());
    limits.chain(machine).min().unwrap_or(u64::MAX)
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

    #[test]
    fn the_smallest_limit_of_memory_that_binds_the_process_is_found() {
        let of = |files: &[(&str, &str)]| {
            memory_by(|path| {
                let file = files.iter().find(|(name, _)| *name == path)?;
                Some(file.1.to_owned())
            })
        };
        let machine = ("/proc/meminfo", "MemTotal:        4096 kB\nMemFree: 7 kB\n");
        assert_eq!(of(&[]), u64::MAX);
        assert_eq!(of(&[machine]), 4 << 20);
        let second = ("/proc/self/cgroup", "0::/\n");
        let inside = ("/sys/fs/cgroup/memory.max", "65536\n");
        assert_eq!(of(&[machine, second, inside]), 65_536);
        let nested = ("/proc/self/cgroup", "0::/a/b\n");
        let (above, below) = (
            "/sys/fs/cgroup/a/memory.max",
            "/sys/fs/cgroup/a/b/memory.max",
        );
        assert_eq!(
            of(&[machine, nested, (above, "9000"), (below, "max")]),
            9000
        );
        assert_eq!(of(&[machine, nested, (above, "9000"), (below, "800")]), 800);
        let first = (
            "/proc/self/cgroup",
            "3:cpu:/x\n2:hugetlb,memory:/pod\n0::/\n",
        );
        let root = "/sys/fs/cgroup/memory/memory.limit_in_bytes";
        assert_eq!(of(&[machine, first, (root, "700")]), 700);
        assert_eq!(
            of(&[machine, first, (root, "9223372036854771712")]),
            4 << 20
        );
    }
}
