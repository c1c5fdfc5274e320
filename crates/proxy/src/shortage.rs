//! Failures that are this machine's own: no descriptors, ports or memory, a datagram that is too
//! large, a firewall here. They say nothing about a member. Pure.

use std::io;

/// What failed on this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Shortage {
    /// No descriptor is free, in the process or on the machine.
    Descriptors,
    /// No port is free.
    Ports,
    /// The kernel has no memory for it.
    Memory,
    /// The datagram is larger than the way there can carry.
    Size,
    /// A rule of this machine forbids it.
    Denied,
}

// === impl Shortage ===

impl Shortage {
    /// Every cause, in the order in which totals list them.
    pub const ALL: [Self; 5] = [
        Self::Descriptors,
        Self::Ports,
        Self::Memory,
        Self::Size,
        Self::Denied,
    ];

    /// The metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Descriptors => "descriptors",
            Self::Ports => "ports",
            Self::Memory => "memory",
            Self::Size => "size",
            Self::Denied => "denied",
        }
    }

    /// Returns what a failure to connect or to send means, if it is of this side. A socket that
    /// would block is for the caller to see to, once it is connected.
    pub fn of(error: &io::Error) -> Option<Self> {
        match error.raw_os_error()? {
            // ENFILE, EMFILE.
            23 | 24 => Some(Self::Descriptors),
            // EAGAIN (UDP), EADDRINUSE, EADDRNOTAVAIL.
            11 | 98 | 99 => Some(Self::Ports),
            // ENOMEM, ENOBUFS.
            12 | 105 => Some(Self::Memory),
            // EMSGSIZE.
            90 => Some(Self::Size),
            // EPERM. EACCES may be what a router said.
            1 => Some(Self::Denied),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_this_machine_are_distinguished_from_those_of_the_member() {
        let of = |code| Shortage::of(&io::Error::from_raw_os_error(code));
        assert_eq!(of(libc_code::EMFILE), Some(Shortage::Descriptors));
        assert_eq!(of(libc_code::EAGAIN), Some(Shortage::Ports));
        assert_eq!(of(libc_code::EMSGSIZE), Some(Shortage::Size));
        for member in [libc_code::ECONNREFUSED, libc_code::EHOSTUNREACH] {
            assert_eq!(of(member), None);
        }
        assert_eq!(Shortage::of(&io::ErrorKind::TimedOut.into()), None);
    }

    /// The numbers of Linux.
    mod libc_code {
        pub const EAGAIN: i32 = 11;
        pub const EMFILE: i32 = 24;
        pub const EMSGSIZE: i32 = 90;
        pub const ECONNREFUSED: i32 = 111;
        pub const EHOSTUNREACH: i32 = 113;
    }
}
