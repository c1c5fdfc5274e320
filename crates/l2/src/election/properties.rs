//! Elections of random clusters.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
struct Cluster {
    nodes: Vec<Node>,
    advertisements: Vec<Advertisement>,
    endpoints: BTreeSet<String>,
    address: IpAddr,
    is_local: bool,
    rules: Rules,
}

fn name() -> impl Strategy<Value = String> {
    (0..8_u8).prop_map(|number| format!("node-{number}"))
}

fn cluster() -> impl Strategy<Value = Cluster> {
    let flags = any::<[bool; 5]>();
    let nodes = proptest::collection::btree_map(name(), flags, 0..8).prop_map(|nodes| {
        let node =
            |(name, [dead, unavailable, excluded, able, unable]): (String, [bool; 5])| Node {
                name,
                is_alive: !dead,
                network_unavailable: unavailable,
                excluded,
                is_able_to_serve: able,
                inability: Inability {
                    ipv4: unable,
                    ..Inability::default()
                },
            };
        nodes.into_iter().map(node).collect::<Vec<_>>()
    });
    let names = || proptest::collection::btree_set(name(), 0..8);
    let weights = proptest::collection::btree_map(name(), 1..100_u32, 0..3);
    let advertisement = (names(), weights).prop_map(|(nodes, preferences)| Advertisement {
        selects_services: false,
        nodes,
        preferences,
    });
    let advertisements = proptest::collection::vec(advertisement, 0..3);
    let switches = any::<[bool; 3]>();
    (nodes, advertisements, names(), any::<u32>(), switches).prop_map(
        |(nodes, advertisements, endpoints, bits, [is_local, ignore, able])| Cluster {
            nodes,
            advertisements,
            endpoints,
            address: std::net::Ipv4Addr::from_bits(bits).into(),
            is_local,
            rules: Rules {
                ignore_exclude_label: ignore,
                must_be_able_to_serve: able,
            },
        },
    )
}

impl Cluster {
    fn service(&self) -> Service<'_> {
        Service {
            first_address: self.address,
            has_sharing_key: true,
            is_local: self.is_local,
            has_endpoints: true,
            endpoint_nodes: &self.endpoints,
            advertisements: self.advertisements.iter().collect(),
        }
    }

    fn elect(&self) -> Election<'_> {
        elect(self.address, &[self.service()], &self.nodes, self.rules)
    }
}

proptest! {
    #[test]
    fn there_is_exactly_one_owner_if_there_is_a_candidate(cluster in cluster()) {
        let election = cluster.elect();
        let service = cluster.service();
        let candidates = cluster.nodes.iter().filter(|node| {
            refusal(&service, node, cluster.rules).is_none()
        });
        prop_assert_eq!(election.order.len(), candidates.count());
        let services = [service];
        let announcing = cluster.nodes.iter().filter(|node| {
            election.why_not(node, &services, cluster.rules).is_none()
        });
        prop_assert_eq!(announcing.count(), usize::from(!election.order.is_empty()));
    }

    #[test]
    fn the_order_in_which_nodes_are_known_does_not_matter(
        cluster in cluster(),
        by in any::<prop::sample::Index>(),
    ) {
        let mut turned = cluster.clone();
        if !turned.nodes.is_empty() {
            let by = by.index(turned.nodes.len());
            turned.nodes.rotate_left(by);
            turned.advertisements.reverse();
        }
        prop_assert_eq!(turned.elect(), cluster.elect());
    }

    #[test]
    fn a_node_that_leaves_moves_nothing_but_what_it_owned(
        cluster in cluster(),
        which in any::<prop::sample::Index>(),
    ) {
        prop_assume!(!cluster.nodes.is_empty());
        let which = which.index(cluster.nodes.len());
        let mut fewer = cluster.clone();
        let gone = fewer.nodes.remove(which).name;
        let mut expected = cluster.elect().order;
        expected.retain(|name| *name != gone);
        prop_assert_eq!(&fewer.elect().order, &expected);
        // Dead, it is as good as gone.
        let mut dead = cluster.clone();
        dead.nodes[which].is_alive = false;
        prop_assert_eq!(dead.elect().order, expected);
    }
}
