use landfall_model::limits::Limits;
use landfall_model::reach::{MemberRules, Setting};

use super::*;
use crate::clouds_yaml::Surroundings;
use crate::provider::metal::DataPlane;
use crate::provider::openstack::{OpenStack, SecurityGroups, TargetType};

const GOOD: &str = "\
instances:
- name: edge
  provider: local
  default: true
  pools:
  - name: public
    addresses: [192.0.2.0/28]
    avoidBuggyIPs: true
    serviceAllocation: {priority: 10, namespaces: [shop]}
- name: inner
  provider: local
";

fn refused(text: &str) -> String {
    parse("landfall.yaml", text).unwrap_err().to_string()
}

#[test]
fn what_serves_addresses_on_bare_metal_is_kube_proxy_unless_it_is_named() {
    let read = |provider: &str| {
        let text = format!("instances:\n- {{name: a, provider: {provider}}}\n");
        parse("landfall.yaml", &text)
    };
    let data_plane = |provider: &str| match read(provider).unwrap().instances.remove(0).provider {
        ProviderConfig::Metal(metal) => metal.data_plane,
        other => panic!("{other:?}"),
    };
    assert_eq!(data_plane("metal"), DataPlane::KubeProxy);
    assert_eq!(data_plane("{kind: metal}"), DataPlane::KubeProxy);
    let landfall = "{kind: metal, dataPlane: landfall}";
    assert_eq!(data_plane(landfall), DataPlane::Landfall);
    let error = read("{kind: metal, dataPlane: cilium}").unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("kube-proxy") && error.contains(":2: "),
        "{error}"
    );
}

#[test]
fn pools_of_metallb_are_where_it_is_installed() {
    let read = |line: &str| {
        let instances = "instances: [{name: edge, provider: local}]\n";
        parse("landfall.yaml", &format!("{line}{instances}"))
    };
    assert_eq!(read("").unwrap().metallb_namespace(), "metallb-system");
    let config = read("metallbNamespace: networking\n").unwrap();
    assert_eq!(config.metallb_namespace(), "networking");
    let error = read("metallbNamespace: Net.work\n")
        .unwrap_err()
        .to_string();
    let begin = "landfall.yaml: metallbNamespace: \"Net.work\": not the name of a namespace";
    assert!(error.starts_with(begin), "{error}");
}

#[test]
fn further_classes_of_an_instance_are_qualified_names_outside_of_our_domain_and_listed_once() {
    let with = |first: &str, second: &str| {
        parse(
            "landfall.yaml",
            &format!(
                "instances:\n- {{name: a, provider: metal, classNames: [{first}]}}\n\
                 - {{name: b, provider: local, classNames: [{second}]}}\n"
            ),
        )
    };
    let config = with("metallb, example.org/x", "").unwrap();
    let names = vec![
        vec!["metallb".to_owned(), "example.org/x".to_owned()],
        vec![],
    ];
    assert_eq!(config.class_names(), names);
    for (first, second, key) in [
        ("landfall.dev/a", "", "instances[0].classNames[0]"),
        ("metallb, metallb", "", "instances[0].classNames[1]"),
        ("metallb", "metallb", "instances[1].classNames[0]"),
        ("'no class'", "", "instances[0].classNames[0]"),
        ("''", "", "instances[0].classNames[0]"),
        ("-x", "", "instances[0].classNames[0]"),
        ("Example.org/x", "", "instances[0].classNames[0]"),
    ] {
        let error = with(first, second).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("landfall.yaml: {key}: ")),
            "{error}"
        );
    }
}

#[test]
fn instances_and_their_pools_are_read() {
    let config = parse("landfall.yaml", GOOD).unwrap();
    assert_eq!(
        config.names(),
        (vec!["edge".to_owned(), "inner".to_owned()], Some("edge"))
    );
    let pools = config.pools();
    assert_eq!(pools.len(), 1);
    assert_eq!(pools[0].instance.as_deref(), Some("edge"));
    assert!(pools[0].auto_assign && pools[0].avoid_buggy);
    assert_eq!(pools[0].allocation.as_ref().unwrap().priority, 10);
}

