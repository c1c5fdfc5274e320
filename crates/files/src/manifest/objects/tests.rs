//! Whole files in, objects, lines and reasons out.

mod hostile;

use landfall_model::rows::TargetPort;

use super::*;

fn content(text: &str) -> Content {
    read(&"web.yaml".into(), text)
}

fn json_content(text: &str) -> Content {
    read(&"web.json".into(), text)
}

/// The objects of a file without any finding.
fn clean(text: &str) -> Vec<String> {
    let content = content(text);
    assert_eq!(shown(&content), Vec::<String>::new());
    names(&content)
}

fn names(content: &Content) -> Vec<String> {
    let keys = content.objects.iter().map(|found| found.key.to_string());
    keys.collect()
}

fn spoilt(content: &Content) -> Vec<String> {
    content.spoilt.keys().map(ToString::to_string).collect()
}

fn shown(content: &Content) -> Vec<String> {
    content.reasons.iter().map(ToString::to_string).collect()
}

fn only_service(content: &Content) -> Arc<ServiceRow> {
    match content.objects.as_slice() {
        [
            Found {
                object: Object::Service(row),
                ..
            },
        ] => row.clone(),
        _ => panic!(
            "{:?} instead of one Service: {:?}",
            names(content),
            shown(content)
        ),
    }
}

fn service(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\nspec:\n  type: LoadBalancer\n  \
         ports:\n  - port: 80\n"
    )
}

const SAMPLE: &str = "\
# A shop.
---
# The namespace first.
apiVersion: v1
kind: Namespace
metadata:
  name: shop   # with a remark
---

apiVersion: v1
kind: Service
metadata:
  name: web
  namespace: shop
  annotations:
    # why so long?
    landfall.dev/drain: 30s

    landfall.dev/mode.http: \"http\"
  labels: {app: web,
    tier: front}
spec:
  type: LoadBalancer
  ports:
  # the first
  - name: http
    port: 80

  - port: 443
    name: https
    targetPort: tls
  selector:
    app: web
...
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-1
  namespace: shop
  labels: {kubernetes.io/service-name: web}
addressType: IPv4
endpoints:
- addresses: [10.0.0.1]
- addresses:
  - 10.0.0.2
ports:
- {name: http, port: 8080}
";

#[test]
fn every_field_of_a_sample_stands_on_its_line() {
    let content = content(SAMPLE);
    assert_eq!(shown(&content), Vec::<String>::new());
    assert_eq!(
        names(&content),
        [
            "Namespace shop",
            "Service shop/web",
            "EndpointSlice shop/web-1"
        ]
    );
    let lines: Vec<u32> = content
        .objects
        .iter()
        .map(|found| found.origin.line)
        .collect();
    assert_eq!(lines, [4, 10, 36]);

    let Object::Service(web) = &content.objects[1].object else {
        panic!("not a Service");
    };
    let line = |field: &str| web.origin_of(field).unwrap().line;
    let expected = [
        ("apiVersion", 10),
        ("metadata", 12),
        ("metadata.name", 13),
        ("metadata.annotations", 15),
        ("metadata.annotations[landfall.dev/drain]", 17),
        ("metadata.annotations[landfall.dev/mode.http]", 19),
        ("metadata.labels[app]", 20),
        ("metadata.labels[tier]", 21),
        ("spec", 22),
        ("spec.type", 23),
        ("spec.ports", 24),
        ("spec.ports[0]", 26),
        ("spec.ports[0].port", 27),
        ("spec.ports[0].protocol", 26),
        ("spec.ports[1]", 29),
        ("spec.ports[1].name", 30),
        ("spec.ports[1].targetPort", 31),
        ("spec.selector[app]", 33),
        ("spec.loadBalancerClass", 22),
    ];
    for (field, expected) in expected {
        assert_eq!(line(field), expected, "{field}");
    }

    let Object::Slice(slice) = &content.objects[2].object else {
        panic!("not a slice");
    };
    let source = slice.source.as_ref().unwrap();
    assert_eq!(source.origin_of("endpoints[1].addresses[0]").line, 45);
    assert_eq!(source.origin_of("ports[0].port").line, 48);
}

#[test]
fn lines_count_the_same_with_windows_line_ends() {
    let content = content(&SAMPLE.replace('\n', "\r\n"));
    assert_eq!(shown(&content), Vec::<String>::new());
    let lines: Vec<u32> = content
        .objects
        .iter()
        .map(|found| found.origin.line)
        .collect();
    assert_eq!(lines, [4, 10, 36]);
}

