//! The values of MetalLB's chart as values of Landfall's: pure.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::Context as _;
use serde_json::{Map, Value, json};

/// Values of Landfall's chart, and what of MetalLB's they do not have.
#[derive(Clone, Debug, PartialEq)]
pub struct Translated {
    /// What to install with.
    pub values: Value,
    /// Values that were written and have no counterpart, by path, each with what to know of it.
    pub left_out: Vec<(String, &'static str)>,
}

/// What has no counterpart, by the beginning of its path, and what to know of it.
const REMARKS: &[(&str, &str)] = &[
    (
        "prometheus",
        "metrics are at the admin endpoints: docs/metrics.md",
    ),
    (
        "tls",
        "the admin endpoints have no TLS; the webhook has a certificate of its own",
    ),
    (
        "controller.webhookMode",
        "set webhook.enabled and a certificate: docs/bare-metal.md",
    ),
    ("crds", "apply deploy/crds.yaml"),
    (
        "frrk8s",
        "the speaker has BGP and BFD itself: no FRR runs beside it",
    ),
    (
        "speaker.frr",
        "the speaker has BGP and BFD itself: no FRR runs beside it",
    ),
    (
        "speaker.reloader",
        "the speaker has BGP and BFD itself: no FRR runs beside it",
    ),
    (
        "speaker.frrMetrics",
        "the speaker has BGP and BFD itself: no FRR runs beside it",
    ),
    ("speaker.bgpDebounceTimeout", "what changes is sent at once"),
    (
        "speaker.memberlist",
        "speakers have a membership of their own: speaker.membership",
    ),
    (
        "speaker.secretName",
        "the key of Landfall's speakers is another one: speaker.membershipSecret",
    ),
    ("nameOverride", "objects have the name of the release"),
    ("fullnameOverride", "objects have the name of the release"),
    ("controller.image", "image is one for all"),
    ("speaker.image", "image is one for all"),
    (
        "controller.strategy",
        "replicas are replaced one after the other",
    ),
    ("controller.livenessProbe", "probes are fixed"),
    ("controller.readinessProbe", "probes are fixed"),
    ("speaker.livenessProbe", "probes are fixed"),
    ("speaker.readinessProbe", "probes are fixed"),
    ("speaker.startupProbe", "probes are fixed"),
];

/// What is known of no value.
const UNKNOWN: &str = "there is no such value";

/// Values of a controller that Landfall's chart has at its top.
const OF_CONTROLLER: [(&str, &str); 7] = [
    ("resources", "resources"),
    ("nodeSelector", "nodeSelector"),
    ("tolerations", "tolerations"),
    ("affinity", "affinity"),
    ("priorityClassName", "priorityClassName"),
    ("podAnnotations", "podAnnotations"),
    ("labels", "podLabels"),
];

/// Values of speakers with the same name.
const OF_SPEAKER: [&str; 4] = [
    "resources",
    "nodeSelector",
    "tolerations",
    "priorityClassName",
];

/// Translates the values of a release of MetalLB's chart in a namespace.
///
/// # Errors
/// They can't be read.
pub fn translate(text: &str, namespace: &str) -> anyhow::Result<Translated> {
    let values: Option<Value> = serde_saphyr::from_str(text).context("the values can't be read")?;
    let mut given = Given {
        values: values.unwrap_or_else(|| json!({})),
        used: BTreeSet::new(),
    };
    anyhow::ensure!(given.values.is_object(), "values are a map");
    let mut ours = Map::new();
    ours.insert("config".to_owned(), config(&mut given, namespace));
    // It opens nothing on its node.
    ours.insert("hostNetwork".to_owned(), json!(false));
    ours.insert("privilegedPorts".to_owned(), json!(false));
    ours.insert(
        "admin".to_owned(),
        json!({"address": "0.0.0.0", "port": 9640}),
    );
    if let Some(secrets) = given.take("imagePullSecrets") {
        ours.insert("image".to_owned(), json!({"pullSecrets": secrets}));
    }
    for (theirs, name) in OF_CONTROLLER {
        if let Some(value) = given.take(&format!("controller.{theirs}")) {
            ours.insert(name.to_owned(), value);
        }
    }
    if let Some(annotations) = given.take("controller.serviceAccount.annotations") {
        ours.insert(
            "serviceAccount".to_owned(),
            json!({"annotations": annotations}),
        );
    }
    let levels = ["controller.logLevel", "speaker.logLevel"].map(|path| given.take(path));
    if let Some(level) = levels.into_iter().flatten().next() {
        ours.insert("log".to_owned(), json!({"level": log_level(&level)}));
    }
    if let Some(create) = given.take("rbac.create") {
        ours.insert("rbac".to_owned(), json!({"create": create}));
    }
    if let Some(enabled) = given.take("networkpolicies.enabled") {
        ours.insert("networkPolicy".to_owned(), json!({"enabled": enabled}));
    }
    ours.insert("speaker".to_owned(), speaker(&mut given));
    Ok(Translated {
        values: Value::Object(ours),
        left_out: given.left_out(),
    })
}

fn config(given: &mut Given, namespace: &str) -> Value {
    let class = given.take("loadBalancerClass");
    let class = class.filter(|it| it.as_str().is_some_and(|it| !it.is_empty()));
    let mut instance = json!({"name": "metal", "provider": "metal"});
    match class {
        Some(class) => instance["classNames"] = json!([class]),
        None => instance["default"] = json!(true),
    }
    json!({"metallbNamespace": namespace, "instances": [instance]})
}

fn speaker(given: &mut Given) -> Value {
    let enabled = given.take("speaker.enabled").unwrap_or(json!(true));
    let mut speaker = json!({"enabled": enabled});
    for name in OF_SPEAKER {
        if let Some(value) = given.take(&format!("speaker.{name}")) {
            speaker[name] = value;
        }
    }
    let on_control_plane = json!({"key": "node-role.kubernetes.io/control-plane",
        "operator": "Exists", "effect": "NoSchedule"});
    let tolerates = given.take("speaker.tolerateMaster") != Some(json!(false));
    match (speaker.get_mut("tolerations"), tolerates) {
        (Some(Value::Array(tolerations)), true) => tolerations.push(on_control_plane),
        (None, false) => speaker["tolerations"] = json!([]),
        _ => {}
    }
    if let Some(ignore) = given.take("speaker.ignoreExcludeLB") {
        speaker["ignoreExcludeLb"] = ignore;
    }
    // Then none is left out; an empty list stands for those of container networks.
    if given.take("speaker.excludeInterfaces.enabled") == Some(json!(false)) {
        speaker["excludeInterfaces"] = json!(["^$"]);
    }
    speaker
}

fn log_level(level: &Value) -> &'static str {
    match level.as_str() {
        Some("all") => "trace",
        Some("debug") => "debug",
        Some("warn") => "warn",
        Some("error") => "error",
        Some("none") => "off",
        _ => "info",
    }
}

