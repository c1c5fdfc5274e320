//! One request over an HTTP/2 connection to a member, and the body of its response.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::uri::Scheme;
use http::{Method, Request, Response, Uri, Version};
use hyper::body::{Body, Frame, Incoming};
use landfall_model::listener::Timeouts;
use tokio::time::{Instant, timeout};

use super::KEPT_WAITING;
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
    incoming: Option<Incoming>,
    lease: Lease,
    impatience: SilenceTimer,
    progress: Arc<Progress>,
    /// Its place on the connection, which stays open with it.
    _link: Link,
}

/// What came of it.
pub(super) enum Sent {
    Response(Response<OverHttp2>),
    /// Nothing was sent; the content is whole.
    Unsent(RequestContent),
    Failed(Refusal),
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
    let mut sender = link.sender();
    let mut answer = std::pin::pin!(sender.try_send_request(request));
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
            Sent::Response(response.map(|incoming| OverHttp2 {
                incoming: (!bodiless).then_some(incoming),
                lease,
                impatience: SilenceTimer::new(timeouts.member_data),
                progress,
                _link: link,
            }))
        }
        Err(mut error) => match error.take_message() {
            Some(request) => Sent::Unsent(request.into_body()),
            None if progress.client_failed() => Sent::Failed(Refusal::ClientTimeout),
            None => {
                tracing::debug!(member = %lease.address(), error = %error.error(), "no response");
                // One that gave up a client which kept it waiting did not fail.
                let waited = started.elapsed() >= KEPT_WAITING;
                if !waited || !progress.waits_for_client() {
                    lease.unanswered();
                }
                Sent::Failed(Refusal::MemberFailed)
            }
        },
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
        let Some(incoming) = &mut this.incoming else {
            return Poll::Ready(None);
        };
        match Pin::new(incoming).poll_frame(context) {
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
                Poll::Ready(frame.map(|frame| frame.map_err(|_| BodyFailed::Member)))
            }
            Poll::Pending if this.lease.is_cut() => Poll::Ready(Some(Err(BodyFailed::Cut))),
            Poll::Pending => {
                let failed = Some(Err(BodyFailed::MemberTimeout));
                this.impatience.poll(context).map(|()| failed)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Incoming::is_end_stream)
    }
}

impl Drop for OverHttp2 {
    fn drop(&mut self) {
        self.lease
            .member()
            .counters()
            .mine()
            .passed(self.progress.bytes(), 0);
    }
}
