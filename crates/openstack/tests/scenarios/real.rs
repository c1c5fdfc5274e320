//! The real side of the scenarios: a project of the test bed's OpenStack, real time, real connections.
//!
//! `LANDFALL_SIDE=amphora` or `ovn` puts every [`Rig::new`](super::Rig::new) of the process there.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use http::Method;
use landfall_openstack::client::auth::{Auth, DomainRef, ProjectRef, Scope, UserRef};
use landfall_openstack::client::{Cloud, CloudConfig, NoAnswer, Transport};
use landfall_testkit::openstack::{Refusal, Service as Simulated};
use landfall_testkit::stack::{Project, Service, Stack, StackError};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// Names the provider of load balancers, and that the cloud is to be real.
const SIDE: &str = "LANDFALL_SIDE";

/// A project, and what the controller has asked of it.
pub struct Real {
    project: Option<Arc<Project>>,
    provider: &'static str,
    pub calls: Calls,
}

/// The controller's calls, in the order in which they were made.
#[derive(Clone, Default)]
pub struct Calls(Arc<CallsState>);

#[derive(Default)]
struct CallsState {
    lines: Mutex<Vec<String>>,
    forgotten: AtomicUsize,
    under_way: AtomicUsize,
}

/// Where the test's own hands work, while the test's thread waits.
static HANDS: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
});

/// Octavia's own words for a load balancer that is in the works.
const PENDING: &str = "PENDING_";

/// As long as a row may wait for something to happen.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// A load balancer takes seconds; many at once take many.
const SOON: Duration = Duration::from_secs(180);

/// The provider of the real side; `None`: the scenarios play on the simulator.
pub fn provider() -> Option<&'static str> {
    match std::env::var(SIDE).ok()?.as_str() {
        "amphora" => Some("amphora"),
        "ovn" => Some("ovn"),
        _ => None,
    }
}

/// Works with the hands of the test, while its own runtime stands still.
pub fn wait_for<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let (tell, told) = mpsc::channel();
    HANDS.spawn(async move { tell.send(work.await) });
    told.recv().unwrap()
}

// === impl Real ===

impl Real {
    /// A new project, with the subnet of the simulator's default world.
    pub fn new(provider: &'static str) -> Self {
        // The clock stands still where scenarios begin.
        tokio::time::resume();
        let project = wait_for(async {
            let stack = Stack::shared().await;
            let pools = json!([{"start": "10.0.0.100", "end": "10.0.0.250"}]);
            let subnet = json!({"cidr": "10.0.0.0/24", "allocation_pools": pools});
            stack.project_in("row", subnet).await.unwrap()
        });
        Self::within(project, provider)
    }

    /// A project that is there.
    pub fn within(project: Project, provider: &'static str) -> Self {
        Self {
            project: Some(Arc::new(project)),
            provider,
            calls: Calls::default(),
        }
    }

    pub fn project(&self) -> &Arc<Project> {
        self.project.as_ref().unwrap()
    }

    /// `cloud.conf` up to and into `[LoadBalancer]`.
    pub fn conf(&self) -> String {
        let mut conf = self.project().cloud_conf();
        if self.provider == "ovn" {
            conf.push_str("lb-provider=ovn\nlb-method=SOURCE_IP_PORT\n");
        }
        conf
    }

    fn config(&self) -> CloudConfig {
        let project = self.project();
        let auth = Auth::Password {
            user: UserRef::Name {
                name: project.username.clone(),
                domain: DomainRef::Id(project.domain_id.clone()),
            },
            password: project.password.clone().into(),
            scope: Scope::Project(ProjectRef::Id(project.id.clone())),
        };
        CloudConfig::new(&project.auth_url, auth)
    }

    /// A client of the scenarios' own.
    pub fn looker(&self, agent: &str) -> Cloud {
        let mut config = self.config();
        agent.clone_into(&mut config.user_agent);
        Cloud::new(config).unwrap()
    }

    /// The controller's client: over the network, and written down.
    pub fn controller(&self, body_limit: Option<usize>) -> Cloud {
        let mut config = self.config();
        config.body_limit = body_limit.unwrap_or(config.body_limit);
        let Ok(Transport::Network(client)) = Transport::network(&config) else {
            unreachable!("a client of a network goes over the network")
        };
        let calls = self.calls.clone();
        let transport = Transport::InProcess(Arc::new(move |request| {
            let client = client.clone();
            let ticket = calls.begin(request.method(), request.uri());
            Box::pin(async move {
                let _ticket = ticket;
                let lost = |error: reqwest::Error| NoAnswer::Lost(error.to_string());
                let request = reqwest::Request::try_from(request).map_err(lost)?;
                let mut answer = client.execute(request).await.map_err(lost)?;
                let mut head = http::Response::new(bytes::Bytes::new());
                *head.status_mut() = answer.status();
                *head.headers_mut() = std::mem::take(answer.headers_mut());
                *head.body_mut() = answer.bytes().await.map_err(lost)?;
                Ok(head)
            })
        }));
        Cloud::over(config, transport).unwrap()
    }

    pub fn add_node(&self, name: &str, address: IpAddr) -> String {
        let (project, name) = (self.project().clone(), name.to_owned());
        wait_for(async move { project.node(&name, address).await.unwrap().server_id })
    }

