//! The real side of the scenarios: a project of the test bed's OpenStack, real time, real
//! connections.
//!
//! `LANDFALL_SIDE=amphora` or `ovn` puts every [`Rig::new`](super::Rig::new) of the process there.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, Once, PoisonError, mpsc};
use std::time::{Duration, Instant};

use http::Method;
use landfall_openstack::client::auth::{
    Auth, CredentialRef, DomainRef, ProjectRef, Scope, UserRef,
};
use landfall_openstack::client::{Cloud, CloudConfig, Transport};
use landfall_testkit::openstack::{Refusal, Service as Simulated};
use landfall_testkit::stack::{Project, Service, Stack, StackError};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::stage::Sent;

/// Names the provider of load balancers, and that the cloud is to be real.
const SIDE: &str = "LANDFALL_SIDE";

/// A project, and what the controller has asked of it.
pub struct Real {
    project: Option<Arc<Project>>,
    provider: &'static str,
    pub calls: Calls,
    foreign: Mutex<BTreeSet<String>>,
}

/// The controller's calls, in the order in which they were made.
#[derive(Clone, Default)]
pub struct Calls(Arc<CallsState>);

#[derive(Default)]
struct CallsState {
    lines: Mutex<Vec<Line>>,
    forgotten: AtomicUsize,
    under_way: AtomicUsize,
    /// Whether the last answer showed something in the works: the controller will ask again.
    awaits: AtomicBool,
}

/// A call, and whether it was refused because Octavia was not done yet with the change before: that
/// changes nothing.
struct Line {
    call: String,
    body: bytes::Bytes,
    too_early: bool,
}

/// Where the test's own hands work, while the test's thread waits.
static HANDS: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
});

/// Octavia's own words for a load balancer that is in the works.
const PENDING: &str = "PENDING_";

/// Rows wait for an audit, or that nothing happens however long it takes: here audits are as
/// frequent as this, and no row waits longer than for two.
pub const AUDIT: Duration = Duration::from_secs(15);
pub const LONGEST_WAIT: Duration = Duration::from_secs(35);

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
    let (report, reported) = mpsc::channel();
    HANDS.spawn(async move { report.send(work.await) });
    reported.recv().unwrap()
}

// === impl Real ===

