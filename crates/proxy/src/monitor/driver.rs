//! Carries out the checks of live listeners: one task per listener that follows its configuration,
//! asks the state machine what to check, and reports the results to the pool. Runs on the control
//! plane's runtime, never on a worker's.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use landfall_model::listener::Monitor;
use tokio::runtime::Handle;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::check::{Question, check};
use super::failure::{Failure, Sign};
use super::fsm::{Change, Order, Schedule, Timing, Transition, Verdict};
use super::turns::{Counts, Turns};
use crate::listener::{ListenerConfig, ListenerState};
use crate::pool::Health;

/// A shorter delay is taken as this one, whatever the configuration says.
const MIN_DELAY: Duration = Duration::from_millis(10);

/// A longer one as this.
const MAX_DELAY: Duration = Duration::from_secs(24 * 3600);

/// A longer timeout as this: a check holds a place that others wait for.
const MAX_TIMEOUT: Duration = Duration::from_secs(60);

/// The monitors of all listeners. A bounded number of checks runs at the same time, and begins in a
/// second. Others wait, and namespaces and Services have turns; the timeout of a check counts from
/// its turn.
#[derive(Debug)]
pub struct Monitors {
    runtime: Handle,
    turns: Turns,
    tasks: TaskTracker,
    stop: CancellationToken,
}

struct Watch {
    listener: Arc<ListenerState>,
    turns: Turns,
    running: JoinSet<(Order, Result<Sign, Failure>)>,
    /// The check of each member that has one under way, or waiting for its turn.
    checks: HashMap<SocketAddr, (u64, AbortHandle)>,
    active: Option<Active>,
}

struct Active {
    monitor: Monitor,
    question: Question,
    members: BTreeSet<SocketAddr>,
    schedule: Schedule,
}

// === impl Monitors ===

impl Monitors {
    /// Monitors that run on the given runtime until `stop` fires, with so many checks at the same
    /// time.
    pub fn new(runtime: Handle, stop: CancellationToken, checks: usize) -> Self {
        Self {
            turns: Turns::new(checks, runtime.clone()),
            runtime,
            tasks: TaskTracker::new(),
            stop,
        }
    }

    /// Checks the members of a listener from now on, as its configuration says at any time (which
    /// may be not at all), until the listener closes. Call once per listener.
    pub fn watch(&self, listener: Arc<ListenerState>) {
        let (turns, stop) = (self.turns.clone(), self.stop.clone());
        let watching = async move {
            if !becomes_monitored(&listener, &stop).await {
                return;
            }
            let watch = Watch {
                listener,
                turns,
                running: JoinSet::new(),
                checks: HashMap::new(),
                active: None,
            };
            // Apart: most listeners have no monitor, and need no room for one.
            Box::pin(watch.run(stop)).await;
        };
        self.tasks.spawn_on(watching, &self.runtime);
    }

    /// What all of them did until now.
    pub fn counts(&self) -> Counts {
        self.turns.counts()
    }

