//! `landfall up` beside a cluster that has a controller, or may have one.

use std::time::Instant;

use landfall_kube::{Connection, Origin, access};

use crate::bed::{Bed, DEADLINE, LOOK, address, only, text};
use crate::network::Range;
use crate::replica::Replica;
use crate::traffic::{Backend, answered_by};

async fn says(replica: &Replica, words: &str) {
    let began = Instant::now();
    while !replica.said(words) {
        assert!(
            began.elapsed() < DEADLINE,
            "{} never says {words}",
            replica.name
        );
        tokio::time::sleep(LOOK).await;
    }
}

async fn holder(bed: &Bed) -> String {
    let lease = ["-n", "landfall-system", "lease", "landfall"];
    let lease = bed.kubectl().get(&lease).await.unwrap();
    let holder = lease["spec"]["holderIdentity"].as_str();
    holder.unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn up_beside_a_cluster_stands_by_while_its_controller_leads_and_serves_after_it() {
    let bed = Bed::open("beside").await;
    let range = Range::claim();
    let _backend = Backend::start("one", range.member(1)).await;
    let config = bed.write("landfall.yaml", &only(&range.pool()));
    let config = ["--config", text(&config)];
    let mut controller = Replica::spawn(&bed, "controller", range.admin(1), &config);
    controller.ready().await;
    bed.apply(&format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n  annotations: \
         {{landfall.dev/endpoints: \"{}\"}}\nspec:\n  type: LoadBalancer\n  \
         ports: [{{port: 8080}}]\n",
        range.member(1)
    ))
    .await;
    bed.programmed(&["web"]).await;
    let held = bed.service("web").await;
    let web = format!("{}:8080", address(&held).unwrap());
    let web = web.parse().unwrap();

    // Its namespace is found without being named.
    let mut up = Replica::spawn_up(&bed, "up", range.admin(2), &config);
    up.ready().await;
    says(&up, "\"holder\":\"controller_").await;
    says(&up, "\"lease\":\"landfall-system/landfall\"").await;
    assert!(holder(&bed).await.starts_with("controller_"));
    assert_eq!(up.applied(), 0);
    controller.stop().await;
    says(&up, "this replica leads").await;
    answered_by(web, &["one"]).await;
    assert!(holder(&bed).await.starts_with("landfall-up_"));
    assert_eq!(address(&bed.service("web").await), address(&held));
    up.stop().await;

    let origin = Origin::Kubeconfig {
        path: Some(bed.kubeconfig()),
        context: None,
    };
    let connection = Connection::new(origin, "test").await.unwrap();
    let is_there = async |name| access::has_namespace(&connection, name).await.unwrap();
    assert!(is_there("landfall-system").await);
    assert!(!is_there("landfall").await);
}
