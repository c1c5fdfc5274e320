//! The content of a request on its way to a member: frames, each as soon as the member has room.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Poll, ready};

use bytes::{Buf, Bytes};
use h2::{Reason, SendStream};
use hyper::body::Body;

use crate::http::backpressure::{Backpressure, TrackedBytes};
use crate::http::content::RequestContent;

/// A stream to a member, which is reset unless the request was sent as a whole.
struct Sending {
    stream: SendStream<TrackedBytes>,
    is_whole: bool,
}

/// Sends the content of a request until the member has all of it, or wants no more of it. Waits for
/// what the library has, or that would stay there when the response is over and the member takes
/// none.
pub(super) async fn send_content(mut content: RequestContent, stream: SendStream<TrackedBytes>) {
    let mut sending = Sending {
        stream,
        is_whole: false,
    };
    let Some(fits) = send_frames(&mut content, &mut sending.stream).await else {
        return;
    };
    let stream = &mut sending.stream;
    let gone = poll_fn(|context| {
        if fits || stream.poll_reset(context).is_ready() {
            return Poll::Ready(());
        }
        content.poll_sent(context)
    });
    gone.await;
    sending.is_whole = true;
}

/// Hands over all frames. Returns whether the member has room for all of them; `None`: not all were
/// handed over.
async fn send_frames(
    content: &mut RequestContent,
    stream: &mut SendStream<TrackedBytes>,
) -> Option<bool> {
    loop {
        let next = poll_fn(|context| {
            if stream.poll_reset(context).is_ready() {
                return Poll::Ready(None);
            }
            Pin::new(&mut *content).poll_frame(context).map(Some)
        });
        let Some(frame) = next.await? else {
            let fits = fits(stream, 0);
            let nothing = Backpressure::of(None).hand_over(Bytes::new());
            return stream.send_data(nothing, true).is_ok().then_some(fits);
        };
        match frame.ok()?.into_data() {
            Ok(data) => {
                let ends = content.is_end_stream();
                let length = data.remaining();
                if length > 0 && !has_room(stream).await {
                    return None;
                }
                let fits = ends && fits(stream, length);
                stream.send_data(data, ends).ok()?;
                if ends {
                    return Some(fits);
                }
            }
            Err(frame) => {
                let fits = fits(stream, 0);
                stream.reserve_capacity(0);
                let sent = stream.send_trailers(frame.into_trailers().ok()?);
                return sent.is_ok().then_some(fits);
            }
        }
    }
}

/// Whether the member has room for so much, and a byte at least, beside what is on its way.
fn fits(stream: &mut SendStream<TrackedBytes>, length: usize) -> bool {
    let length = length.max(1);
    stream.reserve_capacity(length);
    stream.capacity() >= length
}

/// Waits until some may be sent. Returns whether the member still wants it. Asks for a byte: more
/// would be kept from other requests, and the library asks for the rest once it has it.
async fn has_room(stream: &mut SendStream<TrackedBytes>) -> bool {
    stream.reserve_capacity(1);
    poll_fn(|context| {
        if stream.poll_reset(context).is_ready() {
            return Poll::Ready(false);
        }
        while stream.capacity() == 0 {
            match ready!(stream.poll_capacity(context)) {
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Poll::Ready(false),
            }
        }
        Poll::Ready(true)
    })
    .await
}

impl Drop for Sending {
    fn drop(&mut self) {
        if !self.is_whole {
            self.stream.send_reset(Reason::CANCEL);
        }
    }
}
