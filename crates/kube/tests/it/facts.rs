//! Objects of every kind become facts, as they appear, change and go.

use landfall_kube::{CustomResources, SourceConfig};
use landfall_model::kinds::ObjectKind;
use landfall_model::rows::{Fact, ResourceKind};
use landfall_testkit::cluster::{Cluster, Options};
use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::{
    DEADLINE, USER, Watching, cluster, connect, connect_by, install, service, word,
};

fn slice(namespace: &str, name: &str, address: &str) -> String {
    format!(
        "apiVersion: discovery.k8s.io/v1\n\
        kind: EndpointSlice\n\
        metadata: {{namespace: {namespace}, name: {name}, labels: {{kubernetes.io/service-name: \
        web}}}}\n\
        addressType: IPv4\n\
        ports: [{{name: web, port: 8080, protocol: TCP}}]\n\
        endpoints: [{{addresses: [{address}]}}]\n\
        ---\n"
    )
}

fn node(name: &str, label: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{zone: {label}}}}}\n---\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_is_sent_when_it_appears_changes_and_goes() {
    let cluster = cluster().await;
    let kubectl = cluster.kubectl();
    let namespace = &cluster.namespace("kinds").await.unwrap();
    let name = format!("node-{namespace}");
    let there = service(
        namespace,
        "web",
        "landfall.dev/drain: 5s, other.example.com/note: long",
    ) + &slice(namespace, "web-1", "10.244.0.1")
        + &node(&name, "a");
    kubectl.apply(&there).await.unwrap();
    let mut watching = Watching::start(
        &connect(cluster, "landfall/facts").await,
        SourceConfig::default(),
    );
    let mut first = watching.until_in(namespace, "synced").await;
    first.sort();
    assert_eq!(
        first,
        [
            format!("+Namespace {namespace}"),
            format!("+Node {name}"),
            format!("+Service {namespace}/web"),
            format!("+Slice {namespace}/web-1")
        ]
    );

    kubectl
        .apply(&(slice(namespace, "web-1", "10.244.0.2")))
        .await
        .unwrap();
    let changed = loop {
        if let Fact::Slice(row) = watching.next().await
            && row.key.namespace() == namespace
        {
            break row;
        }
    };
    assert_eq!(changed.endpoints[0].address.to_string(), "10.244.0.2");

    kubectl.apply(&node(&name, "b")).await.unwrap();
    watching.until(&format!("+Node {name}")).await;
    kubectl
        .run(&["label", "namespace", namespace, "tier=front"])
        .await
        .unwrap();
    watching.until(&format!("+Namespace {namespace}")).await;
    let patch = r#"[{"op": "replace", "path": "/spec/ports/0/port", "value": 81}]"#;
    kubectl
        .run(&[
            "-n",
            namespace,
            "patch",
            "service",
            "web",
            "--type=json",
            "-p",
            patch,
        ])
        .await
        .unwrap();
    let changed = loop {
        if let Fact::Service(row) = watching.next().await
            && row.key.namespace() == namespace
            && row.ports[0].port.get() != 80
        {
            break row;
        }
    };
    assert!(changed.resource_version.is_some() && !changed.uid.as_str().is_empty());
    assert_eq!(
        changed.annotations.keys().collect::<Vec<_>>(),
        ["landfall.dev/drain"]
    );

    kubectl
        .run(&["-n", namespace, "delete", "endpointslice", "web-1"])
        .await
        .unwrap();
    watching.until(&format!("-Slice {namespace}/web-1")).await;
    kubectl.run(&["delete", "node", &name]).await.unwrap();
    watching.until(&format!("-Node {name}")).await;
    kubectl
        .run(&["-n", namespace, "delete", "service", "web"])
        .await
        .unwrap();
    watching.until(&format!("-Service {namespace}/web")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_wants_no_load_balancer_is_not_sent() {
    let cluster = cluster().await;
    let kubectl = cluster.kubectl();
    let namespace = &cluster.namespace("types").await.unwrap();
    let mut watching = Watching::start(
        &connect(cluster, "landfall/facts").await,
        SourceConfig::default(),
    );
    watching.until("synced").await;
    let plain = service(namespace, "plain", "").replace("LoadBalancer", "ClusterIP");
    kubectl
        .apply(&(plain + &service(namespace, "web", "")))
        .await
        .unwrap();
    let reported = watching
        .until_in(namespace, &format!("+Service {namespace}/web"))
        .await;
    assert_eq!(reported, [format!("+Service {namespace}/web")]);
    let to = |kind: &str| format!(r#"{{"spec": {{"type": "{kind}"}}}}"#);
    kubectl
        .run(&[
            "-n",
            namespace,
            "patch",
            "service",
            "web",
            "-p",
            &to("ClusterIP"),
        ])
        .await
        .unwrap();
    watching.until(&format!("-Service {namespace}/web")).await;
    kubectl
        .run(&[
            "-n",
            namespace,
            "patch",
            "service",
            "web",
            "-p",
            &to("LoadBalancer"),
        ])
        .await
        .unwrap();
    watching.until(&format!("+Service {namespace}/web")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_in_pages_sends_the_same_as_a_streamed_one() {
    let cluster = cluster().await;
    let namespace = &cluster.namespace("pages").await.unwrap();
    let many: String = (0..7)
        .map(|number| service(namespace, &format!("web-{number}"), ""))
        .collect();
    cluster.kubectl().apply(&many).await.unwrap();
    let audit = cluster.audit();
    let mut reported = Vec::new();
    for streaming in [true, false] {
        let config = SourceConfig {
            streaming,
            page: 2,
            ..SourceConfig::default()
        };
        let mut watching = Watching::start(&connect(cluster, "landfall/pages").await, config);
        let mut facts = watching.until_in(namespace, "synced").await;
        facts.sort();
        reported.push(facts);
        // And both go on from there.
        let name = format!("later-{streaming}");
        cluster
            .kubectl()
            .apply(&service(namespace, &name, ""))
            .await
            .unwrap();
        watching
            .until(&format!("+Service {namespace}/{name}"))
            .await;
        cluster
            .kubectl()
            .run(&["-n", namespace, "delete", "service", &name])
            .await
            .unwrap();
        watching
            .until(&format!("-Service {namespace}/{name}"))
            .await;
    }
    assert_eq!(reported[0].len(), 8, "{reported:?}");
    assert_eq!(reported[0], reported[1]);
    let entries = audit.entries().unwrap();
    let pages = entries.iter().filter(|entry| {
        entry.user_agent == "landfall/pages" && entry.verb == "list" && entry.resource == "services"
    });
    assert!(pages.count() >= 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_secrets_that_a_service_names_are_asked_for() {
    let cluster = cluster().await;
    let kubectl = cluster.kubectl();
    let namespace = &cluster.namespace("secrets").await.unwrap();
    let secret = |name: &str| {
        format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{namespace: {namespace}, name: {name}}}\n\
             type: kubernetes.io/tls\nstringData: {{tls.crt: chain, tls.key: key}}\n---\n"
        )
    };
    let naming = |names: &str| {
        service(
            namespace,
            "web",
            &format!("landfall.dev/mode: https, landfall.dev/tls-secret: \"{names}\""),
        )
    };
    kubectl
        .apply(&(secret("one") + &secret("two") + &secret("other")))
        .await
        .unwrap();
    kubectl.apply(&naming("one")).await.unwrap();
    let audit = cluster.audit();
    let mut watching = Watching::start(
        &connect(cluster, "landfall/secrets").await,
        // On a busy machine an answer may take longer than a Service waits for it.
        SourceConfig {
            secret_timeout: DEADLINE,
            ..SourceConfig::default()
        },
    );
    let first = watching.until_in(namespace, "synced").await;
    let place = |word: String| {
        first
            .iter()
            .position(|seen| *seen == word)
            .expect("it was sent")
    };
    // The certificate comes before the Service that needs it.
    assert!(place(format!("+Secret {namespace}/one")) < place(format!("+Service {namespace}/web")));
    assert!(!first.contains(&format!("+Secret {namespace}/two")));

    kubectl.apply(&naming("two, missing")).await.unwrap();
    let reported = watching
        .until_in(namespace, &format!("+Service {namespace}/web"))
        .await;
    assert_eq!(
        reported,
        [
            format!("+Secret {namespace}/two"),
            format!("+Service {namespace}/web")
        ]
    );
    kubectl.apply(&secret("missing")).await.unwrap();
    watching
        .until(&format!("+Secret {namespace}/missing"))
        .await;
    kubectl
        .run(&["-n", namespace, "delete", "secret", "two"])
        .await
        .unwrap();
    watching.until(&format!("-Secret {namespace}/two")).await;
    kubectl
        .run(&["-n", namespace, "delete", "service", "web"])
        .await
        .unwrap();
    watching.until(&format!("-Service {namespace}/web")).await;
    drop(watching);

    let entries = audit.entries().unwrap();
    let asked = entries
        .iter()
        .filter(|entry| entry.user_agent == "landfall/secrets" && entry.resource == "secrets")
        // Services of other tests in this cluster name others.
        .filter(|entry| entry.uri.contains(&format!("/{namespace}/")))
        .map(|entry| entry.uri.as_str());
    let names: Vec<_> = asked
        .map(|uri| uri.split("metadata.name%3D").nth(1).unwrap_or(uri))
        .collect();
    assert!(!names.is_empty());
    for name in names {
        let fits = ["one&", "two&", "missing&"]
            .iter()
            .any(|fit| name.starts_with(fit));
        assert!(fits, "a Secret that no Service names: {name}");
    }
}

/// What the manifests say about granting less: a role for single names does for watching them.
#[tokio::test(flavor = "multi_thread")]
async fn a_role_for_one_secret_is_enough_for_it_and_for_no_other() {
    let cluster = cluster().await;
    let kubectl = cluster.kubectl();
    let namespace = &cluster.namespace("narrow").await.unwrap();
    let role = format!(
        "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: narrow}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: landfall}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: narrow}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{namespace: {namespace}, name: narrow}}
rules: [{{apiGroups: [\"\"], resources: [secrets], resourceNames: [mine], verbs: [list, watch]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{namespace: {namespace}, name: narrow}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: narrow}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: narrow}}]
---
apiVersion: v1
kind: Secret
metadata: {{namespace: {namespace}, name: mine}}
type: kubernetes.io/tls
stringData: {{tls.crt: chain, tls.key: key}}
---
"
    );
    let naming = service(namespace, "web", "landfall.dev/tls-secret: \"mine,other\"");
    kubectl.apply(&(role + &naming)).await.unwrap();
    let connection = connect_by(&cluster.identity("narrow", &[]).unwrap(), "landfall/narrow").await;
    // Until the roles have reached the authorizer, more is denied.
    let config = || SourceConfig {
        look_again: Duration::from_millis(200),
        ..SourceConfig::default()
    };
    let mut watching = Watching::start(&connection, config());
    watching.until(&format!("+Secret {namespace}/mine")).await;
    let mut watching = Watching::start(&connection, config());
    let reported = watching.until_in(namespace, "synced").await;
    assert!(
        reported.contains(&format!("+Secret {namespace}/mine")),
        "{reported:?}"
    );
    assert!(
        reported.contains(&format!("+Service {namespace}/web")),
        "{reported:?}"
    );
    assert!(
        reported.contains(&format!("bad access to Secret {namespace}/other")),
        "{reported:?}"
    );
    watching.connected(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_object_is_reported_and_its_last_valid_version_stays() {
    let cluster = cluster().await;
    let kubectl = cluster.kubectl();
    let name = &format!("node-{}", cluster.namespace("invalid").await.unwrap());
    kubectl.apply(&node(name, "a")).await.unwrap();
    let mut watching = Watching::start(
        &connect(cluster, "landfall/facts").await,
        SourceConfig::default(),
    );
    watching.until("synced").await;
    let status = |address: &str| {
        format!(
            r#"{{"status": {{"addresses": [{{"type": "InternalIP", "address": "{address}"}}]}}}}"#
        )
    };
    let patch = async |address: &str| {
        let patch = status(address);
        let arguments = ["patch", "node", name, "--subresource=status", "-p", &patch];
        kubectl.run(&arguments).await.unwrap();
    };
    patch("nonsense").await;
    let reported = loop {
        let fact = watching.next().await;
        if word(&fact) == format!("bad Node {name}") {
            break fact;
        }
        assert_ne!(word(&fact), format!("-Node {name}"));
    };
    let Fact::SourceProblems { reasons, .. } = reported else {
        panic!("{reported:?}")
    };
    assert_eq!(
        reasons[0].field.as_deref(),
        Some("status.addresses[0].address")
    );
    patch("192.0.2.7").await;
    let reported = watching.until_in(name, &format!("fine Node {name}")).await;
    assert_eq!(
        reported,
        [format!("+Node {name}"), format!("fine Node {name}")]
    );
}

const POOLS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ipaddresspools.metallb.io}
spec:
  group: metallb.io
  scope: Namespaced
  names:
    kind: IPAddressPool
    listKind: IPAddressPoolList
    plural: ipaddresspools
    singular: ipaddresspool
  versions:
    - name: v1beta1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

#[tokio::test(flavor = "multi_thread")]
async fn address_pools_are_followed_once_their_kind_exists() {
    let cluster = Cluster::start(Options::default()).await.unwrap();
    install(&cluster).await;
    let kubectl = cluster.kubectl();
    let namespace = &cluster.namespace("pools").await.unwrap();
    let config = SourceConfig {
        resources: CustomResources {
            namespace: namespace.clone(),
            ..CustomResources::default()
        },
        look_again: Duration::from_millis(200),
        ..SourceConfig::default()
    };
    let mut watching = Watching::start(&connect(&cluster, "landfall/pools").await, config);
    // A cluster without the kind is no reason to wait.
    watching.until("synced").await;
    watching.connected(true).await;

    kubectl.apply(POOLS).await.unwrap();
    let established = [
        "wait",
        "--for=condition=Established",
        "crd/ipaddresspools.metallb.io",
    ];
    kubectl.run(&established).await.unwrap();
    let pool = format!(
        "apiVersion: metallb.io/v1beta1\nkind: IPAddressPool\n\
         metadata: {{namespace: {namespace}, name: edge}}\nspec: {{addresses: [192.0.2.0/28]}}\n"
    );
    kubectl.apply(&pool).await.unwrap();
    watching.until("+Pool edge").await;
    kubectl
        .run(&["-n", namespace, "delete", "ipaddresspool", "edge"])
        .await
        .unwrap();
    watching.until("-Pool edge").await;
    kubectl.apply(&pool).await.unwrap();
    watching.until("+Pool edge").await;
    // Pools that go with their kind are gone, and nothing else suffers.
    kubectl
        .run(&["delete", "crd", "ipaddresspools.metallb.io"])
        .await
        .unwrap();
    watching.until("-Pool edge").await;
    watching.connected(true).await;
}

/// Kinds of MetalLB's group without schemas: what is admitted is not the subject here.
fn definitions() -> String {
    let kinds = ResourceKind::ALL.map(|kind| ObjectKind::Resource(kind).row());
    let each = kinds.map(|row| {
        let (name, plural) = (row.name, row.resource);
        let version = |name: &str, storage: bool| {
            format!(
                "{{name: {name}, served: true, storage: {storage}, schema: {{openAPIV3Schema: \
                 {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}}}"
            )
        };
        let mut versions = vec![version(row.version, true)];
        versions.extend(row.older.map(|older| version(older, false)));
        format!(
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n\
             metadata: {{name: {plural}.metallb.io}}\nspec:\n  group: metallb.io\n  \
             names: {{kind: {name}, plural: {plural}, singular: {}}}\n  scope: Namespaced\n  \
             versions: [{}]\n---\n",
            name.to_lowercase(),
            versions.join(", ")
        )
    });
    each.concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_resources_are_followed_where_they_are_read_and_cost_nothing_where_not() {
    let cluster = Cluster::start(Options::default()).await.unwrap();
    install(&cluster).await;
    let kubectl = cluster.kubectl();
    let namespace = &cluster.namespace("resources").await.unwrap();
    let audit = cluster.audit();
    let watching = |agent: &'static str, kinds: BTreeSet<ResourceKind>| {
        let config = SourceConfig {
            resources: CustomResources {
                namespace: namespace.clone(),
                kinds,
            },
            look_again: Duration::from_millis(200),
            ..SourceConfig::default()
        };
        let cluster = &cluster;
        async move { Watching::start(&connect(cluster, agent).await, config) }
    };
    let mut all = watching("landfall/all", ResourceKind::ALL.into()).await;
    let mut pools = watching("landfall/pools", CustomResources::default().kinds).await;
    // None of the kinds exists yet.
    all.until("synced").await;
    pools.until("synced").await;
    kubectl.apply(&definitions()).await.unwrap();
    for kind in ResourceKind::ALL {
        let name = format!("crd/{}", ObjectKind::Resource(kind).row().full_resource());
        let established = ["wait", "--for=condition=Established", &name];
        kubectl.run(&established).await.unwrap();
    }
    let object = |kind: ResourceKind, namespace: &str| {
        let version = ObjectKind::Resource(kind).row().api_version();
        format!(
            "apiVersion: {version}\nkind: {kind}\nmetadata: {{namespace: {namespace}, \
             name: edge}}\nspec: {{of: {kind}}}\n---\n"
        )
    };
    for kind in ResourceKind::ALL {
        // Those of other namespaces are of no effect.
        let both = object(kind, "default") + &object(kind, namespace);
        kubectl.apply(&both).await.unwrap();
        let expected = match kind {
            ResourceKind::IpAddressPool => "+Pool edge".to_owned(),
            _ => format!("+{kind} {namespace}/edge"),
        };
        let seen = all.until(&expected).await;
        assert!(
            !seen.iter().any(|word| word.contains("default/")),
            "{seen:?}"
        );
    }
    // Manifests in the older version of a peer are the same object.
    let older = object(ResourceKind::BgpPeer, namespace).replace("v1beta2", "v1beta1");
    let other = older.replace("name: edge", "name: old");
    kubectl.apply(&other).await.unwrap();
    all.until(&format!("+BGPPeer {namespace}/old")).await;
    for kind in ResourceKind::ALL {
        let resource = ObjectKind::Resource(kind).row().full_resource();
        let delete = ["-n", namespace, "delete", &resource, "edge"];
        kubectl.run(&delete).await.unwrap();
        let expected = match kind {
            ResourceKind::IpAddressPool => "-Pool edge".to_owned(),
            _ => format!("-{kind} {namespace}/edge"),
        };
        all.until(&expected).await;
    }
    pools.until("-Pool edge").await;
    drop((all, pools));

    let entries = audit.entries().unwrap();
    let of_pools = entries
        .iter()
        .filter(|entry| entry.user_agent == "landfall/pools");
    let asked: BTreeSet<&str> = of_pools.map(|entry| entry.resource.as_str()).collect();
    for kind in ResourceKind::ALL {
        let watched = asked.contains(ObjectKind::Resource(kind).row().resource);
        assert_eq!(watched, kind == ResourceKind::IpAddressPool, "{asked:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_that_is_missing_is_named_and_its_grant_noticed() {
    let cluster = cluster().await;
    let kubectl = cluster.kubectl();
    let role = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: partial}
rules:
  - {apiGroups: [\"\"], resources: [services, namespaces], verbs: [list, watch]}
  - {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: partial}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: partial}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: partial}]
";
    kubectl.apply(role).await.unwrap();
    let connection = connect_by(
        &cluster.identity("partial", &[]).unwrap(),
        "landfall/partial",
    )
    .await;
    let mut watching = Watching::start(&connection, SourceConfig::default());
    // The role reaches the authorizer a little later: until then other rights may be missing, too.
    let mut problems = Vec::new();
    while problems.len() < 2 {
        if let Fact::SourceProblems { part, reasons } = watching.next().await
            && ["access to nodes", "access to ipaddresspools.metallb.io"].contains(&&*part)
        {
            problems.extend(reasons.into_iter().map(|reason| reason.message));
        }
    }
    problems.sort();
    assert!(
        problems[0].contains("to watch ipaddresspools.metallb.io"),
        "{problems:?}"
    );
    assert!(
        problems[1].contains("to watch nodes") && problems[1].contains("\"partial\""),
        "{problems:?}"
    );
    assert!(!watching.synced);
    let grant = r#"[{"op": "add", "path": "/rules/0/resources/-", "value": "nodes"}]"#;
    kubectl
        .run(&[
            "patch",
            "clusterrole",
            "partial",
            "--type=json",
            "-p",
            grant,
        ])
        .await
        .unwrap();
    // Pools stay out of reach, and everything else goes on.
    let reported = watching.until("synced").await;
    assert!(
        reported.contains(&"fine access to nodes".to_owned()),
        "{reported:?}"
    );
    assert!(
        !reported.contains(&"fine access to ipaddresspools.metallb.io".to_owned()),
        "{reported:?}"
    );
    assert!(USER.ends_with(":landfall"));
}