#[test]
fn how_much_of_a_pool_one_namespace_may_hold_is_read_and_nothing_is_no_number() {
    let of = |most: &str| GOOD.replace("avoidBuggyIPs: true", most);
    let config = parse("landfall.yaml", &of("addressesPerNamespace: 4")).unwrap();
    assert_eq!(config.pools()[0].addresses_per_namespace, Some(4));
    let config = parse("landfall.yaml", GOOD).unwrap();
    assert_eq!(config.pools()[0].addresses_per_namespace, None);
    assert!(refused(&of("addressesPerNamespace: 0")).contains("nonzero"));
}

#[test]
fn the_prefixes_of_members_become_rules_and_a_bad_one_is_reported_with_its_place() {
    let of = |members: &str| format!("{GOOD}  members: {members}\n");
    let text = of("{annotations: [10.1.2.3/16, '::ffff:10.2.0.0/112'], slices: []}");
    let config = parse("landfall.yaml", &text).unwrap();
    let rules = config.instances[1].member_rules(Setting::Cluster);
    let shown = |nets: Option<Vec<_>>| -> Option<Vec<String>> {
        Some(nets?.iter().map(ToString::to_string).collect())
    };
    assert_eq!(
        shown(rules.annotations).unwrap(),
        ["10.1.0.0/16", "10.2.0.0/16"]
    );
    assert_eq!(shown(rules.slices), Some(Vec::new()));
    let plain = config.instances[0].member_rules(Setting::Machine);
    assert_eq!(plain, MemberRules::default());
    assert_eq!(
        refused(&of("{slices: [10.0.0.0/8, 10.0.0.1]}")),
        "landfall.yaml: instances[1].members.slices[1]: \"10.0.0.1\": write 10.0.0.1/32 for \
             this one address"
    );
    assert!(refused(&of("{endpoints: []}")).contains("endpoints"));
}

#[test]
fn limits_that_are_given_replace_the_usual_ones_and_none_is_nothing() {
    let text = format!("{GOOD}limits: {{portsPerService: 7, portsPerNamespace: 9}}\n");
    let limits = parse("landfall.yaml", &text).unwrap().limits;
    let expected = Limits {
        ports_per_service: 7,
        ports_per_namespace: Some(9),
        ..Limits::default()
    };
    assert_eq!(limits.limits(Some(100)), expected);
    let usual = LimitsConfig::default();
    assert_eq!(usual.limits(None), Limits::default());
    assert_eq!(usual.limits(Some(100)).ports_per_namespace, Some(100));
    assert_eq!(
        refused(&format!("{GOOD}limits: {{secrets: 0}}\n")),
        "landfall.yaml: limits.secrets: \"0\": write a number of at least 1, or leave it out"
    );
}

#[test]
fn a_typo_is_reported_with_its_line() {
    let text = GOOD.replace("  default: true", "  defualt: true");
    let error = refused(&text);
    assert!(
        error.starts_with("landfall.yaml:4") && error.contains("defualt"),
        "{error}"
    );
}

#[test]
fn a_wrong_type_is_reported_with_its_line() {
    let error = refused(&GOOD.replace("priority: 10", "priority: high"));
    assert!(error.starts_with("landfall.yaml:9"), "{error}");
}

#[test]
fn contradictions_name_key_and_value() {
    for (from, to, key) in [
        ("name: inner", "name: edge", "instances[1].name: \"edge\""),
        ("name: inner", "name: Inner", "instances[1].name: \"Inner\""),
        (
            "name: inner",
            "default: true\n  name: inner",
            "instances[1].default: \"true\"",
        ),
    ] {
        let error = refused(&GOOD.replace(from, to));
        assert!(error.contains(key), "{error}");
    }
    assert!(refused("instances: []").contains("at least one"));
}

fn openstack(provider: &str) -> OpenStack {
    let text = format!("instances:\n- name: cloud\n  provider: {provider}\n");
    let config = parse("landfall.yaml", &text).unwrap_or_else(|error| panic!("{error}"));
    let ProviderConfig::OpenStack(openstack) = config.instances[0].provider.clone() else {
        panic!("{config:?}");
    };
    openstack
}

