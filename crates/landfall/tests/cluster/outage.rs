//! The API server goes away and comes back, and clients of Services notice nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::bed::{Bed, DEADLINE, LOOK, address, only, writes};
use crate::network::Range;
use crate::replica::Replica;
use crate::traffic::{Backend, answered_by, ask};

const SERVICES: usize = 10;

/// How long it is away unless the environment says otherwise.
const AWAY: Duration = Duration::from_secs(10);

fn service(number: usize, range: &Range) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata:\n  name: web-{number}\n  annotations: \
         {{landfall.dev/endpoints: \"{}, {}\"}}\nspec:\n  type: LoadBalancer\n  \
         ports: [{{port: 8080}}]\n",
        range.member(1),
        range.member(2)
    )
}

/// Whether a watch of the API server can't be followed.
async fn is_cut_off(replica: &Replica) -> bool {
    replica.metric("landfall_source_problems").await > 0.0
}

async fn until_cut_off(replica: &Replica, wanted: bool) {
    let began = Instant::now();
    while is_cut_off(replica).await != wanted {
        assert!(began.elapsed() < DEADLINE * 2, "cut off: not {wanted}");
        tokio::time::sleep(LOOK).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_the_api_server_costs_no_request_and_no_needless_write() {
    let away = std::env::var("LANDFALL_TEST_OUTAGE")
        .map_or(AWAY, |text| Duration::from_secs(text.parse().unwrap()));
    let bed = Bed::open("outage").await;
    let range = Range::claim();
    let _one = Backend::start("one", range.member(1)).await;
    let _two = Backend::start("two", range.member(2)).await;
    let replica = Replica::alone(&bed, range.admin(1), &only(&range.pool())).await;
    let manifests: String = (0..SERVICES)
        .map(|number| service(number, &range))
        .collect();
    bed.apply(&manifests).await;
    let names: Vec<String> = (0..SERVICES)
        .map(|number| format!("web-{number}"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    bed.programmed(&names).await;
    let mut targets = Vec::new();
    for name in &names {
        bed.event(name, "EnsuredLoadBalancer").await;
        let held = address(&bed.service(name).await).unwrap().parse().unwrap();
        targets.push(SocketAddr::new(held, 8080));
    }

    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = targets
        .iter()
        .map(|&target| {
            let stop = stop.clone();
            tokio::spawn(async move {
                let (mut good, mut failed) = (0_u64, Vec::new());
                while !stop.load(Ordering::Relaxed) {
                    match ask(target).await {
                        Ok(_) => good += 1,
                        Err(error) => failed.push(error.to_string()),
                    }
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                (good, failed)
            })
        })
        .collect();
    let audit = bed.cluster.audit();
    let began = Instant::now();
    bed.cluster.stop_api_server();
    until_cut_off(&replica, true).await;
    // The outage itself is what is being waited for.
    tokio::time::sleep(away.saturating_sub(began.elapsed())).await;
    bed.cluster.start_api_server().await.unwrap();
    let lasted = began.elapsed();
    // Perhaps before Landfall is back: it is not to be missed.
    let port = r#"[{"op": "replace", "path": "/spec/ports/0/port", "value": 8081}]"#;
    bed.run(&["patch", "service", "web-9", "--type=json", "-p", port])
        .await;
    bed.apply(&service(SERVICES, &range)).await;
    bed.programmed(&["web-10"]).await;
    let moved = SocketAddr::new(targets[9].ip(), 8081);
    answered_by(moved, &["one", "two"]).await;
    until_cut_off(&replica, false).await;
    bed.event("web-10", "EnsuredLoadBalancer").await;
    stop.store(true, Ordering::Relaxed);
    let mut all = 0;
    for (number, client) in clients.into_iter().enumerate() {
        let (good, failed) = client.await.unwrap();
        all += good;
        // The port of the last one was closed by an edit.
        if number != 9 {
            assert_eq!(failed, Vec::<String>::new(), "{} of {good}", failed.len());
        }
    }
    let written = writes(&audit);
    let changed = ["web-9", "web-10"];
    let needless: Vec<_> = written
        .iter()
        .filter(|entry| entry.resource != "events" && !changed.contains(&entry.name.as_str()))
        .collect();
    assert!(needless.is_empty(), "{needless:#?}");
    eprintln!(
        "{all} requests around an outage of {lasted:?}; {} writes after it",
        written.len()
    );
}
