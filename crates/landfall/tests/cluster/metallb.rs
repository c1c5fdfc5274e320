//! MetalLB's own programs with Services, and `landfall adopt metallb`: addresses stay where they
//! are on the way to Landfall and on the way back, and so do the nodes that announce them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::{Command, Output};
use std::time::Instant;

use landfall_testkit::cluster::{AuditEntry, MetalLb, Options};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::bed::{Bed, DEADLINE, LOOK, text, writes};
use crate::metal::object;
use crate::network::{Range, inside};
use crate::replica::{Replica, landfall, run};
use crate::speakers::{HUB, Host, Node, Running, from_nodes, sh};

const NAMESPACE: &str = "metallb-system";

/// The user that migrates: an administrator with a name of their own in the audit log.
const MIGRATOR: &str = "migrator";

/// Services without a class, as MetalLB without `--lb-class` serves them.
const CONFIG: &str = "instances:\n  - name: metal\n    provider: metal\n    default: true\n";

const POOLS: [(&str, &str); 4] = [
    ("lan", "{addresses: [192.0.2.0/28]}"),
    (
        "spare",
        "{addresses: [198.51.100.4-198.51.100.5], autoAssign: false}",
    ),
    (
        "dual",
        "{addresses: [203.0.113.0/28, 2001:db8::/124], autoAssign: false}",
    ),
    (
        "team",
        "{addresses: [192.0.2.128/28], serviceAllocation: {priority: 10, namespaceSelectors: \
         [{matchLabels: {team: blue}}]}}",
    ),
];

fn log(bed: &Bed, name: &str) -> std::fs::File {
    let path = bed.cluster.directory().join(name);
    let file = std::fs::File::options()
        .create(true)
        .append(true)
        .open(path);
    file.unwrap()
}

/// MetalLB's manifest as its users apply it, and its resources before its webhooks, which answer
/// to no API server here.
async fn install(bed: &Bed, metallb: &MetalLb, resources: &[String]) {
    let manifest = std::fs::read_to_string(&metallb.manifest).unwrap();
    let is_webhook = |part: &&str| part.contains("\nkind: ValidatingWebhookConfiguration");
    let (webhooks, rest): (Vec<&str>, Vec<&str>) = manifest.split("\n---\n").partition(is_webhook);
    let apply = ["apply", "--server-side", "-f", "-"];
    let kubectl = bed.kubectl();
    kubectl
        .run_with(&apply, &rest.join("\n---\n"))
        .await
        .unwrap();
    let established = [
        "wait",
        "--for=condition=Established",
        "--timeout=60s",
        "crd",
        "--all",
    ];
    kubectl.run(&established).await.unwrap();
    kubectl.run_with(&apply, &resources.concat()).await.unwrap();
    assert_eq!(webhooks.len(), 1);
    kubectl.run_with(&apply, webhooks[0]).await.unwrap();
}

/// MetalLB's controller under its own rights.
fn controller(bed: &Bed, metallb: &MetalLb) -> Running {
    let user = "system:serviceaccount:metallb-system:controller";
    let groups = [
        "system:serviceaccounts",
        "system:serviceaccounts:metallb-system",
    ];
    let kubeconfig = bed.cluster.identity(user, &groups).unwrap();
    let mut command = Command::new(&metallb.controller);
    command
        .args(["--namespace", NAMESPACE, "--webhook-mode=disabled"])
        .arg("--disable-cert-rotation")
        .env_clear()
        .env("KUBECONFIG", kubeconfig)
        .current_dir(bed.cluster.directory())
        .stderr(log(bed, "metallb-controller.log"));
    Running::start(&mut command)
}

fn service(namespace: &str, name: &str, annotations: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: {namespace}, \
         annotations: {{{annotations}}}}}\nspec:\n  type: LoadBalancer\n  {spec}\n"
    )
}

