//! HTTP/1.0 and 1.1 clients (RFC 9112): one task per connection, one request after the other.

pub(super) mod body;
mod bridge;
mod exchange;
pub(super) mod head;
mod next;
mod own;
pub(super) mod request;
pub(super) mod response;
mod transfer;
mod tunnel;

use std::future::poll_fn;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use super::buffer::Buffer;
use super::front::{ClientStream, Front, Settings};
use super::record::Record;
use super::refusal::Refusal;
use super::upstream::{Idle, Links, Need, Own};
use super::watchdog::Watchdog;
use crate::access_log;
use crate::budget::units::UNIT;
use crate::dial::{self, MAX_TRIES};
use crate::inbound::Inbound;
use crate::memory::MemoryHold;
use crate::pool::{Lease, Unavailable};
use crate::tls::{Inside, MemberStream};

use self::exchange::{Answered, Exchange, Failure, Scene, poll_gone};
use self::request::RequestFacts;
use next::Next;

/// A head of so many bytes is part of what any connection takes.
const SMALL_HEAD: usize = 8 * 1024;

/// A client's connection.
pub(super) struct Connection<S> {
    front: Arc<Front>,
    client: S,
    inbound: Inbound,
    input: Buffer,
    watchdog: Watchdog,
    /// Storage for heads on their way to the member, and to the client.
    upward: Vec<u8>,
    downward: Vec<u8>,
    /// Connections to members that carry the PROXY header of this client.
    own: Option<Own>,
    own_links: Option<Links>,
    /// The request as an HTTP/2 member is to see it, where members speak that.
    for_http2: Option<Box<http::Request<()>>>,
    /// The request that was read last was one too many for this long, in seconds.
    excess: Option<NonZeroU32>,
    /// No request was read yet.
    is_first: bool,
    /// What is measured of the present request.
    record: Record,
}

/// How a client's connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Closed,
    /// Not at all: the client turned out to speak HTTP/2.
    SpeaksHttp2,
}

/// What happens to a client's connection after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Continue,
    /// Ends in good order.
    Close,
    /// Ends in good order, but the client may still be sending.
    Linger,
    /// Ends with an error.
    Abort,
}

// === impl Connection ===

impl<S: ClientStream> Connection<S> {
    /// A connection on which `early` was read already.
    pub(super) fn new(front: Arc<Front>, client: S, inbound: Inbound, early: Buffer) -> Self {
        Self {
            front,
            client,
            inbound,
            input: early,
            watchdog: Watchdog::default(),
            upward: Vec::new(),
            downward: Vec::new(),
            own: None,
            own_links: None,
            for_http2: None,
            excess: None,
            is_first: true,
            record: Record::begin(None),
        }
    }

    /// Serves the client until its connection ends.
    pub(super) async fn run(&mut self) -> Ended {
        loop {
            let then = match self.next().await {
                // A shutdown before the close would change nothing.
                Next::Left if self.client.ends_by_itself() => break,
                Next::Left | Next::End => Then::Close,
                Next::Http2 => return Ended::SpeaksHttp2,
                Next::Refuse(refusal) => {
                    let note = self.front.listener().note(self.inbound.client);
                    self.record = Record::begin(note);
                    let settings = self.front.settings();
                    let then = Box::pin(self.refuse(refusal, None, settings)).await;
                    self.record.over(&self.front);
                    then
                }
                Next::Redirect(facts, elsewhere) => {
                    let settings = self.front.settings();
                    let then = Box::pin(self.send_away(facts, &elsewhere, settings)).await;
                    self.record.over(&self.front);
                    then
                }
                // A box for each, so that connections that rest between requests are small.
                Next::Request(facts) => {
                    let then = Box::pin(self.answer(facts)).await;
                    self.record.over(&self.front);
                    then
                }
            };
            match then {
                Then::Continue => self.is_first = false,
                // A client that sends its requests at once may still be sending.
                Then::Close if !self.input.is_empty() => break self.linger().await,
                Then::Close => break self.close().await,
                Then::Linger => break self.linger().await,
                Then::Abort => break self.client.abort(),
            }
        }
        Ended::Closed
    }

