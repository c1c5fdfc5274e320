//! The provider.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request};
use landfall_model::intent::{Intent, LoadBalancerSpec};
use landfall_model::option::OptionId;
use landfall_model::plan::{Plan, Wait};
use landfall_model::provider::{
    Applied, Provider, ProviderError, ProviderProfile, ProviderStatus, ProviderStep, Scope,
    Support, Target,
};
use landfall_model::reason::{Code, Reason};
use landfall_model::status::{IngressAddress, IpMode};
use landfall_model::{ServiceKey, Uid};
use landfall_rest::{
    Api, ApiError, At, Authorize, Change, Client, ErrorFormat, ErrorKind, Exchange, Operation,
    OperationState, Polling, Progress, Timeouts, Transport, Url,
};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::Instant;

/// Signs each request.
struct Signer(SecretString);

/// The API: one service at a fixed address.
struct ToyApi {
    signer: Arc<Signer>,
    base: Url,
}

#[derive(Clone, Copy)]
struct Service;

#[derive(Clone, Debug, Deserialize)]
pub struct LoadBalancer {
    id: String,
    owner: Uid,
    state: String,
    ip: Option<IpAddr>,
    listeners: Value,
}

#[derive(Deserialize)]
struct OperationBody {
    id: String,
    state: String,
    #[serde(default)]
    message: String,
}

/// What the cloud has for a Service.
#[derive(Debug)]
pub struct Observed {
    load_balancer: Option<LoadBalancer>,
    /// The operation in flight.
    pending: Option<String>,
}

/// One change.
#[derive(Debug, Serialize)]
pub enum Step {
    Create {
        service: ServiceKey,
        owner: Uid,
        listeners: Value,
    },
    Update {
        id: String,
        owner: Uid,
        listeners: Value,
    },
    Delete {
        id: String,
        owner: Uid,
    },
}

/// A provider for the cloud.
pub struct Toy {
    client: Client<ToyApi>,
    operations: Mutex<BTreeMap<Uid, Operation>>,
    profile: ProviderProfile,
}

impl Authorize for Signer {
    fn authorize(&self, request: &mut Request<Bytes>) -> Result<(), String> {
        let path = request.uri().path();
        let text = format!("{} {} {path}", self.0.expose_secret(), request.method());
        let value = HeaderValue::try_from(text).map_err(|why| why.to_string())?;
        request.headers_mut().insert("x-signature", value);
        Ok(())
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("toy")
    }
}

impl Api for ToyApi {
    type Session = Signer;
    type Service = Service;

    async fn session(
        &self,
        _exchange: &Exchange,
        _refused: Option<&Signer>,
    ) -> Result<Arc<Signer>, ApiError> {
        Ok(Arc::clone(&self.signer))
    }

    fn base<'s>(&'s self, _session: &'s Signer, _service: Service) -> Result<&'s Url, String> {
        Ok(&self.base)
    }
}

impl Toy {
    pub fn new(transport: Transport, secret: &str) -> Self {
        let agent = HeaderValue::from_static("landfall");
        let exchange = Exchange::new(transport, agent, ErrorFormat::COMMON);
        exchange.hide(&secret.into());
        let api = ToyApi {
            signer: Arc::new(Signer(secret.into())),
            base: landfall_rest::http_url("http://toy/v1").unwrap(),
        };
        let profile = ProviderProfile {
            provider: "toy",
            target: Target::Pod,
            support: |option| match option {
                OptionId::ProtocolSctp => Support::Refused {
                    why: "TCP and UDP only",
                },
                _ => Support::Supported,
            },
            ..ProviderProfile::default()
        };
        Self {
            client: Client::new(api, exchange, Timeouts::default(), 1 << 20),
            operations: Mutex::default(),
            profile,
        }
    }

