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
