//! The seam between the engine and what makes load balancers.
//!
//! `observe` reads, `plan` decides (pure), `apply` carries out one step. The engine owns the order,
//! the retries and the reports; a provider never sleeps to wait for a cloud, it says
//! [`Applied::Busy`].

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::dialect::{NodeSelector, PortOptions, Vocabulary};
use crate::happening::Happening;
use crate::id::Uid;
use crate::intent::{Claim, Intent};
use crate::limits::Limits;
use crate::option::OptionId;
use crate::plan::{Plan, Wait};
use crate::reach::MemberRules;
use crate::reason::{Code, Reason};
use crate::rows::{PoolRow, ResourceKind, ResourceProblem, ResourceRow};
use crate::status::{HELD_ADDRESSES, IngressAddress};
pub use crate::target::Target;
use crate::view::{ListenerView, PoolView};

/// Something that makes load balancers.
pub trait Provider: Send + Sync + 'static {
    /// What it holds for one Service now.
    type Observed: Send + Sync;
    /// One change it can make.
    type Step: ProviderStep;

    /// What it can do, per option.
    fn profile(&self) -> &ProviderProfile;

    /// Reads what is held for a Service.
    fn observe(
        &self,
        want: &Intent,
    ) -> impl Future<Output = Result<Self::Observed, ProviderError>> + Send;

    /// Decides what to change. Pure: equal arguments give equal plans, and a state that already is
    /// as wanted gives an empty one.
    ///
    /// # Errors
    /// Reasons why the spec can't be had. What is held stays as it is.
    fn plan(&self, want: &Intent, have: &Self::Observed) -> Result<Plan<Self::Step>, Vec<Reason>>;

    /// Carries out one step. Idempotent; checks ownership; may be repeated after a crash.
    fn apply(
        &self,
        step: &Self::Step,
    ) -> impl Future<Output = Result<Applied, ProviderError>> + Send;

    /// What can be said of a Service in the observed state.
    fn status(&self, want: &Intent, have: &Self::Observed) -> ProviderStatus;

    /// Called before the first reconcile with every claim that is on record. What a Service holds
    /// is known before anything is given to another. Called later for a Service that comes to this
    /// instance with addresses. Providers whose cloud remembers need nothing here.
    fn restore_claims(&self, _claims: &[Claim]) {}

    /// Called after [`Self::restore_claims`] with those claims whose Services had all of their
    /// listeners open: their places stay theirs until they are reconciled.
    fn reserve_listeners(&self, _claims: &[Claim]) {}

    /// Called when a reconcile ends because of this wait of its plan; returns the delay until the
    /// next. Without I/O. Providers whose plans wait for nothing need nothing here.
    fn on_waiting(&self, _wait: &Wait) -> Duration {
        Duration::from_secs(1)
    }

    /// Called at the end of a reconcile that planned: whether the last plan of the Service was
    /// refused. Never called by a dry run. Without I/O. Providers that find on their own when a
    /// refused spec becomes possible need nothing here.
    fn on_planned(&self, _service: &Uid, _refused: bool) {}

    /// Called when what [`Applied::Addressed`] reported of a Service is on record: its status names
    /// these addresses and no others.
    fn on_recorded(&self, _service: &Uid) {}

    /// Called when no record names anything that this provider held for a Service: its finalizer
    /// and its status are gone, or speak of another instance by now.
    fn on_forgotten(&self, _service: &Uid) {}

    /// Called for each claim of a Service that no instance of this process serves, at the start
    /// and whenever it changes; `None`: it has ended. What is claimed so is given to no other
    /// Service. Nothing of these Services is ever planned: their claims are none of this
    /// provider's. Providers that take no addresses from pools need nothing here.
    fn set_foreign_claim(&self, _claimant: &Uid, _claim: Option<&Claim>) {}

    /// Called when reconciles are made again after a time in which this process might not write:
    /// the outside may not be as it is remembered. `others_led`: another process may have claimed
    /// and released meanwhile, so no claim is believed; those on record follow next, by
    /// [`Self::restore_claims`]. What serves goes on serving.
    fn invalidate_caches(&self, _others_led: bool) {}

    /// Called when another process serves in place of this one. Closes what accepts connections
    /// here, lets those that are open end, and forgets every claim. Providers that carry no traffic
    /// themselves need nothing here.
    fn retire(&self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Called before the first reconcile and whenever the address pools change, with all of them.
    /// Returns what is wrong with them; then the pools from before stay in force. Providers that
    /// take no addresses from pools need nothing here.
    fn set_pools(&self, _pools: &[Arc<PoolRow>]) -> Vec<Reason> {
        Vec::new()
    }

    /// Called before the first pass and whenever they change, before
    /// [`set_pools_incomplete`](Self::set_pools_incomplete): all custom resources of the kinds that
    /// [`ProviderProfile::resources`] names, in that order and then by key. Returns what is wrong
    /// with them.
    fn set_resources(&self, _resources: &[Arc<ResourceRow>]) -> Vec<Reason> {
        Vec::new()
    }

    /// Called before [`set_pools`](Self::set_pools): whether pools may be missing from what follows
    /// there. Then no Service leaves an address because no pool has it. Providers that take no
    /// addresses from pools need nothing here.
    fn set_pools_incomplete(&self, _incomplete: bool) {}

    /// The listeners of a Service as they are at this moment, for the admin endpoint. Without I/O.
    fn live(&self, _service: &Uid) -> Vec<ListenerView> {
        Vec::new()
    }

    /// The address pools and what is left of them, for people.
    fn pools(&self) -> Vec<PoolView> {
        Vec::new()
    }

    /// What is wrong with the custom resources and pools that it was given last, by object: it is
    /// reported on them. Without I/O.
    fn resource_problems(&self) -> Vec<ResourceProblem> {
        Vec::new()
    }

    /// One cheap check of everything: the Services whose state is not what the last plan left.
    fn audit(&self) -> impl Future<Output = Result<Vec<Uid>, ProviderError>> + Send;
}

