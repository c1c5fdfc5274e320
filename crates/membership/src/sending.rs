//! Whether this node can send at all. Pure: the time comes in.

use std::io::{Error, ErrorKind};
use std::time::{Duration, Instant};

/// What became of the datagrams of this node.
#[derive(Debug)]
pub(crate) struct Sending {
    window: Duration,
    sent: Option<Instant>,
}

// === impl Sending ===

impl Sending {
    /// Has sent nothing yet. `window`: the time within which some datagram leaves a node that can
    /// send.
    pub(crate) fn new(window: Duration) -> Self {
        Self { window, sent: None }
    }

    /// Takes note of a datagram that left.
    pub(crate) fn note_sent(&mut self, now: Instant) {
        self.sent = Some(now);
    }

    /// Returns whether an error, after a while without a datagram that left, means that this node
    /// can send none: its interface is down or has no address, or its firewall refuses them. That
    /// one host is not there does not mean it.
    pub(crate) fn is_unable(&self, error: &Error, now: Instant) -> bool {
        let is_own = matches!(
            error.kind(),
            ErrorKind::NetworkDown
                | ErrorKind::NetworkUnreachable
                | ErrorKind::AddrNotAvailable
                | ErrorKind::PermissionDenied
        );
        let age = self.sent.map(|sent| now.saturating_duration_since(sent));
        is_own && age.is_none_or(|age| age >= self.window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_unable_to_send_once_no_datagram_leaves_for_faults_of_its_own() {
        let (mut sending, began) = (Sending::new(Duration::from_millis(200)), Instant::now());
        let at = |millis| began + Duration::from_millis(millis);
        let down = Error::from(ErrorKind::NetworkUnreachable);
        assert!(sending.is_unable(&down, at(0)));
        sending.note_sent(at(0));
        assert!(!sending.is_unable(&down, at(199)));
        assert!(sending.is_unable(&down, at(200)));
        for kind in [ErrorKind::HostUnreachable, ErrorKind::WouldBlock] {
            assert!(!sending.is_unable(&Error::from(kind), at(500)));
        }
        // Others are reached: that one is not reached is the fault of that one.
        sending.note_sent(at(500));
        assert!(!sending.is_unable(&down, at(501)));
    }
}