    /// The client, and what it has said that was not used.
    pub(super) fn into_parts(self) -> (S, Buffer) {
        (self.client, self.input)
    }

    async fn answer(&mut self, facts: RequestFacts) -> Then {
        // They may have changed while the client took its time.
        let settings = self.front.settings();
        let for_http2 = self.for_http2.take();
        if let Some(seconds) = self.excess.take() {
            let refusal = Refusal::TooMany(seconds);
            return self.refuse(refusal, Some(facts), settings).await;
        }
        let _paid = match self.pay_for_head(facts) {
            Ok(paid) => paid,
            Err(refusal) => return self.refuse(refusal, Some(facts), settings).await,
        };
        match for_http2 {
            Some(head) => Box::pin(self.answer_over_http2(facts, &head, settings)).await,
            None => self.answer_over_http1(facts, &settings).await,
        }
    }

    /// Pays for the head of a request, which is here until its member has answered, if it is long.
    /// Fails if there is no memory for it.
    fn pay_for_head(&self, request: RequestFacts) -> Result<Option<MemoryHold>, Refusal> {
        match (request.length, self.input.payer()) {
            (..=SMALL_HEAD, _) | (_, None) => Ok(None),
            (length, Some(payer)) => {
                let units = u8::try_from(length.div_ceil(UNIT)).unwrap_or(u8::MAX);
                payer.take(units).map(Some).ok_or(Refusal::Share)
            }
        }
    }

    /// Has a member answer the request whose head is in `upward`.
    async fn answer_over_http1(&mut self, request: RequestFacts, settings: &Settings) -> Then {
        let mut tried: Vec<SocketAddr> = Vec::new();
        let mut refusal = Refusal::NoMember;
        while tried.len() < MAX_TRIES {
            let lease = match self.member(&tried, request).await {
                Some(Ok(lease)) => lease,
                Some(Err(why)) if tried.is_empty() => {
                    refusal = why.into();
                    break;
                }
                Some(Err(_)) => break,
                None => return Then::Abort,
            };
            match self.answer_by(&lease, request, settings).await {
                Ok(answered) => return self.after(answered, &lease, settings).await,
                Err(Failure::Unanswered {
                    refusal: why,
                    may_retry,
                    ..
                }) => {
                    refusal = why;
                    if !may_retry {
                        break;
                    }
                    tried.push(lease.address());
                }
                Err(Failure::Refused(refusal)) => {
                    return self.refuse(refusal, Some(request), *settings).await;
                }
                Err(Failure::Broken(why)) => {
                    self.record.ends(why);
                    return Then::Abort;
                }
            }
        }
        self.refuse(refusal, Some(request), *settings).await
    }

    /// Chooses a member, for which the request may have to wait; `None`: its client left meanwhile.
    async fn member(
        &mut self,
        tried: &[SocketAddr],
        request: RequestFacts,
    ) -> Option<Result<Lease, Unavailable>> {
        let front = self.front.clone();
        let pool = front.listener().pool();
        match pool.try_pick(self.inbound.client, tried) {
            Err(Unavailable::Full) if tried.is_empty() => {}
            picked => return Some(picked),
        }
        let mut waits = pin!(pool.wait(self.inbound.client));
        poll_fn(|context| {
            if let Poll::Ready(picked) = waits.as_mut().poll(context) {
                return Poll::Ready(Some(picked));
            }
            // What comes next may be its body.
            if !request.framing.is_empty() {
                return Poll::Pending;
            }
            poll_gone(&front, &mut self.client, &mut self.input, context).map(|()| None)
        })
        .await
    }

