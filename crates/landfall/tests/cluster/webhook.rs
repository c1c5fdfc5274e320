//! A real admission webhook over HTTPS that rejects every write of the status of one Service.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use base64::Engine as _;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use crate::bed::{Bed, address, condition, only};
use crate::network::Range;
use crate::replica::{Replica, landfall, run};
use crate::traffic::{Backend, ask};

const WORDS: &str = "not on a Friday";

/// Says no to every Service called `forbidden`. Ends when it is dropped.
struct Guard {
    address: SocketAddr,
    certificate: String,
    asked: Arc<AtomicU32>,
    _serving: JoinSet<()>,
}

// === impl Guard ===

impl Guard {
    async fn start() -> Self {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let private = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(AtomicU32::new(0));
        let count = asked.clone();
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, count) = (acceptor.clone(), count.clone());
                connections.spawn(async move {
                    // A client that disconnects needs no answer.
                    if let Ok(stream) = acceptor.accept(stream).await {
                        let validate = service_fn(move |request| validate(request, count.clone()));
                        let _ended = hyper::server::conn::http1::Builder::new()
                            .serve_connection(TokioIo::new(stream), validate)
                            .await;
                    }
                });
            }
        });
        Self {
            address,
            certificate: certificate.pem(),
            asked,
            _serving: serving,
        }
    }

    fn configuration(&self) -> String {
        let authority = base64::engine::general_purpose::STANDARD.encode(&self.certificate);
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "guard"},
            "webhooks": [{
                "name": "guard.example.com",
                "clientConfig": {
                    "url": format!("https://{}/validate", self.address), "caBundle": authority,
                },
                "rules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"],
                    "resources": ["services/status"],
                }],
                "failurePolicy": "Fail", "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }],
        })
        .to_string()
    }
}

async fn validate(
    request: Request<Incoming>,
    asked: Arc<AtomicU32>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap();
    let forbidden = review["request"]["name"] == "forbidden";
    asked.fetch_add(forbidden.into(), Ordering::Relaxed);
    let answer = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {
            "uid": review["request"]["uid"], "allowed": !forbidden,
            "status": {"code": 403, "message": WORDS},
        },
    });
    let answer = Response::builder()
        .header("Content-Type", "application/json")
        .body(Full::new(Bytes::from(answer.to_string())));
    Ok(answer.unwrap())
}

fn service(name: &str, range: &Range) -> String {
    format!(
        "---\n\
        apiVersion: v1\n\
        kind: Service\n\
        metadata:\n  \
        name: {name}\n  \
        annotations: {{landfall.dev/endpoints: \"{}\"}}\n\
        spec:\n  \
        type: LoadBalancer\n  \
        ports: [{{port: 8080}}]\n",
        range.member(1)
    )
}

#[tokio::test]
async fn a_webhook_that_rejects_a_status_holds_up_that_service_alone() {
    let bed = Bed::open("webhook").await;
    let range = Range::claim();
    let _one = Backend::start("one", range.member(1)).await;
    let guard = Guard::start().await;
    bed.kubectl().apply(&guard.configuration()).await.unwrap();
    bed.apply(&service("forbidden", &range)).await;
    // A webhook is asked once the API server has received it.
    let patch = r#"{"metadata": {"annotations": {"a": "b"}}}"#;
    let namespace = bed.namespace.as_str();
    let probe = [
        "-n",
        namespace,
        "patch",
        "service",
        "forbidden",
        "--subresource=status",
        "--type=merge",
        "-p",
        patch,
    ];
    let began = std::time::Instant::now();
    while bed.kubectl().run(&probe).await.is_ok() {
        assert!(began.elapsed() < crate::bed::DEADLINE, "it is not asked");
        tokio::time::sleep(crate::bed::LOOK).await;
    }
    let by_hand = guard.asked.load(Ordering::Relaxed);

    let replica = Replica::alone(&bed, range.admin(1), &only(&range.pool())).await;
    bed.apply(&service("web", &range)).await;
    bed.programmed(&["web"]).await;
    let held = address(&bed.service("web").await).unwrap().parse().unwrap();
    assert_eq!(ask(SocketAddr::new(held, 8080)).await.unwrap(), "one");
    let said = bed.event("forbidden", "SyncLoadBalancerFailed").await;
    let denied = format!("admission webhook \"guard.example.com\" denied the request: {WORDS}");
    assert!(said.contains(&denied), "{said}");
    assert!(guard.asked.load(Ordering::Relaxed) > by_hand);
    let refused = bed.service("forbidden").await;
    assert_eq!(condition(&refused, "Accepted"), None);
    let mut command = landfall(bed.cluster.directory());
    command.args(["explain", &format!("{namespace}/forbidden")]);
    command.args(["--admin", &format!("http://{}", replica.admin)]);
    let story = String::from_utf8(run(command).await.stdout).unwrap();
    assert!(story.contains(&denied), "{story}");

    let delete = ["delete", "validatingwebhookconfiguration", "guard"];
    bed.kubectl().run(&delete).await.unwrap();
    bed.programmed(&["forbidden"]).await;
}
