//! What of MetalLB is installed and runs, as its workloads, Pods and objects show.

use std::collections::{BTreeMap, BTreeSet};

use landfall_kube::{ApiError, Connection, objects};
use landfall_model::ServiceKey;
use serde_json::Value;

/// What of MetalLB is in a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Installed {
    /// Its namespace.
    pub namespace: String,
    /// The part that assigns addresses.
    pub controller: Part,
    /// The part that announces them.
    pub speaker: Part,
    /// `--lb-class` of its controller.
    pub class: Option<String>,
    /// `--ignore-exclude-lb` of its speakers.
    pub ignores_exclude_label: bool,
    /// Its webhook configurations that refuse every change while its controller does not run.
    pub webhooks: BTreeSet<String>,
    /// Its conversion of `BGPPeer` objects, which only its controller carries out, is needed for
    /// those that are stored in the older version.
    pub converts_peers: bool,
    /// Patterns of interfaces that it does not announce on, where they are not those shipped.
    pub excluded_interfaces: Vec<String>,
    /// The nodes that say that they announce a Service.
    pub announcers: BTreeMap<ServiceKey, BTreeSet<String>>,
    /// Its resources from before version 0.14, which it does not read any more.
    pub outdated: Vec<String>,
    /// What could not be read and why, and whether it is needed to know what runs.
    pub unread: Vec<(String, bool)>,
}

/// A part of MetalLB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The Deployments or DaemonSets that want Pods.
    pub workloads: BTreeSet<String>,
    /// The Pods that have not ended, each with its node.
    pub pods: BTreeMap<String, Option<String>>,
}

/// What is read of it, each with the path behind its namespace or from the root.
const READ: [(&str, &str, Scope); 8] = [
    (
        "deployments.apps",
        "/apis/apps/v1",
        Scope::Own("deployments"),
    ),
    ("daemonsets.apps", "/apis/apps/v1", Scope::Own("daemonsets")),
    ("pods", "/api/v1", Scope::Own("pods")),
    ("configmaps", "/api/v1", Scope::Own("configmaps")),
    (
        "servicel2statuses.metallb.io",
        "/apis/metallb.io/v1beta1",
        Scope::Own("servicel2statuses"),
    ),
    (
        "addresspools.metallb.io",
        "/apis/metallb.io/v1beta1",
        Scope::Own("addresspools"),
    ),
    (
        "addresspools.metallb.io",
        "/apis/metallb.io/v1alpha1",
        Scope::Own("addresspools"),
    ),
    (
        "validatingwebhookconfigurations.admissionregistration.k8s.io",
        "/apis/admissionregistration.k8s.io/v1",
        Scope::All("validatingwebhookconfigurations"),
    ),
];

/// The definition of `BGPPeer`.
const PEERS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/bgppeers.metallb.io";

