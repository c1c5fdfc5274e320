//! Landfall in one cluster and cloud-provider-openstack in another, in one project of the real
//! OpenStack: neither writes to what the other one has made, by the access logs of the cloud.

use std::collections::BTreeSet;
use std::time::Instant;

use landfall_testkit::cluster::CloudProviderOpenStack;
use landfall_testkit::stack::{Call, Mark, Stack};
use serde_json::{Value, json};

use super::picture::{Picture, word};
use super::reference::{LANDFALL, REFERENCE, reports, start, until_ensured};
use super::scene::{LOOK, SOON, Scene, orphans};
use crate::bed::Bed;

/// The namespace of both clusters, so that their Services are called the same.
const NAMESPACE: &str = "both";

const NAMED: &str = "loadbalancer.openstack.org/load-balancer-id";

fn service(name: &str, ports: &[u16], annotations: &Value) -> String {
    let ports: Vec<Value> = ports
        .iter()
        .map(|port| json!({"name": format!("p{port}"), "port": port}))
        .collect();
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"type": "LoadBalancer", "ports": ports},
    });
    service.to_string()
}

/// The part of a picture that belongs to the load balancers of a cluster: the ids of it all.
fn ids_of(picture: &Picture, cluster: &str) -> BTreeSet<String> {
    let prefix = format!("kube_service_{cluster}_");
    let mut ids = BTreeSet::new();
    let mut add = |object: &Value| ids.insert(word(object, "id").to_owned());
    let balancers = picture.balancers.iter();
    for balancer in balancers.filter(|it| word(it, "name").starts_with(&prefix)) {
        add(balancer);
        add(&json!({"id": balancer["vip_port_id"]}));
        add(picture.floating_ip_of(balancer));
        for listener in picture.listeners_of(balancer) {
            add(listener);
            let pool = picture.pool_of(listener);
            add(pool);
            add(picture.monitor_of(pool));
        }
    }
    ids.remove("");
    ids
}

/// The writes of a program since then to one of these objects.
async fn writes_to(
    scene: &Scene,
    mark: &Mark,
    by: &str,
    objects: &BTreeSet<String>,
) -> Vec<String> {
    let calls = scene.project().calls_since(mark, by).await.unwrap();
    let writes: Vec<&Call> = calls.iter().filter(|call| call.is_write()).collect();
    assert!(!writes.is_empty(), "{by} has written nothing");
    eprintln!("{by}: {} calls, {} writes", calls.len(), writes.len());
    let hits = writes.into_iter().filter(|call| {
        let mut parts = call.path.split('/');
        parts.any(|part| objects.contains(part))
    });
    hits.map(|call| format!("{} {}", call.method, call.path))
        .collect()
}

/// Waits until a load balancer of this name serves that many ports with that many members each.
async fn until_serves(scene: &Scene, name: &str, ports: usize, members: usize) -> Picture {
    let began = Instant::now();
    loop {
        let picture = Picture::of(scene.project()).await;
        let balancer = picture.balancer(name);
        let listeners = match balancer {
            Value::Null => Vec::new(),
            balancer => picture.listeners_of(balancer),
        };
        let full = listeners.iter().all(|listener| {
            let all = picture.pool_of(listener)["members"].as_array();
            all.is_some_and(|all| all.len() == members)
        });
        if listeners.len() == ports && full && balancer["provisioning_status"] == "ACTIVE" {
            return picture;
        }
        assert!(began.elapsed() < SOON, "{name}: {listeners:#?}");
        tokio::time::sleep(LOOK).await;
    }
}

