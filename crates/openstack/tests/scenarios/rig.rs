//! A controller, a cluster in memory, and a cloud: the stage of all scenarios.

#[cfg(feature = "stack")]
#[path = "real.rs"]
pub mod real;
#[path = "stage.rs"]
pub mod stage;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use landfall_config::cloud_conf;
use landfall_engine::backoff::Backoff;
use landfall_engine::{Classes, Engine, EngineConfig};
use landfall_model::rows::ServiceRow;
use landfall_openstack::client::auth::{Auth, DomainRef, ProjectRef, Scope, UserRef};
use landfall_openstack::client::{Cloud, CloudConfig, NoAnswer, Transport};
use landfall_openstack::objects::{
    FloatingIp, Listener, LoadBalancer, Member, Monitor, Pool, SecurityGroup,
};
use landfall_openstack::{Groups, OpenStack, Settings};
use landfall_testkit::build::ServiceBuilder;
use landfall_testkit::node;
use landfall_testkit::openstack::{Logins, Sim};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;
use stage::{Sent, Stage};

/// Everything on stage. Time is virtual with a simulated cloud:
/// `#[tokio::test(start_paused = true)]`.
pub struct Rig {
    /// The simulator; or a real cloud, which can do less for a test.
    pub sim: Stage,
    pub cluster: Cluster,
    pub settings: Settings,
    /// A client of our own, whose calls are not the controller's.
    cloud: Cloud,
    controller: Option<Controller>,
    /// Of the controller that runs.
    pub provider: Option<Arc<OpenStack>>,
    /// Where the controller takes bodies to end; `None`: where the cloud does.
    pub body_limit: Option<usize>,
    /// Ids of the nodes' servers.
    pub servers: BTreeMap<String, String>,
}

struct Controller {
    engine: JoinHandle<()>,
    feed: JoinHandle<()>,
}

/// What is in the project, as its owner sees it.
#[derive(Debug, Default)]
pub struct Picture {
    pub balancers: Vec<LoadBalancer>,
    pub listeners: Vec<Listener>,
    pub pools: Vec<Pool>,
    pub members: BTreeMap<String, Vec<Member>>,
    pub monitors: Vec<Monitor>,
    pub floating_ips: Vec<FloatingIp>,
    pub groups: Vec<SecurityGroup>,
}

/// The scenarios' user agent, so that its calls can be recognized.
const LOOKER: &str = "looker/1";

/// A client of a simulated cloud.
pub fn cloud(sim: &Sim, agent: Option<&str>) -> Cloud {
    cloud_within(sim, agent, None)
}

fn cloud_within(sim: &Sim, agent: Option<&str>, body_limit: Option<usize>) -> Cloud {
    let auth = user_of(&Logins::default());
    let mut config = CloudConfig::new(&sim.auth_url(), auth);
    config.body_limit = body_limit.unwrap_or(config.body_limit);
    if let Some(agent) = agent {
        agent.clone_into(&mut config.user_agent);
    }
    over(sim, config)
}

/// The user of a simulated cloud.
pub fn user_of(logins: &Logins) -> Auth {
    Auth::Password {
        user: UserRef::Name {
            name: logins.user.clone(),
            domain: DomainRef::Name(logins.domain.clone()),
        },
        password: logins.password.clone().into(),
        scope: Scope::Project(ProjectRef::Name {
            name: logins.project.clone(),
            domain: DomainRef::Name(logins.domain.clone()),
        }),
    }
}

/// A client of a simulated cloud that is configured like this.
pub fn over(sim: &Sim, config: CloudConfig) -> Cloud {
    let sim = sim.clone();
    let transport = Transport::InProcess(Arc::new(move |request| {
        let sim = sim.clone();
        Box::pin(async move {
            let answer = sim.answer(request).await;
            answer.map_err(|_| NoAnswer::Lost("simulated".to_owned()))
        })
    }));
    Cloud::over(config, transport).unwrap()
}

// === impl Rig ===

impl Rig {
    /// The default world of the scenarios, the controller not yet running: nodes a and b in subnet
    /// S, cluster c1, floating network X. `conf` is appended to `[LoadBalancer]`.
    pub fn new(conf: &str) -> Self {
        Self::on(Stage::new(), conf)
    }

    /// The same on a stage that was prepared.
    pub fn on(stage: Stage, conf: &str) -> Self {
        let conf = format!(
            "[LoadBalancer]\nfloating-network-id={}\nsubnet-id={}\n{conf}\n",
            stage.external_network(),
            stage.subnet()
        );
        Self::configured(stage, &conf)
    }

    /// The same with other words than those of the default world, from `[LoadBalancer]` on.
    pub fn configured(stage: Stage, conf: &str) -> Self {
        let mut rig = Self::bare(stage, conf);
        rig.add_node("a", "10.0.0.4");
        rig.add_node("b", "10.0.0.5");
        rig
    }

