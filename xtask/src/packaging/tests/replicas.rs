//! The Deployment's pods without a kubelet: its arguments, its environment, its rights on the
//! machine, the `ConfigMap` and a token of the `ServiceAccount` where a pod has them.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use landfall_testkit::cluster::{Cluster, Options};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::{deployed, read, root};
use crate::place::Place;

const USER: &str = "system:serviceaccount:landfall-system:landfall";
const LEASE: [&str; 4] = ["-n", "landfall-system", "lease", "landfall"];
/// Loopback, so that it is on this machine; used by no other test.
const POOL: &str = "127.79.40.16/28";
/// Far more than anything takes, on a machine that does other things as well.
const DEADLINE: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(50);

/// A root folder with the machine's libraries and what a pod has: $1 the folder, $2 the program,
/// $3 the configuration, $4 the token's folder; the rest is what to run in it.
const POD: &str = r#"
root=$1 program=$2 config=$3 account=$4
shift 4
mount -t tmpfs tmpfs "$root"
for folder in usr lib lib64 bin sbin; do
  if [ -L "/$folder" ]; then cp -P "/$folder" "$root/$folder"
  elif [ -d "/$folder" ]; then mkdir "$root/$folder"; mount --bind "/$folder" "$root/$folder"
  fi
done
mkdir -p "$root/etc/landfall" "$root/var/run/secrets/kubernetes.io/serviceaccount"
cp "$config" "$root/etc/landfall/landfall.yaml"
cp "$account"/* "$root/var/run/secrets/kubernetes.io/serviceaccount/"
touch "$root/landfall"
mount --bind "$program" "$root/landfall"
mount -o remount,ro "$root"
exec chroot "$root" "$@"
"#;

struct Replica {
    child: Child,
    admin: u16,
}

/// What a kubelet would mount.
struct Mounts<'a> {
    program: &'a Path,
    config: &'a Path,
    account: &'a Path,
}

// === impl Replica ===

impl Replica {
    fn start(name: &str, cluster: &Cluster, mounts: &Mounts<'_>) -> Self {
        let objects = deployed("deployment");
        let pod = objects.one("Deployment", "landfall")["spec"]["template"]["spec"].clone();
        let container = &pod["containers"][0];
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let admin = free.local_addr().unwrap().port();
        drop(free);
        let folder = mounts.account.parent().unwrap().join(name);
        fs::create_dir(&folder).unwrap();

        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-euc", POD, "pod"]);
        command.args([
            folder.as_path(),
            mounts.program,
            mounts.config,
            mounts.account,
        ]);
        let rights = rights(&pod["securityContext"], &container["securityContext"]);
        command.arg("setpriv").args(rights).arg("/landfall");
        for argument in container["args"].as_array().unwrap() {
            // Two replicas share this machine, which two pods never do.
            let argument = argument.as_str().unwrap();
            command.arg(argument.replace(":9640", &format!(":{admin}")));
        }
        let server = cluster.server();
        let (host, port) = server
            .trim_start_matches("https://")
            .split_once(':')
            .unwrap();
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("KUBERNETES_SERVICE_HOST", host)
            .env("KUBERNETES_SERVICE_PORT", port);
        for variable in container["env"].as_array().unwrap() {
            let value = match variable.pointer("/valueFrom/fieldRef/fieldPath") {
                Some(path) => {
                    assert_eq!(path, "metadata.name");
                    name
                }
                None => variable["value"].as_str().unwrap(),
            };
            command.env(variable["name"].as_str().unwrap(), value);
        }
        let log = fs::File::create(folder.with_extension("log")).unwrap();
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self { child, admin }
    }

    async fn answers(&self, path: &str) -> bool {
        let ask = async {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.admin)).await?;
            let request = format!("GET {path} HTTP/1.0\r\n\r\n");
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            std::io::Result::Ok(answer.split(' ').nth(1) == Some("200"))
        };
        ask.await.unwrap_or(false)
    }

    /// Asks it to stop, as a kubelet does, and returns whether it ended well.
    async fn stop(mut self) -> bool {
        let pid = self
            .child
            .id()
            .and_then(|id| Pid::from_raw(id.cast_signed()));
        kill_process(pid.unwrap(), Signal::TERM).unwrap();
        let ended = tokio::time::timeout(DEADLINE, self.child.wait()).await;
        ended.unwrap().unwrap().success()
    }
}

/// What the security contexts of pod and container come to.
fn rights(pod: &Value, container: &Value) -> Vec<String> {
    assert_eq!(container["allowPrivilegeEscalation"], false);
    assert_eq!(
        container["capabilities"]["drop"],
        serde_json::json!(["ALL"])
    );
    let mut bounds = "-all".to_owned();
    for capability in container["capabilities"]["add"].as_array().unwrap() {
        bounds += ",+";
        bounds += &capability.as_str().unwrap().to_ascii_lowercase();
    }
    vec![
        format!("--reuid={}", pod["runAsUser"]),
        format!("--regid={}", pod["runAsGroup"]),
        "--clear-groups".to_owned(),
        "--no-new-privs".to_owned(),
        "--inh-caps=-all".to_owned(),
        format!("--bounding-set={bounds}"),
    ]
}

async fn until(what: &str, logs: &Path, mut met: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !met().await {
        if begun.elapsed() > DEADLINE {
            let said = ["landfall-a.log", "landfall-b.log"]
                .map(|log| fs::read_to_string(logs.join(log)).unwrap_or_default());
            panic!(
                "{what}: not in time; the replicas said:\n{}",
                said.join("\n---\n")
            );
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Built already where the whole workspace is tested.
fn program() -> std::path::PathBuf {
    let place = Place::find().unwrap();
    let built = std::process::Command::new("cargo")
        .current_dir(&place.root)
        .args(["build", "--quiet", "--locked", "-p", "landfall"])
        .status()
        .unwrap();
    assert!(built.success(), "landfall can't be built");
    place.target().join("debug/landfall")
}

#[tokio::test]
async fn as_root_two_replicas_run_as_the_deployment_says_and_hand_over() {
    let program = program();
    let cluster = Cluster::start(Options::default()).await.unwrap();
    let kubectl = cluster.kubectl();
    let pool = format!("pools: [{{name: public, addresses: [{POOL}]}}]");
    let manifests = read(&root(), "deploy/landfall.yaml").unwrap();
    kubectl
        .apply(&manifests.replace("pools: []", &pool))
        .await
        .unwrap();

    let folder = tempfile::tempdir().unwrap();
    let account = folder.path().join("account");
    fs::create_dir(&account).unwrap();
    let token = ["-n", "landfall-system", "create", "token", "landfall"];
    let token = kubectl.run(&token).await.unwrap();
    let authority = concat!(
        "go-template=",
        r#"{{index .clusters 0 "cluster" "certificate-authority-data" | base64decode}}"#
    );
    let authority = ["config", "view", "--raw", "-o", authority];
    let authority = kubectl.run(&authority).await.unwrap();
    for (name, text) in [
        ("token", token.trim()),
        ("ca.crt", &authority),
        ("namespace", "landfall-system"),
    ] {
        fs::write(account.join(name), text).unwrap();
    }
    let map = ["-n", "landfall-system", "configmap", "landfall"];
    let map = kubectl.get(&map).await.unwrap();
    let config = folder.path().join("landfall.yaml");
    fs::write(&config, map["data"]["landfall.yaml"].as_str().unwrap()).unwrap();

    let audit = cluster.audit();
    let mounts = Mounts {
        program: &program,
        config: &config,
        account: &account,
    };
    let first = Replica::start("landfall-a", &cluster, &mounts);
    let logs = folder.path();
    until("the first is ready", logs, async || {
        first.answers("/readyz").await
    })
    .await;
    let holder = async || {
        let lease = kubectl.get(&LEASE).await.unwrap_or_default();
        lease["spec"]["holderIdentity"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    until("the first leads", logs, async || {
        holder().await.starts_with("landfall-a_")
    })
    .await;
    let second = Replica::start("landfall-b", &cluster, &mounts);
    until("the second is ready", logs, async || {
        second.answers("/readyz").await
    })
    .await;
    assert!(second.answers("/healthz").await);

    // Port 80 takes the one capability that the pod has.
    let service = "{apiVersion: v1, kind: Service, metadata: {name: web}, \
                   spec: {type: LoadBalancer, ports: [{port: 80}]}}";
    kubectl.apply(service).await.unwrap();
    let address = async || {
        let service = kubectl.get(&["service", "web"]).await.unwrap();
        let ingress = &service["status"]["loadBalancer"]["ingress"][0]["ip"];
        ingress.as_str().unwrap_or_default().to_owned()
    };
    until("it has an address", logs, async || {
        !address().await.is_empty()
    })
    .await;
    let held = address().await;
    let opens = async || TcpStream::connect((held.as_str(), 80)).await.is_ok();
    until("its port is open", logs, opens).await;

    assert!(first.stop().await, "a replica that is stopped ends well");
    until("the second leads", logs, async || {
        holder().await.starts_with("landfall-b_")
    })
    .await;
    until("its port is open again", logs, opens).await;
    assert_eq!(address().await, held);
    assert!(second.stop().await);

    let mut asked = audit.entries().unwrap();
    asked.retain(|entry| entry.user == USER);
    assert!(!asked.is_empty());
    asked.retain(|entry| entry.code == 403);
    assert!(asked.is_empty(), "{asked:?}");
}
