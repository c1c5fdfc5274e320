//! Address pools of MetalLB, where it is installed under another name than usual.

use crate::bed::{Bed, TEST_MEMBERS, address};
use crate::commands::POOL_KIND;
use crate::network::Range;
use crate::replica::Replica;

#[tokio::test]
async fn pools_are_found_in_the_namespace_that_the_configuration_names() {
    let bed = Bed::open("networking").await;
    let (range, other) = (Range::claim(), Range::claim());
    bed.kubectl().apply(POOL_KIND).await.unwrap();
    let kind = "crd/ipaddresspools.metallb.io";
    let established = ["wait", "--for=condition=Established", "--timeout=60s", kind];
    bed.kubectl().run(&established).await.unwrap();
    let elsewhere = bed.cluster.namespace("metallb").await.unwrap();
    for (namespace, pool) in [(&bed.namespace, &range), (&elsewhere, &other)] {
        let pool = format!(
            "apiVersion: metallb.io/v1beta1\nkind: IPAddressPool\nmetadata: {{name: edge, \
             namespace: {namespace}}}\nspec: {{addresses: [{}]}}\n",
            pool.pool()
        );
        bed.kubectl().apply(&pool).await.unwrap();
    }
    let config = format!(
        "metallbNamespace: {}\ninstances:\n  - name: local\n    provider: local\n    \
         default: true\n    {TEST_MEMBERS}\n",
        bed.namespace
    );
    let replica = Replica::alone(&bed, range.admin(1), &config).await;
    bed.apply(&format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n  annotations: \
         {{landfall.dev/endpoints: \"{}\"}}\nspec:\n  type: LoadBalancer\n  \
         ports: [{{port: 8080}}]\n",
        range.member(1)
    ))
    .await;
    bed.condition("landfall.dev/Addressed", &["web"]).await;
    let held = bed.service("web").await;
    let pool = range.pool();
    let begin = pool.trim_end_matches("0.0/21");
    assert!(address(&held).unwrap().starts_with(begin), "{held}");
    let namespace = format!("\"namespace\":\"{}\"", bed.namespace);
    assert!(replica.said(&namespace) && replica.said("\"pools\":1"));
    replica.stop().await;
}
