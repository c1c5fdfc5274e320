//! The simulated Exoscale's own rules, where no client of ours is needed.

#![expect(clippy::unwrap_used, reason = "tests")]

use bytes::Bytes;
use http::Request;
use landfall_testkit::exoscale::Sim;
use serde_json::{Value, json};

async fn get(sim: &Sim, path: &str, authorization: Option<&str>) -> (u16, Value) {
    let uri = format!("http://exoscale.test/v2{path}");
    let request = Request::get(uri);
    let request = authorization
        .into_iter()
        .fold(request, |it, value| it.header("authorization", value));
    let answer = sim
        .answer(request.body(Bytes::new()).unwrap())
        .await
        .unwrap();
    let body = serde_json::from_slice(answer.body()).unwrap();
    (answer.status().as_u16(), body)
}

#[tokio::test]
async fn zones_need_no_signature_and_all_else_does() {
    let sim = Sim::new();
    let (status, zones) = get(&sim, "/zone", None).await;
    let endpoint = &zones["zones"][1]["api-endpoint"];
    assert_eq!((status, endpoint), (200, &json!("http://exoscale.test/v2")));
    for authorization in [
        None,
        Some("Bearer x"),
        Some("EXO2-HMAC-SHA256 credential=EXO1,expires=1,signature=AAAA"),
        Some("EXO2-HMAC-SHA256 nonsense"),
    ] {
        let (status, body) = get(&sim, "/load-balancer", authorization).await;
        assert_eq!(status, 403, "{body}");
    }
    assert_eq!(sim.calls().len(), 5);
}
