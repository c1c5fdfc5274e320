//! Reading the cloud: as little as will do, and lists before single objects.

#![expect(
    clippy::similar_names,
    reason = "names of a Service, and what a Service names, are the words here"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use landfall_model::provider::ProviderError;
use landfall_model::rows::{Family, FamilyPolicy};
use landfall_model::status::LOAD_BALANCER_ID;
use landfall_model::{Code, Intent, LoadBalancerWish, Reason, Severity};
use tokio::time::Instant;

use crate::choice::{Choice, choose};
use crate::client::ApiError;
use crate::errors::failure;
use crate::features::Features;
use crate::find::{find, would_be_ours};
use crate::graph::Graph;
use crate::members::as_members;
use crate::memory::Sketch;
use crate::names::Names;
use crate::objects::{Id, Listener, LoadBalancer, Member, Pool, Provisioning};
use crate::observed::{Addressing, Content, Found, Goal, Observed, Target};
use crate::provider::OpenStack;
use crate::record::Record;
use crate::settings::OVN;
use crate::wanted::{self, WantedListener};

/// A roster of this age is good enough for a Service of which nothing is being changed. Whoever writes on the
/// strength of it is corrected by Octavia.
const FRESH: Duration = Duration::from_secs(10);

/// A load balancer that is busy for longer than this is told of: no change of Octavia takes so long.
const PATIENCE: Duration = Duration::from_secs(270);