/// One change that a provider can make.
pub trait ProviderStep: fmt::Display + Serialize + Send + Sync {
    /// Returns the kind of the change, for metrics and logs: one word of a few.
    fn kind(&self) -> &'static str;
}

/// How far a Service is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderStatus {
    /// Addresses it holds, in the order in which they are published.
    pub ingress: Vec<IngressAddress>,
    /// Why traffic does not flow (yet); empty: it flows.
    pub waiting: Vec<Reason>,
    /// What to report beside that.
    pub remarks: Vec<Reason>,
    /// What to report beside that, and as a warning event of this name when it becomes true.
    pub notices: Vec<(&'static str, Reason)>,
    /// Annotations to keep on the Service: [`crate::marks::managed_annotations`].
    pub marks: BTreeMap<String, String>,
    /// Those of them that only save work: a new value is written with the next status, and is no
    /// reason for a write of its own.
    pub deferred_marks: &'static [&'static str],
}

/// What came of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// Done; the next step may follow.
    Done,
    /// Done, and the Service holds these addresses from now on: this is reported before anything
    /// else is done, because the status is the durable record of the claim. Then
    /// [`Provider::on_recorded`] is called.
    Addressed(Published),
    /// The provider works on it. The reconcile ends, and is taken up again when it may have
    /// finished.
    Busy {
        /// When to look again.
        after: Duration,
    },
    /// Nothing was done, because it is not time for it yet. The reconcile ends as with `Busy`.
    Later {
        /// When to look again.
        after: Duration,
    },
}

/// What a status publishes of the addresses that a Service holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// Addresses, or the name that is published in their place.
    pub ingress: Vec<IngressAddress>,
    /// Annotations that go with them.
    pub marks: BTreeMap<String, String>,
}

/// A provider that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct ProviderError {
    /// What is reported.
    pub reason: Reason,
    /// What the engine does about it.
    pub retry: Retry,
    /// How much of the reconcile it spoils.
    pub scope: Scope,
}

/// How much of a reconcile a failed step spoils.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The steps after it rest on it.
    Reconcile,
    /// Only this step; the others are tried.
    Step,
}

/// When to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// With growing pauses.
    Backoff,
    /// Not before this long.
    After(Duration),
    /// At once, from a new observation: another program was faster.
    Now,
    /// Only when a fact changes.
    OnChange,
}

