//! Reading the cloud: as little as will do, and lists before single objects.

mod beside;
mod content;
mod derived;
mod fixed;
mod notices;
mod others;
mod search;
mod subnets;

use std::collections::HashSet;
use std::net::IpAddr;

use landfall_model::provider::ProviderError;
use landfall_model::rows::Family;
use landfall_model::status::LOAD_BALANCER_ID;
use landfall_model::{Code, Intent, LoadBalancerSpec, Reason};
use tokio::time::Instant;

pub(crate) use search::in_error;
pub(crate) use subnets::server_of;

use crate::choice::{Choice, choose};
use crate::client::ApiError;
use crate::errors::failure;
use crate::features::Features;
use crate::names::{Names, SERVICE_PREFIX, floating_ip_beside};
use crate::network::Sought;
use crate::objects::{Listener, LoadBalancer, Provisioning};
use crate::memory::afterwards;
use crate::observed::{Addressing, Attempts, Content, Found, Goal, Observed, Target};
use crate::plan;
use crate::provider::OpenStack;
use crate::record::Record;
use crate::settings::OVN;
use crate::wanted;
use beside::Place;
use notices::{
    exposed_by_owner, no_nodes_notice, notices_of, other_named, refused_algorithm, resting,
    strangers_notice, unknown_method,
};

impl OpenStack {
    pub(crate) async fn look(&self, intent: &Intent) -> Result<Observed, ProviderError> {
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
        let looked = match &intent.load_balancer {
            None => self.look_before_removal(intent, names, version).await,
            Some(spec) => self.resolve_spec(intent, spec, names, version, None).await,
        };
        let whole = match looked {
            Ok(have) => Box::pin(self.look_beside(intent, have, version)).await,
            Err(trouble) => Err(trouble),
        };
        whole.map_err(|trouble| match trouble {
            ObserveError::Cloud(error) => failure(&error),
            ObserveError::Spec(reasons) => lasting(reasons),
        })
    }

    async fn look_before_removal(
        &self,
        intent: &Intent,
        names: Names,
        version: crate::client::ApiVersion,
    ) -> Result<Observed, ObserveError> {
        let (found, assumed) = self.search(intent, &names).await?;
        let keep = intent
            .cloud
            .keep_floating_ip
            .as_ref()
            .is_some_and(|given| given.value);
        let mut have = Observed {
            features: Features::new(version, ""),
            goal: Goal::Gone {
                keep_floating_ip: keep,
            },
            content: Content::Unread,
            addressing: Addressing::default(),
            groups: None,
            assumed,
            body_limit: self.cloud.body_limit(),
            serial: self.settings.conf.provider_requires_serial_api_calls,
            notices: self.troubles(&found).into_iter().collect(),
            in_vain: None,
            beside: Vec::new(),
            lacking: None,
            resting: None,
            leaving: self.memory().leaves(&intent.uid, &names.load_balancer),
            others: Vec::new(),
            listener_tags: Vec::new(),
            attempts: self.attempts(intent, &found),
            found,
            names,
        };
        let mut port = None;
        if let Found::One {
            balancer, owner, ..
        } = &have.found
        {
            have.features = Features::new(version, &balancer.provider);
            port.clone_from(&balancer.vip_port_id);
            let active = balancer.provisioning_status == Provisioning::Active;
            let error = balancer.provisioning_status == Provisioning::Error;
            let mut whole = self.settings.conf.cascade_delete && only_of(&have.names, balancer);
            if error || (active && whole) {
                // What goes with everything in it is looked into first: tags of the load balancer
                // can be lost.
                let listeners = self.cloud.listeners(Some(&balancer.id)).await?;
                let tags = listeners.into_iter().flat_map(|it| it.tags);
                have.listener_tags = tags.collect();
                whole &= !of_others(&have.names, &have.listener_tags);
            }
            if active && !whole {
                let mut graph = self.graph(balancer, intent, None).await?;
                have.content = graph.map_or(Content::Unread, Content::Graph);
                // What could not be deleted is seen before the Service is gone, and nobody comes
                // back for it.
                let done = plan::has_left(&have, balancer, *owner) && !have.assumed;
                if done && self.memory().unread(&balancer.id) {
                    graph = self.graph(balancer, intent, None).await?;
                    have.content = graph.map_or(Content::Unread, Content::Graph);
                }
                have.found.settle(&have.content);
            }
        }
        // The last to leave the load balancer of a Service that has gone gives back its floating
        // IP, too.
        let of_owner = match &have.found {
            Found::One { balancer, .. } => floating_ip_beside(&balancer.description),
            _ => None,
        };
        let published = search::published(intent).filter(|_| owned(intent));
        let held: Vec<IpAddr> = published.into_iter().collect();
        have.addressing = self
            .floating_ips(&Sought {
                of_owner: of_owner.as_deref(),
                port: port.as_ref(),
                held: &held,
                since: intent.created,
                ..Sought::of(&have.names)
            })
            .await?;
        have.groups = self.groups_before_removal(&have).await?;
        Ok(have)
    }

