//! Reading the cloud: as little as will do, and lists before single objects.

mod audit;
mod certificate;
mod certificates;
mod content;
pub(crate) mod drift;
pub(crate) mod floating_ips;
mod groups;
mod guarded;
mod inside;
mod others;
mod removal;
mod search;
mod secondary;
mod spec;
mod subnets;

use std::collections::HashSet;

use landfall_model::provider::ProviderError;
use landfall_model::{Code, Intent, Reason};
use tokio::time::Instant;

use crate::certificates::CertificateView;
use crate::client::ApiError;
use crate::errors::failure;
use crate::fares::{Trouble, trouble_of};
use crate::features::Features;
use crate::names::Names;
use crate::observed::{Addressing, Content, Found, Goal, Observed};
use crate::provider::OpenStack;

impl OpenStack {
    pub(crate) async fn observe_service(&self, intent: &Intent) -> Result<Observed, ProviderError> {
        let version = self
            .cloud
            .versions()
            .await
            .map_err(|error| failure(&error))?;
        let names = Names::new(
            &self.settings.cluster,
            self.settings.cluster_id.as_deref(),
            &intent.service,
            &intent.uid,
        );
        let observed = match &intent.load_balancer {
            None => self.read_before_removal(intent, names, version).await,
            Some(spec) => self.read_spec(intent, spec, names, version, None).await,
        };
        let whole = match observed {
            Ok(have) => Box::pin(self.read_secondary(intent, have, version)).await,
            Err(trouble) => Err(trouble),
        };
        whole.map_err(|trouble| match trouble {
            ObserveError::Cloud(error) => failure(&error),
            ObserveError::Spec(reasons) => lasting(reasons),
        })
    }
}

impl OpenStack {
    /// What is held of one load balancer, before anything but the load balancer itself is read.
    fn observed(
        &self,
        intent: &Intent,
        names: Names,
        features: Features,
        goal: Goal,
        (found, assumed): (Found, bool),
    ) -> Observed {
        let stuck = self.troubles(&found).map(|(_, reason)| reason);
        let trouble = self.trouble(&names, &found);
        let id = found.balancer().map(|it| &it.id);
        let nothing = matches!(found, Found::Nothing);
        let now = Instant::now();
        Observed {
            attempts: self.memory().attempts_for(&intent.uid, id, nothing, now),
            names,
            features,
            goal,
            found,
            content: Content::Unread,
            addressing: Addressing::default(),
            groups: None,
            assumed,
            body_limit: self.cloud.body_limit(),
            serial: self.settings.conf.provider_requires_serial_api_calls,
            notices: Vec::new(),
            in_vain: None,
            beside: Vec::new(),
            stuck,
            resting: None,
            lacking: None,
            leaving: HashSet::new(),
            others: Vec::new(),
            serves_in_part: false,
            listeners: Vec::new(),
            certificates: CertificateView::default(),
            trouble,
        }
    }

    /// Why what a Service has in a load balancer carries no traffic, as the last audit saw it.
    fn trouble(&self, names: &Names, found: &Found) -> Option<Trouble> {
        let Found::One {
            balancer, owner, ..
        } = found
        else {
            return None;
        };
        let memory = self.memory();
        let troubles = memory.troubles.get(&balancer.id)?;
        let of_owner = ["", &balancer.name].into_iter().filter(|_| *owner);
        let tags: Vec<&str> = of_owner.chain([&*names.load_balancer]).collect();
        trouble_of(troubles, &tags).cloned()
    }
}

/// Why a Service could not be read.
pub(crate) enum ObserveError {
    /// The cloud did not answer, or refused.
    Cloud(ApiError),
    /// The spec can't be had as it stands.
    Spec(Vec<Reason>),
}

impl From<ApiError> for ObserveError {
    fn from(error: ApiError) -> Self {
        Self::Cloud(error)
    }
}

impl From<Vec<Reason>> for ObserveError {
    fn from(reasons: Vec<Reason>) -> Self {
        Self::Spec(reasons)
    }
}

/// The worst of several reasons; what they have in common is that only a change of the facts
/// resolves them.
fn lasting(reasons: Vec<Reason>) -> ProviderError {
    let worst = reasons.into_iter().max_by_key(|reason| reason.severity);
    let reason = worst.unwrap_or_else(|| Reason::error(Code::ProviderFailed, "no cause was given"));
    ProviderError {
        retry: landfall_model::Retry::Backoff,
        ..ProviderError::lasting(reason)
    }
}
