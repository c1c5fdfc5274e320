//! The content of a request on its way to a member: frames, each as soon as the member has room.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Poll, ready};

use bytes::{Buf, Bytes};
use h2::{Reason, SendStream};
use hyper::body::Body;

use crate::http::backpressure::{Backpressure, TrackedBytes};
use crate::http::content::RequestContent;

/// Sends the content of a request until it ends, or the member wants no more of it.
pub(super) async fn send_content(
    mut content: RequestContent,
    mut stream: SendStream<TrackedBytes>,
) {
    loop {
        let next = poll_fn(|context| {
            if stream.poll_reset(context).is_ready() {
                return Poll::Ready(None);
            }
            Pin::new(&mut content).poll_frame(context).map(Some)
        });
        let sent = match next.await {
            None => return,
            Some(None) => {
                let nothing = Backpressure::of(None).hand_over(Bytes::new());
                let _ = stream.send_data(nothing, true);
                return;
            }
            Some(Some(Err(_))) => return stream.send_reset(Reason::CANCEL),
            Some(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => {
                    let ends = content.is_end_stream();
                    if data.has_remaining() && !has_room(&mut stream).await {
                        return;
                    }
                    stream.send_data(data, ends).is_ok() && !ends
                }
                Err(frame) => {
                    stream.reserve_capacity(0);
                    if let Ok(trailers) = frame.into_trailers() {
                        let _ = stream.send_trailers(trailers);
                    }
                    return;
                }
            },
        };
        if !sent {
            return;
        }
    }
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
