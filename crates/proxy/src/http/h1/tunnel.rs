//! A connection after its member switched protocols (RFC 9110 section 7.8): bytes pass both ways
//! until both sides have ended, one of them breaks, or both are silent for too long. Reads none of
//! them.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::body::Framing;
use super::transfer::{Recode, Transfer};
use crate::http::buffer::Buffer;
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
    /// Both sides ended as they should.
    pub(super) in_order: bool,
}

/// One direction.
struct Direction {
    transfer: Transfer,
    ended: bool,
}

/// Passes bytes between a client and a member, each with what was read from it before.
pub(super) async fn run<S: AsyncRead + AsyncWrite + Unpin>(
    (client, from_client): (&mut S, &mut Buffer),
    (member, mut from_member): (MemberStream, Buffer),
    watchdog: &mut Watchdog,
    lease: &Lease,
    time_limit: Duration,
) -> Passed {
    let mut unfinished = Unfinished::new(member);
    let mut member = unfinished.stream();
    let (mut up, mut down) = (Direction::new(), Direction::new());
    let mut cut = pin!(lease.cut());
    let mut moved = (0, Instant::now());
    let passed = poll_fn(|context| {
        let polls = (
            up.poll(client, from_client, &mut member, context),
            down.poll(&mut member, &mut from_member, client, context),
        );
        let in_order = match polls {
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => Some(true),
            (Poll::Ready(Err(())), _) | (_, Poll::Ready(Err(()))) => Some(false),
            _ if cut.as_mut().poll(context).is_ready() => Some(false),
            _ => {
                let total = up.transfer.written() + down.transfer.written();
                if moved.0 != total {
                    moved = (total, Instant::now());
                }
                watchdog
                    .poll(moved.1 + time_limit, context)
                    .is_ready()
                    .then_some(false)
            }
        };
        match in_order {
            Some(in_order) => Poll::Ready(Passed {
                upward: up.transfer.written(),
                downward: down.transfer.written(),
                in_order,
            }),
            None => Poll::Pending,
        }
    })
    .await;
    if passed.in_order {
        unfinished.ends_in_order();
    }
    passed
}

// === impl Direction ===

impl Direction {
    fn new() -> Self {
        Self {
            transfer: Transfer::new(Vec::new(), Framing::UntilClose, Recode::Raw),
            ended: false,
        }
    }

    /// Passes bytes on, and then the end of the source.
    fn poll<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &mut self,
        source: &mut R,
        input: &mut Buffer,
        sink: &mut W,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), ()>> {
        if self.ended {
            return Poll::Ready(Ok(()));
        }
        let polled = match self.transfer.poll(source, input, sink, context) {
            Poll::Ready(Ok(())) => Pin::new(sink).poll_shutdown(context).map_err(|_| ()),
            Poll::Ready(Err(_)) => Poll::Ready(Err(())),
            Poll::Pending => Poll::Pending,
        };
        self.ended = polled.is_ready();
        polled
    }
}