/// What was given, and which of it was used.
struct Given {
    values: Value,
    used: BTreeSet<String>,
}

// === impl Given ===

impl Given {
    /// Takes the value at a path, if one is written.
    fn take(&mut self, path: &str) -> Option<Value> {
        self.used.insert(path.to_owned());
        let pointer = format!("/{}", path.replace('.', "/"));
        let value = self.values.pointer(&pointer);
        value.filter(|value| !value.is_null()).cloned()
    }

    /// Returns what was not used: whole parts of which nothing was, and single values of others.
    fn left_out(&self) -> Vec<(String, &'static str)> {
        let mut paths = Vec::new();
        self.unused("", &self.values, &mut paths);
        let with_remark = paths.into_iter().map(|path| {
            let begins = |begin: &str| {
                let rest = path.strip_prefix(begin);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            let remark = REMARKS.iter().find(|(begin, _)| begins(begin));
            let remark = remark.map_or(UNKNOWN, |(_, remark)| *remark);
            (path, remark)
        });
        with_remark.collect()
    }

    fn unused(&self, at: &str, value: &Value, paths: &mut Vec<String>) {
        if self.used.contains(at) {
            return;
        }
        let below = format!("{at}.");
        let is_partly_used = at.is_empty() || self.used.iter().any(|it| it.starts_with(&below));
        match value {
            Value::Null => {}
            Value::Object(fields) if is_partly_used => {
                for (name, value) in fields {
                    let path = if at.is_empty() {
                        name.clone()
                    } else {
                        format!("{at}.{name}")
                    };
                    self.unused(&path, value, paths);
                }
            }
            _ => paths.push(at.to_owned()),
        }
    }
}

/// Returns the values as a file, with what is left out as comments.
pub fn file(translated: &Translated) -> anyhow::Result<String> {
    let mut text = String::new();
    for (path, remark) in &translated.left_out {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "# left out: {path}: {remark}");
    }
    text.push_str(&serde_saphyr::to_string(&translated.values)?);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(text: &str) -> Translated {
        translate(text, "metallb-system").unwrap()
    }

