//! Which load balancer is the Service's, and what is wrong with it as a whole.

#![expect(
    clippy::similar_names,
    reason = "names of a Service, and what a Service names, are the words here"
)]

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use landfall_model::dialect::Given;
use landfall_model::{Code, Intent, Reason};
use tokio::time::Instant;

use super::ObserveError;
use crate::client::{ApiError, ErrorKind};
use crate::features::Features;
use crate::names::Names;
use crate::notices::{TIMEOUT, in_error, stuck};
use crate::objects::{Id, LoadBalancer, Provisioning};
use crate::observed::{Content, Found};
use crate::ownership::find::{
    SearchedService, find, marked, names_another, serving_all_the_same, would_be_ours,
};
use crate::ownership::floating_ips::FloatingIpQuery;
use crate::ownership::proof::{
    by_name_alone, lacking, noted_addresses, published, unproven, was_served_elsewhere,
};
use crate::provider::OpenStack;
use crate::record::Record;

/// A roster of this age is good enough for a Service of which nothing is being changed. A
/// write that rests on it is corrected by Octavia.
const FRESH: Duration = Duration::from_secs(10);

/// What is known of a Service's load balancer before the cloud is read.
struct Remembered {
    /// Which one it was.
    id: Option<Id>,
    /// A roster from before this is too old.
    since: Instant,
    /// The load balancer, where it is taken to be done with our last change.
    assumed: Option<Found>,
}

impl OpenStack {
    /// The Service's load balancer; and whether it is only taken to be done with the last change.
    pub(super) async fn search(
        &self,
        intent: &Intent,
        names: &Names,
    ) -> Result<(Found, bool), ObserveError> {
        let now = Instant::now();
        let mut seeker = SearchedService {
            intent,
            names,
            cluster: &self.settings.cluster,
            publishing: None,
            marks: Features::new(self.cloud.versions().await?, "").tags(),
        };
        let given = intent.extensions.openstack.load_balancer.as_ref();
        let given = given.map(|given| Id::new(&given.value));
        let Remembered {
            id: remembered,
            since,
            assumed,
        } = self.remembered(seeker, given.as_ref(), now);
        if let Some(found) = assumed {
            return Ok((found, true));
        }
        let rows = self.rows_with(remembered.as_ref(), since).await?;
        let roster: Vec<LoadBalancer> = rows.iter().map(|(row, _)| row.clone()).collect();
        let seen_at = |id: &Id| {
            let mut rows = rows.iter();
            rows.find(|(row, _)| row.id == *id)
                .map_or(since, |(_, at)| *at)
        };
        let mut serving = serving_all_the_same(seeker, &roster);
        if serving.is_none() {
            serving = self.marked(seeker, remembered.as_ref(), &roster).await?;
        }
        let given = serving.map(|it| it.id.clone()).or(given);
        let row = match &given {
            Some(id) => self.row_of(id, &roster).await?,
            None => None,
        };
        let mut named = given.as_ref().map(|id| (id, row.as_deref()));
        let candidates = match &named {
            None => roster.iter().collect(),
            Some((_, row)) => Vec::from_iter(*row),
        };
        let published = self
            .renamed_with_address(seeker, candidates, &roster)
            .await?;
        seeker.publishing = published.as_ref().map(|row| &row.id);
        if let Some(row) = &published {
            let mut memory = self.memory();
            memory
                .balancers
                .entry(row.id.clone())
                .or_default()
                .publishes = true;
        }
        if given.is_none() {
            named = published.as_ref().map(|row| (&row.id, Some(row)));
        }
        let traces = match &named {
            Some((_, None)) => {
                let view = self.floating_ips(&FloatingIpQuery::of(names)).await?;
                view.spare.is_some()
            }
            _ => false,
        };
        let mut found = find(seeker, named, traces, &roster);
        if let Found::One {
            balancer, surplus, ..
        } = &mut found
        {
            self.spare_used(names, surplus, &roster).await?;
            let mut memory = self.memory();
            memory.of.insert(intent.uid.clone(), balancer.id.clone());
            memory.seen(balancer, seen_at(&balancer.id));
        }
        Ok((found, false))
    }

