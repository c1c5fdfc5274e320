//! The graph that is wanted against the one that is there: the changes of listeners, pools, members
//! and monitors, in the order in which they are safe. Pure.
//!
//! Octavia takes one change of a load balancer at a time, so that only the first step of these is
//! carried out before the next look. An id that is not known yet is written `new`.

mod listeners;
mod pools;
mod refused;

use landfall_model::plan::Plan;
use landfall_model::{Code, Reason};

use crate::features::Features;
use crate::graph::Graph;
use crate::names::{Names, SERVICE_PREFIX, TRIED_PREFIX, cut};
use crate::objects::{Id, Listener, LoadBalancer, Pool, Provisioning};
use crate::refusal::Refusals;
use crate::requests::ListenerRequest;
use crate::step::Step;
use crate::target::WantedListener;
use listeners::with_tags;
use refused::Sorted;

pub(crate) use listeners::{listener_changes, same_port};

/// What the changes are made from.
#[derive(Clone, Copy)]
pub(crate) struct Diff<'a> {
    pub(crate) balancer: &'a LoadBalancer,
    pub(crate) owner: bool,
    pub(crate) names: &'a Names,
    pub(crate) features: Features,
    pub(crate) body_limit: usize,
    /// Members are added and taken out one by one.
    pub(crate) serial: bool,
    /// Members of another kind than is wanted stay.
    pub(crate) keep: bool,
    /// Writes that were refused.
    pub(crate) refusals: &'a Refusals,
    pub(crate) graph: &'a Graph,
}

/// An object that is not there yet.
fn new() -> Id {
    Id::new("new")
}

// === impl Diff ===