    fn left_out(text: &str) -> Vec<String> {
        let left_out = translated(text).left_out.into_iter();
        left_out.map(|(path, _)| path).collect()
    }

    #[test]
    fn values_of_public_set_ups_of_metallb_become_values_of_this_chart() {
        // The same files are rendered by helm in xtask.
        for (theirs, ours) in [
            ("defaults", "an empty file"),
            ("class", "a class of its own, beside another load balancer"),
            ("frr", "BGP by FRR, with Prometheus"),
            ("home", "a home cluster with few resources"),
            ("hardened", "network policies, pull secrets, levels of logs"),
        ] {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/metallb-values");
            let read = |name: String| std::fs::read_to_string(format!("{folder}/{name}")).unwrap();
            let text = file(&translated(&read(format!("{theirs}.yaml")))).unwrap();
            let expected = format!("{folder}/{theirs}.landfall.yaml");
            if std::env::var_os("UPDATE_FIXTURES").is_some() {
                std::fs::write(&expected, &text).unwrap();
            }
            assert_eq!(text, std::fs::read_to_string(expected).unwrap(), "{ours}");
        }
    }

    #[test]
    fn the_class_and_the_namespace_of_metallb_are_those_of_the_instance() {
        let with = translate("loadBalancerClass: metallb", "lb")
            .unwrap()
            .values;
        assert_eq!(with["config"]["metallbNamespace"], "lb");
        assert_eq!(
            with["config"]["instances"][0]["classNames"],
            json!(["metallb"])
        );
        let without = translated("loadBalancerClass: \"\"").values;
        assert_eq!(without["config"]["instances"][0]["default"], true);
    }

    #[test]
    fn every_value_that_is_not_carried_over_is_named() {
        assert_eq!(
            left_out(
                "{speaker: {frr: {enabled: true}, unheard: 1}, controller: {image: {tag: x}}}"
            ),
            ["controller.image", "speaker.frr", "speaker.unheard"]
        );
        assert_eq!(
            left_out("{speaker: {enabled: true, resources: {}}}"),
            [""; 0]
        );
        let unheard = translated("{unheard: {of: 1}}").left_out;
        assert_eq!(unheard, [("unheard".to_owned(), UNKNOWN)]);
    }

    #[test]
    fn speakers_tolerate_the_control_plane_unless_they_are_not_to() {
        let of = |text: &str| translated(text).values["speaker"]["tolerations"].clone();
        assert_eq!(of("{}"), Value::Null, "the chart does by itself");
        assert_eq!(of("{speaker: {tolerateMaster: false}}"), json!([]));
        let both = of("{speaker: {tolerations: [{key: gpu, operator: Exists}]}}");
        assert_eq!(both.as_array().unwrap().len(), 2);
    }

    #[test]
    fn what_can_not_be_read_is_an_error() {
        assert!(translate("- a list", "x").is_err());
        assert!(translate("a: [", "x").is_err());
        assert!(translated("").left_out.is_empty());
    }
}
