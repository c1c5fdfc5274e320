//! Leases of speakers on a real API server.

use std::time::Duration;

use landfall_kube::member_leases::{MemberLease, MemberLeases};

use crate::support::{DEADLINE, cluster, connect_by};

#[tokio::test(flavor = "multi_thread")]
async fn nodes_read_each_others_leases_until_one_leaves() {
    let cluster = cluster().await;
    let connection = connect_by(cluster.admin(), "landfall/member-leases").await;
    let of = |node: &str| MemberLeases::new(connection.clone(), node, Duration::from_secs(10));
    let (one, two) = (of("node-1"), of("node-2.example.com"));
    one.renew(b"\x01\xff eth0").await.unwrap();
    two.renew(b"").await.unwrap();
    // The list comes from a cache.
    let until = async |met: &dyn Fn(&[MemberLease]) -> bool| {
        let read = async {
            loop {
                let mut leases = one.read().await.unwrap();
                leases.sort_by(|one, other| one.node.cmp(&other.node));
                if met(&leases) {
                    return leases;
                }
            }
        };
        tokio::time::timeout(DEADLINE, read).await.unwrap()
    };
    let before = until(&|leases| leases.len() == 2).await;
    let names: Vec<&str> = before.iter().map(|it| it.node.as_str()).collect();
    assert_eq!(names, ["node-1", "node-2.example.com"]);
    assert_eq!(before[0].metadata, b"\x01\xff eth0");
    two.renew(b"more").await.unwrap();
    let after = until(&|leases| leases[1] != before[1]).await;
    assert_ne!(after[1].renewed, before[1].renewed);
    assert_eq!(after[1].metadata, b"more");
    assert_eq!(after[0], before[0]);
    // It was renewed since, so it is not of a node that is gone.
    let refused = one.forget(&before[1].node, &before[1].version).await;
    assert!(refused.unwrap_err().is_conflict());
    one.forget(&after[1].node, &after[1].version).await.unwrap();
    until(&|leases| leases.len() == 1).await;
    two.renew(b"").await.unwrap();
    until(&|leases| leases.len() == 2).await;
    for _ in 0..2 {
        two.leave().await.unwrap();
    }
    until(&|leases| leases.len() == 1).await;
    one.leave().await.unwrap();
}
