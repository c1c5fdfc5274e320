//! One machine that announces its addresses by BGP to FRR, as manifests say.

use std::process::{Child, Command, Stdio};
use std::time::Instant;

use landfall_model::reason::Code;
use landfall_testkit::namespace::{Namespace, is_inside, sh, until};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use crate::lab::{DEADLINE, LOOK, Lab};
use crate::manifest::svc;

const MACHINE: &str = "10.79.0.1";
const ROUTER: &str = "10.79.0.2";
const ADDRESS: &str = "198.51.100.7";

const CONFIG: &str = "instances:
- name: edge
  provider: {kind: local, announce: {}}
  default: true
  pools:
  - {name: public, addresses: [198.51.100.7/32]}
";

const PEER: &str = "apiVersion: metallb.io/v1beta2
kind: BGPPeer
metadata: {name: tor, namespace: metallb-system}
spec: {myASN: 64500, peerASN: 64501, peerAddress: 10.79.0.2, connectTime: 1s}
";

const ADVERTISEMENT: &str = "apiVersion: metallb.io/v1beta1
kind: BGPAdvertisement
metadata: {name: marked, namespace: metallb-system}
spec: {communities: ['64500:7']}
";

/// FRR on a host at the other end of a link.
struct Router {
    host: Namespace,
    folder: TempDir,
    programs: Vec<Child>,
}

impl Router {
    fn start() -> Self {
        let host = Namespace::new();
        sh(&format!(
            "ip link add lan0 type veth peer name eth0 netns {}
             ip address add {MACHINE}/24 dev lan0; ip link set lan0 up",
            host.pid()
        ));
        host.sh(&format!(
            "ip address add {ROUTER}/24 dev eth0; ip link set eth0 up"
        ));
        let mut router = Self {
            host,
            folder: TempDir::new().unwrap(),
            programs: Vec::new(),
        };
        let bgpd = format!(
            "log stdout\nrouter bgp 64501\n bgp router-id {ROUTER}\n no bgp ebgp-requires-policy\n \
             neighbor {MACHINE} remote-as 64500\n neighbor {MACHINE} passive\n"
        );
        let folder = router.folder.path().to_str().unwrap().to_owned();
        for (name, config) in [("zebra", "log stdout\n"), ("bgpd", &bgpd)] {
            let file = format!("{folder}/{name}.conf");
            std::fs::write(&file, config).unwrap();
            // It drops the rights of root before it opens its files.
            sh(&format!("chown -R frr:frr {folder}"));
            let mut command = router.host.command(&format!("/usr/lib/frr/{name}"));
            command.args(["-u", "frr", "-g", "frr", "-f", &file]);
            command.args(["-z", &format!("{folder}/zserv.api")]);
            command.args(["--vty_socket", &folder]);
            command.args(["-i", &format!("{folder}/{name}.pid")]);
            let program = command.stdout(Stdio::null()).stderr(Stdio::null());
            router.programs.push(program.spawn().unwrap());
        }
        router
    }

    /// Whether its kernel sends packets for the address to the machine.
    fn routes(&self) -> bool {
        let shown = self.host.sh(&format!("ip route show {ADDRESS}"));
        shown.contains(&format!("via {MACHINE} "))
    }

    /// The communities of the address.
    fn communities(&self) -> String {
        let folder = self.folder.path().to_str().unwrap();
        let shown = self.host.sh(&format!(
            "vtysh --vty_socket {folder} -d bgpd -c 'show bgp ipv4 unicast {ADDRESS}/32 json'"
        ));
        let shown: Value = serde_json::from_str(&shown).unwrap_or_default();
        let text = shown["paths"][0]["community"]["string"].as_str();
        text.unwrap_or_default().to_owned()
    }

    /// What answers at the address.
    fn ask(&self) -> String {
        let ask = format!("exec 3<>/dev/tcp/{ADDRESS}/8080; cat <&3");
        self.host
            .sh(&format!("timeout 2 bash -c '{ask}' 2>/dev/null || true"))
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        for program in &mut self.programs {
            let _ = program.kill();
            let _ = program.wait();
        }
    }
}

