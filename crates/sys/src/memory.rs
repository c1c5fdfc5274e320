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

/// Gives pages of this program's code back that are not in use at present, such as those of its
/// start. The kernel's page cache keeps them, as it keeps any file, and what is run again is mapped
/// again.
///
/// # Errors
/// `/proc/self/maps` can't be read, or the kernel refuses.
pub fn give_back_code() -> std::io::Result<()> {
    let here = give_back_code as fn() -> std::io::Result<()> as usize;
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let Some(code) = maps.lines().find_map(|line| code_with(line, here)) else {
        return Ok(());
    };
    let start = std::ptr::with_exposed_provenance_mut(code.start);
    // SAFETY: the range is a whole mapping of this process, private, of a file and not writable, so
    // that no page of it differs from the file: the next access reads it from there. No pointer of
    // Rust's leads into it but those to functions and constants.
    unsafe {
        rustix::mm::madvise(start, code.len(), rustix::mm::Advice::LinuxDontNeed)?;
    }
    Ok(())
}

/// Returns the range of a line of `/proc/self/maps` (proc_pid_maps(5)) if it has an address and is
/// private, of a file, executable and not writable.
fn code_with(line: &str, address: usize) -> Option<std::ops::Range<usize>> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    let is_code = fields.next()? == "r-xp";
    let is_of_file = fields.nth(2).is_some_and(|inode| inode != "0");
    (is_code && is_of_file && (start..end).contains(&address)).then_some(start..end)
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
mod tests_of_code {
    use super::*;

    #[test]
    fn code_that_was_given_back_runs_on() {
        for _ in 0..3 {
            give_back_code().unwrap();
            assert_eq!("1,2".split(',').count(), 2);
        }
    }

    #[test]
    fn only_code_of_a_file_that_cannot_be_changed_is_given_back() {
        let line = |rights: &str, inode: &str| format!("1000-2000 {rights} 0 fe:00 {inode} /name");
        let with = |rights, inode, address| code_with(&line(rights, inode), address);
        assert_eq!(with("r-xp", "7", 0x1000), Some(0x1000..0x2000));
        assert_eq!(with("r-xp", "7", 0x2000), None, "another mapping");
        for rights in ["rwxp", "r-xs", "r--p", "rw-p"] {
            assert_eq!(with(rights, "7", 0x1000), None, "{rights}");
        }
        assert_eq!(with("r-xp", "0", 0x1000), None, "not of a file");
        assert_eq!(code_with("", 0), None);
        assert_eq!(code_with("x-y r-xp", 0), None);
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
