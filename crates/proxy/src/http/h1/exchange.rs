//! One request and its response over one connection to a member. Both directions move at the same
//! time, in the task of the client. Decides nothing about other members or about the next request.

mod head;
mod tally;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use landfall_model::listener::Timeouts;
use tokio::time::Instant;

use super::Then;
use super::request::RequestFacts;
use super::response::{Interims, ResponseFacts};
use super::transfer::{Broken, End, Recode, Transfer};
use crate::access_log;
use crate::http::KEPT_WAITING;
use crate::http::buffer::Buffer;
use crate::http::front::{ClientStream, Front};
use crate::http::record::Record;
use crate::http::refusal::Refusal;
use crate::http::watchdog::{Side, Watchdog};
use crate::pool::Lease;
use crate::tls::MemberStream;

use tally::Tally;

/// An exchange that takes longer listens for the end of its member's drain time. Most are over
/// before and need not enter themselves in a list that all workers share.
const LONG: Duration = Duration::from_secs(1);

/// Bytes of a long exchange are counted at least this often.
const COUNT_EVERY: u64 = 1 << 20;

/// What came of an exchange.
#[derive(Debug)]
pub(super) enum Answered {
    /// The client has the response.
    Whole {
        /// The connection to the member, where it can be used again.
        member: Option<MemberStream>,
        then: Then,
    },
    /// The member switched protocols.
    Switched {
        member: MemberStream,
        /// Bytes that came after the head of the response.
        early: Buffer,
    },
}

/// Why there was none, or no whole one.
#[derive(Debug)]
pub(super) enum Failure {
    /// The member failed before any part of a response, and nothing has gone to the client.
    Unanswered {
        /// The response to the client if nothing else answers.
        refusal: Refusal,
        /// The request can be sent to another member, or once more.
        may_retry: bool,
        /// The member had all of the request that there is to have. One that gave up a client
        /// which kept it waiting did not fail.
        was_asked: bool,
    },
    /// Nothing has gone to the client, which gets this response.
    Refused(Refusal),
    /// The client has a part of the response, or is gone. Why, for the access log.
    Broken(access_log::End),
}

/// An exchange under way.
pub(super) struct Exchange {
    member: MemberStream,
    from_member: Buffer,
    request: RequestFacts,
    timeouts: Timeouts,
    up: Transfer,
    /// The member takes no more of the request. It may have answered before.
    up_failed: bool,
    down: Down,
    /// Storage for the head of the response.
    spare: Vec<u8>,
    /// Of the request, as it goes to the member.
    head_length: u64,
    started: Instant,
    client: Side,
    server: Side,
    /// Bytes that were read while waiting for heads, and written of interim responses.
    heads_read: u64,
    interim_written: u64,
    interims: Interims,
    counted: Tally,
}

/// What an exchange works with.
pub(super) struct Scene<'s, S> {
    pub(super) front: &'s Front,
    pub(super) lease: &'s Lease,
    pub(super) client: &'s mut S,
    pub(super) input: &'s mut Buffer,
    pub(super) watchdog: &'s mut Watchdog,
    pub(super) record: &'s mut Record,
}

/// Storage of the heads of the request and of the response.
pub(super) type Heads = (Vec<u8>, Vec<u8>);

enum Down {
    /// Waiting for the head of a response.
    Head,
    /// Passing on an interim response (1xx), after which another head comes.
    Interim(Transfer),
    Body {
        transfer: Transfer,
        response: ResponseFacts,
        keep_client: bool,
    },
}

/// How a run ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Finish {
    Whole { reuse: bool, then: Then },
    Switched,
}

// === impl Failure ===

impl Failure {
    /// Whether the member failed. One that was `kept` may have closed the connection before it saw
    /// the request.
    pub(super) fn is_of_member(&self, kept: bool) -> bool {
        match self {
            Self::Unanswered { was_asked, .. } => *was_asked && !kept,
            Self::Refused(refusal) => refusal.is_for_want_of_members(),
            Self::Broken(_) => false,
        }
    }

    /// A response broke while it was passed on.
    fn of_response(broken: &Broken) -> Self {
        Self::Broken(match broken {
            Broken::Write(_) => access_log::CLIENT_ABORT,
            Broken::Share => access_log::SHARE,
            Broken::Body(_) | Broken::Read(_) | Broken::Ended => access_log::MEMBER_FAILED,
        })
    }
}

