//! `landfall orphans`: what no Service owns, found and removed by the real binary in the simulated
//! cloud.

use std::collections::BTreeSet;
use std::time::Duration;

use landfall_testkit::openstack::{Fault, Service};
use serde_json::{Value, json};

use crate::manifest::svc;
use crate::process::{self, Ended};
use crate::scene::{OPTIONS, Scene, text};

/// Leaked objects of this cluster, and beside them what must never be touched.
struct Leak {
    scene: Scene,
    /// Ids of the leaked ones: floating IP, load balancer, spare floating IP, group.
    leaked: [String; 4],
}

// === impl Leak ===

impl Leak {
    async fn set() -> Self {
        let scene = Scene::set().await;
        let id = |object: &Value| text(&object["id"]).to_owned();
        scene.write("web", &svc("web").tcp(80));
        let group = |uid: &str, cluster: &str, service: &str| {
            let description = format!(
                "Security Group for default/{service} Service LoadBalancer in cluster {cluster}"
            );
            let body = json!({"name": format!("lb-sg-{uid}-default-{service}"),
                "description": description});
            let path = "/v2.0/security-groups";
            scene
                .cloud
                .make(Service::Network, path, "security_group", &body)
        };
        let (web, web_address) = scene.reference_makes("c1", "web");
        let (theirs, their_address) = scene.reference_makes("c2", "gone");
        let (of_same_name, its_address) = scene.reference_makes("c1", "elsewhere");
        let mark = "kube_cluster_id_00000000-0000-0000-0000-000000000001";
        scene.sim.edit(text(&of_same_name["id"]), |row| {
            row["tags"].as_array_mut().unwrap().push(json!(mark));
        });
        let body = json!({"name": "by-hand", "vip_subnet_id": scene.sim.subnet()});
        let path = "/v2/lbaas/loadbalancers";
        let by_hand = scene
            .cloud
            .make(Service::LoadBalancer, path, "loadbalancer", &body);
        let body =
            json!({"floating_network_id": scene.sim.external_network(), "description": "mine"});
        let path = "/v2.0/floatingips";
        let mine = scene
            .cloud
            .make(Service::Network, path, "floatingip", &body);
        let body = json!({"name": "lb-sg-of-people", "description": "mine"});
        let path = "/v2.0/security-groups";
        let my_group = scene
            .cloud
            .make(Service::Network, path, "security_group", &body);
        for object in [
            &web,
            &web_address,
            &theirs,
            &their_address,
            &of_same_name,
            &its_address,
            &by_hand,
            &mine,
            &my_group,
            &group("u1", "c1", "web"),
            &group("u2", "c2", "gone"),
        ] {
            scene.sim.mark_foreign(text(&object["id"]));
        }
        let (gone, its_address) = scene.reference_makes("c1", "gone");
        let spare = scene
            .cloud
            .floating_ip("c1", ("default", "older"), &Value::Null);
        let leaked = [
            id(&its_address),
            id(&gone),
            id(&spare),
            id(&group("u2", "c1", "gone")),
        ];
        Self { scene, leaked }
    }

