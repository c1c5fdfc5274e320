//! The simulator behind HTTP on loopback.

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, Response, StatusCode};
use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::Sim;
use super::wire::Service;

/// Largest body that is read from a connection; the simulator's own limit is lower.
const MOST: usize = 16 << 20;

/// A running server. It ends when this is dropped.
#[derive(Debug)]
pub struct Served {
    /// Keystone's URL.
    pub auth_url: String,
    /// `http://127.0.0.1:PORT`.
    pub base: String,
    task: JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Sim {
    /// Serves on a free port of loopback. From then on the catalog names URLs there; the old ones
    /// work, too.
    pub async fn serve(&self) -> std::io::Result<Served> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let base = format!("http://{}", listener.local_addr()?);
        let auth_url = format!("{base}/identity/v3");
        let served = [
            (Service::Identity, auth_url.clone()),
            (Service::Network, format!("{base}/network")),
            (Service::LoadBalancer, format!("{base}/load-balancer")),
            (Service::KeyManager, format!("{base}/key-manager")),
        ];
        self.world(|world| world.bases.splice(0..0, served).for_each(drop));
        let state = (self.clone(), base.clone());
        let router = Router::new().fallback(answer).with_state(state);
        let task = tokio::spawn(async move {
            // It ends by being dropped.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Served {
            auth_url,
            base,
            task,
        })
    }
}

async fn answer(
    State((sim, base)): State<(Sim, String)>,
    request: Request<Body>,
) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let uri = format!("{base}{path}").parse();
    let body = axum::body::to_bytes(body, MOST).await;
    let (Ok(uri), Ok(body)) = (uri, body) else {
        return status(StatusCode::BAD_REQUEST);
    };
    parts.uri = uri;
    let request: Request<Bytes> = Request::from_parts(parts, body);
    match sim.answer(request).await {
        Ok(response) => response.map(Body::from),
        // A body that breaks makes hyper close the connection without an answer of use.
        Err(error) => {
            let broken = futures_util::stream::once(async move { Err::<Bytes, _>(error) });
            let mut response = Response::new(Body::from_stream(broken));
            response
                .headers_mut()
                .insert("content-length", axum::http::HeaderValue::from_static("1"));
            response
        }
    }
}

fn status(code: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = code;
    response
}
