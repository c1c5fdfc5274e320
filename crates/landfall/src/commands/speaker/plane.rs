//! The data plane of a speaker, where an instance has `dataPlane: landfall`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use aws_lc_rs::digest;
use landfall_config::file::Config;
use landfall_engine::report::OwnReport;
use landfall_l2::local_routes::{self, LocalRoutes};
use landfall_local::Serving;
use landfall_proxy::Proxy;
use landfall_speaker::plane::Plane;
use landfall_speaker::serve::{Parts, Server};
use landfall_speaker::task::Outputs;
use landfall_sys::listen::Addresses;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::admin::speaker::ServedView;
use crate::assembly::{descriptors, most_listeners};
use crate::cli::SpeakerArgs;
use crate::data_plane::DataPlane;
use crate::instances::announced;
use crate::lifetime::Lifetime;

/// How long this node goes on serving once others announce its addresses: packets of hosts that
/// do not know it yet still arrive.
const HOLD: Duration = Duration::from_secs(1);

/// What is served, and what it takes. Nothing runs yet but the data plane's threads.
#[derive(Debug)]
pub struct ServingParts {
    proxy: Arc<Proxy>,
    serving: Arc<Serving>,
    routes: LocalRoutes,
}

/// A data plane that serves.
#[derive(Debug)]
pub struct Running {
    /// What people see.
    pub seen: ServedView,
    server: JoinHandle<LocalRoutes>,
    stop: CancellationToken,
}

/// Returns the Services that nodes serve themselves; `None`: the configuration has no instance
/// whose Services they serve.
pub fn of(config: &Config, args: &SpeakerArgs) -> Option<Plane> {
    announced::plane(config, &args.node_name, Some(args.admin))
}

/// Starts a data plane. `secret`: what all speakers have in common, and others do not know.
pub async fn prepare(
    args: &SpeakerArgs,
    config: &Config,
    secret: &[u8],
) -> anyhow::Result<ServingParts> {
    let source = local_routes::source_of(args.node_address);
    let routes = LocalRoutes::open(source).await.context(
        "an instance has dataPlane: landfall, for which speakers need the capability NET_ADMIN \
         beside NET_RAW",
    )?;
    let files = descriptors();
    let limits = config
        .limits
        .limits(Some((most_listeners(None) / 2).max(1)));
    let watches = limits.within_files(files).secrets as u64;
    let mut data_plane = DataPlane {
        files: files.saturating_sub(watches),
        access_log: config.access_log.clone(),
        addresses: Addresses::Any,
        hash_secret: hash_secret(secret),
        ..DataPlane::default()
    };
    let proxy = data_plane.start()?;
    Ok(ServingParts {
        serving: Arc::new(Serving::new(Arc::clone(&proxy), limits)),
        proxy,
        routes,
    })
}

/// Returns what decides which member a client's address leads to: the same on all nodes, so that a
/// failover keeps it.
fn hash_secret(secret: &[u8]) -> [u8; 16] {
    let mut text = b"landfall: members of clients\n".to_vec();
    text.extend_from_slice(secret);
    let digest = digest::digest(&digest::SHA256, &text);
    digest.as_ref().first_chunk().copied().unwrap_or_default()
}

// === impl ServingParts ===

impl ServingParts {
    /// Serves what a speaker decides on.
    pub fn run<R: OwnReport>(
        self,
        outputs: &Outputs,
        reporter: Arc<R>,
        lifetime: &Lifetime,
    ) -> Running {
        let parts = Parts {
            wanted: outputs.serves.clone(),
            serving: Arc::clone(&self.serving),
            proxy: Arc::clone(&self.proxy),
            routes: self.routes,
            reporter,
        };
        let (server, view) = Server::new(parts);
        let stop = lifetime.cancel.clone();
        let seen = ServedView {
            view,
            serving: self.serving,
            proxy: self.proxy,
        };
        Running {
            seen,
            server: lifetime.tasks.spawn(server.run(stop.clone())),
            stop,
        }
    }
}

// === impl Running ===

impl Running {
    /// Ends what is served, once others announce the addresses.
    pub async fn end(self) {
        tokio::time::sleep(HOLD).await;
        self.stop.cancel();
        let routes = self.server.await;
        // Without a route, what pods of this node send goes to the node that announces now.
        let closed = match routes {
            Ok(routes) => routes.close().await,
            Err(error) => Err(error.into()),
        };
        if let Err(error) = closed {
            tracing::warn!(%error, "routes of this node could not be removed");
        }
        self.seen.proxy.shutdown(Duration::ZERO).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plane(provider: &str) -> Option<Plane> {
        let text = format!("instances:\n- {{name: lan, provider: {provider}}}\n");
        let config = landfall_config::file::parse("landfall.yaml", &text).unwrap();
        announced::plane(&config, "node-1", Some(([127, 0, 0, 1], 9641).into()))
    }

    #[test]
    fn nodes_serve_where_an_instance_asks_for_it() {
        assert!(plane("{kind: metal, dataPlane: landfall}").is_some());
        assert!(plane("{kind: metal, dataPlane: kube-proxy}").is_none());
        assert!(plane("metal").is_none());
        assert!(plane("local").is_none());
    }

    #[test]
    fn speakers_with_the_same_key_choose_the_same_members() {
        assert_eq!(hash_secret(b"one"), hash_secret(b"one"));
        assert_ne!(hash_secret(b"one"), hash_secret(b"two"));
    }
}
