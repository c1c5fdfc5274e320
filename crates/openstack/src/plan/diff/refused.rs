//! What becomes of changes that were refused when they were last tried: they are left out, with
//! what rests on them, or come last; and what serves follows the nodes. Pure.

use landfall_model::Reason;
use landfall_model::plan::{Plan, Planned};

use super::{Diff, same_port};
use crate::graph::key_of;
use crate::objects::{Listener, Member, Pool};
use crate::plan::members;
use crate::refusal::{Refusal, of_members};
use crate::step::Step;
use crate::target::{WantedListener, WantedPool};

/// What is to be done of what was refused, and what was said of it.
#[derive(Default)]
pub(super) struct Sorted {
    pub(super) last: Plan<Step>,
    pub(super) held: Vec<Reason>,
}

// === impl Diff ===

impl Diff<'_> {
    /// Whether a listener stays although no port of the Service is its own: the port has another
    /// number by now, and the listener that shall serve it there was refused. Nodes are followed.
    pub(super) fn stands_in(
        &self,
        listener: &Listener,
        wanted: &[WantedListener],
        sorted: &mut Sorted,
        plan: &mut Plan<Step>,
    ) -> bool {
        let Some(pool) = self.graph.pool_of(listener) else {
            return false;
        };
        let next = wanted.iter().find(|it| {
            self.there(it).is_none()
                && self
                    .inherited(it, wanted)
                    .is_some_and(|it| it.id == pool.id)
        });
        let refused = next.filter(|it| {
            let step = Step::CreateListener {
                load_balancer: self.lb(),
                listener: (*it).clone(),
                pool: None,
            };
            self.refusals.of(&step).is_some()
        });
        let Some(next) = refused else { return false };
        self.follow_in(pool, next, sorted, plan);
        true
    }

    /// Sorts changes that rest on each other by what became of them when they were last tried:
    /// those of one listener, or deletions.
    pub(super) fn sort_out(
        &self,
        wanted: Option<&WantedListener>,
        changes: Plan<Step>,
        plan: &mut Plan<Step>,
        sorted: &mut Sorted,
    ) {
        let serving = wanted.and_then(|it| self.serving_pool(it));
        let mut steps = changes.steps.into_iter();
        while let Some(planned) = steps.next() {
            let Some(refusal) = self.refusals.of(&planned.step) else {
                plan.steps.push(planned);
                continue;
            };
            let (due, rests) = (refusal.due, is_needed(&planned.step, serving));
            sorted.refused(planned, refusal);
            let Some(wanted) = wanted.filter(|_| rests) else {
                continue;
            };
            if let Some(pool) = serving {
                self.follow_in(pool, wanted, sorted, plan);
            }
            if due {
                sorted.last.steps.extend(steps);
            }
            return;
        }
    }

    /// Appends the changes that let what is there go on serving as nodes come and go, where nothing
    /// else may change.
    pub(crate) fn follow(&self, wanted: &[WantedListener], plan: &mut Plan<Step>) {
        let mut sorted = Sorted::default();
        for it in wanted {
            if let Some(pool) = self.serving_pool(it) {
                self.follow_in(pool, it, &mut sorted, plan);
            }
        }
        plan.steps.extend(sorted.last.steps);
    }

    /// Lets what serves a port follow the nodes, as it is.
    pub(super) fn stay(&self, wanted: &WantedListener, plan: &mut Plan<Step>, sorted: &mut Sorted) {
        if let Some(pool) = self.serving_pool(wanted) {
            self.follow_in(pool, wanted, sorted, plan);
        }
    }

    fn follow_in(
        &self,
        pool: &Pool,
        wanted: &WantedListener,
        sorted: &mut Sorted,
        plan: &mut Plan<Step>,
    ) {
        for planned in self.following(pool, wanted).steps {
            match self.refusals.of(&planned.step) {
                Some(refusal) => sorted.refused(planned, refusal),
                None => plan.steps.push(planned),
            }
        }
    }

    /// The changes of members by which a pool that serves follows the nodes, as it is.
    pub(super) fn following(&self, pool: &Pool, wanted: &WantedListener) -> Plan<Step> {
        let there = self.graph.members_of(pool);
        // Pods in the place of nodes, or nodes in that of pods, are what can't be had for now.
        let have_predecessors = members::predecessors(&wanted.pool, there).next().is_some();
        if have_predecessors || self.is_theirs(pool) {
            return Plan::default();
        }
        let wanted = as_there(&wanted.pool, there);
        let mut changes = Plan::default();
        members::plan(self.writer(&pool.id, &wanted), &wanted, there, &mut changes);
        changes
    }

    /// The pool that serves the port of a listener now.
    fn serving_pool(&self, wanted: &WantedListener) -> Option<&Pool> {
        let listener = self.serving().find(|it| same_port(wanted, it))?;
        self.graph.pool_of(listener)
    }
}

// === impl Sorted ===

impl Sorted {
    /// Puts a change that was refused last, when it is time for it; until then it is left out.
    fn refused(&mut self, planned: Planned<Step>, refusal: &Refusal) {
        if refusal.due {
            self.last.steps.push(planned);
        } else if !self.held.contains(&refusal.reason) {
            self.held.push(refusal.reason.clone());
        }
    }
}

/// Whether what follows a change of a listener can't be done without it: what is changed can be
/// left as it is; on what is made, filled, led elsewhere or taken away rests what follows.
/// `serving` is the pool that has the listener's clients now.
fn is_needed(step: &Step, serving: Option<&Pool>) -> bool {
    match step {
        Step::TryListener { .. }
        | Step::CreateListener { .. }
        | Step::DeleteListener { .. }
        | Step::CreatePool { .. }
        | Step::DeleteMonitor { .. } => true,
        Step::UpdateListener { changes, .. } => changes.default_pool_id.is_some(),
        _ => of_members(step).is_some_and(|(pool, _)| serving.is_none_or(|it| it.id != *pool)),
    }
}

/// The pool with other members, but with these as they are, and new ones as the others.
fn as_there(wanted: &WantedPool, there: &[Member]) -> WantedPool {
    let mut wanted = wanted.clone();
    for (key, member) in &mut wanted.members {
        let like = there.iter().find(|it| key_of(it) == Some(*key));
        let like = like.or(there.first());
        if let Some(like) = like {
            member.subnet.clone_from(&like.subnet_id);
            member.monitor_port = like.monitor_port;
        }
        // The weight of a pod says whether it is shutting down.
        if !wanted.pods {
            member.weight = None;
        }
        member.backup = None;
    }
    wanted
}