/// Up to so many load balancers, the graphs of all are read at once when several are needed.
const FEW: usize = 200;

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
        match &intent.load_balancer {
            None => self.look_before_removal(intent, names, version).await,
            Some(wish) => self.look_at_wish(intent, wish, names, version).await,
        }
        .map_err(|trouble| match trouble {
            Trouble::Cloud(error) => failure(&error),
            Trouble::Wish(reasons) => lasting(reasons),
        })
    }

    async fn look_before_removal(
        &self,
        intent: &Intent,
        names: Names,
        version: crate::client::ApiVersion,
    ) -> Result<Observed, Trouble> {
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
            names,
            found,
        };
        let mut port = None;
        if let Found::One { balancer, .. } = &have.found {
            have.features = Features::new(version, &balancer.provider);
            port.clone_from(&balancer.vip_port_id);
            let whole = self.settings.conf.cascade_delete && only_of(&have.names, balancer);
            if balancer.provisioning_status == Provisioning::Active && !whole {
                let graph = self.graph(balancer, intent, None).await?;
                have.content = Content::Graph(graph);
            }
        }
        have.addressing = self
            .floating_ips(&have.names, port.as_ref(), None, &[])
            .await?;
        have.groups = self.groups_before_removal(&have).await?;
        Ok(have)
    }

    async fn look_at_wish(
        &self,
        intent: &Intent,
        wish: &LoadBalancerWish,
        names: Names,
        version: crate::client::ApiVersion,
    ) -> Result<Observed, Trouble> {
        let mut choice = choose(intent, wish, &self.settings)?;
        let (found, assumed) = self.search(intent, &names).await?;
        let balancer = match &found {
            Found::One { balancer, .. } => Some(balancer.clone()),
            _ => None,
        };
        let provider = balancer
            .as_ref()
            .map_or_else(|| choice.provider.clone(), |it| it.provider.clone());
        let features = Features::new(version, &provider);
        let mut notices: Vec<_> = self.troubles(&found).into_iter().collect();
        notices.extend(self.renaming(&names, &found));
        self.complete(&mut choice, wish, balancer.as_deref())
            .await?;
        let (listeners, mut reasons) = wanted::listeners(
            intent,
            wish,
            &choice,
            &names,
            &self.settings,
            features,
            choice.member_subnet.as_ref(),
        );
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
        if wish.nodes.is_empty() {
            notices.push(("UnAvailableLoadBalancer", no_nodes_notice()));
        }
        let mut target = Target {
            choice,
            listeners,
            reasons,
            additional: Vec::new(),
            has_nodes: !wish.nodes.is_empty(),
        };
        let mut content = Content::Unread;
        match &balancer {
            None => {
                self.second_family(&mut target, features).await?;
                if target.choice.tls.is_some() {
                    self.judge_certificate(&mut target).await?;
                }
            }
            Some(balancer) if balancer.provisioning_status == Provisioning::Active => {
                judge_families(&mut target, balancer);
                content = self.content(intent, balancer, &target.listeners).await?;
                let uses = |it: &Listener| it.default_tls_container_ref == target.choice.tls;
                let same = match &content {
                    Content::Graph(graph) => graph.listeners.iter().any(uses),
                    Content::AsWanted | Content::Unread => true,
                };
                if target.choice.tls.is_some() && !same {
                    self.judge_certificate(&mut target).await?;
                }
                self.judge_member_subnet(&mut target, &content).await?;
            }
            Some(_) => {}
        }
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
        };
        self.complete_addressing(intent, wish, &mut have).await?;
        have.groups = self.group_view(intent, wish, &have).await?;
        if have.groups.as_ref().is_some_and(|view| view.managed) {
            have.notices.extend(strangers_notice(wish));
        }
        Ok(have)
    }

    /// The Service's load balancer; and whether it is only taken to be done with the last change.
    async fn search(&self, intent: &Intent, names: &Names) -> Result<(Found, bool), Trouble> {
        let now = Instant::now();
        let given = intent.cloud.load_balancer.as_ref();
        let given = given.map(|given| Id::new(&given.value));
        let mut since = now.checked_sub(FRESH).unwrap_or(now);
        {
            let memory = self.memory();
            if let Some(at) = memory.attempts.get(&intent.uid) {
                since = since.max(*at);
            }
            let id = memory.of.get(&intent.uid);
            let known = id.and_then(|id| memory.balancers.get(id));
            if let Some(known) = known
                && let Some(dirty) = known.dirty
            {
                let guessing = memory.cautious_until.is_none_or(|until| now >= until);
                let done = guessing && known.assume && now >= dirty + memory.settle;
                if done && known.graph.is_some() {
                    let mut row = known.row.clone();
                    row.provisioning_status = Provisioning::Active;
                    let row = [row];
                    let named = given.as_ref().map(|id| (id, row.first()));
                    let found = find(intent, names, &self.settings.cluster, named, true, &row);
                    return Ok((found, true));
                }
                let recent = now.checked_sub(self.pace_with(&memory)).unwrap_or(now);
                since = since.max(dirty).max(recent);
            } else if known.is_some_and(|it| it.row.provisioning_status.is_pending()) {
                since = since.max(now.checked_sub(self.pace_with(&memory)).unwrap_or(now));
            }
        }
        let (roster, at) = self.roster(since).await?;
        let mut named = None;
        let elsewhere;
        if let Some(id) = &given {
            let mut row = roster.iter().find(|it| it.id == *id);
            if row.is_none() {
                elsewhere = self.cloud.load_balancer(id).await?;
                row = elsewhere.as_ref();
            }
            named = Some((id, row));
        }
        let published;
        if given.is_none() {
            published = self.renamed_with_address(intent, names, &roster).await?;
            named = published.as_ref().map(|row| (&row.id, Some(row)));
        }
        let traces = match &named {
            Some((_, None)) => {
                let view = self.floating_ips(names, None, None, &[]).await?;
                view.spare.is_some()
            }
            _ => false,
        };
        let found = find(
            intent,
            names,
            &self.settings.cluster,
            named,
            traces,
            &roster,
        );
        if let Found::One { balancer, .. } = &found {
            let mut memory = self.memory();
            memory.of.insert(intent.uid.clone(), balancer.id.clone());
            memory.seen(balancer, at);
        }
        Ok((found, false))
    }

    /// The load balancer that has the Service's name but for the cluster's, and the address that the Service
    /// publishes: it was made before the cluster got its name, and nothing else leads to it.
    async fn renamed_with_address(
        &self,
        intent: &Intent,
        names: &Names,
        roster: &[LoadBalancer],
    ) -> Result<Option<LoadBalancer>, ApiError> {
        let wish = intent.load_balancer.as_ref();
        let held = wish.map_or(&[][..], |wish| &wish.address.held);
        let cluster = &self.settings.cluster;
        if held.is_empty() || roster.iter().any(|it| it.name == names.load_balancer) {
            return Ok(None);
        }
        let candidates = roster
            .iter()
            .filter(|it| would_be_ours(names, cluster, it) && !it.provisioning_status.is_going());
        for row in candidates {
            let port = row.vip_port_id.as_ref();
            let view = self.floating_ips(names, port, None, held).await?;
            let floating = view.attached.map(|it| it.floating_ip_address);
            let mut addresses = row.vip_address.iter().chain(&floating);
            if addresses.any(|address| held.contains(address)) {
                return Ok(Some(row.clone()));
            }
        }
        Ok(None)
    }

    /// That the load balancer is about to get the cluster's new name.
    fn renaming(&self, names: &Names, found: &Found) -> Option<(&'static str, Reason)> {
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
    fn troubles(&self, found: &Found) -> Option<(&'static str, Reason)> {
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
                if waited < PATIENCE {
                    return None;
                }
                stuck(&balancer.id, status)
            }
            _ => return None,
        };
        Some(("SyncLoadBalancerFailed", reason))
    }

    /// Everything in the load balancer, as far as it is needed.
    async fn content(
        &self,
        intent: &Intent,
        balancer: &LoadBalancer,
        wanted: &[WantedListener],
    ) -> Result<Content, Trouble> {
        let fingerprint = wanted::fingerprint(wanted);
        let as_wanted = {
            let mut memory = self.memory();
            let known = memory.balancers.get(&balancer.id);
            let graph = known.and_then(|known| {
                let current = known.dirty.is_some() || known.token == balancer.updated_at;
                known.graph.clone().filter(|_| current)
            });
            if let Some(graph) = graph {
                return Ok(Content::Graph(graph));
            }
            // What was seen before this process began, and has not been touched since.
            let seen = Record::of(intent).is_some_and(|record| {
                record.vouches_for(&balancer.id, balancer.updated_at.as_deref(), &fingerprint)
            });
            let seen = seen && !memory.doubted.contains(&balancer.id);
            if seen && !memory.sketches.contains_key(&intent.uid) {
                let sketch = Sketch {
                    balancer: balancer.id.clone(),
                    token: balancer.updated_at.clone(),
                    listeners: wanted.to_vec(),
                };
                memory.sketches.insert(intent.uid.clone(), sketch);
            }
            let sketch = memory.sketches.get(&intent.uid);
            let current =
                sketch.filter(|it| it.balancer == balancer.id && it.token == balancer.updated_at);
            current.is_some_and(|it| it.listeners == wanted)
        };
        if as_wanted {
            return Ok(Content::AsWanted);
        }
        let sketch = {
            let memory = self.memory();
            let sketch = memory.sketches.get(&intent.uid);
            sketch
                .filter(|it| it.balancer == balancer.id && it.token == balancer.updated_at)
                .map(|it| it.listeners.clone())
        };
        let graph = self.graph(balancer, intent, sketch.as_deref()).await?;
        Ok(Content::Graph(graph))
    }

    /// Reads the graph. Members that a sketch tells of are not read.
    async fn graph(
        &self,
        balancer: &LoadBalancer,
        intent: &Intent,
        sketch: Option<&[WantedListener]>,
    ) -> Result<Arc<Graph>, Trouble> {
        {
            let memory = self.memory();
            let known = memory.balancers.get(&balancer.id);
            let known = known.filter(|it| it.dirty.is_some() || it.token == balancer.updated_at);
            if let Some(graph) = known.and_then(|known| known.graph.clone()) {
                return Ok(graph);
            }
        }
        let mut graph = self.children(balancer).await?;
        let mut members = BTreeMap::new();
        for pool in &graph.pools {
            if pool.members.is_empty() && sketch.is_none() {
                continue;
            }
            let told = sketch.and_then(|sketch| sketched(sketch, &graph, pool));
            let list = match told {
                Some(wanted) => as_members(&wanted.pool),
                None => self.cloud.members(&pool.id).await?,
            };
            members.insert(pool.id.clone(), list);
        }
        graph.members = members;
        let graph = Arc::new(graph);
        let mut memory = self.memory();
        memory.sketches.remove(&intent.uid);
        memory.doubted.remove(&balancer.id);
        let known = memory.balancers.entry(balancer.id.clone()).or_default();
        known.row = balancer.clone();
        known.graph = Some(graph.clone());
        known.token.clone_from(&balancer.updated_at);
        Ok(graph)
    }

    /// Listeners, pools and monitors: of all load balancers at once where these are few.
    async fn children(&self, balancer: &LoadBalancer) -> Result<Graph, ApiError> {
        let of = |parents: &[crate::objects::Ref]| parents.iter().any(|it| it.id == balancer.id);
        let few = self.memory().balancers.len().clamp(1, FEW + 1);
        if !(3..=FEW).contains(&few) {
            let listeners = self.cloud.listeners(Some(&balancer.id)).await?;
            let pools = self.cloud.pools(Some(&balancer.id)).await?;
            let monitored = pools.iter().any(|pool| pool.healthmonitor_id.is_some());
            let monitors = if monitored {
                self.cloud.monitors(None).await?
            } else {
                Vec::new()
            };
            return Ok(Graph {
                listeners,
                monitors: monitors
                    .into_iter()
                    .filter(|it| {
                        pools
                            .iter()
                            .any(|pool| it.pools.iter().any(|of| of.id == pool.id))
                    })
                    .collect(),
                pools,
                members: BTreeMap::new(),
            });
        }
        let since = self.last_touch(&balancer.id);
        let listeners = self
            .lists
            .listeners
            .since(since, async || self.cloud.listeners(None).await)
            .await?;
        let pools = self
            .lists
            .pools
            .since(since, async || self.cloud.pools(None).await)
            .await?;
        let pools: Vec<Pool> = pools
            .iter()
            .filter(|it| of(&it.loadbalancers))
            .cloned()
            .collect();
        let mut monitors = Vec::new();
        if pools.iter().any(|pool| pool.healthmonitor_id.is_some()) {
            let all = self
                .lists
                .monitors
                .since(since, async || self.cloud.monitors(None).await)
                .await?;
            let ours = all.iter().filter(|it| {
                pools
                    .iter()
                    .any(|pool| it.pools.iter().any(|of| of.id == pool.id))
            });
            monitors = ours.cloned().collect();
        }
        Ok(Graph {
            listeners: listeners
                .iter()
                .filter(|it| of(&it.loadbalancers))
                .cloned()
                .collect(),
            pools,
            monitors,
            members: BTreeMap::new(),
        })
    }

    /// From when on a list tells of everything that is known to have happened to a load balancer.
    fn last_touch(&self, id: &Id) -> Instant {
        let now = Instant::now();
        let recent = now.checked_sub(self.pace()).unwrap_or(now);
        let memory = self.memory();
        let known = memory.balancers.get(id);
        let dirty = known.and_then(|known| known.dirty);
        // What is in it must not be older than the time of its last change that is kept with it.
        let seen = known.and_then(|known| known.seen_at).unwrap_or(recent);
        dirty.map_or(seen, |dirty| dirty.max(seen))
    }

    /// Fills in the subnets that nobody named.
    async fn complete(
        &self,
        choice: &mut Choice,
        wish: &LoadBalancerWish,
        balancer: Option<&LoadBalancer>,
    ) -> Result<(), Trouble> {
        if !choice.autodetect {
            return Ok(());
        }
        let subnet = match balancer.filter(|_| choice.port.is_none()) {
            Some(balancer) => balancer.vip_subnet_id.clone(),
            None => self.node_subnet(wish).await?,
        };
        if choice.port.is_none() {
            choice.vip_subnet.clone_from(&subnet);
        }
        if choice.member_subnet.is_none() {
            choice.member_subnet = subnet;
        }
        Ok(())
    }

    /// The subnet in which the first node has its address.
    async fn node_subnet(&self, wish: &LoadBalancerWish) -> Result<Option<Id>, Trouble> {
        let Some(node) = wish.nodes.iter().find(|node| node.provider_id.is_some()) else {
            return match wish.nodes.first() {
                None => Ok(None),
                Some(node) => Err(Trouble::Wish(vec![no_subnet(&format!(
                    "the node {} has no providerID",
                    node.name
                ))])),
            };
        };
        let Some(provider_id) = &node.provider_id else {
            return Ok(None);
        };
        if let Some(subnet) = self.memory().node_subnets.get(provider_id) {
            return Ok(Some(subnet.clone()));
        }
        let Some(server) = server_of(provider_id) else {
            return Err(Trouble::Wish(vec![no_subnet(&format!(
                "the providerID {provider_id} of node {} is not OpenStack's",
                node.name
            ))]));
        };
        let ports = self.cloud.ports(&[("device_id", server)]).await?;
        let fixed = ports.iter().flat_map(|port| &port.fixed_ips);
        let mut here = fixed.filter(|fixed| fixed.ip_address == node.address);
        let Some(fixed) = here.next() else {
            return Err(Trouble::Wish(vec![no_subnet(&format!(
                "no port of the server of node {} has its address {}",
                node.name, node.address
            ))]));
        };
        let subnet = fixed.subnet_id.clone();
        self.memory()
            .node_subnets
            .insert(provider_id.clone(), subnet.clone());
        Ok(Some(subnet))
    }

    /// A subnet of the second family beside the VIP's, where the Service wants both.
    async fn second_family(&self, target: &mut Target, features: Features) -> Result<(), Trouble> {
        let [_, second, ..] = target.choice.families.as_slice() else {
            return Ok(());
        };
        let second = *second;
        let problem = if !features.additional_vips() {
            Some(format!(
                "two families need version 2.26 of Octavia's API, which here is {}",
                features.version()
            ))
        } else if let Some(network) = self.vip_network(&target.choice).await? {
            let subnets = self
                .cloud
                .subnets(&[("network_id", network.as_str())])
                .await?;
            let fits = |v4: bool| (second == Family::V4) == v4;
            let subnet = subnets.iter().find(|it| fits(it.cidr.addr().is_ipv4()));
            match subnet {
                Some(subnet) => {
                    target.additional.push(subnet.id.clone());
                    allow_both_families(&mut target.listeners);
                    None
                }
                None => Some(format!("the VIP's network has no {second} subnet")),
            }
        } else {
            Some("the network of the VIP is not known".to_owned())
        };
        if let Some(problem) = problem {
            let required = target.choice.policy == FamilyPolicy::RequireDualStack;
            let reason = if required {
                Reason::error(Code::AddressFamilyMismatch, problem)
            } else {
                Reason::info(
                    Code::AddressFamilyMismatch,
                    format!("one family only: {problem}"),
                )
            };
            target.reasons.push(reason.at("spec.ipFamilies"));
        }
        Ok(())
    }

    /// Members that move to a subnet are taken out before they are put in again: not for one that is not there.
    async fn judge_member_subnet(
        &self,
        target: &mut Target,
        content: &Content,
    ) -> Result<(), ApiError> {
        let (Content::Graph(graph), Some(subnet)) = (content, &target.choice.member_subnet) else {
            return Ok(());
        };
        let elsewhere = |member: &Member| member.subnet_id.as_ref().is_some_and(|it| it != subnet);
        if !graph.members.values().flatten().any(elsewhere) || self.subnet(subnet).await?.is_some()
        {
            return Ok(());
        }
        target.reasons.push(
            Reason::error(
                Code::CloudObjectNotFound,
                format!("there is no subnet {subnet} for the members"),
            )
            .value(subnet.as_str())
            .remedy("name one that is there in loadbalancer.openstack.org/member-subnet-id or subnet-id"),
        );
        Ok(())
    }

    async fn vip_network(&self, choice: &Choice) -> Result<Option<Id>, ApiError> {
        if let Some(network) = &choice.vip_network {
            return Ok(Some(network.clone()));
        }
        let Some(subnet) = &choice.vip_subnet else {
            return Ok(None);
        };
        Ok(self.subnet(subnet).await?.map(|subnet| subnet.network_id))
    }
}

