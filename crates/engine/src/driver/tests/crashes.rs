//! What the next process finds where writes were refused and the process died: the record of a
//! Service, its status and its finalizer come and go together.

use landfall_model::listener::ListenerKey;
use landfall_model::status::ACCEPTED_VERSION;

use super::*;
use crate::claims;

const MODE: &str = "landfall.dev/mode";

/// An edit of a Service by its user.
type Edit = fn(&mut ServiceRow);

fn row(lab: &Lab) -> ServiceRow {
    lab.source.rows.lock().unwrap()[&key("a")].clone()
}

fn says(row: &ServiceRow, kind: ConditionType) -> Option<bool> {
    Some(row.status.condition(kind)?.status)
}

fn breaks(row: &mut ServiceRow) {
    row.annotations
        .insert(MODE.to_owned(), "sideways".to_owned());
}

fn moves_its_port(row: &mut ServiceRow) {
    row.ports = svc("a").port(81).row().ports.clone();
    row.generation = row.generation.map(|number| number + 1);
    row.annotations.remove(MODE);
}

/// The ports of the version that was accepted last, as it stands on the Service.
fn accepted_ports(row: &ServiceRow) -> Option<Vec<ListenerKey>> {
    let accepted = claims::accepted(row)?.expect("a record that can be read");
    let ports = accepted.ports.iter().map(|port| ListenerKey {
        protocol: port.protocol,
        port: port.port,
    });
    Some(ports.collect())
}

/// An address is published only beside the finalizer and a version to serve there.
fn is_consistent(row: &ServiceRow) {
    let kept = row.finalized && accepted_ports(row).is_some();
    assert!(row.status.ingress.is_empty() || kept, "{:#?}", row.status);
}

/// The next process over what the Services of this one have become.
async fn crash(lab: Lab) -> Lab {
    lab.task.abort();
    let _ = lab.task.await;
    let rows = lab.source.rows.lock().unwrap().clone();
    let lab = Lab::start(9, rows.into_values().map(Arc::new).collect()).await;
    lab.until_ready().await;
    lab
}

/// A Service that went through `edits`, and of whose writes only `takes` were taken before the
/// process died; the ports that it served, and what the next process makes of it.
async fn edited(edits: &[Edit], takes: usize) -> (Option<Vec<ListenerKey>>, ServiceRow, Lab) {
    let first = svc("a").port(80).with(|row| row.generation = Some(1));
    let lab = Lab::start(9, Vec::new()).await;
    *lab.source.takes.lock().unwrap() = takes;
    lab.apply(first.row()).await;
    for edit in edits {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut newer = row(&lab);
        edit(&mut newer);
        lab.apply(Arc::new(newer)).await;
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let left = row(&lab);
    is_consistent(&left);
    let lab = crash(lab).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    (accepted_ports(&left), left, lab)
}

#[tokio::test(start_paused = true)]
async fn a_crash_right_after_an_edit_that_is_refused_leaves_the_version_before_served() {
    // The first two writes make the Service; that its newest version is refused is never written.
    let (accepted, left, lab) = edited(&[breaks], 2).await;
    assert_eq!(says(&left, ConditionType::Accepted), Some(true));
    assert!(accepted.is_some());
    let row = row(&lab);
    assert_eq!(says(&row, ConditionType::Accepted), Some(false));
    assert_eq!(says(&row, ConditionType::Programmed), Some(true));
    assert_eq!(row.status.ingress, left.status.ingress);
    assert!(lab.says("a", Code::ServingPreviousVersion));
    assert!(lab.shelf.held.lock().unwrap().contains_key(&uid("a")));
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn whichever_write_is_the_last_one_the_next_process_goes_on_from_it() {
    let edits: [Edit; 4] = [breaks, moves_its_port, breaks, moves_its_port];
    for count in 0..=edits.len() {
        for takes in 0..9 {
            let (accepted, left, lab) = edited(&edits[..count], takes).await;
            let row = row(&lab);
            is_consistent(&row);
            let broken = row.annotations.contains_key(MODE);
            assert_eq!(says(&row, ConditionType::Accepted), Some(!broken));
            if !left.status.ingress.is_empty() {
                assert_eq!(row.status.ingress, left.status.ingress, "{count} {takes}");
            }
            let serves = !broken || accepted.is_some();
            let said = says(&row, ConditionType::Programmed);
            assert_eq!(said, Some(serves), "{count} edits, {takes} writes");
            if broken {
                assert_eq!(accepted_ports(&row), accepted, "{count} {takes}");
            }
            let marked = row.status.marks.contains_key(ACCEPTED_VERSION);
            assert_eq!(marked, serves);
            lab.stop().await;
        }
    }
}
