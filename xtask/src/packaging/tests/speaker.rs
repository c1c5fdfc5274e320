//! The speakers of the chart.

use landfall_config::file;
use serde_json::{Value, json};

use super::chart::{KUBERNETES, chart, helm, rendered};
use super::{Objects, deployed, root};

const ENABLED: &str = "speaker.enabled=true";
const SERVING: &str = concat!(
    r#"config={"instances":[{"name":"lan","provider":"#,
    r#"{"kind":"metal","dataPlane":"landfall"}}]}"#,
);

fn pod(objects: &Objects) -> &Value {
    &objects.one("DaemonSet", "landfall-speaker")["spec"]["template"]["spec"]
}

fn names_of_speakers(objects: &Objects) -> Vec<String> {
    let named = objects.all().map(|object| {
        let name = object["metadata"]["name"].as_str().unwrap();
        format!("{} {name}", object["kind"].as_str().unwrap())
    });
    named.filter(|name| name.contains("speaker")).collect()
}

#[test]
fn the_chart_makes_the_speakers_of_the_plain_manifest_where_they_are_asked_for() {
    let none = rendered("landfall", &[]).unwrap();
    assert_eq!(names_of_speakers(&none), [""; 0]);
    let chart = rendered("landfall", &[ENABLED]).unwrap();
    let mut plain = deployed("landfall").without("Namespace");
    plain.add(deployed("speaker"));
    assert_eq!(chart.in_meaning(), plain.in_meaning());
}

#[test]
fn speakers_that_serve_have_the_configuration_and_may_set_routes() {
    let capabilities = |objects: &Objects| {
        pod(objects)["containers"][0]["securityContext"]["capabilities"].clone()
    };
    let usual = rendered("landfall", &[ENABLED]).unwrap();
    assert_eq!(
        capabilities(&usual),
        json!({"drop": ["ALL"], "add": ["NET_RAW"]})
    );
    let chart = rendered("landfall", &[ENABLED, SERVING]).unwrap();
    let wanted = json!({"drop": ["ALL"], "add": ["NET_RAW", "NET_ADMIN", "NET_BIND_SERVICE"]});
    assert_eq!(capabilities(&chart), wanted);
    let arguments = pod(&chart)["containers"][0]["args"].as_array().unwrap();
    let config = json!("--config=/etc/landfall/config/landfall.yaml");
    assert!(arguments.contains(&config), "{arguments:?}");
    let volume = json!({"name": "config", "configMap": {"name": "landfall"}});
    let volumes = pod(&chart)["volumes"].as_array().unwrap();
    assert!(volumes.contains(&volume), "{volumes:?}");
    let text = chart.one("ConfigMap", "landfall")["data"]["landfall.yaml"].clone();
    file::parse("landfall.yaml", text.as_str().unwrap()).unwrap();
}

#[test]
fn speakers_may_read_certificates_only_where_they_serve() {
    let certificates = r#"rbac.certificates={"everywhere":true}"#;
    let bound = |values: &[&str]| {
        let names = names_of_speakers(&rendered("landfall", values).unwrap());
        let wanted = "ClusterRoleBinding landfall-speaker-certificates";
        names.iter().any(|name| name == wanted)
    };
    assert!(!bound(&[ENABLED, certificates]));
    assert!(!bound(&[ENABLED, SERVING]));
    assert!(bound(&[ENABLED, SERVING, certificates]));
    let some = r#"rbac.certificates={"namespaces":["shop"]}"#;
    let names = names_of_speakers(&rendered("landfall", &[ENABLED, SERVING, some]).unwrap());
    let wanted = "RoleBinding landfall-speaker-certificates";
    assert!(names.iter().any(|name| name == wanted), "{names:?}");
}

#[test]
fn speakers_are_not_root_unless_it_is_asked_for() {
    let of = |values: &[&str]| {
        let objects = rendered("landfall", values).unwrap();
        let context = &pod(&objects)["securityContext"];
        (
            context["runAsUser"].clone(),
            context["runAsNonRoot"].clone(),
        )
    };
    assert_eq!(of(&[ENABLED]), (65532.into(), true.into()));
    let as_root = of(&[ENABLED, "speaker.asRoot=true"]);
    assert_eq!(as_root, (0.into(), false.into()));
}

