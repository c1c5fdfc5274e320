//! What is counted of a connection, and how it is said to have ended.

use std::io;

use super::{Connection, End, Step};
use crate::breaks::Break;

impl Connection {
    /// Counts what was passed in each direction, and directions that are lost and were not before.
    pub(super) fn count(&self, passed: [u64; 2], lost: [bool; 2]) {
        if passed == [0, 0] && lost == [self.inward.lost, self.outward.lost] {
            return;
        }
        let counters = self.listener.counters().mine();
        counters.passed(passed[0], passed[1]);
        if self.inward.lost && !lost[0] {
            counters.broke(Break::MemberPipe);
        }
        if self.outward.lost && !lost[1] {
            counters.broke(Break::ClientPipe);
        }
    }

    /// How it ends now that neither side has more to say.
    pub(super) fn agreed(&self) -> End {
        if self.inward.lost || self.outward.lost {
            End::Deserted
        } else {
            End::Agreed
        }
    }

    pub(super) fn broke(&self, how: Break, error: &io::Error) -> Step {
        tracing::trace!(listener = %self.listener.id(), %error, "connection broke");
        self.listener.counters().mine().broke(how);
        Step::End(End::Broken)
    }
}