// === impl Exchange ===

impl Exchange {
    /// Sends the head in `heads`, then the body that the request announces.
    pub(super) fn new(
        (member, from_member): (MemberStream, Buffer),
        request: RequestFacts,
        timeouts: Timeouts,
        heads: Heads,
    ) -> Self {
        let started = Instant::now();
        Self {
            member,
            from_member,
            request,
            timeouts,
            head_length: heads.0.len() as u64,
            up: Transfer::new(heads.0, request.framing, Recode::Raw),
            up_failed: false,
            down: Down::Head,
            spare: heads.1,
            started,
            client: Side::new(started),
            server: Side::new(started),
            heads_read: 0,
            interim_written: 0,
            interims: Interims::default(),
            counted: Tally::default(),
        }
    }

    /// Runs to the end of the response.
    pub(super) async fn run<S: ClientStream>(
        &mut self,
        mut scene: Scene<'_, S>,
    ) -> Result<Finish, Failure> {
        let mut cut = pin!(scene.lease.cut());
        poll_fn(|context| {
            let mut result = self.poll(&mut scene, context);
            if result.is_pending() && self.poll_abort(&mut scene, context).is_ready() {
                result = Poll::Ready(Err(Failure::Broken(access_log::CLIENT_ABORT)));
            }
            self.count(&mut scene, result.is_ready());
            match result {
                Poll::Pending => self
                    .poll_clock(scene.watchdog, cut.as_mut(), context)
                    .map(Err),
                ready @ Poll::Ready(_) => ready,
            }
        })
        .await
    }

    /// What came of it. The head of a request without a body comes back intact.
    pub(super) fn into_result(
        self,
        finished: Result<Finish, Failure>,
    ) -> (Result<Answered, Failure>, Heads) {
        let down = match self.down {
            Down::Head => self.spare,
            Down::Interim(transfer) | Down::Body { transfer, .. } => transfer.into_head(),
        };
        let result = finished.map(|finish| match finish {
            Finish::Switched => Answered::Switched {
                member: self.member,
                early: self.from_member,
            },
            Finish::Whole { reuse, then } => Answered::Whole {
                member: reuse.then_some(self.member),
                then,
            },
        });
        (result, (self.up.into_head(), down))
    }

    fn poll<S: ClientStream>(
        &mut self,
        scene: &mut Scene<'_, S>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Finish, Failure>> {
        self.poll_up(scene, context)?;
        loop {
            match &mut self.down {
                Down::Head => {
                    ready!(self.poll_head(scene.front, scene.record, context))?;
                    if let Down::Body { response, .. } = &self.down {
                        scene.lease.answered(response.status);
                    }
                }
                Down::Interim(transfer) => {
                    let (member, input) = (&mut self.member, &mut self.from_member);
                    ready!(transfer.poll(member, input, scene.client, context))
                        .map_err(|broken| Failure::of_response(&broken))?;
                    self.interim_written += transfer.written();
                    if let Down::Interim(transfer) = std::mem::replace(&mut self.down, Down::Head) {
                        self.spare = transfer.into_head();
                    }
                }
                Down::Body {
                    transfer,
                    response,
                    keep_client,
                } => {
                    let (member, input) = (&mut self.member, &mut self.from_member);
                    ready!(transfer.poll(member, input, scene.client, context))
                        .map_err(|broken| Failure::of_response(&broken))?;
                    if response.status == 101 {
                        return Poll::Ready(Ok(Finish::Switched));
                    }
                    let then = match (self.up.is_done(), keep_client) {
                        (true, true) => Then::Continue,
                        (true, false) => Then::Close,
                        (false, _) => Then::Linger,
                    };
                    let reuse =
                        response.keep_alive && self.up.is_done() && self.from_member.is_empty();
                    return Poll::Ready(Ok(Finish::Whole { reuse, then }));
                }
            }
        }
    }

