use landfall_model::dialect::NodeSelector;
use landfall_model::reason::Severity;
use proptest::prelude::*;
use secrecy::ExposeSecret as _;

use super::*;
use crate::cloud::{Auth, Interface};

const FULL: &str = r#"
[Global]
auth-url = https://keystone.example.org:5000/v3/
region = "RegionOne"
os-endpoint-type = internal
username = k8s
password = "s3#cret"
user-domain-name = Users
tenant-name = prod
tenant-domain-id = default
ca-file = /etc/ssl/cloud.pem
cert-file = /etc/ssl/client.pem
key-file = /etc/ssl/client.key
tls-insecure = false

[LoadBalancer]
enabled = no
lb-version = v2
lb-provider = ovn
lb-method = SOURCE_IP_PORT
subnet-id = s1
network-id = n1
member-subnet-id = m1
floating-network-id = f1
floating-subnet-id = fs1
floating-subnet = pub-*
floating-subnet-tags = "a,b"
internal-lb
node-selector = pool=edge, gpu
manage-security-groups = True
create-monitor = false
monitor-delay = 1m1s
monitor-timeout = 10s
monitor-max-retries = 0x2
monitor-max-retries-down = 4
cascade-delete = off
flavor-id = fl
availability-zone = az1
enable-ingress-hostname = on
ingress-hostname-suffix = sslip.io
default-tls-container-ref = https://barbican/v1/secrets/1
container-store = external
max-shared-lb = 5
provider-requires-serial-api-calls = 1

[LoadBalancerClass "Public"]
floating-network-id = f2
floating-subnet = ~pub-(a|b)
floating-subnet-tags = "!x"
[loadbalancerclass "public"]
subnet-id = s2
network-id = n2
member-subnet-id = m2
floating-subnet-id = fs2

[Networking]
ipv6-support-disabled = true
public-network-name = one
public-network-name = two
internal-network-name = three
address-sort-order = 10.0.0.0/8, 192.0.2.0/24

[Metadata]
request-timeout = 120s
search-order = metadataService
[BlockStorage]
bs-version = v3
[Route]
router-id = r1
"#;

