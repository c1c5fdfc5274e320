//! Which events are sent while a change takes several reconciles.

use super::*;

impl Lab {
    /// A provider that holds one open port and is busy with the next change.
    async fn serving(port: u16) -> Self {
        let before = Self::default();
        before.run(spec(&[port])).await;
        Self::over(before.outside())
    }

    fn busy(self) -> Self {
        Self {
            busy_once: Mutex::new(true),
            ..self
        }
    }

    fn reported(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.events.lock().unwrap())
    }
}

/// What is left to report of a Service that is as it is wanted.
fn nothing_open() -> EventState {
    EventState {
        looked: true,
        ..EventState::default()
    }
}

const BUSY: Outcome = Outcome::Busy(Duration::from_secs(3));

#[tokio::test]
async fn a_change_that_takes_several_passes_begins_once_and_ends_once() {
    let lab = Lab::default().busy();
    let first = lab.run(spec(&[80])).await;
    assert_eq!(first.outcome, BUSY);
    assert_eq!(lab.reported(), [] as [&str; 0]);
    let lab = lab.busy();
    let second = lab.run_reported(spec(&[80]), first.reporting).await;
    assert_eq!(second.outcome, BUSY);
    assert_eq!(lab.reported(), [] as [&str; 0]);
    let third = lab.run_reported(spec(&[80]), second.reporting).await;
    assert_eq!(third.outcome, Outcome::Settled);
    assert_eq!(lab.reported(), ["EnsuredLoadBalancer"]);
    assert_eq!(third.reporting, nothing_open());
    lab.run_reported(spec(&[80]), third.reporting).await;
    assert_eq!(lab.reported(), [] as [&str; 0]);
}

#[tokio::test]
async fn members_that_follow_the_nodes_are_no_event() {
    let lab = Lab {
        members_only: true,
        ..Lab::serving(80).await
    };
    let lab = lab.busy();
    let first = lab.run(spec(&[80, 443])).await;
    assert_eq!(first.outcome, BUSY);
    assert_eq!(lab.reported(), [] as [&str; 0]);
    let second = lab.run_reported(spec(&[80, 443]), first.reporting).await;
    assert_eq!(second.outcome, Outcome::Settled);
    assert_eq!(lab.reported(), [] as [&str; 0]);
    assert_eq!(second.reporting, nothing_open());
}

#[tokio::test]
async fn a_change_while_members_follow_the_nodes_is_reported_as_one() {
    let lab = Lab {
        members_only: true,
        ..Lab::serving(80).await
    };
    let lab = lab.busy();
    let members = lab.run(spec(&[80, 443])).await;
    let lab = Lab {
        members_only: false,
        ..lab
    };
    let changed = lab.run_reported(spec(&[80, 8443]), members.reporting).await;
    assert_eq!(changed.outcome, Outcome::Settled);
    assert_eq!(lab.reported(), ["EnsuredLoadBalancer"]);
}

#[tokio::test]
async fn members_that_follow_in_the_middle_of_a_change_belong_to_it() {
    let lab = Lab::serving(80).await.busy();
    let change = lab.run(spec(&[80, 443])).await;
    let lab = Lab {
        members_only: true,
        ..lab
    };
    lab.run_reported(spec(&[80, 443]), change.reporting).await;
    assert_eq!(lab.reported(), ["EnsuredLoadBalancer"]);
}

#[tokio::test]
async fn a_deletion_in_the_middle_of_a_change_is_reported() {
    let lab = Lab::serving(80).await.busy();
    let change = lab.run(spec(&[80, 443])).await;
    let lab = lab.busy();
    let leaving = lab.run_reported(removal(), change.reporting).await;
    assert_eq!(leaving.outcome, BUSY);
    assert_eq!(lab.reported(), ["DeletingLoadBalancer"]);
    let gone = lab.run_reported(removal(), leaving.reporting).await;
    assert_eq!(gone.outcome, Outcome::Removed);
    assert_eq!(lab.reported(), ["DeletedLoadBalancer"]);
    assert_eq!(gone.reporting, nothing_open());
}