/// What went wrong while looking.
pub(crate) enum Trouble {
    /// The cloud could not be asked, or refused.
    Cloud(ApiError),
    /// The wish can't be had as it stands.
    Wish(Vec<Reason>),
}

impl From<ApiError> for Trouble {
    fn from(error: ApiError) -> Self {
        Self::Cloud(error)
    }
}

impl From<Vec<Reason>> for Trouble {
    fn from(reasons: Vec<Reason>) -> Self {
        Self::Wish(reasons)
    }
}

/// The worst of several reasons; what they have in common is that only a change of the facts mends them.
fn lasting(reasons: Vec<Reason>) -> ProviderError {
    let worst = reasons.into_iter().max_by_key(|reason| reason.severity);
    let reason = worst.unwrap_or_else(|| Reason::error(Code::ProviderFailed, "nobody said why"));
    ProviderError {
        retry: landfall_model::Retry::Backoff,
        ..ProviderError::lasting(reason)
    }
}

fn only_of(names: &Names, balancer: &LoadBalancer) -> bool {
    let others =
        |tag: &String| tag.starts_with(crate::names::SERVICE_PREFIX) && *tag != names.load_balancer;
    balancer.name.starts_with(crate::names::SERVICE_PREFIX) && !balancer.tags.iter().any(others)
}