/// One Service for each way in which MetalLB gives out addresses.
fn services(one: &str, two: &str) -> Vec<String> {
    let port = "ports: [{port: 80}]";
    let dual = "ports: [{port: 80}]\n  ipFamilyPolicy: RequireDualStack";
    let shared = |protocol: &str| format!("ports: [{{port: 53, protocol: {protocol}}}]");
    let key = "metallb.io/allow-shared-ip: dns, metallb.io/loadBalancerIPs: 192.0.2.10";
    vec![
        service(one, "web", "", port),
        service(one, "api", "metallb.io/loadBalancerIPs: 192.0.2.9", port),
        service(
            one,
            "chosen",
            "metallb.universe.tf/address-pool: spare",
            port,
        ),
        service(
            one,
            "field",
            "",
            "ports: [{port: 80}]\n  loadBalancerIP: 192.0.2.12",
        ),
        service(one, "dns-tcp", key, &shared("TCP")),
        service(two, "dns-udp", key, &shared("UDP")),
        service(one, "both", "metallb.io/address-pool: dual", dual),
        service(
            one,
            "asked",
            "metallb.io/loadBalancerIPs: \"203.0.113.9,2001:db8::9\"",
            dual,
        ),
        service(two, "pinned", "", port),
    ]
}

/// The addresses of all Services in their order, by namespace and name.
async fn addresses(bed: &Bed) -> BTreeMap<String, Vec<String>> {
    let list = bed.kubectl().get(&["services", "-A"]).await.unwrap();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let items = list["items"].as_array().unwrap().iter();
    let balanced = items.filter(|it| it["spec"]["type"] == "LoadBalancer");
    let held = balanced.map(|it| {
        let ingress = it["status"]["loadBalancer"]["ingress"].as_array();
        let ips = ingress
            .into_iter()
            .flatten()
            .map(|entry| word(&entry["ip"]));
        let key = format!(
            "{}/{}",
            word(&it["metadata"]["namespace"]),
            word(&it["metadata"]["name"])
        );
        (key, ips.collect())
    });
    held.collect()
}

