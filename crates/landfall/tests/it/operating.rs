//! docs/operating.md is in step with the program.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use landfall_model::reason::Code;

/// What to do about each code, in one or two sentences for the page.
const ADVICE: &[(Code, &str)] = &[
    (
        Code::InvalidManifest,
        "Correct the file at the line that is named; `landfall check -f` validates it. Its \
         previous content is served meanwhile.",
    ),
    (
        Code::DuplicateObject,
        "Remove one of the two. The first one counts, in the order of paths, file names and lines.",
    ),
    (
        Code::AccessDenied,
        "Add the named rule to the role of this process.",
    ),
    (
        Code::InvalidAnnotation,
        "Write a value that the option takes: [annotations.md](annotations.md).",
    ),
    (
        Code::UnknownAnnotation,
        "Correct the name; the remedy suggests the most similar one.",
    ),
    (
        Code::DeprecatedAnnotation,
        "Rename the annotation at a convenient time; the old name still works.",
    ),
    (
        Code::ConflictingOptions,
        "Remove one of the two that are named.",
    ),
    (
        Code::OptionNotApplicable,
        "Nothing, unless you rely on it: it has no effect here.",
    ),
    (
        Code::OptionNotSupported,
        "Remove the option, or use a class whose provider supports it.",
    ),
    (
        Code::InvalidField,
        "Correct the field of the Service's `spec`; an API server would refuse it, too.",
    ),
    (
        Code::UnknownClass,
        "Write one of the classes that the remedy names, remove `loadBalancerClass`, or configure \
         an instance of that name.",
    ),
    (
        Code::ProtocolNotSupported,
        "Use TCP or UDP for this port, or move it to a Service of type NodePort.",
    ),
    (
        Code::InvalidSourceRange,
        "Write a prefix in CIDR notation, such as 192.0.2.0/24. Until then the previous ranges \
         apply.",
    ),
    (
        Code::CertificateNotFound,
        "Create the Secret, in the Service's namespace and of type `kubernetes.io/tls`; it is \
         noticed automatically.",
    ),
    (
        Code::InvalidCertificate,
        "Put a PEM chain into `tls.crt` and its private key into `tls.key`. The last valid \
         certificate is used meanwhile.",
    ),
    (
        Code::MembersNotVerified,
        "Nothing, if the network to the members is trusted. Otherwise name the authority of their \
         certificates in `landfall.dev/member-ca-secret`, and write `verify`.",
    ),
    (Code::InvalidAddress, "Write an IPv4 or IPv6 address."),
    (
        Code::AddressNotInPool,
        "Request an address of an address pool, or add this one to a pool.",
    ),
    (
        Code::AddressInUse,
        "Request another address, delete the Service that holds it, or give both the same sharing \
         key and different ports. Services of other namespaces are not named.",
    ),
    (
        Code::AddressNotShareable,
        "Give both Services the same sharing key and different ports; with \
         `externalTrafficPolicy: Local` also the same selector. Services of two namespaces share \
         only if the address pool has `shareAcrossNamespaces`.",
    ),
    (
        Code::AddressAvoided,
        "Request an address that ends in neither .0 nor .255, or turn `avoidBuggyIPs` off.",
    ),
    (
        Code::AddressFamilyMismatch,
        "Make `ipFamilies`, `ipFamilyPolicy` and the requested addresses agree.",
    ),
    (
        Code::NoAddressOfFamily,
        "Add addresses of the named family to an address pool that serves the Service.",
    ),
    (
        Code::LimitReached,
        "Request less, or raise the limit that the remedy names, in `limits` of landfall.yaml or \
         of the pool. For an alert, use `landfall_reasons{code=\"LimitReached\"}`.",
    ),
    (
        Code::PoolExhausted,
        "Add addresses to the pool, or delete Services that hold some; waiting Services get an \
         address as soon as one is free. For an early alert, use \
         `landfall_pool_available_addresses`.",
    ),
    (Code::PoolNotFound, "Correct the name, or create the pool."),
    (
        Code::PoolNotAllowed,
        "Request another pool, or let this one serve the namespace or the labels.",
    ),
    (
        Code::InvalidPool,
        "Correct the range that is named. Until then the previous version of the pool is used.",
    ),
    (
        Code::InvalidResource,
        "Correct the field that is named. Until then the previous version of the object is used, \
         and other objects are not affected.",
    ),
    (
        Code::NoPools,
        "Give `--pool`, or an IPAddressPool among the manifests.",
    ),
    (
        Code::PoolsIncomplete,
        "Correct the source that `landfall get` and the status page list as a problem: a pool, a \
         file, or the permission to read pools.",
    ),
    (
        Code::AddressMoved,
        "Point clients and DNS to the new address. To get the old one back, add it to a pool \
         again and request it.",
    ),
    (
        Code::PortInUse,
        "Find the process (`ss -ltnup`) and stop it, or use another port or address. Retried with \
         backoff.",
    ),
    (Code::PortNotPermitted, "See [Privileges](#privileges)."),
    (
        Code::AddressNotLocal,
        "Add the address to an interface (`ip address add ADDRESS/32 dev lo`), or use a pool of \
         addresses that this machine has. Retried with backoff.",
    ),
    (
        Code::ListenFailed,
        "The message has the error of the operating system; often it is the limit of open files.",
    ),
    (
        Code::Overloaded,
        "Raise the limit of open files (`LimitNOFILE=`), or for UDP the range \
         `net.ipv4.ip_local_port_range`. Find the largest consumers with \
         `landfall_listener_connections_open`, and set connection limits on Services.",
    ),
    (
        Code::NotAnnounced,
        "Create an L2Advertisement, or a BGPAdvertisement and a BGPPeer, for the pool and the \
         Service.",
    ),
    (
        Code::NoEndpoints,
        "Add an EndpointSlice with the label `kubernetes.io/service-name`, or the annotation \
         `landfall.dev/endpoints`. Check that its port has the name of the Service's port.",
    ),
    (
        Code::NoReadyEndpoints,
        "Find out why the pods are not ready; `landfall explain` lists the endpoints that were \
         left out.",
    ),
    (
        Code::NoHealthyMembers,
        "`landfall explain` shows each member's last failed check: a wrong path or port of the \
         monitor, or members that are down.",
    ),
    (
        Code::NoEligibleNodes,
        "Check the nodes: ready, without the label that excludes them, selected by the node \
         selector of Service or configuration, and with an address of the family.",
    ),
    (
        Code::InvalidCloudOption,
        "Correct the annotation or key as the message says; the previous configuration stays in \
         service.",
    ),
    (
        Code::CloudObjectNotFound,
        "Look up the id or name in the cloud, in the project of the credentials.",
    ),
    (
        Code::NotOurs,
        "Choose another load balancer, or remove the annotation; objects of the other owner are \
         not changed.",
    ),
    (
        Code::LoadBalancerFailed,
        "Wait: it is failed over or recreated. If it stays, the message has the cloud's error.",
    ),
    (
        Code::QuotaExceeded,
        "Raise the project's quota, or delete what is not needed.",
    ),
    (
        Code::FloatingIpInUse,
        "Request another address, or detach it from the port that has it.",
    ),
    (
        Code::SourceRangesNotEnforced,
        "Enable management of security groups (`manage-security-groups`), choose a provider that \
         enforces ranges, or remove the ranges.",
    ),
    (
        Code::EndpointIgnored,
        "See the reason of the endpoint: mostly an address of another family, or a port that does \
         not exist.",
    ),
    (
        Code::MemberNotAllowed,
        "Use members with addresses that do not belong to this machine, or allow their addresses: \
         `members` in landfall.yaml.",
    ),
    (Code::Progressing, "Wait."),
    (
        Code::ProviderFailed,
        "Wait: it is retried with backoff. If it stays, the message has the provider's answer.",
    ),
    (
        Code::NotConverging,
        "Check whether another program changes the same objects, or whether ports of the Service \
         contradict each other. A change of the Service is applied at once; otherwise it is \
         retried after a minute, and then less often, down to every five minutes.",
    ),
    (
        Code::Unknown,
        "Nothing: a newer version of Landfall wrote it, and this version replaces it as soon as \
         its own result differs.",
    ),
    (
        Code::StatusContested,
        "Let only one controller serve the Service: `kubectl get service NAME \
         --show-managed-fields -o yaml` names the writers of its status; `spec.loadBalancerClass` \
         selects the controller.",
    ),
    (
        Code::ServingPreviousVersion,
        "Fix the errors that are listed with it; traffic continues meanwhile.",
    ),
    (
        Code::ChangesNoticedLate,
        "Raise `fs.inotify.max_user_instances` and `fs.inotify.max_user_watches`.",
    ),
    (
        Code::StateNotWritten,
        "Make room on the disk or correct the permissions of the state directory, before the next \
         restart.",
    ),
    (
        Code::LastKnownState,
        "Find out why the API server can't be reached. Later changes are applied once it answers; \
         ports that terminate TLS are opened then, too.",
    ),
    (Code::Ready, "Nothing."),
    (Code::Accepted, "Nothing."),
    (Code::Assigned, "Nothing."),
];

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operating.md")
}

