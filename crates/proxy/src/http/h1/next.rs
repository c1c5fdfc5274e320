//! The next request of a connection: waited for, read and checked.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use tokio::time::Instant;

use super::super::MAX_HEAD;
use super::super::fields::Forwarding;
use super::super::front::{ClientStream, Settings};
use super::super::record::Record;
use super::super::redirect::{self, RedirectTarget};
use super::super::refusal::Refusal;
use super::Connection;
use super::head::FieldBuffer;
use super::request::{RequestFacts, RequestHead};
use crate::inbound::Inbound;

/// What comes next on a client's connection.
pub(super) enum Next {
    Request(RequestFacts),
    /// The client is to ask elsewhere.
    Redirect(RequestFacts, Box<RedirectTarget>),
    Refuse(Refusal),
    /// Not HTTP/1 at all, but the beginning of HTTP/2.
    Http2,
    /// Nothing: the client fell silent, or the listener closes.
    End,
    /// Nothing: the client has ended.
    Left,
}

impl<S: ClientStream> Connection<S> {
    /// Waits for the head of a request, and writes it into `upward` for the member.
    pub(super) async fn next(&mut self) -> Next {
        let mut since: Option<Instant> = None;
        let mut begun = !self.input.is_empty();
        let mut searched = 0;
        poll_fn(|context| {
            loop {
                if let Some(next) = self.read_head(&mut searched) {
                    return Poll::Ready(next);
                }
                match self.input.poll_fill(&mut self.client, context) {
                    Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::OutOfMemory => {
                        return Poll::Ready(Next::Refuse(Refusal::Share));
                    }
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Next::Left),
                    Poll::Ready(Ok(count)) => {
                        let counters = self.front.listener().counters();
                        counters.mine().passed(count as u64, 0);
                        continue;
                    }
                    Poll::Pending => {}
                }
                let idle = self.input.is_empty();
                if idle {
                    // Many connections rest here; they should cost little.
                    (self.upward, self.downward) = (Vec::new(), Vec::new());
                }
                // The engine wakes those that rest when the listener closes.
                if idle && self.front.is_closing() {
                    return Poll::Ready(Next::End);
                }
                // The time for the whole head counts from its first byte.
                if since.is_none() || begun == idle {
                    since = Some(Instant::now());
                    begun = !idle;
                }
                let within = self.front.settings().timeouts.client_data;
                let deadline = since.unwrap_or_else(Instant::now) + within;
                return match self.watchdog.poll(deadline, context) {
                    Poll::Ready(()) if idle => Poll::Ready(Next::End),
                    Poll::Ready(()) => Poll::Ready(Next::Refuse(Refusal::ClientTimeout)),
                    Poll::Pending => Poll::Pending,
                };
            }
        })
        .await
    }

    /// Reads the head of a request from what arrived, if it is all there.
    fn read_head(&mut self, searched: &mut usize) -> Option<Next> {
        let bytes = self.input.bytes();
        if self.is_first && !bytes.is_empty() {
            let length = bytes.len().min(HTTP2_PREFACE.len());
            if bytes.get(..length) == HTTP2_PREFACE.get(..length) {
                return (length == HTTP2_PREFACE.len()).then_some(Next::Http2);
            }
        }
        // Parsing again for each part of a head that comes in drops would be a gift to attackers.
        let complete = !bytes.is_empty()
            && (*searched == 0
                || ends_line_twice(bytes.get(searched.saturating_sub(3)..).unwrap_or_default()));
        *searched = bytes.len();
        if !complete {
            return (bytes.len() >= MAX_HEAD).then_some(Next::Refuse(Refusal::HeadTooLarge));
        }
        let mut buffer = FieldBuffer::new();
        let facts = match RequestHead::read(bytes, &mut buffer) {
            Ok(None) if bytes.len() >= MAX_HEAD => {
                return Some(Next::Refuse(Refusal::HeadTooLarge));
            }
            Ok(None) => return None,
            Err(refusal) => return Some(Next::Refuse(refusal)),
            Ok(Some(head)) if head.facts().length > MAX_HEAD => {
                return Some(Next::Refuse(Refusal::HeadTooLarge));
            }
            Ok(Some(head)) => {
                let mut note = self.front.listener().note(self.inbound.client);
                if let Some(note) = &mut note {
                    head.describe(note);
                }
                self.record = Record::begin(note);
                self.record.passed(head.facts().length as u64, 0);
                let Settings {
                    http,
                    request_rate,
                    redirect,
                    ..
                } = self.front.settings();
                if let Some(redirect) = redirect {
                    let host = head.host().unwrap_or_default();
                    let facts = head.facts();
                    match redirect::elsewhere(redirect, host, head.target()) {
                        Ok(elsewhere) => {
                            self.input.consume(facts.length);
                            return Some(Next::Redirect(facts, Box::new(elsewhere)));
                        }
                        Err(refusal) => return Some(Next::Refuse(refusal)),
                    }
                }
                let Inbound { client, secure, .. } = self.inbound;
                let port = self.front.listener().id().key.port.get();
                let forwarding = Forwarding::new(http, client, secure, port);
                if let Some(rate) = request_rate {
                    let source = head.source(&forwarding);
                    self.excess = self.front.admit(rate, source).err();
                }
                if http.member_http2 {
                    match head.to_http2(&forwarding) {
                        Ok(request) => self.for_http2 = Some(Box::new(request)),
                        Err(refusal) => return Some(Next::Refuse(refusal)),
                    }
                } else {
                    self.upward.clear();
                    head.write(&forwarding, &mut self.upward);
                }
                head.facts()
            }
        };
        self.input.consume(facts.length);
        Some(Next::Request(facts))
    }
}

/// Whether an empty line is in there, after which a head is complete.
fn ends_line_twice(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|&byte| byte == b'\n') {
        rest = rest.get(at + 1..).unwrap_or_default();
        if rest.starts_with(b"\r\n") || rest.starts_with(b"\n") {
            return true;
        }
    }
    false
}

/// What clients begin with that know that HTTP/2 is spoken here (RFC 9113 section 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
