//! Reconciles against a provider and a reporter that live in memory, with a fault at any write.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex};

use landfall_model::intent::{AddressSpec, LoadBalancerSpec};
use landfall_model::listener::{Listener, Protocol};
use landfall_model::provider::{ProviderProfile, ProviderStep, Target};
use landfall_model::rows::{Family, FamilyPolicy};
use landfall_model::status::{ConditionType, FINALIZER, IngressAddress, RECORD};
use landfall_model::{ServiceKey, Uid};
use serde::Serialize;

use landfall_model::intent::Intent;
use landfall_model::plan::{Plan, PlannedKind, Wait};
use landfall_model::provider::Scope;

use super::*;
use crate::report::{Event, ReportError};

mod reporting;

/// Everything that outlives a crash: what the provider made, and what was reported.
#[derive(Clone, Debug, Default, PartialEq)]
struct Outside {
    address: Option<String>,
    ports: BTreeSet<u16>,
    finalized: bool,
    status: ServiceStatus,
}

/// A provider and a reporter over one [`Outside`], counting writes and failing one of them.
#[derive(Debug, Default)]
struct Lab {
    outside: Mutex<Outside>,
    writes: Mutex<Vec<String>>,
    events: Mutex<Vec<&'static str>>,
    /// What [`Provider::on_planned`] was called with.
    planned: Mutex<Vec<bool>>,
    fault: Option<Fault>,
    busy_once: Mutex<bool>,
    refuse: bool,
    broken_port: Option<u16>,
    /// Changes of ports are no more than members that follow the nodes.
    members_only: bool,
    /// A cloud is at work on something.
    waits: Vec<Wait>,
    /// An address is made in a cloud, rather than taken from a shelf of our own.
    claims_outside: bool,
    notices: Vec<(&'static str, Reason)>,
    marks: BTreeMap<String, String>,
    deferred_marks: &'static [&'static str],
}

/// The process dies at the n-th write: before it, or after it but before its answer is seen.
#[derive(Clone, Copy, Debug)]
struct Fault {
    at: usize,
    after: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
enum Step {
    Claim,
    Open(u16),
    Close(u16),
    Release,
}

struct Crashed;

// === impl Lab ===

impl Lab {
    fn over(outside: Outside) -> Self {
        Self {
            outside: Mutex::new(outside),
            ..Self::default()
        }
    }

    fn write(&self, name: String, write: impl FnOnce(&mut Outside)) -> Result<(), Crashed> {
        let mut writes = self.writes.lock().unwrap();
        let number = writes.len();
        writes.push(name);
        match self.fault {
            Some(fault) if fault.at == number => {
                if fault.after {
                    write(&mut self.outside.lock().unwrap());
                }
                Err(Crashed)
            }
            // A dead process writes nothing more.
            Some(fault) if fault.at < number => Err(Crashed),
            _ => {
                write(&mut self.outside.lock().unwrap());
                Ok(())
            }
        }
    }

    fn outside(&self) -> Outside {
        self.outside.lock().unwrap().clone()
    }

    async fn run(&self, intent: Intent) -> ReconcileEnd {
        self.run_reported(intent, EventState::default()).await
    }

    async fn run_reported(&self, intent: Intent, reporting: EventState) -> ReconcileEnd {
        let outside = self.outside();
        let job = Job {
            reporting,
            ..job(&outside, intent)
        };
        self.run_job(job).await
    }

    async fn run_job(&self, job: Job) -> ReconcileEnd {
        let metrics = Metrics::default();
        let now = || Timestamp::UNIX_EPOCH;
        Reconcile {
            provider: self,
            reporter: self,
            metrics: &metrics,
            now,
        }
        .run(&job)
        .await
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim => f.write_str("claim"),
            Self::Open(port) => write!(f, "open {port}"),
            Self::Close(port) => write!(f, "close {port}"),
            Self::Release => f.write_str("release"),
        }
    }
}

impl ProviderStep for Step {
    fn kind(&self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Open(_) => "open",
            Self::Close(_) => "close",
            Self::Release => "release",
        }
    }
}

