//! A running instance: source, engine, provider, data plane and admin endpoint, put together.

use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use landfall_config::pools;
use landfall_engine::leadership::Role;
use landfall_engine::store::{Snapshot, StateStore};
use landfall_engine::{Classes, Engine, EngineConfig, EngineHandle, Report};
use landfall_model::rows::{Fact, PoolRow};
use landfall_proxy::Proxy;
use landfall_web::token::TokenFile;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::admin::AdminApi;
use crate::announcing::{self, Announcing};
use crate::backend::{self, Backend};
use crate::cli::{AccessLogArgs, ChosenArgs, WebhookOptions};
use crate::data_plane::DataPlane;
use crate::dry_run;
use crate::instances::Instances;
use crate::lifetime::Lifetime;
use crate::routers::{self, Routers};
use crate::takeover::Handover;

mod cloud_checks;
pub mod facts;
mod inherited;
mod machine;
mod start_state;
mod wait;

use start_state::admin_socket;
pub use start_state::{FinalResponses, StartState};

/// Services whose health turned, on their way to the engine.
const WAKES: usize = 1024;
/// How often the picture is checked while waiting for it.
const LOOK: Duration = Duration::from_millis(20);

/// What to run, wherever facts come from and reports go to.
#[derive(Clone, Debug)]
pub struct Options {
    /// The provider instances.
    pub instances: Instances,
    /// Ranges of one more pool of the default instance.
    pub pools: Vec<String>,
    /// Whether loopback addresses are assigned if no pool serves all Services.
    pub fallback_pool: bool,
    /// Where the admin endpoint answers; port 0 picks a free one.
    pub admin: SocketAddr,
    /// Names under which the admin endpoint answers, beside addresses and `localhost`.
    pub admin_names: Vec<String>,
    /// Where the token stands that the admin endpoint asks for; `None`: it asks for none.
    pub admin_token: Option<TokenFile>,
    /// Threads that carry traffic; `None`: one per core.
    pub workers: Option<NonZeroUsize>,
    /// What is noted of traffic.
    pub access_log: AccessLogArgs,
    /// The Services of a cluster that are meant.
    pub chosen: ChosenArgs,
    /// From one check of everything in the clouds to the next, at most.
    pub audit_every: Duration,
    /// Where the API server asks about MetalLB's resources, if it does.
    pub webhook: Option<WebhookOptions>,
}

/// The part of this replica among several.
#[derive(Clone, Debug)]
pub struct Lead {
    /// What it does.
    pub role: watch::Receiver<Role>,
    /// Whether the source says when everything is known as of the beginning of a term.
    pub confirmed: bool,
}

/// What is running.
#[derive(Debug)]
pub struct Instance {
    admin: std::net::TcpListener,
    words: FinalResponses,
    handle: EngineHandle<Backend>,
    /// The data plane, if an instance is on this machine.
    proxy: Option<Arc<Proxy>>,
    announcing: Option<Announcing>,
    routers: Option<Routers>,
    started: String,
    lifetime: Lifetime,
    /// The admin endpoint, which outlives the rest.
    web: Lifetime,
    /// Ends readiness.
    stopping: CancellationToken,
    /// Cancelled once the control loop has ended, in whatever way.
    ended: CancellationToken,
}

// === impl Options ===

impl Options {
    /// Finds what is wrong with the pools.
    pub fn validate(&self) -> anyhow::Result<()> {
        validate_pools("--pool", dry_run::flag_pools(&self.pools).iter())?;
        validate_pools("pools", self.instances.pools().iter())
    }

    /// The pools of configuration and command line.
    fn all_pools(&self) -> Vec<PoolRow> {
        let mut pools = self.instances.pools();
        pools.extend(dry_run::flag_pools(&self.pools));
        if self.fallback_pool {
            pools.push(pools::fallback());
        }
        pools
    }

    /// Finds what is wrong with the token of the admin endpoint.
    async fn check_token(&self) -> anyhow::Result<()> {
        match &self.admin_token {
            Some(token) => drop(token.read().await.context("--admin-token-file")?),
            None if !self.admin.ip().is_loopback() => tracing::warn!(
                admin = %self.admin,
                "every client of the admin endpoint can read all Services and make plans; \
                --admin-token-file makes it require a token"
            ),
            None => {}
        }
        Ok(())
    }
}

/// Debounce of facts from files, in place of [`EngineConfig::debounce`]'s default: the source has
/// waited already, and sends the facts of all files that changed one right after the other.
const DEBOUNCE_OF_FILES: Duration = Duration::from_millis(2);

// === impl Instance ===

