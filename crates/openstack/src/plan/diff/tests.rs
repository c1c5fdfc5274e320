//! Whatever is there and whatever is wanted: step by step the graph becomes what is wanted, and
//! stays so.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use landfall_model::{Protocol, ServiceKey, Uid};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::*;
use serde_json::{Map, Value, json};

use crate::client::ApiVersion;
use crate::graph::key_of;
use crate::objects::{Member, Monitor, PoolAlgorithm, Ref};
use crate::plan::members::as_members;
use crate::requests::{MonitorRequest, PoolRequest};
use crate::target::{ListenerTimeouts, WantedMember, WantedMonitor, WantedPool};

/// An Octavia that carries out each request at once, by its own rules.
#[derive(Default)]
struct Cloud {
    graph: Graph,
    serial: usize,
    /// `None`: as Octavia's.
    body_limit: Option<usize>,
    refusals: Refusals,
}

fn names() -> Names {
    Names::new(
        "c1",
        None,
        &ServiceKey::new("default", "web"),
        &Uid::new("u1"),
    )
}

fn fields_of(request: &impl serde::Serialize) -> Map<String, Value> {
    json!(request).as_object().cloned().unwrap()
}

fn merged<T: serde::Serialize + serde::de::DeserializeOwned>(
    row: &T,
    changes: &impl serde::Serialize,
) -> T {
    let mut value = serde_json::to_value(row).unwrap();
    let fields = value.as_object_mut().unwrap();
    fields.extend(fields_of(changes));
    serde_json::from_value(value).unwrap()
}

impl Cloud {
    fn id(&mut self) -> Id {
        self.serial += 1;
        Id::new(&format!("id-{}", self.serial))
    }

    fn pool(&mut self, id: &Id) -> &mut Pool {
        let mut pools = self.graph.pools.iter_mut();
        pools.find(|pool| pool.id == *id).unwrap()
    }