#[test]
fn a_service_of_a_file_has_a_lasting_identity_and_no_history() {
    let text = "\
apiVersion: v1
kind: Service
metadata:
  name: web
  uid: chosen
  resourceVersion: '7'
  generation: 3
  deletionTimestamp: 2026-01-01T00:00:00Z
  finalizers: [service.kubernetes.io/load-balancer-cleanup]
spec: {type: LoadBalancer, clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ports: [{port: 80}]}
status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}
";
    let row = only_service(&content(text));
    assert_eq!(row.uid.as_str(), "chosen");
    assert_eq!((row.finalized, row.deleting), (false, false));
    assert_eq!((&row.resource_version, row.generation), (&None, None));
    assert_eq!(row.status, ServiceStatus::default());

    let row = only_service(&content(&service("web")));
    assert_eq!(
        row.uid,
        identity::uid_of(&ServiceKey::new("default", "web"))
    );
}

#[test]
fn a_list_holds_objects_of_many_kinds_each_with_its_lines() {
    let text = "\
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Service
  metadata: {name: web}
  spec:
    ports:
    - port: 70000
- apiVersion: v1
  kind: Node
  metadata: {name: n1}
- apiVersion: v1
  kind: List
  items:
  - {apiVersion: v1, kind: Namespace, metadata: {name: shop}}
";
    let content = content(text);
    assert_eq!(names(&content), ["Node n1", "Namespace shop"]);
    assert_eq!(
        shown(&content),
        ["web.yaml:9: spec.ports[0].port: \"70000\": not a port; write a number from 1 to 65535"]
    );
}

#[test]
fn the_items_of_a_typed_list_need_no_kind() {
    let text = "apiVersion: v1\nkind: ServiceList\nitems:\n- metadata: {name: web}\n  spec: \
               {ports: [{port: 80}]}\n";
    assert_eq!(clean(text), ["Service default/web"]);
    assert_eq!(
        clean("apiVersion: v1\nkind: List\nitems: null\n"),
        Vec::<String>::new()
    );
}

#[test]
fn json_may_be_one_object_or_several_one_after_another() {
    let one = "{\n\
              \t\"apiVersion\": \"v1\",\n\
              \t\"kind\": \"Service\",\n\
              \t\"metadata\": {\"name\": \"web\"},\n\
              \t\"spec\": {\"ports\": [\n\
              \t\t{\"port\": 80, \"targetPort\": \"a\\/b\"}]}}";
    let two = "{\"apiVersion\":\"v1\",\"kind\":\"Namespace\",\"metadata\":{\"name\":\"shop\",\
               \"annotations\":{\"smile\":\"\\ud83d\\ude00\"}}}";
    let content = json_content(&format!("{one}\n\n{two}{two}\n"));
    assert_eq!(names(&content), ["Namespace shop", "Namespace shop"]);
    let lines: Vec<u32> = content
        .objects
        .iter()
        .map(|found| found.origin.line)
        .collect();
    assert_eq!(lines, [8, 8]);
    let [reason] = shown(&content).try_into().unwrap();
    let reason: String = reason;
    assert!(
        reason.starts_with("web.json:6: spec.ports[0].targetPort: \"a/b\": "),
        "{reason}"
    );
    let Object::Namespace(shop) = &content.objects[0].object else {
        panic!("not a namespace");
    };
    assert_eq!(shop.annotations["smile"], "\u{1f600}");
}

#[test]
fn broken_json_is_reported_with_its_line_and_what_came_before_is_kept() {
    let good = "{\"apiVersion\": \"v1\", \"kind\": \"Node\", \"metadata\": {\"name\": \"n1\"}}";
    let content = json_content(&format!("{good}\n{{\"kind\": \n oops}}"));
    assert_eq!(names(&content), ["Node n1"]);
    assert_eq!(
        shown(&content),
        ["web.json:3: not JSON: expected value; correct this line or one shortly above it"]
    );
    assert!(content.unclear);
}

#[test]
fn yaml_may_begin_with_a_brace() {
    assert_eq!(
        clean("{apiVersion: v1, kind: Node, metadata: {name: n1}}\n"),
        ["Node n1"]
    );
}

#[test]
fn a_broken_document_costs_only_itself() {
    let text = format!(
        "{}---\napiVersion: v1\nkind: Service\nmetadata:\n  name: [web\n---\n{}",
        service("first"),
        service("last")
    );
    let content = content(&text);
    assert_eq!(
        names(&content),
        ["Service default/first", "Service default/last"]
    );
    assert!(content.unclear);
    let [reason] = shown(&content).try_into().unwrap();
    let reason: String = reason;
    assert!(reason.starts_with("web.yaml:13: not YAML: "), "{reason}");
}