fn conf(text: &str) -> CloudConf {
    parse("cloud.conf", text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refused(text: &str) -> String {
    parse("cloud.conf", text).expect_err(text).to_string()
}

fn warnings(text: &str) -> Vec<String> {
    conf(text)
        .warnings
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn every_key_is_read() {
    let conf = conf(FULL);
    assert_eq!(conf.warnings, []);
    let LoadBalancerConf { floating, .. } = conf.load_balancer.clone();
    assert_eq!(
        conf.load_balancer,
        LoadBalancerConf {
            enabled: false,
            lb_provider: "ovn".to_owned(),
            lb_method: Some("SOURCE_IP_PORT".to_owned()),
            subnet_id: Some("s1".to_owned()),
            network_id: Some("n1".to_owned()),
            member_subnet_id: Some("m1".to_owned()),
            floating,
            internal_lb: true,
            node_selector: NodeSelector::parse("gpu,pool=edge").unwrap(),
            manage_security_groups: true,
            create_monitor: Some(false),
            monitor_delay: Duration::from_secs(61),
            monitor_timeout: Duration::from_secs(10),
            monitor_max_retries: 2,
            monitor_max_retries_down: 4,
            cascade_delete: false,
            flavor_id: Some("fl".to_owned()),
            availability_zone: Some("az1".to_owned()),
            enable_ingress_hostname: true,
            ingress_hostname_suffix: "sslip.io".to_owned(),
            default_tls_container_ref: Some("https://barbican/v1/secrets/1".to_owned()),
            container_store: ContainerStore::External,
            max_shared_lb: 5,
            provider_requires_serial_api_calls: true,
        }
    );
    assert!(conf.load_balancer.is_ovn());
    let floating = &conf.load_balancer.floating;
    assert_eq!(floating.network_id.as_deref(), Some("f1"));
    assert_eq!(floating.subnet_id.as_deref(), Some("fs1"));
    assert!(floating.subnet.as_ref().unwrap().matches("pub-a"));
    assert!(floating.subnet_tags.as_ref().unwrap().matches(&["b"]));
    assert_eq!(conf.request_timeout, Duration::from_secs(120));
    assert_eq!(
        conf.networking,
        Networking {
            ipv6_support_disabled: true,
            public_network_names: vec!["one".to_owned(), "two".to_owned()],
            internal_network_names: vec!["three".to_owned()],
            address_sort_order: vec!["10.0.0.0/8".to_owned(), "192.0.2.0/24".to_owned()],
        }
    );
}

#[test]
fn every_key_is_on_the_page_of_the_configuration() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (read, _) = FULL.split_once("search-order").unwrap();
    let further = "user-id\nuser-domain-id\ntenant-id\ntenant-domain-name\ndomain-id\n\
                   domain-name\ntrust-id\ntrustee-id\ntrustee-password\ntoken\n\
                   application-credential-id\napplication-credential-name\n\
                   application-credential-secret\nuse-clouds\nclouds-file\ncloud\n";
    let lines = read.lines().chain(further.lines());
    let keys = lines.filter_map(|line| line.split([' ', '=']).next());
    for key in keys.filter(|key| !key.is_empty() && !key.starts_with('[')) {
        let named = page.contains(&format!("`{key}`"));
        let with_value =
            page.contains(&format!("`{key} = ")) || page.contains(&format!("] {key}`"));
        assert!(named || with_value, "{key} is not on the page");
    }
}

#[test]
fn class_names_keep_their_case() {
    let conf = conf(FULL);
    assert_eq!(
        conf.classes.keys().collect::<Vec<_>>(),
        ["Public", "public"]
    );
    let (upper, lower) = (&conf.classes["Public"], &conf.classes["public"]);
    assert!(upper.floating.subnet.as_ref().unwrap().matches("pub-b"));
    assert!(upper.floating.names_subnets() && upper.subnet_id.is_none());
    assert_eq!(lower.subnet_id.as_deref(), Some("s2"));
    assert_eq!(lower.network_id.as_deref(), Some("n2"));
    assert_eq!(lower.member_subnet_id.as_deref(), Some("m2"));
    assert_eq!(lower.floating.subnet_id.as_deref(), Some("fs2"));
}

#[test]
fn an_empty_file_gives_the_defaults_of_the_reference() {
    let conf = conf("");
    let lb = &conf.load_balancer;
    assert_eq!(*lb, LoadBalancerConf::default());
    assert!(lb.enabled && lb.cascade_delete && !lb.internal_lb && !lb.manage_security_groups);
    assert_eq!(
        (lb.lb_provider.as_str(), lb.lb_method.as_deref()),
        ("amphora", None)
    );
    assert_eq!(lb.create_monitor, None);
    assert_eq!(
        (lb.monitor_delay.as_secs(), lb.monitor_timeout.as_secs()),
        (5, 3)
    );
    assert_eq!(
        (lb.monitor_max_retries, lb.monitor_max_retries_down),
        (1, 3)
    );
    assert_eq!(
        (lb.max_shared_lb, lb.ingress_hostname_suffix.as_str()),
        (2, "nip.io")
    );
    assert_eq!(lb.container_store, ContainerStore::Barbican);
    assert_eq!(conf.request_timeout, Duration::from_secs(60));
    assert_eq!(conf.global.interface(), Interface::Public);
}

#[test]
fn sections_in_several_parts_and_repeated_keys_are_one() {
    let conf =
        conf("[LoadBalancer]\nsubnet-id=a\n[Global]\n[loadbalancer]\nSubnet-ID=b\nflavor-id=c");
    assert_eq!(conf.load_balancer.subnet_id.as_deref(), Some("b"));
    assert_eq!(conf.load_balancer.flavor_id.as_deref(), Some("c"));
    assert_eq!(conf.warnings.len(), 1);
    assert_eq!(conf.warnings[0].severity, Severity::Info);
    assert_eq!(
        conf.warnings[0].to_string(),
        "cloud.conf:5: [LoadBalancer] subnet-id: given more than once; the last one counts"
    );
}

#[test]
fn an_empty_driver_is_not_the_default_one() {
    assert_eq!(
        conf("[LoadBalancer]\nlb-provider =")
            .load_balancer
            .lb_provider,
        ""
    );
}

#[test]
fn bad_values_are_reported_with_line_key_value_and_a_valid_example() {
    for (line, expected) in [
        (
            "monitor-delay = 5",
            "monitor-delay: \"5\": a time needs a unit; write 5s for 5 seconds",
        ),
        (
            "monitor-delay = 0",
            "monitor-delay: \"0\": Octavia counts in whole seconds, from 1 up; write a time such \
            as 5s",
        ),
        (
            "monitor-timeout = 999ms",
            "monitor-timeout: \"999ms\": Octavia counts in whole seconds, from 1 up; write a time \
            such as 5s",
        ),
        (
            "enabled = maybe",
            "enabled: \"maybe\": neither true nor false; write one of them",
        ),
        (
            "max-shared-lb = two",
            "max-shared-lb: \"two\": not a whole number; write digits, such as 3, or hexadecimal \
            ones, such as 0x3",
        ),
        (
            "monitor-max-retries = -1",
            "monitor-max-retries: \"-1\": not a whole number from 0 up; write digits, such as 3, \
            or hexadecimal ones, such as 0x3",
        ),
        (
            "lb-version = v1",
            "lb-version: \"v1\": there is only v2; write that, or nothing",
        ),
        (
            "floating-subnet = [a",
            "floating-subnet: \"[a\": not a glob: unclosed character class",
        ),
        (
            "floating-subnet-tags = !",
            "floating-subnet-tags: \"!\": no tag is named; write tags separated by commas, such as \
            public,ipv4",
        ),
        (
            "subnet-id",
            "subnet-id: has no value; write subnet-id = value",
        ),
        (
            "monitor-timeout",
            "monitor-timeout: has no value; write monitor-timeout = value",
        ),
    ] {
        let expected = format!("cloud.conf:2: [LoadBalancer] {expected}");
        assert_eq!(refused(&format!("[LoadBalancer]\n{line}")), expected);
    }
    assert_eq!(
        refused("[Global]\nos-endpoint-type = publicURL"),
        "cloud.conf:2: [Global] os-endpoint-type: \"publicURL\": no such interface; write public, \
        internal or admin"
    );
    assert_eq!(
        refused("[LoadBalancerClass \"x\"]\n\nfloating-subnet = ~("),
        "cloud.conf:3: [LoadBalancerClass \"x\"] floating-subnet: \"~(\": not a regular \
        expression: unclosed group"
    );
    assert_eq!(
        refused("[Global]\npassword = a\\b"),
        "cloud.conf:2: password: a backslash outside of quotes; quote the value and write \\\\ for \
        a backslash"
    );
    assert!(refused("[Metadata]\nrequest-timeout = 60").contains("write 60s"));
}

#[test]
fn a_limit_below_two_services_disables_sharing_without_a_finding() {
    let most = |text: &str| {
        let conf = conf(&format!("[LoadBalancer]\nmax-shared-lb = {text}"));
        assert_eq!(conf.warnings, []);
        conf.load_balancer.max_shared_lb
    };
    assert_eq!((most("-1"), most("0"), most("4")), (0, 0, 4));
}

#[test]
fn no_time_at_all_for_a_call_is_the_default() {
    let time = |text: &str| conf(&format!("[Metadata]\nrequest-timeout = {text}")).request_timeout;
    assert_eq!(time("0"), REQUEST_TIMEOUT);
    assert_eq!(time("1500ms"), Duration::from_millis(1500));
}

#[test]
fn unknown_keys_and_sections_are_reported_and_ignored() {
    assert_eq!(
        warnings(
            "[LoadBalancer]\nsubnet-di = x\n[LoadBalancr]\n[Globl \"x\"]\n[Global]\nfrobnicate = 1"
        ),
        [
            "cloud.conf:3: [LoadBalancr]: no such section; it is ignored; did you mean \
            [LoadBalancer]",
            "cloud.conf:4: [Globl \"x\"]: no such section; it is ignored; did you mean [Global]",
            "cloud.conf:6: [Global] frobnicate: no such key; it is ignored",
            "cloud.conf:2: [LoadBalancer] subnet-di: no such key; it is ignored; did you mean \
            subnet-id",
        ]
    );
    assert_eq!(
        warnings("[LoadBalancer \"x\"]\nenabled = 7\n[LoadBalancerClass]\n"),
        [
            "cloud.conf:1: [LoadBalancer \"x\"]: this section takes no name; it is ignored; write \
            [LoadBalancer]",
            "cloud.conf:3: [LoadBalancerClass]: a class without a name; it is ignored; write \
            [LoadBalancerClass \"name\"]",
        ]
    );
}

#[test]
fn what_belongs_to_others_is_silently_fine() {
    let text = "[BlockStorage]\nx=1\n[Route]\nrouter-id=r\n[metadata]\nsearch-order=configDrive\n\
                [KeyManager]\n";
    assert_eq!(warnings(text), Vec::<String>::new());
}

#[test]
fn misleading_values_are_reported() {
    for (text, expected) in [
        (
            "[LoadBalancer]\nuse-octavia = true",
            "cloud.conf:2: [LoadBalancer] use-octavia: has no effect any more; remove it",
        ),
        (
            "[LoadBalancer]\nlb-provider = acme",
            "cloud.conf:2: [LoadBalancer] lb-provider: \"acme\": an unknown driver; it is treated \
            like amphora; known are amphora, octavia, ovn, f5 and amphorav2",
        ),
        (
            "[LoadBalancer]\nlb-method = LEAST_CONECTIONS",
            "cloud.conf:2: [LoadBalancer] lb-method: \"LEAST_CONECTIONS\": no such algorithm; \
            ROUND_ROBIN is used instead; did you mean LEAST_CONNECTIONS",
        ),
        (
            "[LoadBalancer]\nlb-method = source_ip",
            "cloud.conf:2: [LoadBalancer] lb-method: \"source_ip\": no such algorithm; ROUND_ROBIN \
            is used instead; did you mean SOURCE_IP",
        ),
        (
            "[LoadBalancer]\nlb-method = best",
            "cloud.conf:2: [LoadBalancer] lb-method: \"best\": no such algorithm; ROUND_ROBIN is \
            used instead; write one of ROUND_ROBIN, LEAST_CONNECTIONS, SOURCE_IP, SOURCE_IP_PORT",
        ),
        (
            "[LoadBalancer]\nmonitor-delay = 1m1.9s",
            "cloud.conf:2: [LoadBalancer] monitor-delay: \"1m1.9s\": Octavia counts in whole \
            seconds; 61s is used instead; write 61s or 62s",
        ),
        (
            "[Metadata]\nrequest-timeout = 0s",
            "cloud.conf:2: [Metadata] request-timeout: \"0s\": a timeout of 0 is not possible; 60s \
            is used instead; remove it, or write a time such as 120s",
        ),
        (
            "[Global]\nauth-url = x\ntoken =\nabcDEF12",
            "cloud.conf:4: [Global] token: has no value, and no key follows on the next line (it \
            is not shown: it may be the secret); write token = value on one line, with quotes \
            around the value",
        ),
        (
            "[LoadBalancer]\ncontainer-store = vault",
            "cloud.conf:2: [LoadBalancer] container-store: \"vault\": an unknown store; whether \
            certificates exist is not checked; write barbican or external",
        ),
        (
            "[Global]\ntls-insecure = True",
            "cloud.conf:2: [Global] tls-insecure: \"True\": only the exact text true turns \
            verification off; it stays on; write true or false",
        ),
        (
            "[Global]\npassword = abc#def",
            "cloud.conf:2: [Global] password: ends where a ; or # begins a comment; quote the \
            value if that character is part of it",
        ),
        (
            "[Global]\ncloud = mine",
            "cloud.conf:2: [Global] cloud: \"mine\": has no effect without use-clouds; add \
            use-clouds = true",
        ),
    ] {
        assert_eq!(warnings(text), [expected]);
    }
}

#[test]
fn no_secret_is_shown() {
    let text = "[Global]\nauth-url=x\npassword=hunter2\ntoken=hunter2\n\
                application-credential-secret=hunter2\ntrustee-password=hunter2\ntrust-id=t";
    let conf = conf(text);
    assert!(!format!("{conf:?}").contains("hunter2"));
    assert!(!format!("{:?}", conf.global.auth()).contains("hunter2"));
}

fn auth(text: &str) -> Result<Auth, String> {
    let global = conf(&format!("[Global]\n{}", text.replace("; ", "\n"))).global;
    global.auth().map_err(|error| error.to_string())
}

/// An `Auth` as one line, with its secret.
fn shown(auth: &Auth) -> String {
    match auth {
        Auth::Password {
            user,
            password,
            scope,
        } => format!("{user:?} {} {scope:?}", password.expose_secret()),
        Auth::ApplicationCredential { credential, secret } => {
            format!("{credential:?} {}", secret.expose_secret())
        }
        Auth::Token { token, scope } => format!("token {} {scope:?}", token.expose_secret()),
    }
}

#[test]
fn the_keys_decide_how_to_authenticate() {
    for (text, expected) in [
        (
            "user-id=u; password=p; tenant-id=t; tenant-name=n",
            "Id(\"u\") p Project(Id(\"t\"))",
        ),
        (
            "username=u; password=p; tenant-name=t; domain-name=D",
            "Name { name: \"u\", domain: Name(\"D\") } p Project(Name { name: \"t\", domain: \
            Name(\"D\") })",
        ),
        (
            "username=u; user-domain-id=ud; password=p; tenant-name=t; tenant-domain-name=TD; \
            domain-id=D",
            "Name { name: \"u\", domain: Id(\"ud\") } p Project(Name { name: \"t\", domain: \
            Name(\"TD\") })",
        ),
        (
            "user-id=u; password=p; domain-id=d; domain-name=D",
            "Id(\"u\") p Domain(Id(\"d\"))",
        ),
        (
            "user-id=u; password=p; domain-name=D",
            "Id(\"u\") p Domain(Name(\"D\"))",
        ),
        ("user-id=u; username=n; password=p", "Id(\"u\") p Unscoped"),
        (
            "user-id=u; password=p; tenant-id=t; trust-id=x",
            "Id(\"u\") p Trust(\"x\")",
        ),
        (
            "user-id=u; password=p; trust-id=x; trustee-id=e; trustee-password=q; token=t",
            "Id(\"e\") q Trust(\"x\")",
        ),
        ("trust-id=x; token=t", "token t Trust(\"x\")"),
        (
            "user-id=u; password=p; token=t; tenant-id=y",
            "token t Project(Id(\"y\"))",
        ),
        (
            "application-credential-id=a; application-credential-secret=s; tenant-id=t; password=p",
            "Id(\"a\") s",
        ),
        (
            "application-credential-name=a; application-credential-secret=s; username=u; \
            domain-id=d",
            "Name { name: \"a\", user: Name { name: \"u\", domain: Id(\"d\") } } s",
        ),
    ] {
        assert_eq!(
            auth(text).as_ref().map(shown),
            Ok(expected.to_owned()),
            "{text}"
        );
    }
}

#[test]
fn missing_keys_are_named() {
    for (text, expected) in [
        (
            "",
            "cloud.conf: [Global] username, [Global] user-id, [Global] password, [Global] \
            application-credential-secret, [Global] token: no credentials; give a user and \
            password, an application credential, or a token",
        ),
        (
            "password=p",
            "cloud.conf: [Global] user-id, [Global] username: the user is missing; give one of \
            them",
        ),
        (
            "username=u; password=p",
            "cloud.conf:2: [Global] username, [Global] user-domain-id, [Global] user-domain-name, \
            [Global] domain-id, [Global] domain-name: a user's name is unique only in a domain; \
            give one, or user-id",
        ),
        (
            "application-credential-secret=s",
            "cloud.conf:2: [Global] application-credential-secret, [Global] \
            application-credential-id: a secret without the application credential that it belongs \
            to; give its id",
        ),
        (
            "application-credential-id=a; password=p",
            "cloud.conf:2: [Global] application-credential-id, [Global] \
            application-credential-name, [Global] application-credential-secret: an application \
            credential needs its secret",
        ),
    ] {
        assert_eq!(auth(text).unwrap_err(), expected, "{text}");
    }
    assert!(
        auth("user-id=u; password=p; tenant-name=t")
            .unwrap_err()
            .contains("a project's name is unique")
    );
    let trust = "trust-id=x; application-credential-id=a; application-credential-secret=s";
    assert!(auth(trust).unwrap_err().contains("can't be used with it"));
}

#[test]
fn keystone_has_a_url() {
    let url = |text: &str| {
        let url = conf(&format!("[Global]\n{text}")).global.identity_url();
        url.map_err(|error| error.to_string())
    };
    assert_eq!(
        conf(FULL).global.identity_url().unwrap(),
        "https://keystone.example.org:5000/v3"
    );
    assert_eq!(
        url("auth-url=http://k/identity").unwrap(),
        "http://k/identity"
    );
    assert_eq!(
        url("auth-url=http://k/v2.0\ntrust-id=t").unwrap(),
        "http://k/v3"
    );
    assert!(
        url("auth-url=http://k/v2.0/")
            .unwrap_err()
            .ends_with("is not supported; write http://k/v3")
    );
    assert!(
        url("auth-url=keystone")
            .unwrap_err()
            .starts_with("cloud.conf:2: [Global] auth-url: not a URL")
    );
    assert!(url("auth-url=https://").is_err());
    assert!(
        url("")
            .unwrap_err()
            .starts_with("cloud.conf: [Global] auth-url: the URL of Keystone is")
    );
}

#[test]
fn tls_is_verified_unless_switched_off_exactly() {
    let tls = |text: &str| conf(&format!("[Global]\n{text}")).global.tls();
    let full = conf(FULL).global.tls().unwrap();
    assert_eq!(
        full.ca_file.as_deref(),
        Some(Path::new("/etc/ssl/cloud.pem"))
    );
    assert_eq!(
        full.identity.unwrap().key_file,
        Path::new("/etc/ssl/client.key")
    );
    assert!(full.verify);
    for (value, verify) in [
        ("true", false),
        ("True", true),
        ("1", true),
        ("", true),
        ("false", true),
    ] {
        assert_eq!(
            tls(&format!("tls-insecure={value}")).unwrap().verify,
            verify,
            "{value}"
        );
    }
    assert_eq!(
        tls("key-file=k").unwrap_err().to_string(),
        "cloud.conf:2: [Global] cert-file, [Global] key-file: a client certificate and its key go \
        together; give both or none"
    );
}

#[test]
fn what_is_missing_is_filled_and_what_is_there_stays() {
    let mut global = conf("[Global]\nregion=A\nusername=u\ntls-insecure=false").global;
    global
        .fill(&conf("[Global]\nregion=B\nauth-url=http://k\npassword=p\ntls-insecure=true").global);
    assert_eq!(global.region.as_deref(), Some("A"));
    assert_eq!(global.auth_url.as_deref(), Some("http://k"));
    assert_eq!(global.password.as_ref().unwrap().expose_secret(), "p");
    assert!(global.tls().unwrap().verify);
}

#[test]
fn a_way_to_authenticate_is_not_overruled_by_what_fills() {
    let mut global = conf("[Global]\nuser-id=u\npassword=p").global;
    let other = "[Global]\ntoken=t\napplication-credential-id=a\n\
                 application-credential-secret=s\ntenant-id=x";
    global.fill(&conf(other).global);
    assert_eq!(
        shown(&global.auth().unwrap()),
        "Id(\"u\") p Project(Id(\"x\"))"
    );
}

#[test]
fn files_are_read_and_filled_from_clouds_yaml() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write(
        "cloud.conf",
        "[Global]\nuse-clouds = true\nregion = Mine\nca-file = \
        x\n[LoadBalancer]\nlb-provider=ovn\n",
    );
    write(
        "clouds.yaml",
        "clouds:\n  a:\n    region_name: Theirs\n    cacert: y\n    key: z\n    auth: {auth_url: \
        http://k/v3, user_id: u, password: p}\n",
    );
    let here = Surroundings::new(Some(folder.path().to_owned()), |_| None);
    let conf = read(&folder.path().join("cloud.conf"), &here).unwrap();
    assert_eq!(conf.global.region.as_deref(), Some("Mine"));
    assert_eq!(conf.global.identity_url().unwrap(), "http://k/v3");
    assert!(conf.load_balancer.is_ovn() && conf.warnings.is_empty());
    let place = |keys: &[&str]| {
        let text = conf.global.named(keys);
        text.replace(&folder.path().display().to_string(), "DIR")
    };
    assert_eq!(
        place(&["ca-file", "key-file"]),
        "DIR/cloud.conf:4: [Global] ca-file, key"
    );
    assert_eq!(place(&["key-file"]), "DIR/clouds.yaml: clouds.a: key");
    assert_eq!(
        place(&["auth-url", "user-id"]),
        "DIR/clouds.yaml: clouds.a: auth.auth_url, auth.user_id"
    );
    let error = conf.global.tls().unwrap_err().to_string();
    assert!(
        error.contains("/clouds.yaml: clouds.a: [Global] cert-file, key: "),
        "{error}"
    );

    let error = read(&folder.path().join("none.conf"), &here).unwrap_err();
    assert!(
        error.to_string().ends_with("none.conf can't be read"),
        "{error}"
    );
    write(
        "cloud.conf",
        "[Global]\nuse-clouds\nclouds-file = /nowhere/clouds.yaml\n",
    );
    let error = read(&folder.path().join("cloud.conf"), &here).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no clouds.yaml in any of /nowhere/clouds.yaml"
    );
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(
        lines in proptest::collection::vec(
            prop_oneof![
                "\\[(Global|LoadBalancer|Networking|Metadata|LoadBalancerClass \"[a-z]\")\\]",
                "(enabled|monitor-delay|max-shared-lb|floating-subnet|password|tls-insecure|\
                public-network-name) \
                ?=? ?.{0,12}",
                ".{0,20}",
            ],
            0..12,
        ),
    ) {
        if let Ok(conf) = parse("cloud.conf", &lines.join("\n")) {
            let _ = (conf.global.auth(), conf.global.tls(), conf.global.identity_url());
        }
    }
}

#[test]
fn a_node_selector_that_names_no_label_is_reported_by_line_and_key() {
    let text = "[LoadBalancer]\nnode-selector = pool=edge, =gpu\n";
    let error = parse("cloud.conf", text).unwrap_err().to_string();
    assert!(error.contains("cloud.conf:2"), "{error}");
    assert!(error.contains("node-selector"), "{error}");
    assert!(error.contains("\"=gpu\" is no label"), "{error}");
}

#[test]
fn the_example_of_the_manual_is_valid() {
    let manual = include_str!("../../../../docs/configuration.md");
    let (_, openstack) = manual.split_once("## OpenStack").unwrap();
    let example = openstack
        .split("```yaml\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next());
    crate::file::parse("docs/configuration.md", example.unwrap()).unwrap();
}
