use landfall_model::Code;
use landfall_model::rows::CoolingAddress;
use landfall_model::wire::{ObjectMeta, Resource};

use super::*;

const POOL: ResourceKind = ResourceKind::IpAddressPool;

fn row(kind: ResourceKind, name: &str, generation: i64) -> Arc<ResourceRow> {
    let shape = Resource {
        api_version: "metallb.io/v1beta1".to_owned(),
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("metallb-system".to_owned()),
            uid: Some(format!("uid of {name}")),
            generation: Some(generation),
            ..ObjectMeta::default()
        },
        ..Resource::default()
    };
    Arc::new(shape.into_admitted_row(kind))
}

fn used(name: &str, assigned: u64, available: u64) -> BTreeMap<String, PoolView> {
    let view = PoolView {
        name: name.to_owned(),
        assigned_ipv4: assigned,
        available_ipv4: available,
        available_ipv6: u64::MAX,
        ..PoolView::default()
    };
    BTreeMap::from([(name.to_owned(), view)])
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000_000 + second).unwrap()
}

fn problem(row: &ResourceRow, message: &str) -> ResourceProblem {
    let reason = Reason::error(Code::InvalidPool, message).at("spec.addresses[0]");
    ResourceProblem {
        kind: row.kind,
        key: row.key.clone(),
        reason,
    }
}

/// Reports, and writes what is due.
fn written(
    reported: &mut ReportedResources,
    rows: &[Arc<ResourceRow>],
    usage: &BTreeMap<String, PoolView>,
    problems: &[ResourceProblem],
    second: i64,
) -> Reports {
    let due = reported.update(rows, usage, problems, at(second));
    for (row, status) in due.statuses.clone() {
        reported.wrote(&row, status);
    }
    due
}

#[test]
fn the_usage_of_a_pool_is_written_when_it_changes_and_only_then() {
    let mut reported = ReportedResources::default();
    let rows = [row(POOL, "edge", 1), row(POOL, "unused", 1)];
    let due = written(&mut reported, &rows, &used("edge", 2, 14), &[], 0);
    let status = json!({"assignedIPv4": 2, "availableIPv4": 14, "assignedIPv6": 0,
        "availableIPv6": i64::MAX});
    assert_eq!(due.statuses, [(rows[0].clone(), status)]);
    assert_eq!(due.events, []);
    let same = written(&mut reported, &rows, &used("edge", 2, 14), &[], 5);
    assert_eq!(same, Reports::default());
    let more = written(&mut reported, &rows, &used("edge", 3, 13), &[], 9);
    assert_eq!(more.statuses.len(), 1);
}

#[test]
fn what_was_there_before_this_replica_led_is_not_written_again() {
    let rows = [row(POOL, "edge", 1)];
    let mut first = ReportedResources::default();
    let problems = [problem(&rows[0], "it overlaps")];
    let due = written(&mut first, &rows, &used("edge", 2, 14), &problems, 0);
    assert_eq!((due.statuses.len(), due.events.len()), (1, 1));
    // As the next leader reads it.
    let mut next = ReportedResources::default();
    next.statuses
        .insert(id(&rows[0]), due.statuses[0].1.clone());
    let again = written(&mut next, &rows, &used("edge", 2, 14), &problems, 60);
    assert_eq!(again, Reports::default());
}

#[test]
fn a_status_that_was_not_written_is_tried_again_and_its_event_is_not() {
    let mut reported = ReportedResources::default();
    let rows = [row(ResourceKind::L2Advertisement, "edge", 1)];
    let problems = [problem(&rows[0], "no such pool")];
    let usage = BTreeMap::new();
    let due = reported.update(&rows, &usage, &problems, at(0));
    assert_eq!((due.statuses.len(), due.events.len()), (1, 1));
    let due = reported.update(&rows, &usage, &problems, at(5));
    assert_eq!((due.statuses.len(), due.events.len()), (1, 0));
}

#[test]
fn a_problem_is_a_condition_and_an_event_once_until_it_is_over() {
    let mut reported = ReportedResources::default();
    let rows = [row(POOL, "edge", 4), row(ResourceKind::BgpPeer, "left", 1)];
    let usage = BTreeMap::new();
    // Nothing to say of objects that are in order.
    assert_eq!(
        written(&mut reported, &rows, &usage, &[], 0),
        Reports::default()
    );
    let problems = [problem(&rows[0], "it overlaps")];
    let due = written(&mut reported, &rows, &usage, &problems, 1);
    let text = "spec.addresses[0]: it overlaps";
    let refused = json!({"conditions": [{
        "type": "landfall.dev/Accepted", "status": "False", "reason": "InvalidPool",
        "message": text, "lastTransitionTime": "2001-09-09T01:46:41Z", "observedGeneration": 4,
    }]});
    assert_eq!(due.statuses, [(rows[0].clone(), refused)]);
    let event = Event {
        reason: "InvalidPool",
        warning: true,
        message: text.to_owned(),
    };
    assert_eq!(due.events, [(rows[0].clone(), event)]);
    assert_eq!(
        written(&mut reported, &rows, &usage, &problems, 2),
        Reports::default()
    );
    // Another version with another problem: the same transition, another event.
    let edited = [row(POOL, "edge", 5), rows[1].clone()];
    let other = [problem(&rows[0], "it is no range")];
    let due = written(&mut reported, &edited, &usage, &other, 3);
    let condition = &due.statuses[0].1["conditions"][0];
    assert_eq!(condition["lastTransitionTime"], "2001-09-09T01:46:41Z");
    assert_eq!(condition["observedGeneration"], 5);
    assert_eq!(due.events.len(), 1);
    let due = written(&mut reported, &edited, &usage, &[], 4);
    let condition = &due.statuses[0].1["conditions"][0];
    assert_eq!(
        (&condition["status"], &condition["message"]),
        (&json!("True"), &json!(""))
    );
    assert_eq!(condition["lastTransitionTime"], "2001-09-09T01:46:44Z");
    assert_eq!(due.events, []);
    // The same problem later is news again.
    let due = written(&mut reported, &edited, &usage, &problems, 9);
    assert_eq!((due.statuses.len(), due.events.len()), (1, 1));
}

