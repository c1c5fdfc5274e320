//! One request over an HTTP/2 connection to a member, and the body of its response.

mod arriving;
mod upload;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::client::SendRequest;
use http::uri::Scheme;
use http::{Method, Request, Response, Uri, Version};
use hyper::body::{Body, Frame};
use landfall_model::listener::Timeouts;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;

use self::arriving::Arriving;
use self::upload::send_content;
use super::KEPT_WAITING;
use super::backpressure::TrackedBytes;
use super::content::{BodyFailed, Progress, RequestContent, SilenceTimer};
use super::fields::strip_hop_by_hop;
use super::refusal::Refusal;
use super::upstream::Link;
use crate::pool::Lease;

/// How often a long wait looks whether the member's drain time is over.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The body of a member's response.
#[derive(Debug)]
pub(super) struct OverHttp2 {
    /// Gone where there can be no body, whatever the member sends.
    arriving: Option<Arriving>,
    lease: Lease,
    impatience: SilenceTimer,
    progress: Arc<Progress>,
    /// What sends the rest of the request.
    upload: Option<Upload>,
    /// How long the member may take none of that when the response is over.
    member_data: Duration,
    /// Its place on the connection, which stays open with it; taken when it is dropped.
    link: Option<Link>,
}

/// The task that sends the rest of a request; the stream is reset if it is dropped before the end.
type Upload = AbortOnDropHandle<()>;

/// What came of it.
pub(super) enum Sent {
    Response(Response<OverHttp2>),
    /// Nothing was sent; the content is whole.
    Unsent(RequestContent),
    Failed(Refusal),
}

/// Why there is no response.
enum NoHead {
    /// Nothing was sent; the content is whole.
    Unsent(RequestContent),
    Failed(h2::Error),
}

/// Sends a request and waits for the head of the response.
pub(super) async fn send(
    link: Link,
    lease: Lease,
    mut request: Request<RequestContent>,
    timeouts: Timeouts,
) -> Sent {
    if link.is_secure() {
        let secure = over_tls(request.uri().clone());
        *request.uri_mut() = secure;
    }
    let progress = request.body().progress();
    let is_head = request.method() == Method::HEAD;
    let mut answer = std::pin::pin!(ask(link.sender(), request));
    let mut frames = progress.frames();
    let mut silent = Duration::ZERO;
    let started = Instant::now();
    let answered = loop {
        let wait = LOOK_EVERY.min(timeouts.member_data.saturating_sub(silent));
        if let Ok(answered) = timeout(wait, answer.as_mut()).await {
            break answered;
        }
        if lease.is_cut() {
            return Sent::Failed(Refusal::MemberFailed);
        }
        // As long as the client sends, the member need not answer.
        let moved = progress.frames() != frames;
        frames = progress.frames();
        silent = if moved || progress.waits_for_client() {
            Duration::ZERO
        } else {
            silent + wait
        };
        if silent >= timeouts.member_data {
            lease.unanswered();
            return Sent::Failed(Refusal::MemberTimeout);
        }
    };
    match answered {
        Ok(mut response) => {
            *response.version_mut() = Version::HTTP_2;
            lease.answered(response.status().as_u16());
            strip_hop_by_hop(response.headers_mut(), false);
            let bodiless = is_head || matches!(response.status().as_u16(), 204 | 304);
            Sent::Response(response.map(|(stream, upload)| OverHttp2 {
                arriving: (!bodiless).then(|| Arriving::new(stream)),
                lease,
                impatience: SilenceTimer::new(timeouts.member_data),
                progress,
                upload,
                member_data: timeouts.member_data,
                link: Some(link),
            }))
        }
        Err(NoHead::Unsent(content)) => Sent::Unsent(content),
        Err(NoHead::Failed(_)) if progress.client_failed() => Sent::Failed(Refusal::ClientTimeout),
        Err(NoHead::Failed(error)) => {
            tracing::debug!(member = %lease.address(), %error, "no response");
            // One that gave up a client which kept it waiting did not fail.
            let waited = started.elapsed() >= KEPT_WAITING;
            if !waited || !progress.waits_for_client() {
                lease.unanswered();
            }
            Sent::Failed(Refusal::MemberFailed)
        }
    }
}

