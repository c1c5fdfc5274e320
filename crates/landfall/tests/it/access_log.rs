//! The access log as an option of the program: what it has, and that a file which takes nothing
//! stops nothing.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::backend::Backend;
use crate::blocked_log::works;
use crate::client;
use crate::lab::{DEADLINE, Lab};
use crate::manifest::svc;
use crate::view::at;

fn logging(lab: &mut Lab, to: &Path, more: &[&str]) -> impl Future<Output = ()> {
    let (to, more) = (
        to.to_owned(),
        more.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>(),
    );
    lab.start_with(move |command| {
        command.arg("--access-log").arg(to).args(more);
    })
}

/// How many lines were lost by now.
async fn lost(lab: &Lab) -> u64 {
    let metrics = lab.text("/metrics").await;
    let mut lines = metrics.lines();
    let lost = lines.find_map(|line| line.strip_prefix("landfall_access_log_lines_lost_total "));
    lost.unwrap().parse().unwrap()
}

/// Waits for a line that has all of this.
async fn line(path: &Path, parts: &[&str]) -> String {
    let began = Instant::now();
    loop {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let mut lines = text.lines();
        let found = lines.find(|line| parts.iter().all(|part| line.contains(part)));
        if let Some(line) = found {
            return line.to_owned();
        }
        assert!(began.elapsed() < DEADLINE, "{parts:?} are not in {text}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_and_connections_are_lines_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let mut lab = Lab::new();
    let web = Backend::http("web", lab.ranges.backend(1, 3001)).await;
    let lines = Backend::lines("lines", lab.ranges.backend(2, 3001)).await;
    let service = svc("web")
        .tcp(8080)
        .option("mode", "http")
        .members(&[web.address]);
    lab.write("web.yaml", &service.yaml());
    let service = svc("lines").tcp(8080).members(&[lines.address]);
    lab.write("lines.yaml", &service.yaml());
    logging(&mut lab, &path, &[]).await;
    let target = at(&lab.ready("default/web").await, 8080);
    client::http(target, "/cart?token=secret").await.unwrap();
    let found: Value = serde_json::from_str(&line(&path, &["default/web", "/cart"]).await).unwrap();
    assert_eq!(
        (&found["status"], &found["end"]),
        (&200.into(), &"ok".into()),
        "{found}"
    );
    assert_eq!(found["target"], "/cart");
    assert_eq!(found["member"], web.address.to_string());
    let target = at(&lab.ready("default/lines").await, 8080);
    client::member(target).await.unwrap();
    line(&path, &["default/lines", "\"bytesIn\":", "\"end\":\"ok\""]).await;
    assert_eq!(lost(&lab).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_common_format_is_what_tools_expect() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let mut lab = Lab::new();
    let web = Backend::http("web", lab.ranges.backend(1, 3001)).await;
    let service = svc("web")
        .tcp(8080)
        .option("mode", "http")
        .members(&[web.address]);
    lab.write("web.yaml", &service.yaml());
    let more = ["--access-log-format", "common", "--access-log-query"];
    logging(&mut lab, &path, &more).await;
    let target = at(&lab.ready("default/web").await, 8080);
    client::http(target, "/cart?a=b").await.unwrap();
    line(
        &path,
        &[" - - [", " +0000] \"GET /cart?a=b HTTP/1.1\" 200 "],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_access_log_on_a_full_disk_stops_nothing_and_what_is_lost_is_counted() {
    let mut lab = Lab::new();
    let pod = Backend::lines("pod", lab.ranges.backend(3, 80)).await;
    lab.write(
        "pod.yaml",
        &svc("pod").tcp(80).members(&[pod.address]).yaml(),
    );
    logging(&mut lab, Path::new("/dev/full"), &[]).await;
    let target = at(&lab.ready("default/pod").await, 80);
    let began = Instant::now();
    while lost(&lab).await == 0 {
        assert!(began.elapsed() < DEADLINE, "nothing is lost");
        client::member(target).await.unwrap();
    }
    works(lab).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fifo_without_a_reader_stops_nothing_and_has_lines_once_it_has_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fifo");
    fifo(&path);
    let mut lab = Lab::new();
    let pod = Backend::lines("pod", lab.ranges.backend(3, 80)).await;
    lab.write(
        "pod.yaml",
        &svc("pod").tcp(80).members(&[pod.address]).yaml(),
    );
    logging(&mut lab, &path, &[]).await;
    let target = at(&lab.ready("default/pod").await, 80);
    let began = Instant::now();
    while lost(&lab).await == 0 {
        assert!(began.elapsed() < DEADLINE, "nothing is lost");
        client::member(target).await.unwrap();
    }
    // Opening waits for the other end.
    let reading = std::thread::spawn(move || {
        let mut bytes = [0; 16];
        File::open(&path).unwrap().read_exact(&mut bytes).unwrap();
        bytes
    });
    while !reading.is_finished() {
        assert!(began.elapsed() < DEADLINE, "no line comes");
        client::member(target).await.unwrap();
    }
    assert_eq!(&reading.join().unwrap()[..9], b"{\"time\":\"");
    works(lab).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_hangs_stops_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fifo");
    fifo(&path);
    // Both ends, so that neither waits; and full.
    let mut ends = File::options().read(true).write(true).open(&path).unwrap();
    let mut filler = ends.try_clone().unwrap();
    std::thread::spawn(move || while filler.write_all(&[b'.'; 4096]).is_ok() {});
    let mut lab = Lab::new();
    logging(&mut lab, &path, &[]).await;
    works(lab).await;
    // What fills it may end.
    let mut room = vec![0; 1 << 20];
    ends.read_exact(&mut room[..4096]).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_configuration_names_the_file_and_the_command_line_goes_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (
        folder.path().join("one.log"),
        folder.path().join("other.log"),
    );
    let config = folder.path().join("landfall.yaml");
    let mut lab = Lab::new();
    let text = format!(
        "instances: [{{name: edge, provider: local, default: true}}]\naccessLog:\n  file: {}\n  \
         format: common\n",
        one.display()
    );
    std::fs::write(&config, text).unwrap();
    let web = Backend::http("web", lab.ranges.backend(1, 3001)).await;
    let service = svc("web").tcp(8080).option("mode", "http");
    lab.write("web.yaml", &service.members(&[web.address]).yaml());
    let config = config.to_str().unwrap().to_owned();
    let with_config = |command: &mut Command| {
        command.args(["--config", &config]);
    };
    lab.start_with(with_config).await;
    let target = at(&lab.ready("default/web").await, 8080);
    client::http(target, "/one").await.unwrap();
    line(&one, &["\"GET /one HTTP/1.1\" 200"]).await;
    lab.stop().await;
    lab.start_with(|command| {
        with_config(command);
        command.arg("--access-log").arg(&other);
    })
    .await;
    let target = at(&lab.ready("default/web").await, 8080);
    client::http(target, "/other").await.unwrap();
    line(&other, &["\"GET /other HTTP/1.1\" 200"]).await;
    let first = std::fs::read_to_string(&one).unwrap();
    assert!(!first.contains("/other"), "{first}");
}
