//! One snapshot written as metrics. Knows the table and the views, and keeps nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use landfall_model::reason::Reason;
use landfall_model::status::ConditionType;
use landfall_model::view::{
    CloudCallsView, Health, InstanceView, ListenerView, MeasuredView, MemberView, MetricsView,
    PeerView, PoolView, ServiceView, TrafficView,
};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::Scope;
use super::page::{Counted, Labels, Page};
use super::table::{self, Metric};

/// What one scrape sees.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) view: Arc<InstanceView>,
    pub(super) engine: MetricsView,
    pub(super) heartbeat_age: Duration,
    pub(super) scope: Scope,
}

/// Where a view has numbers by name.
type Named = fn(&MeasuredView) -> &BTreeMap<String, u64>;

const HEALTHS: [Health; 6] = [
    Health::Up,
    Health::Unknown,
    Health::Unchecked,
    Health::Failing,
    Health::Down,
    Health::Draining,
];

const CONDITIONS: [(ConditionType, &str); 3] = [
    (ConditionType::Accepted, "Accepted"),
    (ConditionType::Addressed, "Addressed"),
    (ConditionType::Programmed, "Programmed"),
];

// === impl Snapshot ===

impl Collector for Snapshot {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let mut page = Page::new(encoder);
        self.instance(&mut page)?;
        self.services(&mut page)?;
        self.listeners(&mut page)?;
        self.measured(&mut page)?;
        if self.scope.members {
            self.members(&mut page)?;
        }
        self.pools(&mut page)?;
        self.engine(&mut page)
    }
}

impl Snapshot {
    fn instance(&self, page: &mut Page<'_>) -> fmt::Result {
        page.info(&table::BUILD, std::slice::from_ref(&self.view.version))?;
        let started = self.view.started.parse::<jiff::Timestamp>();
        let started = started
            .ok()
            .map(|time| time.as_millisecond() as f64 / 1000.0);
        page.measure(&table::START, started)?;
        page.one(&table::READY, u64::from(self.view.ready))?;
        page.measure(&table::HEARTBEAT, Some(self.heartbeat_age.as_secs_f64()))?;
        page.gauge(&table::PROBLEMS, reasons(&self.view.problems))
    }

    fn services(&self, page: &mut Page<'_>) -> fmt::Result {
        let services = &self.view.services;
        page.one(&table::SERVICES, services.len() as u64)?;
        // Each pair is there from the start: an alert must distinguish "none" from "not exported".
        let none = CONDITIONS
            .iter()
            .flat_map(|(_, name)| ["true", "false"].map(|status| (labels([name, &status]), 0)));
        let some = services.iter().flat_map(|service| {
            CONDITIONS.iter().map(|(kind, name)| {
                let met = holds(service, *kind);
                (labels([name, &if met { "true" } else { "false" }]), 1)
            })
        });
        page.gauge(&table::CONDITIONS, none.chain(some))?;
        page.gauge(
            &table::PROGRAMMED,
            services.iter().map(|service| {
                let programmed = holds(service, ConditionType::Programmed);
                (of_service(service), u64::from(programmed))
            }),
        )?;
        let all = services.iter().flat_map(|service| &service.reasons);
        page.gauge(&table::REASONS, reasons(all))?;
        let left_out = services.iter().flat_map(|service| &service.left_out);
        page.gauge(
            &table::LEFT_OUT,
            left_out.map(|it| (labels([&it.reason.code]), it.count as u64)),
        )?;
        let pending = services.iter().flat_map(|service| &service.pending);
        let pending = pending.filter(|line| line.kind.is_change()).count();
        page.one(&table::PENDING, pending as u64)
    }

    fn listeners(&self, page: &mut Page<'_>) -> fmt::Result {
        let all = || {
            self.view.services.iter().flat_map(|service| {
                let listeners = service.listeners.iter();
                listeners.map(move |listener| (service, listener))
            })
        };
        page.gauge(
            &table::LISTENERS,
            all().map(|(_, listener)| (labels([&listener.key.protocol, &listener.mode]), 1)),
        )?;
        page.gauge(
            &table::LISTENER_UP,
            all().map(|(service, listener)| {
                let serves = listener.problem.is_none();
                (of_listener(service, listener), u64::from(serves))
            }),
        )?;
        page.gauge(
            &table::LISTENER_MEMBERS,
            all().flat_map(|(service, listener)| {
                HEALTHS.into_iter().map(move |health| {
                    let members = listener.members.iter();
                    let count = members.filter(|member| member.health == health).count();
                    let mut labels = of_listener(service, listener);
                    labels.push(health.as_str().to_owned());
                    (labels, count as u64)
                })
            }),
        )?;
        let counted: [Counted<TrafficView>; 5] = [
            (&table::LISTENER_OPEN, |traffic| traffic.open),
            (&table::LISTENER_CONNECTIONS, |traffic| traffic.connections),
            (&table::LISTENER_FAILED, |traffic| traffic.failed),
            (&table::LISTENER_RECEIVED, |traffic| traffic.bytes_in),
            (&table::LISTENER_SENT, |traffic| traffic.bytes_out),
        ];
        let traffic =
            all().map(|(service, listener)| (of_listener(service, listener), &listener.traffic));
        page.table(&counted, traffic.collect())
    }

