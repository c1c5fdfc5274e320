//! The body of a response to an HTTP/2 client, wherever it comes from.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame};

use super::Busy;
use super::over_http1::OverHttp1;
use crate::http::backpressure::{Backpressure, TrackedBytes};
use crate::http::content::BodyFailed;
use crate::http::over_http2::OverHttp2;

/// Bytes of a response after which it does not end before the client has taken them: until then,
/// its stream can be reset. A client of ordinary windows takes fewer without being asked again.
const HELD_BACK: u64 = 64 * 1024;

/// A body, and the word that its request is still under way.
#[derive(Debug)]
pub(super) struct ResponseBody {
    source: Source,
    backpressure: Arc<Backpressure>,
    busy: Busy,
}

/// Where a body comes from.
#[derive(Debug)]
pub(super) enum Source {
    /// From here: a line of text.
    Text(Bytes),
    Http1(Box<OverHttp1>),
    Http2(Box<OverHttp2>),
}

// === impl ResponseBody ===

impl ResponseBody {
    pub(super) fn new(source: Source, busy: Busy) -> Self {
        Self {
            source,
            backpressure: Backpressure::current(),
            busy,
        }
    }

    fn poll_source(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyFailed>>> {
        match &mut self.source {
            Source::Text(text) => {
                let text = std::mem::take(text);
                Poll::Ready((!text.is_empty()).then(|| Ok(Frame::data(text))))
            }
            Source::Http1(body) => Pin::new(body).poll_frame(context),
            Source::Http2(body) => Pin::new(body).poll_frame(context),
        }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        // Then nothing asks for the next frame.
        if self.is_end_stream() {
            self.busy.record.ends_well();
        }
        self.backpressure.settle();
    }
}

impl Body for ResponseBody {
    type Data = TrackedBytes;
    type Error = BodyFailed;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<TrackedBytes>, BodyFailed>>> {
        let this = &mut *self;
        ready!(this.backpressure.poll_capacity(context));
        if let Some(frame) = ready!(this.poll_source(context)) {
            // Its member goes on sending, even if the library asks for no further frame.
            let goes_on = matches!(&this.source, Source::Http2(body) if !body.is_end_stream());
            if frame.is_ok() && goes_on && !this.backpressure.hold_ahead() {
                this.busy.record.ends(BodyFailed::Share.as_str());
                return Poll::Ready(Some(Err(BodyFailed::Share)));
            }
            match &frame {
                Ok(frame) => {
                    let length = frame.data_ref().map_or(0, Bytes::len);
                    this.busy.record.passed(0, length as u64);
                }
                Err(failed) => this.busy.record.ends(failed.as_str()),
            }
            let backpressure = &this.backpressure;
            let frame = frame.map(|frame| frame.map_data(|bytes| backpressure.hand_over(bytes)));
            return Poll::Ready(Some(frame));
        }
        if this.backpressure.total() >= HELD_BACK {
            ready!(this.backpressure.poll_sent(context));
        }
        this.busy.record.ends_well();
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        let ends = match &self.source {
            Source::Text(text) => text.is_empty(),
            Source::Http1(body) => body.is_end_stream(),
            Source::Http2(body) => body.is_end_stream(),
        };
        ends && self.backpressure.total() < HELD_BACK
    }
}
