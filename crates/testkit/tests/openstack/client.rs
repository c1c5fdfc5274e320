//! A plain client of the simulator, for its own tests.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use landfall_testkit::openstack::{NoAnswer, Sim};
use serde_json::{Value, json};

pub const BALANCERS: &str = "/v2/lbaas/loadbalancers";

pub struct Client {
    pub sim: Sim,
    pub token: String,
}

impl Client {
    pub async fn new(sim: Sim) -> Self {
        let reply = login(&sim, &password(&sim)).await;
        assert_eq!(reply.status(), 201);
        let token = reply.headers()["x-subject-token"].to_str().unwrap();
        Self {
            token: token.to_owned(),
            sim,
        }
    }

    pub async fn raw(&self, request: Request<Bytes>) -> Result<Response<Bytes>, NoAnswer> {
        self.sim.answer(request).await
    }

    pub fn request(&self, method: &str, url: &str, body: &Value) -> Request<Bytes> {
        let body = match body {
            Value::Null => Bytes::new(),
            body => Bytes::from(body.to_string()),
        };
        Request::builder()
            .method(Method::from_bytes(method.as_bytes()).unwrap())
            .uri(url)
            .header("x-auth-token", &self.token)
            .header("user-agent", "test")
            .body(body)
            .unwrap()
    }

    pub async fn call(&self, method: &str, url: &str, body: Value) -> (u16, Value) {
        let reply = self.raw(self.request(method, url, &body)).await.unwrap();
        let value = serde_json::from_slice(reply.body()).unwrap_or(Value::Null);
        (reply.status().as_u16(), value)
    }

    /// Octavia.
    pub async fn lb(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        self.call(method, &format!("http://load-balancer.sim{path}"), body)
            .await
    }

    /// Neutron.
    pub async fn net(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        self.call(method, &format!("http://network.sim/v2.0{path}"), body)
            .await
    }

    /// Creates a load balancer in S with what is given and waits until it is ACTIVE.
    pub async fn balancer(&self, more: Value) -> Value {
        let (status, made) = self.lb("POST", BALANCERS, self.spec(more)).await;
        assert_eq!(status, 201, "{made}");
        settle().await;
        self.sim
            .load_balancer(made["loadbalancer"]["id"].as_str().unwrap())
    }

    #[expect(
        clippy::needless_pass_by_value,
        reason = "callers write the value in place"
    )]
    pub fn spec(&self, more: Value) -> Value {
        let mut spec = json!({"name": "lb", "vip_subnet_id": self.sim.subnet()});
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        json!({"loadbalancer": spec})
    }

    /// One with a listener on TCP 80, a pool, two members and a monitor. Its ids: itself, listener,
    /// pool.
    pub async fn web(&self) -> (String, String, String) {
        let lb = self.balancer(json!({"listeners": [listener(80)]})).await;
        let id = |value: &Value| value["id"].as_str().unwrap().to_owned();
        (id(&lb), id(&lb["listeners"][0]), id(&lb["pools"][0]))
    }
}

pub async fn settle() {
    tokio::time::sleep(Duration::from_secs(1)).await;
}

pub fn listener(port: u16) -> Value {
    json!({"name": format!("listener-{port}"), "protocol": "TCP", "protocol_port": port,
        "default_pool": {"name": format!("pool-{port}"), "protocol": "TCP",
            "lb_algorithm": "ROUND_ROBIN",
            "members": [member("10.0.0.4"), member("10.0.0.5")],
            "healthmonitor": {"type": "TCP", "delay": 5, "timeout": 3, "max_retries": 1}}})
}

pub fn member(address: &str) -> Value {
    json!({"address": address, "protocol_port": 30080})
}

pub fn password(sim: &Sim) -> Value {
    json!({"auth": {
        "identity": {"methods": ["password"], "password": {"user": {
            "name": "landfall", "domain": {"id": "default"}, "password": "simulated-password"}}},
        "scope": {"project": {"id": sim.project()}}}})
}

pub async fn login(sim: &Sim, body: &Value) -> Response<Bytes> {
    let request = Request::post(format!("{}/auth/tokens", sim.auth_url()));
    let request = request.body(Bytes::from(body.to_string())).unwrap();
    sim.answer(request).await.unwrap()
}

pub fn fault(reply: &Value) -> &str {
    reply["faultstring"].as_str().unwrap_or_default()
}

pub fn trouble(reply: &Value) -> (&str, &str) {
    let error = &reply["NeutronError"];
    (
        error["type"].as_str().unwrap_or_default(),
        error["message"].as_str().unwrap_or_default(),
    )
}
