//! What is wrong is said once, clearly, and everything else goes on.

use std::process::Output;

use crate::bed::{Bed, address, condition, only, text};
use crate::network::Range;
use crate::replica::{Replica, landfall, run};
use crate::traffic::{Backend, answered_by, ask};

fn service(name: &str, range: &Range) -> String {
    format!(
        "---\n\
        apiVersion: v1\n\
        kind: Service\n\
        metadata:\n  \
        name: {name}\n  \
        annotations: {{landfall.dev/endpoints: \"{}\"}}\n\
        spec:\n  \
        type: LoadBalancer\n  \
        ports: [{{port: 8080}}]\n",
        range.member(1)
    )
}

/// A start that fails: its only words on standard error that are no log lines.
fn refusal(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('{')).collect();
    lines.join("\n")
}

async fn controller(bed: &Bed, arguments: &[&str]) -> Output {
    let mut command = landfall(bed.cluster.directory());
    command
        .args(["controller", "--admin", "127.0.0.1:0"])
        .args(arguments);
    run(command).await
}

#[tokio::test]
async fn a_start_that_can_not_be_says_why_in_one_line() {
    let bed = Bed::open("start").await;
    let home = bed.cluster.directory();
    let kubeconfig = bed.kubeconfig();
    let kubeconfig = text(&kubeconfig);

    let missing = home.join("missing.kubeconfig");
    let missing = text(&missing);
    let said = refusal(&controller(&bed, &["--kubeconfig", missing]).await);
    assert_eq!(
        said,
        format!(
            "landfall: connecting to the cluster: the kubeconfig {missing} can't be used: No such \
             file or directory (os error 2)"
        )
    );

    let garbage = bed.write("garbage.kubeconfig", "}{ no kubeconfig");
    let said = refusal(&controller(&bed, &["--kubeconfig", text(&garbage)]).await);
    let begin = format!(
        "landfall: connecting to the cluster: the kubeconfig {} can't be used: ",
        garbage.display()
    );
    assert!(said.starts_with(&begin), "{said}");

    let said = refusal(
        &controller(
            &bed,
            &["--kubeconfig", kubeconfig, "--context", "absent-42"],
        )
        .await,
    );
    assert!(said.contains("absent-42"), "{said}");

    // A typo, with its place.
    let config = only("127.0.0.0/24").replace("default: true", "defualt: true");
    let config = bed.write("typo.yaml", &config);
    let config = text(&config);
    let said = refusal(&controller(&bed, &["--kubeconfig", kubeconfig, "--config", config]).await);
    let begin = format!("landfall: {config}:4: ");
    assert!(
        said.starts_with(&begin) && said.contains("defualt"),
        "{said}"
    );

    let said =
        refusal(&controller(&bed, &["--kubeconfig", kubeconfig, "--config", "no.yaml"]).await);
    assert_eq!(
        said,
        "landfall: reading the configuration no.yaml: No such file or directory (os error 2)"
    );

    let config = bed.write("pool.yaml", &only("127.0.0.0/40"));
    let config = [
        "--kubeconfig",
        kubeconfig,
        "--leader-elect=false",
        "--config",
        text(&config),
    ];
    let said = refusal(&controller(&bed, &config).await);
    assert!(said.starts_with("landfall: pools: "), "{said}");
    assert!(said.contains("127.0.0.0/40"), "{said}");
}

#[tokio::test]
async fn a_right_that_is_missing_stops_the_start_and_is_named() {
    let bed = Bed::open("rights").await;
    let kubeconfig = bed.kubeconfig();
    let arguments = [
        "--kubeconfig",
        text(&kubeconfig),
        "--namespace",
        "landfall-system",
    ];
    let role = bed
        .kubectl()
        .get(&["clusterrole", "landfall"])
        .await
        .unwrap();
    for (resource, verb, named) in [
        ("services/status", "patch", "patch services/status"),
        ("services", "watch", "watch services"),
        ("events", "create", "create events.events.k8s.io"),
        (
            "endpointslices",
            "list",
            "list endpointslices.discovery.k8s.io",
        ),
    ] {
        let mut without = role.clone();
        for rule in without["rules"].as_array_mut().unwrap() {
            let resources = rule["resources"].as_array().unwrap();
            if resources.iter().any(|it| it == resource) {
                let verbs = rule["verbs"].as_array_mut().unwrap();
                verbs.retain(|it| it != verb);
            }
        }
        let rules = without["rules"].as_array_mut().unwrap();
        rules.retain(|rule| !rule["verbs"].as_array().unwrap().is_empty());
        without["metadata"] = serde_json::json!({"name": "landfall"});
        let replace = ["replace", "-f", "-"];
        let manifest = without.to_string();
        bed.kubectl().run_with(&replace, &manifest).await.unwrap();
        let said = refusal(&controller(&bed, &arguments).await);
        assert_eq!(
            said,
            format!(
                "landfall: this identity may not: {named}; bind it to the roles of deploy/rbac.yaml"
            )
        );
    }
    bed.kubectl()
        .run(&["-n", "landfall-system", "delete", "role", "landfall"])
        .await
        .unwrap();
    let mut whole = role.clone();
    whole["metadata"] = serde_json::json!({"name": "landfall"});
    let whole = whole.to_string();
    bed.kubectl()
        .run_with(&["replace", "-f", "-"], &whole)
        .await
        .unwrap();
    let said = refusal(&controller(&bed, &arguments).await);
    assert_eq!(
        said,
        "landfall: this identity may not: create leases.coordination.k8s.io in landfall-system, \
         get leases.coordination.k8s.io \"landfall\" in landfall-system, update \
         leases.coordination.k8s.io \"landfall\" in landfall-system; bind it to the roles of \
         deploy/rbac.yaml"
    );
}

