//! The cloud: load balancers by REST, each change an operation that takes some polls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use landfall_rest::{NoAnswer, Transport};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// The secret that requests are signed with.
pub const SECRET: &str = "toy-secret";

/// A cloud. Copies are the same one.
#[derive(Clone, Default)]
pub struct Mock(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    crashed: Notify,
}

/// Where a write ends the client's process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// It was sent and has not arrived.
    Before(usize),
    /// It was carried out and not answered.
    After(usize),
}

#[derive(Default)]
struct State {
    load_balancers: BTreeMap<String, Value>,
    /// Polls that are left of an operation, its load balancer, and its end.
    operations: BTreeMap<String, (u32, String, Option<Value>)>,
    made: usize,
    writes: usize,
    fails: bool,
    crash: Option<Crash>,
}

impl Mock {
    pub fn transport(&self) -> Transport {
        let mock = self.clone();
        Transport::InProcess(Arc::new(move |request| {
            let mock = mock.clone();
            Box::pin(async move { mock.answer(&request).await })
        }))
    }

    pub fn crash_at(&self, crash: Crash) {
        self.0.state.lock().unwrap().crash = Some(crash);
    }

    /// Waits for the crash.
    pub async fn crashed(&self) {
        self.0.crashed.notified().await;
    }

    /// Lets the next operation fail.
    pub fn fail_next(&self) {
        self.0.state.lock().unwrap().fails = true;
    }

    pub fn writes(&self) -> usize {
        self.0.state.lock().unwrap().writes
    }

    /// The load balancers that are finished, with their listeners.
    pub fn running(&self) -> Vec<Value> {
        let state = self.0.state.lock().unwrap();
        let all = state.load_balancers.values();
        let running = all.filter(|it| it["state"] == "running");
        running.map(|it| it["listeners"].clone()).collect()
    }

    /// All load balancers.
    pub fn count(&self) -> usize {
        self.0.state.lock().unwrap().load_balancers.len()
    }

    async fn answer(&self, request: &Request<Bytes>) -> Result<Response<Bytes>, NoAnswer> {
        let path = request.uri().path();
        let expected = format!("{SECRET} {} {path}", request.method());
        let signature = request.headers().get("x-signature");
        if signature.is_none_or(|it| it.as_bytes() != expected.as_bytes()) {
            return Ok(reply(401, &json!({"message": "wrong signature"})));
        }
        let body = serde_json::from_slice(request.body()).unwrap_or_default();
        let parts: Vec<&str> = path.trim_start_matches("/v1/").split('/').collect();
        let crash = {
            let mut state = self.0.state.lock().unwrap();
            let is_write = request.method() != http::Method::GET;
            state.writes += usize::from(is_write);
            let number = state.writes;
            state
                .crash
                .filter(|_| is_write)
                .filter(|(Crash::Before(at) | Crash::After(at))| *at == number)
        };
        if matches!(crash, Some(Crash::Before(_))) {
            return self.die().await;
        }
        let answer = {
            let mut state = self.0.state.lock().unwrap();
            state.handle(request.method().as_str(), &parts, body)
        };
        if crash.is_some() {
            return self.die().await;
        }
        Ok(answer)
    }

    /// The process that asked ends: no answer comes.
    async fn die(&self) -> Result<Response<Bytes>, NoAnswer> {
        self.0.crashed.notify_one();
        std::future::pending().await
    }
}

impl State {
    fn handle(&mut self, method: &str, parts: &[&str], body: Value) -> Response<Bytes> {
        match (method, parts) {
            ("GET", ["load-balancers"]) => {
                let all: Vec<_> = self.load_balancers.values().collect();
                reply(200, &json!({ "load-balancers": all }))
            }
            ("GET", ["operations", id]) => self.poll(id),
            ("POST", ["load-balancers"]) => {
                self.made += 1;
                let id = format!("lb-{}", self.made);
                let mut made = body;
                made["id"] = json!(id);
                made["state"] = json!("creating");
                self.load_balancers.insert(id.clone(), made.clone());
                made["ip"] = json!(format!("192.0.2.{}", self.made));
                self.operation(&id, Some(made))
            }
            ("PUT" | "DELETE", ["load-balancers", id]) => {
                let Some(known) = self.load_balancers.get_mut(*id) else {
                    return reply(404, &json!({"message": "no such load balancer"}));
                };
                if known["state"] != "running" {
                    return reply(409, &json!({"message": "it is being changed"}));
                }
                known["state"] = json!("changing");
                let mut changed = known.clone();
                changed["listeners"] = body["listeners"].clone();
                self.operation(id, (method == "PUT").then_some(changed))
            }
            _ => reply(404, &json!({"message": "no such path"})),
        }
    }

    fn operation(&mut self, id: &str, end: Option<Value>) -> Response<Bytes> {
        let operation = format!("op-{}", self.writes);
        let entry = (2, id.to_owned(), end);
        self.operations.insert(operation.clone(), entry);
        reply(200, &json!({"id": operation, "state": "pending"}))
    }

    /// Time passes with each poll, whichever operation it asks for; so does it without one.
    fn poll(&mut self, id: &str) -> Response<Bytes> {
        let Some((left, of, end)) = self.operations.get_mut(id) else {
            return reply(404, &json!({"message": "no such operation"}));
        };
        *left = left.saturating_sub(1);
        if *left > 0 {
            return reply(200, &json!({"id": id, "state": "pending"}));
        }
        let (of, end) = (of.clone(), end.clone());
        if std::mem::take(&mut self.fails) {
            self.load_balancers.remove(&of);
            return reply(
                200,
                &json!({"id": id, "state": "failure", "message": "no capacity"}),
            );
        }
        self.finish(&of, end);
        reply(200, &json!({"id": id, "state": "success"}))
    }

    fn finish(&mut self, id: &str, end: Option<Value>) {
        match end {
            Some(mut end) => {
                end["state"] = json!("running");
                self.load_balancers.insert(id.to_owned(), end);
            }
            None => drop(self.load_balancers.remove(id)),
        }
    }
}

impl Mock {
    /// Ends all operations, as time does while no client asks.
    pub fn finish_all(&self) {
        let mut state = self.0.state.lock().unwrap();
        for (_, (left, id, end)) in std::mem::take(&mut state.operations) {
            if left > 0 {
                state.finish(&id, end);
            }
        }
    }
}

fn reply(status: u16, body: &Value) -> Response<Bytes> {
    let answer = Response::builder().status(status);
    answer.body(Bytes::from(body.to_string())).unwrap()
}
