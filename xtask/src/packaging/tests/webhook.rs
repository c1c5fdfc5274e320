//! The optional webhook of the chart.

use serde_json::json;

use super::chart::rendered;

const ENABLED: &str =
    r#"webhook={"enabled":true,"tlsSecret":"seal","caBundle":"QQ==","port":9444}"#;

#[test]
fn the_webhook_is_off_by_default_and_fails_open_where_it_is_asked_for() {
    let none = rendered("landfall", &[]).unwrap();
    let kinds = |objects: &super::Objects| -> Vec<String> {
        let kinds = objects.all().map(|it| it["kind"].to_string());
        kinds.filter(|kind| kind.contains("Webhook")).collect()
    };
    assert_eq!(kinds(&none), [""; 0]);
    let policy = r#"networkPolicy={"enabled":true,"from":[]}"#;
    let values = [
        ENABLED,
        policy,
        "hostNetwork=false",
        r#"admin.address="0.0.0.0""#,
    ];
    let metal = r#"config={"instances":[{"name":"lan","provider":"metal","default":true}]}"#;
    let objects = rendered("landfall", &[&values[..], &[metal]].concat()).unwrap();
    let configuration = objects.one("ValidatingWebhookConfiguration", "landfall-metallb");
    let webhook = &configuration["webhooks"][0];
    assert_eq!(webhook["failurePolicy"], "Ignore");
    assert_eq!(webhook["clientConfig"]["caBundle"], "QQ==");
    let service = &webhook["clientConfig"]["service"];
    let expected = json!({"name": "landfall-webhook", "namespace": "landfall-system",
        "path": "/validate", "port": 443});
    assert_eq!(*service, expected);
    let ports = &objects.one("Service", "landfall-webhook")["spec"]["ports"];
    assert_eq!(ports[0]["targetPort"], "webhook");
    let pod = &objects.one("Deployment", "landfall")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let arguments = container["args"].as_array().unwrap();
    assert!(
        arguments.contains(&json!("--webhook=[::]:9444")),
        "{arguments:?}"
    );
    assert_eq!(container["ports"][1]["containerPort"], 9444);
    let volumes = pod["volumes"].as_array().unwrap();
    let secrets = volumes.iter().map(|it| &it["secret"]["secretName"]);
    assert!(secrets.into_iter().any(|it| it == "seal"));
    // API servers reach it, and nothing else does.
    let ingress = &objects.one("NetworkPolicy", "landfall")["spec"]["ingress"];
    let allowed = json!([{"ports": [{"port": "webhook", "protocol": "TCP"}]}]);
    assert_eq!(*ingress, allowed);
}
