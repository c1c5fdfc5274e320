//! What glibc's allocator holds back for later. Of no effect with another C library.

/// Lets all threads allocate from one place. With one for each thread, which is the default, memory
/// that one thread frees is no good for the others; threads that allocate little gain nothing from
/// it. To be called before other threads start.
pub fn share() {
    #[cfg(target_env = "gnu")]
    // SAFETY: changes one parameter of the allocator, and may be called at any time.
    unsafe {
        // That it is refused would cost some memory.
        let _taken = libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Gives pages back to the kernel of which nothing is in use.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: touches only memory that the allocator knows to be free, under its own locks.
    unsafe {
        let _gave = libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_use_stays_as_it_is() {
        share();
        let kept: Vec<Vec<u8>> = (0..100).map(|byte| vec![byte; 5000]).collect();
        drop(vec![0_u8; 1 << 20]);
        give_back();
        for (byte, block) in (0..100).zip(&kept) {
            assert_eq!(block, &vec![byte; 5000]);
        }
    }
}
