//! How the kernel schedules a thread that must not be late.

use std::io;

use crate::check;

/// Schedules the calling thread before all threads without real-time priority (`SCHED_FIFO`). Takes
/// the capability `SYS_NICE` or a limit `RLIMIT_RTPRIO`. Threads that it starts are ordinary.
pub fn real_time(priority: i32) -> io::Result<()> {
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the parameters live across the call; 0 is the calling thread.
    check(unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) }).map(drop)
}

/// Gives the calling thread the largest share that an ordinary thread can have. Takes the
/// capability `SYS_NICE`.
pub fn favour() -> io::Result<()> {
    // SAFETY: no pointers; 0 is the calling thread.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) }).map(drop)
}

/// Returns whether the calling thread has real-time priority.
pub fn is_real_time() -> io::Result<bool> {
    // SAFETY: no pointers; 0 is the calling thread.
    let policy = check(unsafe { libc::sched_getscheduler(0) })?;
    Ok(policy & !libc::SCHED_RESET_ON_FORK == libc::SCHED_FIFO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_ordinary_until_it_asks() {
        std::thread::spawn(|| {
            assert!(!is_real_time().unwrap());
            // Containers may be refused; both answers must be true.
            let granted = real_time(10).is_ok();
            assert_eq!(is_real_time().unwrap(), granted);
            assert!(
                !std::thread::spawn(|| is_real_time().unwrap())
                    .join()
                    .unwrap()
            );
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_priority_that_does_not_exist_is_refused() {
        let refused = real_time(1_000).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }
}
