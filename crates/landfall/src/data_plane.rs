//! The data plane of a process: one for all instances on this machine, started with the first.

use std::num::NonZeroUsize;
use std::sync::Arc;

use anyhow::Context as _;
use landfall_config::access_log::AccessLogConfig;
use landfall_l2::fsm::Scope;
use landfall_local::OpenAddresses;
use landfall_proxy::{Proxy, ProxyConfig, Sockets};
use landfall_sys::listen::Addresses;

use crate::access_log;

/// A data plane that runs, or is started when an instance needs it.
#[derive(Debug, Default)]
pub struct DataPlane {
    /// The one that runs.
    pub proxy: Option<Arc<Proxy>>,
    /// Listening sockets that another process hands over.
    pub sockets: Option<Sockets>,
    /// Threads; `None`: one per core.
    pub workers: Option<NonZeroUsize>,
    /// The files that it may open.
    pub files: u64,
    /// The access log.
    pub access_log: Option<AccessLogConfig>,
    /// Whether it opens ports that another replica on this machine still holds.
    pub shares_ports: bool,
    /// Which addresses its listeners may have.
    pub addresses: Addresses,
    /// The addresses that instances announce, each with the interfaces on which they do.
    pub announced: Vec<(OpenAddresses, Scope)>,
    /// What clients must not know: [`ProxyConfig::hash_secret`].
    pub hash_secret: [u8; 16],
}

impl DataPlane {
    /// Returns the data plane, and starts it if it does not run yet.
    pub fn start(&mut self) -> anyhow::Result<Arc<Proxy>> {
        let proxy = match &self.proxy {
            Some(proxy) => proxy.clone(),
            None => self.started()?,
        };
        if let Some(sockets) = self.sockets.take() {
            proxy.adopt(sockets);
        }
        self.proxy = Some(proxy.clone());
        Ok(proxy)
    }

    fn started(&self) -> anyhow::Result<Arc<Proxy>> {
        let files = usize::try_from(self.files).unwrap_or(usize::MAX);
        let config = ProxyConfig {
            workers: self.workers,
            files: NonZeroUsize::new(files.max(1)),
            memory: None,
            beside: self.shares_ports,
            addresses: self.addresses,
            access_log: access_log::start(self.access_log.clone())?,
            hash_secret: self.hash_secret,
        };
        let proxy = Proxy::start(config).context("starting the data plane")?;
        Ok(Arc::new(proxy))
    }
}