impl Real {
    /// A new project, with the subnet of the simulator's default world.
    pub fn new(provider: &'static str) -> Self {
        // The clock stands still where scenarios begin, each in a process of its own here.
        static RESUMED: Once = Once::new();
        RESUMED.call_once(tokio::time::resume);
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
            foreign: Mutex::default(),
        }
    }

    /// The same project for another controller. It goes with the last one.
    pub fn again(&self) -> Self {
        Self {
            project: self.project.clone(),
            provider: self.provider,
            calls: Calls::default(),
            foreign: Mutex::default(),
        }
    }

    pub fn project(&self) -> &Arc<Project> {
        self.project.as_ref().unwrap()
    }

    /// `cloud.conf` up to and into `[LoadBalancer]`.
    pub fn conf(&self) -> String {
        format!("{}{}", self.project().cloud_conf(), self.always())
    }

    /// The section `[Global]`.
    pub fn global(&self) -> String {
        let conf = self.project().cloud_conf();
        let (global, _) = conf.split_once("[LoadBalancer]").unwrap();
        global.to_owned()
    }

    /// What `[LoadBalancer]` says of this provider.
    pub fn always(&self) -> &'static str {
        match self.provider {
            "ovn" => "lb-provider=ovn\nlb-method=SOURCE_IP_PORT\n",
            _ => "",
        }
    }

    fn config(&self) -> CloudConfig {
        CloudConfig::new(&self.project().auth_url, self.auth())
    }

    /// The user of the project.
    pub fn auth(&self) -> Auth {
        let project = self.project();
        Auth::Password {
            user: UserRef::Name {
                name: project.username.clone(),
                domain: DomainRef::Id(project.domain_id.clone()),
            },
            password: project.password.clone().into(),
            scope: Scope::Project(ProjectRef::Id(project.id.clone())),
        }
    }

    /// Other ways into the project: by names, a token, an application credential by id and by
    /// name, and a trust.
    pub fn logins(&self) -> Vec<Auth> {
        const WORD: &str = "the word of the application";
        let project = self.project().clone();
        let by_id = Scope::Project(ProjectRef::Id(project.id.clone()));
        let user = UserRef::Id(project.user_id.clone());
        let domain = DomainRef::Name(project.domain_name.clone());
        let named = Auth::Password {
            user: UserRef::Name {
                name: project.username.clone(),
                domain: domain.clone(),
            },
            password: project.password.clone().into(),
            scope: Scope::Project(ProjectRef::Name {
                name: project.name.clone(),
                domain,
            }),
        };
        let (token, credential, trustee, trust) = wait_for(async move {
            let token = project.token().await.unwrap();
            let path = format!("/v3/users/{}/application_credentials", project.user_id);
            let body = json!({"application_credential": {"name": "landfall", "secret": WORD}});
            let made = project.post(Service::Identity, &path, body).await.unwrap();
            let credential = text(&made["application_credential"]["id"]);
            let trustee = project.add_user("trustee", WORD).await.unwrap();
            let roles = ["member", "load-balancer_member"].map(|name| json!({"name": name}));
            let body = json!({"trust": {
                "trustor_user_id": project.user_id, "trustee_user_id": trustee,
                "project_id": project.id, "impersonation": true, "roles": roles,
            }});
            let path = "/v3/OS-TRUST/trusts";
            let made = project.post(Service::Identity, path, body).await.unwrap();
            (token, credential, trustee, text(&made["trust"]["id"]))
        });
        let by_credential = |credential| Auth::ApplicationCredential {
            credential,
            secret: WORD.into(),
        };
        let with_token = |scope| Auth::Token {
            token: token.clone().into(),
            scope,
        };
        vec![
            named,
            with_token(by_id),
            by_credential(CredentialRef::Id(credential)),
            by_credential(CredentialRef::Name {
                name: "landfall".to_owned(),
                user,
            }),
            Auth::Password {
                user: UserRef::Id(trustee),
                password: WORD.into(),
                scope: Scope::Trust(trust),
            },
        ]
    }

    /// Changes the user's password at Keystone.
    pub fn change_password(&self, password: &str) {
        let (project, password) = (self.project().clone(), password.to_owned());
        wait_for(async move { project.set_password(&password).await.unwrap() });
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
        let network = Transport::network(&config.tls, &config.timeouts).unwrap();
        let calls = self.calls.clone();
        let transport = Transport::InProcess(Arc::new(move |request| {
            let network = network.clone();
            let ticket = calls.begin(&request);
            Box::pin(async move {
                let ticket = ticket;
                let answer = network.answer(request).await?;
                ticket.answered(&answer);
                Ok(answer)
            })
        }));
        Cloud::over(config, transport).unwrap()
    }

    pub fn add_node(&self, name: &str, address: IpAddr) -> String {
        let (project, name) = (self.project().clone(), name.to_owned());
        wait_for(async move { project.node(&name, address).await.unwrap().server_id })
    }

    pub fn add_port(&self, name: &str, server: &str, address: IpAddr) {
        let body = json!({"port": {
            "name": name,
            "network_id": self.project().network_id,
            "fixed_ips": [{"ip_address": address.to_string()}],
            "device_id": server,
            "device_owner": "compute:nova",
        }});
        self.done(Simulated::Network, &Method::POST, "/v2.0/ports", &body);
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

    /// A request of the project's user that must succeed.
    fn done(&self, service: Simulated, method: &Method, path: &str, body: &Value) -> Value {
        self.hand(service, method, path, body).unwrap()
    }

    pub fn add_subnet(
        &self,
        network: &str,
        name: &str,
        cidr: ipnet::IpNet,
        tags: &[&str],
    ) -> String {
        let version = if cidr.addr().is_ipv4() { 4 } else { 6 };
        let mut subnet =
            json!({"network_id": network, "name": name, "cidr": cidr, "ip_version": version});
        // Nodes have the first addresses.
        if let ipnet::IpNet::V6(cidr) = cidr {
            let at = |offset: u128| std::net::Ipv6Addr::from(u128::from(cidr.network()) + offset);
            subnet["allocation_pools"] = json!([{"start": at(0x1000), "end": at(0x1fff)}]);
        }
        let body = json!({"subnet": subnet});
        let made = self.done(Simulated::Network, &Method::POST, "/v2.0/subnets", &body);
        let id = made["subnet"]["id"].as_str().unwrap().to_owned();
        if !tags.is_empty() {
            let path = format!("/v2.0/subnets/{id}/tags");
            let tags = json!({"tags": tags});
            self.done(Simulated::Network, &Method::PUT, &path, &tags);
        }
        id
    }

    pub fn add_secret(&self) -> String {
        let (certificate, key) = certificate();
        let bundle = pkcs12(&certificate, &key);
        self.secret(&json!({
            "name": "bundle",
            "payload": bundle.trim(),
            "payload_content_type": "application/octet-stream",
            "payload_content_encoding": "base64",
        }))
    }

    pub fn add_false_certificate(&self) -> String {
        self.secret(&json!({
            "name": "note", "payload": "no certificate", "payload_content_type": "text/plain",
        }))
    }

    fn secret(&self, body: &Value) -> String {
        let made = self.done(Simulated::KeyManager, &Method::POST, "/v1/secrets", body);
        made["secret_ref"].as_str().unwrap().to_owned()
    }

    pub fn add_container(&self) -> String {
        let (certificate, key) = certificate();
        let text = |name: &str, payload: &str| {
            let body =
                json!({"name": name, "payload": payload, "payload_content_type": "text/plain"});
            json!({"name": name, "secret_ref": self.secret(&body)})
        };
        let secrets = [text("certificate", &certificate), text("private_key", &key)];
        let body = json!({"type": "certificate", "name": "pair", "secret_refs": secrets});
        let made = self.done(
            Simulated::KeyManager,
            &Method::POST,
            "/v1/containers",
            &body,
        );
        made["container_ref"].as_str().unwrap().to_owned()
    }

    pub fn remove_secret(&self, reference: &str) {
        let (_, id) = reference.rsplit_once('/').unwrap();
        let path = format!("/v1/secrets/{id}");
        self.done(Simulated::KeyManager, &Method::DELETE, &path, &Value::Null);
    }

    /// Without what Octavia finds out by itself.
    pub fn load_balancer(&self, id: &str) -> Value {
        let path = format!("/v2/lbaas/loadbalancers/{id}");
        let mut answer = self.done(Simulated::LoadBalancer, &Method::GET, &path, &Value::Null);
        let mut balancer = answer["loadbalancer"].take();
        balancer["operating_status"].take();
        balancer
    }

    pub fn revoke_tokens(&self) {
        let project = self.project().clone();
        wait_for(async move { project.revoke_tokens().await.unwrap() });
    }

    pub fn limit(&self, service: Simulated, resource: &'static str, limit: Option<usize>) {
        let project = self.project().clone();
        let limit = limit.map_or(-1, |limit| i64::try_from(limit).unwrap());
        wait_for(async move {
            let set = project.set_quota(same(service), resource, limit);
            set.await.unwrap();
        });
    }

    pub fn relabel(&self, id: &str, fields: &Value) {
        let kinds = [
            ("loadbalancer", "/v2/lbaas/loadbalancers"),
            ("listener", "/v2/lbaas/listeners"),
            ("pool", "/v2/lbaas/pools"),
        ];
        let mut kinds = kinds.into_iter();
        let done = kinds.any(|(kind, path)| {
            let body = json!({ kind: fields });
            let path = format!("{path}/{id}");
            self.hand(Simulated::LoadBalancer, &Method::PUT, &path, &body)
                .is_ok()
        });
        assert!(done, "{id} can't be relabelled");
    }

    pub fn mark_foreign(&self, id: &str) {
        let mut foreign = self.foreign.lock().unwrap();
        foreign.insert(id.to_owned());
    }

    pub fn snapshot_foreign(&self) -> BTreeMap<String, Value> {
        let foreign = self.foreign.lock().unwrap().clone();
        let pictures = foreign.into_iter().map(|id| {
            let path = format!("/v2/lbaas/loadbalancers/{id}/status");
            let parts = self.done(Simulated::LoadBalancer, &Method::GET, &path, &Value::Null);
            let mut itself = self.load_balancer(&id);
            // The driver of ovn records what it learns of members.
            itself["updated_at"].take();
            let picture = json!({"itself": itself, "parts": names_in(&parts)});
            (id, picture)
        });
        pictures.collect()
    }

    pub fn ports(&self) -> Vec<Value> {
        let mut all = self.done(
            Simulated::Network,
            &Method::GET,
            "/v2.0/ports",
            &Value::Null,
        );
        serde_json::from_value(all["ports"].take()).unwrap()
    }

    /// The amphora can't be plugged, until a load balancer is in ERROR.
    pub fn fail_next_create(&self) {
        let project = self.project().clone();
        let fault = project.failing_amphorae(&["post_vip_plug"]).unwrap();
        HANDS.spawn(async move {
            let path = "/v2/lbaas/loadbalancers";
            loop {
                let listed = project.list(Service::LoadBalancer, path, "loadbalancers");
                let all = listed.await.unwrap();
                if all.iter().any(|it| it["provisioning_status"] == "ERROR") {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            drop(fault);
        });
    }

    /// Looks again and again how many members the listener of a port has.
    pub fn watch(
        &self,
        port: u16,
        seen: Arc<Mutex<Vec<usize>>>,
        period: Duration,
    ) -> tokio::task::JoinHandle<()> {
        let project = self.project().clone();
        HANDS.spawn(async move {
            loop {
                let path = "/v2/lbaas/listeners";
                let listed = project.list(Service::LoadBalancer, path, "listeners");
                let listeners = listed.await.unwrap();
                let listener = listeners.iter().find(|it| it["protocol_port"] == port);
                let pool = listener.and_then(|it| it["default_pool_id"].as_str());
                let mut members = 0;
                if let Some(pool) = pool {
                    let path = format!("/v2/lbaas/pools/{pool}/members");
                    let listed = project.list(Service::LoadBalancer, &path, "members").await;
                    // A pool that has just been replaced was served when the listener was read.
                    members = listed.map_or(1, |listed| listed.len());
                }
                seen.lock().unwrap().push(members);
                tokio::time::sleep(period).await;
            }
        })
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
                tokio::time::sleep(Duration::from_millis(700)).await;
            }
        });
    }

    /// Waits until the controller has asked nothing for a while, nothing is under way and nothing
    /// in the works; at most some minutes, for what fails for ever.
    pub async fn settle(&self, written: impl Fn() -> usize) {
        // Longer than the controller ever waits before it looks whether Octavia is done.
        const QUIET: Duration = Duration::from_secs(11);
        let begun = Instant::now();
        let (mut last, mut since, mut waits) = ((0, 0), Instant::now(), false);
        while begun.elapsed() < SOON {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let now = (self.calls.count(), written());
            // On a busy machine answers come late, and so does the next poll.
            let late = if waits || self.calls.awaits() { 3 } else { 1 };
            if now != last || self.calls.under_way() > 0 {
                (last, since) = (now, Instant::now());
            } else if since.elapsed() >= QUIET * late {
                let project = self.project().clone();
                if !HANDS
                    .spawn(async move { is_busy(&project).await.unwrap() })
                    .await
                    .unwrap()
                {
                    return;
                }
                (since, waits) = (Instant::now(), true);
            }
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
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

/// The names and ids in a tree of statuses: the statuses are Octavia's own affair.
fn names_in(tree: &Value) -> Vec<String> {
    match tree {
        Value::Array(all) => all.iter().flat_map(names_in).collect(),
        Value::Object(fields) => {
            let below = fields.values().flat_map(names_in);
            let own = ["id", "name"].into_iter().filter_map(|key| {
                let text = fields.get(key)?.as_str()?;
                Some(text.to_owned())
            });
            own.chain(below).collect()
        }
        _ => Vec::new(),
    }
}

/// A certificate and its key, as PEM.
fn certificate() -> (String, String) {
    let made = rcgen::generate_simple_self_signed(["web.example.org".to_owned()]).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem())
}

/// Both in one file, in base64.
fn pkcs12(certificate: &str, key: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (both, bundle) = (folder.path().join("both.pem"), folder.path().join("p12"));
    std::fs::write(&both, format!("{certificate}{key}")).unwrap();
    let run = |arguments: &[&std::ffi::OsStr]| {
        let mut command = std::process::Command::new("openssl");
        let output = command.args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    run(&[
        "pkcs12".as_ref(),
        "-export".as_ref(),
        "-passout".as_ref(),
        "pass:".as_ref(),
        "-in".as_ref(),
        both.as_ref(),
        "-out".as_ref(),
        bundle.as_ref(),
    ]);
    let text = run(&[
        "base64".as_ref(),
        "-A".as_ref(),
        "-in".as_ref(),
        bundle.as_ref(),
    ]);
    String::from_utf8(text).unwrap()
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
    #[expect(clippy::print_stderr, reason = "for readers of the test's output")]
    fn drop(&mut self) {
        let Some(project) = self.project.take().and_then(Arc::into_inner) else {
            return;
        };
        if std::env::var_os("LANDFALL_ROWS_LEAVE").is_some() {
            return;
        }
        if let Err(error) = wait_for(project.delete()) {
            eprintln!("a project is left behind: {error}");
        }
    }
}

// === impl Calls ===

/// A call whose answer is awaited, by its number.
struct Ticket(Calls, usize);

/// What Octavia says of an object that it is changing.
const TOO_EARLY: [&str; 2] = ["is immutable", "Invalid state "];

impl Calls {
    fn lines(&self) -> std::sync::MutexGuard<'_, Vec<Line>> {
        self.0.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, request: &http::Request<bytes::Bytes>) -> Ticket {
        let (method, url) = (request.method(), request.uri());
        let path = url.path_and_query().map_or("", |path| path.as_str());
        let mut lines = self.lines();
        lines.push(Line {
            call: format!("{method} {path}"),
            body: request.body().clone(),
            too_early: false,
        });
        self.0.under_way.fetch_add(1, Ordering::SeqCst);
        Ticket(self.clone(), lines.len() - 1)
    }

    /// How many there were at all.
    fn count(&self) -> usize {
        self.lines().len()
    }

    /// The changes since the last `forget`, logins apart, and those that came too early.
    pub fn sent(&self) -> Vec<Sent> {
        let forgotten = self.0.forgotten.load(Ordering::SeqCst);
        let is_write = |line: &&Line| {
            !(line.too_early || line.call.starts_with("GET ") || line.call.contains("/auth/tokens"))
        };
        let lines = self.lines();
        let writes = lines.iter().skip(forgotten).filter(is_write);
        let sent = writes.map(|line| Sent {
            line: line.call.clone(),
            body: line.body.to_vec(),
        });
        sent.collect()
    }

    /// All since the last `forget`.
    pub fn since(&self) -> Vec<String> {
        let forgotten = self.0.forgotten.load(Ordering::SeqCst);
        let lines = self.lines();
        let since = lines.iter().skip(forgotten);
        since.map(|line| line.call.clone()).collect()
    }

    pub fn forget(&self) {
        let count = self.lines().len();
        self.0.forgotten.store(count, Ordering::SeqCst);
    }

    fn under_way(&self) -> usize {
        self.0.under_way.load(Ordering::SeqCst)
    }

    fn awaits(&self) -> bool {
        self.0.awaits.load(Ordering::SeqCst)
    }
}

impl Ticket {
    fn answered(&self, answer: &http::Response<bytes::Bytes>) {
        let said = String::from_utf8_lossy(answer.body());
        let refused = answer.status() == http::StatusCode::CONFLICT;
        let mut lines = self.0.lines();
        let Some(line) = lines.get_mut(self.1) else {
            return;
        };
        line.too_early = refused && TOO_EARLY.iter().any(|words| said.contains(words));
        // Pools of OVN may stay in the works for ever, and the controller does not wait for them.
        let is_write = !line.call.starts_with("GET ");
        if is_write || line.call.starts_with("GET /v2/lbaas/loadbalancers") {
            let pending = said.contains(PENDING);
            self.0.0.awaits.store(pending, Ordering::SeqCst);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.0.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}