#[test]
fn a_tab_where_yaml_wants_spaces_is_reported_with_its_line() {
    let content = content("apiVersion: v1\nkind: Service\nmetadata:\n\tname: web\n");
    assert_eq!(names(&content), Vec::<String>::new());
    let [reason] = shown(&content).try_into().unwrap();
    let reason: String = reason;
    assert!(
        reason.starts_with("web.yaml:4: not YAML: ") && reason.contains("tab"),
        "{reason}"
    );
}

#[test]
fn a_key_that_stands_twice_spoils_its_object_and_names_both_lines() {
    let text = format!(
        "{}  type: ClusterIP\n---\n{}",
        service("web"),
        service("dns")
    );
    let content = content(&text);
    assert_eq!(names(&content), ["Service default/dns"]);
    assert_eq!(spoilt(&content), ["Service default/web"]);
    assert!(!content.unclear);
    assert_eq!(
        shown(&content),
        ["web.yaml:9: the key \"type\" is already on line 6; keep one of them"]
    );
}

#[test]
fn of_many_keys_each_counts_once_whether_it_is_early_or_late_or_merged() {
    let keys = |last| (0..=last).map(|number| format!("    key-{number}: 'own'\n"));
    for (last, again) in [(3, 0), (15, 15), (16, 0), (17, 16), (40, 5), (40, 40)] {
        let known: String = keys(last).collect();
        let text = format!(
            "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n  annotations:\n\
             {known}    key-{again}: 'again'\nspec:\n  ports: [{{port: 80}}]\n"
        );
        let (first, line) = (6 + again, 6 + last + 1);
        let expected = format!(
            "web.yaml:{line}: the key \"key-{again}\" is already on line {first}; keep one of them"
        );
        assert_eq!(shown(&content(&text)), [expected]);

        let merged = "    <<: {key-0: 'merged', other: 'merged'}\n";
        let text = text.replace(&format!("    key-{again}: 'again'\n"), merged);
        let row = only_service(&content(&text));
        assert_eq!(row.annotations.len(), last + 2);
        assert_eq!(row.annotations["key-0"], "own");
        assert_eq!(row.annotations["other"], "merged");
    }
}

#[test]
fn a_field_of_the_wrong_type_is_named_with_line_and_value() {
    let cases = [
        (
            "metadata: {name: web, annotations: {landfall.dev/x: true}}",
            "web.yaml:3: metadata.annotations[landfall.dev/x]: \"true\": true or false where a \
            text (in quotes) is needed",
        ),
        (
            "metadata: {name: web, labels: {version: 1.2}}",
            "web.yaml:3: metadata.labels[version]: \"1.2\": a number where a text (in quotes) is \
             needed",
        ),
        (
            "metadata: {name: web}\nspec:\n  ports:\n  - port: '80'",
            "web.yaml:6: spec.ports[0].port: \"80\": a text where a whole number is needed",
        ),
        (
            "metadata: {name: web}\nspec:\n  ports:\n    port: 80",
            "web.yaml:5: spec.ports: a map where a list is needed",
        ),
        (
            "metadata: {name: web}\nspec: []",
            "web.yaml:4: spec: a list where a map is needed",
        ),
        (
            "metadata: {name: web}\nspec: {ports: [{port: 80, targetPort: [1]}]}",
            "web.yaml:4: spec.ports[0].targetPort: a list where a number or a text is needed",
        ),
        (
            "metadata: {name: web}\nspec: {publishNotReadyAddresses: 'yes'}",
            "web.yaml:4: spec.publishNotReadyAddresses: \"yes\": a text where true or false is \
            needed",
        ),
    ];
    for (rest, expected) in cases {
        let content = content(&format!("apiVersion: v1\nkind: Service\n{rest}\n"));
        assert_eq!(shown(&content), [expected]);
        assert_eq!(spoilt(&content), ["Service default/web"]);
        assert_eq!(
            content.spoilt.into_values().flatten().collect::<Vec<_>>(),
            content.reasons
        );
    }
}

#[test]
fn yaml_of_old_means_what_kubectl_takes_it_for() {
    let text = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  \
                publishNotReadyAddresses: yes\n  ports: [{port: 0x50, targetPort: !!str http}]\n";
    let row = only_service(&content(text));
    assert!(row.publish_not_ready);
    assert_eq!(row.ports[0].port.get(), 80);
    assert_eq!(row.ports[0].target, TargetPort::Name("http".to_owned()));
}

