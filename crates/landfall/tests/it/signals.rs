//! Signals: what ends the process, in which order, and what does not.

use std::io;
use std::time::Instant;

use rustix::process::Signal;

use crate::backend::Backend;
use crate::client::{self, Talk};
use crate::lab::{DEADLINE, LOOK, Lab};
use crate::manifest::svc;
use crate::view::at;

/// A lab that serves one Service, and its address.
async fn serving(options: &[&str]) -> (Lab, Backend, std::net::SocketAddr) {
    let lab = Lab::new().also(options);
    let backend = Backend::lines("pod", lab.ranges.backend(1, 80)).await;
    let web = svc("web").tcp(8080).members(&[backend.address]).yaml();
    lab.write("web.yaml", &web);
    let lab = lab.started().await;
    let target = at(&lab.ready("default/web").await, 8080);
    (lab, backend, target)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signals_that_ask_for_nothing_end_nothing() {
    let (mut lab, _backend, target) = serving(&[]).await;
    let mut open = Talk::to(target).await.unwrap();
    open.say("before").await.unwrap();
    let signals = [
        Signal::HUP,
        Signal::USR1,
        Signal::PIPE,
        Signal::ALARM,
        Signal::XFSZ,
        Signal::VTALARM,
        Signal::PROF,
        Signal::IO,
        Signal::POWER,
    ];
    for signal in signals {
        lab.signal(signal);
        open.say("after").await.unwrap();
        assert!(!lab.has_ended(), "{signal:?} ended it");
    }
    lab.logged("this signal has no effect").await;
    assert_eq!(lab.text("/readyz").await, "ready\n");
    let ended = lab.stop().await;
    assert!(ended.stderr.contains("SIGHUP"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_ends_it_at_once_with_a_code_of_its_own() {
    let (mut lab, _backend, target) = serving(&["--grace", "600"]).await;
    let mut open = Talk::to(target).await.unwrap();
    open.say("before").await.unwrap();
    lab.signal(Signal::TERM);
    lab.not_ready().await;
    open.say("after the first").await.unwrap();
    lab.signal(Signal::TERM);
    assert_eq!(lab.end().await.code(), Some(130));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_a_stop_readiness_fails_first_and_the_admin_endpoint_answers_to_the_end() {
    let (mut lab, _backend, target) = serving(&["--grace", "600"]).await;
    let mut open = Talk::to(target).await.unwrap();
    open.say("before").await.unwrap();
    lab.signal(Signal::TERM);
    // Whenever nothing is accepted any more, it is not ready any more.
    loop {
        let refused = Talk::to(target).await.is_err();
        if refused {
            break;
        }
    }
    let answer = client::http(lab.admin(), "/readyz").await.unwrap();
    assert_eq!(answer.status, 503);
    assert!(answer.body.contains("it is stopping"), "{}", answer.body);
    let answer = client::http(lab.admin(), "/healthz").await.unwrap();
    assert_eq!(answer.status, 200);
    open.say("while it drains").await.unwrap();
    drop(open);
    assert_eq!(lab.end().await.code(), Some(0));
}

/// The status of a program that is to end.
async fn ended(mut child: std::process::Child) -> io::Result<std::process::ExitStatus> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if began.elapsed() > DEADLINE {
            child.kill()?;
            child.wait()?;
            panic!("it did not end");
        }
        tokio::time::sleep(LOOK).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_waits_for_its_input_can_be_stopped() -> io::Result<()> {
    let lab = Lab::new();
    let arguments = [
        "up",
        "-f",
        "-",
        "--state",
        "state",
        "--admin",
        "127.0.0.1:0",
    ];
    let mut command = crate::process::program(lab.path(".").as_path(), &arguments);
    // An input that never ends.
    let (_reader, writer) = io::pipe()?;
    let (input, _held) = io::pipe()?;
    command.stdin(input).stderr(writer);
    let child = command.spawn()?;
    let pid = rustix::process::Pid::from_child(&child);
    // Until it is watched for, the signal ends it by itself.
    let caught = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let mask = u64::from_str_radix(line.unwrap().trim(), 16).unwrap();
        mask & (1 << (15 - 1)) != 0
    };
    while !caught() {
        tokio::time::sleep(LOOK).await;
    }
    rustix::process::kill_process(pid, Signal::TERM)?;
    let status = ended(child).await?;
    assert_eq!(status.code(), Some(0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_that_waits_for_credentials_can_be_stopped_and_minds_no_other_signal()
-> io::Result<()> {
    let lab = Lab::new();
    let plugin = "mkfifo asked 2>/dev/null; echo > asked; exec sleep 60";
    let config = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "clusters": [{"name": "it", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "it", "user": {"exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "interactiveMode": "Never",
            "command": "sh",
            "args": ["-c", format!("cd '{}'; {plugin}", lab.path(".").display())],
        }}}],
    });
    lab.write("kubeconfig", &config.to_string());
    let kubeconfig = lab.file("kubeconfig");
    let mut command = crate::process::program(
        lab.path(".").as_path(),
        &["controller", "--kubeconfig", kubeconfig.to_str().unwrap()],
    );
    let mut child = command.spawn()?;
    let pid = rustix::process::Pid::from_child(&child);
    while !lab.path("asked").exists() {
        tokio::time::sleep(crate::lab::LOOK).await;
    }
    // The plugin waits until it is read that it was asked.
    std::fs::read(lab.path("asked"))?;
    for signal in [Signal::HUP, Signal::USR1] {
        rustix::process::kill_process(pid, signal)?;
    }
    assert!(child.try_wait()?.is_none());
    rustix::process::kill_process(pid, Signal::TERM)?;
    let status = ended(child).await?;
    assert_eq!(status.code(), Some(0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_edit_is_logged_once_and_so_is_its_end() {
    let (lab, backend, _target) = serving(&[]).await;
    let good = svc("web").tcp(8080).members(&[backend.address]).yaml();
    let problems = |message: &str| -> Vec<serde_json::Value> {
        let mut lines = lab.log();
        lines.retain(|line| line["message"] == message && line["code"] != "ServingPreviousVersion");
        lines
    };
    for value in ["eighty", "ninety"] {
        let broken = good.replace("{port: 8080}", &format!("{{port: {value}}}"));
        lab.write("web.yaml", &broken);
        lab.wait("it is reported", |view| {
            let mut problems = view.problems.iter();
            problems
                .find(|it| it.value.as_deref() == Some(value))
                .map(drop)
        })
        .await;
    }
    lab.write("web.yaml", &good);
    lab.wait("nothing is wrong any more", |view| {
        view.problems.is_empty().then_some(())
    })
    .await;
    let over = lab.logged("problem with a source is over").await;
    assert_eq!(over["level"], "INFO");
    let file = lab.file("web.yaml");
    let reported: Vec<_> = problems("problem with a source")
        .iter()
        .map(|line| {
            let words = ["level", "file", "field", "value"].map(|key| line[key].clone());
            assert!(line["line"].as_u64().is_some(), "{line}");
            words.map(|word| word.as_str().unwrap().to_owned())
        })
        .collect();
    let expected = ["eighty", "ninety"].map(|value| {
        let file = file.to_str().unwrap();
        ["WARN", file, "spec.ports[0].port", value].map(str::to_owned)
    });
    assert_eq!(reported, expected);
    assert_eq!(problems("problem with a source is over").len(), 1);
}