    fn measured(&self, page: &mut Page<'_>) -> fmt::Result {
        let all = || {
            self.view.services.iter().flat_map(|service| {
                let listeners = service.listeners.iter();
                listeners.filter_map(move |listener| {
                    let measured = listener.measured.as_deref()?;
                    Some((of_listener(service, listener), measured))
                })
            })
        };
        let counted: [(&Metric, Named); 4] = [
            (&table::LISTENER_RESPONSES, |it| &it.responses),
            (&table::LISTENER_REFUSED, |it| &it.refused),
            (&table::LISTENER_LOCAL, |it| &it.local_failures),
            (&table::LISTENER_BROKEN, |it| &it.broken),
        ];
        for (metric, counts) in counted {
            let series = all().flat_map(|(labels, measured)| {
                counts(measured).iter().map(move |(name, count)| {
                    let labels = labels.iter().chain(iter::once(name));
                    (labels.cloned().collect(), *count)
                })
            });
            page.series(metric, series)?;
        }
        let waiting = all().map(|(labels, measured)| (labels, measured.waiting));
        page.series(&table::LISTENER_WAITING, waiting)?;
        if !self.scope.histograms {
            return Ok(());
        }
        for (metric, name) in [
            (&table::LISTENER_CONNECT, "connect"),
            (&table::LISTENER_CONNECTION, "connection"),
            (&table::LISTENER_FIRST_BYTE, "first_byte"),
            (&table::LISTENER_REQUEST, "request"),
        ] {
            let times = all().filter_map(|(labels, it)| Some((labels, it.times.get(name)?)));
            page.histograms(metric, times)?;
        }
        Ok(())
    }

    fn members(&self, page: &mut Page<'_>) -> fmt::Result {
        let counted: [Counted<MemberView>; 5] = [
            (&table::MEMBER_UP, |member| {
                u64::from(member.health.serves())
            }),
            (&table::MEMBER_OPEN, |member| member.traffic.open),
            (&table::MEMBER_CONNECTIONS, |member| {
                member.traffic.connections
            }),
            (&table::MEMBER_FAILED, |member| member.traffic.failed),
            (&table::MEMBER_TURNS, |member| member.traffic.health_changes),
        ];
        let mut rows = Vec::new();
        for service in &self.view.services {
            for listener in &service.listeners {
                let labels = of_listener(service, listener);
                for member in &listener.members {
                    let mut labels = labels.clone();
                    labels.push(member.address.to_string());
                    rows.push((labels, member));
                }
            }
        }
        page.table(&counted, rows)
    }

    fn pools(&self, page: &mut Page<'_>) -> fmt::Result {
        let pools = || self.view.pools.iter();
        let families = |name: &str, v4, v6| {
            [
                (labels([&name, &"IPv4"]), v4),
                (labels([&name, &"IPv6"]), v6),
            ]
        };
        page.gauge(
            &table::POOL_ASSIGNED,
            pools().flat_map(|pool| families(&pool.name, pool.assigned_ipv4, pool.assigned_ipv6)),
        )?;
        page.gauge(
            &table::POOL_AVAILABLE,
            pools().flat_map(|pool| families(&pool.name, pool.available_ipv4, pool.available_ipv6)),
        )?;
        page.gauge(
            &table::POOL_LARGEST,
            pools().flat_map(|pool| families(&pool.name, pool.largest_ipv4, pool.largest_ipv6)),
        )?;
        let limits = |pool: &PoolView| {
            let limits = [("IPv4", pool.limit_ipv4), ("IPv6", pool.limit_ipv6)];
            limits.map(|(family, limit)| Some((labels([&pool.name, &family]), limit?)))
        };
        page.gauge(&table::POOL_LIMIT, pools().flat_map(limits).flatten())?;
        self.allocator(page)
    }

