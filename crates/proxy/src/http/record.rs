//! What is measured and noted of one request, from its head to the end of its response.

use std::net::SocketAddr;
use std::time::Instant;

use super::front::Front;
use super::refusal::Refusal;
use crate::access_log::{self, End, Note};
use crate::counters::Span;

/// A request under way.
#[derive(Debug)]
pub(super) struct Record {
    began: Instant,
    /// A line of the access log, where there is one.
    note: Option<Box<Note>>,
}

// === impl Record ===

impl Record {
    /// A request begins.
    pub(super) fn begin(note: Option<Box<Note>>) -> Self {
        Self {
            began: Instant::now(),
            note,
        }
    }

    /// A member is asked.
    pub(super) fn asks(&mut self, member: SocketAddr) {
        if let Some(note) = &mut self.note {
            note.facts().member = Some(member);
        }
    }

    /// The head of the response is there.
    pub(super) fn responded(&mut self, front: &Front, status: u16) {
        front.responded(status);
        self.first_byte(front, status);
    }

    /// The response comes from here.
    pub(super) fn refused(&mut self, front: &Front, refusal: Refusal) {
        front.refused(refusal);
        self.first_byte(front, refusal.status().as_u16());
        self.ends(refusal.as_str());
    }

    fn first_byte(&mut self, front: &Front, status: u16) {
        let first = self.began.elapsed();
        front.took(Span::FirstByte, first);
        if let Some(note) = &mut self.note {
            let facts = note.facts();
            (facts.status, facts.first_byte) = (status, Some(first));
        }
    }

    /// Bytes passed: from the client, and to the client.
    pub(super) fn passed(&mut self, bytes_in: u64, bytes_out: u64) {
        if let Some(note) = &mut self.note {
            note.facts().bytes_in += bytes_in;
            note.facts().bytes_out += bytes_out;
        }
    }

    /// What will have been the end, unless something else happens.
    pub(super) fn ends(&mut self, end: End) {
        if let Some(note) = &mut self.note {
            note.facts().end = end;
        }
    }

    /// All has passed. What was refused stays refused.
    pub(super) fn ends_well(&mut self) {
        if let Some(note) = &mut self.note
            && matches!(note.facts().end, access_log::CUT | access_log::CLIENT_ABORT)
        {
            note.facts().end = access_log::OK;
        }
    }

    /// It is over, and its line is written.
    pub(super) fn over(&mut self, front: &Front) {
        front.took(Span::Request, self.began.elapsed());
        self.note = None;
    }
}
