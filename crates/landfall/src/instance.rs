//! A running instance: source, engine, provider, data plane and admin endpoint, put together.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use landfall_config::file::Config;
use landfall_config::pools;
use landfall_engine::{Classes, Engine, EngineConfig, EngineHandle, Report};
use landfall_local::Local;
use landfall_model::provider::Provider as _;
use landfall_model::rows::{Fact, PoolRow};
use landfall_model::view::InstanceView;
use landfall_proxy::{Proxy, ProxyConfig};
use landfall_web::guard::Names;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::desk::Desk;
use crate::{planning, view};

/// Facts on their way from the source to the engine.
const FACTS: usize = 1024;
/// Services whose health turned, on their way to the engine.
const WAKES: usize = 1024;
/// How often the picture is looked at while waiting for it.
const LOOK: Duration = Duration::from_millis(20);

/// What to run, wherever facts come from and reports go to.
#[derive(Clone, Debug)]
pub struct Options {
    /// The provider instances.
    pub config: Config,
    /// Ranges of one more pool of the default instance.
    pub pools: Vec<String>,
    /// Whether loopback addresses are handed out when nobody names a pool that serves everybody.
    pub fallback_pool: bool,
    /// Where the admin endpoint answers; port 0 picks a free one.
    pub admin: SocketAddr,
    /// Names under which the admin endpoint answers, beside addresses and `localhost`.
    pub admin_names: Vec<String>,
    /// Threads that carry traffic; `None`: one per core.
    pub workers: Option<NonZeroUsize>,
}

/// How long the tasks of an instance live: until cancelled, and then until they have ended.
#[derive(Clone, Debug, Default)]
pub struct Lifetime {
    /// The tasks.
    pub tasks: TaskTracker,
    /// Ends them.
    pub cancel: CancellationToken,
}

/// What is running.
#[derive(Debug)]
pub struct Instance {
    admin: SocketAddr,
    handle: EngineHandle<Local>,
    proxy: Arc<Proxy>,
    started: String,
    lifetime: Lifetime,
}

// === impl Instance ===

impl Instance {
    /// Starts everything. What can be wrong with the command line (the admin address, a pool) is an
    /// error here; what can be wrong with facts is told later.
    ///
    /// `source` starts the tasks that send facts; `leading` says whether this replica may write.
    pub async fn start<R: Report>(
        options: Options,
        lifetime: Lifetime,
        reporter: Arc<R>,
        leading: Option<watch::Receiver<bool>>,
        source: impl FnOnce(mpsc::Sender<Fact>, &Lifetime),
    ) -> anyhow::Result<Self> {
        let mut pools = options.config.pools();
        let flag_pool = planning::flag_pools(&options.pools);
        judge_pools("--pool", flag_pool.iter())?;
        judge_pools("pools", pools.iter())?;
        pools.extend(flag_pool);
        let listener = TcpListener::bind(options.admin).await.with_context(|| {
            format!(
                "opening the admin endpoint at {} (another instance? --admin names another address)",
                options.admin
            )
        })?;
        let admin = listener.local_addr()?;
        let proxy = Arc::new(
            Proxy::start(ProxyConfig {
                workers: options.workers,
                ..ProxyConfig::default()
            })
            .context("starting the data plane")?,
        );
        let (names, default) = options.config.names();
        let classes = Classes::new(names.clone(), default);
        let providers: Vec<Arc<Local>> = names
            .iter()
            .map(|_| Arc::new(Local::new(proxy.clone())))
            .collect();
        let mut engine = Engine::new(
            EngineConfig::new(classes.clone()),
            providers.clone(),
            reporter,
        );
        if let Some(leading) = leading {
            engine = engine.led_by(leading);
        }
        let handle = engine.handle();
        let started = Timestamp::now().to_string();

        let Lifetime { tasks, cancel } = &lifetime;
        let (read, told) = mpsc::channel(FACTS);
        let (facts, received) = mpsc::channel(FACTS);
        let (wakes, woken) = mpsc::channel(WAKES);
        source(read, &lifetime);
        tasks.spawn(with_pools(told, facts, pools, options.fallback_pool));
        tasks.spawn(engine.run(received, woken, cancel.clone()));
        for provider in providers {
            let changes = proxy.changes();
            let watching =
                landfall_local::watch_health(provider, changes, wakes.clone(), cancel.clone());
            tasks.spawn(watching);
        }
        let desk = Arc::new(Desk::new(handle.clone(), classes, started.clone()));
        let web = landfall_web::Options {
            names: Names::new(options.admin_names),
        };
        tasks.spawn(landfall_web::serve(listener, desk, web, cancel.clone()));
        Ok(Self {
            admin,
            handle,
            proxy,
            started,
            lifetime,
        })
    }

    /// Where the admin endpoint answers.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Waits for a picture of which something is true.
    ///
    /// # Errors
    /// It did not become true in time.
    pub async fn wait_until(
        &self,
        patience: Duration,
        met: impl Fn(&InstanceView) -> bool,
    ) -> anyhow::Result<InstanceView> {
        let wait = async {
            loop {
                let view = view::instance(&self.handle, &self.started);
                if met(&view) {
                    return view;
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(patience, wait)
            .await
            .with_context(|| format!("not ready after {} s", patience.as_secs()))
    }

    /// Stops deciding, then lets connections end for as long as `grace`. Addresses stay claimed.
    pub async fn stop(self, grace: Duration) {
        let Self {
            handle,
            proxy,
            lifetime,
            ..
        } = self;
        lifetime.cancel.cancel();
        lifetime.tasks.close();
        lifetime.tasks.wait().await;
        drop(handle);
        if let Some(proxy) = Arc::into_inner(proxy) {
            proxy.shutdown(grace).await;
        } else {
            tracing::error!("the data plane is still in use; connections are cut");
        }
    }
}

/// A pool that was typed wrongly should stop the start, not become a remark on a page.
fn judge_pools<'a>(place: &str, pools: impl Iterator<Item = &'a PoolRow>) -> anyhow::Result<()> {
    let pools: Vec<_> = pools.cloned().map(Arc::new).collect();
    let problems = Local::imaginary().set_pools(&pools);
    let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    anyhow::ensure!(texts.is_empty(), "{place}: {}", texts.join("\n"));
    Ok(())
}

/// Passes facts on and adds the pools of configuration and command line. Where no pool serves
/// everybody by the time everything is known, the default one is added if that is wished for.
async fn with_pools(
    mut told: mpsc::Receiver<Fact>,
    facts: mpsc::Sender<Fact>,
    pools: Vec<PoolRow>,
    fallback: bool,
) {
    let serves_everybody = |pool: &PoolRow| pool.auto_assign && pool.instance.is_none();
    let mut has_pool = !fallback || pools.iter().any(serves_everybody);
    for pool in pools {
        if facts.send(Fact::Pool(Arc::new(pool))).await.is_err() {
            return;
        }
    }
    while let Some(fact) = told.recv().await {
        has_pool |= matches!(&fact, Fact::Pool(pool) if serves_everybody(pool));
        if matches!(fact, Fact::Synced) && !has_pool {
            let fallback = Fact::Pool(Arc::new(pools::fallback()));
            if facts.send(fallback).await.is_err() {
                return;
            }
        }
        if facts.send(fact).await.is_err() {
            return;
        }
    }
}