#[test]
fn a_warning_leaves_the_object_accepted() {
    let mut reported = ReportedResources::default();
    let rows = [row(ResourceKind::BgpPeer, "left", 1)];
    let warning = ResourceProblem {
        reason: Reason::warning(Code::InvalidField, "of no effect"),
        ..problem(&rows[0], "")
    };
    let due = written(&mut reported, &rows, &BTreeMap::new(), &[warning], 0);
    assert_eq!(due.statuses[0].1["conditions"][0]["status"], "True");
    assert_eq!(due.events.len(), 1);
}

#[test]
fn an_object_that_is_gone_is_forgotten() {
    let mut reported = ReportedResources::default();
    let rows = [row(POOL, "edge", 1)];
    let usage = used("edge", 1, 1);
    assert_eq!(
        written(&mut reported, &rows, &usage, &[], 0).statuses.len(),
        1
    );
    written(&mut reported, &[], &usage, &[], 1);
    // Another one of its name has no status yet.
    assert_eq!(
        written(&mut reported, &rows, &usage, &[], 2).statuses.len(),
        1
    );
}

fn edited(row: &Arc<ResourceRow>, addresses: &str) -> Arc<ResourceRow> {
    Arc::new(ResourceRow {
        generation: row.generation.map(|it| it + 1),
        spec: json!({"addresses": [addresses]}),
        ..ResourceRow::clone(row)
    })
}

#[test]
fn while_a_version_is_refused_the_status_has_the_one_that_is_in_force_and_then_no_more() {
    let mut reported = ReportedResources::default();
    let usage = BTreeMap::new();
    let valid = edited(&row(POOL, "edge", 1), "192.0.2.0/24");
    written(&mut reported, std::slice::from_ref(&valid), &usage, &[], 0);
    let refused = [edited(&valid, "nothing")];
    // Read before it was validated.
    written(&mut reported, &refused, &usage, &[], 3);
    let problems = [problem(&valid, "no range")];
    let due = written(&mut reported, &refused, &usage, &problems, 6);
    assert_eq!(
        due.statuses[0].1["accepted"],
        json!({"spec": {"addresses": ["192.0.2.0/24"]}, "inPlaceOf": 3})
    );
    // The next process has seen no valid version, and keeps what is on record.
    let mut next = ReportedResources::default();
    let id = id(&refused[0]);
    next.statuses.insert(id, due.statuses[0].1.clone());
    let again = written(&mut next, &refused, &usage, &problems, 60);
    assert_eq!(again, Reports::default());
    let corrected = [edited(&refused[0], "192.0.2.0/25")];
    let due = written(&mut next, &corrected, &usage, &[], 63);
    assert_eq!(due.statuses[0].1.get("accepted"), None);
}

#[test]
fn addresses_that_cool_down_are_on_record_with_the_usage_of_their_pool() {
    let mut reported = ReportedResources::default();
    let rows = [row(POOL, "edge", 1)];
    let mut usage = used("edge", 1, 3);
    let released = CoolingAddress {
        address: "192.0.2.7".parse().unwrap(),
        until: at(90),
        service: "shop/web".to_owned(),
    };
    usage.get_mut("edge").unwrap().cooling = vec![released];
    let due = written(&mut reported, &rows, &usage, &[], 0);
    let recorded = json!([{"address": "192.0.2.7", "until": "2001-09-09T01:48:10Z",
        "service": "shop/web"}]);
    assert_eq!(due.statuses[0].1["cooling"], recorded);
    let due = written(&mut reported, &rows, &used("edge", 0, 4), &[], 95);
    assert_eq!(due.statuses[0].1.get("cooling"), None);
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_written_is_attempted_again_without_a_change() {
    let (sender, mut changes) = watch::channel(0_u64);
    let began = tokio::time::Instant::now();
    assert!(is_due(&mut changes, Some(after(None))).await);
    assert_eq!(began.elapsed(), RETRY);
    // Otherwise only a change is a reason, and it is one at once.
    let waits = tokio::time::timeout(RETRY * 100, is_due(&mut changes, None)).await;
    assert!(waits.is_err());
    sender.send_replace(1);
    let began = tokio::time::Instant::now();
    assert!(is_due(&mut changes, None).await);
    sender.send_replace(2);
    assert!(is_due(&mut changes, Some(RETRY)).await);
    assert_eq!(began.elapsed(), Duration::ZERO);
    drop(sender);
    assert!(!is_due(&mut changes, Some(RETRY)).await);
    // What is refused for ever is asked for less and less often.
    assert_eq!(after(Some(RETRY)), RETRY * 2);
    assert_eq!(after(Some(LONGEST_RETRY)), LONGEST_RETRY);
}
