//! Classes that no provider serves, or serves any more.

use std::net::SocketAddr;
use std::time::Instant;

use crate::bed::{Bed, DEADLINE, LOOK, address, condition, only, writes};
use crate::network::Range;
use crate::replica::{Replica, landfall, run};
use crate::traffic::{Backend, ask};

fn service(name: &str, class: &str, range: &Range) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n  annotations: \
         {{landfall.dev/endpoints: \"{}\"}}\nspec:\n  type: LoadBalancer\n  loadBalancerClass: \
         {class}\n  ports: [{{port: 8080}}]\n",
        range.member(1)
    )
}

/// What the running instance has to say about a Service, once it says this.
async fn explained(bed: &Bed, replica: &Replica, name: &str, words: &str) -> String {
    let began = Instant::now();
    loop {
        let mut command = landfall(bed.cluster.directory());
        command.args(["explain", &format!("{}/{name}", bed.namespace)]);
        command.args(["--admin", &format!("http://{}", replica.admin)]);
        let output = run(command).await;
        let story = String::from_utf8_lossy(&output.stdout).into_owned();
        if story.contains(words) {
            return story;
        }
        assert!(began.elapsed() < DEADLINE, "{output:?}");
        tokio::time::sleep(LOOK).await;
    }
}

#[tokio::test]
async fn a_class_that_no_provider_serves_is_explained_and_touches_nothing() {
    let bed = Bed::open("unknown").await;
    let range = Range::claim();
    let audit = bed.cluster.audit();
    let replica = Replica::alone(&bed, range.admin(1), &only(&range.pool())).await;
    bed.apply(&service("web", "landfall.dev/unserved", &range))
        .await;
    let story = explained(&bed, &replica, "web", "UnknownClass").await;
    assert!(
        story.contains("no provider of this process serves the class landfall.dev/unserved"),
        "{story}"
    );
    assert!(story.contains("spec.loadBalancerClass"), "{story}");
    assert!(
        story.contains("this process serves landfall.dev/local"),
        "{story}"
    );
    assert_eq!(writes(&audit), []);
}

#[tokio::test]
async fn a_class_taken_from_the_configuration_leaves_its_services_as_they_are() {
    let bed = Bed::open("removed").await;
    let range = Range::claim();
    let _one = Backend::start("one", range.member(1)).await;
    let old = only(&range.pool()).replace("name: local", "name: old");
    let replica = Replica::alone(&bed, range.admin(1), &old).await;
    bed.apply(&service("web", "landfall.dev/old", &range)).await;
    bed.programmed(&["web"]).await;
    let before = bed.service("web").await;
    let held = address(&before).unwrap().to_owned();
    let front = SocketAddr::new(held.parse().unwrap(), 8080);
    assert_eq!(ask(front).await.unwrap(), "one");
    replica.stop().await;

    // The class and its pool are gone: what it held stays on record, is not served, and it is said
    // why. Others are served as ever.
    let audit = bed.cluster.audit();
    let pool = range.pool().replace(".0.0/", ".8.0/");
    let replica = Replica::alone(&bed, range.admin(1), &only(&pool)).await;
    let story = explained(&bed, &replica, "web", "UnknownClass").await;
    assert!(
        story.contains("no provider of this process serves the class landfall.dev/old"),
        "{story}"
    );
    bed.apply(&service("other", "landfall.dev/local", &range))
        .await;
    bed.programmed(&["other"]).await;
    assert!(ask(front).await.is_err());
    let after = bed.service("web").await;
    assert_eq!(after["metadata"], before["metadata"]);
    assert_eq!(after["status"], before["status"]);
    let written = writes(&audit);
    assert!(
        written.iter().all(|entry| entry.name != "web"),
        "{written:?}"
    );
    bed.run(&["delete", "service", "other"]).await;
    replica.stop().await;

    // It comes back: the same address, and nothing to be written.
    let audit = bed.cluster.audit();
    let replica = Replica::alone(&bed, range.admin(1), &old).await;
    assert_eq!(ask(front).await.unwrap(), "one");
    let served = bed.service("web").await;
    assert_eq!(address(&served), Some(held.as_str()));
    assert_eq!(condition(&served, "Programmed").unwrap().0, "True");
    let statuses = writes(&audit);
    let statuses = statuses
        .iter()
        .filter(|entry| entry.name == "web" && entry.resource.starts_with("services"));
    assert_eq!(statuses.count(), 0);
    replica.stop().await;
}