/// A member that says its name to all.
async fn member() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"one").await;
        }
    });
    address
}

/// What a command prints that asks the instance.
async fn asked(lab: &Lab, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
    command.args(arguments);
    command.args(["--admin", &lab.admin().to_string()]);
    let ended = tokio::task::spawn_blocking(move || command.output());
    String::from_utf8(ended.await.unwrap().unwrap().stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_router_that_no_session_is_possible_with_is_reported_with_field_and_remedy() {
    let mut lab = Lab::new();
    lab.write("tor.yaml", &PEER.replace("10.79.0.2", "nonsense"));
    let wrong = "spec.peerAddress: \"nonsense\": BGPPeer metallb-system/tor: not an IP address; \
                 write the address of the router";
    let checked = lab.landfall(&["check", "-f"], &[&lab.folder()]).await;
    assert_eq!(checked.code(), Some(1), "{}", checked.stdout);
    assert_eq!(
        checked.stdout.matches(wrong).count(),
        1,
        "{}",
        checked.stdout
    );
    lab.start().await;
    lab.problem(Code::InvalidResource).await;
    let shown = asked(&lab, &["get", "peers"]).await;
    assert!(shown.contains(wrong), "{shown}");
    lab.signal(Signal::TERM);
    let ended = lab.end().await;
    assert!(
        ended.stderr.contains("not an IP address"),
        "{}",
        ended.stderr
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_root_a_router_learns_the_addresses_that_one_machine_serves() {
    let needs = ["ip", "nsenter", "/usr/lib/frr/bgpd", "vtysh"];
    let name = "routers::as_root_a_router_learns_the_addresses_that_one_machine_serves";
    if !is_inside(name, &needs, "") {
        return;
    }
    let router = Router::start();
    let lab = Lab::new();
    let config = lab.path("landfall.yaml");
    std::fs::write(&config, CONFIG).unwrap();
    let mut lab = lab.options(&["--config", config.to_str().unwrap()]);
    let service = svc("web").port("web", "TCP", 8080);
    lab.write("web.yaml", &service.members(&[member().await]).yaml());
    lab.write("tor.yaml", PEER);
    lab.start().await;
    until("an answer through the router", || router.ask() == "one").await;
    assert!(router.routes());
    let shown = asked(&lab, &["get", "peers"]).await;
    assert!(
        shown.contains("tor") && shown.contains("Established"),
        "{shown}"
    );
    let shown = asked(&lab, &["explain", "default/web"]).await;
    assert!(
        shown.contains("198.51.100.7/32") && shown.contains("yes"),
        "{shown}"
    );

    // Attributes follow the manifests, and so does what is announced at all.
    lab.write("marked.yaml", ADVERTISEMENT);
    until("the community", || router.communities() == "64500:7").await;
    let service = std::fs::read_to_string(lab.file("web.yaml")).unwrap();
    lab.remove("web.yaml");
    until("no route", || !router.routes()).await;
    lab.write("web.yaml", &service);
    until("the route", || router.routes()).await;

    // A password that only one side has is named, and taken back.
    let secret = PEER.replace(
        "connectTime: 1s",
        "connectTime: 1s, passwordSecret: {name: tor}",
    );
    lab.write("tor.yaml", &secret);
    let began = Instant::now();
    while !asked(&lab, &["get", "peers"])
        .await
        .contains("spec.password")
    {
        assert!(began.elapsed() < DEADLINE, "{:?}", lab.view().await);
        tokio::time::sleep(LOOK).await;
    }
    lab.write("tor.yaml", PEER);
    until("the route", || router.routes()).await;

    // Another process takes over, and a stop withdraws the route after a request to avoid it.
    let mut old = lab.succeeded(&[]).await;
    Lab::end_of(&mut old).await;
    until("the route of the next process", || {
        router.routes() && router.ask() == "one"
    })
    .await;
    lab.signal(Signal::TERM);
    until("the request to prefer others", || {
        router.communities().contains("graceful-shutdown")
            || router.communities().contains("65535:0")
    })
    .await;
    until("no route", || !router.routes()).await;
    let ended = lab.end().await;
    assert!(ended.status.success(), "{}", ended.stderr);
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
}
