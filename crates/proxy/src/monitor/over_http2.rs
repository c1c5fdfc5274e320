//! One request of a check over HTTP/2.

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http2;
use hyper_util::rt::TokioIo;
use tokio_util::task::TaskTracker;

use super::failure::Failure;
use crate::http::spawner::Spawner;
use crate::tls::MemberStream;

/// Makes a request over HTTP/2, and takes the answer while its connection is open.
pub(super) async fn over_http2<B, T>(
    stream: MemberStream,
    request: http::Request<B>,
    take: impl AsyncFnOnce(http::Response<Incoming>) -> Result<T, Failure>,
) -> Result<T, Failure>
where
    B: Body<Data = Bytes, Error = std::convert::Infallible> + Send + Unpin + 'static,
{
    let spawner = Spawner::new(TaskTracker::new());
    let (mut sender, connection) = http2::handshake(spawner, TokioIo::new(stream))
        .await
        .map_err(|_| Failure::NotHttp2)?;
    let asked = async {
        let response = sender.send_request(request).await;
        take(response.map_err(|_| Failure::NotHttp2)?).await
    };
    let mut asked = std::pin::pin!(asked);
    tokio::select! {
        // An answer that came counts, even if the connection ends right behind it.
        biased;
        done = &mut asked => done,
        _ = connection => asked.await,
    }
}

/// What members see as the sender of checks.
pub(super) const AGENT: &str = "landfall-monitor";

/// The beginning of a body. One that breaks off is as long as it came.
pub(super) async fn beginning(mut body: Incoming, most: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < most
        && let Some(Ok(frame)) = body.frame().await
    {
        if let Some(data) = frame.data_ref() {
            let room = most - bytes.len();
            bytes.extend_from_slice(data.get(..room).unwrap_or(data));
        }
    }
    bytes
}

/// The text that a good body contains is looked for in so many bytes.
pub(super) const MAX_BODY: usize = 64 * 1024;
