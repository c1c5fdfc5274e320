//! A simulated Exoscale for tests: one zone with Network Load Balancers, instance pools and
//! Kubernetes clusters.
//!
//! All state is one value behind a lock; a request is answered by a function of it (`Sim::answer`),
//! without sockets. Every change is an operation that ends after some polls, or by itself after
//! some time of tokio's clock. Signatures are verified with the clock of the machine. What is not
//! known of the real API is a switch in `Settings`. `Sim::serve` puts the same behind HTTP on
//! loopback.

mod fault;
mod hand;
mod load_balancers;
mod operation;
mod operations;
mod route;
mod rules;
mod serve;
mod services;
mod settings;
mod signature;
mod wire;
mod world;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};

use wire::Reply;
use world::World;

pub use fault::{Call, Fault, NoAnswer};
pub use operation::{End, Fate};
pub use serve::Served;
pub use settings::{ErrorShape, Parallel, Settings};

type Hook = Box<dyn FnMut(&Call) -> Option<Fault> + Send>;

/// The key that is valid in the beginning.
pub const KEY: &str = "EXO00000000000000000000sim";
/// Its secret.
pub const SECRET: &str = "simulated-secret";
/// The zone.
pub const ZONE: &str = "ch-gva-2";

/// The simulated cloud. Clones are the same cloud.
#[derive(Clone)]
pub struct Sim {
    world: Arc<Mutex<World>>,
    hook: Arc<Mutex<Option<Hook>>>,
}

impl Default for Sim {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Sim {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Sim")
    }
}

impl Sim {
    /// Makes an empty zone.
    pub fn new() -> Self {
        Self {
            world: Arc::new(Mutex::new(World::new())),
            hook: Arc::default(),
        }
    }

    /// Works on the state, after all operations whose time has come have ended.
    fn world<T>(&self, work: impl FnOnce(&mut World) -> T) -> T {
        let mut world = self.world.lock().unwrap_or_else(PoisonError::into_inner);
        world.settle_due();
        work(&mut world)
    }

    /// Changes the settings.
    pub fn configure(&self, change: impl FnOnce(&mut Settings)) {
        self.world(|world| change(&mut world.settings));
    }

    /// Decides about faults, call by call.
    pub fn on_call(&self, decide: impl FnMut(&Call) -> Option<Fault> + Send + 'static) {
        let mut hook = self.hook.lock().unwrap_or_else(PoisonError::into_inner);
        *hook = Some(Box::new(decide));
    }

    /// Ends all faults, of calls and of operations to come.
    pub fn heal(&self) {
        *self.hook.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.world(|world| world.fates.clear());
    }

    /// Decides how the next change ends, after those that are decided already.
    pub fn next_change(&self, fate: Fate) {
        self.world(|world| world.fates.push_back(fate));
    }

    /// Returns the address of the API, with `/v2`.
    pub fn endpoint(&self) -> String {
        self.world(|world| world.endpoint.clone())
    }

    /// Returns all calls since the beginning or the last `forget_calls`.
    pub fn calls(&self) -> Vec<Call> {
        self.world(|world| world.log.iter().skip(world.forgotten).cloned().collect())
    }

    /// Returns the calls that asked for a change.
    pub fn writes(&self) -> Vec<Call> {
        let mut calls = self.calls();
        calls.retain(Call::is_write);
        calls
    }

    /// Lets `calls` start again.
    pub fn forget_calls(&self) {
        self.world(|world| world.forgotten = world.log.len());
    }

    /// Answers a request.
    pub async fn answer(&self, request: Request<Bytes>) -> Result<Response<Bytes>, NoAnswer> {
        let (call, latency) = self.begin(&request);
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        let fault = {
            let mut hook = self.hook.lock().unwrap_or_else(PoisonError::into_inner);
            hook.as_mut().and_then(|hook| hook(&call))
        };
        let apply = || {
            let reply = self.world(|world| world.handle(&request));
            self.finish(call.number, reply.status);
            reply
        };
        let reply = match fault {
            None => apply(),
            Some(Fault::NoAnswerBefore) => return Err(NoAnswer),
            Some(Fault::HangBefore) => std::future::pending().await,
            Some(Fault::Delay(time)) => {
                tokio::time::sleep(time).await;
                apply()
            }
            Some(Fault::Status {
                code,
                body,
                retry_after,
            }) => {
                self.finish(call.number, code);
                let retry_after = retry_after.map(|seconds| ("retry-after", seconds.to_string()));
                Reply {
                    status: code,
                    body: Bytes::from(body),
                    headers: retry_after.into_iter().collect(),
                }
            }
            Some(Fault::NoAnswerAfter) => {
                apply();
                return Err(NoAnswer);
            }
            Some(Fault::HangAfter) => {
                apply();
                std::future::pending().await
            }
        };
        Ok(reply.into_response())
    }

    /// Writes the call into the log.
    fn begin(&self, request: &Request<Bytes>) -> (Call, Duration) {
        let agent = request.headers().get("user-agent");
        let agent = agent.and_then(|agent| agent.to_str().ok());
        self.world(|world| {
            let call = Call {
                number: world.log.len(),
                method: request.method().clone(),
                path: request.uri().path().to_owned(),
                query: request.uri().query().unwrap_or_default().to_owned(),
                body: request.body().clone(),
                signed: request.headers().contains_key("authorization"),
                user_agent: agent.unwrap_or_default().to_owned(),
                status: 0,
            };
            world.log.push(call.clone());
            (call, world.settings.latency)
        })
    }

    fn finish(&self, number: usize, status: u16) {
        self.world(|world| {
            if let Some(call) = world.log.get_mut(number) {
                call.status = status;
            }
        });
    }
}
