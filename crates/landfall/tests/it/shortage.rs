//! A process with few descriptors, and a client that takes all it can get.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use landfall_model::reason::Code;
use landfall_model::view::Health;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::backend::{self, Backend};
use crate::client::{self, Browser};
use crate::lab::Lab;
use crate::manifest::svc;
use crate::view::{at, health_of};

/// Few enough to be used up by one test.
const FILES: u32 = 1024;

/// More clients than that.
const FLOOD: usize = 1400;

/// Makes a command run with few descriptors.
fn limited(command: &mut Command) {
    limited_to(command, FILES);
}

/// Makes a command run with so many descriptors.
pub fn limited_to(command: &mut Command, files: u32) {
    let mut within = Command::new("prlimit");
    within
        .arg(format!("--nofile={files}:{files}"))
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => within.env(name, value),
            None => within.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        within.current_dir(folder);
    }
    within
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    *command = within;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_one_service_leaves_all_else_as_it_is() {
    let mut lab = Lab::new();
    let [flooded, other, mut dying]: [Backend; 3] =
        backend::pods(&lab, &["flooded", "other", "dying"])
            .await
            .try_into()
            .unwrap();
    for (name, backend) in [("flooded", &flooded), ("other", &other), ("dying", &dying)] {
        let service = svc(name)
            .tcp(8080)
            .option("endpoints", &backend.address.to_string())
            .option("monitor", "tcp")
            .option("monitor-delay", "500ms")
            .option("monitor-max-retries-down", "2");
        lab.write(&format!("{name}.yaml"), &service.yaml());
    }
    lab.start_with(limited).await;
    let target = at(&lab.ready("default/flooded").await, 8080);
    let others = at(&lab.ready("default/other").await, 8080);
    let is_up = |service: &_| health_of(service, dying.address) == Some(Health::Up);
    lab.until("default/dying", "is up", is_up).await;

    let mut clients = Vec::new();
    for _ in 0..FLOOD {
        clients.push(TcpStream::connect(target).await);
    }
    lab.problem(Code::Overloaded).await;
    for _ in 0..5 {
        assert_eq!(client::member(others).await.unwrap(), "other");
    }
    lab.text("/healthz").await;
    let reason = lab.reason("default/flooded", Code::Overloaded).await;
    assert!(
        reason
            .message
            .contains("file descriptors that all Services have")
    );
    let address = dying.address;
    dying.stop().await;
    let begun = Instant::now();
    let is_down = |service: &_| health_of(service, address) == Some(Health::Down);
    lab.until("default/dying", "is down", is_down).await;
    eprintln!("noticed after {:?}", begun.elapsed());
    // New Services are served, too.
    let service = svc("late")
        .tcp(8080)
        .option("endpoints", &other.address.to_string());
    lab.write("late.yaml", &service.yaml());
    let late = at(&lab.ready("default/late").await, 8080);
    assert_eq!(client::member(late).await.unwrap(), "other");
    // What is refused costs no line each.
    let log = lab.log();
    assert!(log.len() < 200, "{} lines", log.len());
    // One event, and on the Service whose clients they are.
    let events = log.iter().filter(|it| it["reason"] == "Overloaded");
    let events: Vec<_> = events.map(|it| &it["service"]).collect();
    assert_eq!(events, ["default/flooded"]);

    drop(clients);
    let deadline = Instant::now() + Duration::from_secs(30);
    while client::member(target).await.is_err() {
        assert!(Instant::now() < deadline, "not served again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Clients that use HTTP/2, and how many requests each has under way: twice what there is.
const BROWSERS: usize = 20;
const STREAMS: usize = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_of_http2_clients_leave_other_services_their_descriptors() {
    let mut lab = Lab::new();
    let busy = Backend::http("busy", lab.ranges.backend(1, 3001)).await;
    let other = Backend::lines("other", lab.ranges.backend(2, 3001)).await;
    let service = svc("busy")
        .tcp(8080)
        .option("mode", "http")
        .members(&[busy.address]);
    lab.write("busy.yaml", &service.yaml());
    let service = svc("other").tcp(8080).members(&[other.address]);
    lab.write("other.yaml", &service.yaml());
    lab.start_with(limited).await;
    let target = at(&lab.ready("default/busy").await, 8080);
    let others = at(&lab.ready("default/other").await, 8080);

    // All are there before the first one takes what there is.
    let mut browsers = Vec::new();
    for _ in 0..BROWSERS {
        let stream = TcpStream::connect(target).await.unwrap();
        let mut browser = Browser::over_h2(stream).await.unwrap();
        browser.get("shop.example", "/", &[]).await.unwrap();
        browsers.push(browser);
    }
    let mut requests = JoinSet::new();
    for browser in &browsers {
        let Browser::Two(sender) = browser else {
            panic!("no HTTP/2");
        };
        for _ in 0..STREAMS {
            let mut browser = Browser::Two(sender.clone());
            requests.spawn(async move { browser.get("shop.example", "/hold", &[]).await });
        }
    }
    let mut refused = 0;
    while refused + busy.held() < BROWSERS * STREAMS {
        let Some(ended) = requests.try_join_next() else {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        };
        let answer = ended.unwrap().expect("an answer");
        assert_eq!(answer.status, 503, "{answer:?}");
        assert_eq!(answer.body, "too many connections are in use\n");
        refused += 1;
    }
    assert!(busy.held() > BROWSERS, "{} held", busy.held());
    lab.problem(Code::Overloaded).await;
    for _ in 0..5 {
        assert_eq!(client::member(others).await.unwrap(), "other");
    }
    lab.text("/healthz").await;

    // What is given back can be used again.
    drop((requests, browsers));
    let deadline = Instant::now() + Duration::from_secs(30);
    while client::http(target, "/")
        .await
        .map_or(0, |answer| answer.status)
        != 200
    {
        assert!(Instant::now() < deadline, "not served again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