#[test]
fn an_openstack_instance_has_its_cloud_and_defaults() {
    let plain = openstack("{kind: openstack, cloudConf: /etc/kubernetes/cloud.conf}");
    assert_eq!(
        plain.cloud_conf.as_deref().unwrap().to_str(),
        Some("/etc/kubernetes/cloud.conf")
    );
    assert_eq!(plain.cluster_name, "kubernetes");
    assert!(plain.strict_source_ranges);
    assert_eq!(plain.security_groups, SecurityGroups::PerCluster);
    assert!(plain.prefer_dual_stack);
    assert_eq!(plain.target_type, TargetType::Node);

    let full = openstack(
        "{kind: openstack, clouds: {file: a.yaml, cloud: b}, clusterName: c1, \
             strictSourceRanges: false, securityGroups: perService, preferDualStack: false, targetType: pod}",
    );
    let clouds = full.clouds.unwrap();
    assert_eq!(
        (clouds.file.is_some(), clouds.cloud.as_deref()),
        (true, Some("b"))
    );
    assert_eq!(full.cluster_name, "c1");
    assert!(!full.strict_source_ranges);
    assert_eq!(full.security_groups, SecurityGroups::PerService);
    assert!(!full.prefer_dual_stack);
    assert_eq!(full.target_type, TargetType::Pod);
}

#[test]
fn local_may_be_written_as_a_map() {
    let text = GOOD.replace("provider: local", "provider: {kind: local}");
    let short = parse("landfall.yaml", GOOD).unwrap();
    assert_eq!(parse("landfall.yaml", &text).unwrap(), short);
    // What is written is read.
    let written = serde_json::to_string(&short).unwrap();
    assert_eq!(parse("landfall.yaml", &written).unwrap(), short);
}

#[test]
fn an_openstack_instance_without_a_clear_cloud_is_refused() {
    for (provider, expected) in [
        ("openstack", "landfall.yaml:3: "),
        ("cloud", "landfall.yaml:3: "),
        ("[local]", "landfall.yaml:3: "),
        ("{kind: openstack, cloudConfig: x}", "landfall.yaml:3: "),
        ("{kind: local, clusterName: x}", "landfall.yaml:3: "),
        ("{cloudConf: x}", "landfall.yaml:3: "),
        (
            "{kind: openstack}",
            "landfall.yaml: instances[0].provider.cloudConf: \"\": which cloud? ",
        ),
        (
            "{kind: openstack, cloudConf: x, clouds: {}}",
            "landfall.yaml: instances[0].provider.cloudConf: \"x\": give cloudConf or clouds",
        ),
        (
            "{kind: openstack, cloudConf: x, clusterName: ''}",
            "landfall.yaml: instances[0].provider.clusterName: \"\": ",
        ),
        (
            "{kind: openstack, cloudConf: x}\n  pools: [{name: p, addresses: [192.0.2.0/28]}]",
            "landfall.yaml: instances[0].pools: \"p\": an OpenStack instance has no pools",
        ),
    ] {
        let error = refused(&format!(
            "instances:\n- name: cloud\n  provider: {provider}\n"
        ));
        assert!(error.starts_with(expected), "{provider}: {error}");
    }
    let error =
        refused("instances:\n- name: c\n  provider:\n    kind: openstack\n    cloudCnf: x\n");
    assert!(
        error.starts_with("landfall.yaml:5") && error.contains("cloudCnf"),
        "{error}"
    );
}

#[test]
fn options_of_a_provider_may_stand_before_its_kind() {
    let first = openstack("{kind: openstack, clouds: {cloud: a}, strictSourceRanges: false}");
    let last = openstack("{clouds: {cloud: a}, strictSourceRanges: false, kind: openstack}");
    assert_eq!(first, last);
    let error = refused("instances:\n- name: c\n  provider: {clouds: 5, kind: openstack}\n");
    assert!(error.starts_with("landfall.yaml:3: "), "{error}");
}

