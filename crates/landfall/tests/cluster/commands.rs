//! What people ask a cluster themselves, with their own rights, by `landfall` or
//! `kubectl landfall`.

use std::path::PathBuf;
use std::process::Command;

use landfall_testkit::cluster::Program;
use serde_json::Value;

use crate::bed::{Bed, address, only, text};
use crate::network::Range;
use crate::replica::{Replica, landfall, run};

/// A user with the right to read, and no other.
const VIEWER: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: viewer}
rules:
  - {apiGroups: [\"\"], resources: [services, nodes, namespaces], verbs: [get, list, watch]}
  - {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [get, list, watch]}
  - {apiGroups: [metallb.io], resources: [ipaddresspools], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: viewer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: viewer}
subjects: [{kind: User, name: jane, apiGroup: rbac.authorization.k8s.io}]
";

/// MetalLB's kind of address pools, as little of it as a server takes.
pub const POOL_KIND: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ipaddresspools.metallb.io}
spec:
  group: metallb.io
  names:
    kind: IPAddressPool
    listKind: IPAddressPoolList
    plural: ipaddresspools
    singular: ipaddresspool
  scope: Namespaced
  versions:
    - name: v1beta1
      served: true
      storage: true
      schema:
        openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
";

fn service(name: &str, range: &Range, port: u16) -> String {
    format!(
        "---\n\
        apiVersion: v1\n\
        kind: Service\n\
        metadata:\n  \
        name: {name}\n  \
        annotations: {{landfall.dev/endpoints: \"{}\"}}\n\
        spec:\n  \
        type: LoadBalancer\n  \
        ports: [{{port: {port}}}]\n",
        range.member(1)
    )
}

/// Standard output of a command that ends with this code.
async fn output(command: Command, code: i32) -> String {
    let output = run(command).await;
    let (out, error) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    assert_eq!(output.status.code(), Some(code), "{out}{error}");
    out
}

#[tokio::test]
async fn an_ordinary_user_gets_explains_plans_and_checks_against_the_cluster() {
    let bed = Bed::open("asked").await;
    let range = Range::claim();
    bed.kubectl().apply(VIEWER).await.unwrap();
    let jane = bed.cluster.identity("jane", &[]).unwrap();
    let _replica = Replica::alone(&bed, range.admin(1), &only(&range.pool())).await;
    bed.apply(&service("web", &range, 8080)).await;
    bed.programmed(&["web"]).await;
    let held = address(&bed.service("web").await).unwrap().to_owned();
    let key = format!("{}/web", bed.namespace);
    let audit = bed.cluster.audit();
    let as_jane = |arguments: &[&str]| {
        let mut command = landfall(bed.cluster.directory());
        command.args(arguments).args(["--kubeconfig", text(&jane)]);
        command
    };

    let list = output(as_jane(&["get", "services"]), 0).await;
    let line = list.lines().find(|line| line.contains(&key)).unwrap();
    assert!(line.contains(&held) && line.contains("8080/TCP"), "{list}");
    let json = output(as_jane(&["get", "services", "-o", "json"]), 0).await;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["items"].as_array().unwrap().len(), 1);
    assert_eq!(address(&json["items"][0]), Some(held.as_str()));

    let story = output(as_jane(&["explain", &key]), 0).await;
    assert!(story.contains(&held), "{story}");
    assert!(story.contains(&range.member(1).to_string()), "{story}");

    bed.apply(&service("still", &range, 8080)).await;
    bed.programmed(&["still"]).await;
    let config = bed.write("landfall.yaml", &only(&range.pool()));
    let both = [service("web", &range, 8081), service("new", &range, 8080)].concat();
    let both = both.replace(
        "metadata:\n",
        &format!("metadata:\n  namespace: {}\n", bed.namespace),
    );
    let manifest = bed.write("both.yaml", &both);
    let files = ["-f", text(&manifest), "--config", text(&config)];
    let plan = output(as_jane(&[&["plan"], &files[..]].concat()), 0).await;
    assert!(plan.contains(&format!("open {held}:8081/TCP")), "{plan}");
    assert!(plan.contains(&format!("close {held}:8080/TCP")), "{plan}");
    assert!(plan.contains(&format!("{}/new", bed.namespace)), "{plan}");
    assert!(!plan.contains("still"), "{plan}");

    let verdict = output(as_jane(&["check", "--config", text(&config)]), 0).await;
    assert!(
        verdict.ends_with("2 Services: 0 errors, 0 warnings\n"),
        "{verdict}"
    );
    bed.run(&[
        "annotate",
        "service",
        "web",
        "landfall.dev/algorithm=FASTEST",
    ])
    .await;
    let verdict = output(as_jane(&["check", "--config", text(&config)]), 1).await;
    assert!(verdict.contains("FASTEST"), "{verdict}");

    // A user that may not read address pools plans with those of the configuration, with a warning.
    let rule =
        "  - {apiGroups: [metallb.io], resources: [ipaddresspools], verbs: [get, list, watch]}\n";
    let without_pools = VIEWER.replace(rule, "");
    assert_ne!(without_pools, VIEWER);
    bed.kubectl().apply(POOL_KIND).await.unwrap();
    bed.kubectl().apply(&without_pools).await.unwrap();
    let plan = output(as_jane(&[&["plan"], &files[..]].concat()), 0).await;
    let warned = |line: &str| line.starts_with("warning: ") && line.contains("ipaddresspools");
    assert_eq!(
        plan.lines().filter(|line| warned(line)).count(),
        1,
        "{plan}"
    );
    assert!(plan.contains(&format!("open {held}:8081/TCP")), "{plan}");

    // It was asked with her rights, and nothing was written.
    let hers = audit.writes_of("jane").unwrap();
    assert_eq!(hers, []);
    let refused = bed.cluster.identity("joe", &[]).unwrap();
    let mut command = landfall(bed.cluster.directory());
    command.args(["get", "services", "--kubeconfig", text(&refused)]);
    let refused = run(command).await;
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(
        said,
        "landfall: this identity may not: list namespaces, watch namespaces, list nodes, watch \
        nodes, list endpointslices.discovery.k8s.io, watch endpointslices.discovery.k8s.io, list \
        services, watch services; request a role that permits it\n"
    );
    // Nor does a command wait for a server that is not there.
    bed.cluster.stop_api_server();
    let unanswered = run(as_jane(&["get", "services"])).await;
    assert_eq!(unanswered.status.code(), Some(1));
    let said = String::from_utf8(unanswered.stderr).unwrap();
    assert!(
        said.starts_with("landfall: asking https://127.0.0.1:"),
        "{said}"
    );
    assert!(said.contains("the API server can't be reached"), "{said}");
}

