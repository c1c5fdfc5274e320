//! The rows of the specification, except those of BGP and of whole clusters.

/// How a row relates to MetalLB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// The same.
    Same,
    /// Another on purpose.
    Differs,
}

/// A row.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub number: u16,
    /// U: a function; K: an API; N: packets.
    pub kind: char,
    pub name: &'static str,
    pub relation: Relation,
    /// Tests that are not called after the row: the crate, and the name.
    pub tests: &'static [&'static str],
    /// What differs, or what is missing.
    pub note: &'static str,
}

const fn same(number: u16, kind: char, name: &'static str) -> Row {
    Row {
        number,
        kind,
        name,
        relation: Relation::Same,
        tests: &[],
        note: "",
    }
}

const fn differs(number: u16, kind: char, name: &'static str, note: &'static str) -> Row {
    Row {
        relation: Relation::Differs,
        note,
        ..same(number, kind, name)
    }
}

impl Row {
    const fn by(self, tests: &'static [&'static str]) -> Self {
        Self { tests, ..self }
    }

    const fn but(self, note: &'static str) -> Self {
        Self { note, ..self }
    }
}

/// Of objects of every kind, each field that the rules concern.
const ALONE: &str = "xtask what_an_object_alone_shows_to_be_wrong_is_refused_with_the_field";
const SPEAKERS: &str =
    "landfall as_root_another_speaker_answers_when_the_owner_of_an_address_is_gone";

/// The tests that play many rows on a real API server, in the crate `landfall`.
pub const ON_API_SERVER: [(&str, &[u16]); 3] = [
    (
        "rows_of_requests_for_addresses_hold_on_a_real_api_server",
        &[
            1, 2, 3, 4, 5, 8, 9, 10, 11, 13, 14, 15, 16, 17, 26, 28, 29, 44,
        ],
    ),
    (
        "rows_of_pools_that_change_and_of_restarts_hold_on_a_real_api_server",
        &[7, 32, 33, 40, 41, 43, 46, 47],
    ),
    (
        "rows_of_admission_hold_on_a_real_api_server",
        &[79, 80, 81, 82, 83],
    ),
];