    /// The pool says which listeners it serves, and the listener which pool serves it.
    fn lead(&mut self, listener: &Id, pool: Option<&Id>) {
        for it in &mut self.graph.pools {
            it.listeners.retain(|of| of.id != *listener);
            if Some(&it.id) == pool {
                it.listeners.push(Ref {
                    id: listener.clone(),
                });
            }
        }
        for it in &mut self.graph.listeners {
            if it.id == *listener {
                it.default_pool_id = pool.cloned();
            }
        }
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each kind of step")]
    fn apply(&mut self, step: &Step) {
        match step {
            Step::TryListener { listener, .. } => {
                let id = self.id();
                let mut body = fields_of(&ListenerRequest::new(listener));
                body.insert("id".into(), json!(id));
                let created: Listener = serde_json::from_value(body.into()).unwrap();
                let mut all = self.graph.listeners.iter();
                assert!(!all.any(|it| it.protocol_port == created.protocol_port));
                self.graph.listeners.push(created);
            }
            Step::CreateListener { listener, pool, .. } => {
                let id = self.id();
                let taken = self
                    .graph
                    .listeners
                    .iter()
                    .any(|it| same_port(listener, it));
                assert!(!taken, "two listeners have port {}", listener.port);
                let mut body = fields_of(&ListenerRequest::new(listener));
                body.insert("id".into(), json!(id));
                let created = serde_json::from_value(body.into()).unwrap();
                self.graph.listeners.push(created);
                if let Some(pool) = pool {
                    assert!(self.graph.pools.iter().any(|it| it.id == *pool));
                    self.lead(&id, Some(pool));
                }
            }
            Step::UpdateListener {
                listener, changes, ..
            } => {
                let mut all = self.graph.listeners.iter_mut();
                let row = all.find(|it| it.id == *listener).unwrap();
                *row = merged(row, changes);
                let pool = row.default_pool_id.clone();
                self.lead(listener, pool.as_ref());
            }
            Step::DeleteListener { listener, .. } => {
                self.lead(listener, None);
                self.graph.listeners.retain(|it| it.id != *listener);
            }
            Step::CreatePool { listener, pool, .. } => {
                let id = self.id();
                let mut body = fields_of(&PoolRequest::new(pool));
                body.insert("id".into(), json!(id));
                self.graph
                    .pools
                    .push(serde_json::from_value(body.into()).unwrap());
                if let Some(listener) = listener {
                    self.lead(listener, Some(&id));
                }
            }
            Step::UpdatePool { pool, changes, .. } => {
                let row = self.pool(pool);
                *row = merged(row, changes);
            }
            Step::DeletePool { pool, .. } => {
                assert!(self.graph.pools.iter().any(|it| it.id == *pool));
                self.graph.remove_pool(pool);
            }
            Step::SetMembers {
                pool,
                members,
                additive,
                leaves,
                ..
            } => {
                self.pool(pool);
                let there = self.graph.members.get(pool).cloned().unwrap_or_default();
                let mut after: BTreeMap<(IpAddr, u16), Member> = BTreeMap::new();
                if *additive {
                    after.extend(
                        there
                            .iter()
                            .filter_map(|it| Some((key_of(it)?, it.clone()))),
                    );
                }
                for body in members {
                    let mut member: Member = serde_json::from_value(json!(body)).unwrap();
                    let key = key_of(&member).unwrap();
                    let before = there.iter().find(|it| key_of(it) == Some(key));
                    if let Some(before) = before {
                        // A member's subnet never changes.
                        member.subnet_id.clone_from(&before.subnet_id);
                    }
                    after.insert(key, member);
                }
                let reported: BTreeSet<_> = leaves.iter().filter_map(key_of).collect();
                assert_eq!(reported, after.keys().copied().collect());
                self.graph
                    .members
                    .insert(pool.clone(), after.into_values().collect());
            }
            Step::AddMember { pool, member, .. } => {
                let member: Member = serde_json::from_value(json!(member)).unwrap();
                let there = self.graph.members.entry(pool.clone()).or_default();
                assert!(!there.iter().any(|it| key_of(it) == key_of(&member)));
                there.push(member);
            }
            Step::UpdateMember {
                pool,
                address,
                port,
                changes,
                ..
            } => {
                let there = self.graph.members.get_mut(pool).unwrap().iter_mut();
                let mut same = there.filter(|it| key_of(it) == Some((*address, *port)));
                let row = same.next().unwrap();
                *row = merged(row, changes);
            }
            Step::DeleteMember {
                pool,
                address,
                port,
                ..
            } => {
                let there = self.graph.members.get_mut(pool).unwrap();
                there.retain(|it| key_of(it) != Some((*address, *port)));
            }
            Step::CreateMonitor { pool, monitor, .. } => {
                let id = self.id();
                let mut body = fields_of(&MonitorRequest::new(monitor));
                body.insert("id".into(), json!(id));
                body.insert("pools".into(), json!([{"id": pool}]));
                let there = self.pool(pool).healthmonitor_id.replace(id);
                assert_eq!(there, None, "a pool has one monitor");
                let created: Monitor = serde_json::from_value(body.into()).unwrap();
                self.graph.monitors.push(created);
            }
            Step::UpdateMonitor {
                monitor, changes, ..
            } => {
                let mut all = self.graph.monitors.iter_mut();
                let row = all.find(|it| it.id == *monitor).unwrap();
                *row = merged(row, changes);
            }
            Step::DeleteMonitor { monitor, .. } => {
                self.graph.monitors.retain(|it| it.id != *monitor);
                for pool in &mut self.graph.pools {
                    pool.healthmonitor_id.take_if(|it| it == monitor);
                }
            }
            step => panic!("{step} is not about the graph"),
        }
    }

    fn next(&self, wanted: &[WantedListener], minor: u16) -> Option<Step> {
        let names = names();
        let balancer = LoadBalancer {
            id: Id::new("lb"),
            ..LoadBalancer::default()
        };
        let diff = Diff {
            balancer: &balancer,
            owner: true,
            names: &names,
            features: Features::new(ApiVersion::new(2, minor), "amphora"),
            body_limit: self.body_limit.unwrap_or(114_688),
            serial: false,
            keep: false,
            refusals: &self.refusals,
            graph: &self.graph,
        };
        let mut plan = Plan::default();
        diff.plan(wanted, &mut plan).unwrap();
        plan.steps.into_iter().next().map(|planned| planned.step)
    }

    /// Step by step, with a look after each. Listeners that stay as they are serve all the time.
    fn become_as(&mut self, wanted: &[WantedListener], minor: u16) {
        let serves = |graph: &Graph, it: &Listener| {
            let pool = graph.pool_of(it);
            pool.is_some_and(|pool| !graph.members_of(pool).is_empty())
        };
        let stays: Vec<Id> = self
            .graph
            .listeners
            .iter()
            .filter(|it| {
                let next = wanted
                    .iter()
                    .find(|next| same_port(next, it) && next.protocol == it.protocol);
                let kept = next.is_some_and(|next| {
                    let pool = self.graph.pool_of(it);
                    let members = pool.map(|pool| self.graph.members_of(pool));
                    let stay = members.into_iter().flatten().filter_map(key_of);
                    let stay = stay.filter(|key| next.pool.members.contains_key(key));
                    stay.count() > 1
                });
                kept && serves(&self.graph, it)
            })
            .map(|it| it.id.clone())
            .collect();
        for _ in 0..200 {
            let Some(step) = self.next(wanted, minor) else {
                self.is(wanted);
                return;
            };
            self.accepts_replacement(&step, wanted);
            self.apply(&step);
            for id in &stays {
                let listener = self.graph.listeners.iter().find(|it| it.id == *id).unwrap();
                assert!(serves(&self.graph, listener), "closed by: {step}");
            }
        }
        panic!("it never ends: {:?}", self.next(wanted, minor));
    }

    /// No listener makes way for another one that Octavia may yet refuse.
    fn accepts_replacement(&self, step: &Step, wanted: &[WantedListener]) {
        let Step::DeleteListener { listener, .. } = step else {
            return;
        };
        let mut listeners = self.graph.listeners.iter();
        let old = listeners.find(|it| it.id == *listener).unwrap();
        let next = wanted.iter().find(|it| same_port(it, old));
        let Some(next) = next.filter(|_| !is_tried(old)) else {
            return;
        };
        let mut listeners = self.graph.listeners.iter();
        let accepted = |it: &Listener| {
            is_tried(it) && it.protocol == next.protocol && it.default_tls_container_ref == next.tls
        };
        assert!(
            listeners.any(accepted),
            "not known to be accepted: {next:?}"
        );
    }

    /// Members that are as wanted, by pool.
    fn good_members(&self, wanted: &[WantedListener]) -> BTreeSet<(Id, IpAddr, u16)> {
        let mut good = BTreeSet::new();
        for it in wanted {
            let mut listeners = self.graph.listeners.iter();
            let Some(listener) = listeners.find(|there| same_port(it, there)) else {
                continue;
            };
            let pool = self.graph.pool_of(listener);
            if let Some(pool) = pool.filter(|pool| pool.protocol == it.pool.protocol) {
                for member in self.graph.members_of(pool) {
                    let (address, port) = key_of(member).unwrap();
                    let shall = it.pool.members.get(&(address, port));
                    if shall.is_some_and(|it| it.subnet == member.subnet_id) {
                        good.insert((pool.id.clone(), address, port));
                    }
                }
            }
        }
        good
    }

    fn is(&self, wanted: &[WantedListener]) {
        assert_eq!(self.graph.listeners.len(), wanted.len());
        assert_eq!(self.graph.pools.len(), wanted.len());
        let monitors = wanted.iter().filter(|it| it.pool.monitor.is_some());
        assert_eq!(self.graph.monitors.len(), monitors.count());
        for it in wanted {
            let mut listeners = self.graph.listeners.iter();
            let listener = listeners.find(|there| same_port(it, there)).unwrap();
            assert_eq!(listener.protocol, it.protocol);
            let pool = self.graph.pool_of(listener).unwrap();
            assert_eq!(pool.protocol, it.pool.protocol);
            let seen = |members: &[Member]| -> BTreeMap<_, _> {
                let members = members.iter();
                members
                    .map(|it| (key_of(it), (it.subnet_id.clone(), it.monitor_port)))
                    .collect()
            };
            let there = self.graph.members_of(pool);
            let none = it.pool.members.is_empty();
            // Those of the other kind stay where nothing takes their place.
            let stays =
                |it: &Member, pods: bool| !it.name.is_empty() && it.name.contains('/') != pods;
            if !none || !there.iter().all(|member| stays(member, it.pool.pods)) {
                assert_eq!(seen(there), seen(&as_members(&it.pool)));
            }
            let kind = self.graph.monitor_of(pool).map(|it| it.kind.as_str());
            let wanted = it.pool.monitor.as_ref().map(|it| it.kind.as_str());
            assert_eq!(kind, wanted);
        }
    }
}

fn wanted() -> impl Strategy<Value = Vec<WantedListener>> {
    let ports = [
        (Protocol::Tcp, 80),
        (Protocol::Tcp, 443),
        (Protocol::Udp, 53),
        (Protocol::Udp, 443),
    ];
    let ports = subsequence(ports.to_vec(), 0..=ports.len()).prop_shuffle();
    let looks = vec(look(), 4);
    let subnet = select(vec!["s1", "s2"]);
    (ports, looks, subnet).prop_map(|(ports, looks, subnet)| {
        let pairs = ports.into_iter().zip(looks).enumerate();
        pairs
            .map(|(index, ((transport, port), look))| look.listener(index, transport, port, subnet))
            .collect()
    })
}

/// Everything about a listener but its port.
#[derive(Clone, Debug)]
struct Look {
    protocol: &'static str,
    proxy: Option<&'static str>,
    sticky: bool,
    limit: i64,
    tags: Vec<String>,
    members: BTreeMap<u8, bool>,
    node_port: u16,
    monitor: Option<(&'static str, u64)>,
    pods: bool,
}

fn look() -> impl Strategy<Value = Look> {
    (
        select(vec!["TCP", "HTTP", "TERMINATED_HTTPS"]),
        select(vec![None, Some("PROXY"), Some("PROXYV2")]),
        any::<bool>(),
        select(vec![-1_i64, 7]),
        subsequence(vec!["a".to_owned(), "b".to_owned()], 0..=2),
        btree_map(1_u8..9, any::<bool>(), 0..6),
        select(vec![30001_u16, 30002]),
        select(vec![
            None,
            Some(("TCP", 5)),
            Some(("TCP", 9)),
            Some(("HTTP", 5)),
        ]),
        any::<bool>(),
    )
        .prop_map(
            |(protocol, proxy, sticky, limit, tags, members, node_port, monitor, pods)| Look {
                protocol,
                proxy,
                sticky,
                limit,
                tags,
                members,
                node_port,
                monitor,
                pods,
            },
        )
}

impl Look {
    fn listener(
        self,
        index: usize,
        transport: Protocol,
        port: u16,
        subnet: &str,
    ) -> WantedListener {
        let names = names();
        let tcp = transport == Protocol::Tcp;
        let protocol = if tcp { self.protocol } else { "UDP" };
        let plain = if matches!(protocol, "HTTP" | "TERMINATED_HTTPS") {
            "HTTP"
        } else {
            protocol
        };
        let monitor = self.monitor.map(|(kind, delay)| WantedMonitor {
            name: names.child("monitor", index),
            kind: if tcp { kind } else { "UDP-CONNECT" }.into(),
            delay,
            timeout: 3,
            max_retries: 1,
            max_retries_down: 3,
            http: (tcp && kind == "HTTP")
                .then(|| ("GET".to_owned(), "/healthz".to_owned(), "200".to_owned())),
        });
        let asks = monitor.as_ref().is_some_and(|it| it.http.is_some());
        let members = self.members.into_keys().map(|last| {
            let member = WantedMember {
                name: if self.pods {
                    format!("d/n{last}")
                } else {
                    format!("n{last}")
                },
                port: self.node_port,
                subnet: Some(Id::new(subnet)),
                monitor_port: asks.then_some(31000),
                weight: None,
                backup: None,
            };
            ((IpAddr::from([10, 0, 0, last]), self.node_port), member)
        });
        let mut tags = vec![names.load_balancer.clone()];
        tags.extend(self.tags);
        WantedListener {
            name: names.child("listener", index),
            transport,
            protocol: protocol.into(),
            port,
            connection_limit: self.limit,
            timeouts: Some(ListenerTimeouts {
                client_data: 50_000,
                member_connect: 5_000,
                member_data: 50_000,
                tcp_inspect: 0,
            }),
            headers: BTreeMap::new(),
            all_headers: false,
            tls: (protocol == "TERMINATED_HTTPS").then(|| "ref".to_owned()),
            sni: None,
            tls_versions: None,
            tls_ciphers: None,
            alpn: None,
            pending: false,
            allowed: Some(BTreeSet::from(["0.0.0.0/0".to_owned()])),
            tags,
            pool: WantedPool {
                name: names.child("pool", index),
                protocol: self.proxy.filter(|_| tcp).unwrap_or(plain).into(),
                algorithm: PoolAlgorithm::RoundRobin,
                sticky: self.sticky,
                tags: Vec::new(),
                pods: self.pods,
                members: members.collect(),
                monitor,
            },
        }
    }
}

/// More cases than usual: there are many ways to be halfway.
fn config() -> ProptestConfig {
    let asked = ProptestConfig::default();
    ProptestConfig {
        cases: asked.cases.max(500),
        ..asked
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn step_by_step_the_graph_becomes_what_is_wanted(
        specs in vec(wanted(), 1..4),
        minor in select(vec![10_u16, 27]),
    ) {
        let mut cloud = Cloud::default();
        for spec in &specs {
            cloud.become_as(spec, minor);
        }
    }

    /// A plan for another spec begins from any state that a part of a plan left.
    #[test]
    fn from_halfway_it_becomes_what_is_wanted_then(
        first in wanted(),
        second in wanted(),
        third in wanted(),
        steps in 0_usize..20,
    ) {
        let mut cloud = Cloud::default();
        cloud.become_as(&first, 27);
        for _ in 0..steps {
            let Some(step) = cloud.next(&second, 27) else { break };
            cloud.apply(&step);
        }
        cloud.become_as(&third, 27);
    }

    /// Before 2.11 a batch says all that shall be in a pool. One that is too large for a request is
    /// filled otherwise, and no member that is as wanted is removed meanwhile.
    #[test]
    fn a_pool_too_large_for_a_request_is_filled_and_loses_no_member(
        specs in vec(wanted(), 1..4),
        minor in select(vec![10_u16, 27]),
        body_limit in 200_usize..400,
    ) {
        let mut cloud = Cloud { body_limit: Some(body_limit), ..Cloud::default() };
        for spec in &specs {
            for _ in 0..300 {
                let before = cloud.good_members(spec);
                let Some(step) = cloud.next(spec, minor) else { break };
                let of_members = matches!(
                    step,
                    Step::SetMembers { .. }
                        | Step::AddMember { .. }
                        | Step::UpdateMember { .. }
                        | Step::DeleteMember { .. }
                );
                if let Step::SetMembers { additive: true, .. } = step {
                    prop_assert!(minor >= 11);
                }
                cloud.apply(&step);
                if minor < 11 && of_members {
                    let after = cloud.good_members(spec);
                    prop_assert!(before.is_subset(&after), "{step}: {before:?} {after:?}");
                }
            }
            prop_assert_eq!(cloud.next(spec, minor), None);
            cloud.is(spec);
        }
    }
}
