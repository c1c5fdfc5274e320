//! Network namespaces of tests, all as root: a test runs again in one of its own, and makes further
//! ones that stand for other hosts. They end with the process of the test.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "used in tests only"
)]

use std::fs::File;
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Set in the process that runs inside.
const INSIDE: &str = "LANDFALL_TEST_LAB";

/// Anything takes less.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Between two checks of a condition.
const PAUSE: Duration = Duration::from_millis(20);

/// Link-local addresses can be used at once, on interfaces that come later.
const NO_DETECTION: &str = "echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad;";

/// A network namespace: a host with a kernel of its own for all that concerns the network.
#[derive(Debug)]
pub struct Namespace {
    holder: Child,
}

/// Runs a test of this program again in a network namespace of its own, which the commands
/// `prepare` make ready. Returns whether it is to run here.
///
/// # Panics
///
/// If the run inside fails, or one of the programs that it needs is missing.
pub fn is_inside(test: &str, needs: &[&str], prepare: &str) -> bool {
    if is_entered() {
        return true;
    }
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    for program in needs {
        let mut which = Command::new("sh");
        which.args(["-c", &format!("command -v {program}")]);
        let found = which.env("PATH", &path).output().unwrap().status.success();
        assert!(
            found,
            "{program} is missing: `cargo xtask install` installs it"
        );
    }
    let ended = inside(&["--exact", test, "--nocapture"], prepare).output();
    let ended = ended.expect("unshare, of util-linux, starts");
    let printed = String::from_utf8_lossy(&ended.stdout);
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(
        ended.status.success() && printed.contains("1 passed"),
        "as root? {printed}{errors}"
    );
    false
}

/// Returns whether this process runs inside.
pub fn is_entered() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Returns this program again, with arguments, in a network namespace of its own.
pub fn inside(arguments: &[&str], prepare: &str) -> Command {
    let script = format!("ip link set lo up; {prepare} exec \"$@\"");
    let mut command = Command::new("unshare");
    command
        .args(["--net", "sh", "-euc", &script, "net"])
        .arg(std::env::current_exe().unwrap())
        .args(arguments)
        .env(INSIDE, "1");
    command
}

/// Runs commands of a shell on this host. Returns what they printed.
///
/// # Panics
///
/// If they fail.
pub fn sh(script: &str) -> String {
    run(Command::new("sh").args(["-euc", script]))
}

/// Waits for a condition.
///
/// # Panics
///
/// If it is not met in a minute.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < end, "not in time: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

fn run(command: &mut Command) -> String {
    let ended = command.output().unwrap();
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{command:?}: {text}{errors}");
    text
}

// === impl Namespace ===

impl Namespace {
    /// Makes one whose loopback is up. Addresses of interfaces that come later are not probed.
    ///
    /// # Panics
    ///
    /// Without the rights of root.
    #[expect(clippy::new_without_default, reason = "it starts a process")]
    pub fn new() -> Self {
        let holder = Command::new("unshare")
            .args(["--net", "cat"])
            .stdin(Stdio::piped())
            .spawn()
            .expect("unshare, of util-linux, starts");
        let own = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        let path = format!("/proc/{}/ns/net", holder.id());
        let end = Instant::now() + DEADLINE;
        while std::fs::read_link(&path).is_ok_and(|it| it == own) {
            assert!(Instant::now() < end, "no namespace; as root?");
            std::thread::yield_now();
        }
        let namespace = Self { holder };
        namespace.sh(&format!("{NO_DETECTION} ip link set lo up"));
        namespace
    }

    /// The process that keeps it.
    pub fn pid(&self) -> u32 {
        self.holder.id()
    }

    /// Returns a program that runs in it.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", &self.pid().to_string(), program]);
        command
    }

    /// Runs commands of a shell in it. Returns what they printed.
    ///
    /// # Panics
    ///
    /// If they fail.
    pub fn sh(&self, script: &str) -> String {
        run(self.command("sh").args(["-euc", script]))
    }

    /// Runs something in a thread that is in it.
    ///
    /// # Panics
    ///
    /// If it is gone.
    pub fn within<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> JoinHandle<R> {
        let namespace = File::open(format!("/proc/{}/ns/net", self.pid())).unwrap();
        std::thread::spawn(move || {
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.as_fd(), network).expect("as root?");
            work()
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ended = self.holder.wait();
    }
}