    async fn resolve_spec(
        &self,
        intent: &Intent,
        spec: &LoadBalancerSpec,
        names: Names,
        version: crate::client::ApiVersion,
        place: Option<&Place>,
    ) -> Result<Observed, ObserveError> {
        let mut choice = choose(intent, spec, &self.settings)?;
        self.memory().stays(&names.load_balancer);
        let mut requested = spec.address.requested.iter().copied();
        choice.address = requested.find(|it| Family::of(*it) == choice.family());
        let (mut found, assumed) = self.search(intent, &names).await?;
        let balancer = match &found {
            Found::One { balancer, .. } => Some(balancer.clone()),
            _ => None,
        };
        // It would be reached from outside all the same, by the owner's floating IP.
        let shares = matches!(found, Found::One { owner: false, .. });
        let exposed = (choice.internal && shares).then(|| exposed_by_owner(balancer.as_deref()));
        choice.internal &= !shares;
        let provider = balancer
            .as_ref()
            .map_or_else(|| choice.provider.clone(), |it| it.provider.clone());
        let features = Features::new(version, &provider);
        let mut notices: Vec<_> = self.troubles(&found).into_iter().collect();
        notices.extend(self.renaming(&names, &found));
        let in_vain = self.named_in_vain(intent, &found);
        notices.extend(other_named(in_vain.as_ref(), &found));
        match place {
            Some(place) => place.settle(&mut choice, balancer.as_deref()),
            None => self.complete(&mut choice, spec, &found).await?,
        }
        let inside = self.inside_member_subnet(spec, &choice).await?;
        let spec = inside.as_ref().unwrap_or(spec);
        let guarded = self.guarded_only(spec, features.ovn).await?;
        let (guarded, unguarded) = guarded.unzip();
        let spec = guarded.as_ref().unwrap_or(spec);
        notices.extend(unguarded.map(|reason| ("LoadBalancerNodesUnguarded", reason)));
        let (listeners, mut reasons) = wanted::listeners(
            intent,
            spec,
            &choice,
            &names,
            &self.settings,
            features,
            choice.member_subnet.as_ref(),
        );
        // The place of a second load balancer is nobody's choice.
        if let (Found::One { owner: true, .. }, Some(balancer), None) = (&found, &balancer, place) {
            reasons.extend(fixed::fixed(intent, spec, &choice, balancer));
        }
        reasons.extend(exposed);
        notices_of(&mut reasons, &mut notices);
        notices.extend(intent.remarks.iter().filter_map(unknown_method));
        if choice.zone.is_some() && !features.zones() && balancer.is_none() {
            notices.push((
                "LoadBalancerAvailabilityZonesIgnored",
                Reason::warning(
                    Code::OptionNotSupported,
                    format!(
                        "Octavia {version} or its provider {provider} has no availability zones"
                    ),
                ),
            ));
        }
        if !spec.has_nodes {
            notices.push(("UnAvailableLoadBalancer", no_nodes_notice()));
        }
        // Where nobody names a subnet, it takes a node to tell which.
        let has_place = !choice.autodetect || choice.vip_subnet.is_some() || choice.port.is_some();
        let mut target = Target {
            choice,
            listeners,
            reasons,
            additional: Vec::new(),
            has_nodes: spec.has_nodes && has_place,
        };
        if balancer.is_none() {
            self.second_vip(intent, spec, &names, &mut target, features)
                .await?;
        }
        let ignored = wanted::keep_of_vips(&mut target, balancer.as_deref());
        notices.extend(
            ignored
                .into_iter()
                .map(|reason| ("LoadBalancerSourceRangesIgnored", reason)),
        );
        let serves_tls = target.listeners.iter().any(|it| it.tls.is_some());
        let mut content = Content::Unread;
        match &balancer {
            None => {
                self.judge_named_member_subnet(intent, &mut target).await?;
                if serves_tls {
                    self.judge_certificate(&mut target).await?;
                }
            }
            Some(balancer) if balancer.provisioning_status == Provisioning::Active => {
                content = self.content(intent, balancer, &target.listeners).await?;
                found.settle(&content);
                let uses = |it: &Listener| it.default_tls_container_ref == target.choice.tls;
                let same = match &content {
                    Content::Graph(graph) => graph.listeners.iter().any(uses),
                    Content::AsWanted | Content::Unread => true,
                };
                if serves_tls && !same {
                    self.judge_certificate(&mut target).await?;
                }
                self.judge_member_subnet(intent, &mut target, &content)
                    .await?;
            }
            Some(_) => {}
        }
        let attempts = self.attempts(intent, &found);
        notices.extend(refused_algorithm(&attempts, &found, &target));
        let mut have = Observed {
            names,
            features,
            found,
            content,
            addressing: Addressing::default(),
            groups: None,
            assumed,
            body_limit: self.cloud.body_limit(),
            serial: self.settings.conf.provider_requires_serial_api_calls,
            notices,
            goal: Goal::Exists(Box::new(target)),
            in_vain,
            beside: Vec::new(),
            lacking: None,
            resting: None,
            leaving: HashSet::new(),
            others: Vec::new(),
            listener_tags: Vec::new(),
            attempts,
        };
        if matches!(have.found, Found::Nothing) {
            have.resting = self.memory().rest(&intent.uid, Instant::now()).map(resting);
        }
        self.complete_addressing(intent, spec, &mut have).await?;
        self.heed_others(intent, &mut have).await?;
        have.groups = self.group_view(spec, &have).await?;
        if have.groups.as_ref().is_some_and(|view| view.managed) {
            have.notices.extend(strangers_notice(spec));
        }
        Ok(have)
    }
}