const POLICY: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-status}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - {apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [services/status]}
  validations:
    - expression: "object.metadata.name != 'forbidden'"
      message: "the status of this one is not yours"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-status}
spec: {policyName: no-status, validationActions: [Deny]}
"#;

#[tokio::test]
async fn a_policy_that_rejects_a_status_holds_up_that_service_alone() {
    let bed = Bed::open("policy").await;
    let range = Range::claim();
    let _one = Backend::start("one", range.member(1)).await;
    bed.kubectl().apply(POLICY).await.unwrap();
    // A policy holds once the API server has compiled it.
    bed.apply(&service("forbidden", &range)).await;
    let patch = r#"{"metadata": {"annotations": {"a": "b"}}}"#;
    let probe = [
        "patch",
        "service",
        "forbidden",
        "--subresource=status",
        "--type=merge",
        "-p",
        patch,
    ];
    let all = [&["-n", bed.namespace.as_str()], &probe[..]].concat();
    let began = std::time::Instant::now();
    while bed.kubectl().run(&all).await.is_ok() {
        assert!(
            began.elapsed() < crate::bed::DEADLINE,
            "the policy never holds"
        );
        tokio::time::sleep(crate::bed::LOOK).await;
    }
    let config = bed.write("landfall.yaml", &only(&range.pool()));
    let arguments = ["--leader-elect=false", "--config", text(&config)];
    let _replica = Replica::spawn(&bed, "alone", range.admin(1), &arguments);
    bed.apply(&service("web", &range)).await;
    bed.programmed(&["web"]).await;
    let held = crate::bed::address(&bed.service("web").await)
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(
        ask(std::net::SocketAddr::new(held, 8080)).await.unwrap(),
        "one"
    );
    let said = bed.event("forbidden", "SyncLoadBalancerFailed").await;
    assert!(
        said.contains("the status of this one is not yours"),
        "{said}"
    );
    assert_eq!(condition(&bed.service("forbidden").await, "Accepted"), None);
    bed.kubectl()
        .run(&[
            "delete",
            "validatingadmissionpolicybinding,validatingadmissionpolicy",
            "no-status",
        ])
        .await
        .unwrap();
    bed.programmed(&["forbidden"]).await;
}

#[tokio::test]
async fn a_cluster_without_address_pools_of_its_own_is_nothing_to_speak_of() {
    let bed = Bed::open("no-crd").await;
    let range = Range::claim();
    let replica = Replica::alone(&bed, range.admin(1), &only(&range.pool())).await;
    assert_eq!(
        replica.metric("landfall_source_problems").await.to_string(),
        "0"
    );
    bed.apply(&service("web", &range)).await;
    bed.programmed(&["web"]).await;
}

#[tokio::test]
async fn what_can_not_be_had_of_a_traffic_policy_is_reported_by_condition_and_event() {
    let bed = Bed::open("policy").await;
    let range = Range::claim();
    let _backend = Backend::start("one", range.member(1)).await;
    let _replica = Replica::alone(&bed, range.admin(1), &only(&range.pool())).await;
    let local = "spec:\n  externalTrafficPolicy: Local\n";
    let local = service("web", &range).replace("spec:\n", local);
    bed.apply(&local).await;
    bed.programmed(&["web"]).await;
    let begin = "spec.externalTrafficPolicy: the provider local ignores this: ";
    let note = bed.event("web", "OptionNotSupported").await;
    assert!(note.starts_with(begin), "{note}");
    let held = bed.service("web").await;
    let accepted = condition(&held, "Accepted");
    let expected = ("True".to_owned(), "OptionNotSupported".to_owned());
    assert_eq!(accepted, Some(expected));
    let target = format!("{}:8080", address(&held).unwrap());
    answered_by(target.parse().unwrap(), &["one"]).await;
}
