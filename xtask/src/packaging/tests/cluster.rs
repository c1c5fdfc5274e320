//! What a real API server says to the manifests and to the chart.

use landfall_testkit::cluster::{Cluster, Options};
use serde_json::{Value, json};

use super::chart;
use super::{deployed, read, root};

const NAMESPACE: &str = "landfall-system";

fn helm(cluster: &Cluster, arguments: &[&str]) -> Result<String, String> {
    let output = chart::command()
        .env("KUBECONFIG", cluster.admin())
        .args(arguments)
        .args(["--namespace", NAMESPACE])
        .output()
        .unwrap();
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout).unwrap());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

async fn apply_for_show(cluster: &Cluster, text: &str) -> String {
    cluster
        .kubectl()
        .run_with(&["apply", "--dry-run=server", "-f", "-"], text)
        .await
        .unwrap()
}

/// The Deployment's pod, in a namespace.
fn pod(namespace: &str, change: impl Fn(&mut Value)) -> String {
    let objects = deployed("deployment");
    let mut spec = objects.one("Deployment", "landfall")["spec"]["template"]["spec"].clone();
    change(&mut spec);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "landfall", "namespace": namespace},
        "spec": spec,
    })
    .to_string()
}

async fn namespace_that_enforces(cluster: &Cluster, level: &str) -> String {
    let namespace = cluster.namespace(level).await.unwrap();
    let label = format!("pod-security.kubernetes.io/enforce={level}");
    cluster
        .kubectl()
        .run(&["label", "namespace", &namespace, &label])
        .await
        .unwrap();
    namespace
}

#[tokio::test]
async fn the_api_server_takes_every_manifest_and_warns_of_nothing() {
    let cluster = Cluster::start(Options::default()).await.unwrap();
    let kubectl = cluster.kubectl();
    kubectl
        .apply(&read(&root(), "deploy/namespace.yaml").unwrap())
        .await
        .unwrap();
    let reported = apply_for_show(&cluster, &read(&root(), "deploy/landfall.yaml").unwrap()).await;
    let expected = deployed("landfall").all().count();
    assert_eq!(reported.lines().count(), expected, "{reported}");
    assert!(
        reported
            .lines()
            .all(|line| line.contains("(server dry run)")),
        "{reported}"
    );

    // For good, twice: applying again changes nothing.
    let whole = root().join("deploy/landfall.yaml");
    let whole = whole.to_str().unwrap();
    let apply = ["apply", "--warnings-as-errors", "-f", whole];
    let versions = "jsonpath={.items[*].metadata.resourceVersion}";
    kubectl.run(&apply).await.unwrap();
    let first = kubectl
        .run(&["get", "-f", whole, "-o", versions])
        .await
        .unwrap();
    kubectl.run(&apply).await.unwrap();
    let second = kubectl
        .run(&["get", "-f", whole, "-o", versions])
        .await
        .unwrap();
    assert_eq!(first.split(' ').count(), expected, "{first}");
    assert_eq!(first, second);

    let certificates = root().join("deploy/rbac-certificates.yaml");
    kubectl
        .run(&[
            "apply",
            "--warnings-as-errors",
            "-f",
            certificates.to_str().unwrap(),
        ])
        .await
        .unwrap();
}