#[test]
fn a_number_for_a_text_is_read_after_the_kind_and_refused_with_a_remedy_before_it() {
    let after = openstack("{kind: openstack, cloudConf: x, clusterName: 007}");
    assert_eq!(after.cluster_name, "007");
    let quoted = openstack("{clusterName: '007', kind: openstack, cloudConf: x}");
    assert_eq!(quoted, after);
    let error = refused(
        "instances:\n- name: c\n  provider: {clusterName: 007, kind: openstack, cloudConf: x}\n",
    );
    assert!(error.starts_with("landfall.yaml:3: "), "{error}");
    assert!(error.ends_with("; write the text in quotes"), "{error}");
    let error =
        refused("instances:\n- name: c\n  provider: {strictSourceRanges: 5, kind: openstack}\n");
    assert!(!error.contains("in quotes"), "{error}");
}

#[test]
fn options_of_a_provider_may_be_null() {
    let short = openstack("{kind: openstack, cloudConf: x}");
    let empty = "{kind: openstack, cloudConf: x, clusterName: ~, strictSourceRanges: ~, \
                 securityGroups: ~, clouds: ~}";
    assert_eq!(openstack(empty), short);
}

#[test]
fn a_mistake_amid_the_options_of_a_provider_keeps_its_line() {
    let error = refused(
        "instances:\n- name: c\n  provider:\n    kind: openstack\n    clusterName: [x]\n    \
         cloudConf: x\n    strictSourceRanges: true\n",
    );
    assert!(error.starts_with("landfall.yaml:5"), "{error}");
    let error = refused("instances:\n- name: c\n  provider: {kind: local, clusterName: x}\n");
    assert!(
        error.starts_with("landfall.yaml:3: ") && error.contains("clusterName"),
        "{error}"
    );
}

#[test]
fn the_files_of_an_openstack_instance_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let (conf, clouds) = (folder.path().join("c.conf"), folder.path().join("c.yaml"));
    std::fs::write(
        &conf,
        "[Global]\nregion = A\n[LoadBalancer]\nlb-provider = ovn\n",
    )
    .unwrap();
    std::fs::write(&clouds, "clouds: {b: {region_name: B}}").unwrap();
    let nowhere = Surroundings::default();
    let from_conf = openstack(&format!(
        "{{kind: openstack, cloudConf: {}}}",
        conf.display()
    ));
    let read = from_conf.read(&nowhere).unwrap();
    assert_eq!(read.global.region.as_deref(), Some("A"));
    assert!(read.load_balancer.is_ovn());
    let file = clouds.display();
    let from_clouds = openstack(&format!("{{kind: openstack, clouds: {{file: {file}}}}}"));
    let read = from_clouds.read(&nowhere).unwrap();
    assert_eq!(read.global.region.as_deref(), Some("B"));
    assert!(!read.load_balancer.is_ovn());
}

#[test]
fn broken_yaml_is_an_error_and_no_panic() {
    for text in ["", "{", "instances: 5", "- a", "instances: [{}]", "\t"] {
        assert!(parse("landfall.yaml", text).is_err(), "{text:?}");
    }
}

#[test]
fn the_schema_knows_every_key() {
    let schema = schema();
    for key in [
        "instances",
        "provider",
        "avoidBuggyIPs",
        "serviceAllocation",
        "matchLabels",
        "cloudConf",
        "securityGroups",
    ] {
        assert!(schema.contains(&format!("\"{key}\"")), "{key}");
    }
}

#[test]
fn the_published_schema_is_the_one_of_these_types() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/landfall.schema.json"
    );
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, schema()).unwrap();
    }
    let published = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(
        published,
        schema(),
        "docs/landfall.schema.json is behind: run the test again with UPDATE_DOCS=1"
    );
}

#[test]
fn the_example_of_the_manual_is_valid() {
    let manual = include_str!("../../../../docs/configuration.md");
    let example = manual
        .split("```yaml\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next());
    let config = parse("docs/configuration.md", example.unwrap()).unwrap();
    assert_eq!(config.names().1, Some("edge"));
}
