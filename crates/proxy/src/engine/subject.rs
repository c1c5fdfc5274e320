//! What events are about: the numbers that sockets are watched under. Pure.

use super::slab::Key;

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Acceptor(Key),
    ProxyHeaderReader(Key),
    Client(Key),
    Member(u32),
    Port(Key),
    Flow(Key),
    Time,
    Task(Key),
}

// === impl Subject ===

impl Subject {
    const SHIFT: u32 = 60;

    /// The number under which a socket is watched.
    pub(super) fn token(self) -> u64 {
        let (kind, bits) = match self {
            Self::Acceptor(key) => (1, key.pack()),
            Self::ProxyHeaderReader(key) => (2, key.pack()),
            Self::Client(key) => (3, key.pack()),
            Self::Member(number) => (4, u64::from(number)),
            Self::Port(key) => (5, key.pack()),
            Self::Flow(key) => (6, key.pack()),
            Self::Time => (7, 0),
            Self::Task(key) => (8, key.pack()),
        };
        kind << Self::SHIFT | bits
    }

    /// What a number stands for.
    pub(super) fn of(token: u64) -> Option<Self> {
        let key = Key::unpack(token);
        match token >> Self::SHIFT {
            1 => Some(Self::Acceptor(key)),
            2 => Some(Self::ProxyHeaderReader(key)),
            3 => Some(Self::Client(key)),
            4 => Some(Self::Member(key.index)),
            5 => Some(Self::Port(key)),
            6 => Some(Self::Flow(key)),
            7 => Some(Self::Time),
            8 => Some(Self::Task(key)),
            _ => None,
        }
    }
}

/// The number of a client's socket.
pub(super) fn client_token(key: Key) -> u64 {
    Subject::Client(key).token()
}

/// The number of a member's socket.
pub(super) fn member_token(number: u32) -> u64 {
    Subject::Member(number).token()
}

#[cfg(test)]
mod tests {
    use super::super::slab::Slab;
    use super::*;

    #[test]
    fn a_subject_is_found_again_by_its_token() {
        let key = Slab::default().insert_with(|_| ());
        let subjects = [
            Subject::Acceptor(key),
            Subject::ProxyHeaderReader(key),
            Subject::Client(key),
            Subject::Member(7),
            Subject::Port(key),
            Subject::Flow(key),
            Subject::Time,
            Subject::Task(key),
        ];
        for subject in subjects {
            assert_eq!(Subject::of(subject.token()), Some(subject));
        }
        assert_eq!(Subject::of(0), None);
    }
}
