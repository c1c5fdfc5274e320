//! The loop of a speaker: what happens comes in, is decided upon, and goes out to the announcer,
//! the other speakers and the status objects. It waits for none of them.

mod reports;
mod start;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use landfall_engine::follow::receive;
use landfall_engine::report::OwnReport;
use landfall_l2::driver::{Announcer, Report, View as Announced, Wanted};
use landfall_l2::election::Subnet;
use landfall_l2::fsm::State;
use landfall_l2::interfaces::{Exclusions, LinkTable, eligible};
use landfall_membership::driver::Membership;
use landfall_model::ServiceKey;
use landfall_model::rows::Fact;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::decide::Decider;
use crate::plane::Serves;
use crate::questions::{self, Question, Questions};
use crate::routing::Routing;
use crate::serve::ServingView;
use crate::status::Desired;
use crate::steady::{Part, Steadiness};

/// The time in which members find each other after a start. A node that announced at once would
/// take every address for its own.
pub const FIND: Duration = Duration::from_secs(1);

/// So long after it is known what to announce, a node asks whether other hosts have it. The rest
/// of [`FIND`] is enough for the answers.
pub const ASK: Duration = Duration::from_millis(600);

/// From one comparison with what other nodes have to the next.
pub const LOOK: Duration = Duration::from_secs(1);

/// What the loop is connected to.
#[derive(Debug)]
pub struct Parts<R> {
    /// The name of the node.
    pub node: Arc<str>,
    /// What is known of the cluster.
    pub facts: mpsc::Receiver<Fact>,
    /// The other speakers.
    pub membership: Membership,
    /// Their port.
    pub port: u16,
    /// What answers for addresses.
    pub announcer: Announcer,
    /// What happens to addresses.
    pub reports: mpsc::Receiver<Report>,
    /// Interfaces that never announce.
    pub exclusions: Exclusions,
    /// Where events go.
    pub reporter: Arc<R>,
}

/// What people see of a speaker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpeakerView {
    /// The cluster is known, and the members had time to find each other.
    pub is_ready: bool,
    /// This node has a session with some router, or is to have one.
    pub has_routers: bool,
    /// The other members.
    pub members: BTreeSet<Arc<str>>,
    /// The nodes of the cluster.
    pub nodes: Arc<BTreeSet<Arc<str>>>,
    /// This node is the first of those that run a speaker.
    pub is_first: bool,
    /// The addresses that this node announces, with the Services that hold them.
    pub announces: BTreeMap<IpAddr, Vec<ServiceKey>>,
    /// Addresses that this node is to announce and cannot, and why.
    pub failing: BTreeMap<IpAddr, &'static str>,
}

/// The loop.
#[derive(Debug)]
pub struct Speaker<R> {
    parts: Parts<R>,
    decider: Decider,
    announced: Arc<Announced>,
    wanted: Wanted,
    /// When the members have had time to find each other.
    found_at: Option<Instant>,
    ask_at: Option<Instant>,
    compare_at: Option<Instant>,
    is_ready: bool,
    /// Hosts that answered before this node took part.
    early: Vec<Report>,
    failing: BTreeMap<IpAddr, &'static str>,
    /// Addresses that this node announced from its start on, as it may have before: no news.
    initial: BTreeSet<IpAddr>,
    /// What is said of Services is to be compared again with what is there.
    is_to_compare: bool,
    /// The interfaces that announce.
    present: BTreeSet<String>,
    steadiness: Steadiness,
    /// What this node serves itself, if it does.
    serving: Option<watch::Receiver<Arc<ServingView>>>,
    /// What it serves, as of when that was taken last.
    served: Option<Arc<ServingView>>,
    /// Whether what delivers packets on this node works, if that is asked.
    healthy: Option<watch::Receiver<bool>>,
    desired: watch::Sender<Desired>,
    serves: watch::Sender<Arc<Serves>>,
    routing: watch::Sender<Option<Arc<Routing>>>,
    view: watch::Sender<Arc<SpeakerView>>,
    questions: mpsc::Receiver<Question>,
}

/// What follows from the decisions of the loop, for others to act upon.
#[derive(Debug)]
pub struct Outputs {
    /// What is to be said of Services.
    pub desired: watch::Receiver<Desired>,
    /// What this node is to serve itself.
    pub serves: watch::Receiver<Arc<Serves>>,
    /// What this node is to announce by BGP; `None` while not everything is known.
    pub routing: watch::Receiver<Option<Arc<Routing>>>,
    /// What people see.
    pub view: watch::Receiver<Arc<SpeakerView>>,
    /// Asks what is done for a Service.
    pub questions: Questions,
}