/// Its Services are in the namespace that both clusters have.
async fn in_both(bed: &mut Bed) {
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE},
    });
    bed.kubectl().apply(&namespace.to_string()).await.unwrap();
    NAMESPACE.clone_into(&mut bed.namespace);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_the_reference_in_another_cluster_neither_changes_what_the_other_one_has() {
    let program = CloudProviderOpenStack::find().await.unwrap();
    let mut scene = Scene::open("neighbours").await;
    in_both(&mut scene.bed).await;
    let mut theirs = Bed::second("theirs").await;
    in_both(&mut theirs).await;
    let nodes = [("node-x", [10, 0, 0, 21]), ("node-y", [10, 0, 0, 22])];
    scene.add_nodes(&theirs, &nodes).await;
    scene.configure("perService");
    scene.configure_as(&theirs, "perService", "theirs");
    let stack = Stack::shared().await;
    let none = json!({});

    // One Service in each cluster, called the same.
    let mark = stack.mark().await.unwrap();
    let mut reference = start(&theirs, &program, "theirs");
    theirs.apply(&service("web", &[80], &none)).await;
    until_ensured(&theirs, ["web"], [0]).await;
    let mut ours = scene.controller();
    ours.ready_within(SOON).await;
    scene.bed.apply(&service("web", &[80], &none)).await;
    scene.programmed(&["web"]).await;
    let picture = until_serves(&scene, "kube_service_theirs_both_web", 1, 2).await;
    let of_theirs = ids_of(&picture, "theirs");
    let of_ours = ids_of(&picture, "c1");
    assert!(of_theirs.len() >= 5 && of_ours.len() >= 5, "{picture:#?}");
    assert!(of_theirs.is_disjoint(&of_ours));

    // Another port and another node for each of them.
    let before = reports(&theirs, ["web"]).await;
    theirs.apply(&service("web", &[80, 443], &none)).await;
    scene.bed.apply(&service("web", &[80, 443], &none)).await;
    until_ensured(&theirs, ["web"], before).await;
    let another = [("node-z", [10, 0, 0, 23])];
    scene.add_nodes(&theirs, &another).await;
    let another = [("node-d", [10, 0, 0, 14])];
    scene.add_nodes(&scene.bed, &another).await;
    until_serves(&scene, "kube_service_theirs_both_web", 2, 3).await;
    until_serves(&scene, "kube_service_c1_both_web", 2, 4).await;

    // Our cluster gets another name, and its orphans are deleted.
    ours.stop().await;
    scene.configure_as(&scene.bed, "perService", "c2");
    let mut ours = scene.controller();
    ours.ready_within(SOON).await;
    let picture = until_serves(&scene, "kube_service_c2_both_web", 2, 4).await;
    let reported = orphans(&scene.bed).await;
    assert!(reported.starts_with("0 orphans among "), "{reported}");
    let of_theirs: BTreeSet<_> = &of_theirs | &ids_of(&picture, "theirs");
    let of_ours: BTreeSet<_> = &of_ours | &ids_of(&picture, "c2");
    let nothing = Vec::<String>::new();
    assert_eq!(
        writes_to(&scene, &mark, LANDFALL, &of_theirs).await,
        nothing
    );
    assert_eq!(writes_to(&scene, &mark, REFERENCE, &of_ours).await, nothing);

    // A Service of ours shares their load balancer: its mark is all that it writes to theirs.
    let mark = stack.mark().await.unwrap();
    let id = word(picture.balancer("kube_service_theirs_both_web"), "id").to_owned();
    let guest = service("guest", &[8080], &json!({(NAMED): id}));
    scene.bed.apply(&guest).await;
    scene.programmed(&["guest"]).await;
    until_serves_some(&scene, &id, 3).await;
    let before = reports(&theirs, ["web"]).await;
    theirs.apply(&service("web", &[443], &none)).await;
    until_ensured(&theirs, ["web"], before).await;
    until_serves_some(&scene, &id, 2).await;
    scene.delete(&["guest"]).await;
    until_serves_some(&scene, &id, 1).await;
    let picture = Picture::of(scene.project()).await;
    let of_theirs = ids_of(&picture, "theirs");
    let marks = writes_to(&scene, &mark, LANDFALL, &of_theirs).await;
    let allowed = format!("PUT /v2/lbaas/loadbalancers/{id}");
    assert!(marks.iter().all(|write| *write == allowed), "{marks:?}");
    assert!(marks.len() <= 2, "{marks:?}");

    // Each goes without the other one.
    let delete = ["delete", "service", "web", "--timeout=900s"];
    theirs.run(&delete).await;
    reference.kill();
    until_serves(&scene, "kube_service_c2_both_web", 2, 4).await;
    scene.delete(&["web"]).await;
    ours.stop().await;
    let picture = Picture::of(scene.project()).await;
    // A group whose deletion was refused at first is not deleted later by the reference.
    assert_eq!(picture.count() - picture.groups.len(), 0, "{picture:#?}");
    scene.close().await;
}

/// Waits until a load balancer serves that many ports.
async fn until_serves_some(scene: &Scene, id: &str, ports: usize) {
    let began = Instant::now();
    loop {
        let picture = Picture::of(scene.project()).await;
        let mut balancers = picture.balancers.iter();
        let balancer = balancers.find(|it| it["id"] == id).unwrap();
        let now = picture.listeners_of(balancer).len();
        if now == ports && balancer["provisioning_status"] == "ACTIVE" {
            return;
        }
        assert!(began.elapsed() < SOON, "{now} of {ports} ports");
        tokio::time::sleep(LOOK).await;
    }
}