#[tokio::test]
async fn pods_are_admitted_where_the_manifests_say_and_restricted_without_the_nodes_network() {
    let cluster = Cluster::shared().await;
    let kubectl = cluster.kubectl();
    let create = ["create", "--dry-run=server", "-f", "-"];
    let [privileged, baseline, restricted] = [
        namespace_that_enforces(cluster, "privileged").await,
        namespace_that_enforces(cluster, "baseline").await,
        namespace_that_enforces(cluster, "restricted").await,
    ];
    kubectl
        .run_with(&create, &pod(&privileged, |_| {}))
        .await
        .unwrap();
    let refusal = kubectl
        .run_with(&create, &pod(&baseline, |_| {}))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        refusal.contains("host namespaces (hostNetwork=true)"),
        "{refusal}"
    );
    // The only thing in the way is the network: the capability is one that `restricted` allows.
    let refusal = kubectl
        .run_with(&create, &pod(&restricted, |_| {}))
        .await
        .unwrap_err()
        .to_string();
    for reason in [
        "hostNetwork=true",
        "hostPort",
        "runAsNonRoot",
        "runAsUser=0",
    ] {
        assert!(refusal.contains(reason), "{reason}: {refusal}");
    }
    assert!(!refusal.contains("capabilities"), "{refusal}");
    let unprivileged = pod(&restricted, |spec| {
        spec["hostNetwork"] = json!(false);
        spec["securityContext"]["runAsUser"] = json!(65532);
        spec["securityContext"]["runAsGroup"] = json!(65532);
        spec["securityContext"]["runAsNonRoot"] = json!(true);
        spec["containers"][0]["securityContext"]["capabilities"] = json!({"drop": ["ALL"]});
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            spec["containers"][0][probe]["httpGet"]
                .as_object_mut()
                .unwrap()
                .remove("host");
        }
    });
    kubectl.run_with(&create, &unprivileged).await.unwrap();
}

#[tokio::test]
async fn a_release_is_installed_upgraded_rolled_back_and_taken_away() {
    let cluster = Cluster::start(Options::default()).await.unwrap();
    let chart = chart::chart();
    let chart = chart.to_str().unwrap();
    let notes = helm(
        &cluster,
        &["install", "landfall", chart, "--create-namespace"],
    )
    .unwrap();
    for reported in [
        "local instance edge: loadBalancerClass landfall.dev/edge, and Services without a class",
        "has no addresses of its own",
        "kubectl label namespace landfall-system pod-security.kubernetes.io/enforce=privileged",
        "port-forward deployment/landfall 9640",
    ] {
        assert!(notes.contains(reported), "{reported}: {notes}");
    }
    let kubectl = cluster.kubectl();
    let state = async || {
        let deployment = ["-n", NAMESPACE, "deployment", "landfall"];
        let object = kubectl.get(&deployment).await.unwrap();
        let checksum = &object["spec"]["template"]["metadata"]["annotations"]["checksum/config"];
        (object["spec"]["replicas"].clone(), checksum.clone())
    };
    let installed = state().await;
    assert_eq!(installed.0, 2);

    let config = concat!(
        r#"config={"instances":[{"name":"inner","provider":"local","#,
        r#""members":{"annotations":["10.20.0.0/16"]},"#,
        r#""pools":[{"name":"p","addresses":["192.0.2.0/28"]}]}]}"#,
    );
    let arguments = [
        "upgrade",
        "landfall",
        chart,
        "--set-json",
        config,
        "--set-json",
        "replicas=3",
    ];
    let notes = helm(&cluster, &arguments).unwrap();
    assert!(!notes.contains("has no addresses of its own"), "{notes}");
    let upgraded = state().await;
    assert_eq!(upgraded.0, 3);
    assert_ne!(upgraded.1, installed.1);
    let policies = "validatingadmissionpolicies,validatingadmissionpolicybindings";
    let policies = [
        "get",
        policies,
        "-l",
        "app.kubernetes.io/name=landfall",
        "-o",
        "name",
    ];
    let made = kubectl.run(&policies).await.unwrap();
    assert_eq!(made.lines().count(), 2, "{made}");

    helm(&cluster, &["rollback", "landfall", "1"]).unwrap();
    assert_eq!(state().await, installed);

    helm(&cluster, &["uninstall", "landfall"]).unwrap();
    let left = kubectl
        .run(&[
            "get",
            "clusterroles,clusterrolebindings,roles,rolebindings,deployments,\
             poddisruptionbudgets,configmaps,serviceaccounts,\
             validatingadmissionpolicies,validatingadmissionpolicybindings",
            "--all-namespaces",
            "-l",
            "app.kubernetes.io/name=landfall",
            "-o",
            "name",
        ])
        .await
        .unwrap();
    assert_eq!(left, "");
}