async fn until_addressed(bed: &Bed, count: usize) -> BTreeMap<String, Vec<String>> {
    let began = Instant::now();
    loop {
        let held = addresses(bed).await;
        if held.len() == count && held.values().all(|it| !it.is_empty()) {
            return held;
        }
        if began.elapsed() > DEADLINE {
            let log = bed.cluster.directory().join("metallb-controller.log");
            let log = std::fs::read_to_string(log).unwrap_or_default();
            panic!("not all have an address: {held:#?}\n{log}");
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// `landfall adopt metallb` as the user that migrates.
async fn adopt(bed: &Bed, arguments: &[&str]) -> Output {
    let kubeconfig = bed.cluster.identity(MIGRATOR, &["system:masters"]).unwrap();
    let mut command = landfall(bed.cluster.directory());
    command
        .args(["adopt", "metallb", "--kubeconfig", text(&kubeconfig)])
        .args(arguments);
    run(command).await
}

fn good(output: &Output) -> String {
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}{errors}");
    printed
}

/// What a user wrote beside events, as resource and name.
fn counted(entries: Vec<AuditEntry>) -> BTreeMap<(String, String), usize> {
    let mut counts = BTreeMap::new();
    for entry in entries.into_iter().filter(|it| it.resource != "events") {
        assert!(entry.code < 300, "{entry:?}");
        let key = (
            entry.resource,
            format!("{}/{}", entry.namespace, entry.name),
        );
        *counts.entry(key).or_default() += 1;
    }
    counts
}

/// Runs a command that was printed for people.
async fn obey(bed: &Bed, printed: &str, begins: &str) {
    let mut lines = printed.lines().map(str::trim);
    let line = lines.find(|line| line.starts_with(begins)).expect(printed);
    let words: Vec<&str> = line.split(' ').skip(1).collect();
    bed.kubectl().run(&words).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_root_services_of_metallb_keep_their_addresses_on_the_way_here_and_back() {
    const NAME: &str =
        "metallb::as_root_services_of_metallb_keep_their_addresses_on_the_way_here_and_back";
    let metallb = MetalLb::find().await.unwrap();
    if !inside(NAME).await {
        return;
    }
    let bed = Bed::open("shop").await;
    let (range, audit) = (Range::claim(), bed.cluster.audit());
    let other = bed.cluster.namespace("blue").await.unwrap();
    bed.kubectl()
        .run(&["label", "namespace", &other, "team=blue"])
        .await
        .unwrap();
    let pools = POOLS.map(|(name, spec)| object("IPAddressPool", name, NAMESPACE, spec));
    let advertisement = object("L2Advertisement", "all", NAMESPACE, "{}");
    install(&bed, &metallb, &[pools.concat(), advertisement]).await;
    let running = controller(&bed, &metallb);
    let services = services(&bed.namespace, &other);
    // One after the other, so that each run gives out the same addresses.
    for (place, service) in services.iter().enumerate() {
        bed.kubectl().apply(service).await.unwrap();
        until_addressed(&bed, place + 1).await;
    }
    let held = until_addressed(&bed, services.len()).await;
    let of = |namespace: &str, name: &str| held[&format!("{namespace}/{name}")].clone();
    assert_eq!(
        of(&bed.namespace, "asked"),
        ["2001:db8::9", "203.0.113.9"],
        "text order"
    );
    assert_eq!(of(&bed.namespace, "dns-tcp"), of(&other, "dns-udp"));
    let config = bed.write("landfall.yaml", CONFIG);
    let config = ["--config", text(&config)];

    // To look changes nothing, and says what is in the way.
    let shown = good(&adopt(&bed, &config).await);
    for line in [
        "  keeps 192.0.2.9 of pool lan, announced from no node\n",
        "kubectl -n metallb-system scale deployment/controller --replicas=0\n",
        "9 Services: 0 would lose an address, 0 would be announced from another node, 0 taken \
         over already; --apply writes the status of 9 others and an annotation of 1 pool\n",
    ] {
        assert!(shown.contains(line), "{line}{shown}");
    }
    let apply = [&config[..], &["--apply", "--namespace", "default"]].concat();
    let refused = adopt(&bed, &apply).await;
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && errors.contains("nothing was written"),
        "{errors}"
    );
    assert!(
        errors.contains("two controllers must never work on the same Services"),
        "{errors}"
    );
    assert_eq!(counted(audit.writes_of(MIGRATOR).unwrap()), BTreeMap::new());

    // MetalLB stops as the command says, and its webhooks with it.
    obey(&bed, &shown, "kubectl -n metallb-system scale").await;
    drop(running);
    obey(
        &bed,
        &shown,
        "kubectl delete validatingwebhookconfiguration",
    )
    .await;
    let taken = good(&adopt(&bed, &apply).await);
    assert!(taken.contains("9 of 9 Services taken over"), "{taken}");
    assert_eq!(addresses(&bed).await, held);
    let written = counted(audit.writes_of(MIGRATOR).unwrap());
    let annotated = ("ipaddresspools".to_owned(), format!("{NAMESPACE}/lan"));
    assert_eq!(written.get(&annotated), Some(&1), "{written:#?}");
    let of_services = written
        .iter()
        .filter(|((resource, _), _)| resource == "services/status");
    let per_service: Vec<usize> = of_services.map(|(_, count)| *count).collect();
    eprintln!("writes of the take-over: {written:#?}");
    assert_eq!(per_service.len(), 9);
    assert!(per_service.iter().all(|count| *count == 1), "{written:#?}");

    // Once more writes nothing, and neither does a controller that starts.
    let again = bed.cluster.audit();
    let shown = good(&adopt(&bed, &apply).await);
    assert!(shown.contains("9 taken over already"), "{shown}");
    assert_eq!(counted(again.writes_of(MIGRATOR).unwrap()), BTreeMap::new());
    let replica = Replica::alone(&bed, range.admin(1), CONFIG).await;
    let late = service(&bed.namespace, "late", "", "ports: [{port: 80}]");
    bed.kubectl().apply(&late).await.unwrap();
    until_addressed(&bed, 10).await;
    let written = counted(writes(&again));
    eprintln!("writes of a controller that starts: {written:#?}");
    let of_services = written
        .keys()
        .filter(|(resource, _)| resource == "services/status");
    let names: Vec<&str> = of_services.map(|(_, name)| name.as_str()).collect();
    assert_eq!(names, [format!("{}/late", bed.namespace)]);
    let held_by_both = addresses(&bed).await;
    replica.stop().await;

    // The way back: one write for each Service, and none for what is given back already.
    let back = [&apply[..], &["--back"]].concat();
    let given = bed.cluster.audit();
    good(&adopt(&bed, &back).await);
    let written = counted(given.writes_of(MIGRATOR).unwrap());
    assert_eq!(written.len(), 10, "{written:#?}");
    assert!(written.values().all(|count| *count == 1), "{written:#?}");
    good(&adopt(&bed, &back).await);
    assert_eq!(counted(given.writes_of(MIGRATOR).unwrap()), written);
    let list = bed.kubectl().get(&["services", "-A"]).await.unwrap();
    let printed = list.to_string();
    for word in ["load-balancer-cleanup", "landfall.dev"] {
        assert!(!printed.contains(word), "{word}: {list:#}");
    }
    assert_eq!(addresses(&bed).await, held_by_both);

    let _running = controller(&bed, &metallb);
    let another = service(&bed.namespace, "last", "", "ports: [{port: 80}]");
    bed.kubectl().apply(&another).await.unwrap();
    let mut now = until_addressed(&bed, 11).await;
    now.remove(&format!("{}/last", bed.namespace));
    assert_eq!(now, held_by_both);
}

/// A speaker of MetalLB in the namespace of a node.
fn speak(bed: &Bed, metallb: &MetalLb, host: &Host, number: usize) -> Running {
    let address = format!("10.78.0.{number}");
    let memberlist = [
        "--ml-labels",
        "app=metallb,component=speaker",
        "--ml-bindaddr",
        &address,
        "--ml-bindport",
        "7946",
    ];
    speak_with(bed, metallb, host, number, &memberlist)
}

/// The same with these arguments, and with the capability `NET_RAW` and no other.
fn speak_with(bed: &Bed, metallb: &MetalLb, host: &Host, number: usize, more: &[&str]) -> Running {
    let user = "system:serviceaccount:metallb-system:speaker";
    let groups = [
        "system:serviceaccounts",
        "system:serviceaccounts:metallb-system",
    ];
    let kubeconfig = from_nodes(bed, user, &groups);
    let mut command = host.command("setpriv");
    command
        .args(["--bounding-set=-all,+net_raw", "--inh-caps=-all,+net_raw"])
        .arg(&metallb.speaker)
        .args(["--namespace", NAMESPACE])
        .args(["--node-name", &format!("node-{number}")])
        .args(["--pod-name", &format!("speaker-{number}")])
        .args(more)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("KUBECONFIG", kubeconfig)
        .current_dir(bed.cluster.directory())
        .stderr(log(bed, &format!("metallb-speaker-{number}.log")));
    Running::start(&mut command)
}

/// Which node says that it announces each Service.
async fn announcers(bed: &Bed) -> BTreeMap<String, BTreeSet<String>> {
    let list = ["-n", NAMESPACE, "servicel2statuses"];
    let list = bed.kubectl().get(&list).await.unwrap();
    let mut nodes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for item in list["items"].as_array().into_iter().flatten() {
        let word = |key: &str| item["status"][key].as_str().unwrap_or_default().to_owned();
        nodes
            .entry(word("serviceName"))
            .or_default()
            .insert(word("node"));
    }
    nodes
}

async fn until_announced(bed: &Bed, wanted: &BTreeMap<String, BTreeSet<String>>) {
    let began = Instant::now();
    loop {
        let seen = announcers(bed).await;
        if seen == *wanted {
            return;
        }
        if began.elapsed() > DEADLINE {
            print_logs(bed, "speaker-node");
            panic!("announced by {seen:#?}, wanted {wanted:#?}");
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Prints the end of what the speakers of the three nodes logged.
fn print_logs(bed: &Bed, speaker: &str) {
    for number in 1..=3 {
        let log = bed
            .cluster
            .directory()
            .join(format!("{speaker}-{number}.log"));
        let log = std::fs::read_to_string(log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines.len().saturating_sub(40);
        eprintln!("{speaker}-{number}:\n{}", lines[tail..].join("\n"));
    }
}

const ANNOUNCED: usize = 12;

/// Nodes, Pods of speakers and Services with addresses, as a cluster has them.
async fn populate(bed: &Bed) {
    let mut objects = String::new();
    for number in 1..=3 {
        let _ = writeln!(
            objects,
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: node-{number}}}\n---\n\
             apiVersion: v1\nkind: Pod\nmetadata: {{name: speaker-{number}, namespace: \
             {NAMESPACE}, labels: {{app: metallb, component: speaker}}}}\nspec: {{nodeName: \
             node-{number}, hostNetwork: true, containers: [{{name: speaker, image: none}}]}}"
        );
    }
    bed.kubectl().apply(&objects).await.unwrap();
    let patch = async |resource: &str, status: Value| {
        let status = json!({"status": status}).to_string();
        let words: Vec<&str> = resource.split(' ').collect();
        let patch = [
            &["patch"],
            &words[..],
            &["--subresource=status", "-p", &status],
        ]
        .concat();
        bed.kubectl().run(&patch).await.unwrap();
    };
    for number in 1..=3 {
        let ip = format!("10.78.0.{number}");
        let addresses = json!([{"type": "InternalIP", "address": ip}]);
        patch(
            &format!("node node-{number}"),
            json!({"addresses": addresses}),
        )
        .await;
        let running = json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]});
        patch(&format!("pod speaker-{number} -n {NAMESPACE}"), running).await;
    }
    let mut services = String::new();
    for number in 0..ANNOUNCED {
        services += &service(
            &bed.namespace,
            &format!("s{number}"),
            "",
            "ports: [{port: 80}]",
        );
        let _ = writeln!(
            services,
            "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\n\
             metadata:\n  name: s{number}-1\n  namespace: {}\n  labels: \
             {{kubernetes.io/service-name: s{number}}}\nports: [{{name: \"\", port: 8000}}]\n\
             endpoints: [{{addresses: [10.77.1.1], conditions: {{ready: true}}}}]",
            bed.namespace
        );
    }
    bed.kubectl().apply(&services).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_root_every_address_is_announced_from_the_node_that_metallb_elected() {
    const NAME: &str =
        "metallb::as_root_every_address_is_announced_from_the_node_that_metallb_elected";
    let metallb = MetalLb::find().await.unwrap();
    if !inside(NAME).await {
        return;
    }
    sh(&format!(
        "sysctl -qw net.ipv4.ip_forward=1
         ip link add br0 type bridge
         ip address add {HUB}/24 dev br0
         ip link set br0 up"
    ));
    let options = Options {
        bind: "0.0.0.0".parse().unwrap(),
        names: vec![HUB.to_owned()],
        ..Options::default()
    };
    let bed = Bed::with("lan", options).await;
    let pool = object(
        "IPAddressPool",
        "lan",
        NAMESPACE,
        "{addresses: [10.78.0.192/26]}",
    );
    let advertisement = object("L2Advertisement", "all", NAMESPACE, "{}");
    install(&bed, &metallb, &[pool, advertisement]).await;
    bed.kubectl().apply(crate::speakers::ROLES).await.unwrap();
    populate(&bed).await;
    let assigning = controller(&bed, &metallb);
    until_addressed(&bed, ANNOUNCED).await;
    let hosts: Vec<Host> = (1..=3)
        .map(|number| Host::start(&format!("node-{number}"), &format!("10.78.0.{number}")))
        .collect();
    let mut speakers: Vec<Running> = Vec::new();
    for (place, host) in hosts.iter().enumerate() {
        speakers.push(speak(&bed, &metallb, host, place + 1));
    }

    // What the command elects for MetalLB and for Landfall is what MetalLB does.
    let shown = good(&adopt(&bed, &["-o", "json"]).await);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let mut elected = BTreeMap::new();
    for takeover in shown["services"].as_array().unwrap() {
        let kept = &takeover["addresses"][0];
        assert_eq!(
            kept["metallbElects"], kept["landfallElects"],
            "{takeover:#}"
        );
        let name = takeover["service"]
            .as_str()
            .unwrap()
            .rsplit('/')
            .next()
            .unwrap();
        let node = kept["metallbElects"].as_str().unwrap().to_owned();
        elected.insert(name.to_owned(), BTreeSet::from([node]));
    }
    assert_eq!(elected.len(), ANNOUNCED);
    let owners: BTreeSet<&String> = elected.values().flatten().collect();
    assert!(owners.len() > 1, "{elected:#?}");
    let asked: BTreeMap<String, String> = addresses(&bed)
        .await
        .into_iter()
        .map(|(service, held)| {
            let name = service.rsplit('/').next().unwrap().to_owned();
            (name, held[0].clone())
        })
        .collect();
    until_answering(&bed, &hosts, &asked, &elected).await;

    // Landfall's speakers in their place elect the same nodes, and say so.
    drop(assigning);
    drop(speakers);
    let kind = "servicel2statuses.metallb.io";
    let forget = ["-n", NAMESPACE, "delete", kind, "--all"];
    bed.kubectl().run(&forget).await.unwrap();
    let ours: Vec<Running> = hosts
        .iter()
        .enumerate()
        .map(|(place, host)| Node::speak(&bed, host, place + 1, None))
        .collect();
    until_announced(&bed, &elected).await;

    // And MetalLB's once more, without memberlist, as for row 100: one node after the other.
    drop(ours);
    bed.kubectl().run(&forget).await.unwrap();
    let speakers = hosts.iter().enumerate();
    let mut speakers: Vec<Running> = speakers
        .map(|(place, host)| speak_with(&bed, &metallb, host, place + 1, &[]))
        .collect();
    until_answering(&bed, &hosts, &asked, &elected).await;
    for (place, host) in hosts.iter().enumerate() {
        speakers[place] = Node::speak_with(&bed, host, place + 1, None, &["--membership=nodes"]);
        let began = Instant::now();
        loop {
            let answering = answering(&hosts, &asked).await;
            assert!(
                answering.values().all(|nodes| nodes.len() <= 1),
                "{answering:#?}"
            );
            if answering == elected {
                break;
            }
            assert!(began.elapsed() < DEADLINE, "{answering:#?}");
        }
    }
}

/// Waits until the nodes that MetalLB elected answer, and no others. MetalLB's status objects are
/// no proof: on a busy machine one of them named another node for a whole minute.
///
/// A speaker of MetalLB that has no member list elects among the Nodes that it knows when it sees
/// a Service, and does not elect again when it learns of a new Node. If it starts with the Services
/// first, it stays wrong until they change. So they are changed while it is wrong.
async fn until_answering(
    bed: &Bed,
    hosts: &[Host],
    asked: &BTreeMap<String, String>,
    wanted: &BTreeMap<String, BTreeSet<String>>,
) {
    let began = Instant::now();
    loop {
        let seen = answering(hosts, asked).await;
        if seen == *wanted {
            return;
        }
        if began.elapsed() > DEADLINE * 2 {
            print_logs(bed, "metallb-speaker");
            panic!("{seen:#?}, not {wanted:#?}");
        }
        let turn = format!("test/turn={}", began.elapsed().as_millis());
        let change = ["annotate", "services", "--all", "--overwrite", &turn];
        bed.run(&change).await;
    }
}

/// The nodes that answer to `arping` for the address of each Service.
async fn answering(
    hosts: &[Host],
    asked: &BTreeMap<String, String>,
) -> BTreeMap<String, BTreeSet<String>> {
    let macs: Vec<String> = hosts.iter().map(Host::mac).collect();
    let mut asks = JoinSet::new();
    for (name, address) in asked.clone() {
        let mut arping = tokio::process::Command::new("arping");
        arping.args(["-b", "-c", "2", "-w", "2", "-I", "br0", &address]);
        asks.spawn(async move { (name, arping.output().await.unwrap()) });
    }
    let answers = asks.join_all().await.into_iter();
    let nodes = answers.map(|(name, output)| {
        let said = String::from_utf8_lossy(&output.stdout).to_lowercase();
        let named = macs.iter().zip(1..).filter(|(mac, _)| said.contains(*mac));
        (
            name,
            named.map(|(_, number)| format!("node-{number}")).collect(),
        )
    });
    nodes.collect()
}
