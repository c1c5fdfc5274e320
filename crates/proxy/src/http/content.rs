//! Bodies of messages that are HTTP/2 on at least one side: streams of frames, each made when the
//! other side has room for it. Knows how long a client may keep silent, and nothing about members.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;

use super::backpressure::{Backpressure, TrackedBytes};
use super::fields::strip_trailers;
use super::watchdog::Watchdog;
use crate::access_log::{self, End};
use crate::memory::ConnectionMemory;

/// How long a request is read that is not needed any more.
const READ_ON: Duration = Duration::from_secs(2);

/// What follows the head of a request.
#[derive(Debug)]
pub(super) struct RequestContent {
    source: Source,
    /// How a member over HTTP/2 takes it.
    backpressure: Option<Arc<Backpressure>>,
    /// What its client's connection holds.
    ledger: Option<Arc<ConnectionMemory>>,
    progress: Arc<Progress>,
}

/// How far a request has come, for the tasks that wait for its answer.
#[derive(Debug, Default)]
pub(super) struct Progress {
    bytes: AtomicU64,
    frames: AtomicU64,
    waits_for_client: AtomicBool,
    ended: AtomicBool,
    client_failed: AtomicBool,
}

/// Why a body breaks off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BodyFailed {
    /// The client sent nothing for too long.
    #[error("the client timed out")]
    ClientTimeout,
    /// The client is gone, or broke its own body.
    #[error("the request was aborted")]
    Client,
    /// The member sent nothing for too long.
    #[error("the member timed out")]
    MemberTimeout,
    /// The member is gone, or broke its own body.
    #[error("the response was aborted")]
    Member,
    /// The member's drain time is over.
    #[error("the member was removed")]
    Cut,
    /// What waits is more than the share of memory of its client or Service.
    #[error("too much waits to be taken")]
    Share,
}

/// Measures how long a peer that is waited for keeps silent.
#[derive(Debug)]
pub(super) struct SilenceTimer {
    watchdog: Watchdog,
    time_limit: Duration,
    since: Option<Instant>,
}

#[derive(Debug)]
enum Source {
    Empty,
    Http2 {
        incoming: Incoming,
        impatience: SilenceTimer,
        /// Whether the member has not taken all that is here of it.
        waits: bool,
        /// Where the rest is read to its end if nothing else does.
        streams: TaskTracker,
    },
    /// Frames that the task of an HTTP/1 client reads.
    Http1(mpsc::Receiver<Result<Frame<Bytes>, BodyFailed>>),
}

// === impl BodyFailed ===

impl BodyFailed {
    /// One word for the access log.
    pub(super) fn as_str(self) -> End {
        match self {
            Self::ClientTimeout => "client_timeout",
            Self::Client => access_log::CLIENT_ABORT,
            Self::MemberTimeout => "member_timeout",
            Self::Member => access_log::MEMBER_FAILED,
            Self::Cut => access_log::CUT,
            Self::Share => access_log::SHARE,
        }
    }
}

// === impl RequestContent ===

impl RequestContent {
    /// No content.
    pub(super) fn empty() -> Self {
        Self::new(Source::Empty, None)
    }

    /// The body of a request that came over HTTP/2, from a client with this much time between
    /// frames. `streams` are the tasks of its connection, and `ledger` is what that holds.
    pub(super) fn http2(
        incoming: Incoming,
        time_limit: Duration,
        (streams, ledger): (TaskTracker, Arc<ConnectionMemory>),
    ) -> Self {
        if incoming.is_end_stream() {
            return Self::empty();
        }
        ledger.upload_waits();
        let source = Source::Http2 {
            incoming,
            impatience: SilenceTimer::new(time_limit),
            waits: true,
            streams,
        };
        Self::new(source, Some(ledger))
    }

    /// A body whose frames come through a channel, of a client whose connection holds what `ledger`
    /// says.
    pub(super) fn channel(
        frames: mpsc::Receiver<Result<Frame<Bytes>, BodyFailed>>,
        ledger: Option<Arc<ConnectionMemory>>,
    ) -> Self {
        Self::new(Source::Http1(frames), ledger)
    }