fn table() -> String {
    let mut text = String::from("| code | means | what to do |\n|---|---|---|\n");
    for code in Code::ALL {
        let advice = ADVICE.iter().find(|(known, _)| known == code);
        let (_, advice) = advice.unwrap_or_else(|| panic!("{code} has no advice in this file"));
        writeln!(text, "| `{code}` | {} | {advice} |", code.meaning()).unwrap();
    }
    text
}

#[test]
fn the_page_lists_every_code_with_what_to_do() {
    let text = fs::read_to_string(page()).unwrap();
    let (before, rest) = text.split_once("<!-- codes").unwrap();
    let (head, rest) = rest.split_once("-->\n").unwrap();
    let (_, after) = rest.split_once("<!-- end of codes -->").unwrap();
    let fresh = format!(
        "{before}<!-- codes{head}-->\n\n{}\n<!-- end of codes -->{after}",
        table()
    );
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(page(), &fresh).unwrap();
    } else {
        assert_eq!(
            text, fresh,
            "run UPDATE_DOCS=1 cargo test -p landfall --test it operating"
        );
    }
    assert_eq!(
        ADVICE.len(),
        Code::ALL.len(),
        "advice for a code that is no more"
    );
}

#[test]
fn the_page_names_metrics_and_files_that_exist() {
    let text = fs::read_to_string(page()).unwrap();
    let metrics = fs::read_to_string(page().with_file_name("metrics.md")).unwrap();
    for word in text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
        if word.starts_with("landfall_") && word != "landfall_proxy" {
            assert!(
                metrics.contains(&format!("`{word}`")),
                "{word} is no metric"
            );
        }
    }
    for link in text.split("](").skip(1) {
        let target = link.split(')').next().unwrap();
        let file = target.split('#').next().unwrap();
        assert!(
            file.is_empty() || page().with_file_name(file).exists(),
            "{target}"
        );
    }
}

#[test]
fn the_page_of_attacks_names_tests_that_exist() {
    let text = fs::read_to_string(page().with_file_name("attacks.md")).unwrap();
    let sources = test_sources(&page().with_file_name("../crates"));
    let quoted = text.split('`').skip(1).step_by(2);
    let is_test = |word: &&str| {
        let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        word.len() > 15 && word.contains('_') && word.chars().all(letters)
    };
    let tests: Vec<&str> = quoted.filter(is_test).collect();
    assert!(tests.len() > 80, "{}", tests.len());
    for test in tests {
        let function = format!("fn {test}(");
        assert!(
            sources.iter().any(|text| text.contains(&function)),
            "{test}"
        );
    }
}

/// The text of every file of Rust in a folder.
fn test_sources(folder: &Path) -> Vec<String> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            texts.extend(test_sources(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            texts.push(fs::read_to_string(&path).unwrap());
        }
    }
    texts
}
