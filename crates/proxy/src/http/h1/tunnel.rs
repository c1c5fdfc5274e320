//! A connection after its member switched protocols (RFC 9110 section 7.8): bytes pass both ways
//! until both sides have ended, one of them breaks, or both are silent for too long. Reads none of
//! them. As between other streams, a side that has its end gets what is still on its way to it, and
//! a side that breaks off behind its own end has said all.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::body::Framing;
use super::transfer::{Broken, Recode, Transfer};
use crate::http::buffer::Buffer;
use crate::http::front::ClientStream;
use crate::http::watchdog::Watchdog;
use crate::pool::Lease;
use crate::tls::{MemberStream, Unfinished};

/// What passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Passed {
    /// Bytes toward the member.
    pub(super) upward: u64,
    /// Bytes toward the client.
    pub(super) downward: u64,
    pub(super) end: End,
}

/// How it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum End {
    /// Both sides ended as they should.
    InOrder,
    /// One side broke off behind its end, and all that it had said has arrived.
    Deserted,
    /// One side broke off.
    #[default]
    Broken,
    /// It was cut or silent. These sides have their end.
    Cut { client: bool, member: bool },
}

/// One direction.
struct Direction {
    transfer: Transfer,
    ended: bool,
    /// The receiver is gone: what still comes is read and dropped.
    lost: bool,
}

/// Passes bytes between a client and a member, each with what was read from it before.
pub(super) async fn run<S: ClientStream>(
    (client, from_client): (&mut S, &mut Buffer),
    (member, mut from_member): (MemberStream, Buffer),
    watchdog: &mut Watchdog,
    lease: &Lease,
    time_limit: Duration,
) -> Passed {
    let mut unfinished = Unfinished::new(member);
    let (mut up, mut down) = (Direction::new(), Direction::new());
    let mut cut = pin!(lease.cut());
    let mut moved = (0, Instant::now());
    let passed = poll_fn(|context| {
        let member = unfinished.stream();
        let from = (&mut *client, &mut *from_client);
        let there = up.poll(&down, from, member, context);
        let from = (&mut *member, &mut from_member);
        let back = down.poll(&up, from, client, context);
        let is_deserted = (up.lost && down.has_arrived(client.unacknowledged()))
            || (down.lost && up.has_arrived(member.unacknowledged()));
        // Also where the task is cut: a reset could destroy what is on its way to the member.
        unfinished.set_in_order(up.ended);
        let end = match (there, back) {
            (Poll::Ready(Err(())), _) | (_, Poll::Ready(Err(()))) => End::Broken,
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) if !up.lost && !down.lost => End::InOrder,
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => End::Deserted,
            // Otherwise a side could speak for hours to one that is gone.
            _ if is_deserted => End::Deserted,
            _ => {
                let total = up.transfer.written() + down.transfer.written();
                if moved.0 != total {
                    moved = (total, Instant::now());
                }
                if cut.as_mut().poll(context).is_pending() {
                    ready!(watchdog.poll(moved.1 + time_limit, context));
                }
                let (client, member) = (down.ended, up.ended);
                End::Cut { client, member }
            }
        };
        Poll::Ready(Passed {
            upward: up.transfer.written(),
            downward: down.transfer.written(),
            end,
        })
    })
    .await;
    unfinished.set_in_order(match passed.end {
        End::InOrder | End::Deserted => true,
        End::Broken => false,
        End::Cut { member, .. } => member,
    });
    passed
}

// === impl Direction ===

impl Direction {
    fn new() -> Self {
        Self {
            transfer: Transfer::new(Vec::new(), Framing::UntilClose, Recode::Raw),
            ended: false,
            lost: false,
        }
    }

    /// Whether the receiver's system has acknowledged everything, and the end.
    fn has_arrived(&self, unacknowledged: io::Result<usize>) -> bool {
        self.ended && unacknowledged.is_ok_and(|count| count == 0)
    }

    /// Passes bytes on, and then the end of the source. Goes on without the sink if that is all
    /// that failed: it had sent its end before, so what it said, in the direction `back`, is whole.
    fn poll<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &mut self,
        back: &Self,
        (source, input): (&mut R, &mut Buffer),
        sink: &mut W,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), ()>> {
        if self.ended {
            return Poll::Ready(Ok(()));
        }
        if !self.lost {
            let polled = match self.transfer.poll(source, input, sink, context) {
                Poll::Ready(Ok(())) => Pin::new(sink).poll_shutdown(context),
                Poll::Ready(Err(Broken::Write(error))) => Poll::Ready(Err(error)),
                Poll::Ready(Err(_)) => return Poll::Ready(Err(())),
                Poll::Pending => Poll::Pending,
            };
            match ready!(polled) {
                Ok(()) => {
                    self.ended = true;
                    return Poll::Ready(Ok(()));
                }
                // The kernel says EPIPE for a reset behind an end, which may not be read yet.
                Err(error)
                    if !back.lost && (back.ended || error.kind() == io::ErrorKind::BrokenPipe) => {}
                Err(_) => return Poll::Ready(Err(())),
            }
            self.lost = true;
        }
        loop {
            input.consume(usize::MAX);
            match ready!(input.poll_fill(source, context)) {
                Ok(0) => break,
                Ok(_) => {}
                Err(_) => return Poll::Ready(Err(())),
            }
        }
        self.ended = true;
        Poll::Ready(Ok(()))
    }
}