#[test]
fn values_of_speakers_are_passed_on_and_wrong_ones_refused() {
    let values = [
        ENABLED,
        "speaker.membershipPort=7950",
        r#"speaker.admin={"address":"0.0.0.0","port":9700}"#,
        r#"speaker.excludeInterfaces=["^eth1$"]"#,
        "speaker.requireAbleNodes=true",
        "speaker.ignoreExcludeLb=true",
        r#"speaker.membershipSecret="seal""#,
        r#"admin={"address":"127.0.0.1","port":9640,"tokenSecret":"token"}"#,
    ];
    let chart = rendered("landfall", &values).unwrap();
    let container = &pod(&chart)["containers"][0];
    let arguments = container["args"].as_array().unwrap();
    for argument in [
        "--membership-port=7950",
        "--admin=0.0.0.0:9700",
        "--exclude-interface=^eth1$",
        "--require-able-nodes",
        "--ignore-exclude-lb",
        "--admin-token-file=/etc/landfall-admin/token",
    ] {
        assert!(
            arguments.contains(&json!(argument)),
            "{argument}: {arguments:?}"
        );
    }
    assert_eq!(container["ports"][0]["containerPort"], 7950);
    assert_eq!(container["ports"][1]["containerPort"], 9700);
    let volumes = &pod(&chart)["volumes"];
    assert_eq!(volumes[0]["secret"]["secretName"], "seal");
    for (value, reported) in [
        ("speaker.membershipPort=0", "/speaker/membershipPort"),
        (r#"speaker.membership="tcp""#, "/speaker/membership"),
        ("speaker.leaseDuration=3", "/speaker/leaseDuration"),
        (
            r#"speaker.membershipSecret="""#,
            "/speaker/membershipSecret",
        ),
        ("speaker.replicas=1", "replicas"),
    ] {
        let refusal = rendered("landfall", &[ENABLED, value]).unwrap_err();
        assert!(refusal.contains(reported), "{value}: {refusal}");
    }
}

#[test]
fn speakers_that_routers_connect_to_may_use_their_port_and_have_the_time_for_a_drain() {
    let values = [
        ENABLED,
        "speaker.bgpListen=179",
        r#"speaker.dataPlaneHealth="http://127.0.0.1:10256/healthz""#,
        "speaker.drainTime=20",
    ];
    let chart = rendered("landfall", &values).unwrap();
    let pod = pod(&chart);
    let arguments = pod["containers"][0]["args"].as_array().unwrap();
    for argument in [
        "--bgp-listen=179",
        "--data-plane-health=http://127.0.0.1:10256/healthz",
        "--drain-time=20",
    ] {
        assert!(
            arguments.contains(&json!(argument)),
            "{argument}: {arguments:?}"
        );
    }
    assert_eq!(pod["terminationGracePeriodSeconds"], 27);
    let capabilities = &pod["containers"][0]["securityContext"]["capabilities"];
    assert_eq!(capabilities["add"], json!(["NET_RAW", "NET_BIND_SERVICE"]));
    for (value, reported) in [
        ("speaker.bgpListen=0", "/speaker/bgpListen"),
        ("speaker.drainTime=21", "/speaker/drainTime"),
    ] {
        let refusal = rendered("landfall", &[ENABLED, value]).unwrap_err();
        assert!(refusal.contains(reported), "{value}: {refusal}");
    }
}

#[test]
fn without_roles_speakers_get_none_and_another_namespace_of_resources_is_theirs() {
    let without = [ENABLED, SERVING, r#"rbac={"create":false}"#];
    let names = names_of_speakers(&rendered("landfall", &without).unwrap());
    let wanted = [
        "DaemonSet landfall-speaker",
        "ServiceAccount landfall-speaker",
    ];
    assert_eq!(names, wanted);
    let values = [ENABLED, r#"config.metallbNamespace="networking""#];
    let chart = rendered("landfall", &values).unwrap();
    let arguments = pod(&chart)["containers"][0]["args"].as_array().unwrap();
    let namespace = json!("--metallb-namespace=networking");
    assert!(arguments.contains(&namespace), "{arguments:?}");
    let roles = chart.all().filter(|object| object["kind"] == "Role");
    let namespaces: Vec<&Value> = roles.map(|it| &it["metadata"]["namespace"]).collect();
    assert!(namespaces.contains(&&json!("networking")), "{namespaces:?}");
}

/// As `landfall adopt metallb --values` translates them; its tests compare the two.
#[test]
fn values_of_metallbs_chart_that_were_translated_render_the_chart() {
    let folder = root().join("crates/landfall/tests/fixtures/metallb-values");
    for name in ["defaults", "class", "frr", "home", "hardened"] {
        let file = folder.join(format!("{name}.landfall.yaml"));
        let chart = chart();
        let arguments = [
            "template",
            "landfall",
            chart.to_str().unwrap(),
            "--namespace",
            "landfall-system",
            "--kube-version",
            KUBERNETES,
            "--values",
            file.to_str().unwrap(),
        ];
        let objects = Objects::parse(&helm(&arguments).unwrap());
        let pod = pod(&objects);
        assert_eq!(pod["hostNetwork"], true, "{name}");
        let arguments = pod["containers"][0]["args"].as_array().unwrap();
        let has = |argument: &str| arguments.contains(&json!(argument));
        assert!(has("--metallb-namespace=metallb-system"), "{name}");
        assert_eq!(has("--ignore-exclude-lb"), name == "home");
        assert_eq!(has("--exclude-interface=^$"), name == "home");
        let selector = &pod["nodeSelector"];
        assert_eq!(*selector == json!({"lan": "true"}), name == "class");
        let config = objects.one("ConfigMap", "landfall")["data"]["landfall.yaml"].to_string();
        assert_eq!(config.contains("metallb.example.com/lan"), name == "class");
        assert_eq!(config.contains("default: true"), name != "class");
    }
}
