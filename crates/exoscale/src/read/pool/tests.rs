//! Instance pools.

use landfall_model::intent::NodeTarget;

use super::*;
use crate::objects::{Nodepool, Reference};

fn node(name: &str, provider_id: Option<&str>) -> NodeTarget {
    NodeTarget {
        name: name.into(),
        address: "10.0.0.1".parse().unwrap(),
        provider_id: provider_id.map(Into::into),
        others: Vec::new(),
    }
}

fn pools() -> BTreeMap<String, Option<Id>> {
    let pool = |id: &str| Some(Id::from(id));
    [
        ("i1", pool("p")),
        ("i2", pool("p")),
        ("i3", pool("q")),
        ("i4", None),
        ("c", pool("p")),
    ]
    .map(|(id, pool)| (id.to_owned(), pool))
    .into()
}

#[test]
fn the_pool_is_the_one_that_all_nodes_with_a_pool_are_of() {
    let infer = |nodes: &[NodeTarget]| infer(nodes, &pools()).map_err(|it| it.code);
    let first = node("a", Some("exoscale://i1"));
    let standalone = node("d", Some("exoscale://i4"));
    let foreign = node("e", Some("openstack:///i3"));
    let unknown = node("f", Some("exoscale://i9"));
    let bare = node("b", Some("i2"));
    let nameless = node("c", None);
    let all = [
        first.clone(),
        standalone.clone(),
        foreign,
        unknown,
        bare,
        nameless,
    ];
    assert_eq!(infer(&all), Ok(Id::from("p")));
    let two = [first, node("c", Some("exoscale://i3"))];
    assert_eq!(infer(&two), Err(Code::InvalidCloudOption));
    assert_eq!(infer(&[standalone]), Err(Code::CloudObjectNotFound));
    assert_eq!(infer(&[]), Err(Code::CloudObjectNotFound));
}

#[test]
fn a_nodepool_is_found_by_name_in_the_one_cluster_of_this_name_or_id() {
    let nodepool = |name: &str, pool: Option<&str>| Nodepool {
        id: Id::from("n"),
        name: name.to_owned(),
        instance_pool: pool.map(|id| Reference { id: Id::from(id) }),
    };
    let cluster = |id: &str, name: &str| SksCluster {
        id: Id::from(id),
        name: name.to_owned(),
        nodepools: vec![nodepool("web", None), nodepool("web", Some("p"))],
    };
    let clusters = [
        cluster("1", "prod"),
        cluster("2", "test"),
        cluster("3", "test"),
    ];
    let find = |cluster: &str, nodepool: &str| of_nodepool(&clusters, cluster, nodepool);
    assert_eq!(find("prod", "Web"), Ok(Id::from("p")));
    assert_eq!(find("2", "web"), Ok(Id::from("p")));
    let errors = [find("Prod", "web"), find("test", "web"), find("prod", "db")];
    let errors: Vec<_> = errors.into_iter().map(Result::unwrap_err).collect();
    assert!(errors[0].0 && errors[1].0 && !errors[2].0);
    assert!(errors[0].1 != errors[1].1, "three distinct errors");
}
