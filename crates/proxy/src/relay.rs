//! Bytes between a client and a member where TLS of either ends here. As the engine does for plain
//! connections: buffers are used only while there are bytes, ends are passed on one direction at a
//! time, and a side that is silent and takes nothing for too long ends the connection.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use landfall_model::listener::Timeouts;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep};

use crate::access_log::{self, Note};
use crate::dial::Dialed;
use crate::http::ClientStream;
use crate::listener::{ListenerConfig, ListenerState};
use crate::pool::Lease;
use crate::tls::{MemberStream, Unfinished};

/// Size of the buffer that all connections of a thread read into.
const BUFFER_SIZE: usize = 64 * 1024;

/// How often one direction may read before others have their turn.
const ROUNDS: usize = 8;

thread_local! {
    static SHARED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// One direction of a connection.
#[derive(Debug, Default)]
struct Direction {
    held: Vec<u8>,
    taken: usize,
    moved: u64,
    sent: u64,
    ended: bool,
    closed: bool,
    /// The receiver is gone: what still comes is read and dropped.
    lost: bool,
    unflushed: bool,
}

/// A failure, and whose.
#[derive(Debug)]
enum Broken {
    Sender,
    Receiver(io::Error),
}

/// When each side last sent something, and how long it may be silent.
#[derive(Debug)]
struct Silence {
    client: Instant,
    member: Instant,
    client_idle: Duration,
    member_idle: Duration,
}

/// Carries a connection from beginning to end. Counts it on the listener and the member.
pub(crate) async fn run<C: ClientStream>(
    listener: &ListenerState,
    config: &ListenerConfig,
    client: C,
    dialed: Dialed,
    mut note: Option<Box<Note>>,
) {
    let Dialed {
        stream: member,
        lease,
    } = dialed;
    listener.counters().mine().connected();
    if let Some(note) = &mut note {
        note.facts().member = Some(lease.address());
    }
    carry(listener, config, client, member, &lease, note).await;
}

async fn carry<C: ClientStream>(
    listener: &ListenerState,
    config: &ListenerConfig,
    mut client: C,
    member: MemberStream,
    lease: &Lease,
    mut note: Option<Box<Note>>,
) {
    let mut unfinished = Unfinished::new(member);
    let mut inward = Direction::default();
    let mut outward = Direction::default();
    let mut silence = Silence::new(&config.listener.timeouts);
    let mut timer = pin!(sleep(silence.client_idle.min(silence.member_idle)));
    let mut cut = pin!(lease.cut());
    let (broken, end) = poll_fn(|cx| {
        if cut.as_mut().poll(cx).is_ready() {
            return Poll::Ready((!inward.closed, access_log::CUT));
        }
        let before = [inward.moved, inward.sent, outward.moved, outward.sent];
        let waited = (outward.waits_for(&inward), inward.waits_for(&outward));
        let member = unfinished.stream();
        let there = inward.poll_without(&outward, cx, &mut client, member);
        let back = outward.poll_without(&inward, cx, member, &mut client);
        // Also where the task is cut: a reset could destroy what is on its way to the member.
        unfinished.set_in_order(inward.closed);
        let passed = (inward.moved - before[0], outward.moved - before[2]);
        if passed.0 > 0 || passed.1 > 0 {
            listener.counters().mine().passed(passed.0, passed.1);
            lease.member().counters().mine().passed(passed.0, passed.1);
            if let Some(note) = &mut note {
                note.facts().bytes_in += passed.0;
                note.facts().bytes_out += passed.1;
            }
        }
        let now = Instant::now();
        // What is dropped is no sign of use.
        let use_of = |passed, direction: &Direction| passed > 0 && !direction.lost;
        if use_of(passed.0, &inward) || outward.sent > before[3] || !waited.0 {
            silence.client = now;
        }
        if use_of(passed.1, &outward) || inward.sent > before[1] || !waited.1 {
            silence.member = now;
        }
        if let Some(ended) = end_of(&there, &back, &inward, &outward) {
            return Poll::Ready(ended);
        }
        // Otherwise a side could speak for hours to one that is gone.
        if (inward.lost && outward.has_arrived(client.unacknowledged()))
            || (outward.lost && inward.has_arrived(unfinished.stream().unacknowledged()))
        {
            return Poll::Ready((false, access_log::BROKEN));
        }
        let deadline = silence.deadline(&inward, &outward);
        // It comes nearer when another side is waited for that has less time.
        if deadline < timer.deadline() {
            timer.as_mut().reset(deadline);
        }
        while timer.as_mut().poll(cx).is_ready() {
            if deadline <= now {
                return Poll::Ready((!inward.closed, access_log::TIMEOUT));
            }
            timer.as_mut().reset(deadline);
        }
        Poll::Pending
    })
    .await;
    if let Some(mut note) = note {
        note.facts().end = end;
    }
    // Each side sees a break as a break, and what it did not get in time as missing.
    unfinished.set_in_order(!broken);
    // One that has its end gets what is still on its way to it.
    if !outward.closed {
        client.abort();
    }
}

/// Returns whether a connection ends as broken, and how the access log calls it, once it has ended
/// in both directions or broken in one.
fn end_of(
    there: &Poll<Result<(), Broken>>,
    back: &Poll<Result<(), Broken>>,
    inward: &Direction,
    outward: &Direction,
) -> Option<(bool, access_log::End)> {
    match (there, back) {
        (Poll::Ready(Err(_)), _) | (_, Poll::Ready(Err(_))) => Some((true, access_log::BROKEN)),
        (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) if inward.lost || outward.lost => {
            Some((false, access_log::BROKEN))
        }
        (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => Some((false, access_log::OK)),
        _ => None,
    }
}

// === impl Silence ===

impl Silence {
    fn new(timeouts: &Timeouts) -> Self {
        let now = Instant::now();
        Self {
            client: now,
            member: now,
            client_idle: timeouts.client_data,
            member_idle: timeouts.member_data,
        }
    }

    fn deadline(&self, inward: &Direction, outward: &Direction) -> Instant {
        let client = self.client + self.client_idle;
        let member = self.member + self.member_idle;
        match (outward.waits_for(inward), inward.waits_for(outward)) {
            (true, false) => client,
            (false, true) => member,
            _ => client.min(member),
        }
    }
}

// === impl Direction ===

impl Direction {
    /// Whether there are bytes that their receiver has not taken.
    fn holds_some(&self) -> bool {
        self.taken < self.held.len()
    }

    /// Whether there is something that its receiver has not taken.
    fn is_held_up(&self) -> bool {
        self.holds_some() || (self.ended && !self.closed)
    }

    /// Whether its receiver has to take something, or could say something, in the direction `back`,
    /// that would be read.
    fn waits_for(&self, back: &Self) -> bool {
        self.is_held_up() || !(back.is_held_up() || back.closed)
    }

    /// Whether the receiver's system has acknowledged everything, and the end.
    fn has_arrived(&self, unacknowledged: io::Result<usize>) -> bool {
        self.closed && unacknowledged.is_ok_and(|count| count == 0)
    }

    /// As [`Self::poll`], and goes on without the receiver if that is all that failed: it had sent
    /// its end before it broke off, so what it said, in the direction `back`, is whole and still to
    /// be delivered.
    fn poll_without<R, W>(
        &mut self,
        back: &Self,
        cx: &mut Context<'_>,
        from: &mut R,
        to: &mut W,
    ) -> Poll<Result<(), Broken>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        match ready!(self.poll(cx, from, to)) {
            // The kernel says EPIPE for a reset behind an end, which may not have been read yet.
            Err(Broken::Receiver(error))
                if !back.lost && (back.ended || error.kind() == io::ErrorKind::BrokenPipe) =>
            {
                (self.held, self.taken) = (Vec::new(), 0);
                (self.lost, self.unflushed) = (true, false);
                self.poll(cx, from, to)
            }
            result => Poll::Ready(result),
        }
    }

    /// Moves what can be moved. Ready once the end has been passed on.
    fn poll<R, W>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
        to: &mut W,
    ) -> Poll<Result<(), Broken>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        if self.closed {
            return Poll::Ready(Ok(()));
        }
        for _ in 0..ROUNDS {
            ready!(self.poll_held(cx, to)).map_err(Broken::Receiver)?;
            if self.ended {
                if !self.lost {
                    ready!(Pin::new(to).poll_shutdown(cx)).map_err(Broken::Receiver)?;
                }
                self.closed = true;
                return Poll::Ready(Ok(()));
            }
            let read = SHARED.with_borrow_mut(|buffer| {
                buffer.resize(BUFFER_SIZE, 0);
                self.poll_copy(cx, from, to, buffer)
            });
            match read {
                Poll::Ready(result) => result?,
                Poll::Pending => {
                    // TLS may hold back a record that did not fit.
                    if self.unflushed {
                        ready!(Pin::new(to).poll_flush(cx)).map_err(Broken::Receiver)?;
                        self.unflushed = false;
                    }
                    return Poll::Pending;
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_held<W>(&mut self, cx: &mut Context<'_>, to: &mut W) -> Poll<io::Result<()>>
    where
        W: AsyncWrite + Unpin,
    {
        while self.taken < self.held.len() {
            let rest = self.held.get(self.taken..).unwrap_or_default();
            let count = ready!(Pin::new(&mut *to).poll_write(cx, rest))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.taken += count;
            self.sent += count as u64;
        }
        if !self.held.is_empty() {
            self.held = Vec::new();
            self.taken = 0;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_copy<R, W>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
        to: &mut W,
        buffer: &mut [u8],
    ) -> Poll<Result<(), Broken>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let mut buffer = ReadBuf::new(buffer);
        match ready!(Pin::new(from).poll_read(cx, &mut buffer)) {
            Ok(()) => {}
            // A client that leaves without the closure alert (RFC 8446 section 6.1) has ended as
            // well: many do, and the bytes inside show members where their messages end.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            Err(_) => return Poll::Ready(Err(Broken::Sender)),
        }
        let bytes = buffer.filled();
        if bytes.is_empty() {
            self.ended = true;
            return Poll::Ready(Ok(()));
        }
        self.moved += bytes.len() as u64;
        if self.lost {
            return Poll::Ready(Ok(()));
        }
        self.unflushed = true;
        let mut sent = 0;
        while sent < bytes.len() {
            let rest = bytes.get(sent..).unwrap_or_default();
            match Pin::new(&mut *to).poll_write(cx, rest) {
                Poll::Ready(Ok(0)) => {
                    let error = io::ErrorKind::WriteZero.into();
                    return Poll::Ready(Err(Broken::Receiver(error)));
                }
                Poll::Ready(Ok(count)) => sent += count,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(Broken::Receiver(error))),
                Poll::Pending => {
                    self.held = rest.to_vec();
                    break;
                }
            }
        }
        self.sent += sent as u64;
        Poll::Ready(Ok(()))
    }
}