#[tokio::test]
async fn kubectl_finds_the_plugin_by_its_name() {
    let bed = Bed::open("plugin").await;
    let range = Range::claim();
    bed.kubectl().apply(VIEWER).await.unwrap();
    let jane = bed.cluster.identity("jane", &[]).unwrap();
    bed.apply(&service("web", &range, 8080)).await;
    let folder: PathBuf = bed.cluster.directory().join("plugins");
    std::fs::create_dir(&folder).unwrap();
    std::os::unix::fs::symlink(
        env!("CARGO_BIN_EXE_landfall"),
        folder.join("kubectl-landfall"),
    )
    .unwrap();
    let plugin = |arguments: &[&str]| {
        let mut command = Command::new(bed.cluster.program(Program::Kubectl));
        command
            .arg("landfall")
            .args(arguments)
            .current_dir(bed.cluster.directory())
            .env_clear()
            .env("HOME", bed.cluster.directory())
            .env("PATH", &folder)
            .env("KUBECONFIG", &jane);
        command
    };
    let list = output(plugin(&["get", "services"]), 0).await;
    assert!(list.contains(&format!("{}/web", bed.namespace)), "{list}");
    assert!(list.contains("<pending>"), "{list}");
    // What is in the cluster is validated without a file.
    let verdict = output(plugin(&["check"]), 0).await;
    assert!(verdict.starts_with("1 Service: 0 errors"), "{verdict}");
}
