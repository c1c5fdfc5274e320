//! Starts that are refused, and stops: what is under way may end.

use std::fs;
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use landfall_model::view::ServiceView;
use rustix::process::Signal;

use crate::backend::Backend;
use crate::client::{self, Browser, Talk};
use crate::lab::{DEADLINE, LOOK, Lab};
use crate::manifest::svc;
use crate::process::Ended;
use crate::view::at;

/// Starts that are over at once.
async fn refused(lab: Lab) -> Ended {
    let mut lab = lab;
    lab.spawn();
    let ended = lab.end().await;
    assert_eq!(ended.code(), Some(1), "{}", ended.stderr);
    assert_eq!(ended.stdout, "");
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    assert!(ended.stderr.starts_with("landfall: "), "{}", ended.stderr);
    ended
}

#[tokio::test]
async fn an_admin_address_that_refuses_is_reported_with_a_remedy() {
    let lab = Lab::new();
    lab.write("web.yaml", &svc("web").tcp(8080).yaml());
    for arguments in [&["get", "services"][..], &["explain", "default/web"]] {
        let ended = lab.landfall(arguments, &[]).await;
        assert_eq!((ended.code(), ended.stdout.as_str()), (Some(1), ""));
        let beginning = format!(
            "landfall: no instance answers at {}: ",
            lab.unused_address()
        );
        assert!(ended.stderr.starts_with(&beginning), "{}", ended.stderr);
        assert!(ended.stderr.contains("refused"), "{}", ended.stderr);
        assert!(ended.stderr.contains("LANDFALL_ADMIN"), "{}", ended.stderr);
    }
    let ended = lab
        .landfall(&["get", "services", "--admin", "not an address"], &[])
        .await;
    assert_eq!(ended.code(), Some(1));
    assert!(ended.stderr.contains("HOST:PORT"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_server_at_the_admin_address_is_not_taken_for_an_instance() {
    let lab = Lab::new();
    let other = Backend::http("other", lab.ranges.backend(1, 3001)).await;
    let address = other.address.to_string();
    let ended = lab
        .landfall(&["get", "services", "--admin", &address], &[])
        .await;
    assert_eq!(ended.code(), Some(1));
    assert!(
        ended.stderr.contains("did not answer like Landfall"),
        "{}",
        ended.stderr
    );
}

#[tokio::test]
async fn a_taken_admin_port_stops_the_start() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let ended = refused(Lab::new().also(&["--admin", &address])).await;
    assert!(ended.stderr.contains(&address), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("--admin names another address"),
        "{}",
        ended.stderr
    );
}

#[tokio::test]
async fn a_path_that_is_not_there_stops_the_start() {
    let lab = Lab::new().also(&["-f", "/nowhere/at/all.yaml"]);
    let ended = refused(lab).await;
    assert!(
        ended.stderr.contains("/nowhere/at/all.yaml: No such file"),
        "{}",
        ended.stderr
    );
    assert_eq!(ended.stderr.matches("No such file").count(), 1);
}

#[tokio::test]
async fn an_invalid_pool_stops_the_start() {
    for text in ["127.0.0.0/33", "127.0.0.9-127.0.0.1", "everything", ""] {
        let mut lab = Lab::new().also(&["--pool", text]);
        lab.spawn();
        let ended = lab.end().await;
        assert_eq!(ended.code(), Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains("--pool"), "{}", ended.stderr);
        assert!(ended.stderr.contains(text), "{}", ended.stderr);
    }
    // The pool of the lab, twice.
    let lab = Lab::new();
    let pool = lab.ranges.pool_cidr();
    let ended = refused(lab.also(&["--pool", &pool])).await;
    assert!(ended.stderr.contains("overlaps"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_directory_in_use_stops_the_start_and_names_its_user() {
    let lab = Lab::new().started().await;
    let second = Lab::new();
    let state = lab.state();
    let mut second = second.also(&["--state", state.to_str().unwrap()]);
    second.spawn();
    let ended = second.end().await;
    assert_eq!(ended.code(), Some(1), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("waiting for it to end"),
        "{}",
        ended.stderr
    );
    let message = format!(
        "the state directory {} is in use by process ",
        state.display()
    );
    assert!(ended.stderr.contains(&message), "{}", ended.stderr);
    assert!(ended.stderr.contains("(landfall)"), "{}", ended.stderr);
    assert!(ended.stderr.contains("--state"), "{}", ended.stderr);
    // The first one does not mind.
    assert!(lab.view().await.ready);
}

#[tokio::test]
async fn a_state_directory_that_can_not_be_made_stops_the_start() {
    let lab = Lab::new();
    let path = lab.path("file");
    fs::write(&path, "").unwrap();
    let state = path.join("state");
    let ended = refused(lab.also(&["--state", state.to_str().unwrap()])).await;
    assert!(
        ended.stderr.contains(state.to_str().unwrap()),
        "{}",
        ended.stderr
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_folder_is_served_until_something_comes() {
    let lab = Lab::new().started().await;
    assert!(
        lab.stdout()
            .starts_with("no Services of type LoadBalancer in these manifests yet\n")
    );
    assert_eq!(lab.text("/readyz").await, "ready\n");
    assert_eq!(lab.text("/healthz").await, "ok\n");
    let backend = Backend::lines("pod", lab.ranges.backend(1, 3001)).await;
    let web = svc("web").tcp(8080).members(&[backend.address]);
    lab.write("web.yaml", &web.yaml());
    let web = lab.ready("default/web").await;
    assert_eq!(client::member(at(&web, 8080)).await.unwrap(), "pod");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_lets_a_long_request_finish_and_ends_with_success() {
    let mut lab = Lab::new();
    let web = Backend::http("web", lab.ranges.backend(1, 3001)).await;
    let pod = Backend::lines("pod", lab.ranges.backend(2, 3001)).await;
    let http = svc("http")
        .tcp(8080)
        .option("mode", "http")
        .members(&[web.address]);
    lab.write("http.yaml", &http.yaml());
    lab.write(
        "line.yaml",
        &svc("line").tcp(8080).members(&[pod.address]).yaml(),
    );
    lab = lab.also(&["--grace", "25"]);
    lab.start().await;
    let http = at(&lab.ready("default/http").await, 8080);
    let line = at(&lab.ready("default/line").await, 8080);

    let request = tokio::spawn(client::http(http, "/hold"));
    let mut talk = Talk::to(line).await.unwrap();
    talk.say("before").await.unwrap();
    wait_until("the request is under way", || web.held() == 1).await;
    let began = Instant::now();
    lab.signal(Signal::TERM);
    // Nothing new is accepted ...
    let refuses = async || client::member(line).await.is_err();
    while !refuses().await {
        assert!(began.elapsed() < DEADLINE, "it goes on accepting");
        tokio::time::sleep(LOOK).await;
    }
    // ... and what is open goes on.
    assert!(!lab.has_ended());
    talk.say("after").await.unwrap();
    web.release();
    let answer = request.await.unwrap().unwrap();
    assert_eq!(answer.status, 200);
    drop(talk);
    let ended = lab.end().await;
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    // It did not wait for the grace time to pass.
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_at_any_moment_of_the_start_is_heeded() {
    let mut lab = Lab::new();
    let pod = Backend::lines("pod", lab.ranges.backend(2, 3001)).await;
    for number in 0..5 {
        let service = svc(&format!("web-{number}")).tcp(8080);
        let text = service.members(&[pod.address]).yaml();
        lab.write(&format!("{number}.yaml"), &text);
    }
    for moment in [0, 5, 10, 20, 30, 40, 60, 80] {
        lab.spawn();
        // Every moment is as good as the others: nothing is waited for here.
        tokio::time::sleep(Duration::from_millis(moment)).await;
        lab.signal(Signal::TERM);
        let ended = lab.end().await;
        // Before it holds anything there is nothing to end in order.
        let how = (ended.code(), ended.status.signal());
        assert!(
            how == (Some(0), None) || how == (None, Some(15)),
            "after {moment} ms: {how:?} {}",
            ended.stderr
        );
    }
    lab.start().await;
    for number in 0..5 {
        lab.ready(&format!("default/web-{number}")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_do_not_end_are_cut_after_the_grace_time() {
    let mut lab = Lab::new().also(&["--grace", "1"]);
    let pod = Backend::lines("pod", lab.ranges.backend(2, 3001)).await;
    lab.write(
        "line.yaml",
        &svc("line").tcp(8080).members(&[pod.address]).yaml(),
    );
    lab.start().await;
    let line = at(&lab.ready("default/line").await, 8080);
    let mut talk = Talk::to(line).await.unwrap();
    talk.say("before").await.unwrap();
    let began = Instant::now();
    lab.signal(Signal::INT);
    talk.ended().await;
    let ended = lab.end().await;
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert!(
        began.elapsed() >= Duration::from_millis(900),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_interrupt_ends_it_at_once() {
    let mut lab = Lab::new().also(&["--grace", "3600"]);
    let pod = Backend::lines("pod", lab.ranges.backend(2, 3001)).await;
    lab.write(
        "line.yaml",
        &svc("line").tcp(8080).members(&[pod.address]).yaml(),
    );
    lab.start().await;
    let line = at(&lab.ready("default/line").await, 8080);
    let mut talk = Talk::to(line).await.unwrap();
    talk.say("before").await.unwrap();
    lab.signal(Signal::INT);
    let stopping = || {
        let log = lab.log();
        log.iter().any(|line| {
            line["message"]
                .as_str()
                .is_some_and(|it| it.contains("stopping"))
        })
    };
    wait_until("it is stopping", stopping).await;
    talk.say("still there").await.unwrap();
    lab.signal(Signal::INT);
    let ended = lab.end().await;
    assert_eq!(ended.code(), Some(130), "{}", ended.stderr);
    talk.ended().await;
    // What was claimed stays claimed.
    lab.start().await;
    assert_eq!(at(&lab.ready("default/line").await, 8080), line);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_keep_alive_connection_does_not_hold_the_stop_up() {
    let mut lab = Lab::new().also(&["--grace", "60"]);
    let web = Backend::http("web", lab.ranges.backend(1, 3001)).await;
    let http = svc("http")
        .tcp(8080)
        .option("mode", "http")
        .members(&[web.address]);
    lab.write("http.yaml", &http.yaml());
    lab.start().await;
    let http = at(&lab.ready("default/http").await, 8080);
    let mut browser = Browser::over(client::connect(http).await.unwrap())
        .await
        .unwrap();
    assert_eq!(browser.get("web", "/", &[]).await.unwrap().status, 200);
    let began = Instant::now();
    lab.stop().await;
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    assert!(browser.get("web", "/", &[]).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_lines_are_json_with_fixed_fields() {
    let mut lab = Lab::new();
    lab.write(
        "web.yaml",
        &svc("web").tcp(8080).option("drain", "soon").yaml(),
    );
    lab.write("later.yaml", &svc("later").tcp(8080).yaml());
    lab.start().await;
    let validated = |service: &ServiceView| !service.status.conditions.is_empty();
    lab.until("default/web", "was validated", validated).await;
    lab.until("default/later", "was validated", validated).await;
    let state = lab.state().join("lock");
    assert!(Path::new(&state).exists());
    let ended = lab.stop().await;
    let log: Vec<serde_json::Value> = ended
        .stderr
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(!log.is_empty());
    for line in &log {
        for field in ["timestamp", "level", "message"] {
            assert!(line[field].is_string(), "{field} is missing: {line}");
        }
    }
    let applied: Vec<_> = log.iter().filter(|it| it["message"] == "applied").collect();
    assert_eq!(applied.len(), 2, "{log:#?}");
    for line in applied {
        assert_eq!(line["service"], "default/later");
        assert!(
            line["step"].is_string() && line["because"].is_string(),
            "{line}"
        );
    }
    let failed = log
        .iter()
        .find(|it| it["message"] == "sync failed")
        .unwrap();
    assert_eq!(failed["service"], "default/web");
    assert_eq!(failed["level"], "WARN");
    assert!(
        failed["error"]
            .as_str()
            .unwrap()
            .contains("landfall.dev/drain"),
        "{failed}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_moves_to_another_file_is_not_interrupted() {
    let mut lab = Lab::new();
    let pod = Backend::lines("pod", lab.ranges.backend(2, 3001)).await;
    let text = svc("web").tcp(8080).members(&[pod.address]).yaml();
    lab.write("z.yaml", &text);
    lab.start().await;
    let target = at(&lab.ready("default/web").await, 8080);
    let mut talk = Talk::to(target).await.unwrap();
    talk.say("before").await.unwrap();
    for (from, to) in [("z.yaml", "a.yaml"), ("a.yaml", "m.yml")] {
        fs::rename(lab.file(from), lab.file(to)).unwrap();
        let moved = |service: &ServiceView| {
            let origin = service.origin.as_ref();
            origin.is_some_and(|origin| origin.file.ends_with(to))
        };
        lab.until("default/web", "is known by its new file", moved)
            .await;
    }
    talk.say("after").await.unwrap();
    let web = lab.ready("default/web").await;
    assert_eq!(at(&web, 8080), target);
    let log: Vec<String> = lab.log().iter().map(ToString::to_string).collect();
    for word in ["DeletingLoadBalancer", "listener closed"] {
        assert!(log.iter().all(|line| !line.contains(word)), "{log:#?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_wants_no_load_balancer_any_more_gives_everything_back() {
    let mut lab = Lab::new();
    let pod = Backend::lines("pod", lab.ranges.backend(2, 3001)).await;
    let text = svc("web").tcp(8080).members(&[pod.address]).yaml();
    lab.write("web.yaml", &text);
    lab.start().await;
    let target = at(&lab.ready("default/web").await, 8080);
    lab.write(
        "web.yaml",
        &text.replace("type: LoadBalancer", "type: ClusterIP"),
    );
    lab.gone("default/web").await;
    assert_eq!(lab.view().await.pools[0].assigned_ipv4, 0);
    assert!(client::member(target).await.is_err());
    lab.write("web.yaml", &text);
    let web = lab.ready("default/web").await;
    assert_eq!(client::member(at(&web, 8080)).await.unwrap(), "pod");
}

async fn wait_until(what: &str, met: impl Fn() -> bool) {
    let began = Instant::now();
    while !met() {
        assert!(began.elapsed() < DEADLINE, "not so: {what}");
        tokio::time::sleep(LOOK).await;
    }
}
