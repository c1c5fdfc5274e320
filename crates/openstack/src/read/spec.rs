//! Reads what a Service has that asks for a load balancer, as far as what it asks for needs.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;

use landfall_model::provider::Target as MemberKind;
use landfall_model::rows::Family;
use landfall_model::{Intent, LoadBalancerSpec, Reason};
use tokio::time::Instant;

use super::ObserveError;
use super::secondary::Place;
use crate::client::ApiVersion;
use crate::features::Features;
use crate::names::Names;
use crate::notices::{self, exposed_by_owner, other_named, refused_algorithm, resting};
use crate::objects::{FloatingIp, Id, Listener, LoadBalancer, Provisioning};
use crate::observed::{Content, Found, Goal, Observed};
use crate::plan;
use crate::provider::OpenStack;
use crate::target::choice::{Choice, choose};
use crate::target::{self, Basis, Notice, Target, pods};

impl OpenStack {
    /// Reads what there is of one load balancer of a Service: the only one, or that of the second
    /// family, which has its `place`.
    pub(super) async fn read_spec(
        &self,
        intent: &Intent,
        spec: &LoadBalancerSpec,
        names: Names,
        version: ApiVersion,
        place: Option<&Place>,
    ) -> Result<Observed, ObserveError> {
        let (mut choice, mut unmet) = choose(intent, spec, &self.settings);
        self.memory().mark_staying(&names.load_balancer);
        let mut requested = spec.address.requested.iter().copied();
        choice.address = requested.find(|it| Family::of(*it) == choice.family());
        let (mut found, assumed) = self.search(intent, &names).await?;
        let balancer = found.balancer().cloned();
        let shares = matches!(found, Found::One { owner: false, .. });
        // It would be reached from outside all the same, by the owner's floating IP.
        let reached =
            choice.internal && shares && self.is_reached(&names, balancer.as_ref()).await?;
        let exposed = reached.then(|| exposed_by_owner(balancer.as_ref()));
        choice.internal &= !reached;
        let provider = balancer
            .as_ref()
            .map_or(&choice.provider, |it| &it.provider);
        let features = Features::new(version, provider);
        let mut notices: Vec<_> = self.troubles(&found).into_iter().collect();
        notices.extend(self.renaming(&names, &found));
        let in_vain = self.named_in_vain(intent, &found);
        notices.extend(other_named(in_vain.as_ref(), &found));
        unmet.extend(
            self.complete_choice(&mut choice, spec, &found, place)
                .await?,
        );
        let reachable = self.with_reachable_members(spec, &choice, features);
        let (spec, left_out) = reachable.await?;
        notices.extend(left_out);
        let certificates = self.read_certificates(intent, Some(&*spec), &names).await;
        let basis = Basis {
            intent,
            spec: &spec,
            names: &names,
            settings: &self.settings,
            features,
            balancer: balancer.as_ref(),
            chosen: !shares && place.is_none() && unmet.is_empty(),
            takes_source_ip: self.memory().caches.ovn_takes_source_ip,
            certificates: &certificates,
        };
        let (mut target, noted) = target::build(&basis, choice, exposed);
        target.reasons.splice(0..0, unmet);
        target.reasons.extend(certificates.problem.clone());
        notices.extend(noted);
        if balancer.is_none() {
            self.second_vip(intent, &spec, &names, &mut target, features)
                .await?;
        }
        let ignored = target::keep_of_vips(&mut target, balancer.as_ref()).into_iter();
        notices.extend(ignored.map(|reason| ("LoadBalancerSourceRangesIgnored", reason)));
        let content = self
            .check_named(intent, balancer.as_ref(), &mut target)
            .await?;
        found.settle(&content);
        self.refuse_unproven(intent, &names, features, &content, &mut found)
            .await?;
        let mut have = self.observed(
            intent,
            names,
            features,
            Goal::Exists(Box::new(target)),
            (found, assumed),
        );
        have.content = content;
        have.certificates = certificates;
        have.notices = notices;
        have.in_vain = in_vain;
        have.notices.extend(refused_algorithm(&have));
        have.notices.extend(self.note_drift(intent, &have));
        self.complete_spec(intent, &spec, &mut have).await?;
        Ok(have)
    }

    /// Completes what is chosen. Returns why that can't be done for a load balancer that is there,
    /// which follows the nodes all the same.
    async fn complete_choice(
        &self,
        choice: &mut Choice,
        spec: &LoadBalancerSpec,
        found: &Found,
        place: Option<&Place>,
    ) -> Result<Vec<Reason>, ObserveError> {
        if let Some(place) = place {
            place.settle(choice, found.balancer());
            return Ok(Vec::new());
        }
        match self.complete(choice, spec, found).await {
            Err(ObserveError::Spec(reasons)) if found.balancer().is_some() => Ok(reasons),
            completed => completed.map(|()| Vec::new()),
        }
    }

