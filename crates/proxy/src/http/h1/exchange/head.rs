//! The head of a response: read, checked and passed on.

use std::io;
use std::task::{Context, Poll, ready};

use super::super::body::Framing;
use super::super::head::{FieldBuffer, Version};
use super::super::response::{ResponseHead, ResponseStyle};
use super::super::transfer::{Recode, Transfer};
use super::{Down, Exchange, Failure};
use crate::http::MAX_HEAD;
use crate::http::front::Front;
use crate::http::record::Record;
use crate::http::refusal::Refusal;

impl Exchange {
    pub(super) fn poll_head(
        &mut self,
        front: &Front,
        record: &mut Record,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Failure>> {
        loop {
            if self.read_head(front, record)? {
                return Poll::Ready(Ok(()));
            }
            match ready!(self.from_member.poll_fill(&mut self.member, context)) {
                Err(error) if error.kind() == io::ErrorKind::OutOfMemory => {
                    return Poll::Ready(Err(Failure::Refused(Refusal::Share)));
                }
                Ok(0) | Err(_) => return Poll::Ready(Err(self.no_head())),
                Ok(count) => self.heads_read += count as u64,
            }
        }
    }

    /// Reads the head of a response from what arrived, if it is all there, and begins to pass it
    /// on.
    fn read_head(&mut self, front: &Front, record: &mut Record) -> Result<bool, Failure> {
        let bytes = self.from_member.bytes();
        if bytes.is_empty() {
            return Ok(false);
        }
        let mut buffer = FieldBuffer::new();
        let head = match ResponseHead::read(bytes, &mut buffer, self.request) {
            Ok(Some(head)) => head,
            Ok(None) if bytes.len() < MAX_HEAD => return Ok(false),
            Ok(None) | Err(_) => return Err(Failure::Refused(Refusal::MemberFailed)),
        };
        let response = head.facts();
        let version = self.request.version;
        let mut out = std::mem::take(&mut self.spare);
        out.clear();
        if matches!(response.status, 100 | 102..=199) {
            if !self.interims.allow(response.length) {
                return Err(Failure::Refused(Refusal::MemberFailed));
            }
            let style = ResponseStyle {
                version,
                keep_alive: true,
                enchunk: false,
            };
            // HTTP/1.0 knows no interim responses.
            if version == Version::Http11 {
                head.write(style, &mut out);
            }
            self.from_member.consume(response.length);
            self.down = Down::Interim(Transfer::new(out, Framing::Empty, Recode::Raw));
            return Ok(true);
        }
        record.responded(front, response.status);
        let (recode, known_end) = match (response.framing, version) {
            (Framing::UntilClose, Version::Http11) => (Recode::Enchunk, true),
            (Framing::UntilClose, Version::Http10) => (Recode::Raw, false),
            (Framing::Chunked, Version::Http10) => (Recode::Dechunk, false),
            (Framing::Empty | Framing::Length(_) | Framing::Chunked, _) => (Recode::Raw, true),
        };
        // A client that is still sending may never come to its end: what it sends after this
        // response could not be distinguished from the next request.
        let keep_client =
            known_end && self.request.keep_alive && self.up.is_done() && !front.is_draining();
        let enchunk = recode == Recode::Enchunk;
        head.write(
            ResponseStyle {
                version,
                keep_alive: keep_client,
                enchunk,
            },
            &mut out,
        );
        self.from_member.consume(response.length);
        let transfer = Transfer::new(out, response.framing, recode).merging();
        self.down = Down::Body {
            transfer,
            response,
            keep_client,
        };
        Ok(true)
    }

    /// The member ended the connection where a response should have begun.
    fn no_head(&self) -> Failure {
        if self.heads_read > 0 {
            return Failure::Refused(Refusal::MemberFailed);
        }
        Failure::Unanswered {
            refusal: Refusal::MemberFailed,
            was_asked: !self.waits_for_client(),
            may_retry: self.request.may_be_repeated() || self.up.written() == 0,
        }
    }
}