    fn new(source: Source, ledger: Option<Arc<ConnectionMemory>>) -> Self {
        let progress = Progress::default();
        progress
            .ended
            .store(matches!(source, Source::Empty), Ordering::Relaxed);
        Self {
            source,
            backpressure: None,
            ledger,
            progress: Arc::new(progress),
        }
    }

    /// Returns whether it is empty.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self.source, Source::Empty)
    }

    /// How far it has come, to be asked after it was given away.
    pub(super) fn progress(&self) -> Arc<Progress> {
        self.progress.clone()
    }
}

impl RequestContent {
    /// The next frame, for a caller that sends it at once.
    pub(super) fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyFailed>>> {
        let polled = match &mut self.source {
            Source::Empty => Poll::Ready(None),
            Source::Http2 {
                incoming,
                impatience,
                waits,
                ..
            } => match Pin::new(incoming).poll_frame(context) {
                Poll::Ready(frame) => {
                    impatience.calm();
                    let frame = frame.map(|frame| frame.map_err(|_| BodyFailed::Client));
                    let frame = frame.and_then(|frame| frame.map(for_member).transpose());
                    note_waiting(self.ledger.as_ref(), waits, matches!(frame, Some(Ok(_))));
                    Poll::Ready(frame)
                }
                Poll::Pending => {
                    note_waiting(self.ledger.as_ref(), waits, false);
                    let timeout = Some(Err(BodyFailed::ClientTimeout));
                    impatience.poll(context).map(|()| timeout)
                }
            },
            // What sends them may be gone before the last.
            Source::Http1(frames) => frames.poll_recv(context).map(|frame| {
                let broken = frame.is_none() && self.progress.client_failed();
                frame.or_else(|| broken.then_some(Err(BodyFailed::Client)))
            }),
        };
        self.progress
            .waits_for_client
            .store(polled.is_pending(), Ordering::Relaxed);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                let length = frame.data_ref().map_or(0, Bytes::len);
                self.progress
                    .bytes
                    .fetch_add(length as u64, Ordering::Relaxed);
                self.progress.frames.fetch_add(1, Ordering::Relaxed);
            }
            Poll::Ready(Some(Err(_))) => self.progress.client_failed.store(true, Ordering::Relaxed),
            Poll::Ready(None) => self.progress.ended.store(true, Ordering::Relaxed),
            Poll::Pending => {}
        }
        polled
    }

    /// Ready when the member has all that was handed over.
    pub(super) fn poll_sent(&self, context: &mut Context<'_>) -> Poll<()> {
        match &self.backpressure {
            Some(backpressure) => backpressure.poll_sent(context),
            None => Poll::Ready(()),
        }
    }

    /// Notes that the member is the one that is waited for.
    fn is_held_up(&mut self) {
        self.progress
            .waits_for_client
            .store(false, Ordering::Relaxed);
        if let Source::Http2 { impatience, .. } = &mut self.source {
            impatience.calm();
        }
    }
}

impl Body for RequestContent {
    type Data = TrackedBytes;
    type Error = BodyFailed;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<TrackedBytes>, BodyFailed>>> {
        let this = &mut *self;
        let ledger = this.ledger.as_ref();
        let backpressure = this
            .backpressure
            .get_or_insert_with(|| Backpressure::of(ledger))
            .clone();
        if backpressure.poll_capacity(context).is_pending() {
            this.is_held_up();
            return Poll::Pending;
        }
        let polled = this.poll_next(context);
        polled.map(|next| {
            let hand_over =
                |frame: Frame<Bytes>| frame.map_data(|bytes| backpressure.hand_over(bytes));
            next.map(|frame| frame.map(hand_over))
        })
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Empty => true,
            Source::Http2 { incoming, .. } => incoming.is_end_stream(),
            Source::Http1(_) => false,
        }
    }
}

