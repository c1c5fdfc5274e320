//! A node and a router on one link: the process of the test is the node, in a network namespace of
//! its own; the router is in another one.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use landfall_testkit::namespace::{self, Namespace};
pub use landfall_testkit::namespace::{DEADLINE, until};
use tempfile::TempDir;

/// The addresses of the node and of the router on the link.
pub const NODE: &str = "10.0.0.1";
pub const ROUTER: &str = "10.0.0.2";
pub const NODE_V6: &str = "2001:db8::1";
pub const ROUTER_V6: &str = "2001:db8::2";

/// A host with a kernel of its own for all that concerns the network. Its interface is eth0.
pub struct Host {
    namespace: Namespace,
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
    let needs = [
        "ip",
        "nsenter",
        "/usr/lib/frr/bgpd",
        "vtysh",
        "bird",
        "birdc",
        "gobgpd",
        "gobgp",
    ];
    namespace::is_inside(test, &needs, "")
}

// === impl Host ===

impl Host {
    /// Makes the router's namespace, and the link between it and this one.
    pub fn connect() -> Self {
        let host = Self {
            namespace: Namespace::new(),
            folder: TempDir::new().unwrap(),
        };
        let pid = host.namespace.pid();
        let no_detection = "echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad";
        let link = format!(
            "{no_detection}; ip link add eth0 type veth peer name eth0 netns {pid}; \
            ip address add {NODE}/24 dev eth0; ip address add {NODE_V6}/64 dev eth0 nodad; \
            ip link set eth0 up"
        );
        namespace::sh(&link);
        host.sh(&format!(
            "ip address add {ROUTER}/24 dev eth0; \
            ip address add {ROUTER_V6}/64 dev eth0 nodad; ip link set eth0 up"
        ));
        host
    }

    pub fn command(&self, program: &str) -> Command {
        self.namespace.command(program)
    }

    pub fn sh(&self, script: &str) -> String {
        self.namespace.sh(script)
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