    /// Notes what another program has changed, until it is put right; returns what is to be
    /// reported of it.
    fn note_drift(&self, intent: &Intent, have: &Observed) -> Option<Notice> {
        if let Some(lost) = notices::lost(intent, have) {
            return Some(("LoadBalancerLost", lost));
        }
        let balancer = have.found.balancer()?;
        let mut memory = self.memory();
        let known = memory.balancers.get(&balancer.id);
        let in_progress = known.is_some_and(|it| it.changed);
        match plan::drift(intent, have) {
            Some(steps) if steps.is_empty() => {
                memory.drift.remove(&intent.uid);
            }
            Some(steps) if !in_progress => {
                let reason = notices::drifted(&balancer.id, &steps);
                memory.drift.entry(intent.uid.clone()).or_insert(reason);
            }
            Some(_) | None => {}
        }
        let reason = memory.drift.get(&intent.uid)?;
        Some(("LoadBalancerDrift", reason.clone()))
    }

    /// Reads what a load balancer needs beside itself: floating IPs and security groups.
    async fn complete_spec(
        &self,
        intent: &Intent,
        spec: &LoadBalancerSpec,
        have: &mut Observed,
    ) -> Result<(), ObserveError> {
        if matches!(have.found, Found::Nothing) {
            have.resting = self
                .memory()
                .attempts
                .rest(&intent.uid, Instant::now())
                .map(resting);
        }
        self.complete_addressing(intent, spec, have).await?;
        self.note_others(intent, have).await?;
        have.groups = self.group_view(spec, have).await?;
        let managed = have.groups.as_ref().filter(|view| view.managed);
        if let Some(view) = managed {
            let exposed = view.exposed.clone();
            let exposed = exposed.map(|it| ("LoadBalancerSourceRangesIgnored", it));
            have.notices.extend(exposed);
            have.notices.extend(notices::foreign_nodes_notice(spec));
        }
        Ok(())
    }

    /// The spec with those members that load balancers reach, at the addresses at which they do,
    /// and what there is to say of the others.
    async fn with_reachable_members<'a>(
        &self,
        spec: &'a LoadBalancerSpec,
        choice: &Choice,
        features: Features,
    ) -> Result<(Cow<'a, LoadBalancerSpec>, Option<Notice>), ObserveError> {
        if spec.target == MemberKind::Pod {
            let mut spec = spec.clone();
            pods::keep_family(&mut spec, choice.family(), features);
            let mut balancers = self.addresses_of_balancers().await;
            balancers.extend(&spec.address.held);
            let barred = pods::leave_out(&mut spec, &balancers);
            let notice = barred.map(|reason| ("MemberNotAllowed", reason));
            return Ok((Cow::Owned(spec), notice));
        }
        let mut spec = Cow::Borrowed(spec);
        if let Some(inside) = self.inside_member_subnet(&spec, choice).await? {
            spec = Cow::Owned(inside);
        }
        let Some((guarded, reason)) = self.guarded_only(&spec, features.ovn).await? else {
            return Ok((spec, None));
        };
        let notice = ("LoadBalancerNodesUnguarded", reason);
        Ok((Cow::Owned(guarded), Some(notice)))
    }

    /// The addresses at which the project's load balancers are reached, as far as is known.
    async fn addresses_of_balancers(&self) -> BTreeSet<IpAddr> {
        let Some((_, rows)) = self.lists.roster.at_hand().await else {
            return BTreeSet::new();
        };
        let rows = || rows.iter().map(|(row, _)| row);
        let mut addresses: BTreeSet<IpAddr> = rows()
            .flat_map(|row| {
                let further = row.additional_vips.iter().filter_map(|vip| vip.ip_address);
                row.vip_address.into_iter().chain(further)
            })
            .collect();
        let Some((_, floating_ips)) = self.lists.floating_ips.at_hand().await else {
            return addresses;
        };
        let ports: HashSet<&Id> = rows().filter_map(|row| row.vip_port_id.as_ref()).collect();
        let leads = |it: &&FloatingIp| it.port_id.as_ref().is_some_and(|it| ports.contains(it));
        let floating_ips = floating_ips.iter().filter(leads);
        addresses.extend(floating_ips.map(|it| it.floating_ip_address));
        addresses
    }

    /// Reads what is in the load balancer, and whether what the target names is there: the
    /// certificate, and the subnet of the members.
    async fn check_named(
        &self,
        intent: &Intent,
        balancer: Option<&LoadBalancer>,
        target: &mut Target,
    ) -> Result<Content, ObserveError> {
        let serves_tls = target.listeners.iter().any(|it| it.tls.is_some());
        let Some(balancer) = balancer else {
            self.check_named_member_subnet(intent, target).await?;
            if serves_tls {
                self.check_certificate(target).await?;
            }
            return Ok(Content::Unread);
        };
        if balancer.provisioning_status != Provisioning::Active {
            return Ok(Content::Unread);
        }
        let content = self.content(intent, balancer, &target.listeners).await?;
        let uses = |it: &Listener| it.default_tls_container_ref == target.choice.tls;
        let same = match &content {
            Content::Graph(graph) => graph.listeners.iter().any(uses),
            Content::AsWanted | Content::Unread => true,
        };
        if serves_tls && !same {
            self.check_certificate(target).await?;
        }
        self.check_member_subnet(intent, target, &content).await?;
        Ok(content)
    }
}