/// The listener of a sketch that a pool serves.
fn sketched<'a>(
    sketch: &'a [WantedListener],
    graph: &Graph,
    pool: &Pool,
) -> Option<&'a WantedListener> {
    let serves = |listener: &&Listener| graph.pool_of(listener).is_some_and(|it| it.id == pool.id);
    let listener = graph.listeners.iter().find(serves)?;
    sketch
        .iter()
        .find(|it| it.port == listener.protocol_port && it.protocol == listener.protocol)
}

/// The server of a node: `openstack:///UUID`, or `openstack://REGION/UUID`.
pub(crate) fn server_of(provider_id: &str) -> Option<&str> {
    let rest = provider_id.strip_prefix("openstack://")?;
    let (_, server) = rest.rsplit_once('/')?;
    (!server.is_empty()).then_some(server)
}

fn no_subnet(why: &str) -> Reason {
    Reason::error(
        Code::InvalidCloudOption,
        format!("the subnet can't be taken from the nodes: {why}"),
    )
    .remedy("name it in subnet-id of the configuration, or in loadbalancer.openstack.org/subnet-id")
}

/// Octavia has given the load balancer up.
pub(crate) fn in_error(id: &Id, owner: bool) -> Reason {
    let reason = Reason::error(
        Code::LoadBalancerFailed,
        format!("Octavia says that load balancer {id} is in ERROR"),
    );
    reason.remedy(if owner {
        "the cloud's operators can see why; it is failed over where that is allowed, and made anew otherwise"
    } else {
        "the cloud's operators can see why; it was made for somebody else, who may make it anew"
    })
}