impl Provider for Lab {
    type Observed = Outside;
    type Step = Step;

    fn profile(&self) -> &ProviderProfile {
        static NONE: std::sync::LazyLock<ProviderProfile> =
            std::sync::LazyLock::new(ProviderProfile::default);
        &NONE
    }

    async fn observe(&self, _: &Intent) -> Result<Outside, ProviderError> {
        Ok(self.outside())
    }

    fn plan(&self, want: &Intent, have: &Outside) -> Result<Plan<Step>, Vec<Reason>> {
        if self.refuse {
            return Err(vec![Reason::error(Code::PoolExhausted, "nothing left")]);
        }
        let mut plan = Plan::default();
        let ports: BTreeSet<u16> = want
            .load_balancer
            .iter()
            .flat_map(|spec| &spec.listeners)
            .map(|listener| listener.key.port.get())
            .collect();
        if want.load_balancer.is_some() && have.address.is_none() {
            if self.claims_outside {
                plan.push(Step::Claim, "it has no address");
            } else {
                plan.push_claim(Step::Claim, "it has no address");
            }
        }
        for port in ports.difference(&have.ports) {
            if self.members_only {
                plan.push_members(Step::Open(*port), "a node was added");
            } else {
                plan.push(Step::Open(*port), "it is wanted");
            }
        }
        for port in have.ports.difference(&ports) {
            plan.push(Step::Close(*port), "it is not wanted");
        }
        if want.load_balancer.is_none() && have.address.is_some() {
            plan.push(Step::Release, "nothing is wanted");
        }
        plan.waits.clone_from(&self.waits);
        Ok(plan)
    }

    fn on_planned(&self, _: &Uid, refused: bool) {
        self.planned.lock().unwrap().push(refused);
    }

    fn on_waiting(&self, wait: &Wait) -> Duration {
        Duration::from_secs(wait.id.parse().unwrap())
    }

    async fn apply(&self, step: &Step) -> Result<Applied, ProviderError> {
        if *step == Step::Open(self.broken_port.unwrap_or(0)) {
            let reason = Reason::error(Code::PortInUse, "another program listens there");
            return Err(ProviderError {
                reason,
                retry: Retry::Backoff,
                scope: Scope::Step,
            });
        }
        if std::mem::take(&mut *self.busy_once.lock().unwrap()) {
            return Ok(Applied::Busy {
                after: Duration::from_secs(3),
            });
        }
        let done = self.write(step.to_string(), |outside| match step {
            Step::Claim => outside.address = Some("127.77.0.1".to_owned()),
            Step::Open(port) => drop(outside.ports.insert(*port)),
            Step::Close(port) => drop(outside.ports.remove(port)),
            Step::Release => outside.address = None,
        });
        match done {
            Err(Crashed) => Err(ProviderError::transient("crashed")),
            Ok(()) if *step == Step::Claim => Ok(Applied::Addressed(ingress().into())),
            Ok(()) => Ok(Applied::Done),
        }
    }

    fn status(&self, _: &Intent, have: &Outside) -> ProviderStatus {
        let ingress = if have.address.is_some() {
            ingress()
        } else {
            Vec::new()
        };
        ProviderStatus {
            ingress,
            notices: self.notices.clone(),
            marks: self.marks.clone(),
            deferred_marks: self.deferred_marks,
            ..ProviderStatus::default()
        }
    }

    async fn audit(&self) -> Result<Vec<Uid>, ProviderError> {
        Ok(Vec::new())
    }
}

impl Report for Lab {
    async fn add_finalizer(
        &self,
        _: &ServiceRow,
        status: Option<&ServiceStatus>,
    ) -> Result<(), ReportError> {
        let name = if status.is_some() {
            "finalize+status"
        } else {
            "finalize"
        };
        self.write(name.to_owned(), |outside| {
            outside.finalized = true;
            if let Some(status) = status {
                outside.status = status.clone();
            }
        })
        .map_err(|Crashed| lost("finalizer"))
    }

