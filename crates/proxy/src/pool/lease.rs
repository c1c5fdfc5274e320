//! The member that a connection uses, until it ends.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::member::MemberState;
use super::{Remembered, lock};
use crate::client_table::ClientTable;
use crate::pool::member;
use crate::shortage::Shortage;

/// One connection's hold on a member. Counts as open on the member until dropped.
#[derive(Debug)]
pub struct Lease {
    pub(super) member: Arc<MemberState>,
    pub(super) cuts: u32,
    /// Counts as a try at another member.
    pub(super) retry: bool,
    pub(super) remembered: Option<Box<AffinityUpdate>>,
}

/// What a lease does for affinity when it ends.
#[derive(Debug)]
pub(super) struct AffinityUpdate {
    pub(super) client: IpAddr,
    pub(super) timeout: Duration,
    pub(super) table: Arc<Mutex<ClientTable<Remembered>>>,
}

impl Lease {
    /// Of a member of which a place was taken.
    pub(super) fn new(member: Arc<MemberState>, remembered: Option<Box<AffinityUpdate>>) -> Self {
        Self {
            cuts: member.cuts(),
            member,
            retry: false,
            remembered,
        }
    }

    /// Where to connect to.
    pub fn address(&self) -> SocketAddr {
        self.member.address()
    }

    /// The member's live side, for its counters.
    pub fn member(&self) -> &MemberState {
        &self.member
    }

    /// The member was reached: it is no longer asked last, and the connection counts.
    pub fn connected(&self) {
        self.member.trust(Instant::now);
        self.member.counters().mine().connected();
    }

    /// The member could not be reached: it is asked last for a while. What failed on this side is
    /// not held against it.
    pub fn failed(&self, error: &io::Error) {
        if Shortage::of(error).is_some() {
            return;
        }
        let now = Instant::now();
        self.member.suspect(now, error);
        self.member.note_outlier(now, || member::describe(error));
        self.member.counters().mine().connect_failed();
    }

    /// The member did what was asked of it, as far as is known.
    pub fn succeeded(&self) {
        self.member.note_success();
    }

    /// The member answered a request with this status.
    pub fn answered(&self, status: u16) {
        // What is asked for is not supported. For that, a client need only ask for it, and it says
        // nothing about the member.
        let is_unsupported = matches!(status, 501 | 505);
        if status < 500 {
            self.member.note_success();
        } else if !is_unsupported && self.member.counts_outliers() {
            let why = || format!("it answers with status {status}");
            self.member.note_outlier(Instant::now(), why);
        }
    }

    /// The member took a request and gave no answer.
    pub fn unanswered(&self) {
        if self.member.counts_outliers() {
            let why = || "it does not answer".to_owned();
            self.member.note_outlier(Instant::now(), why);
        }
    }

    /// Whether the connection must end because the member's drain time is over.
    pub fn is_cut(&self) -> bool {
        self.member.cuts() != self.cuts
    }

    /// Completes when the connection must end because the member's drain time is over.
    pub async fn cut(&self) {
        self.member.cut_after(self.cuts).await;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.member.exit();
        if self.retry {
            self.member.end_retry();
        }
        if let Some(remembering) = self.remembered.take() {
            let AffinityUpdate {
                client,
                timeout,
                table,
            } = *remembering;
            // Idle time counts from the end of the last connection.
            let mut table = lock(&table);
            if let Some(known) = table.touch(client)
                && Arc::ptr_eq(&known.member, &self.member)
            {
                known.until = Instant::now() + timeout;
            }
        }
    }
}
