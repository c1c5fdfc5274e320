//! The simulator behind HTTP on loopback.

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, Response, StatusCode};
use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::Sim;

/// Largest body that is read from a connection.
const MOST: usize = 1 << 20;

/// A running server. It ends when this is dropped.
#[derive(Debug)]
pub struct Served {
    /// `http://127.0.0.1:PORT/v2`.
    pub endpoint: String,
    task: JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Sim {
    /// Serves on a port of loopback; 0: a free one. From then on the zone has its address there.
    pub async fn serve(&self, port: u16) -> std::io::Result<Served> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let endpoint = format!("http://{}/v2", listener.local_addr()?);
        self.world(|world| world.endpoint.clone_from(&endpoint));
        let router = Router::new().fallback(answer).with_state(self.clone());
        let task = tokio::spawn(async move {
            // It ends by being dropped.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Served { endpoint, task })
    }
}

async fn answer(State(sim): State<Sim>, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, MOST).await else {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
        return response;
    };
    let request: Request<Bytes> = Request::from_parts(parts, body);
    match sim.answer(request).await {
        Ok(response) => response.map(Body::from),
        // A body that breaks makes hyper close the connection without an answer of use.
        Err(error) => {
            let broken = futures_util::stream::once(async move { Err::<Bytes, _>(error) });
            let mut response = Response::new(Body::from_stream(broken));
            let one = axum::http::HeaderValue::from_static("1");
            response.headers_mut().insert("content-length", one);
            response
        }
    }
}
