//! A Landfall of one's own: the real binary with its folder of manifests, its state directory and
//! its addresses. It ends with the test, whichever way that ends.

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use landfall_model::reason::{Code, Reason};
use landfall_model::view::{InstanceView, ServiceView};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::client;
use crate::process::{Ended, Running, program, run};
use crate::ranges::Ranges;
use crate::view::{find, is_ready};

/// More than anything takes on a busy machine. Nothing waits this long unless it fails.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// From one check of a condition to the next.
pub const LOOK: Duration = Duration::from_millis(10);

/// A running instance, or one that can be started.
#[derive(Debug)]
pub struct Lab {
    pub ranges: Ranges,
    home: TempDir,
    /// What is served, if not the folder of manifests.
    input: Option<String>,
    arguments: Vec<String>,
    running: Option<Running>,
    starts: usize,
}

// === impl Lab ===

impl Lab {
    /// A lab with an empty folder of manifests, not started.
    pub fn new() -> Self {
        let home = TempDir::with_prefix("landfall-it-").unwrap();
        fs::create_dir(home.path().join("manifests")).unwrap();
        fs::create_dir(home.path().join("fresh")).unwrap();
        let ranges = Ranges::claim();
        let arguments = vec!["--pool".to_owned(), ranges.pool_cidr()];
        Self {
            ranges,
            home,
            input: None,
            arguments,
            running: None,
            starts: 0,
        }
    }

    /// With other options of `up` than the pool of its own.
    pub fn options(mut self, options: &[&str]) -> Self {
        self.arguments = options.iter().map(ToString::to_string).collect();
        self
    }

    /// With further options of `up`.
    pub fn also(mut self, options: &[&str]) -> Self {
        self.arguments
            .extend(options.iter().map(ToString::to_string));
        self
    }

    /// Serves what stands in its standard input, and no folder.
    pub fn reading(mut self, input: &str) -> Self {
        self.input = Some(input.to_owned());
        self
    }

    /// Starts it and waits until it has said where it answers.
    pub async fn started(mut self) -> Self {
        self.start().await;
        self
    }

    pub fn folder(&self) -> PathBuf {
        self.home.path().join("manifests")
    }

    pub fn state(&self) -> PathBuf {
        self.home.path().join("state")
    }

    /// A path in the lab's own directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// Puts a manifest into the folder in one go, as editors do.
    pub fn write(&self, name: &str, text: &str) {
        let fresh = self.home.path().join("fresh").join(name);
        fs::write(&fresh, text).unwrap();
        fs::rename(&fresh, self.file(name)).unwrap();
    }

    pub fn remove(&self, name: &str) {
        fs::remove_file(self.file(name)).unwrap();
    }

    /// The arguments of `up`.
    fn up(&self) -> Vec<String> {
        let path = |path: PathBuf| path.to_str().unwrap().to_owned();
        let source = match self.input {
            Some(_) => "-".to_owned(),
            None => path(self.folder()),
        };
        let mut arguments = vec!["up".to_owned(), "--filename".to_owned(), source];
        let defaults = [
            ("--state", path(self.state())),
            ("--admin", "127.0.0.1:0".to_owned()),
            ("--log-format", "json".to_owned()),
        ];
        for (option, value) in defaults {
            if !self.arguments.iter().any(|given| given == option) {
                arguments.extend([option.to_owned(), value]);
            }
        }
        arguments.extend(self.arguments.iter().cloned());
        arguments
    }

    /// Starts it and does not wait.
    pub fn spawn(&mut self) {
        self.spawn_with(|_| {});
    }

    /// The same for a command that was changed before.
    pub fn spawn_with(&mut self, change: impl FnOnce(&mut Command)) {
        assert!(self.running.is_none(), "it runs already");
        let arguments = self.up();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut command = program(self.home.path(), &arguments);
        command.stdin(Stdio::piped());
        change(&mut command);
        let mut child = command.spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        if let Some(input) = &self.input {
            pipe.write_all(input.as_bytes()).unwrap();
        }
        self.starts += 1;
        self.running = Some(Running::of(child));
    }

    /// Starts it and waits until it has said where it answers.
    pub async fn start(&mut self) {
        self.spawn();
        self.found().await;
    }

    /// The same for a command that was changed before.
    pub async fn start_with(&mut self, change: impl FnOnce(&mut Command)) {
        self.spawn_with(change);
        self.found().await;
    }

    /// Starts another process with these options in place of their earlier values, and waits until
    /// it has said that it serves. Returns the one before.
    pub async fn succeeded(&mut self, options: &[&str]) -> Running {
        for pair in options.chunks(2) {
            if let [option, value] = pair
                && let Some(place) = self.arguments.iter().position(|given| given == option)
            {
                (*value).clone_into(&mut self.arguments[place + 1]);
            }
        }
        let old = self.running.take().expect("it runs");
        if !self.arguments.iter().any(|given| given == "--take-over") {
            self.arguments.push("--take-over".to_owned());
        }
        self.start().await;
        old
    }