/// Octavia does not come to an end with the load balancer, and takes no change meanwhile.
fn stuck(id: &Id, status: Provisioning) -> Reason {
    let doing = match status {
        Provisioning::PendingCreate => "PENDING_CREATE",
        Provisioning::PendingDelete => "PENDING_DELETE",
        _ => "PENDING_UPDATE",
    };
    Reason::error(
        Code::LoadBalancerFailed,
        format!(
            "load balancer {id} has been in {doing} for more than {} seconds",
            PATIENCE.as_secs()
        ),
    )
    .remedy("the cloud's operators can see why, and end it")
}

/// Everybody is everybody of both families, where there are VIPs of both.
fn allow_both_families(listeners: &mut [WantedListener]) {
    for allowed in listeners.iter_mut().filter_map(|it| it.allowed.as_mut()) {
        if allowed.contains("0.0.0.0/0") || allowed.contains("::/0") {
            allowed.extend(["0.0.0.0/0", "::/0"].map(str::to_owned));
        }
    }
}

/// The VIPs of a load balancer are chosen when it is made.
fn judge_families(target: &mut Target, balancer: &LoadBalancer) {
    if !balancer.additional_vips.is_empty() {
        allow_both_families(&mut target.listeners);
        return;
    }
    if target.choice.families.len() < 2 {
        return;
    }
    let message = format!(
        "load balancer {} was made with one address, and Octavia adds none later",
        balancer.id
    );
    let reason = match target.choice.policy {
        FamilyPolicy::RequireDualStack => Reason::warning(Code::AddressFamilyMismatch, message),
        _ => Reason::info(Code::AddressFamilyMismatch, message),
    };
    target.reasons.push(
        reason
            .at("spec.ipFamilies")
            .remedy("make the Service anew to get both addresses"),
    );
}

