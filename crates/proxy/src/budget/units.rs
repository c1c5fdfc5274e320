//! The units in which memory for buffers is counted, and how much of it the process has.

/// Memory is counted in steps of so many bytes: the smallest buffer there is.
pub(crate) const UNIT: usize = 16 * 1024;

/// Buffers may take this part of what the process may have. The rest is for everything else that
/// it holds, and for what the kernel counts for its sockets.
const PART: u64 = 2;

/// Bytes that buffers of this process may take.
pub(crate) fn of_process() -> u64 {
    landfall_sys::limits::memory() / PART
}

/// Whole units in so many bytes.
pub(crate) fn of(bytes: u64) -> u32 {
    u32::try_from(bytes / UNIT as u64).unwrap_or(u32::MAX)
}

/// Bytes in so many units.
pub(crate) fn bytes(units: u32) -> u64 {
    u64::from(units) * UNIT as u64
}
