//! Where load balancers are made: every provider of this binary behind one type, so that one
//! process can hold instances of each.

use std::fmt;
use std::sync::Arc;

use landfall_local::Local;
use landfall_model::Uid;
use landfall_model::intent::{Claim, Intent};
use landfall_model::plan::{Plan, Planned};
use landfall_model::provider::{Applied, Provider, ProviderError, ProviderProfile, ProviderStatus};
use landfall_model::reason::{Code, Reason};
use landfall_model::rows::PoolRow;
use landfall_model::view::{ListenerView, PoolView};
use landfall_openstack::OpenStack;
use serde::Serialize;

/// A provider.
#[derive(Debug)]
pub enum Platform {
    /// This machine, or a copy of what is held of it.
    Local(Arc<Local>),
    /// OpenStack.
    OpenStack(Box<OpenStack>),
    /// OpenStack, looked at only: what is carried out changes nothing.
    ReadOnly(Box<OpenStack>),
    /// A platform of which only the abilities are known. It holds nothing and asks nobody.
    ProfileOnly(Box<ProviderProfile>),
}

/// What a platform holds for one Service.
#[derive(Debug)]
pub enum Observed {
    /// On this machine.
    Local(Box<landfall_local::Observed>),
    /// On OpenStack.
    OpenStack(Box<landfall_openstack::Observed>),
    /// Nothing, because nobody was asked.
    Nothing,
}

/// One change.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Step {
    /// On this machine.
    Local(landfall_local::Step),
    /// On OpenStack.
    OpenStack(Box<landfall_openstack::Step>),
}

// === impl Platform ===

impl Platform {
    /// A copy for plans: it starts from what is held now, and changes nothing outside itself. Of a
    /// cloud nothing is remembered, so that a plan is made from what is there.
    pub fn sandbox(&self) -> Self {
        match self {
            Self::Local(local) => Self::Local(Arc::new(local.sandbox())),
            Self::OpenStack(openstack) | Self::ReadOnly(openstack) => {
                let (cloud, settings) = (openstack.cloud().clone(), openstack.settings().clone());
                Self::ReadOnly(Box::new(OpenStack::new(cloud, settings)))
            }
            Self::ProfileOnly(profile) => Self::ProfileOnly(profile.clone()),
        }
    }

    /// What is wrong with all that it carries, at present.
    pub fn problem(&self) -> Option<Reason> {
        match self {
            Self::Local(local) => local.problem(),
            Self::OpenStack(_) | Self::ReadOnly(_) | Self::ProfileOnly(_) => None,
        }
    }
}

impl Provider for Platform {
    type Observed = Observed;
    type Step = Step;

    fn profile(&self) -> &ProviderProfile {
        match self {
            Self::Local(local) => local.profile(),
            Self::OpenStack(openstack) | Self::ReadOnly(openstack) => openstack.profile(),
            Self::ProfileOnly(profile) => profile,
        }
    }

    async fn observe(&self, want: &Intent) -> Result<Observed, ProviderError> {
        match self {
            Self::Local(local) => {
                let have = local.observe(want).await?;
                Ok(Observed::Local(Box::new(have)))
            }
            Self::OpenStack(openstack) | Self::ReadOnly(openstack) => {
                // A look at a cloud is a long story: kept out of every future that waits for it.
                let have = Box::pin(openstack.observe(want)).await?;
                Ok(Observed::OpenStack(Box::new(have)))
            }
            Self::ProfileOnly(_) => Ok(Observed::Nothing),
        }
    }

    fn plan(&self, want: &Intent, have: &Observed) -> Result<Plan<Step>, Vec<Reason>> {
        match (self, have) {
            (Self::Local(local), Observed::Local(have)) => {
                local.plan(want, have).map(|plan| of(plan, Step::Local))
            }
            (Self::OpenStack(openstack) | Self::ReadOnly(openstack), Observed::OpenStack(have)) => {
                openstack
                    .plan(want, have)
                    .map(|plan| of(plan, |step| Step::OpenStack(Box::new(step))))
            }
            (Self::ProfileOnly(_), Observed::Nothing) => Ok(Plan::default()),
            _ => Err(vec![of_another()]),
        }
    }

    async fn apply(&self, step: &Step) -> Result<Applied, ProviderError> {
        match (self, step) {
            (Self::Local(local), Step::Local(step)) => local.apply(step).await,
            (Self::OpenStack(openstack), Step::OpenStack(step)) => openstack.apply(step).await,
            (Self::ReadOnly(_), Step::OpenStack(_)) => Ok(Applied::Done),
            _ => Err(ProviderError::lasting(of_another())),
        }
    }

    fn status(&self, want: &Intent, have: &Observed) -> ProviderStatus {
        match (self, have) {
            (Self::Local(local), Observed::Local(have)) => local.status(want, have),
            (Self::OpenStack(openstack) | Self::ReadOnly(openstack), Observed::OpenStack(have)) => {
                openstack.status(want, have)
            }
            (Self::ProfileOnly(_), Observed::Nothing) => ProviderStatus::default(),
            _ => ProviderStatus {
                waiting: vec![of_another()],
                ..ProviderStatus::default()
            },
        }
    }

    fn restore_claims(&self, claims: &[Claim]) {
        match self {
            Self::Local(local) => local.restore_claims(claims),
            Self::OpenStack(openstack) | Self::ReadOnly(openstack) => {
                openstack.restore_claims(claims);
            }
            Self::ProfileOnly(_) => {}
        }
    }