    fn poll_up<S: ClientStream>(
        &mut self,
        scene: &mut Scene<'_, S>,
        context: &mut Context<'_>,
    ) -> Result<(), Failure> {
        if self.up_failed {
            return Ok(());
        }
        match self
            .up
            .poll(scene.client, scene.input, &mut self.member, context)
        {
            Poll::Pending | Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(Broken::Write(_))) => self.up_failed = true,
            Poll::Ready(Err(Broken::Body(_))) if !self.has_begun() => {
                return Err(Failure::Refused(Refusal::Malformed("the body is broken")));
            }
            Poll::Ready(Err(Broken::Share)) => return Err(self.fail(Refusal::Share)),
            Poll::Ready(Err(Broken::Body(_) | Broken::Read(_) | Broken::Ended)) => {
                return Err(Failure::Broken(access_log::CLIENT_ABORT));
            }
        }
        Ok(())
    }

    /// Ready when the client has left, after all of its request and before the end of the response.
    fn poll_abort<S: ClientStream>(
        &self,
        scene: &mut Scene<'_, S>,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        if !self.up.is_done() {
            return Poll::Pending;
        }
        poll_gone(scene.front, scene.client, scene.input, context)
    }

    /// Whether the client keeps the member waiting for the rest of the request.
    fn waits_for_client(&self) -> bool {
        let sends = !self.up.is_done() && !self.up_failed;
        sends && self.up.waits_for() == End::Source && self.started.elapsed() >= KEPT_WAITING
    }

    /// Whether the client has, or may have, a part of the final response or of another head.
    fn has_begun(&self) -> bool {
        match &self.down {
            Down::Head => false,
            Down::Interim(transfer) => transfer.written() > 0,
            Down::Body { .. } => true,
        }
    }

    fn poll_clock(
        &mut self,
        watchdog: &mut Watchdog,
        mut cut: Pin<&mut impl Future<Output = ()>>,
        context: &mut Context<'_>,
    ) -> Poll<Failure> {
        let mut now = Instant::now();
        let up = (!self.up.is_done() && !self.up_failed).then(|| self.up.waits_for());
        let down = match &self.down {
            Down::Head => End::Source,
            Down::Interim(transfer) | Down::Body { transfer, .. } => transfer.waits_for(),
        };
        let tally = self.tally();
        let client_waits = up == Some(End::Source) || down == End::Sink;
        // As long as the request is not whole, the member need not answer it.
        let member_waits = up == Some(End::Sink) || (up.is_none() && down == End::Source);
        self.client
            .note(tally.from_client + tally.to_client, client_waits, now);
        self.server
            .note(tally.from_member + tally.to_member, member_waits, now);
        let client = self.client.deadline(self.timeouts.client_data);
        let member = self.server.deadline(self.timeouts.member_data);
        loop {
            if client.is_some_and(|deadline| deadline <= now) {
                return Poll::Ready(self.fail(Refusal::ClientTimeout));
            }
            if member.is_some_and(|deadline| deadline <= now) {
                return Poll::Ready(self.fail(Refusal::MemberTimeout));
            }
            let long = self.started + LONG;
            if long <= now && cut.as_mut().poll(context).is_ready() {
                return Poll::Ready(self.fail(Refusal::MemberFailed));
            }
            let deadlines = [client, member, (now < long).then_some(long)];
            match deadlines.into_iter().flatten().min() {
                Some(deadline) => ready!(watchdog.poll(deadline, context)),
                None => return Poll::Pending,
            }
            now = Instant::now();
        }
    }

    fn fail(&self, refusal: Refusal) -> Failure {
        if self.has_begun() {
            Failure::Broken(refusal.as_str())
        } else {
            Failure::Refused(refusal)
        }
    }
}

/// Ready when a client that waits for its response has closed or reset the connection. What else it
/// says is kept for later.
///
/// A client that only closes its own half, which TCP can't distinguish from one that has left, gets
/// no response either: such clients are rare, those that leave are not, and nginx does the same.
pub(super) fn poll_gone<S: ClientStream>(
    front: &Front,
    client: &mut S,
    input: &mut Buffer,
    context: &mut Context<'_>,
) -> Poll<()> {
    if input.is_empty() {
        match ready!(input.poll_fill(client, context)) {
            Ok(0) | Err(_) => return Poll::Ready(()),
            Ok(count) => front.listener().counters().mine().passed(count as u64, 0),
        }
    }
    // Behind further requests an end may mean no more than that there are no others.
    client.poll_broken(context)
}
