//! A running instance: source, engine, provider, data plane and admin endpoint, put together.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use landfall_config::pools;
use landfall_engine::book::{Snapshot, StateStore};
use landfall_engine::leadership::Role;
use landfall_engine::{Engine, EngineConfig, EngineHandle, Report};
use landfall_local::Local;
use landfall_model::provider::Provider as _;
use landfall_model::rows::{Fact, PoolRow};
use landfall_model::view::InstanceView;
use landfall_proxy::Proxy;
use landfall_web::guard::Names;
use landfall_web::token::TokenFile;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admin::AdminApi;
use crate::backend::Backend;
use crate::cli::AccessLogArgs;
use crate::data_plane::DataPlane;
use crate::instances::Instances;
use crate::takeover::Estate;
use crate::{planning, view};

mod clouds;
mod inherited;
mod machine;

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
    pub instances: Instances,
    /// Ranges of one more pool of the default instance.
    pub pools: Vec<String>,
    /// Whether loopback addresses are handed out when nobody names a pool that serves everybody.
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
}

/// How long the tasks of an instance live: until cancelled, and then until they have ended.
#[derive(Clone, Debug, Default)]
pub struct Lifetime {
    /// The tasks.
    pub tasks: TaskTracker,
    /// Ends them.
    pub cancel: CancellationToken,
}

/// What an instance is started on, beside what is configured.
#[derive(Debug, Default)]
pub struct Ground {
    /// What another process hands over.
    pub estate: Estate,
    /// A data plane that runs already.
    pub proxy: Option<Arc<Proxy>>,
    /// What clients must not know: [`DataPlane::hash_secret`].
    pub hash_secret: [u8; 16],
    /// What the control plane that ended says of itself.
    pub last_words: Option<LastWords>,
}

/// The part of this replica among several.
#[derive(Clone, Debug)]
pub struct Lead {
    /// What it does.
    pub role: watch::Receiver<Role>,
    /// Whether the source says when everything is known as of the beginning of a term.
    pub confirmed: bool,
}

/// How the admin endpoint is answered while there is traffic and no control plane.
#[derive(Clone, Debug)]
pub struct LastWords {
    desk: Arc<AdminApi>,
    names: Names,
    token: Option<TokenFile>,
}

/// What is running.
#[derive(Debug)]
pub struct Instance {
    admin: std::net::TcpListener,
    words: LastWords,
    handle: EngineHandle<Backend>,
    /// The data plane, if an instance is on this machine.
    proxy: Option<Arc<Proxy>>,
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
    pub fn judge(&self) -> anyhow::Result<()> {
        judge_pools("--pool", planning::flag_pools(&self.pools).iter())?;
        judge_pools("pools", self.instances.pools().iter())
    }
}

// === impl Lifetime ===