#[derive(Clone, Copy)]
enum Scope {
    Own(&'static str),
    All(&'static str),
}

/// The interfaces that MetalLB's manifests exclude; its speakers and ours leave out the same.
const SHIPPED_EXCLUSIONS: [&str; 14] = [
    "^docker.*",
    "^cbr.*",
    "^dummy.*",
    "^virbr.*",
    "^lxcbr.*",
    "^veth.*",
    "^lo$",
    "^cali.*",
    "^tunl.*",
    "^flannel.*",
    "^kube-ipvs.*",
    "^cni.*",
    "^nodelocaldns.*",
    "^lxc.*",
];

// === impl Installed ===

impl Installed {
    /// Reads everything that the identity may read; the rest is in [`Self::unread`].
    pub async fn read(connection: &Connection, namespace: &str) -> Self {
        let mut installed = Self {
            namespace: namespace.to_owned(),
            ..Self::default()
        };
        for (what, group, scope) in READ {
            let path = match scope {
                Scope::Own(plural) => format!("{group}/namespaces/{namespace}/{plural}"),
                Scope::All(plural) => format!("{group}/{plural}"),
            };
            match objects::list(connection, &path, &format!("list {what}")).await {
                Ok(objects) => objects.iter().for_each(|it| installed.take(what, it)),
                // A kind that is long gone is worth no right of its own.
                Err(ApiError::Denied { .. }) if what.starts_with("addresspools") => {}
                Err(error) => {
                    let is_needed = ["deployments.apps", "daemonsets.apps", "pods"].contains(&what);
                    installed.unread.push((error.to_string(), is_needed));
                }
            }
        }
        let what = "get customresourcedefinitions.apiextensions.k8s.io";
        match objects::get(connection, PEERS, what).await {
            Ok(definition) => definition
                .iter()
                .for_each(|it| installed.take_definition(it)),
            Err(error) => installed.unread.push((error.to_string(), false)),
        }
        installed
    }

    fn take_definition(&mut self, definition: &Value) {
        let strategy = text(definition, "/spec/conversion/strategy");
        let stored = definition
            .pointer("/status/storedVersions")
            .and_then(Value::as_array);
        let is_older = stored.is_some_and(|all| all.iter().any(|it| it == "v1beta1"));
        self.converts_peers = strategy == "Webhook" && is_older;
    }

    fn take(&mut self, what: &str, object: &Value) {
        let name = text(object, "/metadata/name");
        match what {
            "deployments.apps" => self.take_workload("deployment", object),
            "daemonsets.apps" => self.take_workload("daemonset", object),
            "pods" => {
                let ended = ["Succeeded", "Failed"].contains(&text(object, "/status/phase"));
                let node = object.pointer("/spec/nodeName").and_then(Value::as_str);
                let node = node.map(str::to_owned);
                if let (false, Some(part)) = (ended, self.part_of(object, "/metadata/labels")) {
                    part.pods.insert(name.to_owned(), node);
                }
            }
            "configmaps" => self.take_config_map(name, object),
            "servicel2statuses.metallb.io" => {
                let service = ["/status/serviceNamespace", "/status/serviceName"];
                let [namespace, name] = service.map(|path| text(object, path));
                let nodes = self.announcers.entry(ServiceKey::new(namespace, name));
                nodes
                    .or_default()
                    .insert(text(object, "/status/node").to_owned());
            }
            "addresspools.metallb.io" => self.outdated.push(format!("AddressPool {name}")),
            _ => self.take_webhooks(name, object),
        }
    }

    fn take_workload(&mut self, kind: &str, object: &Value) {
        let name = text(object, "/metadata/name");
        let wanted = match kind {
            "deployment" => number(object, "/spec/replicas").unwrap_or(1),
            _ => number(object, "/status/desiredNumberScheduled").unwrap_or(0),
        };
        let Some(part) = self.part_of(object, "/spec/template/metadata/labels") else {
            return;
        };
        if wanted > 0 {
            part.workloads.insert(format!("{kind}/{name}"));
        }
        let containers = object.pointer("/spec/template/spec/containers");
        for argument in containers.into_iter().flat_map(arguments) {
            let argument = argument.trim_start_matches('-');
            match argument.split_once('=').unwrap_or((argument, "true")) {
                ("lb-class", class) if kind == "deployment" && !class.is_empty() => {
                    self.class = Some(class.to_owned());
                }
                ("ignore-exclude-lb", "true") => self.ignores_exclude_label = true,
                _ => {}
            }
        }
    }

    fn take_config_map(&mut self, name: &str, object: &Value) {
        match name {
            "config" if object.pointer("/data/config").is_some() => {
                self.outdated.push("ConfigMap config".to_owned());
            }
            "metallb-excludel2" => {
                let text = text(object, "/data/excludel2.yaml");
                let read: Result<Value, _> = serde_saphyr::from_str(text);
                let patterns = read.ok();
                let patterns = patterns
                    .as_ref()
                    .and_then(|it| it.get("announcedInterfacesToExclude"));
                let patterns = patterns.and_then(Value::as_array).into_iter().flatten();
                let patterns: Vec<String> = patterns
                    .filter_map(Value::as_str)
                    .map(str::to_owned)
                    .collect();
                if patterns
                    .iter()
                    .any(|it| !SHIPPED_EXCLUSIONS.contains(&it.as_str()))
                {
                    self.excluded_interfaces = patterns;
                }
            }
            _ => {}
        }
    }

    fn take_webhooks(&mut self, name: &str, object: &Value) {
        let webhooks = object.get("webhooks").and_then(Value::as_array);
        let is_of_metallb = |it: &&Value| {
            let service = text(it, "/clientConfig/service/namespace");
            text(it, "/name").ends_with(".metallb.io") && service == self.namespace
        };
        let mut webhooks = webhooks.into_iter().flatten().filter(is_of_metallb);
        if webhooks.any(|it| text(it, "/failurePolicy") != "Ignore") {
            self.webhooks.insert(name.to_owned());
        }
    }

    /// Returns the part that an object with such labels belongs to: as the manifests label it, or
    /// as the chart does.
    fn part_of(&mut self, object: &Value, labels: &str) -> Option<&mut Part> {
        let label = |key: &str| {
            let labels = object.pointer(labels)?;
            labels.get(key)?.as_str()
        };
        let names = [
            ("app", "component"),
            ("app.kubernetes.io/name", "app.kubernetes.io/component"),
        ];
        let component = names.into_iter().find_map(|(app, component)| {
            let is_metallb = label(app) == Some("metallb");
            is_metallb.then(|| label(component)).flatten()
        });
        match component? {
            "controller" => Some(&mut self.controller),
            "speaker" => Some(&mut self.speaker),
            _ => None,
        }
    }

    /// The nodes that its speakers run on; `None`: none is known, so it may be any.
    pub fn speaking(&self) -> Option<BTreeSet<&str>> {
        let nodes = self.speaker.pods.values().flatten().map(String::as_str);
        let nodes: BTreeSet<&str> = nodes.collect();
        (!nodes.is_empty()).then_some(nodes)
    }
}

// === impl Part ===

impl Part {
    /// Whether it runs, or would be started again.
    pub fn is_running(&self) -> bool {
        !self.workloads.is_empty() || !self.pods.is_empty()
    }
}

fn arguments(containers: &Value) -> Vec<&str> {
    let containers = containers.as_array().into_iter().flatten();
    let arguments = containers.filter_map(|it| it.get("args")?.as_array());
    arguments.flatten().filter_map(Value::as_str).collect()
}

fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    let found = object.pointer(path).and_then(Value::as_str);
    found.unwrap_or_default()
}

fn number(object: &Value, path: &str) -> Option<i64> {
    object.pointer(path)?.as_i64()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn installed(objects: &[(&str, Value)]) -> Installed {
        let mut installed = Installed {
            namespace: "metallb-system".to_owned(),
            ..Installed::default()
        };
        for (what, object) in objects {
            installed.take(what, object);
        }
        installed
    }

    fn deployment(replicas: i64) -> Value {
        json!({
            "metadata": {"name": "controller"},
            "spec": {"replicas": replicas, "template": {
                "metadata": {"labels": {"app": "metallb", "component": "controller"}},
                "spec": {"containers": [{"args": ["--port=9120", "--lb-class=lan"]}]},
            }},
        })
    }

    fn pod(component: &str, phase: &str) -> Value {
        json!({
            "metadata": {"name": "p", "labels": {
                "app.kubernetes.io/name": "metallb", "app.kubernetes.io/component": component,
            }},
            "spec": {"nodeName": "n1"}, "status": {"phase": phase},
        })
    }

    #[test]
    fn a_controller_runs_while_its_deployment_wants_pods_or_one_has_not_ended() {
        let running = |objects: &[(&str, Value)]| installed(objects).controller.is_running();
        assert!(running(&[("deployments.apps", deployment(1))]));
        assert!(!running(&[("deployments.apps", deployment(0))]));
        assert!(running(&[
            ("deployments.apps", deployment(0)),
            ("pods", pod("controller", "Running")),
        ]));
        assert!(!running(&[("pods", pod("controller", "Succeeded"))]));
        assert!(!running(&[("pods", pod("speaker", "Running"))]));
        assert!(!running(&[]));
        assert_eq!(
            installed(&[("deployments.apps", deployment(0))])
                .class
                .as_deref(),
            Some("lan")
        );
    }

    #[test]
    fn speakers_run_on_the_nodes_of_their_pods() {
        let daemon_set = json!({
            "metadata": {"name": "speaker"},
            "spec": {"template": {
                "metadata": {"labels": {"app": "metallb", "component": "speaker"}},
                "spec": {"containers": [{"args": ["-ignore-exclude-lb"]}]},
            }},
            "status": {"desiredNumberScheduled": 3},
        });
        let found = installed(&[
            ("daemonsets.apps", daemon_set),
            ("pods", pod("speaker", "Running")),
        ]);
        assert_eq!(found.speaking(), Some(BTreeSet::from(["n1"])));
        assert!(found.speaker.workloads.contains("daemonset/speaker"));
        assert!(found.ignores_exclude_label);
        assert_eq!(installed(&[]).speaking(), None);
    }

    #[test]
    fn what_stands_in_the_way_of_changes_is_found() {
        let webhooks = |name: &str, policy: &str| {
            json!({"metadata": {"name": name}, "webhooks": [{
                "name": "ipaddresspoolvalidationwebhook.metallb.io", "failurePolicy": policy,
                "clientConfig": {"service": {"namespace": "metallb-system"}},
            }]})
        };
        let kind = "validatingwebhookconfigurations.admissionregistration.k8s.io";
        let found = installed(&[
            (kind, webhooks("a", "Fail")),
            (kind, webhooks("b", "Ignore")),
            (
                kind,
                json!({"metadata": {"name": "c"}, "webhooks": [{"name": "x.example.com"}]}),
            ),
            (
                "configmaps",
                json!({"metadata": {"name": "config"}, "data": {"config": "x"}}),
            ),
            (
                "addresspools.metallb.io",
                json!({"metadata": {"name": "old"}}),
            ),
        ]);
        assert_eq!(found.webhooks, BTreeSet::from(["a".to_owned()]));
        assert_eq!(found.outdated, ["ConfigMap config", "AddressPool old"]);
    }

    #[test]
    fn a_conversion_is_needed_for_peers_that_are_stored_in_the_older_version() {
        let needed = |strategy: &str, stored: &[&str]| {
            let mut installed = Installed::default();
            installed.take_definition(&json!({
                "spec": {"conversion": {"strategy": strategy}},
                "status": {"storedVersions": stored},
            }));
            installed.converts_peers
        };
        assert!(needed("Webhook", &["v1beta1", "v1beta2"]));
        assert!(!needed("Webhook", &["v1beta2"]) && !needed("None", &["v1beta1"]));
    }

    #[test]
    fn interfaces_that_are_excluded_by_own_patterns_are_read_and_those_shipped_are_not() {
        let map = |patterns: &str| {
            json!({"metadata": {"name": "metallb-excludel2"}, "data": {"excludel2.yaml":
                format!("announcedInterfacesToExclude: {patterns}")}})
        };
        let found =
            |patterns: &str| installed(&[("configmaps", map(patterns))]).excluded_interfaces;
        assert_eq!(found(r#"["^lo$", "^wg.*"]"#), ["^lo$", "^wg.*"]);
        assert!(found(r#"["^lo$", "^veth.*"]"#).is_empty());
        assert!(found("no list").is_empty());
    }

    #[test]
    fn the_node_of_a_status_object_announces_its_service() {
        let status = json!({"metadata": {"name": "l2-x"}, "status": {
            "node": "n2", "serviceName": "web", "serviceNamespace": "shop",
        }});
        let found = installed(&[("servicel2statuses.metallb.io", status)]);
        let nodes = BTreeSet::from(["n2".to_owned()]);
        assert_eq!(
            found.announcers,
            BTreeMap::from([(ServiceKey::new("shop", "web"), nodes)])
        );
    }
}