    async fn listed(&self) -> BTreeSet<String> {
        let ended = self
            .scene
            .run("orphans", &["--unmarked", "-o", "json"])
            .await;
        let reported: Value = serde_json::from_str(&ended.stdout).unwrap();
        let orphans = reported["orphans"].as_array().unwrap();
        let expected = i32::from(!orphans.is_empty());
        assert_eq!(ended.code(), Some(expected), "{}", ended.stderr);
        orphans
            .iter()
            .map(|it| text(&it["id"]).to_owned())
            .collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_cluster_has_leaked_is_found_and_nothing_of_others() {
    let Leak { scene, leaked } = Leak::set().await;
    let ended = scene.run("orphans", &["--unmarked"]).await;
    assert_eq!(ended.code(), Some(1), "{}", ended.stderr);
    let reported = ended.stdout;
    for id in &leaked {
        assert!(reported.contains(id), "{id}\n{reported}");
    }
    assert!(reported.starts_with("KIND"), "{reported}");
    assert_eq!(reported.matches("of default/gone").count(), 3, "{reported}");
    let summary = "4 orphans among 5 load balancers, 6 floating IPs and ";
    assert!(reported.contains(summary), "{reported}");
    assert!(
        reported.ends_with("security groups; 1 Service\n"),
        "{reported}"
    );
    assert!(scene.sim.writes().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_serve_another_cluster_of_the_same_name_is_counted_and_stays() {
    let Leak { scene, leaked } = Leak::set().await;
    let ended = scene.run("orphans", &["--delete", "--yes"]).await;
    let reported = ended.good();
    assert!(reported.contains("1 orphan among "), "{reported}");
    assert!(reported.contains("not listed: 3 objects"), "{reported}");
    let writes = scene.sim.writes();
    assert_eq!(writes.len(), 1, "{writes:?}");
    assert!(writes[0].path.ends_with(&leaked[2]), "{writes:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_yes_exactly_these_are_deleted() {
    let leak = Leak::set().await;
    let Leak { scene, leaked } = &leak;
    let before = scene.sim.snapshot_foreign();
    let reported = scene
        .run("orphans", &["--delete", "--yes", "--unmarked"])
        .await
        .good();
    assert_eq!(reported.matches("\ndeleted ").count(), 4, "{reported}");
    assert!(
        reported.ends_with("4 deleted, 0 could not be\n"),
        "{reported}"
    );
    assert_eq!(scene.sim.snapshot_foreign(), before);
    let writes = scene.sim.writes();
    assert_eq!(writes.len(), 4, "{writes:?}");
    for id in leaked {
        assert!(writes.iter().any(|call| call.path.ends_with(id)), "{id}");
    }
    assert_eq!(leak.listed().await, BTreeSet::new());
    // Nothing to do is nothing done.
    let reported = scene
        .run("orphans", &["--delete", "--yes", "--unmarked"])
        .await
        .good();
    assert!(reported.starts_with("0 orphans among "), "{reported}");
    assert_eq!(scene.sim.writes().len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floating_ips_stay_where_that_is_asked_for() {
    let leak = Leak::set().await;
    let options = ["--delete", "--yes", "--unmarked", "--keep-floating-ips"];
    let reported = leak.scene.run("orphans", &options).await.good();
    assert!(
        reported.ends_with("2 deleted, 0 could not be\n"),
        "{reported}"
    );
    // Both are without a load balancer now, and are listed.
    let [one, _, other, _] = &leak.leaked;
    let left = BTreeSet::from([one.clone(), other.clone()]);
    // One is in use until its load balancer has gone.
    let mut listed = leak.listed().await;
    for _ in 0..100 {
        if listed == left {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        listed = leak.listed().await;
    }
    assert_eq!(listed, left);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_terminal_there_is_no_question_and_nothing_is_deleted() {
    let Leak { scene, .. } = Leak::set().await;
    let ended = scene.run("orphans", &["--delete"]).await;
    assert_eq!(ended.code(), Some(1), "{}", ended.stdout);
    assert!(ended.stderr.contains("--yes"), "{}", ended.stderr);
    let ended = scene.run("orphans", &["--yes"]).await;
    assert_eq!(ended.code(), Some(2), "{}", ended.stdout);
    assert!(scene.sim.calls().is_empty());
}

/// `orphans --delete` at a terminal with input.
async fn asked(scene: &Scene, keys: &str) -> Ended {
    let folder = scene.lab.folder();
    let folder = folder.to_str().unwrap();
    let arguments = [
        &["orphans"],
        &OPTIONS[..],
        &["--delete", "--unmarked", "-f", folder],
    ]
    .concat();
    let home = scene.lab.path(".");
    process::typed(process::program(&home, &arguments), keys).await
}

/// What ends the input of a terminal at the begin of a line.
const END_OF_INPUT: &str = "\u{4}";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_a_terminal_everything_but_yes_deletes_nothing() {
    let Leak { scene, .. } = Leak::set().await;
    for keys in ["n\n", "N\n", "\n", "yn\n", "n\ny\n", END_OF_INPUT] {
        let ended = asked(&scene, keys).await;
        assert_eq!(ended.code(), Some(1), "{keys:?}: {}", ended.stderr);
        assert!(
            ended.stdout.contains("4 orphans among "),
            "{}",
            ended.stdout
        );
        let said = "Delete these 4 objects? [y/N] nothing was deleted\n";
        assert_eq!(ended.stderr, said, "{keys:?}");
        assert!(scene.sim.writes().is_empty(), "{keys:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_a_terminal_yes_deletes_what_was_shown() {
    let leak = Leak::set().await;
    let Leak { scene, leaked } = &leak;
    let before = scene.sim.snapshot_foreign();
    let ended = asked(scene, "y\n").await;
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert_eq!(ended.stderr, "Delete these 4 objects? [y/N] ");
    let reported = &ended.stdout;
    assert!(
        reported.ends_with("4 deleted, 0 could not be\n"),
        "{reported}"
    );
    for id in leaked {
        assert!(reported.contains(id), "{id}\n{reported}");
    }
    assert_eq!(scene.sim.writes().len(), 4);
    assert_eq!(scene.sim.snapshot_foreign(), before);
    assert_eq!(leak.listed().await, BTreeSet::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_can_not_be_deleted_keeps_no_other_from_it() {
    let leak = Leak::set().await;
    let Leak { scene, leaked } = &leak;
    let stuck = leaked[1].clone();
    scene.sim.on_call(move |call| {
        let refused = call.is_write() && call.path.ends_with(&stuck);
        refused.then(|| Fault::status(call.service, 403, "Policy does not allow this request"))
    });
    let ended = scene
        .run("orphans", &["--delete", "--yes", "--unmarked"])
        .await;
    assert_eq!(ended.code(), Some(1), "{}", ended.stdout);
    let reported = ended.stdout;
    assert!(
        reported.contains("not deleted: load balancer"),
        "{reported}"
    );
    assert!(reported.contains("Policy does not allow"), "{reported}");
    assert!(
        reported.ends_with("3 deleted, 1 could not be\n"),
        "{reported}"
    );
    assert_eq!(leak.listed().await, BTreeSet::from([leaked[1].clone()]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_that_can_not_be_read_end_the_command_before_the_cloud_is_asked() {
    let Leak { scene, .. } = Leak::set().await;
    scene
        .lab
        .write("broken.yaml", "kind: Service\n  metadata:\n");
    let ended = scene
        .run("orphans", &["--delete", "--yes", "--unmarked"])
        .await;
    assert_eq!(ended.code(), Some(1), "{}", ended.stdout);
    assert!(
        ended.stderr.contains("objects that can't be read"),
        "{}",
        ended.stderr
    );
    scene.lab.remove("broken.yaml");
    scene.lab.remove("web.yaml");
    let ended = scene
        .run("orphans", &["--delete", "--yes", "--unmarked"])
        .await;
    assert_eq!(ended.code(), Some(1), "{}", ended.stdout);
    assert!(ended.stderr.contains("no Service"), "{}", ended.stderr);
    assert!(scene.sim.calls().is_empty());
}