#[test]
fn anchors_aliases_and_merges_are_followed() {
    let text = "\
apiVersion: v1
kind: Service
metadata:
  name: web
  labels: &labels {app: web}
  annotations: {<<: *labels, app: other, more: &more 'yes', again: *more}
spec:
  selector: *labels
  ports: [{port: 80}]
";
    let row = only_service(&content(text));
    assert_eq!(row.selector, row.labels);
    let annotations: Vec<_> = row
        .annotations
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    assert_eq!(
        annotations,
        [("again", "yes"), ("app", "other"), ("more", "yes")]
    );
}

#[test]
fn other_kinds_are_ignored_without_a_finding() {
    for head in [
        "apiVersion: apps/v1\nkind: Deployment",
        "apiVersion: v1\nkind: ConfigMap",
        "apiVersion: v1\nkind: Pod",
        "apiVersion: v1\nkind: ServiceAccount",
        "apiVersion: serving.knative.dev/v1\nkind: Service",
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role",
        "apiVersion: metallb.io/v1beta1\nkind: ServiceL2Status",
    ] {
        assert_eq!(
            clean(&format!("{head}\nmetadata: {{name: x}}\n")),
            Vec::<String>::new()
        );
    }
}

#[test]
fn slips_near_our_kinds_are_pointed_out() {
    let cases = [
        (
            "v1",
            "service",
            "web.yaml:2: kind: \"service\": there is no such kind; did you mean Service?",
        ),
        (
            "v1",
            "Services",
            "web.yaml:2: kind: \"Services\": there is no such kind; did you mean Service?",
        ),
        (
            "v1",
            "Sevrice",
            "web.yaml:2: kind: \"Sevrice\": there is no such kind; did you mean Service?",
        ),
        (
            "discovery.k8s.io/v1",
            "EndpointsSlice",
            "web.yaml:2: kind: \"EndpointsSlice\": there is no such kind; did you mean \
            EndpointSlice?",
        ),
        (
            "v2",
            "Service",
            "web.yaml:1: apiVersion: \"v2\": Service is not read in this version; write \
            apiVersion: v1",
        ),
        (
            "core/v1",
            "Service",
            "web.yaml:1: apiVersion: \"core/v1\": Service is not read in this version; write \
             apiVersion: v1",
        ),
        (
            "discovery.k8s.io/v1beta1",
            "EndpointSlice",
            "web.yaml:1: apiVersion: \"discovery.k8s.io/v1beta1\": EndpointSlice is not read in \
            this version; write apiVersion: discovery.k8s.io/v1",
        ),
        (
            "v1",
            "Endpoints",
            "web.yaml:2: kind: Endpoints are not read; write an EndpointSlice of \
            discovery.k8s.io/v1",
        ),
    ];
    for (version, kind, expected) in cases {
        let content = content(&format!(
            "apiVersion: {version}\nkind: {kind}\nmetadata: {{name: x}}\n"
        ));
        assert_eq!(shown(&content), [expected]);
        // Of what is a slip nothing is taken for withdrawn.
        let is_slip = kind != "Endpoints";
        let severity = if is_slip {
            Severity::Error
        } else {
            Severity::Warning
        };
        assert_eq!(
            (content.reasons[0].severity, content.unclear),
            (severity, is_slip)
        );
    }
}

#[test]
fn fields_that_kubernetes_does_not_know_are_pointed_out() {
    let text = "\
apiVersion: v1
kind: Service
metadata:
  name: web
  annotation: {a: b}
spec:
  prots: []
  loadbalancerClass: x
  ports:
  - port: 80
    target: 8080
";
    let content = content(text);
    assert_eq!(names(&content), ["Service default/web"]);
    assert_eq!(
        shown(&content),
        [
            "web.yaml:5: metadata.annotation: Kubernetes knows no such field; did you mean \
             annotations?",
            "web.yaml:7: spec.prots: Kubernetes knows no such field; did you mean ports?",
            "web.yaml:8: spec.loadbalancerClass: Kubernetes knows no such field; did you mean \
             loadBalancerClass?",
            "web.yaml:11: spec.ports[0].target: Kubernetes knows no such field; remove it",
        ]
    );
}

#[test]
fn what_is_no_object_is_reported() {
    let cases = [
        (
            "just a text",
            "web.yaml:1: not a Kubernetes object: it is not a map of fields; write apiVersion, \
            kind, metadata and spec",
            true,
        ),
        (
            "- a\n- b",
            "web.yaml:1: not a Kubernetes object: it is not a map of fields; write apiVersion, \
            kind, metadata and spec",
            true,
        ),
        (
            "kind: Service",
            "web.yaml:1: the object has no apiVersion; every Kubernetes object has it: add it",
            true,
        ),
        (
            "\n\napiVersion: v1",
            "web.yaml:3: the object has no kind; every Kubernetes object has it: add it",
            true,
        ),
        (
            "replicas: 3",
            "web.yaml:1: not a Kubernetes object: it has no apiVersion and no kind; move other \
            files elsewhere",
            false,
        ),
    ];
    for (text, expected, unclear) in cases {
        let content = content(text);
        assert_eq!(shown(&content), [expected]);
        assert_eq!(content.unclear, unclear, "{text:?}");
    }
}

