//! The body of a response to an HTTP/2 client, wherever it comes from.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame};

use super::Busy;
use super::over_http1::OverHttp1;
use crate::http::content::BodyFailed;
use crate::http::over_http2::OverHttp2;

/// A body, and the word that its request is still under way.
#[derive(Debug)]
pub(super) struct ResponseBody {
    source: Source,
    _busy: Busy,
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
            _busy: busy,
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyFailed;

    fn poll_frame(
        mut self: Pin<&mut Self>,
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

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Text(text) => text.is_empty(),
            Source::Http1(body) => body.is_end_stream(),
            Source::Http2(body) => body.is_end_stream(),
        }
    }
}
