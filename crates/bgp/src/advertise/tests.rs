use std::num::NonZeroU32;

use proptest::prelude::*;
use proptest::sample::Index;

use netgauze_bgp_pkt::path_attribute::{MpReach, MpUnreach, PathAttributeValue};

use super::*;
use crate::route::{Community, LargeCommunity};
use crate::wire::LONGEST;
use crate::wire::tests::decode;

fn terms() -> Terms {
    Terms {
        style: Style {
            path: NonZeroU32::new(65_000),
            four_octet_as: true,
        },
        families: Families {
            ipv4: true,
            ipv6: true,
        },
        next_hops: NextHops {
            ipv4: Some(Ipv4Addr::new(10, 0, 0, 1)),
            ipv6: Some("2001:db8::1".parse().unwrap()),
            link_local: None,
        },
        extended_next_hop: false,
        over_ipv6: false,
    }
}

fn routes(prefixes: &[&str]) -> Arc<Routes> {
    let attributes = Arc::new(Attributes::default());
    let one = |it: &&str| (it.parse().unwrap(), Arc::clone(&attributes));
    Arc::new(prefixes.iter().map(one).collect())
}

/// What a router learns from messages: attributes by prefix, and markers.
#[derive(Default)]
struct Router {
    table: BTreeMap<IpNet, Learned>,
    markers: usize,
    messages: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Learned {
    next_hop: IpAddr,
    local_preference: Option<u32>,
    communities: Vec<u32>,
    large_communities: Vec<(u32, u32, u32)>,
}

// === impl Router ===

impl Router {
    fn take_all(&mut self, from: &mut Advertiser) {
        while let Some(message) = from.next() {
            self.take(&message);
        }
        assert!(!from.is_pending());
    }