    /// Completes when `stop` has fired and every check has ended.
    pub async fn stopped(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Waits until a listener has a monitor; false once it closes or `stop` fires.
async fn becomes_monitored(listener: &ListenerState, stop: &CancellationToken) -> bool {
    let mut revision = listener.revision();
    loop {
        if listener.config().listener.pool.monitor.is_some() {
            return true;
        }
        // Each branch is cancel safe.
        tokio::select! {
            () = stop.cancelled() => return false,
            () = listener.closing().cancelled() => return false,
            changed = revision.changed() => if changed.is_err() {
                return false;
            },
        }
    }
}

// === impl Watch ===

impl Watch {
    async fn run(mut self, stop: CancellationToken) {
        let mut revision = self.listener.revision();
        let closing = self.listener.closing().clone();
        self.follow_configuration();
        loop {
            self.begin_due();
            let deadline = self
                .active
                .as_ref()
                .and_then(|active| active.schedule.next_deadline());
            let pause = deadline.map(|at| tokio::time::sleep_until(Instant::from_std(at)));
            // Each branch is cancel safe: nothing is taken from a queue before its branch is
            // chosen.
            tokio::select! {
                () = stop.cancelled() => return,
                () = closing.cancelled() => return,
                changed = revision.changed() => match changed {
                    Ok(()) => self.follow_configuration(),
                    Err(_) => return,
                },
                Some(finished) = self.running.join_next() => {
                    if let Ok((order, result)) = finished {
                        self.take(order, &result);
                    }
                },
                () = async { if let Some(pause) = pause { pause.await } },
                    if deadline.is_some() => {},
            }
        }
    }

    fn follow_configuration(&mut self) {
        let config = self.listener.config_full();
        let pool = &config.listener.pool;
        let members: BTreeSet<_> = pool.members.iter().map(|member| member.address).collect();
        let now = Instant::now().into_std();
        match (&pool.monitor, self.active.take()) {
            (Some(monitor), None) => {
                self.active = Some(Active {
                    question: question(&config, monitor),
                    schedule: Schedule::start(timing(monitor), members.iter().copied(), now),
                    monitor: monitor.clone(),
                    members,
                });
            }
            (Some(monitor), Some(mut active)) => {
                let question = question(&config, monitor);
                let restarts = active.question != question;
                if restarts || active.monitor != *monitor || active.members != members {
                    let change = if restarts {
                        Change::Question
                    } else {
                        Change::TimingOnly
                    };
                    active
                        .schedule
                        .update(timing(monitor), change, members.iter().copied(), now);
                    active.monitor.clone_from(monitor);
                    active.question = question;
                    active.members = members;
                    self.end_checks(|member| restarts || !active.members.contains(member));
                }
                self.active = Some(active);
            }
            (None, Some(_)) => {
                // The pool takes unmonitored members as up. What was found out must not come back
                // to life when a monitor does.
                self.end_checks(|_| true);
                for member in members {
                    self.listener.pool().set_health(member, Health::Unknown, "");
                }
            }
            (None, None) => {}
        }
    }

    fn begin_due(&mut self) {
        let Some(active) = &mut self.active else {
            return;
        };
        for order in active.schedule.due(Instant::now().into_std()) {
            let (turns, owner) = (self.turns.clone(), self.listener.owner().clone());
            let question = active.question.clone();
            let limit = active.monitor.timeout.min(MAX_TIMEOUT);
            let mut target = order.member;
            if let Some(port) = active.question.port {
                target.set_port(port.get());
            }
            let check = self.running.spawn(async move {
                let _turn = turns.take(&owner).await;
                (order, check(&question, target, limit).await)
            });
            self.checks.insert(order.member, (order.ticket, check));
        }
    }

    /// Ends the checks of these members: they ask what is not asked any more, and may wait for
    /// their turn for long.
    fn end_checks(&mut self, of: impl Fn(&SocketAddr) -> bool) {
        let ended = self.checks.extract_if(|member, _| of(member));
        ended.for_each(|(_, (_, check))| check.abort());
    }

    fn take(&mut self, order: Order, result: &Result<Sign, Failure>) {
        let check = self.checks.get(&order.member);
        if check.is_some_and(|(ticket, _)| *ticket == order.ticket) {
            self.checks.remove(&order.member);
        }
        let Some(active) = &mut self.active else {
            return;
        };
        if !active.schedule.awaits(order) {
            return;
        }
        let (verdict, words) = match result {
            Ok(sign) => (Verdict::Good, sign.to_string()),
            Err(failure) => (failure.verdict(), failure.to_string()),
        };
        let transition = active
            .schedule
            .finished(order, verdict, Instant::now().into_std());
        if let Some(health) = active.schedule.health(order.member) {
            self.listener
                .pool()
                .set_health(order.member, health, &words);
        }
        if let Some(transition) = transition {
            self.report(order.member, transition, &words);
        }
    }

    fn report(&self, member: SocketAddr, transition: Transition, cause: &str) {
        let (service, listener) = (self.listener.owner(), self.listener.id());
        match transition.to {
            Health::Down => {
                tracing::warn!(%service, %listener, %member, cause, "member is down");
            }
            Health::Up | Health::Unknown => {
                tracing::info!(%service, %listener, %member, cause, "member is up");
            }
        }
    }
}

fn timing(monitor: &Monitor) -> Timing {
    Timing {
        delay: monitor.delay.clamp(MIN_DELAY, MAX_DELAY),
        max_retries: monitor.max_retries,
        max_retries_down: monitor.max_retries_down,
    }
}

fn question(config: &ListenerConfig, monitor: &Monitor) -> Question {
    let listener = &config.listener;
    Question {
        check: monitor.check.clone(),
        tls: monitor.tls.then(|| config.toward_members.clone().into()),
        host: monitor.host.clone(),
        body: monitor.body.clone(),
        http2: listener.mode.http().is_some_and(|http| http.member_http2),
        // What answers on another port is not known to expect it.
        introduce: monitor
            .port
            .is_none()
            .then_some(listener.pool.proxy_protocol)
            .flatten(),
        port: monitor.port,
    }
}

#[cfg(test)]
mod tests;
