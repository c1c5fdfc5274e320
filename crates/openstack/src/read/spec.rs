//! Reads what a Service has that asks for a load balancer, as far as what it asks for needs.

use std::borrow::Cow;

use landfall_model::rows::Family;
use landfall_model::{Intent, LoadBalancerSpec};
use tokio::time::Instant;

use super::ObserveError;
use super::secondary::Place;
use crate::client::ApiVersion;
use crate::features::Features;
use crate::names::Names;
use crate::notices::{self, exposed_by_owner, other_named, refused_algorithm, resting};
use crate::objects::{Listener, LoadBalancer, Provisioning};
use crate::observed::{Content, Found, Goal, Observed};
use crate::provider::OpenStack;
use crate::target::choice::{Choice, choose};
use crate::target::{self, Basis, Notice, Target};

impl OpenStack {
    /// Reads what there is of one load balancer of a Service: the only one, or that of the second
    /// family, which has its `place`.
    pub(super) async fn look_at_spec(
        &self,
        intent: &Intent,
        spec: &LoadBalancerSpec,
        names: Names,
        version: ApiVersion,
        place: Option<&Place>,
    ) -> Result<Observed, ObserveError> {
        let mut choice = choose(intent, spec, &self.settings)?;
        self.memory().stays(&names.load_balancer);
        let mut requested = spec.address.requested.iter().copied();
        choice.address = requested.find(|it| Family::of(*it) == choice.family());
        let (mut found, assumed) = self.search(intent, &names).await?;
        let balancer = found.balancer().cloned();
        // It would be reached from outside all the same, by the owner's floating IP.
        let shares = matches!(found, Found::One { owner: false, .. });
        let exposed = (choice.internal && shares).then(|| exposed_by_owner(balancer.as_ref()));
        choice.internal &= !shares;
        let provider = balancer
            .as_ref()
            .map_or(&choice.provider, |it| &it.provider);
        let features = Features::new(version, provider);
        let mut notices: Vec<_> = self.troubles(&found).into_iter().collect();
        notices.extend(self.renaming(&names, &found));
        let in_vain = self.named_in_vain(intent, &found);
        notices.extend(other_named(in_vain.as_ref(), &found));
        match place {
            Some(place) => place.settle(&mut choice, balancer.as_ref()),
            None => self.complete(&mut choice, spec, &found).await?,
        }
        let (spec, unguarded) = self.with_reachable_members(spec, &choice, features).await?;
        notices.extend(unguarded);
        let basis = Basis {
            intent,
            spec: &spec,
            names: &names,
            settings: &self.settings,
            features,
            balancer: balancer.as_ref(),
            chosen: !shares && place.is_none(),
        };
        let (mut target, told) = target::build(&basis, choice, exposed);
        notices.extend(told);
        if balancer.is_none() {
            self.second_vip(intent, &spec, &names, &mut target, features)
                .await?;
        }
        let ignored = target::keep_of_vips(&mut target, balancer.as_ref()).into_iter();
        notices.extend(ignored.map(|reason| ("LoadBalancerSourceRangesIgnored", reason)));
        let content = self
            .judge_named(intent, balancer.as_ref(), &mut target)
            .await?;
        if matches!(
            balancer.as_ref().map(|it| it.provisioning_status),
            Some(Provisioning::Active)
        ) {
            found.settle(&content);
        }
        let mut have = self.observed(
            intent,
            names,
            features,
            Goal::Exists(Box::new(target)),
            (found, assumed),
        );
        have.content = content;
        have.notices = notices;
        have.in_vain = in_vain;
        have.notices.extend(refused_algorithm(&have));
        if matches!(have.found, Found::Nothing) {
            have.resting = self.memory().rest(&intent.uid, Instant::now()).map(resting);
        }
        self.complete_addressing(intent, &spec, &mut have).await?;
        self.heed_others(intent, &mut have).await?;
        have.groups = self.group_view(&spec, &have).await?;
        if have.groups.as_ref().is_some_and(|view| view.managed) {
            have.notices.extend(notices::strangers_notice(&spec));
        }
        Ok(have)
    }

    /// The spec with those members that load balancers reach, at the addresses at which they do, and
    /// what there is to say of the others.
    async fn with_reachable_members<'a>(
        &self,
        spec: &'a LoadBalancerSpec,
        choice: &Choice,
        features: Features,
    ) -> Result<(Cow<'a, LoadBalancerSpec>, Option<Notice>), ObserveError> {
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

    /// Reads what is in the load balancer, and whether what the target names is there: the
    /// certificate, and the subnet of the members.
    async fn judge_named(
        &self,
        intent: &Intent,
        balancer: Option<&LoadBalancer>,
        target: &mut Target,
    ) -> Result<Content, ObserveError> {
        let serves_tls = target.listeners.iter().any(|it| it.tls.is_some());
        let Some(balancer) = balancer else {
            self.judge_named_member_subnet(intent, target).await?;
            if serves_tls {
                self.judge_certificate(target).await?;
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
            self.judge_certificate(target).await?;
        }
        self.judge_member_subnet(intent, target, &content).await?;
        Ok(content)
    }
}