/// Sends a request over a connection, and returns the response when its head is here, with what
/// sends the rest of the content while its body arrives.
async fn ask(
    mut sender: SendRequest<TrackedBytes>,
    request: Request<RequestContent>,
) -> Result<Response<(RecvStream, Option<Upload>)>, NoHead> {
    let (head, content) = request.into_parts();
    if poll_fn(|context| sender.poll_ready(context)).await.is_err() {
        return Err(NoHead::Unsent(content));
    }
    let ends = content.is_end_stream();
    let (response, stream) = sender
        .send_request(Request::from_parts(head, ()), ends)
        .map_err(NoHead::Failed)?;
    let upload = if ends {
        None
    } else {
        let mut upload = Box::pin(send_content(content, stream));
        // All of it may be here.
        let sent = poll_fn(|context| Poll::Ready(upload.as_mut().poll(context))).await;
        sent.is_pending()
            .then(|| AbortOnDropHandle::new(tokio::spawn(upload)))
    };
    let response = response.await.map_err(NoHead::Failed)?;
    Ok(response.map(|stream| (stream, upload)))
}

/// Lets the rest of a request be sent whose response is over. Its stream is open until then, and
/// holds its place. A member that takes none of it any more gets no more: nothing else would end
/// that when its client is gone, as that is noticed when the next of it is read.
async fn send_rest(mut upload: Upload, progress: Arc<Progress>, limit: Duration, _link: Link) {
    let mut frames = progress.frames();
    while timeout(limit, &mut upload).await.is_err() {
        let moved = progress.frames() != frames;
        frames = progress.frames();
        if !moved && !progress.waits_for_client() {
            return;
        }
    }
}

/// The same resource over TLS.
fn over_tls(plain: Uri) -> Uri {
    let mut parts = plain.clone().into_parts();
    // A scheme stands only where there is an authority.
    parts.scheme = parts.authority.as_ref().map(|_| Scheme::HTTPS);
    Uri::from_parts(parts).unwrap_or(plain)
}

impl Body for OverHttp2 {
    type Data = Bytes;
    type Error = BodyFailed;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyFailed>>> {
        let this = &mut *self;
        let Some(arriving) = &mut this.arriving else {
            return Poll::Ready(None);
        };
        match arriving.poll_next(context) {
            Poll::Ready(frame) => {
                this.impatience.calm();
                if let Some(Ok(frame)) = &frame {
                    let length = frame.data_ref().map_or(0, Bytes::len);
                    this.lease
                        .member()
                        .counters()
                        .mine()
                        .passed(0, length as u64);
                }
                Poll::Ready(frame)
            }
            Poll::Pending if this.lease.is_cut() => Poll::Ready(Some(Err(BodyFailed::Cut))),
            Poll::Pending => {
                let failed = Some(Err(BodyFailed::MemberTimeout));
                this.impatience.poll(context).map(|()| failed)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.arriving.as_ref().is_none_or(Arriving::is_end)
    }
}

impl Drop for OverHttp2 {
    fn drop(&mut self) {
        self.lease
            .member()
            .counters()
            .mine()
            .passed(self.progress.bytes(), 0);
        let (Some(upload), Some(link)) = (self.upload.take(), self.link.take()) else {
            return;
        };
        // What belongs to a response that broke off, or to a connection that ends, breaks off too.
        if upload.is_finished() || !self.is_end_stream() || link.is_alone() {
            return;
        }
        // Outside of the runtime, everything is about to end.
        if let Ok(runtime) = Handle::try_current() {
            let progress = self.progress.clone();
            runtime.spawn(send_rest(upload, progress, self.member_data, link));
        }
    }
}
