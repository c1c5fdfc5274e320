//! The chart, as the real helm sees it.

use std::path::PathBuf;
use std::process::Command;

use landfall_config::provider::ProviderConfig;
use serde_json::{Value, json};

use super::{Objects, deployed, root};
use crate::place::Place;
use crate::tools;

/// What the chart is rendered for, where no API server says which one it is.
pub const KUBERNETES: &str = "1.36.1";

/// helm, which answers or refuses.
pub fn helm(arguments: &[&str]) -> Result<String, String> {
    let output = command().args(arguments).output().unwrap();
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout).unwrap());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The pinned helm, with nothing of the user's.
pub fn command() -> Command {
    let place = Place::find().unwrap();
    let program = tools::helm_program(&place);
    assert!(
        program.is_file(),
        "helm {} is missing: cargo xtask install",
        tools::helm_version()
    );
    let mut command = Command::new(program);
    for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        command.env(variable, place.target().join("helm"));
    }
    command.env("KUBECONFIG", "/nonexistent");
    command
}

/// Where the chart is.
pub fn chart() -> PathBuf {
    root().join("charts/landfall")
}

pub fn rendered(release: &str, values: &[&str]) -> Result<Objects, String> {
    let chart = chart();
    let mut arguments = vec![
        "template",
        release,
        chart.to_str().unwrap(),
        "--namespace",
        "landfall-system",
        "--kube-version",
        KUBERNETES,
    ];
    for value in values {
        arguments.extend(["--set-json", value]);
    }
    helm(&arguments).map(|text| Objects::parse(&text))
}

fn pod(objects: &Objects) -> &Value {
    &objects.one("Deployment", "landfall")["spec"]["template"]["spec"]
}

#[test]
fn helm_finds_nothing_to_complain_about() {
    let chart = chart();
    helm(&["lint", "--strict", chart.to_str().unwrap()]).unwrap();
}

#[test]
fn the_chart_makes_what_the_plain_manifests_have() {
    let chart = rendered("landfall", &[]).unwrap();
    let plain = deployed("landfall").without("Namespace");
    assert_eq!(chart.in_meaning(), plain.in_meaning());
}

