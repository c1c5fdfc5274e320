//! The certificates of Secrets that a Service has in Barbican.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use landfall_model::listener::Certificate;
use landfall_model::{Code, Intent, LoadBalancerSpec, Reason};
use tokio::time::Instant;

use super::floating_ips::{LASTING, ago};
use crate::certificates::{CertificateView, needed, used};
use crate::client::ApiError;
use crate::errors::failure;
use crate::names::Names;
use crate::objects::{Container, id_in};
use crate::provider::OpenStack;
use crate::record;

/// A container that another process has just made need not be in an older list.
const RECENT: Duration = Duration::from_secs(10);
/// What names the Secret.
const OPTION: &str = "landfall.dev/tls-secret";

impl OpenStack {
    /// Reads which certificates of Secrets a Service has in Barbican. Where it needs none and had
    /// none, nothing is asked. A Barbican that does not answer keeps nothing else from being done.
    pub(super) async fn read_certificates(
        &self,
        intent: &Intent,
        spec: Option<&LoadBalancerSpec>,
        names: &Names,
    ) -> CertificateView {
        let needed = needed(spec, names);
        let had = self.memory().certified.contains(&intent.uid) || record::is_certified(intent);
        if needed.is_empty() && !had {
            return CertificateView::default();
        }
        match self.view_certificates(&needed, names).await {
            Ok(view) => {
                let mut memory = self.memory();
                if needed.is_empty() && view.there.is_empty() {
                    memory.certified.remove(&intent.uid);
                } else {
                    memory.certified.insert(intent.uid.clone());
                }
                view
            }
            Err(error) => CertificateView {
                problem: Some(failure(&error).reason.at(OPTION)),
                ..CertificateView::default()
            },
        }
    }

    async fn view_certificates(
        &self,
        needed: &BTreeMap<String, Arc<Certificate>>,
        names: &Names,
    ) -> Result<CertificateView, ApiError> {
        if !self.cloud.has_key_manager().await? {
            return Ok(CertificateView {
                problem: (!needed.is_empty()).then(no_key_manager),
                ..CertificateView::default()
            });
        }
        let all = self.all_containers(ago(LASTING)).await?;
        let mut view = CertificateView::new(names, needed.clone(), &all);
        let others = |view: &CertificateView| view.others_than(needed);
        if !view.missing.is_empty() || !others(&view).is_empty() {
            let all = self.all_containers(ago(RECENT)).await?;
            view = CertificateView::new(names, needed.clone(), &all);
        }
        view.unneeded = others(&view);
        if !view.unneeded.is_empty() {
            // What any listener or pool of the project names stays.
            let listeners = self
                .lists
                .listeners
                .since(Instant::now(), async || self.cloud.listeners(None).await)
                .await?;
            let pools = self
                .lists
                .pools
                .since(Instant::now(), async || self.cloud.pools(None).await)
                .await?;
            let used = used(listeners.iter(), pools.iter());
            view.unneeded
                .retain(|it| !used.contains(&id_in(&it.container_ref)));
        }
        Ok(view)
    }

    /// All containers of the project as they were at `since` or later.
    pub(crate) async fn all_containers(
        &self,
        since: Instant,
    ) -> Result<Arc<Vec<Container>>, ApiError> {
        let written = self.memory().containers_written;
        let since = written.map_or(since, |at| since.max(at));
        self.lists
            .containers
            .since(since, async || self.cloud.containers().await)
            .await
    }
}

fn no_key_manager() -> Reason {
    Reason::error(
        Code::CertificateNotFound,
        "the cloud's catalog has no key-manager, so that Octavia can be given no certificate",
    )
    .at(OPTION)
    .remedy("choose a mode without TLS, or another cloud")
}