    /// The same without nodes.
    pub fn bare(stage: Stage, conf: &str) -> Self {
        let begin = "[LoadBalancer]\n";
        let rest = conf.strip_prefix(begin).unwrap();
        let conf = format!("{}{begin}{}{rest}\n", stage.global(), stage.always());
        let cloud = match &stage {
            Stage::Simulated(sim) => cloud(sim, Some(LOOKER)),
            #[cfg(feature = "stack")]
            Stage::Real(real) => real.looker(LOOKER),
        };
        Self::between(stage, cloud, &conf)
    }

    /// A project of a real cloud, and no nodes.
    #[cfg(feature = "stack")]
    pub fn in_real(real: real::Real, conf: &str) -> Self {
        let conf = format!("{}{conf}\n", real.conf());
        let cloud = real.looker(LOOKER);
        Self::between(Stage::Real(real), cloud, &conf)
    }

    /// The same in a world that begins differently.
    pub fn in_world(sim: Sim, conf: &str) -> Self {
        #[cfg(feature = "stack")]
        assert_eq!(real::provider(), None, "{}", stage::ONLY_SIMULATED);
        Self::on(Stage::Simulated(sim), conf)
    }

    fn between(stage: Stage, cloud: Cloud, conf: &str) -> Self {
        let conf = cloud_conf::parse("cloud.conf", conf).unwrap();
        let mut settings = Settings::new(&conf, "c1");
        settings.cluster_id = Some("ks-1".to_owned());
        settings.groups = Groups::PerService;
        Self {
            cloud,
            sim: stage,
            cluster: Cluster::default(),
            settings,
            controller: None,
            provider: None,
            body_limit: None,
            servers: BTreeMap::new(),
        }
    }

    /// A node with a server and a port in the cloud.
    pub fn add_node(&mut self, name: &str, address: &str) {
        let server = self.sim.add_node(name, address.parse().unwrap());
        let provider_id = format!("openstack:///{server}");
        self.servers.insert(name.to_owned(), server);
        let row = node(name, address).with(|row| row.provider_id = Some(provider_id.into()));
        self.cluster.put_node(row.row());
    }

    /// Starts the controller, as a new process would.
    pub fn start(&mut self) {
        self.kill();
        let provider = match &self.sim {
            Stage::Simulated(sim) => cloud_within(sim, None, self.body_limit),
            #[cfg(feature = "stack")]
            Stage::Real(real) => real.controller(self.body_limit),
        };
        let provider = Arc::new(OpenStack::new(provider, self.settings.clone()));
        self.provider = Some(provider.clone());
        let classes = Classes::new(vec!["openstack".to_owned()], Some("openstack"));
        let mut config = EngineConfig::new(classes);
        config.backoff = Backoff {
            first: Duration::from_secs(1),
            longest: Duration::from_secs(60),
        };
        #[cfg(feature = "stack")]
        if let Stage::Real(_) = &self.sim {
            config.audit_every = real::AUDIT;
            config.backoff.longest = real::AUDIT;
        }
        let engine = Engine::new(
            config,
            vec![provider.clone()],
            Arc::new(self.cluster.clone()),
        );
        let mut watch = self.cluster.watch();
        let (facts, reported) = mpsc::channel(64);
        let (wakes, woken) = mpsc::channel(16);
        provider.wake_through(wakes.clone());
        let feed = tokio::spawn(async move {
            let _wakes = wakes;
            while let Some(fact) = watch.recv().await {
                if facts.send(fact).await.is_err() {
                    return;
                }
            }
        });
        let engine = tokio::spawn(engine.run(reported, woken, CancellationToken::new()));
        self.controller = Some(Controller { engine, feed });
    }

    /// Ends the controller at once, in the middle of whatever it does.
    pub fn kill(&mut self) {
        if let Some(controller) = self.controller.take() {
            controller.engine.abort();
            controller.feed.abort();
        }
    }

    /// Applies a Service and waits until the controller has come to rest.
    pub async fn apply(&mut self, service: ServiceBuilder) {
        self.cluster.apply(&service.row());
        if self.controller.is_none() {
            self.start();
        }
        self.settle().await;
    }

    /// Changes a Service and waits.
    pub async fn edit(&mut self, name: &str, change: impl FnOnce(&mut ServiceRow)) {
        self.cluster.edit(name, change);
        self.settle().await;
    }

    /// Deletes a Service and waits.
    pub async fn delete(&mut self, name: &str) {
        self.cluster.delete(name);
        self.settle().await;
    }

    /// Starts again and waits.
    pub async fn restart(&mut self) {
        self.start();
        self.settle().await;
    }

    /// Waits until nothing was asked of the cloud for a while; at most some minutes, for what fails
    /// for ever.
    pub async fn settle(&self) {
        const QUIET: u32 = 12;
        #[cfg(feature = "stack")]
        if let Stage::Real(real) = &self.sim {
            let written = || self.cluster.writes();
            return real.settle(written).await;
        }
        let mut quiet = 0;
        for _ in 0..240 {
            let before = (self.sim.call_count(), self.cluster.writes());
            tokio::time::sleep(Duration::from_secs(1)).await;
            if before == (self.sim.call_count(), self.cluster.writes()) {
                quiet += 1;
            } else {
                quiet = 0;
            }
            if quiet >= QUIET {
                return;
            }
        }
    }