#[test]
fn certificates_everywhere_are_the_same_right_as_in_the_plain_manifest() {
    let values = [r#"rbac.certificates={"everywhere":true}"#];
    let chart = rendered("landfall", &values).unwrap();
    let mut plain = deployed("landfall").without("Namespace");
    plain.add(deployed("rbac-certificates"));
    assert_eq!(chart.in_meaning(), plain.in_meaning());
}

#[test]
fn certificates_of_single_namespaces_are_bound_in_these_only() {
    let values = [r#"rbac.certificates={"namespaces":["shop","bank"]}"#];
    let chart = rendered("landfall", &values).unwrap();
    let bound: Vec<&Value> = chart
        .all()
        .filter(|object| object["roleRef"]["name"] == "landfall-certificates")
        .map(|object| &object["metadata"]["namespace"])
        .collect();
    assert_eq!(bound, ["bank", "shop"]);
    let role = chart.one("ClusterRole", "landfall-certificates");
    assert_eq!(role["rules"][0]["verbs"], json!(["list", "watch"]));
}

#[test]
fn an_access_log_is_part_of_the_configuration_and_validated_with_it() {
    let values = [r#"config.accessLog={"file":"-","format":"combined","sample":0.01}"#];
    let chart = rendered("landfall", &values).unwrap();
    let file = chart.one("ConfigMap", "landfall")["data"]["landfall.yaml"].clone();
    let config = landfall_config::file::parse("landfall.yaml", file.as_str().unwrap()).unwrap();
    assert_eq!(config.access_log.unwrap().file.to_str(), Some("-"));
    let values = [r#"config.accessLog={"file":"-","sample":2}"#];
    let refused = rendered("landfall", &values).unwrap_err();
    assert!(refused.contains("sample"), "{refused}");
}

/// A configuration whose instance lets annotations name members.
const NAMED_MEMBERS: &str = concat!(
    r#"config={"instances":[{"name":"edge","provider":"local","#,
    r#""members":{"annotations":["10.20.0.0/16"]}}]}"#,
);

fn policies(objects: &Objects) -> Vec<&Value> {
    let kinds = objects.all().map(|object| &object["kind"]);
    kinds
        .filter(|kind| kind.as_str().unwrap().contains("AdmissionPolicy"))
        .collect()
}

#[test]
fn where_annotations_may_name_members_only_trusted_namespaces_have_them_unless_values_say_no() {
    let chart = rendered("landfall", &[NAMED_MEMBERS]).unwrap();
    let both = [
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ];
    assert_eq!(policies(&chart), both);
    let (chart, plain) = (chart.in_meaning(), deployed("admission").in_meaning());
    for kind in both {
        let name = "landfall-annotations";
        assert_eq!(chart.one(kind, name), plain.one(kind, name));
    }
    let off = [NAMED_MEMBERS, "admissionPolicy.enabled=false"];
    assert_eq!(
        policies(&rendered("landfall", &off).unwrap()),
        [] as [&Value; 0]
    );
    let none = NAMED_MEMBERS.replace(r#""10.20.0.0/16""#, "");
    let none = rendered("landfall", &[&none]).unwrap();
    assert_eq!(policies(&none), [] as [&Value; 0]);
}

#[test]
fn a_policy_that_is_asked_for_reserves_the_annotations_that_are_named() {
    let values = [
        "admissionPolicy.enabled=true",
        r#"admissionPolicy.annotations=["landfall.dev/addresses","metallb.io/allow-shared-ip"]"#,
        r#"admissionPolicy.failurePolicy="Fail""#,
    ];
    let chart = rendered("outer", &values).unwrap();
    let policy = chart.one("ValidatingAdmissionPolicy", "outer-annotations");
    let reserved = &policy["spec"]["variables"][0];
    let list = r#"["landfall.dev/addresses","metallb.io/allow-shared-ip"]"#;
    assert_eq!(*reserved, json!({"name": "reserved", "expression": list}));
    assert_eq!(policy["spec"]["failurePolicy"], "Fail");
    let binding = chart.one("ValidatingAdmissionPolicyBinding", "outer-annotations");
    assert_eq!(binding["spec"]["policyName"], "outer-annotations");
}

#[test]
fn without_roles_nothing_is_granted() {
    let values = [r#"rbac={"create":false,"certificates":{"everywhere":true}}"#];
    let chart = rendered("landfall", &values).unwrap();
    let kinds: Vec<&Value> = chart.all().map(|object| &object["kind"]).collect();
    assert_eq!(
        kinds,
        [
            "ConfigMap",
            "Deployment",
            "PodDisruptionBudget",
            "ServiceAccount"
        ]
    );
}

#[test]
fn two_releases_share_nothing() {
    let names = |release: &str| {
        let objects = rendered(release, &[]).unwrap();
        let name = |object: &Value| format!("{} {}", object["kind"], object["metadata"]["name"]);
        objects.all().map(name).collect::<Vec<_>>()
    };
    let (inner, outer) = (names("inner"), names("outer"));
    assert!(inner.iter().all(|name| !outer.contains(name)), "{inner:?}");
    let outer = rendered("outer", &[]).unwrap();
    let role = outer.one("Role", "outer");
    assert_eq!(role["rules"][1]["resourceNames"], json!(["outer"]));
    let pod = &outer.one("Deployment", "outer")["spec"]["template"]["spec"];
    let arguments = pod["containers"][0]["args"].as_array().unwrap();
    assert!(arguments.contains(&json!("--lease-name=outer")), "{pod}");
}

#[test]
fn without_privileged_ports_the_pod_has_an_unprivileged_user_and_no_capability() {
    let chart = rendered("landfall", &["privilegedPorts=false"]).unwrap();
    let pod = pod(&chart);
    assert_eq!(
        pod["securityContext"],
        json!({
            "runAsUser": 65532, "runAsGroup": 65532, "runAsNonRoot": true,
            "seccompProfile": {"type": "RuntimeDefault"},
        })
    );
    assert_eq!(
        pod["containers"][0]["securityContext"]["capabilities"],
        json!({"drop": ["ALL"]})
    );
}

#[test]
fn an_instance_on_exoscale_has_its_key_mounted_and_needs_no_network_of_the_node() {
    let instance = concat!(
        r#"config={"instances":[{"name":"exoscale","default":false,"provider":"#,
        r#"{"kind":"exoscale","zone":"ch-gva-2","credentialsFile":"/etc/openstack"}}]}"#,
    );
    let values = [
        instance,
        "hostNetwork=false",
        r#"admin={"address":"0.0.0.0","port":9640,"tokenSecret":""}"#,
        r#"cloudSecret="exoscale-key""#,
    ];
    let chart = rendered("landfall", &values).unwrap();
    let file = chart.one("ConfigMap", "landfall")["data"]["landfall.yaml"].clone();
    let config = landfall_config::file::parse("landfall.yaml", file.as_str().unwrap()).unwrap();
    assert_eq!(config.instances.len(), 1);
    let pod = pod(&chart);
    assert_eq!(pod["hostNetwork"], json!(false));
    let volumes = pod["volumes"].as_array().unwrap();
    let secret = volumes
        .iter()
        .find(|it| it["secret"]["secretName"] == "exoscale-key");
    let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
    let mount = mounts
        .iter()
        .find(|it| it["name"] == secret.unwrap()["name"]);
    assert_eq!(mount.unwrap()["mountPath"], "/etc/openstack");
    let values = [instance.replace("ch-gva-2\"", "ch-gva-2\",\"zome\":\"x\"")];
    let refused = rendered("landfall", &[&values[0]]).unwrap_err();
    assert!(
        refused.contains("zome") || refused.contains("oneOf"),
        "{refused}"
    );
}

#[test]
fn the_values_for_openstack_need_a_cluster_name_and_no_right_on_nodes() {
    let (chart, values) = (chart(), chart().join("values-openstack.yaml"));
    let rendered = helm(&[
        "template",
        "landfall",
        chart.to_str().unwrap(),
        "--namespace=landfall-system",
        "--kube-version",
        KUBERNETES,
        "-f",
        values.to_str().unwrap(),
        "--set",
        "config.instances[0].provider.clusterName=c1",
    ]);
    let chart = Objects::parse(&rendered.unwrap());
    let file = chart.one("ConfigMap", "landfall")["data"]["landfall.yaml"].clone();
    let config = landfall_config::file::parse("landfall.yaml", file.as_str().unwrap()).unwrap();
    let [instance] = config.instances.as_slice() else {
        panic!("{config:?}");
    };
    // The name of the instance that --cloud-config stands for: Services may change between both.
    assert_eq!(
        (instance.name.as_str(), instance.default),
        ("openstack", true)
    );
    let ProviderConfig::OpenStack(openstack) = &instance.provider else {
        panic!("{instance:?}");
    };
    assert_eq!(openstack.cluster_name, "c1");
    let pod = pod(&chart);
    assert_eq!(pod["hostNetwork"], json!(false));
    assert_eq!(pod["securityContext"]["runAsNonRoot"], json!(true));
    let container = &pod["containers"][0];
    assert_eq!(
        container["securityContext"]["capabilities"],
        json!({"drop": ["ALL"]})
    );
    let mounts = container["volumeMounts"].as_array().unwrap();
    let mount = mounts.iter().find(|it| it["name"] == "cloud").unwrap();
    let folder = std::path::Path::new(mount["mountPath"].as_str().unwrap());
    assert_eq!(
        openstack.cloud_conf.as_deref(),
        Some(&*folder.join("cloud.conf"))
    );
    // The admin endpoint is open in the network of pods, and only probes get there.
    assert_eq!(
        chart.one("NetworkPolicy", "landfall")["spec"]["ingress"],
        json!([])
    );
}

#[test]
fn another_configuration_restarts_the_replicas() {
    let template = |values: &[&str]| {
        let chart = rendered("landfall", values).unwrap();
        chart.one("Deployment", "landfall")["spec"]["template"]["metadata"].clone()
    };
    let other = r#"config={"instances":[{"name":"other","provider":"local"}]}"#;
    assert_ne!(template(&[]), template(&[other]));
    assert_eq!(template(&[]), template(&["replicas=5"]));
}

#[test]
fn what_a_pod_can_have_is_passed_on() {
    let chart = rendered(
        "landfall",
        &[
            r#"image={"repository":"registry.example.com:5000/lb","tag":"1","pullSecrets":[{"name":"key"}]}"#,
            r#"env=[{"name":"HTTPS_PROXY","value":"http://proxy.example:3128"}]"#,
            r#"extraArgs=["--only=shop/web"]"#,
            r#"tolerations=[{"operator":"Exists"}]"#,
            r#"nodeSelector={"edge":"true"}"#,
            r#"affinity={"nodeAffinity":{}}"#,
            r#"podLabels={"team":"net"}"#,
            r#"podAnnotations={"note":"x"}"#,
            r#"serviceAccount={"annotations":{"a":"b"}}"#,
            "grace=90",
            r#"admin={"address":"0.0.0.0","port":9999}"#,
            r#"priorityClassName="""#,
        ],
    )
    .unwrap();
    let template = &chart.one("Deployment", "landfall")["spec"]["template"];
    assert_eq!(template["metadata"]["labels"]["team"], "net");
    assert_eq!(template["metadata"]["annotations"]["note"], "x");
    let pod = pod(&chart);
    assert_eq!(pod["imagePullSecrets"], json!([{"name": "key"}]));
    assert_eq!(pod["tolerations"], json!([{"operator": "Exists"}]));
    assert_eq!(pod["nodeSelector"], json!({"edge": "true"}));
    assert_eq!(pod["affinity"], json!({"nodeAffinity": {}}));
    assert_eq!(pod["terminationGracePeriodSeconds"], 120);
    assert_eq!(pod.get("priorityClassName"), None);
    let container = &pod["containers"][0];
    assert_eq!(container["image"], "registry.example.com:5000/lb:1");
    assert_eq!(container["env"][2]["name"], "HTTPS_PROXY");
    assert_eq!(container["ports"][0]["containerPort"], 9999);
    let arguments = container["args"].as_array().unwrap();
    assert!(arguments.contains(&json!("--admin=0.0.0.0:9999")));
    assert!(arguments.contains(&json!("--grace=90")));
    assert_eq!(arguments.last(), Some(&json!("--only=shop/web")));
    let account = chart.one("ServiceAccount", "landfall");
    assert_eq!(account["metadata"]["annotations"], json!({"a": "b"}));
}

#[test]
fn values_that_mean_nothing_are_refused_by_name() {
    for (value, reported) in [
        ("replica=3", "additional properties 'replica' not allowed"),
        ("replicas=-1", "/replicas"),
        (r#"grace="long""#, "/grace"),
        (r#"image={"tag":"a b"}"#, "/image/tag"),
        (r#"admin={"address":"10.0.0.1"}"#, "/admin/address"),
        // Probes could not reach it.
        ("hostNetwork=false", "/admin/address"),
        (r#"env=[{"name":"HOSTNAME","value":"x"}]"#, "/env/0/name"),
        (r#"extraArgs=["only"]"#, "/extraArgs/0"),
        (r#"config={"instances":[]}"#, "/config/instances"),
        (
            r#"config={"instances":[{"name":"a","provider":"cloud"}]}"#,
            "/config/instances/0",
        ),
        (
            r#"config={"instances":[{"name":"a","provider":"local","defualt":true}]}"#,
            "defualt",
        ),
        // It would be part of an expression.
        (
            r#"admissionPolicy={"annotations":["a'] + ['b"]}"#,
            "/admissionPolicy/annotations/0",
        ),
        (
            r#"rbac={"certificates":{"namespaces":["Shop"]}}"#,
            "/rbac/certificates/namespaces/0",
        ),
    ] {
        let refusal = rendered("landfall", &[value]).unwrap_err();
        assert!(refusal.contains(reported), "{value}: {refusal}");
    }
}

#[test]
fn every_value_is_documented_and_every_documented_one_has_its_place_in_the_schema() {
    let read = |name: &str| std::fs::read_to_string(chart().join(name)).unwrap();
    let values: Value = serde_saphyr::from_str(&read("values.yaml")).unwrap();
    let schema: Value = serde_json::from_str(&read("values.schema.json")).unwrap();
    let mut named: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
    named.retain(|name| *name != "global");
    let given: Vec<&String> = values.as_object().unwrap().keys().collect();
    assert_eq!(named, given);
}