impl OpenStack {
    /// What became of earlier attempts for a Service. As long as a load balancer may yet come of a
    /// request, the next look reads the cloud.
    fn attempts(&self, intent: &Intent, found: &Found) -> Attempts {
        let now = Instant::now();
        let mut memory = self.memory();
        let unanswered = memory.is_unanswered(&intent.uid, now);
        let create_is_unanswered = unanswered && matches!(found, Found::Nothing);
        if create_is_unanswered {
            memory.attempts.insert(intent.uid.clone(), afterwards());
        } else {
            memory.expected.remove(&intent.uid);
        }
        let attempts = match found {
            Found::One { balancer, .. } => memory.attempts_at(&balancer.id, now),
            Found::Nothing | Found::Refused(_) => Attempts::default(),
        };
        Attempts {
            create_is_unanswered,
            ..attempts
        }
    }
}

/// What went wrong while looking.
pub(crate) enum ObserveError {
    /// The cloud could not be asked, or refused.
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

/// The worst of several reasons; what they have in common is that only a change of the facts mends
/// them.
fn lasting(reasons: Vec<Reason>) -> ProviderError {
    let worst = reasons.into_iter().max_by_key(|reason| reason.severity);
    let reason = worst.unwrap_or_else(|| Reason::error(Code::ProviderFailed, "no cause was given"));
    ProviderError {
        retry: landfall_model::Retry::Backoff,
        ..ProviderError::lasting(reason)
    }
}

fn only_of(names: &Names, balancer: &LoadBalancer) -> bool {
    balancer.name.starts_with(SERVICE_PREFIX) && !of_others(names, &balancer.tags)
}

/// Whether one of these tags names another Service.
fn of_others(names: &Names, tags: &[String]) -> bool {
    let mut tags = tags.iter();
    tags.any(|tag| tag.starts_with(SERVICE_PREFIX) && *tag != names.load_balancer)
}

/// Whether the driver is OVN's.
pub(crate) fn is_ovn(balancer: Option<&LoadBalancer>, choice: &Choice) -> bool {
    balancer.map_or(choice.is_ovn(), |it| it.provider == OVN)
}

/// Whether what the Service publishes is its own, rather than that of a load balancer that it
/// shares.
pub(crate) fn owned(intent: &Intent) -> bool {
    Record::of(intent).is_some_and(|record| !record.given)
}

/// Whether we wrote the id that the Service names.
pub(crate) fn is_given(intent: &Intent) -> bool {
    intent.cloud.load_balancer.is_some() && !intent.marks.contains_key(LOAD_BALANCER_ID)
}