    /// Lets time pass. Real time is short.
    pub async fn wait(&self, time: Duration) {
        #[cfg(feature = "stack")]
        if let Stage::Real(_) = &self.sim {
            return tokio::time::sleep(time.min(real::LONGEST_WAIT)).await;
        }
        tokio::time::sleep(time).await;
    }

    /// The controller's calls so far: `GET /v2.0/lbaas/loadbalancers`.
    pub fn calls(&self) -> Vec<String> {
        #[cfg(feature = "stack")]
        if let Stage::Real(real) = &self.sim {
            return real.calls.since();
        }
        let calls = self.sim.calls();
        let of_controller = calls.iter().filter(|call| call.user_agent != LOOKER);
        of_controller
            .map(landfall_testkit::openstack::Call::line)
            .collect()
    }

    /// The controller's writes so far, logins apart.
    pub fn writes(&self) -> Vec<String> {
        self.sent().into_iter().map(|it| it.line).collect()
    }

    /// The same with their bodies.
    pub fn sent(&self) -> Vec<Sent> {
        #[cfg(feature = "stack")]
        if let Stage::Real(real) = &self.sim {
            return real.calls.sent();
        }
        let calls = self.sim.writes();
        let of_controller = calls.iter().filter(|call| call.user_agent != LOOKER);
        of_controller
            .map(|call| Sent {
                line: call.line(),
                body: call.body.to_vec(),
            })
            .filter(|it| !it.line.contains("/auth/tokens"))
            .collect()
    }

    /// Forgets calls and events.
    pub fn forget(&self) {
        match &self.sim {
            Stage::Simulated(sim) => sim.forget_calls(),
            #[cfg(feature = "stack")]
            Stage::Real(real) => real.calls.forget(),
        }
        self.cluster.forget_events();
    }

    /// What is in the project.
    pub async fn picture(&self) -> Picture {
        let cloud = &self.cloud;
        let mut picture = Picture {
            balancers: cloud.load_balancers().await.unwrap(),
            listeners: cloud.listeners(None).await.unwrap(),
            pools: cloud.pools(None).await.unwrap(),
            monitors: cloud.monitors(None).await.unwrap(),
            floating_ips: cloud.floating_ips(&[]).await.unwrap(),
            groups: cloud.security_groups(&[]).await.unwrap(),
            members: BTreeMap::new(),
        };
        picture.groups.retain(|group| group.name != "default");
        for pool in &picture.pools {
            let members = cloud.members(&pool.id).await.unwrap();
            picture.members.insert(pool.id.to_string(), members);
        }
        picture
    }

    /// The client of the scenarios.
    pub fn looker(&self) -> &Cloud {
        &self.cloud
    }

    /// What the status of a Service publishes: addresses or names.
    pub fn published(&self, name: &str) -> Vec<String> {
        let Some(service) = self.cluster.service(name) else {
            return Vec::new();
        };
        let entries = service.status.ingress.iter();
        entries
            .map(|entry| match (&entry.hostname, entry.ip) {
                (Some(hostname), _) => hostname.clone(),
                (None, Some(ip)) => ip.to_string(),
                (None, None) => String::new(),
            })
            .collect()
    }

    /// An annotation of a Service.
    pub fn annotation(&self, name: &str, key: &str) -> Option<String> {
        self.cluster.service(name)?.annotations.get(key).cloned()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.kill();
    }
}

// === impl Picture ===

impl Picture {
    /// Nothing that a controller makes is left.
    pub fn is_empty(&self) -> bool {
        self.balancers.is_empty() && self.floating_ips.is_empty() && self.groups.is_empty()
    }

    /// The members of the pool that serves a port, as `ADDRESS:PORT`.
    pub fn members_at(&self, port: u16) -> Vec<String> {
        let listener = self
            .listeners
            .iter()
            .find(|it| it.protocol_port == port)
            .unwrap();
        let pool = listener.default_pool_id.as_ref().unwrap();
        let mut members: Vec<String> = self.members[pool.as_str()]
            .iter()
            .map(|it| format!("{}:{}", it.address.unwrap(), it.protocol_port))
            .collect();
        members.sort();
        members
    }

    /// The pool that serves a port.
    pub fn pool_at(&self, port: u16) -> &Pool {
        let listener = self.listener_at(port);
        let id = listener.default_pool_id.as_ref().unwrap();
        self.pools.iter().find(|it| it.id == *id).unwrap()
    }

    /// The listener of a port.
    pub fn listener_at(&self, port: u16) -> &Listener {
        self.listeners
            .iter()
            .find(|it| it.protocol_port == port)
            .unwrap()
    }
}