    async fn remove_finalizer(&self, _: &ServiceRow) -> Result<(), ReportError> {
        self.write("unfinalize".to_owned(), |outside| {
            outside.finalized = false;
            outside.status = ServiceStatus::default();
        })
        .map_err(|Crashed| lost("finalizer"))
    }

    async fn write_status(
        &self,
        _: &ServiceRow,
        status: &ServiceStatus,
    ) -> Result<(), ReportError> {
        self.write("status".to_owned(), |outside| {
            outside.status = status.clone();
        })
        .map_err(|Crashed| lost("status"))
    }

    async fn event(&self, _: &ServiceRow, event: &Event) {
        self.events.lock().unwrap().push(event.reason);
    }
}

fn lost(what: &'static str) -> ReportError {
    ReportError::Failed {
        what,
        why: "crashed".to_owned(),
    }
}

fn ingress() -> Vec<IngressAddress> {
    let ip = Some("127.77.0.1".parse().unwrap());
    vec![IngressAddress {
        ip,
        ..IngressAddress::default()
    }]
}

/// The job of a Service that is to become this, of which nothing is known but what is outside.
fn job(outside: &Outside, intent: Intent) -> Job {
    Job {
        row: Some(Arc::new(row(outside))),
        intent: Some(intent),
        errors: Vec::new(),
        status: outside.status.clone(),
        last_failure: None,
        reporting: EventState::default(),
        progress: Progress::default(),
        releases_finalizer: true,
        persisted: Persisted::default(),
        unsure: false,
    }
}

fn row(outside: &Outside) -> ServiceRow {
    assert_eq!(FINALIZER, "service.kubernetes.io/load-balancer-cleanup");
    ServiceRow {
        key: ServiceKey::new("default", "web"),
        uid: Uid::new("u1"),
        generation: None,
        resource_version: None,
        recorded: None,
        created: None,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        finalized: outside.finalized,
        deleting: false,
        wants_load_balancer: true,
        class: None,
        families: vec![Family::V4],
        family_policy: FamilyPolicy::SingleStack,
        headless: false,
        ports: Vec::new(),
        selector: BTreeMap::new(),
        external_local: false,
        health_check_node_port: None,
        affinity: None,
        load_balancer_ip: None,
        source_ranges: Vec::new(),
        publish_not_ready: false,
        allocate_node_ports: true,
        node_fields: BTreeMap::new(),
        status: outside.status.clone(),
        faults: Vec::new(),
        source: None,
    }
}

fn spec(ports: &[u16]) -> Intent {
    let listeners = ports
        .iter()
        .map(|port| Listener::new(Protocol::Tcp, (*port).try_into().unwrap()));
    Intent {
        load_balancer: Some(LoadBalancerSpec {
            address: AddressSpec {
                namespace_labels: BTreeMap::new(),
                labels: BTreeMap::new(),
                families: vec![Family::V4],
                policy: FamilyPolicy::SingleStack,
                requested: Vec::new(),
                requested_by: String::new(),
                pool: None,
                count: 1,
                sharing_key: None,
                backend_key: String::new(),
                held: Vec::new(),
            },
            listeners: listeners.collect(),
            hostname: None,
            left_out: Vec::new(),
            order: Vec::new(),
            health_check_port: None,
            target: Target::Node,
            nodes: Vec::new(),
            has_nodes: false,
        }),
        ..removal()
    }
}

fn removal() -> Intent {
    Intent::removal(ServiceKey::new("default", "web"), Uid::new("u1"))
}

fn truths(status: &ServiceStatus) -> Vec<bool> {
    status
        .conditions
        .iter()
        .map(|condition| condition.status)
        .collect()
}

#[tokio::test]
async fn the_finalizer_comes_first_and_the_claim_is_reported_before_anything_listens() {
    let lab = Lab::default();
    let end = lab.run(spec(&[80, 443])).await;
    assert_eq!(end.outcome, Outcome::Settled);
    assert_eq!(
        *lab.writes.lock().unwrap(),
        ["claim", "finalize+status", "open 80", "open 443", "status"]
    );
    assert_eq!(truths(&end.status), [true, true, true]);
    assert_eq!(*lab.events.lock().unwrap(), ["EnsuredLoadBalancer"]);
}