#[tokio::test]
async fn a_notice_comes_once_and_again_only_after_it_had_vanished() {
    let notice = (
        "LoadBalancerRebuilt",
        Reason::warning(Code::ProviderFailed, "it was broken"),
    );
    let text = |end: &ReconcileEnd| end.reasons.iter().any(|it| it.message == "it was broken");
    let noticing = |lab: Lab| Lab {
        notices: vec![notice.clone()],
        ..lab
    };
    let lab = noticing(Lab::serving(80).await);
    let first = lab.run_reported(spec(&[80]), nothing_open()).await;
    assert_eq!(lab.reported(), ["LoadBalancerRebuilt"]);
    assert!(text(&first));
    // A process that has just been started takes it for reported; the message says it all the same.
    let found = lab.run(spec(&[80])).await;
    assert_eq!(lab.reported(), [] as [&str; 0]);
    assert_eq!(found.reporting, first.reporting);
    assert!(text(&found));
    let second = lab.run_reported(spec(&[80]), first.reporting).await;
    assert_eq!(lab.reported(), [] as [&str; 0]);
    assert!(text(&second), "it still holds");
    let healed = Lab::over(lab.outside());
    let third = healed.run_reported(spec(&[80]), second.reporting).await;
    assert_eq!(healed.reported(), [] as [&str; 0]);
    assert!(!text(&third));
    assert_eq!(third.reporting, nothing_open());
    let again = noticing(healed);
    again.run_reported(spec(&[80]), third.reporting).await;
    assert_eq!(again.reported(), ["LoadBalancerRebuilt"]);
}

#[tokio::test]
async fn a_busy_pass_does_not_write_the_status_of_a_service_that_has_an_address() {
    let lab = Lab::serving(80).await.busy();
    let status = lab.outside().status;
    let end = lab.run(spec(&[80, 443])).await;
    assert_eq!(end.outcome, BUSY);
    assert_eq!(*lab.writes.lock().unwrap(), [] as [&str; 0]);
    assert_eq!(end.status, status);
    assert!(end.reasons.iter().any(|it| it.code == Code::Progressing));
}

#[tokio::test]
async fn a_busy_pass_reports_to_a_service_without_an_address_that_one_is_made() {
    let lab = Lab {
        claims_outside: true,
        ..Lab::default().busy()
    };
    let end = lab.run(spec(&[80])).await;
    assert_eq!(*lab.writes.lock().unwrap(), ["finalize+status"]);
    assert_eq!(truths(&end.status), [true, false, false]);
    let addressed = end.status.condition(ConditionType::Addressed).unwrap();
    assert_eq!(addressed.reason, Code::Progressing);
}

#[tokio::test]
async fn marks_are_written_with_the_status_and_once() {
    let marks = BTreeMap::from([(
        "state.landfall.dev/load-balancer".to_owned(),
        "v1".to_owned(),
    )]);
    let lab = Lab {
        marks: marks.clone(),
        ..Lab::serving(80).await
    };
    let end = lab.run(spec(&[80])).await;
    assert_eq!(end.status.marks, marks);
    assert_eq!(*lab.writes.lock().unwrap(), ["status"]);
    lab.run(spec(&[80])).await;
    assert_eq!(*lab.writes.lock().unwrap(), ["status"]);
}

#[tokio::test]
async fn a_failure_that_the_provider_was_busy_with_in_between_is_not_reported_again() {
    let lab = Lab {
        broken_port: Some(443),
        ..Lab::serving(80).await
    };
    let job = |lab: &Lab, intent: Intent, last_failure: Option<String>| Job {
        row: Some(Arc::new(row(&lab.outside()))),
        intent: Some(intent),
        errors: Vec::new(),
        status: lab.outside().status,
        last_failure,
        reporting: EventState::default(),
        progress: Progress::default(),
        releases_finalizer: true,
        persisted: Persisted::default(),
        unsure: false,
    };
    let failed = lab.run_job(job(&lab, spec(&[80, 443]), None)).await;
    assert!(lab.reported().contains(&"SyncLoadBalancerFailed"));
    let lab = lab.busy();
    // The other port comes first, and with it the provider is busy.
    let busy = lab
        .run_job(job(&lab, spec(&[80, 81, 443]), failed.failure))
        .await;
    assert_eq!(busy.outcome, BUSY);
    let again = lab
        .run_job(job(&lab, spec(&[80, 81, 443]), busy.failure))
        .await;
    assert_eq!(again.outcome, Outcome::Failed);
    assert!(!lab.reported().contains(&"SyncLoadBalancerFailed"));
    let lab = Lab {
        broken_port: None,
        ..lab
    };
    let healed = lab
        .run_job(job(&lab, spec(&[80, 81, 443]), again.failure))
        .await;
    assert_eq!(healed.outcome, Outcome::Settled);
    assert_eq!(healed.failure, None);
}
