//! Properties of random sets of objects.

use std::sync::Arc;

use landfall_metallb::Config;
use landfall_model::rows::{PoolRow, ResourceKind, ResourceRow};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::objects::{aged, aged_pool, pool_names};

type Objects = (Vec<Arc<PoolRow>>, Vec<Arc<ResourceRow>>);

fn pools() -> impl Strategy<Value = Vec<Arc<PoolRow>>> {
    let entry = prop_oneof![
        4 => (0..8_u8, 26..=30_u8)
            .prop_map(|(net, length)| format!("10.0.0.{}/{length}", net * 32)),
        2 => (0..250_u8, 0..6_u8).prop_map(|(first, more)| {
            format!("10.0.0.{first}-10.0.0.{}", first + more)
        }),
        1 => Just("2001:db8::/64".to_owned()),
        1 => Just("nonsense".to_owned()),
    ];
    let pool = (0..3_i64, prop::collection::vec(entry, 0..3));
    prop::collection::btree_map(0..5_u8, pool, 0..5).prop_map(|pools| {
        let pools = pools.into_iter();
        pools
            .map(|(name, (created, entries))| {
                let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
                aged_pool(&format!("p{name}"), created, &entries)
            })
            .collect()
    })
}

fn spec(kind: ResourceKind) -> BoxedStrategy<Value> {
    let names = || prop::collection::vec((0..4_u8).prop_map(|it| format!("p{it}")), 0..3);
    match kind {
        ResourceKind::IpAddressPool => Just(Value::Null).boxed(),
        ResourceKind::L2Advertisement => names()
            .prop_map(|names| json!({"ipAddressPools": names}))
            .boxed(),
        ResourceKind::BgpAdvertisement => (names(), 24..34_u8, 0..3_u8, 0..4_u8)
            .prop_map(|(names, length, preference, community)| {
                json!({
                    "ipAddressPools": names, "aggregationLength": length,
                    "localPref": preference, "communities": [format!("c{community}")],
                })
            })
            .boxed(),
        ResourceKind::Community => (0..4_u8, 0..3_u8)
            .prop_map(|(name, value)| {
                let community = json!({"name": format!("c{name}"), "value": format!("1:{value}")});
                json!({"communities": [community]})
            })
            .boxed(),
        ResourceKind::BgpPeer => (0..3_u8, 1..3_u32, 0..3_u8)
            .prop_map(|(address, asn, profile)| {
                json!({
                    "myASN": asn, "peerASN": 9, "peerAddress": format!("10.9.0.{address}"),
                    "bfdProfile": format!("o{profile}"),
                })
            })
            .boxed(),
        ResourceKind::BfdProfile => (0..4_u8, any::<bool>())
            .prop_map(
                |(multiplier, echo)| json!({"detectMultiplier": multiplier, "echoMode": echo}),
            )
            .boxed(),
    }
}

fn resources() -> impl Strategy<Value = Vec<Arc<ResourceRow>>> {
    let kinds = ResourceKind::ALL.into_iter().skip(1).map(|kind| {
        prop::collection::btree_map(0..4_u8, (0..3_i64, spec(kind)), 0..4).prop_map(move |all| {
            let all = all.into_iter();
            all.map(|(name, (created, spec))| aged(kind, &format!("o{name}"), created, spec))
                .collect::<Vec<_>>()
        })
    });
    kinds.collect::<Vec<_>>().prop_map(|all| all.concat())
}

fn objects() -> impl Strategy<Value = Objects> {
    (pools(), resources())
}

fn shuffled() -> impl Strategy<Value = (Objects, Objects)> {
    objects().prop_flat_map(|(pools, rows)| {
        let other = (
            Just(pools.clone()).prop_shuffle(),
            Just(rows.clone()).prop_shuffle(),
        );
        (Just((pools, rows)), other)
    })
}

proptest! {
    #[test]
    fn the_order_in_which_objects_come_leaves_no_trace(
        before in objects(),
        (one, other) in shuffled(),
    ) {
        let (before, _) = Config::build(&before.0, &before.1, &Config::default());
        prop_assert_eq!(
            Config::build(&one.0, &one.1, &before),
            Config::build(&other.0, &other.1, &before)
        );
    }

    #[test]
    fn no_address_is_in_two_pools(before in objects(), now in objects()) {
        let (before, _) = Config::build(&before.0, &before.1, &Config::default());
        let (config, _) = Config::build(&now.0, &now.1, &before);
        let entries = config.pools().iter().flat_map(landfall_ipam::Pool::entries);
        let mut ranges: Vec<_> = entries.map(landfall_ipam::Entry::range).collect();
        ranges.sort_by_key(landfall_ipam::Range::first);
        for pair in ranges.windows(2) {
            prop_assert!(pair[0].last() < pair[1].first(), "{:?}", pair);
        }
    }

    #[test]
    fn building_again_of_the_same_objects_changes_nothing(now in objects()) {
        let (config, findings) = Config::build(&now.0, &now.1, &Config::default());
        let (again, found) = Config::build(&now.0, &now.1, &config);
        prop_assert_eq!(&config, &again);
        prop_assert_eq!(findings.has_errors(), found.has_errors());
    }

    #[test]
    fn another_object_takes_nothing_away_from_those_that_are_in_force(
        now in objects(),
        more in resources(),
        pool in pools(),
    ) {
        let (config, _) = Config::build(&now.0, &now.1, &Config::default());
        let (mut pools, mut rows) = now;
        pools.extend(pool.into_iter().filter(|it| !pools.iter().any(|old| old.name == it.name))
            .collect::<Vec<_>>());
        rows.extend(more.into_iter().filter(|it| {
            !rows.iter().any(|old| (old.kind, &old.key) == (it.kind, &it.key))
        }).collect::<Vec<_>>());
        let (after, _) = Config::build(&pools, &rows, &config);
        for name in pool_names(&config) {
            let name = landfall_ipam::PoolName::new(name);
            prop_assert_eq!(config.pools().get(&name), after.pools().get(&name));
        }
        for (key, peer) in config.peers() {
            let found = after.peers().find(|(it, _)| *it == key);
            prop_assert_eq!(found.map(|(_, peer)| peer), Some(peer));
        }
        for it in config.bgp_advertisements() {
            let found = after.bgp_advertisements().iter().find(|other| other.of.key == it.of.key);
            prop_assert_eq!(found.map(|it| &it.communities), Some(&it.communities));
        }
    }
}
