//! Several replicas: one writes, whatever happens to it, and another goes on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use landfall_testkit::cluster::{Audit, AuditEntry};
use rustix::process::Signal;

use crate::bed::{Bed, condition, only, text, writes};
use crate::network::Range;
use crate::replica::Replica;

/// A Lease has to run out, and the next one has to look.
const TAKEOVER: Duration = Duration::from_secs(60);

/// How many leaders are killed unless the environment says otherwise: each costs a Lease.
const KILLS: usize = 3;

const CHURNED: usize = 8;

fn service(name: &str, range: &Range) -> String {
    format!(
        "---\n\
        apiVersion: v1\n\
        kind: Service\n\
        metadata:\n  \
        name: {name}\n  \
        annotations: {{landfall.dev/endpoints: \"{}\"}}\n\
        spec:\n  \
        type: LoadBalancer\n  \
        ports: [{{port: 8080}}]\n",
        range.member(1)
    )
}

fn replica(bed: &Bed, range: &Range, number: u8) -> Replica {
    let config = bed.write("landfall.yaml", &only(&range.pool()));
    let name = format!("replica-{number}");
    Replica::spawn(
        bed,
        &name,
        range.admin(number),
        &["--config", text(&config)],
    )
}

/// The holder of the Lease, once it leads. The replica that made the Lease has to hold it for a
/// while first, and until then another one may still come to lead.
async fn holder(bed: &Bed) -> String {
    let lease = ["-n", "landfall-system", "lease", "landfall"];
    let Ok(lease) = bed.kubectl().get(&lease).await else {
        return String::new();
    };
    let made_only = lease["spec"]["leaseTransitions"].as_i64() == Some(0);
    let holder = lease["spec"]["holderIdentity"].as_str();
    holder.filter(|_| !made_only).unwrap_or_default().to_owned()
}