    /// As `Sim::hand`, but what is busy is waited for, before and after.
    pub fn hand(
        &self,
        service: Simulated,
        method: &Method,
        path: &str,
        body: &Value,
    ) -> Result<Value, Refusal> {
        self.wait_until_calm();
        let (project, path) = (self.project().clone(), path.to_owned());
        let method: landfall_testkit::stack::Method = method.as_str().parse().unwrap();
        let mut body = body.clone();
        // The simulator has amphora for a default, and so has the real thing: the side says which.
        if let Some(balancer) = body.get_mut("loadbalancer")
            && balancer.get("vip_subnet_id").is_some()
        {
            balancer["provider"] = json!(self.provider);
        }
        let answer = wait_for(async move {
            let body = (!body.is_null()).then_some(&body);
            project.ask(method, same(service), &path, body).await
        });
        self.wait_until_calm();
        let answer = answer.unwrap();
        if (200..300).contains(&answer.status) {
            Ok(answer.body)
        } else {
            Err((answer.status, answer.body))
        }
    }

    pub fn delete(&self, id: &str) -> bool {
        let tried = [
            (
                Simulated::LoadBalancer,
                format!("/v2/lbaas/loadbalancers/{id}?cascade=true"),
            ),
            (Simulated::LoadBalancer, format!("/v2/lbaas/listeners/{id}")),
            (Simulated::LoadBalancer, format!("/v2/lbaas/pools/{id}")),
            (
                Simulated::LoadBalancer,
                format!("/v2/lbaas/healthmonitors/{id}"),
            ),
            (Simulated::Network, format!("/v2.0/floatingips/{id}")),
            (Simulated::Network, format!("/v2.0/security-groups/{id}")),
        ];
        tried.iter().any(|(service, path)| {
            self.hand(*service, &Method::DELETE, path, &Value::Null)
                .is_ok()
        })
    }

    /// Waits until no load balancer of the project is in the works, nor what is below it.
    pub fn wait_until_calm(&self) {
        let project = self.project().clone();
        wait_for(async move {
            let begun = Instant::now();
            while is_busy(&project).await.unwrap() && begun.elapsed() < SOON {
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        });
    }

    /// Waits until the controller has asked nothing for a while, nothing is under way and nothing in the works; at
    /// most some minutes, for what fails for ever.
    pub async fn settle(&self, written: impl Fn() -> usize) {
        const QUIET: Duration = Duration::from_secs(5);
        let begun = Instant::now();
        let (mut last, mut since) = ((0, 0), Instant::now());
        while begun.elapsed() < SOON {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let now = (self.calls.count(), written());
            if now != last || self.calls.under_way() > 0 {
                (last, since) = (now, Instant::now());
            } else if since.elapsed() >= QUIET {
                let project = self.project().clone();
                if !HANDS
                    .spawn(async move { is_busy(&project).await.unwrap() })
                    .await
                    .unwrap()
                {
                    return;
                }
                since = Instant::now();
            }
        }
    }
}

async fn is_busy(project: &Project) -> Result<bool, StackError> {
    for (path, name) in [
        ("/v2/lbaas/loadbalancers", "loadbalancers"),
        ("/v2/lbaas/listeners", "listeners"),
        ("/v2/lbaas/pools", "pools"),
    ] {
        let rows = project.list(Service::LoadBalancer, path, name).await?;
        let status = |row: &Value| row["provisioning_status"].as_str().unwrap_or("").to_owned();
        if rows.iter().any(|row| status(row).starts_with(PENDING)) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn same(service: Simulated) -> Service {
    match service {
        Simulated::Identity => Service::Identity,
        Simulated::Network => Service::Network,
        Simulated::LoadBalancer => Service::LoadBalancer,
        Simulated::KeyManager => Service::KeyManager,
    }
}

impl Drop for Real {
    #[expect(clippy::print_stderr, reason = "whoever reads the test's output")]
    fn drop(&mut self) {
        let Some(project) = self.project.take().and_then(Arc::into_inner) else {
            return;
        };
        if let Err(error) = wait_for(project.delete()) {
            eprintln!("a project is left behind: {error}");
        }
    }
}

// === impl Calls ===

/// A call whose answer is awaited.
struct Ticket(Calls);

impl Calls {
    fn lines(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.0.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, method: &Method, url: &http::Uri) -> Ticket {
        let path = url.path_and_query().map_or("", |path| path.as_str());
        self.lines().push(format!("{method} {path}"));
        self.0.under_way.fetch_add(1, Ordering::SeqCst);
        Ticket(self.clone())
    }

    /// How many there were at all.
    fn count(&self) -> usize {
        self.lines().len()
    }

    /// The changes since the last `forget`, logins apart.
    pub fn writes(&self) -> Vec<String> {
        let mut lines = self.since();
        lines.retain(|line| !line.starts_with("GET ") && !line.contains("/auth/tokens"));
        lines
    }

    /// All since the last `forget`.
    pub fn since(&self) -> Vec<String> {
        let forgotten = self.0.forgotten.load(Ordering::SeqCst);
        self.lines().iter().skip(forgotten).cloned().collect()
    }

    pub fn forget(&self) {
        let count = self.lines().len();
        self.0.forgotten.store(count, Ordering::SeqCst);
    }

    fn under_way(&self) -> usize {
        self.0.under_way.load(Ordering::SeqCst)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.0.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}
