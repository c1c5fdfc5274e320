//! A coarse monotonic clock: exact to a few milliseconds, and read without a system call.

use crate::check;

/// Milliseconds since some fixed point in the past, as of the kernel's last tick.
pub fn coarse_millis() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a valid place for the result.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    // This clock exists on every Linux that can run Landfall; without it time would stand still.
    debug_assert!(check(result).is_ok());
    now.tv_sec.cast_unsigned() * 1_000 + now.tv_nsec.cast_unsigned() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes() {
        let start = coarse_millis();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while coarse_millis() == start {
            assert!(
                std::time::Instant::now() < deadline,
                "the clock stands still"
            );
            std::thread::yield_now();
        }
        assert!(coarse_millis() > start);
    }
}
