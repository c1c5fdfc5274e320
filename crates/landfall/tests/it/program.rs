//! What the program says of itself without an instance: help, completion, man pages; and the demo.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::lab;
use crate::process::{self, Ended};

const COMMANDS: [&str; 9] = [
    "demo",
    "up",
    "controller",
    "get",
    "explain",
    "plan",
    "check",
    "completion",
    "man",
];

async fn landfall(home: &Path, arguments: &[&str]) -> Ended {
    process::run(process::program(home, arguments), "").await
}

#[tokio::test]
async fn help_teaches() {
    let home = TempDir::new().unwrap();
    let text = landfall(home.path(), &["--help"]).await.good();
    insta::assert_snapshot!("help", text);
    for command in COMMANDS {
        let text = landfall(home.path(), &[command, "--help"]).await.good();
        insta::assert_snapshot!(format!("help_{command}"), text);
        assert_eq!(landfall(home.path(), &["help", command]).await.good(), text);
    }
    let version = landfall(home.path(), &["--version"]).await.good();
    assert_eq!(version, format!("landfall {}\n", env!("CARGO_PKG_VERSION")));
}

#[tokio::test]
async fn a_mistyped_command_line_is_answered_with_what_was_meant() {
    let home = TempDir::new().unwrap();
    for (arguments, answer) in [
        (&["upp"][..], "'up'"),
        (&["up"], "--filename <PATH>"),
        (&["up", "-f", "x", "--pol", "y"], "'--pool'"),
        (&["up", "-f", "x", "--workers", "0"], "--workers"),
        (&["up", "-f", "x", "--pool", "banana"], "banana"),
        (
            &["check", "-f", "x", "--pool", "10.0.0.9-10.0.0.1"],
            "--pool",
        ),
        (&["check", "-f", "no-such-file.yaml"], "no-such-file.yaml"),
        (&["up", "-f", "x", "--admin", "here"], "--admin"),
        (&["get", "pods"], "services"),
        (&["get", "services", "-o", "xml"], "wide, json, yaml"),
        (&["completion", "tcsh"], "bash"),
        (&[], "Usage: landfall"),
    ] {
        let ended = landfall(home.path(), arguments).await;
        assert_eq!(
            (ended.code(), ended.stdout.as_str()),
            (Some(2), ""),
            "{arguments:?}"
        );
        assert!(
            ended.stderr.contains(answer),
            "{arguments:?}: {}",
            ended.stderr
        );
    }
}

#[tokio::test]
async fn every_shell_gets_a_completion_script() {
    let home = TempDir::new().unwrap();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = landfall(home.path(), &["completion", shell]).await.good();
        for word in ["landfall", "explain", "log-format", "prune"] {
            assert!(script.contains(word), "{shell} knows no {word}");
        }
        if shell == "bash" {
            let mut bash = std::process::Command::new("bash");
            bash.args(["-n", "/dev/stdin"]);
            bash.stdout(std::process::Stdio::piped());
            bash.stderr(std::process::Stdio::piped());
            let ended = process::run(bash, &script).await;
            assert!(ended.status.success(), "{}", ended.stderr);
        }
    }
}