impl Diff<'_> {
    /// Appends the changes that make the graph serve these listeners, and no others of ours. What
    /// was refused is tried again last, when it is time; until then it is left out, with what rests
    /// on it. Returns what was said of it.
    ///
    /// # Errors
    /// A port has another owner.
    pub(crate) fn plan(
        &self,
        wanted: &[WantedListener],
        plan: &mut Plan<Step>,
    ) -> Result<Vec<Reason>, Vec<Reason>> {
        let taken: Vec<Reason> = wanted.iter().filter_map(|it| self.taken(it)).collect();
        if !taken.is_empty() {
            return Err(taken);
        }
        let mut kept = Vec::new();
        let mut sorted = Sorted::default();
        let pending = wanted.iter().any(|it| it.pending);
        for it in wanted {
            if it.pending {
                self.stay(it, plan, &mut sorted);
                continue;
            }
            let mut changes = Plan::default();
            match self.there(it) {
                Some(listener) => self.change(listener, it, wanted, &mut changes),
                None => match self.serving().find(|listener| same_port(it, listener)) {
                    Some(listener) => self.replace(listener, it, wanted, &mut changes),
                    None => self.create(it, wanted, &mut kept, &mut changes),
                },
            }
            self.sort_out(Some(it), changes, plan, &mut sorted);
        }
        // What serves stays until it is known what takes its place.
        for listener in self.ours().filter(|_| !pending) {
            let needed = if is_tried(listener) {
                wanted.iter().any(|it| self.makes_way_for(it, listener))
            } else {
                wanted.iter().any(|it| same_port(it, listener))
                    || self.stands_in(listener, wanted, &mut sorted, plan)
            };
            if !needed {
                let mut changes = Plan::default();
                let because = "no port of the Service needs it";
                self.delete(listener, &kept, because, &mut changes);
                self.sort_out(None, changes, plan, &mut sorted);
            }
        }
        let mut left_over = Plan::default();
        if !pending {
            self.delete_left_over(wanted, &mut left_over);
        }
        self.sort_out(None, left_over, plan, &mut sorted);
        plan.steps.extend(sorted.last.steps);
        Ok(sorted.held)
    }

    /// Appends the deletion of everything that is the Service's on a load balancer that stays.
    pub(crate) fn leave(&self, plan: &mut Plan<Step>) {
        for listener in self.ours() {
            self.delete(listener, &[], "the Service leaves the load balancer", plan);
        }
        self.delete_left_over(&[], plan);
    }

    fn ours(&self) -> impl Iterator<Item = &Listener> {
        self.graph.listeners.iter().filter(|it| self.is_ours(it))
    }

    /// Returns ours, without those that are only tried.
    fn serving(&self) -> impl Iterator<Item = &Listener> {
        self.ours().filter(|it| !is_tried(it))
    }

    /// Returns the listener that shows that the cloud takes this one.
    fn tried(&self, wanted: &WantedListener) -> Option<&Listener> {
        let name = tried_name(wanted);
        self.ours().find(|it| {
            it.name == name
                && it.protocol == wanted.protocol
                && it.default_tls_container_ref == wanted.tls
                && it.provisioning_status != Provisioning::Error
        })
    }

    /// Whether a listener that is only tried shows that this one is taken, which has yet to take
    /// another's place.
    fn makes_way_for(&self, wanted: &WantedListener, tried: &Listener) -> bool {
        let replaces = || {
            let mut there = self.serving().filter(|it| same_port(wanted, it));
            there.any(|it| it.protocol != wanted.protocol)
        };
        self.tried(wanted).is_some_and(|it| it.id == tried.id) && replaces()
    }

    /// Returns a port that no listener has, or is to have.
    fn free_port(&self, all: &[WantedListener]) -> Option<u16> {
        let free = |port: &u16| {
            let taken = |it: &Listener| it.protocol_port == *port;
            !self.graph.listeners.iter().any(taken) && !all.iter().any(|it| it.port == *port)
        };
        (1024..=u16::MAX).rev().find(free)
    }

    /// It has our tag; or no tag at all, on a load balancer that is ours.
    pub(crate) fn is_ours(&self, listener: &Listener) -> bool {
        let mut tags = listener
            .tags
            .iter()
            .filter(|tag| !tag.is_empty())
            .peekable();
        if !self.features.tags() || tags.peek().is_none() {
            return self.owner;
        }
        // On one of our own whose name is an older one, that name is our tag.
        let old = &self.balancer.name;
        if listener.tags.contains(&self.names.load_balancer)
            || (self.owner && listener.tags.contains(old))
        {
            return true;
        }
        // Tags that a user put on a listener of ours do not give it another owner.
        let without_owner = !tags.any(|tag| tag.starts_with(SERVICE_PREFIX));
        self.owner && without_owner && listener.name.ends_with(&self.names.load_balancer)
    }

    fn there(&self, wanted: &WantedListener) -> Option<&Listener> {
        self.serving()
            .find(|it| same_port(wanted, it) && it.protocol == wanted.protocol)
    }

    fn taken(&self, wanted: &WantedListener) -> Option<Reason> {
        let mut others = self.graph.listeners.iter();
        let other = others.find(|it| same_port(wanted, it) && !self.is_ours(it))?;
        let mut tags = other.tags.iter();
        let whose = tags.find(|tag| tag.starts_with(SERVICE_PREFIX));
        let whose = whose.map_or_else(
            || format!("a listener without an owner ({})", other.id),
            |tag| format!("the Service of the tag {tag}"),
        );
        Some(
            Reason::error(
                Code::ConflictingOptions,
                format!(
                    "port {}/{} of load balancer {} is in use by {whose}",
                    wanted.port, wanted.transport, self.balancer.id
                ),
            )
            .at("spec.ports")
            .remedy("choose another port, or another load balancer"),
        )
    }

    fn lb(&self) -> Id {
        self.balancer.id.clone()
    }

    /// A new listener. Where only the port's number changed, it is served by the pool of the old
    /// one at once.
    fn create(
        &self,
        wanted: &WantedListener,
        all: &[WantedListener],
        kept: &mut Vec<Id>,
        plan: &mut Plan<Step>,
    ) {
        if let Some(pool) = self
            .inherited(wanted, all)
            .filter(|pool| !kept.contains(&pool.id))
        {
            kept.push(pool.id.clone());
            let step = Step::CreateListener {
                load_balancer: self.lb(),
                listener: wanted.clone(),
                pool: Some(pool.id.clone()),
            };
            plan.push(step, "the port of the Service has another number");
            self.change_pool(pool, &wanted.pool, plan);
            return;
        }
        if let Some(pool) = self.waiting_pool(&wanted.pool) {
            let step = Step::CreateListener {
                load_balancer: self.lb(),
                listener: wanted.clone(),
                pool: Some(pool.id.clone()),
            };
            plan.push(step, "a pool waits for the listener");
            self.change_pool(pool, &wanted.pool, plan);
            return;
        }
        plan.push(
            Step::CreateListener {
                load_balancer: self.lb(),
                listener: wanted.clone(),
                pool: None,
            },
            "the Service has the port, and no listener serves it",
        );
        let pool = Step::CreatePool {
            load_balancer: self.lb(),
            listener: Some(new()),
            pool: wanted.pool.clone(),
        };
        plan.push(pool, "the listener needs a pool");
        self.fill(&new(), &wanted.pool, plan);
    }

    /// A listener can't change its protocol, and two of one transport protocol can't have one port,
    /// not even for a moment. Whether the cloud takes the next one is tried at another port first,
    /// for a certificate may be none; then its pool is filled before the old one goes, so that the
    /// port is closed for one change.
    fn replace(
        &self,
        old: &Listener,
        wanted: &WantedListener,
        all: &[WantedListener],
        plan: &mut Plan<Step>,
    ) {
        if self.tried(wanted).is_none()
            && let Some(port) = self.free_port(all)
        {
            if let Some(pool) = self.graph.pool_of(old) {
                plan.steps.extend(self.following(pool, wanted).steps);
            }
            let step = Step::TryListener {
                load_balancer: self.lb(),
                listener: WantedListener {
                    name: tried_name(wanted),
                    port,
                    ..wanted.clone()
                },
            };
            let because = format!(
                "the {} listener at port {} stays until the next one is accepted",
                old.protocol, wanted.port
            );
            plan.push(step, because);
        }
        let serving = self.graph.pool_of(old);
        let stays = serving
            .filter(|pool| self.keeps(pool, wanted).is_some() && !self.is_lent(pool, old, all));
        let next = if let Some(pool) = stays.or_else(|| self.waiting_pool(&wanted.pool)) {
            self.change_pool(pool, &wanted.pool, plan);
            pool.id.clone()
        } else {
            let step = Step::CreatePool {
                load_balancer: self.lb(),
                listener: None,
                pool: wanted.pool.clone(),
            };
            plan.push(step, "the next listener needs a pool");
            self.fill(&new(), &wanted.pool, plan);
            new()
        };
        let because = format!("the listener is {}, and can't change that", old.protocol);
        let step = Step::DeleteListener {
            load_balancer: self.lb(),
            listener: old.id.clone(),
        };
        plan.push(step, because);
        let step = Step::CreateListener {
            load_balancer: self.lb(),
            listener: wanted.clone(),
            pool: Some(next),
        };
        plan.push(step, format!("the port is {} now", wanted.protocol));
        if let Some(pool) = serving.filter(|_| stays.is_none())
            && self.may_go(pool, old)
        {
            self.delete_pool(pool, "another pool serves the port", plan);
        }
    }

    /// Another listener that is wanted, too, has the pool and keeps it: the spec changed
    /// between two steps. Of those that share a pool each wants it its own way, so all but the
    /// first get another. A pool that was not made for the Service stays to others that it serves.
    fn is_lent(&self, pool: &Pool, to: &Listener, all: &[WantedListener]) -> bool {
        let mut keep = all.iter().filter_map(|it| self.keeps(pool, it));
        keep.any(|it| it.id < to.id) || self.is_theirs(pool)
    }

    /// The listener that is there for a wanted one, if the pool serves it and can go on doing so,
    /// be it behind the listener's replacement.
    fn keeps(&self, pool: &Pool, wanted: &WantedListener) -> Option<&Listener> {
        let listener = self
            .serving()
            .find(|listener| same_port(wanted, listener))?;
        let served = self.graph.pool_of(listener)?.id == pool.id;
        let stays = listener.protocol == wanted.protocol || pool.name == wanted.pool.name;
        (served && stays && pool.protocol == wanted.pool.protocol).then_some(listener)
    }

    /// The pool of a listener that goes, if it sends traffic to where the new one's shall.
    fn inherited(&self, wanted: &WantedListener, all: &[WantedListener]) -> Option<&Pool> {
        let node_port = wanted.pool.members.values().next()?.port;
        let mut going = self
            .serving()
            .filter(|it| it.protocol.transport() == wanted.transport)
            .filter(|it| !all.iter().any(|other| same_port(other, it)));
        going.find_map(|listener| {
            let pool = self.graph.pool_of(listener)?;
            let members = self.graph.members_of(pool);
            let same = pool.protocol == wanted.pool.protocol
                && !self.is_theirs(pool)
                && !all.iter().any(|it| self.keeps(pool, it).is_some())
                && !members.is_empty()
                && members
                    .iter()
                    .all(|member| member.protocol_port == node_port);
            same.then_some(pool)
        })
    }

    fn delete(&self, listener: &Listener, kept: &[Id], because: &str, plan: &mut Plan<Step>) {
        if let Some(pool) = self.graph.pool_of(listener)
            && self.may_go(pool, listener)
            && !kept.contains(&pool.id)
        {
            self.delete_pool(pool, because, plan);
        }
        plan.push(
            Step::DeleteListener {
                load_balancer: self.lb(),
                listener: listener.id.clone(),
            },
            because,
        );
    }

    fn change(
        &self,
        listener: &Listener,
        wanted: &WantedListener,
        all: &[WantedListener],
        plan: &mut Plan<Step>,
    ) {
        let mut changes = listener_changes(listener, wanted);
        let failed = listener.provisioning_status == Provisioning::Error;
        if failed && changes.is_empty() {
            changes.connection_limit = Some(wanted.connection_limit);
        }
        if !changes.is_empty() {
            let because = if failed {
                "Octavia failed to apply the last change"
            } else {
                "it differs from the Service"
            };
            plan.push(self.update(listener, changes), because);
        }
        match self.graph.pool_of(listener) {
            None => {
                let adopted = self.waiting_pool(&wanted.pool);
                if let Some(pool) = adopted {
                    self.serve_by(listener, pool, wanted, plan);
                    return;
                }
                let step = Step::CreatePool {
                    load_balancer: self.lb(),
                    listener: Some(listener.id.clone()),
                    pool: wanted.pool.clone(),
                };
                plan.push(step, "the listener has no pool");
                self.fill(&new(), &wanted.pool, plan);
            }
            Some(pool)
                if pool.protocol != wanted.pool.protocol || self.is_lent(pool, listener, all) =>
            {
                self.swap(listener, pool, wanted, plan);
            }
            Some(pool) => self.change_pool(pool, &wanted.pool, plan),
        }
    }

    fn update(&self, listener: &Listener, changes: ListenerRequest) -> Step {
        Step::UpdateListener {
            load_balancer: self.lb(),
            listener: listener.id.clone(),
            changes: Box::new(changes),
        }
    }
}

/// Whether members of another kind than is wanted are in a pool that serves.
pub(crate) fn has_predecessors(listeners: &[WantedListener], graph: &Graph) -> bool {
    let mut pools = listeners.iter().filter_map(|wanted| {
        let mut there = graph.listeners.iter();
        let listener = there.find(|listener| same_port(wanted, listener))?;
        Some((&wanted.pool, graph.pool_of(listener)?))
    });
    pools.any(|(wanted, pool)| {
        let mut left = super::members::predecessors(wanted, graph.members_of(pool));
        left.next().is_some()
    })
}

/// Returns the name under which a listener is tried.
fn tried_name(wanted: &WantedListener) -> String {
    cut(format!("{TRIED_PREFIX}{}", wanted.name))
}

/// Whether a listener is only tried. No Service controller gives such a name to one that serves.
fn is_tried(listener: &Listener) -> bool {
    listener.name.starts_with(TRIED_PREFIX)
}

#[cfg(test)]
mod tests;
