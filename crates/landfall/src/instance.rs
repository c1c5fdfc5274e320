//! A running instance: source, engine, provider, data plane and admin endpoint, put together.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use landfall_config::pools;
use landfall_engine::{Engine, EngineConfig, EngineHandle};
use landfall_files::Manifests;
use landfall_local::Local;
use landfall_model::rows::{Fact, PoolRow};
use landfall_model::view::InstanceView;
use landfall_proxy::{Proxy, ProxyConfig};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
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

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Manifest files and folders, `-` for standard input.
    pub paths: Vec<PathBuf>,
    /// Folders in folders, too.
    pub recursive: bool,
    /// Ranges of the pool; none: those among the manifests, else the default.
    pub pools: Vec<String>,
    /// Where addresses are remembered; `None`: nowhere.
    pub state: Option<PathBuf>,
    /// Where the admin endpoint answers; port 0 picks a free one.
    pub admin: SocketAddr,
    /// Threads that carry traffic; `None`: one per core.
    pub workers: Option<NonZeroUsize>,
}

/// What is running.
#[derive(Debug)]
pub struct Instance {
    admin: SocketAddr,
    handle: EngineHandle<Local>,
    proxy: Arc<Proxy>,
    started: String,
    tasks: TaskTracker,
    cancel: CancellationToken,
}

// === impl Instance ===

impl Instance {
    /// Starts everything. What can be wrong with the command line (a path, the state directory, the
    /// admin address, a pool) is an error here; what can be wrong with manifests is told later.
    pub async fn start(options: Options) -> anyhow::Result<Self> {
        if let Err(error) = landfall_sys::limits::raise_open_files() {
            tracing::warn!(%error, "the limit of open files stays low");
        }
        let flag_pool = planning::flag_pools(&options.pools);
        judge_flags(flag_pool.as_ref())?;
        let listener = TcpListener::bind(options.admin).await.with_context(|| {
            format!(
                "opening the admin endpoint at {} (another instance? --admin names another address)",
                options.admin
            )
        })?;
        let admin = listener.local_addr()?;
        let source = landfall_files::Options {
            paths: options.paths,
            recursive: options.recursive,
            state: options.state,
        };
        let (manifests, store) =
            tokio::task::spawn_blocking(move || Manifests::open(source)).await??;

        let proxy = Arc::new(
            Proxy::start(ProxyConfig {
                workers: options.workers,
                ..ProxyConfig::default()
            })
            .context("starting the data plane")?,
        );
        let provider = Arc::new(Local::new(proxy.clone()));
        let engine = Engine::new(
            EngineConfig::new(planning::classes()),
            vec![provider.clone()],
            Arc::new(store),
        );
        let handle = engine.handle();
        let started = Timestamp::now().to_string();

        let (tasks, cancel) = (TaskTracker::new(), CancellationToken::new());
        let (read, told) = mpsc::channel(FACTS);
        let (facts, received) = mpsc::channel(FACTS);
        let (wakes, woken) = mpsc::channel(WAKES);
        tasks.spawn(manifests.run(read, cancel.clone()));
        tasks.spawn(with_pools(told, facts, flag_pool));
        tasks.spawn(engine.run(received, woken, cancel.clone()));
        tasks.spawn(landfall_local::watch_health(
            provider,
            proxy.changes(),
            wakes,
            cancel.clone(),
        ));
        let desk = Arc::new(Desk::new(handle.clone(), started.clone()));
        let web = landfall_web::Options::default();
        tasks.spawn(landfall_web::serve(listener, desk, web, cancel.clone()));
        Ok(Self {
            admin,
            handle,
            proxy,
            started,
            tasks,
            cancel,
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
            tasks,
            cancel,
            ..
        } = self;
        cancel.cancel();
        tasks.close();
        tasks.wait().await;
        drop(handle);
        match Arc::into_inner(proxy) {
            Some(proxy) => proxy.shutdown(grace).await,
            None => tracing::error!("the data plane is still in use; connections are cut"),
        }
    }
}

/// A pool that was typed wrongly should stop the start, not become a remark on a page.
fn judge_flags(pool: Option<&PoolRow>) -> anyhow::Result<()> {
    use landfall_model::provider::Provider as _;
    let Some(pool) = pool else {
        return Ok(());
    };
    let problems = Local::imaginary().set_pools(&[Arc::new(pool.clone())]);
    let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    anyhow::ensure!(texts.is_empty(), "--pool: {}", texts.join("\n"));
    Ok(())
}

/// Passes facts on and adds the pool of the command line; where neither it nor a manifest named a
/// pool that serves everybody by the time everything is known, the default one.
async fn with_pools(
    mut told: mpsc::Receiver<Fact>,
    facts: mpsc::Sender<Fact>,
    flag_pool: Option<PoolRow>,
) {
    let mut has_pool = flag_pool.is_some();
    if let Some(pool) = flag_pool
        && facts.send(Fact::Pool(Arc::new(pool))).await.is_err()
    {
        return;
    }
    while let Some(fact) = told.recv().await {
        has_pool |= matches!(&fact, Fact::Pool(pool) if pool.auto_assign);
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
