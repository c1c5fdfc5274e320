//! An instance on OpenStack: the real binary against the simulated cloud.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use landfall_model::reason::Code;
use landfall_model::view::ServiceView;
use landfall_testkit::openstack::{Service, Settings};
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::manifest::{line_of, svc};
use crate::process::{self, Ended};
use crate::scene::{CONFIG, OPTIONS, Scene, manifest, text};
use crate::view::is_ready;

// === impl Scene ===

impl Scene {
    /// Lets `up` fail to start, and hands over how it ended.
    async fn fails(&self, options: &[&str]) -> Ended {
        let folder = self.lab.folder();
        let mut arguments = vec!["up", "--admin", "127.0.0.1:0", "--state", "state", "-f"];
        arguments.push(folder.to_str().unwrap());
        arguments.extend(options);
        let home = self.lab.path(".");
        let ended = process::run(process::program(&home, &arguments), "").await;
        assert_eq!(ended.code(), Some(1), "{}", ended.stderr);
        assert!(!ended.stderr.contains("simulated-password"));
        ended
    }

    async fn plan(&self, options: &[&str]) -> String {
        let arguments = [&["plan"], options, &["-f"]].concat();
        let ended = self.lab.landfall(&arguments, &[&self.lab.folder()]).await;
        ended.good()
    }

    /// The load balancers, their listeners, floating IPs and groups of the simulated cloud.
    fn objects(&self) -> usize {
        self.sim.load_balancers().len() + self.sim.floating_ips().len()
    }
}

