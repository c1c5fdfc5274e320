//! How many bytes an exchange carried, for counters and the access log.

use super::{COUNT_EVERY, Down, Exchange, Scene};

/// Bytes that have moved: from and to the client, to and from the member.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) from_client: u64,
    pub(super) to_client: u64,
    pub(super) to_member: u64,
    pub(super) from_member: u64,
}

impl Exchange {
    pub(super) fn tally(&self) -> Tally {
        let (read, written) = match &self.down {
            Down::Head => (0, 0),
            Down::Interim(transfer) | Down::Body { transfer, .. } => {
                (transfer.read(), transfer.written())
            }
        };
        Tally {
            from_client: self.up.read(),
            to_client: self.interim_written + written,
            to_member: self.up.written(),
            from_member: self.heads_read + read,
        }
    }

    pub(super) fn count<S>(&mut self, scene: &mut Scene<'_, S>, last: bool) {
        let (now, before) = (self.tally(), self.counted);
        let upward = (now.from_client - before.from_client).max(now.to_member - before.to_member);
        let downward = (now.to_client - before.to_client).max(now.from_member - before.from_member);
        if !last && upward + downward < COUNT_EVERY {
            return;
        }
        scene.front.listener().counters().mine().passed(
            now.from_client - before.from_client,
            now.to_client - before.to_client,
        );
        scene.lease.member().counters().mine().passed(
            now.to_member - before.to_member,
            now.from_member - before.from_member,
        );
        self.counted = now;
        if last {
            // Of the request's body, some came with its head.
            let body = now.to_member.saturating_sub(self.head_length);
            scene.record.passed(body, now.to_client);
        }
    }
}