    fn operations(&self) -> MutexGuard<'_, BTreeMap<Uid, Operation>> {
        self.operations.lock().unwrap()
    }

    /// Asks for the operation in flight of a Service, if that is due.
    async fn pending(&self, owner: &Uid) -> Result<Option<String>, ApiError> {
        let operation = self.operations().get(owner).cloned();
        let Some(mut operation) = operation else {
            return Ok(None);
        };
        let ask = |id: String| async move {
            let path = ["operations", id.as_str()];
            let body: Option<OperationBody> = self
                .client
                .object(At::new(Service, "operation", &path))
                .await?;
            Ok(match body {
                Some(body) if body.state == "success" => OperationState::Done(()),
                Some(body) if body.state == "pending" => OperationState::Pending,
                Some(body) => OperationState::Failed(ErrorKind::Conflict, body.message),
                None => OperationState::Failed(ErrorKind::NotFound, "it is not known".to_owned()),
            })
        };
        match operation.poll(ask).await {
            Ok(Progress::Pending(_)) => {
                let id = operation.id().to_owned();
                self.operations().insert(owner.clone(), operation);
                Ok(Some(id))
            }
            Ok(Progress::Done(())) => {
                self.operations().remove(owner);
                Ok(None)
            }
            Err(error) => {
                self.operations().remove(owner);
                Err(error)
            }
        }
    }

    async fn change(
        &self,
        owner: &Uid,
        path: &[&str],
        change: Change,
    ) -> Result<Applied, ProviderError> {
        let at = At::new(Service, "load-balancer", path);
        let body: OperationBody = self.client.changed(at, change).await.map_err(failure)?;
        let operation = Operation::new(body.id, Polling::default(), Instant::now());
        let after = operation.due_in(Instant::now());
        self.operations().insert(owner.clone(), operation);
        Ok(Applied::Busy { after })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn failure(error: ApiError) -> ProviderError {
    ProviderError {
        retry: error.retry(),
        reason: Reason::error(Code::ProviderFailed, error.without_id()),
        scope: Scope::Reconcile,
    }
}

fn listeners(spec: &LoadBalancerSpec) -> Value {
    let listener = |it: &landfall_model::Listener| {
        let members: Vec<_> = it.pool.members.iter().map(|it| it.address).collect();
        json!({"port": it.key.port, "protocol": it.key.protocol, "members": members})
    };
    spec.listeners.iter().map(listener).collect()
}

impl Provider for Toy {
    type Observed = Observed;
    type Step = Step;

    fn profile(&self) -> &ProviderProfile {
        &self.profile
    }

    async fn observe(&self, want: &Intent) -> Result<Observed, ProviderError> {
        let pending = self.pending(&want.uid).await.map_err(failure)?;
        let at = At::new(Service, "load-balancer", &["load-balancers"]);
        let all = self.client.list(at, "load-balancers").await;
        let all: Vec<LoadBalancer> = all.map_err(failure)?;
        let load_balancer = all.into_iter().find(|it| it.owner == want.uid);
        // Before a crash, another process may have begun what goes on now.
        let other = load_balancer.as_ref().filter(|it| it.state != "running");
        Ok(Observed {
            pending: pending.or(other.map(|it| format!("of {}", it.id))),
            load_balancer,
        })
    }

    fn plan(&self, want: &Intent, have: &Observed) -> Result<Plan<Step>, Vec<Reason>> {
        let (mut plan, owner) = (Plan::default(), want.uid.clone());
        if let Some(id) = &have.pending {
            plan.waits.push(Wait {
                object: "operation",
                id: id.clone(),
                doing: "pending",
                because: "the cloud takes one change at a time",
                creates: have.load_balancer.as_ref().is_none_or(|it| it.ip.is_none()),
            });
            return Ok(plan);
        }
        match (
            want.load_balancer.as_ref().map(listeners),
            &have.load_balancer,
        ) {
            (Some(listeners), None) => {
                let service = want.service.clone();
                let step = Step::Create {
                    service,
                    owner,
                    listeners,
                };
                plan.push(step, "the Service has no load balancer");
            }
            (Some(listeners), Some(it)) if it.listeners != listeners => {
                let id = it.id.clone();
                plan.push(
                    Step::Update {
                        id,
                        owner,
                        listeners,
                    },
                    "the Service changed",
                );
            }
            (None, Some(it)) => {
                let id = it.id.clone();
                plan.push(Step::Delete { id, owner }, "the Service needs none");
            }
            (Some(_), Some(_)) | (None, None) => {}
        }
        Ok(plan)
    }

    async fn apply(&self, step: &Step) -> Result<Applied, ProviderError> {
        match step {
            Step::Create {
                service,
                owner,
                listeners,
            } => {
                let name = service.to_string();
                let body = json!({"name": name, "owner": owner, "listeners": listeners});
                let change = Change::new(Method::POST, Some(body));
                self.change(owner, &["load-balancers"], change).await
            }
            Step::Update {
                id,
                owner,
                listeners,
            } => {
                let change = Change::new(Method::PUT, Some(json!({"listeners": listeners})));
                self.change(owner, &["load-balancers", id], change).await
            }
            Step::Delete { id, owner } => {
                let change = Change::new(Method::DELETE, None);
                self.change(owner, &["load-balancers", id], change).await
            }
        }
    }

    fn on_waiting(&self, wait: &Wait) -> Duration {
        let operations = self.operations();
        let operation = operations.values().find(|it| it.id() == wait.id);
        operation.map_or(Polling::default().first, |it| it.due_in(Instant::now()))
    }

    fn status(&self, want: &Intent, have: &Observed) -> ProviderStatus {
        let ip = have.load_balancer.as_ref().and_then(|it| it.ip);
        let mut status = ProviderStatus::default();
        if want.load_balancer.is_some() {
            status.ingress.extend(ip.map(|ip| IngressAddress {
                ip: Some(ip),
                ip_mode: Some(IpMode::Vip),
                ..IngressAddress::default()
            }));
            let waits = have.pending.is_some() || ip.is_none();
            let why = "the cloud works on the load balancer";
            status
                .waiting
                .extend(waits.then(|| Reason::info(Code::Progressing, why)));
        }
        status
    }

    async fn audit(&self) -> Result<Vec<Uid>, ProviderError> {
        Ok(Vec::new())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { service, .. } => write!(f, "create load balancer {service}"),
            Self::Update { id, .. } => write!(f, "update load balancer {id}"),
            Self::Delete { id, .. } => write!(f, "delete load balancer {id}"),
        }
    }
}

impl ProviderStep for Step {
    fn kind(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Update { .. } => "update",
            Self::Delete { .. } => "delete",
        }
    }
}
