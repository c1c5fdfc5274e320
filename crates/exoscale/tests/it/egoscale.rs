//! The published Go client against the simulated cloud: it signs, reads and waits on its own.

use std::path::Path;
use std::process::Command;

use landfall_testkit::exoscale::{KEY, SECRET, Sim, ZONE};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_published_go_client_creates_changes_and_deletes_a_load_balancer() {
    let sim = Sim::new();
    let pool = sim.add_pool("web");
    let served = sim.serve(0).await.unwrap();
    let mut client = Command::new("go");
    client
        .args(["run", "."])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/egoscale"))
        .env("EXOSCALE_API_ENDPOINT", &served.endpoint)
        .env("EXOSCALE_API_KEY", KEY)
        .env("EXOSCALE_API_SECRET", SECRET)
        .env("EXOSCALE_API_ZONE", ZONE)
        .env("INSTANCE_POOL", pool);
    let ended = tokio::task::spawn_blocking(move || client.output());
    let output = ended.await.unwrap().expect("Go is installed");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    assert_eq!(text.trim(), "ok");
    assert!(sim.load_balancers().is_empty());
    let writes = sim.calls().iter().filter(|call| call.is_write()).count();
    assert_eq!(writes, 6, "{:#?}", sim.calls());
}