    /// Returns what is known of a Service's load balancer before the cloud is read. `given` is the
    /// id that the Service names.
    fn remembered(
        &self,
        seeker: SearchedService<'_>,
        given: Option<&Id>,
        now: Instant,
    ) -> Remembered {
        let memory = self.memory();
        let ago = |age: Duration| now.checked_sub(age).unwrap_or(now);
        let service = &seeker.intent.uid;
        let id = memory.of.get(service);
        let known = id.and_then(|id| memory.balancers.get(id));
        let asked = memory.requested.get(service).copied();
        let mut remembered = Remembered {
            id: id.cloned(),
            since: asked.map_or(ago(FRESH), |at| at.max(ago(FRESH))),
            assumed: None,
        };
        let Some(known) = known else {
            return remembered;
        };
        let recent = || ago(self.poll_interval_with(&memory));
        let Some(changed) = known.phase.since() else {
            if known.row.provisioning_status.is_pending() {
                remembered.since = remembered.since.max(recent());
            }
            return remembered;
        };
        if memory.is_assumed_done(known, now) {
            let mut row = known.row.clone();
            row.provisioning_status = Provisioning::Active;
            let row = [row];
            // Its name need not lead to it: it may be about to get the cluster's new one.
            let named = given.or(id).map(|id| (id, row.first()));
            let seeker = SearchedService {
                publishing: id.filter(|_| known.publishes),
                ..seeker
            };
            remembered.assumed = Some(find(seeker, named, true, &row));
        }
        remembered.since = remembered.since.max(changed).max(recent());
        remembered
    }

    /// Takes what others use out of load balancers that are to go. A tag of the load balancer can
    /// be lost; those of its listeners are still there.
    async fn spare_used(
        &self,
        names: &Names,
        surplus: &mut Vec<Id>,
        roster: &[LoadBalancer],
    ) -> Result<(), ApiError> {
        for id in std::mem::take(surplus) {
            let row = roster.iter().find(|it| it.id == id);
            let name = row.map_or(&*names.load_balancer, |it| &it.name);
            let listeners = self.cloud.listeners(Some(&id)).await?;
            let mut tags = listeners
                .iter()
                .flat_map(|it| names.of_others(name, &it.tags));
            if tags.next().is_none() {
                surplus.push(id);
            }
        }
        Ok(())
    }