/// What woke the loop.
enum Woken {
    Stop,
    Facts(Vec<Fact>),
    Members,
    Links,
    Announced,
    Report(Report),
    Question(Question),
    Ask,
    Found,
    Look,
    /// What failed may be relied on again, or more fails.
    Steadiness,
    /// A part without which the node must not be elected.
    Ended(&'static str),
}

// === impl Speaker ===

impl<R: OwnReport> Speaker<R> {
    /// A loop that has not begun, and what will follow from it.
    pub fn new(parts: Parts<R>, decider: Decider) -> (Self, Outputs) {
        let (desired, wanted) = watch::channel(None);
        let (serving, served) = watch::channel(Arc::default());
        let (routing, routed) = watch::channel(None);
        let (view, seen) = watch::channel(Arc::default());
        let (asking, asked) = questions::channel();
        let speaker = Self {
            parts,
            decider,
            announced: Arc::default(),
            wanted: Wanted::default(),
            found_at: None,
            ask_at: None,
            compare_at: None,
            is_ready: false,
            early: Vec::new(),
            failing: BTreeMap::new(),
            initial: BTreeSet::new(),
            is_to_compare: false,
            present: BTreeSet::new(),
            steadiness: Steadiness::default(),
            serving: None,
            served: None,
            healthy: None,
            desired,
            serves: serving,
            routing,
            view,
            questions: asked,
        };
        let outputs = Outputs {
            desired: wanted,
            serves: served,
            routing: routed,
            view: seen,
            questions: asking,
        };
        (speaker, outputs)
    }

    /// The same, on a node that serves addresses itself: it gives way at those that it can't serve.
    #[must_use]
    pub fn beside(self, serving: Option<watch::Receiver<Arc<ServingView>>>) -> Self {
        Self { serving, ..self }
    }

    /// The same, on a node that announces nothing by BGP, and gives way at all addresses, while
    /// what delivers its packets does not work.
    #[must_use]
    pub fn while_healthy(self, healthy: Option<watch::Receiver<bool>>) -> Self {
        Self { healthy, ..self }
    }

    /// Runs until it is stopped, or the source or a part that the node can't do without has ended.
    /// Announcing and membership go on until their own tasks end.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut members = self.parts.membership.view();
        let mut links = self.parts.announcer.links();
        let mut announced = self.parts.announcer.view();
        let (mut serving, mut healthy) = (self.serving.clone(), self.healthy.clone());
        loop {
            let (ask, found, look) = (self.ask_at, self.found_at, self.compare_at);
            let steady = self.steadiness.next(now()).map(Into::into);
            // All branches are cancel-safe.
            let woken = tokio::select! {
                () = stop.cancelled() => Woken::Stop,
                facts = receive(&mut self.parts.facts) => facts.map_or(Woken::Stop, Woken::Facts),
                it = members.changed() => {
                    it.map_or(Woken::Ended("membership"), |()| Woken::Members)
                }
                it = links.changed() => it.map_or(Woken::Ended("announcing"), |()| Woken::Links),
                it = announced.changed() => {
                    it.map_or(Woken::Ended("announcing"), |()| Woken::Announced)
                }
                it = changed(&mut serving) => {
                    it.map_or(Woken::Ended("serving"), |()| Woken::Steadiness)
                }
                it = changed(&mut healthy) => {
                    it.map_or(Woken::Ended("the health check"), |()| Woken::Steadiness)
                }
                Some(report) = self.parts.reports.recv() => Woken::Report(report),
                Some(question) = self.questions.recv() => Woken::Question(question),
                () = until(ask) => Woken::Ask,
                () = until(found) => Woken::Found,
                () = until(look) => Woken::Look,
                () = until(steady) => Woken::Steadiness,
            };
            match woken {
                Woken::Stop => return,
                Woken::Ended(part) => {
                    // At a stop it ends before this loop.
                    info!(part, "the speaker ends with a part of it");
                    return;
                }
                Woken::Facts(facts) => self.take_facts(facts),
                Woken::Members => {
                    let members = Arc::clone(&members.borrow_and_update());
                    self.decider.take_members(members);
                    self.is_to_compare = true;
                }
                Woken::Links => {
                    let table = links.borrow_and_update().clone();
                    self.take_links(&table);
                }
                Woken::Announced => {
                    self.announced = Arc::clone(&announced.borrow_and_update());
                    self.decider.take_announced(&self.announced.addresses);
                }
                Woken::Report(report) if !self.is_ready => self.early.push(report),
                Woken::Report(report) => self.report(report).await,
                Woken::Steadiness => {}
                Woken::Question(Question { key, answer }) => {
                    // One that asked may have gone.
                    let _ = answer.send(self.decider.explain(&key, Some(&self.announced)));
                    continue;
                }
                Woken::Ask => {
                    self.ask_at = None;
                    self.wanted = self.decider.asks();
                    self.parts.announcer.set(self.wanted.clone());
                }
                Woken::Found => self.take_part().await,
                Woken::Look => {
                    self.compare_at = None;
                    self.decider.look();
                }
            }
            if self.compare_at.is_none() && self.is_ready && self.decider.is_unsettled() {
                self.compare_at = Some(Instant::now() + LOOK);
            }
            self.take_failures();
            self.apply().await;
        }
    }

    fn take_links(&mut self, table: &LinkTable) {
        let interfaces = eligible(table, &self.parts.exclusions);
        let links = interfaces.keys().filter_map(|it| table.links.get(it));
        let subnets = links.map(|it| (it.name.clone(), it.subnets().map(Subnet::from).collect()));
        self.decider.take_subnets(subnets.collect());
        let interfaces: Vec<_> = interfaces.into_values().collect();
        self.present = interfaces.iter().map(|it| it.name.clone()).collect();
        self.decider.take_interfaces(interfaces);
    }

