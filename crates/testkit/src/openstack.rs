//! A simulated OpenStack for tests: Keystone, Neutron, Octavia and Barbican with the rules of the
//! real servers.
//!
//! All state is one value behind a lock; a request is answered by a function of it (`Sim::answer`),
//! without sockets. Time is tokio's, so that tests with a paused clock run in virtual time; ids
//! come from a counter with a seed: a run can be replayed. `Sim::serve` puts the same behind HTTP
//! on loopback, for the real binary.

mod barbican;
mod clock;
mod fault;
mod hand;
mod keystone;
mod listing;
mod load_balancers;
mod log;
mod neutron;
mod octavia;
mod route;
mod serve;
mod settings;
mod table;
mod wire;
mod world;

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{Request, Response};
use tokio::time::Instant;

use world::World;

pub use fault::{CallInfo, Chaos, Fault, NoAnswer};
pub use hand::Refusal;
pub use load_balancers::Fate;
pub use log::Call;
pub use serve::Served;
pub use settings::{Logins, Quota, Settings, Settle};
pub use wire::Service;
pub use world::Start;

type Hook = Box<dyn FnMut(&CallInfo) -> Option<Fault> + Send>;

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
    /// The default world: API 2.27, an external network with an IPv4 subnet, a tenant network with
    /// 10.0.0.0/24.
    pub fn new() -> Self {
        Self::with(&Start::default())
    }

    /// A world that begins differently.
    pub fn with(start: &Start) -> Self {
        let mut world = World::new(start);
        world.add_first_networks(start);
        Self {
            world: Arc::new(Mutex::new(world)),
            hook: Arc::default(),
        }
    }

    /// Works on the state, after all locks whose time has come have ended.
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
    pub fn on_call(&self, decide: impl FnMut(&CallInfo) -> Option<Fault> + Send + 'static) {
        let mut hook = self.hook.lock().unwrap_or_else(PoisonError::into_inner);
        *hook = Some(Box::new(decide));
    }

    /// No more faults: neither of calls nor of locks.
    pub fn heal(&self) {
        *self.hook.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.world(|world| {
            world.fates = None;
            world.next_fates.clear();
        });
    }

    /// Installs a schedule of faults.
    pub fn unleash(&self, chaos: &Chaos) {
        self.on_call(chaos.calls());
        self.on_lock(chaos.locks());
    }

    /// Answers a request whose URI is complete (scheme and host too).
    pub async fn answer(&self, request: Request<Bytes>) -> Result<Response<Bytes>, NoAnswer> {
        let url = request.uri().to_string();
        let (info, latency) = self.begin(&request, &url);
        let number = info.number;
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        let fault = {
            let mut hook = self.hook.lock().unwrap_or_else(PoisonError::into_inner);
            hook.as_mut().and_then(|hook| hook(&info))
        };
        if let Some(Fault::NoAnswerAndLater(time)) = fault {
            let sim = self.clone();
            tokio::spawn(async move {
                tokio::time::sleep(time).await;
                let reply = sim.world(|world| world.handle(&request, &url));
                sim.finish(number, reply.status, false);
            });
            return Err(NoAnswer);
        }
        let apply = || self.world(|world| world.handle(&request, &url));
        let mut reply = match fault {
            None => apply(),
            Some(Fault::NoAnswerBefore | Fault::NoAnswerAndLater(_)) => return Err(NoAnswer),
            Some(Fault::HangBefore) => std::future::pending().await,
            Some(Fault::Delay(time)) => {
                tokio::time::sleep(time).await;
                apply()
            }
            Some(Fault::TokenDies) => {
                let token = request.headers().get("x-auth-token");
                if let Some(token) = token.and_then(|token| token.to_str().ok()) {
                    self.world(|world| world.tokens.remove(token));
                }
                apply()
            }
            Some(Fault::Status {
                code,
                body,
                retry_after,
            }) => {
                let mut reply = wire::Reply::json(code, &body);
                let after = retry_after.map(|seconds| ("retry-after", seconds.to_string()));
                reply.headers.extend(after);
                reply
            }
            Some(Fault::NoAnswerAfter) => {
                let reply = apply();
                self.finish(number, reply.status, false);
                return Err(NoAnswer);
            }
            Some(Fault::HangAfter) => {
                let reply = apply();
                self.finish(number, reply.status, false);
                std::future::pending().await
            }
        };
        self.finish(number, reply.status, true);
        // Another one each time, as of every service.
        let id = format!("req-{number}");
        reply.headers.push(("x-openstack-request-id", id));
        Ok(respond(reply))
    }

    /// Writes the call into the log.
    fn begin(&self, request: &Request<Bytes>, url: &str) -> (CallInfo, std::time::Duration) {
        self.world(|world| {
            let found = world.service_of(url);
            let rest = found.map_or(url, |(_, base)| url.get(base..).unwrap_or_default());
            let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
            let agent = request.headers().get("user-agent");
            let agent = agent.and_then(|agent| agent.to_str().ok());
            let info = CallInfo {
                number: world.log.len(),
                service: found.map(|(service, _)| service),
                method: request.method().clone(),
                path: path.to_owned(),
                query: query.to_owned(),
                body_bytes: request.body().len(),
                body: request.body().clone(),
            };
            world.log.push(Call {
                at: world.clock.elapsed(),
                service: info.service,
                method: info.method.clone(),
                path: info.path.clone(),
                query: info.query.clone(),
                body: request.body().clone(),
                body_bytes: info.body_bytes,
                status: 0,
                answered: false,
                user_agent: agent.unwrap_or_default().to_owned(),
            });
            (info, world.settings.latency)
        })
    }

    fn finish(&self, number: usize, status: u16, answered: bool) {
        self.world(|world| {
            if let Some(call) = world.log.get_mut(number) {
                call.status = status;
                call.answered = answered;
            }
        });
    }

    /// All calls since the beginning or the last `forget_calls`.
    pub fn calls(&self) -> Vec<Call> {
        self.world(|world| world.log.iter().skip(world.forgotten).cloned().collect())
    }

    /// How many calls there were since the simulator was made.
    pub fn call_count(&self) -> usize {
        self.world(|world| world.log.len())
    }

    /// The calls that asked for a change.
    pub fn writes(&self) -> Vec<Call> {
        let mut calls = self.calls();
        calls.retain(Call::is_write);
        calls
    }

    /// Lets `calls` start again.
    pub fn forget_calls(&self) {
        self.world(|world| world.forgotten = world.log.len());
    }

    /// When the next locked load balancer settles.
    pub fn next_settle(&self) -> Option<Instant> {
        self.world(|world| world.due.keys().next().map(|(at, _)| *at))
    }

    /// Keystone's URL, with `/v3`.
    pub fn auth_url(&self) -> String {
        self.world(|world| world.base(Service::Identity).to_owned())
    }

    /// Id of our project.
    pub fn project(&self) -> String {
        self.world(|world| world.project.clone())
    }

    /// Id of the external network X.
    pub fn external_network(&self) -> String {
        self.world(|world| world.external_network.clone())
    }

    /// Id of the external network's subnet.
    pub fn external_subnet(&self) -> String {
        self.world(|world| world.external_subnet.clone())
    }

    /// Id of the tenant's network.
    pub fn network(&self) -> String {
        self.world(|world| world.network.clone())
    }

    /// Id of the tenant's subnet S.
    pub fn subnet(&self) -> String {
        self.world(|world| world.subnet.clone())
    }
}

fn respond(reply: wire::Reply) -> Response<Bytes> {
    let mut response = Response::new(reply.body);
    *response.status_mut() = http::StatusCode::from_u16(reply.status).unwrap_or_default();
    let typed = reply
        .headers
        .iter()
        .any(|(name, _)| *name == "content-type");
    let headers = response.headers_mut();
    if !typed {
        let json = http::HeaderValue::from_static("application/json");
        headers.insert("content-type", json);
    }
    for (name, value) in reply.headers {
        if let Ok(value) = http::HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    }
    response
}