    /// The load balancer that serves the Service by the marks on it, where the record of it is lost
    /// and the Service names another one, or none.
    async fn marked<'a>(
        &self,
        seeker: SearchedService<'_>,
        remembered: Option<&Id>,
        roster: &'a [LoadBalancer],
    ) -> Result<Option<&'a LoadBalancer>, ApiError> {
        let SearchedService { intent, names, .. } = seeker;
        let marked = marked(seeker, remembered, roster);
        if marked.is_empty() {
            return Ok(None);
        }
        let given = intent.extensions.openstack.load_balancer.as_ref();
        // An id that is nowhere is that of one that is gone, in whose place its own was made.
        let is_there = match given.map(|given| Id::new(&given.value)) {
            Some(id) => self.row_of(&id, roster).await?.is_some(),
            None => false,
        };
        let spec = intent.load_balancer.as_ref();
        let mut held = spec.map_or_else(Vec::new, |spec| spec.address.held.clone());
        let noted = intent.extensions.openstack.published.as_ref();
        held.extend(noted.and_then(|given| given.value.parse::<IpAddr>().ok()));
        for it in marked.iter().filter(|it| is_there || !it.owner) {
            // An earlier Service of the name, or another cluster's, may have left the tag.
            if it.certain || self.has_address(names, it.balancer, &held).await? {
                let mut memory = self.memory();
                match given {
                    Some(given) => memory
                        .in_vain
                        .insert(intent.uid.clone(), given.value.clone()),
                    None => memory.in_vain.remove(&intent.uid),
                };
                return Ok(Some(it.balancer));
            }
        }
        Ok(None)
    }

    /// What the cloud says of a load balancer, which the roster need not have.
    async fn row_of<'a>(
        &self,
        id: &Id,
        roster: &'a [LoadBalancer],
    ) -> Result<Option<Cow<'a, LoadBalancer>>, ApiError> {
        if let Some(row) = roster.iter().find(|it| it.id == *id) {
            return Ok(Some(Cow::Borrowed(row)));
        }
        if !id.is_uuid() {
            return Ok(None);
        }
        match self.cloud.load_balancer(id).await {
            // Another project's is not one that a Service here could use, or would have to leave.
            Err(error) if error.kind == ErrorKind::Forbidden => Ok(None),
            found => Ok(found?.map(Cow::Owned)),
        }
    }

    /// What the Service names in place of the load balancer that serves it, and that it keeps.
    pub(super) fn named_in_vain(&self, intent: &Intent, found: &Found) -> Option<Given<String>> {
        let Found::One { balancer, .. } = found else {
            return None;
        };
        let given = intent.extensions.openstack.load_balancer.as_ref()?;
        let marked = || {
            let memory = self.memory();
            let in_vain = memory.in_vain.get(&intent.uid);
            in_vain == Some(&given.value) && given.value != balancer.id.as_str()
        };
        (names_another(intent, &balancer.id) || marked()).then(|| given.clone())
    }

    /// Refuses a load balancer that nothing but its name makes the Service's.
    pub(super) async fn refuse_unproven(
        &self,
        intent: &Intent,
        names: &Names,
        features: Features,
        content: &Content,
        found: &mut Found,
    ) -> Result<(), ObserveError> {
        let Some(balancer) = by_name_alone(intent, names, features, found) else {
            return Ok(());
        };
        if self.is_proven(intent, names, balancer).await? {
            return Ok(());
        }
        let read;
        let content = match content {
            // Members show it also while Octavia is at work, or has given up.
            Content::Unread => {
                read = self.inside_of(balancer).await?;
                &read
            }
            content => content,
        };
        let id = balancer.id.clone();
        let lacking = lacking(intent, balancer, content);
        let mut memory = self.memory();
        if let Some(reason) = lacking {
            *found = Found::Refused(reason);
            // It does not serve the Service: another one that is named later does.
            memory.of.remove(&intent.uid);
        } else {
            memory.proven.insert(intent.uid.clone(), id);
        }
        Ok(())
    }

    /// Lets be a load balancer that nothing but its name makes the Service's, which is going.
    /// Returns what is said of it.
    pub(super) async fn leave_unproven(
        &self,
        intent: &Intent,
        names: &Names,
        features: Features,
        found: &mut Found,
    ) -> Result<Option<Reason>, ApiError> {
        let Some(balancer) = by_name_alone(intent, names, features, found) else {
            return Ok(None);
        };
        if self.is_proven(intent, names, balancer).await? {
            return Ok(None);
        }
        let reason = unproven(balancer, "and the Service was never served by it");
        *found = Found::Nothing;
        Ok(Some(reason))
    }

    /// Whether it is known already that a load balancer is the Service's, or the address shows it
    /// that the Service publishes.
    async fn is_proven(
        &self,
        intent: &Intent,
        names: &Names,
        balancer: &LoadBalancer,
    ) -> Result<bool, ApiError> {
        if self.memory().proven.get(&intent.uid) == Some(&balancer.id) {
            return Ok(true);
        }
        let elsewhere = was_served_elsewhere(intent, balancer);
        Ok(!elsewhere
            && self
                .has_address(names, balancer, &published(intent))
                .await?)
    }

    /// Reads what is in a load balancer, whatever Octavia does with it.
    async fn inside_of(&self, balancer: &LoadBalancer) -> Result<Content, ObserveError> {
        let mut graph = self.children(balancer).await?;
        for pool in &graph.pools {
            let members = self.cloud.members(&pool.id).await?;
            graph.members.insert(pool.id.clone(), members);
        }
        Ok(Content::Graph(Arc::new(graph)))
    }

    /// Whether one of these addresses leads to a load balancer.
    async fn has_address(
        &self,
        names: &Names,
        balancer: &LoadBalancer,
        held: &[IpAddr],
    ) -> Result<bool, ApiError> {
        if held.is_empty() {
            return Ok(false);
        }
        let sought = FloatingIpQuery {
            port: balancer.vip_port_id.as_ref(),
            held,
            ..FloatingIpQuery::of(names)
        };
        let view = self.floating_ips(&sought).await?;
        let floating = view.attached.map(|it| it.floating_ip_address);
        let mut addresses = balancer.vip_address.iter().chain(&floating);
        Ok(addresses.any(|address| held.contains(address)))
    }

    /// The load balancer that has the Service's name but for the cluster's, and the address that
    /// the Service publishes: it was made before the cluster got its name, and nothing else leads
    /// to it.
    async fn renamed_with_address(
        &self,
        seeker: SearchedService<'_>,
        candidates: Vec<&LoadBalancer>,
        roster: &[LoadBalancer],
    ) -> Result<Option<LoadBalancer>, ApiError> {
        let SearchedService {
            intent,
            names,
            cluster,
            ..
        } = seeker;
        let held = match &intent.load_balancer {
            Some(spec) => spec.address.held.clone(),
            // It published its address until a moment ago.
            None => noted_addresses(intent),
        };
        let held = held.as_slice();
        // A Service that shares a load balancer publishes its address, too.
        let record = Record::of(intent).filter(|it| it.given);
        let shares = |row: &LoadBalancer| {
            let recorded = record
                .as_ref()
                .is_some_and(|it| it.balancer == row.id.as_str());
            recorded || row.tags.contains(&names.load_balancer)
        };
        if held.is_empty() || roster.iter().any(|it| it.name == names.load_balancer) {
            return Ok(None);
        }
        // Where it is known which one served, another of such a name is another cluster's, be it
        // that the address leads there by now.
        let candidates = candidates
            .into_iter()
            .filter(|it| would_be_ours(names, cluster, it) && !it.provisioning_status.is_going())
            .filter(|it| !names.of_another_cluster(&it.tags))
            .filter(|it| !was_served_elsewhere(intent, it))
            .filter(|it| !shares(it));
        for row in candidates {
            if self.has_address(names, row, held).await? {
                return Ok(Some(row.clone()));
            }
        }
        Ok(None)
    }

    /// That the load balancer is about to get the cluster's new name.
    pub(super) fn renaming(&self, names: &Names, found: &Found) -> Option<(&'static str, Reason)> {
        let Found::One {
            balancer,
            owner: true,
            ..
        } = found
        else {
            return None;
        };
        would_be_ours(names, &self.settings.cluster, balancer).then(|| {
            let message = format!(
                "load balancer {} is renamed from {} to {}",
                balancer.id, balancer.name, names.load_balancer
            );
            (
                "LoadBalancerRename",
                Reason::info(Code::Progressing, message),
            )
        })
    }

    /// What is wrong with the load balancer itself.
    pub(super) fn troubles(&self, found: &Found) -> Option<(&'static str, Reason)> {
        let Found::One {
            balancer, owner, ..
        } = found
        else {
            return None;
        };
        let reason = match balancer.provisioning_status {
            Provisioning::Error => in_error(&balancer.id, *owner),
            status if status.is_pending() => {
                let waited = self.memory().pending_for(&balancer.id, Instant::now());
                if waited < TIMEOUT {
                    return None;
                }
                stuck(&balancer.id, status)
            }
            _ => return None,
        };
        Some(("SyncLoadBalancerFailed", reason))
    }
}