    /// Takes what fails on this node, and what works again.
    fn take_failures(&mut self) {
        let mut failing = BTreeSet::new();
        if self.announced.is_deaf {
            failing.insert(Part::Sockets);
        }
        if let Some(serving) = &self.serving {
            let served = Arc::clone(&serving.borrow());
            failing.extend(served.unserved.iter().copied().map(Part::Address));
            let before = self.served.replace(Arc::clone(&served));
            if before.is_none_or(|before| !Arc::ptr_eq(&before, &served)) {
                self.decider.take_routed(&served.routed);
            }
        }
        if self.healthy.as_ref().is_some_and(|it| !*it.borrow()) {
            failing.insert(Part::DataPlane);
        }
        let now = now();
        self.steadiness.take(now, &self.present, failing);
        self.decider.take_unsteady(self.steadiness.unsteady(now));
    }

    fn take_facts(&mut self, facts: Vec<Fact>) {
        let was_synced = self.decider.is_synced();
        self.decider.take_facts(facts);
        if self.decider.is_synced() && !was_synced {
            self.found_at = Some(Instant::now() + FIND);
            self.ask_at = Some(Instant::now() + ASK);
        }
    }

    /// Hands on what was decided.
    async fn apply(&mut self) {
        let seeds = self.decider.seeds(self.parts.port);
        let metadata: Arc<[u8]> = self.decider.metadata().encode().into();
        self.parts.membership.update(|wanted| {
            // Before the nodes are known, others are found by what they send.
            if !seeds.is_empty() {
                wanted.seeds = seeds;
            }
            wanted.metadata = metadata;
        });
        self.serve();
        if !self.is_ready {
            self.keep_asking();
            return;
        }
        let wanted = self.decider.wanted();
        if wanted != self.wanted {
            self.wanted = wanted.clone();
            self.parts.announcer.set(wanted);
        }
        self.note_failures().await;
        let announces = self.decider.announces(&self.announced);
        self.desired.send_if_modified(|desired| {
            let is_new = desired.as_deref() != Some(&announces);
            *desired = Some(Arc::new(announces));
            is_new | std::mem::take(&mut self.is_to_compare)
        });
        self.publish();
    }

    /// Hands on what this node serves, whichever node announces it.
    fn serve(&self) {
        if self.decider.is_synced() {
            let serves = self.decider.serves();
            self.serves.send_if_modified(|served| {
                let is_new = !Arc::ptr_eq(served, &serves);
                *served = serves;
                is_new
            });
            // Routers get all routes at once: after a restart they drop what is missing.
            let has_begun = |it: &Arc<ServingView>| it.has_begun(&self.serves.borrow());
            if self.routing.borrow().is_none() && !self.served.as_ref().is_none_or(has_begun) {
                return;
            }
            let routing = self.decider.routing();
            self.routing.send_if_modified(|routed| {
                let is_new = routed.as_ref() != Some(routing);
                *routed = Some(Arc::clone(routing));
                is_new
            });
        }
    }

    /// Reports addresses of this node that none of its interfaces can announce.
    async fn note_failures(&mut self) {
        let mut failing = BTreeMap::new();
        for address in self.wanted.announcements.keys() {
            match self.announced.addresses.get(address).map(|it| it.state) {
                Some(State::Waiting) => {
                    failing.insert(*address, "none of its interfaces is on this node and up");
                }
                Some(State::Conflicted) => {
                    failing.insert(*address, "another host has it");
                }
                _ => {}
            }
        }
        let before = std::mem::replace(&mut self.failing, failing.clone());
        for (address, why) in failing {
            if !before.contains_key(&address) {
                let message = format!("{address} is not announced: {why}");
                self.event(address, "announceFailed", true, message).await;
            }
        }
    }

    fn publish(&self) {
        let is_announced = |address: &&IpAddr| {
            let status = self.announced.addresses.get(*address);
            status.is_some_and(|it| it.state == State::Announcing)
        };
        let announced = self.wanted.announcements.keys().filter(is_announced);
        let services = |address: &IpAddr| self.decider.services_at(*address).cloned().collect();
        let view = SpeakerView {
            is_ready: self.is_ready,
            has_routers: !self.decider.routing().peers.is_empty(),
            members: self.decider.members().cloned().collect(),
            nodes: Arc::clone(self.decider.nodes()),
            is_first: self.decider.is_first(),
            announces: announced.map(|it| (*it, services(it))).collect(),
            failing: self.failing.clone(),
        };
        self.view.send_if_modified(|seen| {
            let is_new = **seen != view;
            *seen = Arc::new(view);
            is_new
        });
    }
}

/// The time of tokio's clock, by which tests let it pass.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Waits for a change of what is followed, if anything is.
async fn changed<T>(
    followed: &mut Option<watch::Receiver<T>>,
) -> Result<(), watch::error::RecvError> {
    match followed {
        Some(followed) => followed.changed().await,
        None => std::future::pending().await,
    }
}
