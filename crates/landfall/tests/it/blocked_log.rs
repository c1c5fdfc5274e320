//! A log and an output that can't be written: a full disk, a closed pipe, a reader that hangs. All
//! that is lost are lines. And a Service that fills the log by what is said of it.

use std::fs::File;
use std::io::{PipeReader, Write as _, pipe};
use std::process::Stdio;
use std::time::Instant;

use rustix::process::Signal;
use serde_json::Value;

use crate::backend::Backend;
use crate::client;
use crate::lab::{DEADLINE, Lab};
use crate::manifest::svc;
use crate::view::at;

/// The write end of a pipe whose reader keeps it, and reads nothing, and which is full.
fn hanging() -> (PipeReader, Stdio) {
    let (reader, writer) = pipe().unwrap();
    let mut filler = writer.try_clone().unwrap();
    // It waits for room until the reader is gone.
    std::thread::spawn(move || while filler.write_all(&[b'.'; 4096]).is_ok() {});
    (reader, writer.into())
}

/// The write end of a pipe that has no reader.
fn closed() -> Stdio {
    let (_reader, writer) = pipe().unwrap();
    writer.into()
}

fn full_disk() -> Stdio {
    File::options()
        .write(true)
        .open("/dev/full")
        .unwrap()
        .into()
}

/// Follows edits, serves what is new, is healthy, and ends when asked to.
pub async fn works(mut lab: Lab) {
    let backend = Backend::lines("pod", lab.ranges.backend(1, 80)).await;
    let web = |port| svc("web").tcp(port).members(&[backend.address]).yaml();
    lab.write("web.yaml", &web(8080));
    let first = lab.ready("default/web").await;
    assert_eq!(client::member(at(&first, 8080)).await.unwrap(), "pod");
    for port in 8081..8086 {
        lab.write("web.yaml", &web(port));
        let edited = |view: &landfall_model::view::ServiceView| {
            let ports = view.listeners.iter().map(|it| it.key.port.get());
            ports.eq([port])
        };
        let edited = lab.until("default/web", "is edited", edited).await;
        assert_eq!(client::member(at(&edited, port)).await.unwrap(), "pod");
    }
    let second = svc("second").tcp(80).members(&[backend.address]).yaml();
    lab.write("second.yaml", &second);
    let second = lab.ready("default/second").await;
    assert_eq!(client::member(at(&second, 80)).await.unwrap(), "pod");
    assert_eq!(lab.text("/healthz").await, "ok\n");
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_on_a_full_disk_stops_nothing_and_what_is_lost_is_counted() {
    let mut lab = Lab::new();
    lab.start_with(|command| {
        command.stderr(full_disk());
    })
    .await;
    // Something to log, to begin with.
    lab.signal(Signal::HUP);
    let began = Instant::now();
    while lost(&lab).await == 0 {
        assert!(began.elapsed() < DEADLINE, "nothing is lost");
    }
    works(lab).await;
}

/// How many lines were lost by now.
async fn lost(lab: &Lab) -> u64 {
    counted(lab, "landfall_log_lines_lost_total ").await
}

async fn counted(lab: &Lab, name: &str) -> u64 {
    let metrics = lab.text("/metrics").await;
    let mut lines = metrics.lines();
    let count = lines.find_map(|line| line.strip_prefix(name));
    count.expect("it is counted").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_flap_on_many_ports_fill_no_log() {
    let lab = Lab::new();
    let flapping = Backend::http("flapping", lab.ranges.backend(1, 3001)).await;
    let ports = (8000..8040).map(|port| (port, format!("p{port}")));
    let loud = ports
        .fold(svc("loud"), |loud, (port, name)| {
            loud.port(&name, "TCP", port)
        })
        .members(&[flapping.address])
        .option("monitor", "http")
        .option("monitor-path", "/turns")
        .option("monitor-delay", "100ms")
        .option("monitor-timeout", "100ms")
        .option("monitor-max-retries", "1")
        .option("monitor-max-retries-down", "1");
    lab.write("loud.yaml", &loud.yaml());
    let mut lab = lab.started().await;
    let began = Instant::now();
    while counted(&lab, "landfall_log_lines_left_out_total ").await < 300 {
        assert!(began.elapsed() < DEADLINE, "nothing is left out");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let calm = svc("calm").tcp(80).members(&[flapping.address]);
    lab.write("calm.yaml", &calm.yaml());
    lab.ready("default/calm").await;
    let ended = lab.stop().await;
    let lines = ended.stderr.lines();
    let log: Vec<Value> = lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |service: &str, message: &str| {
        let of = log.iter().filter(|it| it["service"] == service);
        of.filter(|it| it["message"] == message).count()
    };
    let turns = of("default/loud", "member is down") + of("default/loud", "member is up");
    let most = 200 + usize::try_from(began.elapsed().as_secs()).unwrap() + 60;
    assert!((1..most).contains(&turns), "{turns}");
    assert_eq!(of("default/calm", "listener opened"), 1);
    let reported = |it: &Value| {
        let message = it["message"].as_str().unwrap_or_default();
        message.ends_with(" lines of default/loud left out within 60 s")
    };
    assert!(log.iter().any(reported), "it is logged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_into_a_closed_pipe_stops_nothing() {
    let mut lab = Lab::new();
    lab.start_with(|command| {
        command.stderr(closed());
    })
    .await;
    lab.signal(Signal::HUP);
    let began = Instant::now();
    while lost(&lab).await == 0 {
        assert!(began.elapsed() < DEADLINE, "nothing is lost");
    }
    // A line that is lost causes no other one: many requests later there are hardly more.
    let before = lost(&lab).await;
    for _ in 0..50 {
        lab.text("/metrics").await;
    }
    let more = lost(&lab).await - before;
    assert!(more < 100, "{more} lines were lost meanwhile");
    works(lab).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_whose_reader_hangs_stops_nothing() {
    let mut lab = Lab::new();
    let (_reader, stderr) = hanging();
    lab.start_with(|command| {
        command.env("LANDFALL_LOG", "trace").stderr(stderr);
    })
    .await;
    works(lab).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_output_that_nothing_reads_stops_nothing() {
    let (_reader, hanging) = hanging();
    for stdout in [closed(), full_disk(), hanging] {
        let lab = Lab::new();
        let admin = std::net::SocketAddr::new(lab.ranges.spare(2), 9640);
        let mut lab = lab.also(&["--admin", &admin.to_string()]);
        lab.spawn_with(|command| {
            command.stdout(stdout);
        });
        lab.answers_at(admin).await;
        works(lab).await;
    }
}