/// Groups can't be put on nodes that are not of this cloud.
fn strangers_notice(wish: &LoadBalancerWish) -> Option<(&'static str, Reason)> {
    let strange = |it: &&landfall_model::intent::NodeTarget| {
        it.provider_id.as_deref().and_then(server_of).is_none()
    };
    let mut names: Vec<&str> = wish
        .nodes
        .iter()
        .filter(strange)
        .map(|it| &*it.name)
        .collect();
    if names.is_empty() {
        return None;
    }
    let count = names.len();
    names.truncate(20);
    Some((
        "LoadBalancerNodesUnguarded",
        Reason::warning(
            Code::InvalidCloudOption,
            format!(
                "{count} nodes are no servers of OpenStack by their providerID, and get no security group: {}",
                names.join(", ")
            ),
        )
        .remedy("let them in on the Service's NodePorts by other means"),
    ))
}

fn no_nodes_notice() -> Reason {
    Reason::warning(
        Code::NoEligibleNodes,
        "There are no available nodes for LoadBalancer",
    )
}

/// What users know as events of cloud-provider-openstack.
fn notices_of(reasons: &mut Vec<Reason>, notices: &mut Vec<(&'static str, Reason)>) {
    reasons.retain(|reason| {
        let known =
            reason.code == Code::SourceRangesNotEnforced && reason.severity != Severity::Error;
        if known {
            notices.push(("LoadBalancerSourceRangesIgnored", reason.clone()));
        }
        !known
    });
}

/// A word for the algorithm that nobody knows: users know this event, too.
fn unknown_method(remark: &Reason) -> Option<(&'static str, Reason)> {
    let field = remark.field.as_deref()?;
    let of_value = remark.code == Code::InvalidAnnotation && field.contains("/lb-method");
    of_value.then(|| ("LoadBalancerLbMethodUnknown", remark.clone()))
}

/// Whether the driver is OVN's.
pub(crate) fn is_ovn(balancer: Option<&LoadBalancer>, choice: &Choice) -> bool {
    balancer.map_or(choice.is_ovn(), |it| it.provider == OVN)
}

/// Whether we wrote the id that the Service names.
pub(crate) fn is_given(intent: &Intent) -> bool {
    intent.cloud.load_balancer.is_some() && !intent.marks.contains_key(LOAD_BALANCER_ID)
}