/// Which of the replicas leads, once one does.
async fn leader(bed: &Bed, replicas: &[Replica]) -> usize {
    let began = Instant::now();
    loop {
        let holder = holder(bed).await;
        let prefix = |replica: &Replica| holder.starts_with(&format!("{}_", replica.name));
        if let Some(position) = replicas.iter().position(prefix) {
            return position;
        }
        assert!(began.elapsed() < TAKEOVER, "{holder:?} leads");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until a replica has written as this holder.
async fn has_written(audit: &Audit, replica: &Replica) {
    let began = Instant::now();
    let name = format!("({}_", replica.name);
    while !writes(audit)
        .iter()
        .any(|entry| entry.user_agent.contains(&name))
    {
        assert!(
            began.elapsed() < TAKEOVER,
            "{} leads and writes nothing",
            replica.name
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Services that come, change and go until `ends`; those of the first half only change.
async fn churn(bed: &Bed, range: &Range, ends: &AtomicBool, rounds: &AtomicUsize) {
    for round in 0.. {
        if ends.load(Ordering::Relaxed) {
            return;
        }
        let name = format!("web-{}", round % CHURNED);
        if round % CHURNED >= CHURNED / 2 && round % 3 == 0 {
            let delete = [
                "-n",
                &bed.namespace,
                "delete",
                "service",
                &name,
                "--wait=false",
            ];
            // It may still be on its way out from the last time.
            let _ = bed.kubectl().run(&delete).await;
        } else {
            let ports = 8080 + round % 5;
            let manifest = service(&name, range).replace("8080", &ports.to_string());
            let apply = ["-n", &bed.namespace, "apply", "-f", "-"];
            let _ = bed.kubectl().run_with(&apply, &manifest).await;
        }
        rounds.fetch_add(1, Ordering::Relaxed);
    }
}

/// The proof: each holder's writes stand in one piece, and no two holders' overlap.
fn one_writer_at_a_time(mut writes: Vec<AuditEntry>) -> Vec<String> {
    writes.sort_by(|one, other| one.received.cmp(&other.received));
    let mut turns: Vec<String> = writes.iter().map(|it| it.user_agent.clone()).collect();
    turns.dedup();
    let distinct: BTreeSet<&String> = turns.iter().collect();
    assert_eq!(
        distinct.len(),
        turns.len(),
        "a former holder wrote again: {turns:#?}"
    );
    let mut answered: Option<&AuditEntry> = None;
    for entry in &writes {
        if let Some(last) = answered
            && last.user_agent != entry.user_agent
        {
            assert!(
                last.answered <= entry.received,
                "at once: {last:?} {entry:?}"
            );
        }
        answered = Some(match answered {
            Some(last) if last.answered > entry.answered => last,
            _ => entry,
        });
    }
    turns
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_leaders_never_make_two_writers_and_every_service_converges() {
    let kills = std::env::var("LANDFALL_TEST_KILLS").map_or(KILLS, |text| text.parse().unwrap());
    let bed = Arc::new(Bed::open("kills").await);
    let range = Arc::new(Range::claim());
    let audit = bed.cluster.audit();
    let (ends, rounds) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let churning = {
        let (bed, range) = (bed.clone(), range.clone());
        let (ends, rounds) = (ends.clone(), rounds.clone());
        tokio::spawn(async move { churn(&bed, &range, &ends, &rounds).await })
    };
    let mut replicas = Vec::new();
    for number in 0..2 {
        replicas.push(replica(&bed, &range, number));
    }
    for kill in 0..kills {
        let position = leader(&bed, &replicas).await;
        has_written(&audit, &replicas[position]).await;
        replicas.remove(position).kill().await;
        replicas.push(replica(&bed, &range, u8::try_from(kill + 2).unwrap()));
    }
    let position = leader(&bed, &replicas).await;
    has_written(&audit, &replicas[position]).await;
    ends.store(true, Ordering::Relaxed);
    churning.await.unwrap();

    // All that is left is served; all that was deleted is gone.
    let names: Vec<String> = (0..CHURNED / 2)
        .map(|number| format!("web-{number}"))
        .collect();
    for number in CHURNED / 2..CHURNED {
        let name = format!("web-{number}");
        let deleted = [
            "delete",
            "service",
            &name,
            "--ignore-not-found",
            "--timeout=60s",
        ];
        bed.run(&deleted).await;
    }
    for name in &names {
        bed.until(name, "converged", |service| {
            condition(service, "Programmed").is_some_and(|(truth, _)| truth == "True")
        })
        .await;
    }
    let turns = one_writer_at_a_time(writes(&audit));
    eprintln!(
        "{kills} leaders killed during {} changes, {} writes by {} holders one after the other",
        rounds.load(Ordering::Relaxed),
        writes(&audit).len(),
        turns.len()
    );
    assert_eq!(turns.len(), kills + 1, "{turns:#?}");
}

#[tokio::test]
async fn a_leader_that_is_asked_to_stop_hands_over_before_its_lease_ends() {
    let bed = Bed::open("handover").await;
    let range = Range::claim();
    let audit = bed.cluster.audit();
    let mut replicas = vec![replica(&bed, &range, 0), replica(&bed, &range, 1)];
    bed.apply(&service("web", &range)).await;
    bed.programmed(&["web"]).await;
    let mut leading = replicas.remove(leader(&bed, &replicas).await);
    has_written(&audit, &leading).await;
    let held = bed.service("web").await["status"]["loadBalancer"].clone();
    leading.signal(Signal::TERM);
    let status = leading.end().await;
    assert!(status.success(), "{status}");
    // No replica waited for the Lease to end: it was given up, if it has not been taken already.
    let holder = holder(&bed).await;
    assert!(
        !holder.starts_with(&leading.name),
        "{holder} still holds it"
    );
    bed.apply(&service("api", &range)).await;
    bed.programmed(&["api"]).await;
    has_written(&audit, &replicas[0]).await;
    assert_eq!(bed.service("web").await["status"]["loadBalancer"], held);
    assert_eq!(one_writer_at_a_time(writes(&audit)).len(), 2);
}