    /// The same under the names by which alerts on MetalLB's controller know it.
    fn allocator(&self, page: &mut Page<'_>) -> fmt::Result {
        type Of = fn(&PoolView) -> u64;
        let counted: [(&Metric, &Metric, Of, Of); 3] = [
            (
                &table::ALLOCATOR_TOTAL,
                &table::ALLOCATOR_USED,
                |pool| pool.assigned_ipv4.saturating_add(pool.assigned_ipv6),
                |pool| pool.available_ipv4.saturating_add(pool.available_ipv6),
            ),
            (
                &table::ALLOCATOR_TOTAL_V4,
                &table::ALLOCATOR_USED_V4,
                |pool| pool.assigned_ipv4,
                |pool| pool.available_ipv4,
            ),
            (
                &table::ALLOCATOR_TOTAL_V6,
                &table::ALLOCATOR_USED_V6,
                |pool| pool.assigned_ipv6,
                |pool| pool.available_ipv6,
            ),
        ];
        let named = |pool: &PoolView, count: u64| (labels([&pool.name]), count);
        for (total, used, assigned, available) in counted {
            let pools = || self.view.pools.iter();
            let all = |pool| u64::saturating_add(assigned(pool), available(pool));
            page.gauge(total, pools().map(|pool| named(pool, all(pool))))?;
            page.gauge(used, pools().map(|pool| named(pool, assigned(pool))))?;
        }
        Ok(())
    }

    fn engine(&self, page: &mut Page<'_>) -> fmt::Result {
        let by_name = |counts: &BTreeMap<String, u64>| -> Vec<(Labels, u64)> {
            counts
                .iter()
                .map(|(name, count)| (labels([name]), *count))
                .collect()
        };
        page.histogram(&table::RECONCILE, &self.engine.reconcile_seconds)?;
        page.series(&table::RECONCILES, by_name(&self.engine.reconciles))?;
        page.one(&table::QUEUED, self.engine.queued)?;
        let suppressed = [
            ("aggregated", self.engine.events_aggregated),
            ("dropped", self.engine.events_dropped),
        ];
        let suppressed = suppressed.map(|(how, count)| (labels([&how]), count));
        page.series(&table::EVENTS_SUPPRESSED, suppressed)?;
        page.one(&table::TURNS, self.engine.turns)?;
        page.one(&table::REWRITES, self.engine.status_rewrites)?;
        page.series(&table::STEPS, by_name(&self.engine.steps))?;
        page.series(&table::STEPS_FAILED, by_name(&self.engine.failed_steps))?;
        self.clouds(page)?;
        if let Some(secrets) = &self.engine.secrets {
            page.one(&table::SECRETS, secrets.watched)?;
            page.one(&table::SECRETS_LIMIT, secrets.limit)?;
            page.one(&table::SECRETS_REFUSED, secrets.refused)?;
        }
        if let Some(resources) = &self.engine.resources {
            for (metric, value) in [
                (&table::WORKERS, resources.workers),
                (&table::DESCRIPTORS, resources.descriptors),
                (&table::DESCRIPTOR_LIMIT, resources.descriptor_limit),
                (&table::LISTENER_SOCKETS, resources.listener_sockets),
                (&table::FLOWS, resources.flows),
                (&table::FLOW_LIMIT, resources.flow_limit),
                (&table::BUFFER_MEMORY, resources.memory),
                (&table::BUFFER_MEMORY_LIMIT, resources.memory_limit),
                (&table::CHECKS, resources.checks),
                (&table::CHECKS_DELAYED, resources.delayed_checks),
                (&table::CHECKS_WAITING, resources.waiting_checks),
                (&table::SHORTAGES, resources.shortages),
                (&table::OVERLOADED, u64::from(resources.overloaded)),
                (&table::ACCESS_LOG_LOST, resources.lost_access_log_lines),
                (
                    &table::ACCESS_LOG_LEFT_OUT,
                    resources.left_out_access_log_lines,
                ),
            ] {
                page.one(metric, value)?;
            }
        }
        self.speaker(page)?;
        if !self.view.peers.is_empty() {
            routers(page, &self.view.peers)?;
        }
        page.one(&table::LOG_LOST, self.engine.lost_log_lines)?;
        page.one(&table::LOG_LEFT_OUT, self.engine.left_out_log_lines)
    }