impl Drop for RequestContent {
    /// Not reading on would reset the stream as soon as the response is whole. That is good HTTP/2
    /// (RFC 9113 section 8.1), but widespread clients take it for a failure and throw the response
    /// away.
    fn drop(&mut self) {
        let Source::Http2 {
            mut incoming,
            mut waits,
            streams,
            ..
        } = std::mem::replace(&mut self.source, Source::Empty)
        else {
            return;
        };
        note_waiting(self.ledger.as_ref(), &mut waits, false);
        if incoming.is_end_stream() || self.progress.client_failed() {
            return;
        }
        let read_on = async move { while let Some(Ok(_)) = incoming.frame().await {} };
        // Outside of the runtime, everything is about to end.
        if let Ok(runtime) = Handle::try_current() {
            let read_on = async { drop(timeout(READ_ON, read_on).await) };
            streams.spawn_on(read_on, &runtime);
        }
    }
}

/// What a member may see of a frame; `None`: trailers of which nothing may pass.
fn for_member(frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
    match frame.into_trailers() {
        Ok(mut trailers) => {
            strip_trailers(&mut trailers);
            (!trailers.is_empty()).then(|| Frame::trailers(trailers))
        }
        Err(frame) => Some(frame),
    }
}

/// Notes whether there is more of a body than its member took.
fn note_waiting(ledger: Option<&Arc<ConnectionMemory>>, noted: &mut bool, waits: bool) {
    let Some(ledger) = ledger else {
        return;
    };
    match (std::mem::replace(noted, waits), waits) {
        (false, true) => ledger.upload_waits(),
        (true, false) => ledger.upload_rests(),
        (false, false) | (true, true) => {}
    }
}

// === impl Progress ===

impl Progress {
    /// Frames that were taken so far.
    pub(super) fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    /// Bytes in those.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether the next frame is up to the client.
    pub(super) fn waits_for_client(&self) -> bool {
        self.waits_for_client.load(Ordering::Relaxed) && !self.ended.load(Ordering::Relaxed)
    }

    /// Notes that it breaks off because of the client.
    pub(super) fn breaks_off(&self) {
        self.client_failed.store(true, Ordering::Relaxed);
    }

    /// Whether it broke off because of the client.
    pub(super) fn client_failed(&self) -> bool {
        self.client_failed.load(Ordering::Relaxed)
    }
}

// === impl SilenceTimer ===

impl SilenceTimer {
    pub(super) fn new(time_limit: Duration) -> Self {
        Self {
            watchdog: Watchdog::default(),
            time_limit,
            since: None,
        }
    }

    /// Ready when the peer has been silent for too long since the first call, or since
    /// [`Self::calm`].
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let since = *self.since.get_or_insert_with(Instant::now);
        self.watchdog.poll(since + self.time_limit, context)
    }

    /// The peer sent something.
    pub(super) fn calm(&mut self) {
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::super::backpressure::MAX_FRAMES;
    use super::*;

    type Polled = Poll<Option<Result<Frame<TrackedBytes>, BodyFailed>>>;

    async fn next(content: &mut RequestContent) -> Polled {
        let polled = poll_fn(|context| Poll::Ready(Pin::new(&mut *content).poll_frame(context)));
        tokio::task::unconstrained(polled).await
    }

    #[tokio::test]
    async fn a_member_that_takes_no_frames_lets_few_of_them_wait() {
        let (frames, received) = mpsc::channel(2 * MAX_FRAMES);
        let tiny = || Ok(Frame::data(Bytes::from_static(b"x")));
        for _ in 0..2 * MAX_FRAMES {
            frames.try_send(tiny()).unwrap();
        }
        let mut content = RequestContent::channel(received, None);
        let mut waiting = Vec::new();
        for _ in 0..MAX_FRAMES {
            let Poll::Ready(Some(Ok(frame))) = next(&mut content).await else {
                panic!("no frame after {}", waiting.len());
            };
            waiting.push(frame);
        }
        assert!(next(&mut content).await.is_pending());
        assert!(!content.progress().waits_for_client());
        // Some go, and the task is woken.
        let goes_on = tokio::spawn(async move {
            let frame = content.frame().await;
            (frame.is_some(), content)
        });
        tokio::task::yield_now().await;
        assert!(!goes_on.is_finished());
        waiting.truncate(MAX_FRAMES / 2 - 1);
        assert!(goes_on.await.unwrap().0);
    }
}