#[tokio::test]
async fn every_command_gets_a_man_page() {
    let home = TempDir::new().unwrap();
    let dir = home.path().join("man/man1");
    landfall(home.path(), &["man", "--dir", dir.to_str().unwrap()])
        .await
        .good();
    let pages: BTreeMap<String, String> = fs::read_dir(&dir)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect();
    let mut expected: Vec<String> = COMMANDS
        .iter()
        .map(|it| format!("landfall-{it}.1"))
        .collect();
    expected.extend(["landfall.1", "landfall-adopt-metallb.1"].map(str::to_owned));
    for name in &expected {
        let page = pages
            .get(name)
            .unwrap_or_else(|| panic!("no {name}: {:?}", pages.keys()));
        assert!(page.contains(".TH ") && page.contains(".SH NAME"), "{name}");
        for section in ["EXIT STATUS", "ENVIRONMENT", "FILES", "SEE ALSO"] {
            let head = format!(".SH \"{section}\"\n");
            assert_eq!(page.matches(&head).count(), 1, "{name} {section}");
        }
        assert!(!page.contains(&format!(".BR {}", name.replace(".1", " "))));
    }
    assert!(pages["landfall-up.1"].contains("pool"));
    assert!(
        pages["landfall-up.1"].contains("landfall\\-up"),
        "the synopsis"
    );
    let before = fs::read_dir(home.path()).unwrap().count();
    let printed = landfall(home.path(), &["man"]).await.good();
    assert_eq!(printed, pages["landfall.1"]);
    let after = fs::read_dir(home.path()).unwrap().count();
    assert_eq!(after, before, "printing writes no file");

    let in_the_way = home.path().join("file");
    fs::write(&in_the_way, "").unwrap();
    let ended = landfall(home.path(), &["man", "--dir", in_the_way.to_str().unwrap()]).await;
    assert_eq!(ended.code(), Some(1));
    assert!(
        ended.stderr.contains("making the folder"),
        "{}",
        ended.stderr
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_demo_answers_every_request_and_the_sick_backend_gets_none() {
    let home = TempDir::new().unwrap();
    // Two at once: one must not be in the other's way.
    let (one, other) = tokio::join!(
        landfall(home.path(), &["demo", "--once"]),
        landfall(home.path(), &["demo", "--once"])
    );
    for ended in [one, other] {
        assert_eq!(ended.stderr, "");
        let text = ended.good();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("SERVICE"), "{text}");
        for (service, ports, healthy, state) in [
            ("demo/api", "8080/TCP", "3/3", "Ready"),
            ("demo/echo", "8053/UDP", "2/2", "Ready"),
            ("demo/later", "8080/TCP", "0/0", "NoTraffic"),
            ("demo/web", "8080/TCP", "3/4", "Ready"),
        ] {
            let line = lines
                .iter()
                .find(|line| line.starts_with(&format!("{service} ")));
            let words: Vec<&str> = line.expect(service).split_whitespace().collect();
            let [name, address, rest @ ..] = &words[..] else {
                panic!("{text}");
            };
            assert_eq!((*name, rest), (service, &[ports, healthy, state][..]));
            assert!(address.starts_with("127.77."), "{text}");
        }
        // 40 requests each: 3 to 1 by weight (the backup rests), half and half, a third each.
        let spread = |service: &str| {
            let head = format!("{service} 127.77.");
            let line = lines.iter().rfind(|line| line.starts_with(&head)).unwrap();
            line.rsplit_once(": ").unwrap().1.to_owned()
        };
        assert_eq!(spread("demo/api"), "web-a 30, web-b 10");
        assert_eq!(spread("demo/echo"), "echo-a 20, echo-b 20");
        let web = spread("demo/web");
        let counts: Vec<u32> = web
            .split(", ")
            .map(|share| share.split(' ').nth(1).unwrap().parse().unwrap())
            .collect();
        assert!(
            counts.len() == 3 && counts.iter().all(|it| (13..=14).contains(it)),
            "{web}"
        );
        assert_eq!(
            lines.last(),
            Some(&"every request was answered, and web-sick got none")
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_demo_serves_until_it_is_interrupted() {
    use rustix::process::{Pid, Signal, kill_process};
    use tokio::io::{AsyncBufReadExt as _, BufReader};

    let home = TempDir::new().unwrap();
    let command = process::program(home.path(), &["demo", "--admin", "127.0.0.1:0"]);
    let mut child = tokio::process::Command::from(command)
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut curl = Vec::new();
    let mut page = None;
    let read = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if let Some(rest) = line.trim().strip_prefix("curl http://") {
                curl.push(rest.split('/').next().unwrap().to_owned());
            }
            if let Some((_, rest)) = line.split_once("Status page   http://") {
                page = Some(rest.trim_end_matches('/').to_owned());
            }
            if line.contains("Ctrl-C") {
                return;
            }
        }
    };
    tokio::time::timeout(lab::DEADLINE, read)
        .await
        .expect("the demo comes up");
    assert_eq!(curl.len(), 2, "{curl:?}");
    for target in &curl {
        let answer = crate::client::http(target.parse().unwrap(), "/")
            .await
            .unwrap();
        assert_eq!(answer.status, 200);
        assert!(answer.body.starts_with("web-"), "{}", answer.body);
    }
    let page = page.expect("it says where its page is").parse().unwrap();
    let answer = crate::client::http(page, "/").await.unwrap();
    assert!(answer.body.contains("<title>"), "{}", answer.body);
    let pid = Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let status = tokio::time::timeout(lab::DEADLINE, child.wait())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(status.code(), Some(0));
}