#[tokio::test]
async fn what_is_made_outside_is_made_after_the_finalizer() {
    let lab = Lab {
        claims_outside: true,
        ..Lab::default()
    };
    let end = lab.run(spec(&[80])).await;
    assert_eq!(end.outcome, Outcome::Settled);
    assert_eq!(
        *lab.writes.lock().unwrap(),
        ["finalize+status", "claim", "status", "open 80", "status"]
    );
}

#[tokio::test]
async fn an_edit_costs_an_event_and_what_only_follows_the_members_not_even_that() {
    let lab = Lab::default();
    let made = lab.run(spec(&[80])).await;
    for (members_only, events) in [(false, vec!["EnsuredLoadBalancer"]), (true, vec![])] {
        let edited = Lab {
            members_only,
            ..Lab::over(lab.outside())
        };
        let end = edited
            .run_reported(spec(&[80, 443]), made.reporting.clone())
            .await;
        assert_eq!(end.outcome, Outcome::Settled);
        assert_eq!(*edited.writes.lock().unwrap(), ["open 443"]);
        assert_eq!(*edited.events.lock().unwrap(), events);
    }
}

#[tokio::test]
async fn a_start_that_finds_what_was_reported_sends_no_event() {
    let lab = Lab::default();
    lab.run(spec(&[80])).await;
    let restarted = Lab::over(Outside {
        ports: BTreeSet::new(),
        ..lab.outside()
    });
    let end = restarted.run(spec(&[80])).await;
    assert_eq!(end.outcome, Outcome::Settled);
    assert_eq!(*restarted.writes.lock().unwrap(), ["open 80"]);
    assert!(restarted.events.lock().unwrap().is_empty());
    // What is no longer as it was reported is news.
    let broken = Lab {
        broken_port: Some(80),
        ..Lab::over(Outside {
            ports: BTreeSet::new(),
            ..lab.outside()
        })
    };
    broken.run(spec(&[80])).await;
    assert_eq!(*broken.events.lock().unwrap(), ["SyncLoadBalancerFailed"]);
    // And that is reported once, too, whichever process finds it.
    let again = Lab {
        broken_port: Some(80),
        ..Lab::over(broken.outside())
    };
    again.run(spec(&[80])).await;
    assert!(again.events.lock().unwrap().is_empty());
    assert!(again.writes.lock().unwrap().is_empty());
}

#[tokio::test]
async fn what_is_refused_gets_the_finalizer_with_the_refusal() {
    let lab = Lab {
        refuse: true,
        ..Lab::default()
    };
    let end = lab.run(spec(&[80])).await;
    assert_eq!(end.outcome, Outcome::Refused);
    assert_eq!(*lab.writes.lock().unwrap(), ["finalize+status"]);
    assert_eq!(*lab.events.lock().unwrap(), ["SyncLoadBalancerFailed"]);
}

#[tokio::test]
async fn a_finalizer_that_another_client_removed_is_put_back() {
    let lab = Lab::default();
    lab.run(spec(&[80])).await;
    let bare = Lab::over(Outside {
        finalized: false,
        ..lab.outside()
    });
    bare.run(spec(&[80])).await;
    assert_eq!(*bare.writes.lock().unwrap(), ["finalize+status"]);
    assert_eq!(bare.outside(), lab.outside());
}

#[tokio::test]
async fn a_settled_service_costs_no_write_and_no_event() {
    let lab = Lab::default();
    lab.run(spec(&[80])).await;
    let again = Lab::over(lab.outside());
    let end = again.run(spec(&[80])).await;
    assert_eq!(end.outcome, Outcome::Settled);
    assert!(again.writes.lock().unwrap().is_empty());
    assert!(again.events.lock().unwrap().is_empty());
}

#[tokio::test]
async fn the_status_goes_with_the_finalizer_in_one_write_after_everything_else() {
    let lab = Lab::default();
    lab.run(spec(&[80])).await;
    let leaving = Lab::over(lab.outside());
    let end = leaving.run(removal()).await;
    assert_eq!(end.outcome, Outcome::Removed);
    assert_eq!(
        *leaving.writes.lock().unwrap(),
        ["close 80", "release", "unfinalize"]
    );
    assert_eq!(leaving.outside(), Outside::default());
}

