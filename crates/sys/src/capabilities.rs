//! Capabilities of the process (capabilities(7)).

use std::io;

use rustix::thread::{capabilities, set_capabilities};

/// Makes every capability that the calling thread may use effective. Threads inherit it, so it is
/// called before there are others.
///
/// A process of a user other than root gets what the file of its program permits, and what its
/// container allows; whether it is effective at once, a file can only say of all of them together,
/// and then the program does not start where a container allows fewer.
///
/// # Errors
/// The system does not let the process read or change them.
pub fn raise() -> io::Result<()> {
    let mut sets = capabilities(None)?;
    if sets.effective == sets.permitted {
        return Ok(());
    }
    sets.effective = sets.permitted;
    set_capabilities(None, sets)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::thread::CapabilitySet;

    use super::*;

    #[test]
    fn what_a_thread_may_use_is_effective_afterwards_and_nothing_else() {
        // Of this thread only.
        let mut sets = capabilities(None).unwrap();
        let permitted = sets.permitted & CapabilitySet::NET_RAW;
        sets.permitted = permitted;
        sets.effective = CapabilitySet::empty();
        set_capabilities(None, sets).unwrap();
        raise().unwrap();
        let sets = capabilities(None).unwrap();
        assert_eq!((sets.effective, sets.permitted), (permitted, permitted));
        raise().unwrap();
    }
}
