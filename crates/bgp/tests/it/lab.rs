//! A node and a router on one link: the process of the test is the node, in a network namespace of
//! its own; the router is in another one.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Set in the process that runs inside.
const INSIDE: &str = "LANDFALL_TEST_LAB";

/// Anything takes less.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// The addresses of the node and of the router on the link.
pub const NODE: &str = "10.0.0.1";
pub const ROUTER: &str = "10.0.0.2";
pub const NODE_V6: &str = "2001:db8::1";
pub const ROUTER_V6: &str = "2001:db8::2";

/// A host with a kernel of its own for all that concerns the network. Its interface is eth0.
pub struct Host {
    holder: Child,
    folder: TempDir,
}

/// A program that runs on a host until this is dropped.
pub struct Program {
    child: Child,
    log: PathBuf,
}

/// Runs a test of this program again in a network namespace of its own. Returns whether it is to
/// run here.
pub fn is_inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let needed = [
        "ip",
        "nsenter",
        "/usr/lib/frr/bgpd",
        "vtysh",
        "bird",
        "birdc",
        "gobgpd",
        "gobgp",
    ];
    for program in needed {
        let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap());
        let mut which = Command::new("sh");
        which.args(["-c", &format!("command -v {program}")]);
        let found = which.env("PATH", path).output().unwrap().status.success();
        assert!(
            found,
            "{program} is missing: `cargo xtask install` installs it"
        );
    }
    let ended = Command::new("unshare")
        .args([
            "--net",
            "sh",
            "-euc",
            "ip link set lo up; exec \"$@\"",
            "net",
        ])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("unshare, of util-linux, starts");
    let printed = String::from_utf8_lossy(&ended.stdout);
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(
        ended.status.success() && printed.contains("1 passed"),
        "as root? {printed}{errors}"
    );
    false
}

/// Waits for a condition.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < end, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn run(command: &mut Command) -> String {
    let ended = command.output().unwrap();
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{command:?}: {text}{errors}");
    text
}

// === impl Host ===

impl Host {
    /// Makes the router's namespace, and the link between it and this one.
    pub fn connect() -> Self {
        let holder = Command::new("unshare")
            .args(["--net", "cat"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = holder.id();
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        let end = Instant::now() + DEADLINE;
        while std::fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|it| it == own) {
            assert!(Instant::now() < end, "no namespace");
            std::thread::yield_now();
        }
        let folder = TempDir::new().unwrap();
        let host = Self { holder, folder };
        let no_detection = "echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad";
        let link = format!(
            "{no_detection}; ip link add eth0 type veth peer name eth0 netns {pid}; \
            ip address add {NODE}/24 dev eth0; ip address add {NODE_V6}/64 dev eth0 nodad; \
            ip link set eth0 up"
        );
        host.sh(no_detection);
        run(Command::new("sh").args(["-euc", &link]));
        host.sh(&format!(
            "ip link set lo up; ip address add {ROUTER}/24 dev eth0; \
            ip address add {ROUTER_V6}/64 dev eth0 nodad; ip link set eth0 up"
        ));
        host
    }

    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        let pid = self.holder.id().to_string();
        command.args(["--net", "--target", &pid, program]);
        command
    }

    pub fn sh(&self, script: &str) -> String {
        run(self.command("sh").args(["-euc", script]))
    }

    /// Returns what a program printed, whether or not it succeeded.
    pub fn ask(&self, program: &str, arguments: &[&str]) -> String {
        let ended = self.command(program).args(arguments).output().unwrap();
        String::from_utf8_lossy(&ended.stdout).into_owned()
    }

    /// A folder for the files of programs.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file, and returns its path.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Starts a program, with its output in a file.
    pub fn start(&self, program: &str, arguments: &[&str]) -> Program {
        let name = Path::new(program).file_name().unwrap();
        let log = self.folder().join(name).with_extension("log");
        let file = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .unwrap();
        let child = self
            .command(program)
            .args(arguments)
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        Program { child, log }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

// === impl Program ===

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            println!("{}:\n{log}", self.log.display());
        }
    }
}