#[tokio::test]
async fn the_finalizer_is_removed_also_where_the_source_has_not_reported_it_yet() {
    let lab = Lab::default();
    lab.run(spec(&[80])).await;
    let leaving = Lab::over(lab.outside());
    let before_it_was_put_on = Outside {
        finalized: false,
        status: ServiceStatus::default(),
        ..lab.outside()
    };
    let job = Job {
        row: Some(Arc::new(row(&before_it_was_put_on))),
        intent: Some(removal()),
        errors: Vec::new(),
        status: lab.outside().status,
        last_failure: None,
        reporting: EventState::default(),
        progress: Progress::default(),
        releases_finalizer: true,
        persisted: Persisted::default(),
        unsure: false,
    };
    let end = leaving.run_job(job).await;
    assert_eq!(end.outcome, Outcome::Removed);
    assert_eq!(leaving.outside(), Outside::default());
    // As long as the source reports what stood there before, it is behind.
    assert_eq!(end.wrote, [ServiceStatus::default()]);
}

#[tokio::test]
async fn a_crash_before_or_after_any_write_leaves_nothing_that_the_next_start_does_not_repair() {
    let flows: [(&str, Vec<Intent>); 3] = [
        ("create", vec![spec(&[80, 443])]),
        ("update", vec![spec(&[80, 443]), spec(&[443, 8443])]),
        ("delete", vec![spec(&[80, 443]), removal()]),
    ];
    for (flow, intents) in flows {
        let (last, before) = intents.split_last().unwrap();
        let start = Lab::default();
        for intent in before {
            start.run(intent.clone()).await;
        }
        let undisturbed = Lab::over(start.outside());
        undisturbed.run(last.clone()).await;
        let writes = undisturbed.writes.lock().unwrap().len();
        for at in 0..writes {
            for after in [false, true] {
                let mut crashing = Lab::over(start.outside());
                crashing.fault = Some(Fault { at, after });
                crashing.run(last.clone()).await;
                let restarted = Lab::over(crashing.outside());
                let end = restarted.run(last.clone()).await;
                assert_eq!(
                    restarted.outside(),
                    undisturbed.outside(),
                    "{flow}, crash at write {at}, after: {after}: {end:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn one_port_that_is_taken_does_not_keep_the_others_closed() {
    let lab = Lab {
        broken_port: Some(80),
        ..Lab::default()
    };
    let end = lab.run(spec(&[80, 443])).await;
    assert_eq!(end.outcome, Outcome::Failed);
    assert_eq!(lab.outside().ports, BTreeSet::from([443]));
    let programmed = end.status.condition(ConditionType::Programmed).unwrap();
    assert_eq!(
        (programmed.status, programmed.reason),
        (false, Code::PortInUse)
    );
    assert!(
        lab.events
            .lock()
            .unwrap()
            .contains(&"SyncLoadBalancerFailed")
    );
}

#[tokio::test]
async fn a_failure_is_reported_once_however_often_it_is_tried() {
    let lab = Lab {
        broken_port: Some(80),
        ..Lab::default()
    };
    let first = lab.run(spec(&[80])).await;
    let outside = lab.outside();
    let again = Lab {
        broken_port: Some(80),
        ..Lab::over(outside.clone())
    };
    let job = Job {
        last_failure: first.failure,
        ..job(&outside, spec(&[80]))
    };
    again.run_job(job).await;
    assert!(
        !again
            .events
            .lock()
            .unwrap()
            .contains(&"SyncLoadBalancerFailed")
    );
    assert!(
        again.writes.lock().unwrap().is_empty(),
        "nothing new is to be said"
    );
}

#[tokio::test]
async fn a_busy_provider_ends_the_pass_and_is_asked_again_later() {
    let lab = Lab {
        busy_once: Mutex::new(true),
        ..Lab::default()
    };
    let end = lab.run(spec(&[80])).await;
    assert_eq!(end.outcome, Outcome::Busy(Duration::from_secs(3)));
    let end = lab.run(spec(&[80])).await;
    assert_eq!(end.outcome, Outcome::Settled);
}

/// An object that is busy; its id says for how many seconds.
fn busy_for(id: &str, creates: bool) -> Wait {
    Wait {
        object: "load balancer",
        id: id.to_owned(),
        doing: "being changed",
        because: "it takes one change at a time",
        creates,
    }
}

#[tokio::test]
async fn what_is_waited_for_ends_the_pass_after_the_steps_and_stays_pending() {
    let lab = Lab {
        waits: vec![busy_for("7", false), busy_for("5", false)],
        ..Lab::default()
    };
    let end = lab.run(spec(&[80])).await;
    assert_eq!(end.outcome, Outcome::Busy(Duration::from_secs(5)));
    assert_eq!(lab.outside().ports, BTreeSet::from([80]));
    let kinds: Vec<PlannedKind> = end.pending.iter().map(|line| line.kind).collect();
    assert_eq!(kinds, [PlannedKind::Wait; 2]);
    let end = lab.run(spec(&[80])).await;
    assert_eq!(end.outcome, Outcome::Busy(Duration::from_secs(5)));
    assert!(!end.changed);
}

#[tokio::test]
async fn a_wait_is_never_a_plan_without_an_end_and_announces_only_a_creation() {
    for (creates, announced) in [(false, Announced::Members), (true, Announced::Change)] {
        let lab = Lab::default();
        lab.run(spec(&[80])).await;
        let lab = Lab {
            waits: vec![busy_for("5", creates)],
            ..Lab::over(lab.outside())
        };
        let mut progress = Progress::default();
        for _ in 0..9 {
            let outside = lab.outside();
            let job = Job {
                progress,
                ..job(&outside, spec(&[80]))
            };
            let end = lab.run_job(job).await;
            assert_eq!(end.outcome, Outcome::Busy(Duration::from_secs(5)));
            assert_eq!(end.reporting.announced, Some(announced));
            progress = end.progress;
        }
    }
}

#[tokio::test]
async fn a_step_that_failed_by_itself_does_not_keep_a_wait_from_being_one() {
    let lab = Lab {
        broken_port: Some(80),
        waits: vec![busy_for("5", false)],
        ..Lab::default()
    };
    let end = lab.run(spec(&[80, 81])).await;
    assert_eq!(end.outcome, Outcome::Busy(Duration::from_secs(5)));
    assert_eq!(lab.outside().ports, BTreeSet::from([81]));
}

#[tokio::test]
async fn a_step_that_is_undone_again_and_again_beside_one_that_fails_is_stopped() {
    let before = Lab::default();
    before.run(spec(&[79])).await;
    let mut progress = Progress::default();
    let mut ends = Vec::new();
    for _ in 0..6 {
        let outside = before.outside();
        let lab = Lab {
            broken_port: Some(80),
            ..Lab::over(outside.clone())
        };
        let job = Job {
            progress,
            ..job(&outside, spec(&[79, 80, 81]))
        };
        let end = lab.run_job(job).await;
        ends.push((end.outcome, lab.outside().ports.contains(&81)));
        progress = end.progress;
    }
    let (last, tried) = ends.split_last().unwrap();
    assert!(tried.iter().all(|end| *end == (Outcome::Failed, true)));
    assert_eq!(*last, (Outcome::Stuck, false));
}

#[tokio::test]
async fn a_refused_spec_says_why_and_keeps_what_is_held() {
    let lab = Lab::default();
    lab.run(spec(&[80])).await;
    let refusing = Lab {
        refuse: true,
        ..Lab::over(lab.outside())
    };
    let end = refusing.run(spec(&[81])).await;
    assert_eq!(end.outcome, Outcome::Refused);
    assert_eq!(refusing.outside().ports, BTreeSet::from([80]));
    assert_eq!(truths(&end.status), [true, true, false]);
    assert_eq!(end.status.ingress, ingress());
}

#[tokio::test]
async fn a_provider_is_notified_once_of_a_reconcile_whether_its_last_plan_was_refused() {
    let lab = Lab::default();
    lab.run(spec(&[80])).await;
    assert_eq!(*lab.planned.lock().unwrap(), [false]);
    let refusing = Lab {
        refuse: true,
        ..Lab::over(lab.outside())
    };
    refusing.run(spec(&[81])).await;
    assert_eq!(*refusing.planned.lock().unwrap(), [true]);
}

#[tokio::test]
async fn an_invalid_spec_without_a_valid_one_before_keeps_the_published_address() {
    let lab = Lab::default();
    lab.run(spec(&[80])).await;
    let outside = lab.outside();
    let error = Reason::error(Code::InvalidAnnotation, "not a number");
    let job = Job {
        intent: None,
        errors: vec![error],
        ..job(&outside, spec(&[]))
    };
    let end = lab.run_job(job).await;
    assert_eq!(end.outcome, Outcome::Refused);
    assert_eq!(end.status.ingress, ingress());
    assert!(
        !end.status
            .condition(ConditionType::Accepted)
            .unwrap()
            .status
    );
}

#[tokio::test]
async fn a_stop_takes_no_address_out_of_the_status_and_carries_nothing_out() {
    let before = Lab::default();
    before.run(spec(&[80])).await;
    let mut outside = before.outside();
    outside.address = None;
    let lab = Lab::over(outside.clone());
    let intent = spec(&[80]);
    let mut plan = Plan::default();
    plan.push(Step::Claim, "it was lost again");
    let mut progress = Progress::default();
    for _ in 0..5 {
        progress.count(&plan.steps[0]);
    }
    progress.end(&intent);
    let job = Job {
        progress,
        ..job(&outside, intent)
    };
    let end = lab.run_job(job).await;
    assert_eq!(end.outcome, Outcome::Stuck);
    assert_eq!(end.status.ingress, ingress());
    let programmed = end.status.condition(ConditionType::Programmed).unwrap();
    assert_eq!(programmed.reason, Code::NotConverging);
    assert_eq!(lab.outside().address, None);
}

#[tokio::test]
async fn a_claim_that_can_not_be_recorded_is_no_plan_without_an_end() {
    // The claim is the first write, and its record the second one.
    let fault = Fault {
        at: 1,
        after: false,
    };
    let mut progress = Progress::default();
    for _ in 0..8 {
        let lab = Lab {
            fault: Some(fault),
            ..Lab::default()
        };
        let outside = lab.outside();
        let job = Job {
            progress,
            ..job(&outside, spec(&[80]))
        };
        let end = lab.run_job(job).await;
        assert_eq!(end.outcome, Outcome::Failed);
        progress = end.progress;
    }
}

#[tokio::test]
async fn a_mark_that_only_spares_work_is_written_with_the_next_status() {
    let run = async |outside: Outside, record: &str, deferred_marks| {
        let lab = Lab {
            marks: BTreeMap::from([(RECORD.to_owned(), record.to_owned())]),
            deferred_marks,
            ..Lab::over(outside)
        };
        lab.run(spec(&[80])).await;
        let writes = lab.writes.lock().unwrap().len();
        (writes, lab.outside())
    };
    let first = Lab::default();
    first.run(spec(&[80])).await;
    // It is not there yet.
    let (writes, outside) = run(first.outside(), "1", &[RECORD]).await;
    assert_eq!((writes, &*outside.status.marks[RECORD]), (1, "1"));
    let (writes, outside) = run(outside, "2", &[RECORD]).await;
    assert_eq!((writes, &*outside.status.marks[RECORD]), (0, "1"));
    // Something else is to be written.
    let mut changed = outside.clone();
    changed.status.ingress.clear();
    let (writes, changed) = run(changed, "2", &[RECORD]).await;
    assert_eq!((writes, &*changed.status.marks[RECORD]), (1, "2"));
    let (writes, outside) = run(outside, "2", &[]).await;
    assert_eq!((writes, &*outside.status.marks[RECORD]), (1, "2"));
}
