//! The start of a speaker: it asks other hosts for what it is about to announce, and takes part.

use landfall_engine::report::OwnReport;
use landfall_l2::fsm::State;
use tracing::info;

use super::Speaker;

// === impl Speaker ===

impl<R: OwnReport> Speaker<R> {
    /// Takes other nodes for what they are while this node asks: they may answer.
    pub(super) fn keep_asking(&mut self) {
        if self.wanted.announcements.is_empty() {
            return;
        }
        let peers = self.decider.wanted().peers;
        if self.wanted.peers != peers {
            self.wanted.peers = peers;
            self.parts.announcer.set(self.wanted.clone());
        }
    }

    /// Takes part in announcing, from now on.
    pub(super) async fn take_part(&mut self) {
        self.found_at = None;
        self.is_ready = true;
        self.decider.set_current();
        self.initial = self.decider.wanted().announcements.into_keys().collect();
        info!(node = %self.parts.node, "this node takes part in announcing addresses");
        for report in std::mem::take(&mut self.early) {
            // It may have been another node that was not known yet.
            let status = self.announced.addresses.get(&report.address);
            if status.is_some_and(|it| it.state != State::Announcing) {
                self.report(report).await;
            }
        }
    }
}