    fn reserve_listeners(&self, claims: &[Claim]) {
        match self {
            Self::Local(local) => local.reserve_listeners(claims),
            Self::OpenStack(_) | Self::ReadOnly(_) | Self::ProfileOnly(_) => {}
        }
    }

    fn on_recorded(&self, service: &Uid) {
        match self {
            Self::Local(local) => local.on_recorded(service),
            Self::OpenStack(openstack) | Self::ReadOnly(openstack) => {
                openstack.on_recorded(service)
            }
            Self::ProfileOnly(_) => {}
        }
    }

    fn on_forgotten(&self, service: &Uid) {
        match self {
            Self::Local(local) => local.on_forgotten(service),
            Self::OpenStack(openstack) | Self::ReadOnly(openstack) => {
                openstack.on_forgotten(service)
            }
            Self::ProfileOnly(_) => {}
        }
    }

    fn set_foreign_claims(&self, claims: &[Claim]) {
        match self {
            Self::Local(local) => local.set_foreign_claims(claims),
            Self::OpenStack(openstack) | Self::ReadOnly(openstack) => {
                openstack.set_foreign_claims(claims)
            }
            Self::ProfileOnly(_) => {}
        }
    }

    fn set_pools_incomplete(&self, incomplete: bool) {
        match self {
            Self::Local(local) => local.set_pools_incomplete(incomplete),
            Self::OpenStack(openstack) | Self::ReadOnly(openstack) => {
                openstack.set_pools_incomplete(incomplete);
            }
            Self::ProfileOnly(_) => {}
        }
    }

    fn invalidate_caches(&self, others_led: bool) {
        match self {
            Self::Local(local) => local.invalidate_caches(others_led),
            Self::OpenStack(openstack) | Self::ReadOnly(openstack) => {
                openstack.invalidate_caches(others_led)
            }
            Self::ProfileOnly(_) => {}
        }
    }

    async fn retire(&self) {
        match self {
            Self::Local(local) => local.retire().await,
            Self::OpenStack(openstack) | Self::ReadOnly(openstack) => openstack.retire().await,
            Self::ProfileOnly(_) => {}
        }
    }

    fn set_pools(&self, pools: &[Arc<PoolRow>]) -> Vec<Reason> {
        match self {
            Self::Local(local) => local.set_pools(pools),
            Self::OpenStack(openstack) | Self::ReadOnly(openstack) => openstack.set_pools(pools),
            Self::ProfileOnly(_) => Vec::new(),
        }
    }

    fn live(&self, service: &Uid) -> Vec<ListenerView> {
        match self {
            Self::Local(local) => local.live(service),
            Self::OpenStack(openstack) | Self::ReadOnly(openstack) => openstack.live(service),
            Self::ProfileOnly(_) => Vec::new(),
        }
    }

    fn pools(&self) -> Vec<PoolView> {
        match self {
            Self::Local(local) => local.pools(),
            Self::OpenStack(openstack) | Self::ReadOnly(openstack) => openstack.pools(),
            Self::ProfileOnly(_) => Vec::new(),
        }
    }

    async fn audit(&self) -> Result<Vec<Uid>, ProviderError> {
        match self {
            Self::Local(local) => local.audit().await,
            Self::OpenStack(openstack) | Self::ReadOnly(openstack) => openstack.audit().await,
            Self::ProfileOnly(_) => Ok(Vec::new()),
        }
    }
}

/// The same plan in steps of this binary.
fn of<S>(plan: Plan<S>, wrap: impl Fn(S) -> Step) -> Plan<Step> {
    let steps = plan.steps.into_iter().map(|planned| Planned {
        step: wrap(planned.step),
        because: planned.because,
        members_only: planned.members_only,
        claims: planned.claims,
    });
    Plan {
        steps: steps.collect(),
    }
}

/// What one platform has seen or planned was shown to another one. The engine never does.
fn of_another() -> Reason {
    Reason::error(
        Code::ProviderFailed,
        "this was planned for another provider",
    )
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(step) => step.fmt(f),
            Self::OpenStack(step) => step.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use landfall_model::ServiceKey;

    use super::*;

    fn removal() -> Intent {
        Intent::removal(ServiceKey::new("default", "web"), Uid::new("1"))
    }

    #[tokio::test]
    async fn what_another_platform_has_seen_is_refused_and_never_taken_for_nothing_to_do() {
        let local = Platform::Local(Arc::new(Local::offline()));
        let want = removal();
        let seen = local.observe(&want).await.unwrap();
        assert!(local.plan(&want, &seen).unwrap().is_empty());
        let refused = local.plan(&want, &Observed::Nothing).unwrap_err();
        assert_eq!(refused[0].code, Code::ProviderFailed);
        let standing = local.status(&want, &Observed::Nothing);
        assert_eq!(standing.waiting.len(), 1);
    }

    #[tokio::test]
    async fn paper_plans_nothing_and_asks_nobody() {
        let paper = Platform::ProfileOnly(Box::default());
        let want = removal();
        let seen = paper.observe(&want).await.unwrap();
        assert!(paper.plan(&want, &seen).unwrap().is_empty());
        assert_eq!(paper.audit().await.unwrap(), []);
    }
}