pub const ROWS: &[Row] = &[
    same(1, 'K', "allocate-first"),
    same(2, 'K', "range-syntax"),
    same(3, 'K', "host-bits"),
    same(4, 'K', "avoid-buggy"),
    same(5, 'K', "release-on-delete"),
    same(7, 'K', "restart-keeps"),
    same(8, 'K', "explicit-annotation"),
    same(9, 'K', "explicit-spec-field"),
    same(10, 'K', "explicit-both"),
    same(11, 'K', "explicit-outside"),
    same(13, 'K', "explicit-change"),
    differs(
        14,
        'K',
        "explicit-change-bad",
        "a refused change keeps the held address, and the event `LoadBalancerFailed` names the \
         holder; MetalLB takes the held address away first",
    ),
    same(15, 'K', "pool-annotation"),
    same(16, 'K', "pool-annotation-mismatch"),
    same(17, 'K', "deprecated-prefix")
        .but("the warning comes once for a Service, with any of its annotations of the old prefix"),
    same(19, 'K', "pinned-namespace"),
    same(20, 'K', "pinned-service-label"),
    same(21, 'K', "pinned-and"),
    same(22, 'K', "priority"),
    same(23, 'K', "priority-only"),
    differs(
        25,
        'K',
        "deterministic-order",
        "equal pools are used by name; MetalLB takes any",
    ),
    same(26, 'K', "share-ok"),
    same(27, 'K', "share-port-clash"),
    same(28, 'K', "share-proto"),
    same(29, 'K', "share-key-differs"),
    same(31, 'K', "share-etp-flip"),
    same(32, 'K', "dual-require").but(
        "the lowest address of an IPv6 prefix is the anycast address of its routers (RFC \
              4291), and is assigned on request only",
    ),
    same(33, 'K', "dual-require-missing"),
    same(34, 'K', "dual-prefer-choose"),
    same(35, 'K', "dual-prefer-primary"),
    same(37, 'K', "dual-prefer-no-jump"),
    differs(
        38,
        'K',
        "prefer-on-single-stack",
        "one address, and no write after the first; MetalLB gives one, two and none in a loop",
    ),
    same(39, 'K', "require-without-clusterips")
        .but("the reason of the event is `AllocationFailed`; MetalLB's has spaces"),
    same(40, 'K', "pool-deleted"),
    differs(
        41,
        'K',
        "pools-all-deleted",
        "Services keep their addresses while there is no pool at all, and have them when one \
         returns; MetalLB empties each status, and gives other addresses later",
    ),
    same(43, 'K', "pool-shrunk"),
    same(44, 'K', "class"),
    same(45, 'K', "pool-status"),
    differs(
        46,
        'K',
        "no-op-writes",
        "nothing is written for a Service that is as it should be; MetalLB writes its status on \
         each reconcile",
    ),
    differs(
        47,
        'K',
        "foreign-fields",
        "ports and conditions of others stay; MetalLB erases them",
    )
    .by(&[
        "kube what_others_put_into_the_status_stays",
        "kube what_others_put_beside_our_address_stays",
    ]),
    same(48, 'U', "election vectors").by(&[
        "l2 the_hashes_are_those_of_the_specification",
        "l2 the_order_is_that_of_metallb",
        "speaker one_node_announces_an_address_and_it_is_the_one_that_metallb_elects",
    ]),
    same(49, 'N', "arp-answer").by(&[
        "l2 a_kernel_and_arping_find_the_node_that_announces",
        "l2 only_requests_to_this_node_for_its_address_are_answered",
    ]),
    same(50, 'N', "arp-only-owner")
        .by(&["l2 of_three_nodes_only_the_owner_answers_a_thousand_questions"]),
    same(51, 'N', "garp-shape")
        .by(&[
            "l2 gratuitous_arp_has_the_form_and_the_rhythm_of_metallb",
            "l2 an_address_is_announced_at_once_five_times_and_then_every_minute",
            "l2 without_refresh_it_stops_after_the_burst",
        ])
        .but("after the five rounds an address is made known every minute; MetalLB stops"),
    same(52, 'N', "ndp-answer")
        .by(&[
            "l2 a_kernel_and_ndisc6_find_the_node_that_announces",
            "l2 an_answer_goes_to_the_host_that_asks_and_overrides_caches",
        ])
        .but("answers have the flag O, so that neighbours follow a takeover; MetalLB's have not"),
    same(53, 'N', "ndp-unsolicited")
        .by(&["l2 unsolicited_advertisements_have_the_form_and_the_rhythm_of_metallb"]),
    same(55, 'N', "failover-graceful")
        .by(&[SPEAKERS])
        .but("the test prints how long nothing answered; `cargo xtask bench failover` measures it"),
    differs(
        56,
        'N',
        "failover-kill",
        "speakers notice within half a second, MetalLB's after six; the test prints how long \
         nothing answered, `cargo xtask bench failover` measures it",
    )
    .by(&[
        SPEAKERS,
        "l2 a_neighbour_follows_an_address_to_its_next_owner",
    ]),
    same(57, 'N', "local-policy"),
    same(58, 'N', "no-endpoints"),
    same(59, 'N', "exclude-label"),
    same(61, 'N', "node-selectors"),
    same(62, 'N', "interfaces").by(&[
        "l2 an_address_is_answered_on_its_interfaces_only_and_a_change_takes_effect_at_once",
    ]),
    differs(
        63,
        'N',
        "interfaces-missing",
        "a node that has the interface is elected; with MetalLB none announces",
    )
    .by(&["speaker a_node_without_the_interface_of_an_advertisement_is_not_elected_for_it"]),
    same(64, 'N', "excluded-interfaces").by(&[
        "l2 nothing_is_sent_on_interfaces_of_container_networks",
        "l2 excluded_names_do_not_announce",
    ]),
    same(65, 'N', "no-announce-without-ad"),
    same(79, 'K', "webhook-namespace").but(
        "with the optional webhook; without it, objects of other namespaces are not read, and \
         nothing says so",
    ),
    same(80, 'K', "webhook-agg")
        .by(&[
            "metallb a_mistake_in_a_bgp_advertisement_is_refused_with_its_field",
            "metallb an_advertisement_leaves_out_a_pool_of_which_it_would_announce_too_much",
            ALONE,
        ])
        .but(WEBHOOK),
    same(81, 'K', "webhook-community")
        .by(&[
            "metallb a_mistake_in_a_community_is_refused_with_its_field",
            "metallb the_words_that_tools_of_metallb_look_for_are_in_the_messages",
            ALONE,
        ])
        .but(WEBHOOK),
    differs(
        82,
        'K',
        "webhook-bfd-delete",
        "with the optional webhook it is refused as by MetalLB; without it a profile in use can be \
         deleted, and the peer that names it is reported then",
    )
    .by(&["metallb a_peer_without_its_bfd_profile_is_reported_until_the_profile_comes"]),
    same(83, 'K', "webhook-peer")
        .by(&[
            "metallb a_mistake_in_a_peer_is_refused_with_its_field",
            ALONE,
        ])
        .but(WEBHOOK),
    same(85, 'K', "apply-any-order").by(&[
        "metallb the_order_in_which_objects_come_leaves_no_trace",
        "metallb an_advertisement_of_a_pool_that_does_not_exist_waits_for_it",
    ]),
    same(86, 'K', "config-stale")
        .by(&[
            "metallb an_object_that_becomes_invalid_stays_in_force_as_it_was_and_others_change",
            "metallb without_a_community_that_it_names_an_advertisement_is_not_announced_or_stays_\
             as_it_was",
        ])
        .but(
            "the status of the object says so; there is neither a ConfigurationState nor MetalLB's \
              metric",
        ),
    same(87, 'K', "conversion")
        .by(&[
            "metallb the_older_version_of_a_peer_has_its_own_rules",
            "xtask a_peer_in_the_older_version_is_the_same_object_with_all_of_its_fields",
        ])
        .but("the API server converts it, without a webhook: both versions have all fields"),
    same(88, 'K', "crd-diff").by(&[
        "xtask every_field_of_metallb_is_admitted_unchanged_and_defaults_are_its_own",
        "xtask in_the_place_of_metallbs_definitions_no_object_loses_a_field",
    ]),
    same(89, 'K', "helm-values")
        .by(&["xtask values_of_metallbs_chart_that_were_translated_render_the_chart"])
        .but("`landfall adopt metallb --values` translates them; what has no counterpart is named"),
    same(91, 'K', "bgp-status").by(&[
        "landfall as_root_a_router_spreads_connections_over_the_nodes_that_announce_an_address",
        "speaker the_routers_of_a_service_are_written_to_an_object_of_another_kind",
    ]),
    differs(
        92,
        'K',
        "leader-ha",
        "a second controller takes over; MetalLB has one",
    )
    .by(&[
        "landfall killed_leaders_never_make_two_writers_and_every_service_converges",
        "metal another_leader_forgets_nothing_that_is_on_record",
    ]),
    differs(
        93,
        'N',
        "sharing-owner",
        "an address has one owner also where a dual-stack Service and an IPv6 one share it",
    )
    .by(&["l2 an_address_shared_by_a_dual_stack_and_an_ipv6_service_has_one_owner"]),
    same(94, 'N', "preferred"),
    same(95, 'N', "l2-service-selectors")
        .by(&["metal a_sharing_key_and_an_advertisement_that_selects_services_exclude_each_other"]),
    differs(
        97,
        'N',
        "mac-change",
        "a new MAC address is used and made known at once; MetalLB goes on with the old one",
    )
    .by(&["l2 a_new_mac_address_of_the_node_reaches_its_neighbours"]),
    same(98, 'N', "vlan-bridge-bond-vrf")
        .by(&[
            "l2 behind_a_bridge_of_the_node_every_question_is_answered_once",
            "l2 links_that_are_down_parts_of_others_or_without_arp_do_not",
        ])
        .but(
            "played with a bridge; the kernel of the test machines has no VLAN, bond and VRF, for \
              which the rule alone is tested",
        ),
    same(99, 'N', "split-brain"),
    differs(
        100,
        'N',
        "mixed-versions",
        "one owner throughout, with MetalLB's memberlist switched off and `--membership=nodes` \
         meanwhile: Landfall's speakers do not take part in memberlist",
    )
    .by(&[
        "landfall as_root_every_address_is_announced_from_the_node_that_metallb_elected",
        "speaker where_all_nodes_are_taken_for_alive_no_membership_is_asked",
    ]),
    differs(
        101,
        'N',
        "member-key",
        "Landfall's speakers have a membership of their own, sealed with a key of theirs, and do \
         not take part in MetalLB's memberlist; keys are rotated without an interruption",
    )
    .by(&[
        "membership one_that_holds_another_key_is_no_member",
        "membership keys_are_rotated_without_a_datagram_refused",
    ]),
    differs(
        103,
        'N',
        "dup-address",
        "an address is probed before its first use, and conflicts are reported; MetalLB does not \
         look",
    )
    .by(&[
        "l2 an_address_that_a_host_uses_is_reported_and_not_announced_until_it_is_free",
        "l2 a_host_that_takes_an_announced_address_is_reported_and_defended_against",
        "l2 an_operator_can_claim_an_address_that_another_host_has",
    ]),
];

const WEBHOOK: &str = "the API server refuses it by the definition, or by the optional webhook; \
                       without that the controller reports it in the status of the object";