/// A description of a provider: what it reads, supports and leaves to its own API.
#[derive(Clone, Debug)]
pub struct ProviderProfile {
    /// The provider's kind, for messages: `local`.
    pub provider: &'static str,
    /// Whether members are pods or NodePorts, where a Service says nothing of it or may not choose.
    pub target: Target,
    /// The annotations that it reads.
    pub vocabulary: Vocabulary,
    /// Whether it gives addresses out of pools.
    pub takes_pools: bool,
    /// The kinds of custom resources that it reads: the process watches no others.
    pub resources: &'static [ResourceKind],
    /// Whether its steps call nothing outside of this process, so that reconciles wait for nothing
    /// but the record.
    pub immediate: bool,
    /// The annotations in [`ProviderStatus::marks`] that it keeps. Others' stay as they are.
    pub marks: &'static [&'static str],
    /// The reasons of events.
    pub event_reason: fn(Happening) -> Option<&'static str>,
    /// The annotation of another controller whose half-done removals it finishes.
    pub predecessor_mark: Option<&'static str>,
    /// Whether it gives a dual-stack Service an address of the family for which none is requested.
    pub completes_families: bool,
    /// Whether its API validates numbers of listeners and monitors, so that they are passed on
    /// unchanged.
    pub validates_numbers: bool,
    /// Whether its UDP listeners have the timeouts of TCP ones, so that those for all ports apply
    /// to them.
    pub udp_timeouts: bool,
    /// Whether settings without an annotation keep the values that they have there, so that
    /// [`crate::listener::ExplicitFields`] are needed.
    pub keeps_unset: bool,
    /// What it does with each option, stated for all of them.
    pub support: fn(OptionId) -> Support,
    /// What holds for a port of which nothing else is said. `Given::annotation` names the place in
    /// the configuration, in brackets.
    pub defaults: PortOptions,
    /// Which nodes are members of Services that select none themselves.
    pub node_selector: Option<NodeSelector>,
    /// Which addresses may be members.
    pub members: MemberRules,
    /// How much one Service may ask for.
    pub limits: Limits,
}

/// What a provider does with an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Support {
    /// It does what the option says.
    Supported,
    /// It reaches the same in another way.
    Emulated {
        /// How.
        how: &'static str,
    },
    /// It serves the Service without.
    LeftOut {
        /// What happens in its place.
        why: &'static str,
        /// What to do about it.
        remedy: &'static str,
    },
    /// It can't.
    Refused {
        /// Why.
        why: &'static str,
    },
}

// === impl ProviderProfile ===

impl Default for ProviderProfile {
    fn default() -> Self {
        Self {
            provider: "",
            target: Target::default(),
            vocabulary: Vocabulary::default(),
            takes_pools: false,
            resources: &[],
            immediate: false,
            marks: &[],
            event_reason: Happening::reason,
            predecessor_mark: None,
            completes_families: false,
            validates_numbers: false,
            udp_timeouts: false,
            keeps_unset: false,
            support: |_| Support::Supported,
            defaults: PortOptions::default(),
            node_selector: None,
            members: MemberRules::default(),
            limits: Limits::default(),
        }
    }
}

// === impl Published ===

impl Published {
    /// The marks of a status that publishes this: the others stay as they were.
    pub fn marks(&self, before: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut marks = before.clone();
        marks.remove(HELD_ADDRESSES);
        marks.extend(self.marks.clone());
        marks
    }
}

impl From<Vec<IngressAddress>> for Published {
    fn from(ingress: Vec<IngressAddress>) -> Self {
        Self {
            ingress,
            marks: BTreeMap::new(),
        }
    }
}

// === impl ProviderError ===

impl ProviderError {
    /// A failure that passing time may heal.
    pub fn transient(message: impl Into<String>) -> Self {
        Self {
            reason: Reason::error(Code::ProviderFailed, message),
            retry: Retry::Backoff,
            scope: Scope::Reconcile,
        }
    }

    /// A failure that only a change of the facts can heal.
    pub fn lasting(reason: Reason) -> Self {
        Self {
            reason,
            retry: Retry::OnChange,
            scope: Scope::Reconcile,
        }
    }

    /// Another program was faster: observe again.
    pub fn outdated(reason: Reason) -> Self {
        Self {
            reason,
            retry: Retry::Now,
            scope: Scope::Reconcile,
        }
    }
}
