//! The allocator: how it is set up, and how it gives memory back.
//!
//! glibc's takes one lock for all that threads allocate and free for each other, or, with an arena
//! per thread, keeps what one of them freed from all others. The control loop makes its passes on
//! several threads and hands what it made to workers, so that either way costs a lot.

/// Gives pages back to the kernel of which nothing is in use.
#[cfg(feature = "jemalloc")]
pub use jemalloc::give_back;

/// Gives pages back to the kernel of which nothing is in use.
#[cfg(not(feature = "jemalloc"))]
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer, and touches no memory that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Gives pages of this program back, code and constants, that are not in use at present, such as
/// those of its start. The kernel's page cache keeps them, as it keeps any file, and what is used
/// again is mapped again.
///
/// # Errors
/// `/proc/self/smaps` can't be read, or the kernel refuses.
pub fn give_back_program() -> std::io::Result<()> {
    let here = give_back_program as fn() -> std::io::Result<()> as usize;
    let maps = std::fs::read_to_string("/proc/self/smaps")?;
    for range in unmodified(&maps, here) {
        let start = std::ptr::with_exposed_provenance_mut(range.start);
        // SAFETY: the range is a whole mapping of this process, private and of a file. None of its
        // pages differs from the file, and none will, as it is not writable: the next access reads
        // it from there.
        unsafe {
            rustix::mm::madvise(start, range.len(), rustix::mm::Advice::LinuxDontNeed)?;
        }
    }
    Ok(())
}

/// Returns the mappings in `/proc/self/smaps` of the file that is mapped at an address, as far as
/// they are private, not writable and as the file is.
fn unmodified(maps: &str, address: usize) -> Vec<std::ops::Range<usize>> {
    let mut mappings: Vec<Mapping> = Vec::new();
    for line in maps.lines() {
        match (Mapping::parse(line), mappings.last_mut()) {
            (Some(mapping), _) => mappings.push(mapping),
            (None, Some(last)) => {
                // A page that was modified is in memory or swapped out.
                let modified = ["Anonymous:", "Swap:"];
                let kept = modified.iter().find_map(|it| line.strip_prefix(it));
                last.zeros += u8::from(kept.is_some_and(|it| it.trim() == "0 kB"));
            }
            (None, None) => {}
        }
    }
    let at = |mapping: &&Mapping| mapping.range.contains(&address);
    let Some(file) = mappings.iter().find(at).map(|it| it.file) else {
        return Vec::new();
    };
    let fits = |it: &&Mapping| it.is_read_only && it.zeros == 2 && it.file == file;
    let fitting = mappings.iter().filter(fits);
    fitting.map(|it| it.range.clone()).collect()
}

/// A part of a file that is mapped.
struct Mapping<'a> {
    range: std::ops::Range<usize>,
    is_read_only: bool,
    /// Its device and inode.
    file: (&'a str, &'a str),
    /// How many of its two sizes of modified pages are zero.
    zeros: u8,
}

impl<'a> Mapping<'a> {
    /// Reads the line that begins a mapping of a file; `None` for any other.
    fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let start = usize::from_str_radix(start, 16).ok()?;
        let end = usize::from_str_radix(end, 16).ok()?;
        let rights = fields.next()?;
        let file = (fields.nth(1)?, fields.next()?);
        Some(Self {
            range: start..end,
            is_read_only: matches!(rights, "r--p" | "r-xp") && file.1 != "0",
            file,
            zeros: 0,
        })
    }
}

#[cfg(feature = "jemalloc")]
mod jemalloc {
    use std::ffi::c_char;

    /// Few arenas: threads that allocate little gain nothing from one of their own, and what one
    /// thread frees is of use to others. Unused pages go back to the kernel after a second.
    const OPTIONS: &std::ffi::CStr = c"narenas:4,dirty_decay_ms:1000,muzzy_decay_ms:0";