impl Lifetime {
    /// Ends the tasks, and returns once they have ended.
    async fn end(&self) {
        self.cancel.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

// === impl Instance ===

impl Instance {
    /// Starts everything, on what is there already. What can be wrong with the command line (the
    /// admin address, a pool) is an error here; what can be wrong with facts is told later.
    ///
    /// `source` starts the tasks that send facts; `lead` says what this replica does of several.
    pub async fn start_on<R: Report>(
        ground: Ground,
        options: Options,
        lifetime: Lifetime,
        reporter: Arc<R>,
        lead: Option<Lead>,
        source: impl FnOnce(mpsc::Sender<Fact>, &Lifetime),
    ) -> anyhow::Result<Self> {
        options.judge()?;
        let mut pools = options.instances.pools();
        pools.extend(planning::flag_pools(&options.pools));
        let Ground {
            estate,
            proxy,
            hash_secret,
            ..
        } = ground;
        let inherits = proxy.is_some();
        let admin = admin_socket(options.admin, estate.admin).await?;
        let listener = TcpListener::from_std(admin.try_clone()?)?;
        match &options.admin_token {
            Some(token) => drop(token.read().await.context("--admin-token-file")?),
            None if !options.admin.ip().is_loopback() => tracing::warn!(
                admin = %options.admin,
                "every client of the admin endpoint can read all Services and make plans; \
                --admin-token-file makes it require a token"
            ),
            None => {}
        }
        let instances = options.instances.beside(admin.local_addr()?);
        let instances = instances.sharing(most_listeners(options.workers));
        let silent = clouds::check_clouds(&instances, inherits).await?;
        let mut data_plane = DataPlane {
            proxy,
            sockets: Some(estate.sockets),
            workers: options.workers,
            files: instances.files_for_traffic(descriptors()),
            access_log: options.access_log.over(instances.access_log()),
            shares_ports: lead.is_some(),
            hash_secret,
        };
        let providers = instances.live(&mut data_plane)?;
        let providers: Vec<Arc<Backend>> = providers.into_iter().map(Arc::new).collect();
        let proxy = data_plane.proxy;
        let classes = instances.classes();
        let config = EngineConfig::new(classes.clone());
        let mut engine = Engine::new(config, providers.clone(), reporter);
        if let Some(Lead { role, confirmed }) = lead {
            engine = engine.led_by(role, inherits);
            if confirmed {
                engine = engine.confirmed_by_facts();
            }
        }
        let handle = engine.handle();
        let started = Timestamp::now().to_string();

        let Lifetime { tasks, cancel } = &lifetime;
        let (read, told) = mpsc::channel(FACTS);
        let (facts, received) = mpsc::channel(FACTS);
        let (wakes, woken) = mpsc::channel(WAKES);
        source(read, &lifetime);
        if options.fallback_pool {
            pools.push(pools::fallback());
        }
        if admin.local_addr()?.ip().is_unspecified() {
            // Before the first Service is told of, so that none has a member there.
            let known = machine::tell(&facts).await;
            let (facts, cancel) = (facts.downgrade(), cancel.clone());
            tasks.spawn(async move {
                cancel
                    .run_until_cancelled(machine::follow(facts, known))
                    .await;
            });
        }
        tasks.spawn(with_pools(told, facts, pools));
        let ended = CancellationToken::new();
        tasks.spawn(watched(
            engine.run(received, woken, cancel.clone()),
            ended.clone(),
        ));
        for provider in &providers {
            provider.start(&wakes, &lifetime);
        }
        drop(providers);
        for setup in silent {
            tasks.spawn(clouds::retry_cloud_check(setup, cancel.clone()));
        }
        let (web, stopping) = (Lifetime::default(), CancellationToken::new());
        let desk = AdminApi::new(handle.clone(), classes, started.clone(), stopping.clone());
        let words = LastWords {
            desk: Arc::new(desk),
            names: Names::new(options.admin_names),
            token: options.admin_token,
        };
        let serving = words.clone().answer(listener, web.cancel.clone());
        web.tasks.spawn(serving);
        Ok(Self {
            admin,
            words,
            handle,
            proxy,
            started,
            lifetime,
            web,
            stopping,
            ended,
        })
    }

    /// Returns once the control loop has ended although nothing asked it to: it panicked, or its
    /// source is gone. What runs on then serves what nobody keeps in order, and the process should
    /// end.
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
        let handled = || {
            self.handle
                .book
                .read(|pages| pages.synced && pages.records.values().all(|record| record.handled))
        };
        while !handled() {
            tokio::time::sleep(LOOK).await;
        }
        if let Some(proxy) = self.proxy.clone() {
            let Lifetime { tasks, cancel } = &self.lifetime;
            let (book, cancel) = (self.handle.book.clone(), cancel.clone());
            if inherited::close_unwanted(&book, &proxy) {
                let closing = async move { inherited::follow_unwanted(&book, &proxy).await };
                tasks.spawn(async move { cancel.run_until_cancelled(closing).await });
            }
        }
    }

    /// Ends the control plane: nothing is decided or written any more, and traffic goes on. Returns
    /// what another control plane can be started on.
    pub async fn let_go(self) -> Ground {
        self.stopping.cancel();
        self.lifetime.end().await;
        self.web.end().await;
        let estate = Estate {
            admin: Some(self.admin),
            ..Estate::default()
        };
        Ground {
            estate,
            proxy: self.proxy,
            last_words: Some(self.words),
            ..Ground::default()
        }
    }

    /// Waits until everything is known and was handled once. Of ten thousand Services a picture
    /// takes a while to draw, so only the last one is drawn.
    ///
    /// # Errors
    /// It is not so in time.
    pub async fn wait_ready(&self, limit: Duration) -> anyhow::Result<InstanceView> {
        let wait = async {
            while !self.handle.book.read(Snapshot::ready) {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(limit, wait)
            .await
            .with_context(|| format!("not ready after {} s", limit.as_secs()))?;
        Ok(view::instance(&self.handle, &self.started))
    }

    /// Waits for a picture of which something is true.
    ///
    /// # Errors
    /// It did not become true in time.
    pub async fn wait_until(
        &self,
        time_limit: Duration,
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
        tokio::time::timeout(time_limit, wait)
            .await
            .with_context(|| format!("not ready after {} s", time_limit.as_secs()))
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
        let (book, cancel) = (self.handle.book.clone(), cancel.clone());
        tasks.spawn(async move {
            let closing = inherited::close_what_is_gone(&book, &proxy, before);
            cancel.run_until_cancelled(closing).await;
        });
    }

    /// Says from now on whether this replica leads and has opened its listeners.
    pub fn tell_serving(&self, serving: watch::Sender<bool>) {
        let Lifetime { tasks, cancel } = &self.lifetime;
        let book = self.handle.book.clone();
        let cancel = cancel.clone();
        tasks.spawn(async move {
            let telling = tell_serving(&book, &serving);
            cancel.run_until_cancelled(telling).await;
        });
    }

    /// Is not ready any more, stops deciding, closes listeners, and lets connections end for as
    /// long as `grace`, in this order. The admin endpoint answers until then. Addresses stay
    /// claimed.
    pub async fn stop(self, grace: Duration) {
        self.stop_after(grace, async {}).await;
    }

    /// As [`Self::stop`]. New connections are accepted until `handed_over` is done, which begins
    /// when nothing is decided or written any more.
    pub async fn stop_after(self, grace: Duration, handed_over: impl Future<Output = ()>) {
        self.stopping.cancel();
        self.lifetime.end().await;
        handed_over.await;
        if let Some(proxy) = &self.proxy {
            proxy.shutdown(grace).await;
        }
        self.web.end().await;
    }
}

/// Runs a task, and says when it has ended, also by a panic.
async fn watched(task: impl Future<Output = ()>, ended: CancellationToken) {
    let _ended = ended.drop_guard();
    task.await;
}

/// The admin endpoint's socket: the one that was handed over, if it is where it should be.
async fn admin_socket(
    at: SocketAddr,
    given: Option<std::net::TcpListener>,
) -> anyhow::Result<std::net::TcpListener> {
    let fits = |given: &std::net::TcpListener| {
        given.local_addr().is_ok_and(|address| {
            address.ip() == at.ip() && (at.port() == 0 || address.port() == at.port())
        })
    };
    if let Some(given) = given.filter(fits) {
        return Ok(given);
    }
    let listener = TcpListener::bind(at).await.with_context(|| {
        format!(
            "opening the admin endpoint at {at} (another instance? --admin names another address)"
        )
    })?;
    Ok(listener.into_std()?)
}

// === impl Ground ===

impl Ground {
    /// The same once more, without what another process handed over.
    pub fn again(&self) -> io::Result<Self> {
        let admin = self
            .estate
            .admin
            .as_ref()
            .map(std::net::TcpListener::try_clone);
        let estate = Estate {
            admin: admin.transpose()?,
            ..Estate::default()
        };
        Ok(Self {
            estate,
            proxy: self.proxy.clone(),
            hash_secret: self.hash_secret,
            last_words: None,
        })
    }

    /// Answers at the admin endpoint from `after` on, as long as this is polled: traffic that
    /// can't be looked at looks like trouble.
    pub async fn answer(&self, after: Duration) -> Infallible {
        tokio::time::sleep(after).await;
        let cancel = CancellationToken::new();
        let _ended = cancel.clone().drop_guard();
        let admin = self.estate.admin.as_ref();
        let listener = admin.map(|admin| TcpListener::from_std(admin.try_clone()?));
        match (listener, self.last_words.clone()) {
            (Some(Ok(listener)), Some(words)) => words.answer(listener, cancel).await,
            (Some(Err(error)), _) => tracing::warn!(%error, "the admin endpoint can't be served"),
            _ => {}
        }
        std::future::pending().await
    }
}

// === impl LastWords ===

impl LastWords {
    async fn answer(self, listener: TcpListener, cancel: CancellationToken) {
        let options = landfall_web::Options {
            names: self.names,
            token: self.token,
        };
        landfall_web::serve(listener, self.desk, options, cancel).await;
    }
}

/// How many listeners the descriptors of the process let be, if nothing else needed any: one
/// descriptor per thread and listener.
fn most_listeners(workers: Option<NonZeroUsize>) -> usize {
    let cores = || std::thread::available_parallelism().ok();
    let workers = workers.or_else(cores).map_or(1, NonZeroUsize::get);
    usize::try_from(descriptors()).unwrap_or(usize::MAX) / workers
}

/// How many files the process may open.
pub fn descriptors() -> u64 {
    landfall_sys::limits::raise_open_files().unwrap_or(1024)
}

/// Follows whether this replica leads and has opened its listeners.
async fn tell_serving(book: &StateStore, serving: &watch::Sender<bool>) {
    let mut changes = book.changes();
    loop {
        let before = *serving.borrow();
        // To look at all Services is for the time before only.
        let now = book.read(|pages| pages.at_work && (before || Snapshot::serving(pages)));
        serving.send_if_modified(|serves| std::mem::replace(serves, now) != now);
        if changes.changed().await.is_err() {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// A pool that was typed wrongly should stop the start, not become a remark on a page.
fn judge_pools<'a>(place: &str, pools: impl Iterator<Item = &'a PoolRow>) -> anyhow::Result<()> {
    let pools: Vec<_> = pools.cloned().map(Arc::new).collect();
    let problems = Local::offline().set_pools(&pools);
    let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    anyhow::ensure!(texts.is_empty(), "{place}: {}", texts.join("\n"));
    Ok(())
}

/// Passes facts on after the pools of configuration and command line.
async fn with_pools(
    mut told: mpsc::Receiver<Fact>,
    facts: mpsc::Sender<Fact>,
    pools: Vec<PoolRow>,
) {
    for pool in pools {
        if facts.send(Fact::Pool(Arc::new(pool))).await.is_err() {
            return;
        }
    }
    while let Some(fact) = told.recv().await {
        if facts.send(fact).await.is_err() {
            return;
        }
    }
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
