//! `landfall adopt`: what cloud-provider-openstack has made, as the real binary sees it in the
//! simulated cloud.

use std::path::Path;

use serde_json::{Value, json};

use crate::manifest::svc;
use crate::scene::{Scene, text};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_reference_made_is_shown_as_taken_over_without_a_write() {
    let scene = Scene::set().await;
    let (balancer, floating_ip) = scene.reference_makes("c1", "web");
    scene.write("web", &svc("web").tcp(80));
    let ended = scene.run("adopt", &[]).await;
    assert!(ended.stderr.contains("two controllers"), "{}", ended.stderr);
    let reported = ended.good();
    for line in [
        format!(
            "  takes over load balancer kube_service_c1_default_web ({})\n",
            text(&balancer["id"])
        ),
        format!(
            "  takes over floating IP {} ({})\n",
            text(&floating_ip["floating_ip_address"]),
            text(&floating_ip["id"])
        ),
        "  writes nothing to the cloud\n".to_owned(),
    ] {
        assert!(reported.contains(&line), "{line}{reported}");
    }
    let summary = "1 Service, 1 taken over with no write, 0 steps for 0 others\n";
    assert!(reported.ends_with(summary), "{reported}");
    assert!(scene.sim.writes().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_differs_is_a_step_and_what_can_not_be_had_is_reported() {
    let scene = Scene::set().await;
    scene.reference_makes("c1", "web");
    let key = "loadbalancer.openstack.org/timeout-client-data";
    let web = svc("web").tcp(80).annotation(key, "60000");
    scene.write("web", &web);
    let reported = scene.run("adopt", &[]).await.good();
    assert!(reported.contains("takes over load balancer"), "{reported}");
    assert!(
        reported.contains("60000") || reported.contains("timeout"),
        "{reported}"
    );
    // With the first change come the marks of cluster and Service.
    let summary = "1 Service, 0 taken over with no write, 2 steps for 1 other\n";
    assert!(reported.ends_with(summary), "{reported}");

    let reported = scene.run("adopt", &["-o", "json"]).await.good();
    let reported: Value = serde_json::from_str(&reported).unwrap();
    let service = &reported["services"][0];
    assert_eq!(service["service"], "default/web");
    assert_eq!(service["instance"], "openstack");
    assert_eq!(service["adopted"][0]["kind"], "load balancer");
    assert_eq!(service["steps"].as_array().unwrap().len(), 2);
    assert_eq!(service["waits"], json!([]));

    // A new one, and one that is refused.
    let named = "loadbalancer.openstack.org/load-balancer-id";
    scene.write("new", &svc("new").tcp(80));
    scene.write("bad", &svc("bad").tcp(80).annotation(named, "no-such-id"));
    let ended = scene.run("adopt", &[]).await;
    assert_eq!(ended.code(), Some(1), "{}", ended.stdout);
    let reported = ended.stdout;
    assert!(reported.contains("create load balancer"), "{reported}");
    assert!(
        reported.contains("no load balancer of this id"),
        "{reported}"
    );
    assert!(reported.contains("3 Services, 0 taken over"), "{reported}");
    assert!(reported.contains("; 1 is undetermined"), "{reported}");
    assert!(scene.sim.writes().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_balancer_that_is_busy_is_not_said_to_be_as_wanted() {
    let scene = Scene::set().await;
    let (balancer, _) = scene.reference_makes("c1", "web");
    scene
        .sim
        .set_status(text(&balancer["id"]), "PENDING_UPDATE");
    scene.write("web", &svc("web").tcp(80));
    let reported = scene.run("adopt", &[]).await.good();
    assert!(
        reported.contains("1 Service, 0 taken over with no write"),
        "{reported}"
    );
    assert!(reported.contains("one change at a time"), "{reported}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn to_apply_takes_a_cluster_and_a_cloud() {
    let scene = Scene::set().await;
    let ended = scene.run("adopt", &["--apply"]).await;
    assert_eq!(ended.code(), Some(2), "{}", ended.stderr);
    let manifests: &[&Path] = &[&scene.lab.folder()];
    let ended = scene.lab.landfall(&["adopt", "-f"], manifests).await;
    assert_eq!(ended.code(), Some(1));
    assert!(ended.stderr.contains("--cloud-config"), "{}", ended.stderr);
    assert!(scene.sim.calls().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_chosen_services_are_taken_over() {
    let scene = Scene::set().await;
    scene.reference_makes("c1", "web");
    scene.write("web", &svc("web").tcp(80));
    scene.write("other", &svc("other").tcp(80));
    let reported = scene.run("adopt", &["--only", "default/web"]).await.good();
    assert!(!reported.contains("default/other"), "{reported}");
    let summary = "1 Service, 1 taken over with no write, 0 steps for 0 others\n";
    assert!(reported.ends_with(summary), "{reported}");
    let reported = scene.run("adopt", &["--selector", "canary"]).await.good();
    assert!(reported.starts_with("0 Services"), "{reported}");
}