impl Instance {
    /// Starts everything, on what is there already. What can be wrong with the command line (the
    /// admin address, a pool) is an error here; what can be wrong with facts is reported later.
    ///
    /// `source` starts the tasks that send facts; `lead` says what this replica does of several.
    pub async fn start_on<R: Report>(
        start_state: StartState,
        options: Options,
        lifetime: Lifetime,
        reporter: Arc<R>,
        lead: Option<Lead>,
        source: impl FnOnce(mpsc::Sender<Fact>, &Lifetime),
    ) -> anyhow::Result<Self> {
        options.validate()?;
        options.check_token().await?;
        // A cluster has speakers.
        let (inherits, is_alone) = (start_state.proxy.is_some(), lead.is_none());
        let admin = admin_socket(options.admin, start_state.handover.admin).await?;
        let address = admin.local_addr()?;
        let instances = options.instances.clone().beside(address);
        let instances = instances.sharing(most_listeners(options.workers));
        let silent = cloud_checks::check_clouds(&instances, inherits).await?;
        let mut data_plane = DataPlane {
            proxy: start_state.proxy,
            sockets: Some(start_state.handover.sockets),
            workers: options.workers,
            files: instances.files_for_traffic(descriptors()),
            access_log: options.access_log.over(instances.access_log()),
            shares_ports: lead.is_some(),
            addresses: instances.addresses(),
            announced: Vec::new(),
            hash_secret: start_state.hash_secret,
        };
        let providers = instances.live(&mut data_plane)?;
        let providers: Vec<Arc<Backend>> = providers.into_iter().map(Arc::new).collect();
        let classes = instances.classes();
        let config = engine_config(options.audit_every, classes.clone(), is_alone);
        let engine = Engine::new(config, providers.clone(), reporter);
        let engine = led(engine, lead, inherits);
        let handle = engine.handle();

        let announced = std::mem::take(&mut data_plane.announced);
        let handled = all_handled(handle.store.clone());
        let proxy = data_plane.proxy.as_ref();
        let announcing = announcing::start(announced, proxy, handled, &lifetime).await?;
        let alone = proxy.filter(|_| is_alone);
        let routers = Routers::start(alone, &handle.store, &lifetime).await;

        let Lifetime { tasks, cancel } = &lifetime;
        let (wakes, woken) = mpsc::channel(WAKES);
        let everywhere = address.ip().is_unspecified();
        let pools = options.all_pools();
        let copies = routers.as_ref().map(Routers::facts);
        let facts = facts::start(&lifetime, pools, everywhere, copies, source).await;
        let ended = CancellationToken::new();
        let running = engine.run(facts, woken, cancel.clone());
        tasks.spawn(watched(running, ended.clone()));
        for provider in &providers {
            provider.start(&wakes, &lifetime);
        }
        drop(providers);
        cloud_checks::retry_all(silent, &lifetime);
        let (web, stopping) = (Lifetime::default(), CancellationToken::new());
        let started = Timestamp::now().to_string();
        let api = AdminApi::new(handle.clone(), classes, started.clone(), stopping.clone());
        let api = api.with_routers(routers.as_ref().map(|it| it.shown.clone()));
        let words = FinalResponses::new(api, options.admin_names, options.admin_token);
        let listener = TcpListener::from_std(admin.try_clone()?)?;
        web.tasks
            .spawn(words.clone().answer(listener, web.cancel.clone()));
        Ok(Self {
            admin,
            words,
            handle,
            proxy: data_plane.proxy,
            announcing,
            routers,
            started,
            lifetime,
            web,
            stopping,
            ended,
        })
    }

