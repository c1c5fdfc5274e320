//! A cluster of one's own with our roles in it, and what every test does with it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use landfall_testkit::cluster::{Audit, AuditEntry, Cluster, Kubectl, Options};
use serde_json::Value;
use tokio::sync::{Mutex, MutexGuard};

/// The user that `deploy/rbac.yaml` binds its roles to.
pub const USER: &str = "system:serviceaccount:landfall-system:landfall";

/// More than anything takes on a busy machine. Nothing waits this long unless it fails.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// From one check of a condition to the next.
pub const LOOK: Duration = Duration::from_millis(20);

const ROLES: &str = include_str!("../../../../deploy/rbac.yaml");

/// How Landfall's events name it.
const CONTROLLER: &str = "landfall.dev/controller";

/// Roles can only be put into a namespace that is there.
const HOME: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: landfall-system}\n---\n";

/// Control planes are heavy: one at a time.
static TURN: Mutex<()> = Mutex::const_new(());

/// A cluster, and a namespace in it.
pub struct Bed {
    pub cluster: Cluster,
    pub namespace: String,
    /// A second cluster of a test has that of the first.
    _turn: Option<MutexGuard<'static, ()>>,
}

// === impl Bed ===

impl Bed {
    pub async fn open(name: &str) -> Self {
        let turn = TURN.lock().await;
        Self {
            _turn: Some(turn),
            ..Self::second(name).await
        }
    }

    /// A cluster that differs from the usual one.
    pub async fn with(name: &str, options: Options) -> Self {
        let turn = TURN.lock().await;
        Self {
            _turn: Some(turn),
            ..Self::start(name, options).await
        }
    }

    /// Another cluster, with a control plane of its own, for a test that has opened one.
    pub async fn second(name: &str) -> Self {
        Self::start(name, Options::default()).await
    }

    async fn start(name: &str, options: Options) -> Self {
        let cluster = Cluster::start(options).await.unwrap();
        let roles = [HOME, ROLES].concat();
        cluster.kubectl().apply(&roles).await.unwrap();
        let namespace = cluster.namespace(name).await.unwrap();
        Self {
            cluster,
            namespace,
            _turn: None,
        }
    }

    /// kubectl as the administrator.
    pub fn kubectl(&self) -> Kubectl<'_> {
        self.cluster.kubectl()
    }

    /// The kubeconfig of Landfall's own identity.
    pub fn kubeconfig(&self) -> PathBuf {
        self.cluster
            .identity(USER, &["system:serviceaccounts"])
            .unwrap()
    }

    /// A file beside those of the cluster. It is replaced as a whole, since a program that was
    /// started with it may be reading it.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.cluster.directory().join(name);
        let whole = path.with_added_extension("new");
        std::fs::write(&whole, text).unwrap();
        std::fs::rename(&whole, &path).unwrap();
        path
    }

    /// kubectl in the namespace of the test.
    pub async fn run(&self, arguments: &[&str]) -> String {
        let all = [&["-n", self.namespace.as_str()], arguments].concat();
        self.kubectl().run(&all).await.unwrap()
    }

    /// `kubectl apply` in the namespace of the test.
    pub async fn apply(&self, manifest: &str) {
        let arguments = ["-n", &self.namespace, "apply", "-f", "-"];
        self.kubectl().run_with(&arguments, manifest).await.unwrap();
    }

    /// A Service as the API server has it.
    pub async fn service(&self, name: &str) -> Value {
        let arguments = ["-n", &self.namespace, "service", name];
        self.kubectl().get(&arguments).await.unwrap()
    }

    /// `kubectl wait` for traffic to flow.
    pub async fn programmed(&self, names: &[&str]) {
        self.condition("landfall.dev/Programmed", names).await;
    }

    /// `kubectl wait` for a condition.
    pub async fn condition(&self, condition: &str, names: &[&str]) {
        let wanted = format!("--for=condition={condition}");
        let wait = ["wait", "--timeout=60s", &wanted, "service"];
        self.run(&[&wait, names].concat()).await;
    }

    /// Waits until a Service looks as wanted; returns it.
    pub async fn until(&self, name: &str, what: &str, met: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let service = self.service(name).await;
            if met(&service) {
                return service;
            }
            assert!(
                began.elapsed() < DEADLINE,
                "{name} is not {what}: {service:#}"
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    /// What Landfall said about a Service: reason, type and message, in the order in which it
    /// happened.
    pub async fn events(&self, name: &str) -> Vec<(String, String, String)> {
        let list = ["-n", &self.namespace, "events.events.k8s.io"];
        let list = self.kubectl().get(&list).await.unwrap();
        let mut events: Vec<&Value> = list["items"].as_array().unwrap().iter().collect();
        events.retain(|event| {
            event["regarding"]["name"] == name && event["reportingController"] == CONTROLLER
        });
        events.sort_by_key(|event| event["eventTime"].as_str().unwrap_or_default().to_owned());
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        events
            .into_iter()
            .map(|event| {
                (
                    word(&event["reason"]),
                    word(&event["type"]),
                    word(&event["note"]),
                )
            })
            .collect()
    }

    /// Waits until something of this reason was said about a Service.
    pub async fn event(&self, name: &str, reason: &str) -> String {
        let began = Instant::now();
        loop {
            let events = self.events(name).await;
            if let Some((_, _, note)) = events.iter().find(|(found, ..)| found == reason) {
                return note.clone();
            }
            assert!(began.elapsed() < DEADLINE, "no {reason}: {events:?}");
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// What Landfall wrote, Leases apart.
pub fn writes(audit: &Audit) -> Vec<AuditEntry> {
    audit.writes_of(USER).unwrap()
}

/// A configuration with one instance that serves everything from one range. Members of tests are on
/// loopback, which has to be allowed by itself.
pub fn only(pool: &str) -> String {
    format!("{}    {TEST_MEMBERS}\n", without_annotations(pool))
}

/// Lets annotations name members of tests.
pub const TEST_MEMBERS: &str = "members: {annotations: [127.0.0.0/8, 10.77.0.0/16]}";

/// The same as shipped: annotations name no members.
pub fn without_annotations(pool: &str) -> String {
    format!(
        "instances:\n  - name: local\n    provider: local\n    default: true\n    pools:\n      \
         - name: all\n        addresses: [{pool}]\n"
    )
}

/// A condition of a Service: its status and reason.
pub fn condition(service: &Value, kind: &str) -> Option<(String, String)> {
    let kind = format!("landfall.dev/{kind}");
    let conditions = service["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|it| it["type"] == kind.as_str())?;
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    Some((word(&found["status"]), word(&found["reason"])))
}

/// The first address of a Service.
pub fn address(service: &Value) -> Option<&str> {
    service["status"]["loadBalancer"]["ingress"][0]["ip"].as_str()
}

/// A path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