    /// Where jemalloc looks for options of the program. `_RJEM_MALLOC_CONF` in the environment goes
    /// before them.
    #[unsafe(export_name = "_rjem_malloc_conf")]
    #[used]
    // SAFETY: the pointer is to a constant that ends in a zero byte, and is never written to.
    static MALLOC_CONF: Option<&c_char> = Some(unsafe { &*OPTIONS.as_ptr() });

    /// Gives pages back to the kernel of which nothing is in use.
    pub fn give_back() {
        // `MALLCTL_ARENAS_ALL` of jemalloc's manual.
        let purge_all = c"arena.4096.purge";
        // SAFETY: the name ends in a zero byte, and this control reads and writes no value. Memory
        // that is in use is not touched. Where it is refused, some memory is kept.
        let _refused = unsafe {
            tikv_jemalloc_sys::mallctl(
                purge_all.as_ptr(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                0,
            )
        };
    }
}

#[cfg(test)]
mod tests_of_program {
    use super::*;

    #[test]
    fn a_program_that_was_given_back_runs_on() {
        for _ in 0..3 {
            give_back_program().unwrap();
            assert_eq!("1,2".split(',').count(), 2);
        }
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        assert!(!unmodified(&maps, give_back_program as fn() -> _ as usize).is_empty());
    }

    #[test]
    fn only_what_is_as_the_file_of_the_program_and_stays_so_is_given_back() {
        let maps = |rights: &str, file: &str, anonymous: &str| {
            format!(
                "1000-2000 r-xp 00000000 fe:00 7 /program\nSize: 4 kB\nAnonymous:         0 kB\n\
                 Swap:              0 kB\n3000-4000 {rights} 00002000 {file} /name\n\
                 Anonymous:       {anonymous} kB\nSwap:       0 kB\n"
            )
        };
        let given = |maps: &str| unmodified(maps, 0x1000).contains(&(0x3000..0x4000));
        assert!(given(&maps("r--p", "fe:00 7", "0")));
        for rights in ["rwxp", "r-xs", "rw-p"] {
            assert!(!given(&maps(rights, "fe:00 7", "0")), "{rights}");
        }
        assert!(!given(&maps("r--p", "fe:00 7", "4")), "relocations");
        let swapped = maps("r--p", "fe:00 7", "0").replace("Swap:       0", "Swap:       4");
        assert!(!given(&swapped), "relocations");
        assert!(!given(&maps("r--p", "fe:00 8", "0")), "another file");
        assert_eq!(unmodified(&maps("r--p", "fe:00 7", "0"), 0x1000).len(), 2);
        assert_eq!(unmodified(&maps("r--p", "fe:00 7", "0"), 0x2000), []);
        let nameless = "1000-2000 r-xp 00000000 00:00 0\nAnonymous: 0 kB\nSwap: 0 kB\n";
        assert_eq!(unmodified(nameless, 0x1000), [], "not of a file");
        for bad in ["", "x-y r-xp", "Anonymous: 0 kB", "1000-2000 r-xp 0"] {
            assert_eq!(unmodified(bad, 0), []);
        }
    }
}

#[cfg(all(test, feature = "jemalloc"))]
mod tests {
    use super::*;

    #[global_allocator]
    static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

    fn control(name: &std::ffi::CStr) -> u32 {
        let mut value: u32 = 0;
        let mut size = size_of::<u32>();
        // SAFETY: the control has a value of this type, which is written to.
        let refused = unsafe {
            tikv_jemalloc_sys::mallctl(
                name.as_ptr(),
                (&raw mut value).cast(),
                &raw mut size,
                std::ptr::null_mut(),
                0,
            )
        };
        assert_eq!(refused, 0);
        value
    }

    #[test]
    fn the_allocator_is_set_up_as_is_said_here() {
        assert_eq!(control(c"opt.narenas"), 4);
    }

    #[test]
    fn what_is_in_use_stays_as_it_is() {
        let kept: Vec<Vec<u8>> = (0..100).map(|byte| vec![byte; 5000]).collect();
        drop(vec![0_u8; 1 << 20]);
        give_back();
        for (byte, block) in (0..100).zip(&kept) {
            assert_eq!(block, &vec![byte; 5000]);
        }
    }
}