    /// Returns once the control loop has ended although nothing asked it to: it panicked, or its
    /// source is gone. The data plane alone follows no change, so the process should end.
    pub async fn broken(&self) {
        let data_plane = async {
            match &self.proxy {
                Some(proxy) => proxy.broken().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.ended.cancelled() => {}
            () = data_plane => {}
        }
    }

    /// Where the admin endpoint answers.
    pub fn admin(&self) -> io::Result<SocketAddr> {
        self.admin.local_addr()
    }

    /// Waits until every Service was handled, and then closes what another process handed over and
    /// no Service wants, now or as soon as none does.
    pub async fn serving(&self) {
        all_handled(self.handle.store.clone()).await;
        if let Some(proxy) = self.proxy.clone() {
            let Lifetime { tasks, cancel } = &self.lifetime;
            let (store, cancel) = (self.handle.store.clone(), cancel.clone());
            if inherited::close_unwanted(&store, &proxy) {
                let closing = async move { inherited::follow_unwanted(&store, &proxy).await };
                tasks.spawn(async move { cancel.run_until_cancelled(closing).await });
            }
        }
    }

    /// Ends the control plane: nothing is decided or written any more, and traffic goes on. Returns
    /// what another control plane can be started on.
    pub async fn let_go(self) -> StartState {
        self.stopping.cancel();
        if let Some(routers) = self.routers {
            routers.hand_over().await;
        }
        self.lifetime.end().await;
        self.web.end().await;
        let handover = Handover {
            admin: Some(self.admin),
            ..Handover::default()
        };
        StartState {
            handover,
            proxy: self.proxy,
            last_words: Some(self.words),
            ..StartState::default()
        }
    }

    /// What the rest of the process may see of the control loop.
    pub fn handle(&self) -> &EngineHandle<Backend> {
        &self.handle
    }

    /// Closes what was open before this instance was started and belongs to no Service any more,
    /// once every Service was handled.
    pub fn close_what_is_gone(&self) {
        let Some(proxy) = self.proxy.clone() else {
            return;
        };
        let before = proxy.owners();
        if before.is_empty() {
            return;
        }
        let Lifetime { tasks, cancel } = &self.lifetime;
        let (store, cancel) = (self.handle.store.clone(), cancel.clone());
        tasks.spawn(async move {
            let closing = inherited::close_what_is_gone(&store, &proxy, before);
            cancel.run_until_cancelled(closing).await;
        });
    }

    /// Says from now on whether this replica leads and has opened its listeners.
    pub fn report_serving(&self, serving: watch::Sender<bool>) {
        let Lifetime { tasks, cancel } = &self.lifetime;
        let store = self.handle.store.clone();
        let cancel = cancel.clone();
        tasks.spawn(async move {
            let reporting = report_serving(&store, &serving);
            cancel.run_until_cancelled(reporting).await;
        });
    }

    /// Is not ready any more, withdraws what routers were sent, stops deciding, closes listeners,
    /// and lets connections end for as long as `grace`, in this order. The admin endpoint answers
    /// until then. Addresses stay claimed.
    pub async fn stop(self, grace: Duration) {
        self.stop_after(grace, async {}).await;
    }

    /// As [`Self::stop`]. New connections are accepted until `handed_over` is done, which begins
    /// when nothing is decided or written any more.
    pub async fn stop_after(self, grace: Duration, handed_over: impl Future<Output = ()>) {
        self.stopping.cancel();
        if let Some(routers) = self.routers {
            routers.stop(routers::DRAIN.min(grace)).await;
        }
        self.lifetime.end().await;
        handed_over.await;
        if let Some(proxy) = &self.proxy {
            proxy.shutdown(grace).await;
        }
        if let Some(announcing) = self.announcing {
            announcing.remove_routes().await;
        }
        self.web.end().await;
    }
}

/// Lets the loop follow what this replica does. `inherits`: a data plane from before goes on.
fn led<R: Report>(
    engine: Engine<Backend, R>,
    lead: Option<Lead>,
    inherits: bool,
) -> Engine<Backend, R> {
    let Some(Lead { role, confirmed }) = lead else {
        return engine;
    };
    let engine = engine.led_by(role, inherits);
    if confirmed {
        engine.confirmed_by_facts()
    } else {
        engine
    }
}

/// Waits until every Service was handled.
async fn all_handled(store: Arc<StateStore>) {
    let handled = Snapshot::ready;
    while !store.read(handled) {
        tokio::time::sleep(LOOK).await;
    }
}

/// Runs a task, and says when it has ended, also by a panic.
pub async fn watched(task: impl Future<Output = ()>, ended: CancellationToken) {
    let _ended = ended.drop_guard();
    task.await;
}

/// How many listeners the descriptors of the process let be, if nothing else needed any: one
/// descriptor per thread and listener.
pub fn most_listeners(workers: Option<NonZeroUsize>) -> usize {
    let cores = || std::thread::available_parallelism().ok();
    let workers = workers.or_else(cores).map_or(1, NonZeroUsize::get);
    usize::try_from(descriptors()).unwrap_or(usize::MAX) / workers
}

/// How many files the process may open.
pub fn descriptors() -> u64 {
    landfall_sys::limits::raise_open_files().unwrap_or(1024)
}

/// Follows whether this replica leads and has opened its listeners.
async fn report_serving(store: &StateStore, serving: &watch::Sender<bool>) {
    let mut changes = store.changes();
    loop {
        let before = *serving.borrow();
        // All Services are checked only until they were served once.
        let now = store.read(|pages| pages.at_work && (before || Snapshot::serving(pages)));
        serving.send_if_modified(|serves| std::mem::replace(serves, now) != now);
        if changes.changed().await.is_err() {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// How the engine of a process runs, whose facts may come from files.
fn engine_config(audit_every: Duration, classes: Classes, of_files: bool) -> EngineConfig {
    let mut config = EngineConfig {
        audit_every,
        audit_seed: RandomState::new().hash_one(()),
        ..EngineConfig::new(classes)
    };
    if of_files {
        config.debounce = DEBOUNCE_OF_FILES;
    }
    config
}

/// A pool that was typed wrongly should stop the start, not become a remark on a page.
fn validate_pools<'a>(place: &str, pools: impl Iterator<Item = &'a PoolRow>) -> anyhow::Result<()> {
    let pools: Vec<_> = pools.cloned().map(Arc::new).collect();
    let problems = backend::pool_problems(&pools);
    let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    anyhow::ensure!(texts.is_empty(), "{place}: {}", texts.join("\n"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_is_noticed_as_ended() {
        let ended = CancellationToken::new();
        let task = tokio::spawn(watched(
            async {
                tokio::task::yield_now().await;
                panic!("on purpose");
            },
            ended.clone(),
        ));
        assert!(!ended.is_cancelled());
        assert!(task.await.is_err());
        assert!(ended.is_cancelled());
    }
}
