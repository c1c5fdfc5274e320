use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::guard::Term;
use super::record::{Lease, LeaseSpec, declare};
use super::*;

#[test]
fn a_guard_without_a_term_allows_nothing() {
    assert_eq!(guard_until(None).allows(), None);
    assert_eq!(guard_until(Some(Duration::ZERO)).allows(), None);
    let left = guard_until(Some(Duration::from_secs(5))).allows();
    assert!(
        left.is_some_and(|left| left <= Duration::from_secs(5)),
        "{left:?}"
    );
    assert_eq!(WriteGuard::always().allows(), Some(Duration::MAX));
}

fn term_of(left: Duration) -> Term {
    Term {
        until: Instant::now() + left,
        until_by_the_wall: SystemTime::now() + left,
    }
}

#[tokio::test]
async fn a_write_that_began_before_a_renewal_goes_on_after_it() {
    let soon = Duration::from_millis(20);
    let term = watch::Sender::new(Some(term_of(soon)));
    let guard = WriteGuard {
        term: Some(term.subscribe()),
    };
    let write = async {
        term.send_replace(Some(term_of(Duration::from_secs(3600))));
        tokio::time::sleep(soon * 2).await;
        "written"
    };
    assert_eq!(guard.while_allowed(write).await, Some("written"));
}

#[tokio::test]
async fn a_write_ends_with_the_lease() {
    let soon = Duration::from_millis(20);
    let never = std::future::pending::<()>;
    assert_eq!(guard_until(Some(soon)).while_allowed(never()).await, None);
    let term = watch::Sender::new(Some(term_of(Duration::from_secs(3600))));
    let guard = WriteGuard {
        term: Some(term.subscribe()),
    };
    let lost_and_won_again = async {
        term.send_replace(None);
        tokio::task::yield_now().await;
        term.send_replace(Some(term_of(Duration::from_secs(3600))));
        never().await;
    };
    assert_eq!(guard.while_allowed(lost_and_won_again).await, None);
}

#[test]
fn a_guard_ends_when_either_clock_says_so() {
    let (hour, now) = (Duration::from_secs(3600), Instant::now());
    let term = Term {
        until: now + hour,
        until_by_the_wall: SystemTime::now() - hour,
    };
    let guard = WriteGuard {
        term: Some(watch::Sender::new(Some(term)).subscribe()),
    };
    assert_eq!(guard.allows(), None);
}

/// A runtime that goes takes its tasks with it, as a panic takes one.
#[test]
fn a_candidacy_that_is_gone_says_so_and_allows_no_more_writes() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    };
    let (lost, here) = (runtime(), runtime());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    let config = json!({
        "clusters": [{"name": "here", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "me", "user": {"token": "t"}}], "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "here", "user": "me"}}],
    });
    std::fs::write(&path, config.to_string()).unwrap();
    let origin = crate::Origin::Kubeconfig {
        path: Some(path),
        context: None,
    };
    let connection = here.block_on(Connection::new(origin, "test")).unwrap();
    let election = {
        let _inside = lost.enter();
        let lease = LeaseConfig::new("landfall-system", "test");
        Election::start(connection, lease, &TaskTracker::new())
    };
    let ended = election.ended();
    assert!(!ended.is_cancelled());
    drop(lost);
    assert!(ended.is_cancelled());
    assert_eq!(election.guard().allows(), None);
    // Nothing waits for it.
    here.block_on(election.hand_over());
}

#[test]
fn times_of_leases_have_six_digits() {
    assert_eq!(micro(Timestamp::UNIX_EPOCH), "1970-01-01T00:00:00.000000Z");
    let time: Timestamp = "2026-01-01T00:00:00.123456789Z".parse().unwrap();
    assert_eq!(micro(time), "2026-01-01T00:00:00.123456Z");
}

#[test]
fn a_holder_that_does_not_serve_says_so_and_one_of_an_older_version_says_nothing() {
    let read = |metadata: &Map<String, Value>| {
        let spec = LeaseSpec {
            holder_identity: Some("holder".into()),
            ..LeaseSpec::default()
        };
        let metadata = metadata.clone();
        let record = Lease { metadata, spec }.record();
        (record.declares, record.serving)
    };
    let mut metadata = Map::new();
    assert_eq!(
        read(&metadata),
        (false, false),
        "written by an older version"
    );
    declare(&mut metadata, "");
    assert_eq!(read(&metadata), (true, false));
    declare(&mut metadata, "holder");
    assert_eq!(read(&metadata), (true, true));
    declare(&mut metadata, "the holder before");
    assert_eq!(read(&metadata), (false, false));
}

#[test]
fn what_others_say_about_a_lease_stays() {
    let theirs = json!({"annotations": {"team": "net"}, "labels": {"a": "b"}});
    let mut metadata: Map<String, Value> = serde_json::from_value(theirs).unwrap();
    declare(&mut metadata, "");
    assert_eq!(metadata["annotations"]["team"], "net");
    assert_eq!(metadata["labels"]["a"], "b");
}

#[test]
fn an_identity_is_never_used_twice() {
    assert_ne!(identity("pod"), identity("pod"));
    assert!(identity("pod").starts_with("pod_"));
}