#[test]
fn documents_without_content_are_nothing() {
    for text in [
        "",
        "\n\n",
        "# only a remark\n",
        "---\n---\n...\n",
        "--- ~\n",
        "\u{feff}",
    ] {
        assert_eq!(clean(text), Vec::<String>::new(), "{text:?}");
    }
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_text() {
    assert_eq!(
        clean(&format!("\u{feff}{}", service("web"))),
        ["Service default/web"]
    );
}

#[test]
fn an_object_without_a_name_leaves_the_file_unclear() {
    let content =
        content("apiVersion: v1\nkind: Service\nmetadata: {}\nspec: {ports: [{port: 80}]}\n");
    assert_eq!(
        shown(&content),
        ["web.yaml:3: metadata.name: the object has no name; give it one"]
    );
    assert!(content.unclear);
}

#[test]
fn a_slice_of_no_service_is_left_out_and_leaves_nothing_unclear() {
    let text = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: \
                x}\naddressType: IPv4\n";
    let content = content(text);
    assert_eq!(content.reasons[0].severity, Severity::Warning);
    assert_eq!(
        (content.unclear, content.spoilt.len(), content.objects.len()),
        (false, 0, 0)
    );
}

const RESOURCES: &str = "\
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {name: edge, namespace: metallb-system}
spec:
  addresses: [192.0.2.0/28]
---
apiVersion: metallb.io/v1beta1
kind: L2Advertisement
metadata: {name: edge, namespace: metallb-system}
spec:
  interfaces:
  - eth0
  - eth1
---
apiVersion: metallb.io/v1beta1
kind: BGPPeer
metadata: {name: old, namespace: metallb-system}
spec: {myASN: 64512, peerASN: 64513, peerAddress: 192.0.2.1}
---
apiVersion: metallb.io/v1beta2
kind: BGPPeer
metadata: {name: new, namespace: metallb-system}
spec: {myASN: 64512, peerASN: 64513, peerAddress: 192.0.2.2}
---
apiVersion: metallb.io/v1beta1
kind: BFDProfileList
items:
- metadata: {name: fast, namespace: metallb-system}
  spec: {detectMultiplier: 3}
";

#[test]
fn custom_resources_are_read_with_their_spec_and_its_lines() {
    assert_eq!(
        clean(RESOURCES),
        [
            "IPAddressPool edge",
            "L2Advertisement metallb-system/edge",
            "BGPPeer metallb-system/old",
            "BGPPeer metallb-system/new",
            "BFDProfile metallb-system/fast",
        ]
    );
    let objects = content(RESOURCES).objects;
    let rows: Vec<Arc<ResourceRow>> = objects
        .iter()
        .map(|found| match &found.object {
            Object::Pool(row) => row.resource.clone().unwrap(),
            Object::Resource(row) => row.clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        rows[0].spec,
        serde_json::json!({"addresses": ["192.0.2.0/28"]})
    );
    let place = rows[1].origin_of("spec.interfaces[1]").unwrap();
    assert_eq!(place.to_string(), "web.yaml:13");
    let versions: Vec<&str> = rows.iter().map(|row| row.api_version.as_str()).collect();
    assert_eq!(
        versions[..4],
        [
            "metallb.io/v1beta1",
            "metallb.io/v1beta1",
            "metallb.io/v1beta1",
            "metallb.io/v1beta2",
        ]
    );
    assert_eq!(rows[4].spec["detectMultiplier"], 3);
}

#[test]
fn a_slip_in_a_custom_resource_is_reported_where_it_stands() {
    let text = RESOURCES
        .replace("  interfaces:", "  interface:")
        .replace("metallb.io/v1beta2", "metallb.io/v1");
    let content = content(&text);
    let found = shown(&content);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains("spec.interface"), "{found:?}");
    assert!(found[0].contains("did you mean interfaces?"), "{found:?}");
    assert!(
        found[1].contains("write apiVersion: metallb.io/v1beta2"),
        "{found:?}"
    );
    // The peer is not withdrawn because of a slip.
    assert!(content.unclear);
    assert_eq!(names(&content).len(), 4);
}