    fn take(&mut self, message: &[u8]) {
        assert!(message.len() <= LONGEST, "{}", message.len());
        self.messages += 1;
        let update = decode(message, true);
        self.markers += usize::from(update.end_of_rib().is_some());
        let mut learned = Learned {
            next_hop: Ipv4Addr::UNSPECIFIED.into(),
            local_preference: None,
            communities: Vec::new(),
            large_communities: Vec::new(),
        };
        let ipv4 = update.nlri().iter().map(|it| it.network().address());
        let mut reached: Vec<IpNet> = ipv4.map(IpNet::V4).collect();
        let ipv4 = update.withdraw_routes().iter();
        let mut gone: Vec<IpNet> = ipv4.map(|it| it.network().address().into()).collect();
        for attribute in update.path_attributes() {
            match attribute.value().clone() {
                PathAttributeValue::NextHop(it) => learned.next_hop = it.next_hop().into(),
                PathAttributeValue::LocalPreference(it) => {
                    learned.local_preference = Some(it.metric());
                }
                PathAttributeValue::Communities(it) => {
                    learned.communities = {
                        let all = it.communities().iter();
                        all.map(netgauze_bgp_pkt::community::Community::value)
                            .collect()
                    };
                }
                PathAttributeValue::LargeCommunities(it) => {
                    let all = it.communities().iter();
                    learned.large_communities = all
                        .map(|it| (it.global_admin(), it.local_data1(), it.local_data2()))
                        .collect();
                }
                PathAttributeValue::MpReach(MpReach::Ipv6Unicast {
                    next_hop_global,
                    nlri,
                    ..
                }) => {
                    learned.next_hop = next_hop_global.into();
                    reached.extend(nlri.iter().map(|it| IpNet::V6(it.network().address())));
                }
                PathAttributeValue::MpReach(MpReach::Ipv4Unicast { next_hop, nlri, .. }) => {
                    learned.next_hop = next_hop;
                    reached.extend(nlri.iter().map(|it| IpNet::V4(it.network().address())));
                }
                PathAttributeValue::MpUnreach(MpUnreach::Ipv6Unicast { nlri }) => {
                    gone.extend(nlri.iter().map(|it| IpNet::V6(it.network().address())));
                }
                _ => {}
            }
        }
        for prefix in gone {
            assert!(
                self.table.remove(&prefix).is_some(),
                "{prefix} is not there"
            );
        }
        for prefix in reached {
            self.table.insert(prefix, learned.clone());
        }
    }
}

/// What a router should know, worked out in the simplest way.
fn expected(wanted: &Routes, terms: &Terms, drained: bool) -> BTreeMap<IpNet, Learned> {
    let learned = |(prefix, attributes): (&IpNet, &Arc<Attributes>)| {
        let ipv4 = matches!(prefix, IpNet::V4(_));
        let own: Option<IpAddr> = if ipv4 {
            terms.next_hops.ipv4.map(Into::into)
        } else {
            terms.next_hops.ipv6.map(Into::into)
        };
        let next_hop = attributes.next_hop.or(own)?;
        if next_hop.is_ipv4() != ipv4 {
            return None;
        }
        let mut communities: Vec<u32> = attributes
            .communities
            .iter()
            .map(|it| it.number())
            .collect();
        if drained && !communities.contains(&0xffff_0000) {
            communities.push(0xffff_0000);
        }
        communities.sort_unstable();
        let preference = if drained {
            0
        } else {
            attributes.local_preference.unwrap_or(100)
        };
        let internal = terms.style.path.is_none();
        let large = attributes.large_communities.iter();
        let learned = Learned {
            next_hop,
            local_preference: internal.then_some(preference),
            communities,
            large_communities: large.map(|it| (it.0, it.1, it.2)).collect(),
        };
        Some((*prefix, learned))
    };
    wanted.entries().filter_map(learned).collect()
}

#[test]
fn all_routes_are_sent_in_few_messages_with_a_marker_for_each_family_at_the_end() {
    let prefixes: Vec<String> = (0..2000)
        .map(|it| format!("10.1.{}.{}/32", it / 250, it % 250))
        .collect();
    let mut prefixes: Vec<&str> = prefixes.iter().map(String::as_str).collect();
    prefixes.push("2001:db8:7::/64");
    let mut advertiser = Advertiser::new(terms(), routes(&prefixes), false);
    let mut router = Router::default();
    router.take_all(&mut advertiser);
    assert_eq!(router.table.len(), 2001);
    assert_eq!((router.markers, router.messages), (2, 3 + 1 + 2));
    assert_eq!(advertiser.sent(), 2001);
}

#[test]
fn only_differences_are_sent() {
    let mut advertiser = Advertiser::new(terms(), routes(&["10.1.0.1/32", "10.1.0.2/32"]), false);
    let mut router = Router::default();
    router.take_all(&mut advertiser);
    let before = router.messages;
    advertiser.set(routes(&["10.1.0.1/32", "10.1.0.2/32"]), false);
    assert!(!advertiser.is_pending());
    advertiser.set(routes(&["10.1.0.2/32", "10.1.0.3/32"]), false);
    router.take_all(&mut advertiser);
    assert_eq!(router.messages, before + 2);
    let known: Vec<String> = router.table.keys().map(IpNet::to_string).collect();
    assert_eq!(known, ["10.1.0.2/32", "10.1.0.3/32"]);
}

#[test]
fn a_change_that_is_taken_back_before_it_is_sent_is_not_sent() {
    let one = routes(&["10.1.0.1/32"]);
    let mut advertiser = Advertiser::new(terms(), Arc::clone(&one), false);
    Router::default().take_all(&mut advertiser);
    advertiser.set(Arc::default(), false);
    assert!(advertiser.is_pending());
    advertiser.set(one, false);
    assert!(!advertiser.is_pending());
}

#[test]
fn a_router_that_asks_again_gets_all_of_the_family_again() {
    let mut advertiser = Advertiser::new(terms(), routes(&["10.1.0.1/32", "2001:db8::/64"]), false);
    let mut router = Router::default();
    router.take_all(&mut advertiser);
    advertiser.repeat(false);
    let again = advertiser.next().unwrap();
    assert!(decode(&again, true).nlri().is_empty());
    assert_eq!(advertiser.next(), None);
    advertiser.repeat(true);
    // A change meanwhile forgets nothing.
    advertiser.set(
        routes(&["10.1.0.1/32", "10.1.0.9/32", "2001:db8::/64"]),
        false,
    );
    assert_eq!(decode(&advertiser.next().unwrap(), true).nlri().len(), 2);
    assert_eq!(advertiser.next(), None);
}

#[test]
fn a_drained_node_asks_for_other_paths_before_it_withdraws() {
    let one = routes(&["10.1.0.1/32"]);
    let mut advertiser = Advertiser::new(terms(), Arc::clone(&one), false);
    let mut router = Router::default();
    router.take_all(&mut advertiser);
    advertiser.set(Arc::clone(&one), true);
    router.take_all(&mut advertiser);
    let prefix = "10.1.0.1/32".parse().unwrap();
    assert_eq!(
        router.table.get(&prefix).unwrap().communities,
        [0xffff_0000]
    );
    advertiser.set(Arc::default(), true);
    router.take_all(&mut advertiser);
    assert!(router.table.is_empty());
}

#[test]
fn what_cannot_be_sent_is_counted_with_its_reason_and_the_rest_is_sent() {
    let sent = |terms, wanted: &Arc<Routes>| {
        let mut advertiser = Advertiser::new(terms, Arc::clone(wanted), false);
        Router::default().take_all(&mut advertiser);
        (
            advertiser.sent(),
            advertiser.unsent().map(|it| (it.count, it.why)),
        )
    };
    let both = routes(&["10.1.0.1/32", "2001:db8::1/128", "2001:db8::2/128"]);
    let mut only_ipv4 = terms();
    only_ipv4.families.ipv6 = false;
    assert_eq!(sent(only_ipv4, &both), (1, Some((2, Obstacle::Family))));
    let mut no_address = terms();
    no_address.next_hops.ipv6 = None;
    assert_eq!(sent(no_address, &both), (1, Some((2, Obstacle::NextHop))));
    let odd = routes(&["10.1.0.1/24", "224.0.0.1/32", "ff02::1/128", "10.1.0.1/32"]);
    assert_eq!(sent(terms(), &odd), (1, Some((3, Obstacle::NotUnicast))));
    let many = Attributes {
        communities: (0..1100).map(|it| Community(1, it)).collect(),
        ..Attributes::default()
    };
    let prefix: IpNet = "10.1.0.1/32".parse().unwrap();
    let many = Arc::new(Routes::from_iter([(prefix, Arc::new(many))]));
    assert_eq!(sent(terms(), &many), (0, Some((1, Obstacle::Size))));
}

#[test]
fn prefixes_of_ipv4_over_ipv6_have_a_next_hop_of_ipv6_if_the_router_takes_it() {
    let learned = |terms: Terms| {
        let mut router = Router::default();
        router.take_all(&mut Advertiser::new(terms, routes(&["10.1.0.1/32"]), false));
        let learned = router.table.into_values().next();
        learned.map(|it| it.next_hop.to_string())
    };
    let mut terms = terms();
    terms.over_ipv6 = true;
    assert_eq!(learned(terms).unwrap(), "10.0.0.1");
    terms.extended_next_hop = true;
    assert_eq!(learned(terms).unwrap(), "2001:db8::1");
    terms.next_hops.ipv6 = None;
    terms.next_hops.link_local = Some("fe80::1".parse().unwrap());
    terms.next_hops.ipv4 = None;
    assert_eq!(learned(terms).unwrap(), "fe80::1");
    terms.extended_next_hop = false;
    assert_eq!(learned(terms), None);
}

#[test]
fn routes_follow_a_next_hop_that_comes_changes_and_goes() {
    let mut terms = terms();
    let address = |text: &str| Some(text.parse().unwrap());
    let with = |ipv6| NextHops {
        ipv6,
        ..terms.next_hops
    };
    let (none, one, two) = (
        with(None),
        with(address("2001:db8::1")),
        with(address("2001:db8::2")),
    );
    terms.next_hops = none;
    let mut router = Router::default();
    let mut advertiser =
        Advertiser::new(terms, routes(&["10.1.0.1/32", "2001:db8:1::1/128"]), false);
    let mut learned = |advertiser: &mut Advertiser| {
        let before = router.messages;
        router.take_all(advertiser);
        let messages = router.messages - before;
        let hops = router.table.values().map(|it| it.next_hop.to_string());
        (messages, hops.collect::<Vec<_>>())
    };
    // One message for the prefix, and a marker for each family.
    assert_eq!(learned(&mut advertiser), (3, vec!["10.0.0.1".to_owned()]));
    advertiser.set_next_hops(one);
    assert_eq!(advertiser.unsent(), None);
    assert_eq!(learned(&mut advertiser).1, ["10.0.0.1", "2001:db8::1"]);
    advertiser.set_next_hops(two);
    assert_eq!(
        learned(&mut advertiser),
        (1, vec!["10.0.0.1".to_owned(), "2001:db8::2".to_owned()])
    );
    advertiser.set_next_hops(two);
    assert!(!advertiser.is_pending());
    advertiser.set_next_hops(none);
    assert_eq!(learned(&mut advertiser), (1, vec!["10.0.0.1".to_owned()]));
    assert_eq!(
        advertiser.unsent().map(|it| it.why),
        Some(Obstacle::NextHop)
    );
}

fn any_attributes() -> impl Strategy<Value = Arc<Attributes>> {
    let next_hop = prop_oneof![
        3 => Just(None),
        1 => Just(Some(IpAddr::from([10, 9, 9, 9]))),
        1 => Just(Some("2001:db8:9::9".parse().unwrap())),
    ];
    let communities = proptest::collection::btree_set(any::<(u16, u16)>(), 0..80);
    let large = proptest::collection::btree_set(any::<(u32, u32, u32)>(), 0..30);
    (next_hop, any::<Option<u32>>(), communities, large).prop_map(
        |(next_hop, local_preference, communities, large)| {
            Arc::new(Attributes {
                next_hop,
                local_preference,
                communities: communities
                    .into_iter()
                    .map(|it| Community(it.0, it.1))
                    .collect(),
                large_communities: large
                    .into_iter()
                    .map(|it| LargeCommunity(it.0, it.1, it.2))
                    .collect(),
            })
        },
    )
}

fn any_prefix() -> impl Strategy<Value = IpNet> {
    let ipv4 = (0..8_u8, 24..=32_u8)
        .prop_map(|(it, length)| IpNet::new_assert(IpAddr::from([10, 1, 2, it * 32]), length));
    let ipv6 = (0..8_u16, 64..=128_u8).prop_map(|(it, length)| {
        IpNet::new_assert(
            Ipv6Addr::new(0x2001, 0xdb8, 0, it, 0, 0, 0, 0).into(),
            length,
        )
    });
    prop_oneof![ipv4, ipv6].prop_map(|it| it.trunc())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever is desired one after the other, whichever next hops come and go, and however little
    /// of it could be sent between, the router knows in the end what is desired last, and nothing
    /// else.
    #[test]
    fn a_router_knows_in_the_end_what_is_desired_last(
        pool in proptest::collection::vec(any_attributes(), 1..4),
        changes in proptest::collection::vec(
            (
                proptest::collection::btree_map(any_prefix(), any::<Index>(), 0..40),
                any::<bool>(),
                0..6_usize,
                any::<bool>(),
                proptest::option::of(0..3_u16),
            ),
            1..12,
        ),
        internal: bool,
    ) {
        let mut terms = terms();
        if internal {
            terms.style.path = None;
        }
        let mut advertiser = Advertiser::new(terms, Arc::default(), false);
        let mut router = Router::default();
        let mut last = (Arc::default(), false);
        for (wanted, drained, sent, again, address) in changes {
            terms.next_hops.ipv6 = address.map(|it| [0x2001, 0xdb8, 0, 0, 0, 0, 0, it].into());
            advertiser.set_next_hops(terms.next_hops);
            let routes = wanted.iter().map(|(prefix, it)| (*prefix, Arc::clone(it.get(&pool))));
            last = (Arc::new(routes.collect::<Routes>()), drained);
            advertiser.set(Arc::clone(&last.0), drained);
            let planned = |it: &Advertiser| {
                (it.withdraw.clone(), it.announce.clone(), it.unsent.clone())
            };
            let by_change = planned(&advertiser);
            advertiser.plan();
            prop_assert_eq!(by_change, planned(&advertiser), "as worked out from nothing");
            if again {
                advertiser.repeat(drained);
            }
            for message in std::iter::from_fn(|| advertiser.next()).take(sent) {
                router.take(&message);
            }
            prop_assert_eq!(router.table.len(), advertiser.sent());
        }
        router.take_all(&mut advertiser);
        prop_assert_eq!(&router.table, &expected(&last.0, &terms, last.1));
        prop_assert_eq!(router.markers, 2);
        let unsent = advertiser.unsent().map_or(0, |it| it.count);
        prop_assert_eq!(advertiser.sent() + unsent, last.0.len());
        prop_assert_eq!(advertiser.next(), None);
    }
}

#[test]
fn a_router_that_asks_for_all_again_and_again_costs_no_more_than_once() {
    let attributes = Arc::new(Attributes::default());
    let address = |number: u32| Ipv4Addr::from_bits(0x0a00_0000 + number);
    let prefix = |number| IpNet::new_assert(address(number).into(), 32);
    let all = (0..3_000).map(|number| (prefix(number), Arc::clone(&attributes)));
    let mut advertiser = Advertiser::new(terms(), Arc::new(all.collect()), false);
    let mut router = Router::default();
    router.take_all(&mut advertiser);
    let of_all = router.messages - router.markers;
    let began = std::time::Instant::now();
    advertiser.repeat(true);
    let once = began.elapsed();
    let began = std::time::Instant::now();
    for _ in 0..3_000 {
        advertiser.repeat(true);
        advertiser.repeat(false);
    }
    assert!(began.elapsed() < once * 300, "{once:?}");
    let mut again = Router::default();
    again.take_all(&mut advertiser);
    assert_eq!((again.messages, again.table.len()), (of_all, 3_000));
    // What it was sent after it asked is sent again where it asks after that.
    advertiser.repeat(true);
    let first = advertiser.next().unwrap();
    advertiser.repeat(true);
    let mut again = Router::default();
    again.take_all(&mut advertiser);
    assert_eq!((again.messages, again.table.len()), (of_all, 3_000));
    drop(first);
}