    fn speaker(&self, page: &mut Page<'_>) -> fmt::Result {
        let Some(speaker) = &self.engine.speaker else {
            return Ok(());
        };
        let announced = speaker.announces.iter();
        let announced = announced.map(|it| {
            let labels = labels([&it.service, &it.protocol, &it.node, &it.address]);
            (labels, 1)
        });
        page.gauge(&table::SPEAKER_ANNOUNCED, announced)?;
        for (metric, value) in [
            (&table::SPEAKER_FAILING, speaker.failing),
            (&table::SPEAKER_MEMBERS, speaker.members),
            (&table::SPEAKER_DIED, speaker.members_died),
            (&table::SPEAKER_SUSPICIONS, speaker.suspicions),
            (&table::SPEAKER_REFUTED, speaker.refuted),
            (&table::SPEAKER_PAUSES, speaker.pauses),
        ] {
            page.one(metric, value)?;
        }
        let refused = speaker.datagrams_refused.iter();
        page.series(
            &table::SPEAKER_REFUSED,
            refused.map(|(reason, count)| (labels([reason]), *count)),
        )
    }

    fn clouds(&self, page: &mut Page<'_>) -> fmt::Result {
        let calls = || self.engine.cloud_calls.iter();
        let of =
            |it: &CloudCallsView| labels([&it.instance, &it.method, &it.resource, &it.outcome]);
        page.series(
            &table::CLOUD_CALLS,
            calls().map(|it| (of(it), it.times.count)),
        )?;
        let all = |it: &CloudCallsView| labels([&it.instance, &it.method, &it.resource]);
        page.histograms(&table::CLOUD_TIME, calls().map(|it| (all(it), &it.times)))
    }
}

/// The sessions with routers.
fn routers(page: &mut Page<'_>, peers: &[PeerView]) -> fmt::Result {
    let peer = |it: &PeerView| format!("{}:{}", it.address, it.port);
    let vrf = |it: &PeerView| it.vrf.clone().unwrap_or_default();
    let of = |it: &PeerView| labels([&peer(it), &vrf(it)]);
    let is_up = |it: &PeerView| u64::from(it.state == "Established");
    let pending = |it: &PeerView| it.prefixes_wanted.saturating_sub(it.prefixes_sent);
    page.gauge(&table::BGP_UP, peers.iter().map(|it| (of(it), is_up(it))))?;
    let announced = peers.iter().map(|it| (of(it), it.prefixes_sent));
    page.gauge(&table::BGP_ANNOUNCED, announced)?;
    page.gauge(
        &table::BGP_PENDING,
        peers.iter().map(|it| (of(it), pending(it))),
    )?;
    let received = peers.iter().map(|it| (of(it), it.prefixes_received));
    page.series(&table::BGP_RECEIVED, received)?;
    let messages = peers.iter().flat_map(|it| {
        let all = &it.messages;
        let kinds = [
            ("sent", "open", all.opens_sent),
            ("sent", "update", all.updates_sent),
            ("sent", "keepalive", all.keepalives_sent),
            ("sent", "notification", all.notifications_sent),
            ("received", "open", all.opens_received),
            ("received", "update", all.updates_received),
            ("received", "keepalive", all.keepalives_received),
        ];
        kinds.map(|(way, kind, count)| (labels([&peer(it), &vrf(it), &way, &kind]), count))
    });
    page.series(&table::BGP_MESSAGES, messages)?;
    let watched = || {
        peers
            .iter()
            .filter_map(|it| Some((of(it), it.bfd.as_ref()?)))
    };
    let up = watched().map(|(labels, bfd)| (labels, u64::from(bfd.state == "Up")));
    page.gauge(&table::BFD_UP, up)?;
    let downs = watched().map(|(labels, bfd)| (labels, bfd.downs));
    page.series(&table::BFD_DOWNS, downs)
}

fn labels<const N: usize>(values: [&dyn fmt::Display; N]) -> Labels {
    values.iter().map(ToString::to_string).collect()
}

fn of_service(service: &ServiceView) -> Labels {
    labels([&service.key.namespace(), &service.key.name()])
}

fn of_listener(service: &ServiceView, listener: &ListenerView) -> Labels {
    let mut labels = of_service(service);
    labels.push(listener.key.to_string());
    labels
}

fn reasons<'a>(
    reasons: impl IntoIterator<Item = &'a Reason>,
) -> impl Iterator<Item = (Labels, u64)> {
    let reasons = reasons.into_iter();
    reasons.map(|reason| (labels([&reason.code, &reason.severity]), 1))
}

fn holds(service: &ServiceView, kind: ConditionType) -> bool {
    let condition = service.status.condition(kind);
    condition.is_some_and(|condition| condition.status)
}