    /// Has one member answer, over a kept connection or a new one.
    async fn answer_by(
        &mut self,
        lease: &Lease,
        request: RequestFacts,
        settings: &Settings,
    ) -> Result<Answered, Failure> {
        let member = lease.address();
        self.record.asks(member);
        let need = if request.may_be_repeated() {
            Need::Open
        } else {
            Need::SurelyOpen
        };
        let tls = self.front.toward_members();
        if let Some(stream) = self.idle(settings).take(member, need, tls.as_ref()) {
            let answered = self
                .exchange((stream, true), lease, request, settings)
                .await;
            match answered {
                // The member closed the connection just when it was to be used: no failure of its
                // own.
                Err(Failure::Unanswered {
                    may_retry: true, ..
                }) => {}
                answered => return answered,
            }
        }
        let within = settings.timeouts.member_connect;
        let tls = (tls.as_ref(), Inside::Http1);
        match dial::reach(member, within, settings.introduce, tls, &self.inbound).await {
            Ok(stream) => {
                self.exchange((stream, false), lease, request, settings)
                    .await
            }
            Err(error) => {
                let refusal = self.front.connect_failed(lease, &error);
                Err(Failure::Unanswered {
                    refusal,
                    may_retry: true,
                    was_asked: false,
                })
            }
        }
    }

    async fn exchange(
        &mut self,
        (stream, kept): (MemberStream, bool),
        lease: &Lease,
        request: RequestFacts,
        settings: &Settings,
    ) -> Result<Answered, Failure> {
        lease.connected();
        let heads = (
            std::mem::take(&mut self.upward),
            std::mem::take(&mut self.downward),
        );
        let from_member = Buffer::beside(&self.input);
        let member = (stream, from_member);
        let mut exchange = Exchange::new(member, request, settings.timeouts, heads);
        let scene = Scene {
            front: &self.front,
            lease,
            client: &mut self.client,
            input: &mut self.input,
            watchdog: &mut self.watchdog,
            record: &mut self.record,
        };
        let finished = exchange.run(scene).await;
        let (result, heads) = exchange.into_result(finished);
        (self.upward, self.downward) = heads;
        result.inspect_err(|failure| {
            if failure.is_of_member(kept) {
                lease.unanswered();
            }
        })
    }

    async fn after(&mut self, answered: Answered, lease: &Lease, settings: &Settings) -> Then {
        match answered {
            Answered::Whole { member, then } => {
                self.record.ends_well();
                if let Some(stream) = member {
                    match &self.own {
                        Some(own) if settings.introduce.is_some() => {
                            let account = self.front.listener().account();
                            own.put(lease.address(), stream, account);
                        }
                        _ => self.front.keep(lease.address(), stream),
                    }
                }
                then
            }
            Answered::Switched { member, early } => {
                let counters = self.front.listener().counters().mine();
                let time_limit = settings
                    .timeouts
                    .client_data
                    .max(settings.timeouts.member_data);
                let sides = (&mut self.client, &mut self.input);
                let passed = tunnel::run(
                    sides,
                    (member, early),
                    &mut self.watchdog,
                    lease,
                    time_limit,
                )
                .await;
                counters.passed(passed.upward, passed.downward);
                lease
                    .member()
                    .counters()
                    .mine()
                    .passed(passed.upward, passed.downward);
                self.record.passed(passed.upward, passed.downward);
                if passed.end == tunnel::End::InOrder {
                    self.record.ends_well();
                } else {
                    self.record.ends(access_log::BROKEN);
                }
                match passed.end {
                    tunnel::End::InOrder
                    | tunnel::End::Deserted
                    | tunnel::End::Cut { client: true, .. } => Then::Close,
                    tunnel::End::Cut { client: false, .. } | tunnel::End::Broken => Then::Abort,
                }
            }
        }
    }

    /// Where connections for this request are kept.
    fn idle(&mut self, settings: &Settings) -> &Idle {
        if settings.introduce.is_some() {
            self.own.get_or_insert_default().idle()
        } else {
            self.front.idle()
        }
    }
}