fn address(value: &Value) -> IpAddr {
    value["floating_ip_address"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_gets_a_load_balancer_with_a_floating_ip_and_leaves_nothing_behind() {
    let mut scene = Scene::set().await;
    scene.write("web", &svc("web").tcp(80));

    let before = scene.plan(&CONFIG).await;
    assert!(before.contains("create load balancer"), "{before}");
    assert!(before.contains("kube_service_shop_default_web"), "{before}");
    assert!(before.contains("then attach a floating IP"), "{before}");
    assert_eq!(scene.sim.writes().len(), 0);

    scene.lab.start().await;
    let service = scene.lab.ready("default/web").await;
    let floating = scene.sim.floating_ips();
    let held: Vec<IpAddr> = service.status.addresses().collect();
    assert_eq!(held, floating.iter().map(address).collect::<Vec<_>>());
    let balancers = scene.sim.load_balancers();
    assert_eq!(balancers.len(), 1);
    assert_eq!(balancers[0]["name"], "kube_service_shop_default_web");

    let after = scene.plan(&[]).await;
    assert!(after.contains("0 steps for 1 Service"), "{after}");
    let reported = scene
        .lab
        .landfall(&["explain", "default/web"], &[])
        .await
        .good();
    assert!(reported.contains(&held[0].to_string()), "{reported}");
    // No thread of the data plane runs for it.
    let metrics = scene.lab.text("/metrics").await;
    assert!(metrics.contains("landfall_ready 1"), "{metrics}");
    let made = "landfall_cloud_calls_total{instance=\"cloud\",method=\"POST\",\
                resource=\"loadbalancer\",outcome=\"ok\"} 1";
    assert!(metrics.contains(made), "{metrics}");
    let took = "landfall_cloud_call_duration_seconds_count{instance=\"cloud\",method=\"POST\",\
                resource=\"loadbalancer\"} 1";
    assert!(metrics.contains(took), "{metrics}");

    scene.lab.remove("web.yaml");
    scene.lab.gone("default/web").await;
    assert_eq!(scene.objects(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_for_a_changed_manifest_reads_the_cloud_and_changes_nothing() {
    let mut scene = Scene::set().await;
    let text = manifest(&svc("web").tcp(80));
    scene.lab.write("web.yaml", &text);
    scene.lab.start().await;
    scene.lab.ready("default/web").await;
    scene.lab.settled().await;
    scene.sim.forget_calls();

    let changed = text.replace("port: 80,", "port: 81,");
    let path = scene.put("changed.yaml", &changed);
    let ended = scene.lab.landfall(&["plan", "-f"], &[&path]).await;
    let plan = ended.good();
    assert!(plan.contains("listener"), "{plan}");
    assert!(!plan.contains("0 steps"), "{plan}");
    assert_eq!(scene.sim.writes().len(), 0, "{plan}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotated_password_is_read_from_the_file_and_one_that_is_unreadable_changes_nothing() {
    let mut scene = Scene::set().await;
    scene.write("one", &svc("one").tcp(80));
    scene.lab.start().await;
    scene.lab.ready("default/one").await;

    // First the Secret, then Keystone, which ends all tokens of the old password.
    scene.cloud_conf("password = rotated-word", "");
    let rotate = |password: &str| {
        let rotated = |settings: &mut Settings| password.clone_into(&mut settings.logins.password);
        scene.sim.configure(rotated);
        scene.sim.revoke_tokens();
    };
    rotate("rotated-word");
    scene.write("two", &svc("two").tcp(80));
    scene.lab.ready("default/two").await;

    scene.put("cloud.conf", "[Global\npassword = half-written");
    scene.sim.revoke_tokens();
    scene.write("three", &svc("three").tcp(80));
    scene.lab.ready("default/three").await;
    let problem = scene.lab.problem(Code::ProviderFailed).await;
    let message = problem.message;
    assert!(message.contains("cloud.conf:1: "), "{message}");
    assert!(
        message.ends_with("those from before stay in use"),
        "{message}"
    );
    assert!(!message.contains("half-written"), "{message}");

    scene.cloud_conf("password = rotated-word", "");
    scene.sim.revoke_tokens();
    scene.write("four", &svc("four").tcp(80));
    scene.lab.ready("default/four").await;
    let view = scene.lab.view().await;
    assert_eq!(view.problems, []);
    for secret in ["rotated-word", "simulated-password"] {
        let log = scene.lab.log();
        assert!(
            !log.iter().any(|line| line.to_string().contains(secret)),
            "{log:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_stops_the_start_is_named() {
    let scene = Scene::set().await;
    scene.cloud_conf("password = wrong-word", "");
    let ended = scene.fails(&CONFIG).await;
    for word in [
        "instance cloud",
        "401",
        "check user, password",
        &scene.cloud.served.auth_url,
    ] {
        assert!(ended.stderr.contains(word), "{word}: {}", ended.stderr);
    }
    assert!(!ended.stderr.contains("wrong-word"), "{}", ended.stderr);

    scene.cloud_conf("", "");
    let without = |services: &mut Vec<Service>| services.retain(|it| *it != Service::LoadBalancer);
    scene
        .sim
        .configure(|settings| without(&mut settings.services));
    let ended = scene.fails(&CONFIG).await;
    for word in ["instance cloud", "load-balancer", "check region"] {
        assert!(ended.stderr.contains(word), "{word}: {}", ended.stderr);
    }

    scene.cloud_conf("", "monitor-delay = 5");
    let ended = scene.fails(&CONFIG).await;
    let text = fs::read_to_string(scene.lab.path("cloud.conf")).unwrap();
    let place = format!("cloud.conf:{}: ", line_of(&text, "monitor-delay"));
    assert!(ended.stderr.contains(&place), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("[LoadBalancer] monitor-delay"),
        "{}",
        ended.stderr
    );

    let missing = scene.fails(&["--cloud-config", "none.conf"]).await;
    assert!(
        missing.stderr.contains("none.conf can't be read"),
        "{}",
        missing.stderr
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cloud_that_does_not_answer_is_reported_and_holds_up_no_other_instance() {
    let mut scene = Scene::set().await;
    let unanswered = format!("auth-url = http://{}/v3", scene.lab.unused_address());
    scene.cloud_conf(&unanswered, "");
    let pool = scene.lab.ranges.pool_cidr();
    scene.lab = scene.lab.also(&["--pool", &pool]);
    scene.put(
        "landfall.yaml",
        "instances:\n- name: here\n  provider: local\n  default: true\n- name: cloud\n  \
         provider:\n    kind: openstack\n    cloudConf: cloud.conf\n",
    );
    let far = manifest(
        &svc("web")
            .tcp(80)
            .spec("loadBalancerClass: landfall.dev/cloud"),
    );
    scene.lab.write("far.yaml", &far);
    let near = svc("near").tcp(8080).option("endpoints", "127.0.0.1:9");
    scene.lab.write("near.yaml", &near.yaml());
    scene.lab.start().await;
    scene.lab.ready("default/near").await;
    let reason = scene.lab.reason("default/web", Code::ProviderFailed).await;
    assert!(reason.message.contains("onnect"), "{reason}");
    let log = scene.lab.log();
    let mut messages = log.iter().filter_map(|line| line["message"].as_str());
    assert!(
        messages.any(|it| it.contains("does not answer correctly") && it.contains("/v3")),
        "{log:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_line_of_the_reference_serves_services_without_a_class() {
    let mut scene = Scene::with(&OPTIONS).await;
    scene.write("web", &svc("web").tcp(80));
    scene.lab.start().await;
    scene.lab.ready("default/web").await;
    let balancers = scene.sim.load_balancers();
    assert_eq!(balancers[0]["name"], "kube_service_c1_default_web");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_line_alone_selects_the_layout_of_groups_that_the_reference_has() {
    for (layout, start) in [
        ("perService", "lb-sg-"),
        ("perCluster", "landfall-nodes-c1"),
    ] {
        let options = [&OPTIONS[..], &["--security-groups", layout]].concat();
        let mut scene = Scene::with(&options).await;
        scene.cloud_conf("", "manage-security-groups = true");
        scene.write("web", &svc("web").tcp(80));
        scene.lab.start().await;
        scene.lab.ready("default/web").await;
        scene.lab.settled().await;
        let groups = scene.sim.security_groups();
        let names: Vec<&str> = groups.iter().map(|group| text(&group["name"])).collect();
        assert!(
            names.iter().any(|name| name.starts_with(start)),
            "{names:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_is_switched_off_touches_no_service() {
    let mut scene = Scene::set().await;
    scene.cloud_conf("", "enabled = false");
    scene.write("web", &svc("web").tcp(80));
    scene.lab.start().await;
    scene
        .lab
        .wait("it is ready", |view| view.ready.then_some(()))
        .await;
    let view = scene.lab.view().await;
    assert!(view.services.is_empty(), "{view:?}");
    assert_eq!(scene.sim.calls().len(), 0);
    let log = scene.lab.log();
    let mut messages = log.iter().filter_map(|line| line["message"].as_str());
    assert!(messages.any(|it| it.contains("enabled = false")), "{log:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_reads_the_cloud_configuration_and_asks_the_cloud_only_on_request() {
    let scene = Scene::set().await;
    scene.cloud_conf("usrname = x", "");
    let text = fs::read_to_string(scene.lab.path("cloud.conf")).unwrap();
    let place = format!("cloud.conf:{}: ", line_of(&text, "usrname"));
    let reported = scene
        .lab
        .landfall(&["check", "--cloud-config", "cloud.conf"], &[])
        .await;
    let reported = reported.good();
    assert!(
        reported.contains(&place) && reported.contains("username"),
        "{reported}"
    );
    assert!(reported.contains("0 errors, 1 warning\n"), "{reported}");
    assert_eq!(scene.sim.calls().len(), 0, "the cloud was asked");

    let connect = ["check", "--connect", "--cloud-config", "cloud.conf"];
    let reported = scene.lab.landfall(&connect, &[]).await.good();
    let project = scene.sim.project();
    for word in ["Octavia API 2.27", "amphora, octavia, ovn", &project] {
        assert!(reported.contains(word), "{word}: {reported}");
    }

    scene.cloud_conf("password = wrong-word", "");
    let ended = scene.lab.landfall(&connect, &[]).await;
    assert_eq!(ended.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stdout.contains("401"), "{}", ended.stdout);
    scene.cloud_conf("", "lb-provider = f5");
    let ended = scene.lab.landfall(&connect, &[]).await;
    assert_eq!(ended.code(), Some(1), "{}", ended.stderr);
    assert!(
        ended.stdout.contains("lb-provider: \"f5\""),
        "{}",
        ended.stdout
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_comes_back_after_a_restart_without_a_write() {
    let mut scene = Scene::set().await;
    scene.write("web", &svc("web").tcp(80));
    scene.lab.start().await;
    let before: ServiceView = scene.lab.ready("default/web").await;
    scene.lab.settled().await;
    scene.lab.stop().await;
    scene.sim.forget_calls();
    scene.lab.start().await;
    let after = scene.lab.until("default/web", "is ready", is_ready).await;
    scene.lab.settled().await;
    assert_eq!(before.status.ingress, after.status.ingress);
    let writes = scene.sim.writes();
    assert!(writes.is_empty(), "{writes:?}");
}

/// A server whose certificate ended long ago: its address and the certificate. It ends with the
/// task.
async fn expired() -> (SocketAddr, String, JoinSet<()>) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2020, 2, 1);
    let certificate = params.self_signed(&key).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // The client hangs up.
            let _ = acceptor.accept(stream).await;
        }
    });
    (address, certificate.pem(), tasks)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_has_ended_stops_the_start_and_is_named() {
    let scene = Scene::set().await;
    let (address, authority, _server) = expired().await;
    scene.put("ca.pem", &authority);
    let lines = format!("auth-url = https://{address}/v3\nca-file = ca.pem");
    scene.cloud_conf(&lines, "");
    let ended = scene.fails(&CONFIG).await;
    let place = format!("https://{address}/v3");
    for word in [
        "instance cloud",
        &place,
        "certificate",
        "xpired",
        "renew it",
    ] {
        assert!(ended.stderr.contains(word), "{word}: {}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn manifests_without_nodes_are_validated_all_the_same() {
    let scene = Scene::set().await;
    scene.write("web", &svc("web").tcp(80));
    let reported = scene.run("check", &[]).await.good();
    assert!(!reported.contains("NoEligibleNodes"), "{reported}");
    assert!(reported.contains("1 Service: 0 errors"), "{reported}");
    let key = "loadbalancer.openstack.org/flavor-id";
    scene.write("web", &svc("web").tcp(80).annotation(key, "gold"));
    let ended = scene.run("check", &["--connect"]).await;
    assert!(
        !ended.stdout.contains("NoEligibleNodes"),
        "{}",
        ended.stdout
    );
    assert!(scene.sim.writes().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_finds_ids_that_the_cloud_does_not_have() {
    let scene = Scene::set().await;
    scene.cloud_conf("", "floating-network-id = nonesuch");
    let connect = ["check", "--connect", "--cloud-config", "cloud.conf"];
    let ended = scene.lab.landfall(&connect, &[]).await;
    assert_eq!(ended.code(), Some(1), "{}", ended.stderr);
    assert!(
        ended.stdout.contains("floating-network-id: \"nonesuch\""),
        "{}",
        ended.stdout
    );
}
