//! Pools and their monitors: which serve which listener, and what differs in them. Pure.

use landfall_model::plan::Plan;

use super::{Diff, new, with_tags};
use crate::names::{child_prefix, cut};
use crate::objects::{Id, Listener, PersistenceType, Pool, Provisioning};
use crate::plan::members::{self, Writer};
use crate::requests::{
    ListenerRequest, MonitorRequest, OrNull, PoolRequest, sticky as sticky_by_source,
};
use crate::step::Step;
use crate::target::{WantedListener, WantedMonitor, WantedPool};

impl Diff<'_> {
    /// Returns how the members of a pool are written.
    pub(super) fn writer<'a>(&'a self, pool: &'a Id, wanted: &WantedPool) -> Writer<'a> {
        Writer {
            load_balancer: &self.balancer.id,
            pool,
            additive: self.features.additive(),
            body_limit: self.body_limit,
            serial: self.serial,
            paced: wanted.pods && !self.features.ovn,
            keep: self.keep,
        }
    }

    /// Members and monitor of a pool that is empty.
    pub(super) fn fill(&self, pool: &Id, wanted: &WantedPool, plan: &mut Plan<Step>) {
        members::plan(self.writer(pool, wanted), wanted, &[], plan);
        if let Some(monitor) = &wanted.monitor {
            self.create_monitor(pool, monitor, plan);
        }
    }

    pub(super) fn create_monitor(&self, pool: &Id, monitor: &WantedMonitor, plan: &mut Plan<Step>) {
        plan.push(
            Step::CreateMonitor {
                load_balancer: self.lb(),
                pool: pool.clone(),
                monitor: monitor.clone(),
            },
            "the pool needs a monitor",
        );
    }

    pub(super) fn delete_pool(&self, pool: &Pool, because: &str, plan: &mut Plan<Step>) {
        plan.push(
            Step::DeletePool {
                load_balancer: self.lb(),
                pool: pool.id.clone(),
            },
            because,
        );
    }

    /// A pool can't change its protocol. The next one is made and filled beside it, so that the
    /// listener serves all the time.
    pub(super) fn swap(
        &self,
        listener: &Listener,
        old: &Pool,
        wanted: &WantedListener,
        plan: &mut Plan<Step>,
    ) {
        if let Some(next) = self.waiting_pool(&wanted.pool) {
            self.serve_by(listener, next, wanted, plan);
        } else {
            let step = Step::CreatePool {
                load_balancer: self.lb(),
                listener: None,
                pool: wanted.pool.clone(),
            };
            let because = if old.protocol == wanted.pool.protocol {
                "the pool serves another port, too".to_owned()
            } else {
                format!("the pool is {}, and can't change that", old.protocol)
            };
            plan.push(step, because);
            self.fill(&new(), &wanted.pool, plan);
            let changes = ListenerRequest {
                default_pool_id: Some(new()),
                ..ListenerRequest::default()
            };
            plan.push(
                self.update(listener, changes),
                "the next pool has its members",
            );
        }
        if self.may_go(old, listener) {
            self.delete_pool(old, "another pool serves the listener", plan);
        }
    }

    pub(super) fn serve_by(
        &self,
        listener: &Listener,
        pool: &Pool,
        wanted: &WantedListener,
        plan: &mut Plan<Step>,
    ) {
        self.change_pool(pool, &wanted.pool, plan);
        let changes = ListenerRequest {
            default_pool_id: Some(pool.id.clone()),
            ..ListenerRequest::default()
        };
        plan.push(
            self.update(listener, changes),
            "the next pool has its members",
        );
    }

    /// Whether a pool has a name that the Service gives.
    fn is_own(&self, pool: &Pool) -> bool {
        let before = child_prefix("pool", &pool.name);
        before.is_some_and(|it| cut(format!("{it}{}", self.names.load_balancer)) == pool.name)
    }

    /// Whether a pool that was not made for the Service serves a listener that is not the
    /// Service's, be it by an L7 policy: its members are another's.
    pub(super) fn is_theirs(&self, pool: &Pool) -> bool {
        let mut others = self.graph.listeners.iter().filter(|it| !self.is_ours(it));
        !self.is_own(pool) && others.any(|it| serves(pool, it))
    }

    /// Whether a pool can be deleted that no longer serves a listener of the Service's.
    pub(super) fn may_go(&self, pool: &Pool, without: &Listener) -> bool {
        let mut others = self.graph.listeners.iter();
        let is_used = others.any(|it| it.id != without.id && serves(pool, it));
        (self.owner || self.is_own(pool)) && !is_used
    }

    /// A pool of ours that serves no listener yet.
    pub(super) fn waiting_pool(&self, wanted: &WantedPool) -> Option<&Pool> {
        self.graph.pools.iter().find(|pool| {
            pool.name == wanted.name
                && pool.protocol == wanted.protocol
                && self.serves_no_service(pool)
        })
    }

    pub(super) fn serves_no_service(&self, pool: &Pool) -> bool {
        pool.listeners.is_empty()
            && !self
                .graph
                .listeners
                .iter()
                .any(|it| it.default_pool_id.as_ref() == Some(&pool.id))
    }

    /// Pools of ours that serve no listener, and that none is about to need.
    pub(super) fn delete_left_over(&self, wanted: &[WantedListener], plan: &mut Plan<Step>) {
        for pool in &self.graph.pools {
            let needed = wanted.iter().any(|it| {
                let served = self.there(it).is_some_and(|listener| {
                    let serving = self.graph.pool_of(listener);
                    serving.is_some_and(|serving| {
                        serving.protocol == it.pool.protocol
                            && !self.is_lent(serving, listener, wanted)
                    })
                });
                !served && it.pool.name == pool.name && it.pool.protocol == pool.protocol
            });
            if self.is_own(pool) && !needed && self.serves_no_service(pool) {
                self.delete_pool(pool, "it serves no listener", plan);
            }
        }
    }

    pub(super) fn change_pool(&self, pool: &Pool, wanted: &WantedPool, plan: &mut Plan<Step>) {
        let mut changes = PoolRequest {
            tags: with_tags(&pool.tags, &wanted.tags),
            ..PoolRequest::default()
        };
        let kind = pool.session_persistence.as_ref().map(|it| &it.kind);
        let sticky = kind == Some(&PersistenceType::SourceIp);
        if wanted.sticky && !sticky {
            changes.session_persistence = Some(OrNull::Set(sticky_by_source()));
        } else if sticky && !wanted.sticky {
            changes.session_persistence = Some(OrNull::Null);
        }
        let failed = pool.provisioning_status == Provisioning::Error;
        if failed && changes.is_empty() {
            changes.name = Some(pool.name.clone());
        }
        if !changes.is_empty() {
            let because = if failed {
                "Octavia failed to apply the last change"
            } else {
                "it differs from the Service"
            };
            plan.push(self.update_pool(pool, changes, false), because);
        }
        if pool.lb_algorithm != wanted.algorithm {
            let changes = PoolRequest {
                lb_algorithm: Some(wanted.algorithm.clone()),
                ..PoolRequest::default()
            };
            let step = self.update_pool(pool, changes, true);
            plan.push(step, format!("its algorithm is {}", pool.lb_algorithm));
        }
        // A monitor that is not to be there may not be able to check the members that come.
        let first = wanted.monitor.is_none() && wanted.pods;
        if first {
            self.change_monitor(pool, None, plan);
        }
        members::plan(
            self.writer(&pool.id, wanted),
            wanted,
            self.graph.members_of(pool),
            plan,
        );
        if !first {
            self.change_monitor(pool, wanted.monitor.as_ref(), plan);
        }
    }

    pub(super) fn update_pool(&self, pool: &Pool, changes: PoolRequest, lenient: bool) -> Step {
        Step::UpdatePool {
            load_balancer: self.lb(),
            pool: pool.id.clone(),
            changes: Box::new(changes),
            lenient,
        }
    }

    pub(super) fn change_monitor(
        &self,
        pool: &Pool,
        wanted: Option<&WantedMonitor>,
        plan: &mut Plan<Step>,
    ) {
        let delete = |monitor: Id| Step::DeleteMonitor {
            load_balancer: self.lb(),
            monitor,
        };
        let there = self.graph.monitor_of(pool);
        let Some(wanted) = wanted else {
            if let Some(id) = &pool.healthmonitor_id {
                plan.push(delete(id.clone()), "the Service needs no monitor");
            }
            return;
        };
        let Some(there) = there else {
            self.create_monitor(&pool.id, wanted, plan);
            return;
        };
        if there.kind != wanted.kind {
            plan.push(
                delete(there.id.clone()),
                format!("its type is {}, and can't change", there.kind),
            );
            self.create_monitor(&pool.id, wanted, plan);
            return;
        }
        let shall = MonitorRequest::new(wanted);
        let differs = |is: u64, shall: u64| (is != shall).then_some(shall);
        let retries = |is: u8, shall: u8| (is != shall).then_some(shall);
        let text = |is: &Option<String>, shall: Option<String>| {
            let same = *is == shall;
            shall.filter(|_| !same)
        };
        let mut changes = MonitorRequest {
            delay: differs(there.delay, wanted.delay),
            timeout: differs(there.timeout, wanted.timeout),
            max_retries: retries(there.max_retries, wanted.max_retries),
            max_retries_down: retries(there.max_retries_down.unwrap_or(3), wanted.max_retries_down),
            http_method: text(&there.http_method, shall.http_method),
            url_path: text(&there.url_path, shall.url_path),
            expected_codes: text(&there.expected_codes, shall.expected_codes),
            ..MonitorRequest::default()
        };
        if there.provisioning_status == Provisioning::Error && changes.is_empty() {
            changes.delay = Some(wanted.delay);
        }
        if !changes.is_empty() {
            let step = Step::UpdateMonitor {
                load_balancer: self.lb(),
                monitor: there.id.clone(),
                changes,
            };
            plan.push(step, "it differs from the Service");
        }
    }
}

fn serves(pool: &Pool, listener: &Listener) -> bool {
    listener.default_pool_id.as_ref() == Some(&pool.id)
        || pool.listeners.iter().any(|it| it.id == listener.id)
}