    /// How a process that was succeeded ended.
    pub async fn end_of(old: &mut Running) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = old.child.try_wait().unwrap() {
                return status;
            }
            assert!(began.elapsed() < DEADLINE, "it did not end");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until it answers at an address that it was given and can't say.
    pub async fn answers_at(&mut self, admin: SocketAddr) {
        let began = Instant::now();
        while client::http(admin, "/healthz").await.is_err() {
            assert!(began.elapsed() < DEADLINE, "it does not answer");
            tokio::time::sleep(LOOK).await;
        }
        self.running.as_mut().expect("it runs").admin = Some(admin);
    }

    /// Waits until it says that it is not ready.
    pub async fn not_ready(&self) {
        let began = Instant::now();
        while client::http(self.admin(), "/readyz").await.unwrap().status != 503 {
            assert!(began.elapsed() < DEADLINE, "it is ready");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits for a log line with this message.
    pub async fn logged(&self, message: &str) -> Value {
        let began = Instant::now();
        loop {
            let mut lines = self.log().into_iter();
            if let Some(line) = lines.find(|line| line["message"] == message) {
                return line;
            }
            assert!(began.elapsed() < DEADLINE, "{message:?} is not logged");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until it has said where it answers, which is once it is ready (or slow to be).
    pub async fn found(&mut self) {
        let began = Instant::now();
        loop {
            let running = self.running.as_mut().expect("it was started");
            if let Some(address) = running.announced() {
                running.admin = Some(address);
                return;
            }
            let ended = running.child.try_wait().unwrap();
            assert!(ended.is_none(), "it ended while it started: {ended:?}");
            assert!(
                began.elapsed() < DEADLINE,
                "it did not say where it answers"
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Its options that name pools, as other commands take them.
    pub fn pool_options(&self) -> Vec<&str> {
        let mut options = Vec::new();
        for pair in self.arguments.windows(2) {
            if pair[0] == "--pool" {
                options.extend(pair.iter().map(String::as_str));
            }
        }
        options
    }

    /// Where the admin endpoint answers.
    pub fn admin(&self) -> SocketAddr {
        let running = self.running.as_ref().expect("it runs");
        running.admin.expect("it has said where it answers")
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.running.as_ref().expect("it runs").child.id()
    }

    pub fn signal(&self, signal: Signal) {
        let child = &self.running.as_ref().expect("it runs").child;
        let pid = Pid::from_child(child);
        kill_process(pid, signal).unwrap();
    }

    /// Whether it has ended by itself or by a signal.
    pub fn has_ended(&mut self) -> bool {
        let running = self.running.as_mut().expect("it runs");
        running.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end.
    pub async fn end(&mut self) -> Ended {
        let began = Instant::now();
        while !self.has_ended() {
            assert!(began.elapsed() < DEADLINE, "it did not end");
            tokio::time::sleep(LOOK).await;
        }
        let mut running = self.running.take().expect("it was started");
        let status = running.child.wait().unwrap();
        Ended {
            status,
            stdout: running.stdout.whole(),
            stderr: running.stderr.whole(),
        }
    }

    /// Ends it as a crash would.
    pub async fn kill(&mut self) {
        self.signal(Signal::KILL);
        let ended = self.end().await;
        assert_eq!(ended.status.signal(), Some(9), "{}", ended.stderr);
    }

    /// Ends it as an administrator would.
    pub async fn stop(&mut self) -> Ended {
        self.signal(Signal::TERM);
        let ended = self.end().await;
        assert!(
            ended.status.success(),
            "{:?}: {}",
            ended.status,
            ended.stderr
        );
        ended
    }

    /// Its log lines so far.
    pub fn log(&self) -> Vec<Value> {
        let text = self.running.as_ref().expect("it runs").stderr.text();
        let lines = text.lines().map(|line| {
            let parsed = serde_json::from_str(line);
            parsed.unwrap_or_else(|error| panic!("{line:?} is no JSON: {error}"))
        });
        lines.collect()
    }

    /// What it has written to standard output so far.
    pub fn stdout(&self) -> String {
        self.running.as_ref().expect("it runs").stdout.text()
    }

    /// A JSON document of the admin endpoint.
    pub async fn json(&self, path: &str) -> Value {
        serde_json::from_str(&self.text(path).await).unwrap()
    }

    /// A text of the admin endpoint.
    pub async fn text(&self, path: &str) -> String {
        let began = Instant::now();
        loop {
            let answer = client::http(self.admin(), path).await.unwrap();
            // Large texts are written one at a time: on a busy machine a turn takes its time.
            let busy = answer.status == 503 && !path.ends_with('z');
            if busy && began.elapsed() < DEADLINE {
                tokio::time::sleep(LOOK).await;
                continue;
            }
            assert_eq!(answer.status, 200, "{path}: {}", answer.body);
            return answer.body;
        }
    }

    /// Everything it knows.
    pub async fn view(&self) -> InstanceView {
        serde_json::from_value(self.json("/api/v1/instance").await).unwrap()
    }

    /// What it knows of one Service.
    pub async fn service(&self, key: &str) -> ServiceView {
        let view = self.view().await;
        find(&view, key).cloned().expect("the Service is known")
    }

    /// Waits for something to be true of everything it knows; returns what was looked for.
    pub async fn wait<T>(&self, what: &str, look: impl Fn(&InstanceView) -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            let view = self.view().await;
            if let Some(found) = look(&view) {
                return found;
            }
            if began.elapsed() > DEADLINE {
                let view = serde_json::to_string_pretty(&view).unwrap();
                panic!("{what}: not so after {DEADLINE:?}\n{view}");
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits for something to be true of a Service; returns the Service as it is then.
    pub async fn until(
        &self,
        key: &str,
        what: &str,
        met: impl Fn(&ServiceView) -> bool,
    ) -> ServiceView {
        let what = format!("{key} {what}");
        self.wait(&what, |view| {
            find(view, key).filter(|service| met(service)).cloned()
        })
        .await
    }

    /// Waits until traffic flows to a Service.
    pub async fn ready(&self, key: &str) -> ServiceView {
        self.until(key, "is ready", is_ready).await
    }

    /// Waits until a Service is known no more.
    pub async fn gone(&self, key: &str) {
        let gone = |view: &InstanceView| find(view, key).is_none().then_some(());
        self.wait(&format!("{key} is gone"), gone).await;
    }

    /// Waits until a reason of this code is reported of a Service.
    pub async fn reason(&self, key: &str, code: Code) -> Reason {
        let what = format!("{key} reports {code}");
        self.wait(&what, |view| {
            let service = find(view, key)?;
            let mut reasons = service.reasons.iter();
            reasons.find(|reason| reason.code == code).cloned()
        })
        .await
    }

    /// Waits until a reason of this code is reported of the manifests or pools.
    pub async fn problem(&self, code: Code) -> Reason {
        self.wait(&format!("{code} is reported"), |view| {
            let mut problems = view.problems.iter();
            problems.find(|reason| reason.code == code).cloned()
        })
        .await
    }

    /// Waits until the folder as it is now would change nothing any more.
    pub async fn settled(&self) {
        let began = Instant::now();
        loop {
            let plan = self
                .landfall(&["plan", "-o", "json", "-f"], &[&self.folder()])
                .await;
            let plan: Value = serde_json::from_str(&plan.stdout).unwrap();
            assert_eq!(plan["against"], "instance");
            let plans = plan["plans"].as_array().unwrap();
            if plans
                .iter()
                .all(|plan| plan["steps"] == serde_json::json!([]))
            {
                return;
            }
            assert!(began.elapsed() < DEADLINE, "still to be done: {plan:#}");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Runs a command of the binary against this instance (if it does not run, against none).
    pub async fn landfall(&self, arguments: &[&str], paths: &[&Path]) -> Ended {
        self.landfall_reading(arguments, paths, "").await
    }

    /// The same with something in its standard input.
    pub async fn landfall_reading(
        &self,
        arguments: &[&str],
        paths: &[&Path],
        input: &str,
    ) -> Ended {
        let mut arguments = arguments.to_vec();
        arguments.extend(paths.iter().map(|path| path.to_str().unwrap()));
        let mut command = program(self.home.path(), &arguments);
        let admin = self.running.as_ref().and_then(|running| running.admin);
        let admin = admin.unwrap_or_else(|| self.unused_address());
        command.env("LANDFALL_ADMIN", admin.to_string());
        run(command, input).await
    }

    /// An address at which nothing answers.
    pub fn unused_address(&self) -> SocketAddr {
        SocketAddr::new(self.ranges.spare(1), 9)
    }

    /// The text with everything taken out of it that differs from run to run.
    pub fn hide(&self, text: &str) -> String {
        let mut text = self.ranges.hide(text);
        text = text.replace(self.home.path().to_str().unwrap(), "LAB");
        if let Some(admin) = self.running.as_ref().and_then(|running| running.admin) {
            text = text.replace(&admin.to_string(), "ADMIN");
        }
        text
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let Some(running) = &mut self.running else {
            return;
        };
        // It may have ended already; then there is nothing to kill.
        let _ = running.child.kill();
        let status = running.child.wait();
        if std::thread::panicking() {
            print_captured(self.starts, status.ok(), running);
        }
    }
}

#[expect(clippy::print_stderr, reason = "what a failed test is read with")]
fn print_captured(start: usize, status: Option<ExitStatus>, running: &Running) {
    eprintln!("--- landfall, start {start}: {status:?}");
    eprintln!("--- standard output\n{}", running.stdout.text());
    eprintln!("--- standard error\n{}", running.stderr.text());
}
