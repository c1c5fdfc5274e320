//! A running `landfall controller`. It ends with the test, whichever way that ends.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::bed::{Bed, DEADLINE, LOOK, text};
use crate::traffic;

/// A started program.
pub struct Replica {
    pub name: String,
    pub admin: SocketAddr,
    child: Child,
    log: std::path::PathBuf,
}

// === impl Replica ===

impl Replica {
    /// Starts `landfall controller` and does not wait. Its name is its host's.
    pub fn spawn(bed: &Bed, name: &str, admin: SocketAddr, arguments: &[&str]) -> Self {
        Self::spawn_by(&bed.kubeconfig(), bed, name, admin, arguments)
    }

    /// The same by another way to the API server.
    pub fn spawn_by(
        kubeconfig: &Path,
        bed: &Bed,
        name: &str,
        admin: SocketAddr,
        arguments: &[&str],
    ) -> Self {
        let command = ["controller", "--namespace", "landfall-system"];
        Self::spawn_as(&command, kubeconfig, bed, (name, admin), arguments)
    }

    /// Starts `landfall up` beside the cluster, and does not wait.
    pub fn spawn_up(bed: &Bed, name: &str, admin: SocketAddr, arguments: &[&str]) -> Self {
        let command = ["up", "--log-format", "json"];
        Self::spawn_as(&command, &bed.kubeconfig(), bed, (name, admin), arguments)
    }

    fn spawn_as(
        command: &[&str],
        kubeconfig: &Path,
        bed: &Bed,
        (name, admin): (&str, SocketAddr),
        arguments: &[&str],
    ) -> Self {
        let log = bed.cluster.directory().join(format!("{name}.log"));
        let file = std::fs::File::create(&log).unwrap();
        let child = landfall(bed.cluster.directory())
            .args(command)
            .args(["--kubeconfig", text(kubeconfig)])
            .args(["--admin", &admin.to_string(), "--grace", "2"])
            .args(arguments)
            .env("HOSTNAME", name)
            .stderr(file)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            name: name.to_owned(),
            admin,
            child,
            log,
        }
    }

    /// Starts one that has no replicas, and waits until it is ready.
    pub async fn alone(bed: &Bed, admin: SocketAddr, config: &str) -> Self {
        let config = bed.write("landfall.yaml", config);
        let arguments = ["--leader-elect=false", "--config", text(&config)];
        let mut replica = Self::spawn(bed, "alone", admin, &arguments);
        replica.ready().await;
        replica
    }

    /// Waits until everything is known and handled.
    pub async fn ready(&mut self) {
        self.ready_within(DEADLINE).await;
    }

    /// The same where a cloud has to be waited for.
    pub async fn ready_within(&mut self, deadline: Duration) {
        let began = Instant::now();
        loop {
            let answer = traffic::http(self.admin, "/readyz").await;
            if answer.is_ok_and(|(status, _)| status == 200) {
                return;
            }
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "{} ended: {ended:?}", self.name);
            assert!(began.elapsed() < deadline, "{} is not ready", self.name);
            tokio::time::sleep(LOOK).await;
        }
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end.
    pub async fn end(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(began.elapsed() < DEADLINE, "{} did not end", self.name);
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Ends it as a crash would.
    pub async fn kill(mut self) {
        self.signal(Signal::KILL);
        self.end().await;
    }

    /// Ends it as an administrator would.
    pub async fn stop(mut self) {
        self.signal(Signal::TERM);
        let status = self.end().await;
        assert!(status.success(), "{} ended with {status}", self.name);
    }

    /// How many steps it has applied, by its log; waiting does not count.
    pub fn applied(&self) -> usize {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let is_step = |line: &&str| {
            line.contains("\"message\":\"applied\"") && !line.contains("\"step\":\"wait ")
        };
        log.lines().filter(is_step).count()
    }

    /// Whether its log has this text.
    pub fn said(&self, text: &str) -> bool {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        log.contains(text)
    }

    /// The value of a metric, all its labels added up.
    pub async fn metric(&self, name: &str) -> f64 {
        let (_, text) = traffic::http(self.admin, "/metrics").await.unwrap();
        let lines = text.lines().filter(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
        });
        let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        // Not `sum`: that of nothing is -0.
        values.fold(0.0, |sum, value| sum + value)
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to kill.
        let _ = self.child.kill();
        let status = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- {}: {status:?}", self.name);
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("{}", lines[lines.len().saturating_sub(60)..].join("\n"));
        }
    }
}

/// The binary, knowing nothing of the world around the test.
pub fn landfall(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
    command
        .current_dir(home)
        .env_clear()
        .env("HOME", home)
        .env("RUST_BACKTRACE", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs a program to its end.
pub async fn run(command: Command) -> Output {
    let ended = tokio::process::Command::from(command)
        .kill_on_drop(true)
        .output();
    tokio::time::timeout(DEADLINE, ended)
        .await
        .expect("the command ends")
        .unwrap()
}

/// What a program prints; it has to succeed.
pub async fn printed(command: Command) -> String {
    let output = run(command).await;
    let errors = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{errors}");
    text
}
