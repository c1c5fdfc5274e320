//! The rows of kind B of the specification of MetalLB's behaviour: which scenario plays each with
//! which program, and the commit at which it passed.
//!
//! `UPDATE_DOCS=1` plays all of them and writes docs/bgp-conformance.md; `UPDATE_DOCS=bird` plays
//! those with one program, and the results of the others stay.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use landfall_testkit::conformance::{commit, outcomes, without_results};

/// The programs, by the module of their tests and by name.
const PROGRAMS: [(&str, &str); 3] = [("frr", "FRR"), ("bird", "BIRD"), ("gobgp", "GoBGP")];

const SCENARIOS: &str = include_str!("scenarios.rs");

/// A row.
struct Row {
    number: u16,
    name: &'static str,
    /// The scenarios that play it.
    scenarios: &'static [&'static str],
    /// Tests without a router that play it or the rest of it: the file and the function.
    tests: &'static [(&'static str, &'static str)],
    /// What differs from MetalLB, or is not played.
    note: &'static str,
}

const ROUTES: &str = "crates/speaker/tests/it/routes.rs";
const PEERS: &str = "crates/landfall/tests/cluster/peers.rs";
const BFD: &str = "crates/bfd/tests/it/peers.rs";

const ROWS: &[Row] = &[
    Row {
        number: 67,
        name: "routes-follow",
        scenarios: &["routes_of_both_families_appear_change_and_disappear"],
        tests: &[
            (
                ROUTES,
                "every_node_announces_the_address_of_a_service_to_every_router",
            ),
            (
                PEERS,
                "as_root_a_router_spreads_connections_over_the_nodes_that_announce_an_address",
            ),
        ],
        note: "",
    },
    Row {
        number: 68,
        name: "aggregation",
        scenarios: &["routes_of_both_families_appear_change_and_disappear"],
        tests: &[(
            ROUTES,
            "an_aggregate_stays_until_the_last_service_in_it_is_gone",
        )],
        note: "",
    },
    Row {
        number: 69,
        name: "communities",
        scenarios: &["routes_of_both_families_appear_change_and_disappear"],
        tests: &[(
            ROUTES,
            "communities_of_several_advertisements_are_united_for_each_router",
        )],
        note: "",
    },
    Row {
        number: 70,
        name: "localpref",
        scenarios: &["a_router_of_the_same_as_sees_local_preferences"],
        tests: &[],
        note: "Without a value it is 100, as with FRR; MetalLB's own speaker sends 0.",
    },
    Row {
        number: 71,
        name: "peers-filter",
        scenarios: &[],
        tests: &[
            (
                ROUTES,
                "communities_of_several_advertisements_are_united_for_each_router",
            ),
            (
                "crates/speaker/tests/it/explain.rs",
                "each_router_of_a_node_has_a_line_and_a_node_without_one_as_well",
            ),
        ],
        note: "Which prefixes a router gets is decided before the session knows them.",
    },
    Row {
        number: 73,
        name: "ipv6",
        scenarios: &["prefixes_of_both_families_are_announced_over_ipv6"],
        tests: &[],
        note: "",
    },
    Row {
        number: 74,
        name: "md5",
        scenarios: &[
            "a_password_lets_a_session_come_up_and_can_be_changed_in_it",
            "a_wrong_password_keeps_a_session_down_with_its_reason",
        ],
        tests: &[(
            PEERS,
            "as_root_a_router_spreads_connections_over_the_nodes_that_announce_an_address",
        )],
        note: "",
    },
    Row {
        number: 75,
        name: "reject-inbound",
        scenarios: &["a_thousand_received_routes_are_counted"],
        tests: &[],
        note: "",
    },
    Row {
        number: 76,
        name: "local-etp",
        scenarios: &[],
        tests: &[(
            ROUTES,
            "a_node_that_can_not_deliver_announces_nothing_and_has_a_reason",
        )],
        note: "",
    },
    Row {
        number: 77,
        name: "wrong-as",
        scenarios: &["another_as_is_refused_by_either_side_with_its_reason"],
        tests: &[],
        note: "MetalLB closes the connection without a NOTIFICATION.",
    },
    Row {
        number: 104,
        name: "bfd",
        scenarios: &[],
        tests: &[
            (
                BFD,
                "frr_and_we_see_each_other_in_both_families_and_find_a_cut",
            ),
            (
                BFD,
                "frr_reaches_us_over_several_hops_and_as_the_passive_side",
            ),
            (BFD, "frr_and_we_return_each_other_s_echoes"),
            (
                BFD,
                "bird_and_we_see_each_other_in_both_families_and_find_a_cut",
            ),
            (
                BFD,
                "bird_and_we_authenticate_each_other_and_a_wrong_key_is_named",
            ),
            (
                PEERS,
                "as_root_a_router_spreads_connections_over_the_nodes_that_announce_an_address",
            ),
        ],
        note: "GoBGP has no BFD.",
    },
    Row {
        number: 105,
        name: "gr",
        scenarios: &["a_restart_keeps_routes_where_it_is_agreed_and_withdraws_them_otherwise"],
        tests: &[],
        note: "",
    },
    Row {
        number: 106,
        name: "vrf, unnumbered, dynamic-asn, local-asn, connect-time",
        scenarios: &[
            "a_session_is_made_through_the_device_of_its_vrf_alone",
            "a_link_without_addresses_carries_routes_of_both_families",
            "another_as_is_refused_by_either_side_with_its_reason",
        ],
        tests: &[],
        note: "Unnumbered sessions and VRF with FRR only. The kernel of the tests has no VRF: the \
               socket is bound to another device in the same way.",
    },
    Row {
        number: 107,
        name: "dualstack-af",
        scenarios: &[
            "prefixes_of_both_families_are_announced_over_ipv6",
            "next_hops_of_the_other_family_follow_the_addresses_of_the_interface",
        ],
        tests: &[],
        note: "Only FRR is without next hops of IPv6 for IPv4 (RFC 8950).",
    },
    Row {
        number: 109,
        name: "router-restart",
        scenarios: &["a_router_that_restarts_has_all_routes_again"],
        tests: &[],
        note: "",
    },
    Row {
        number: 110,
        name: "route-refresh",
        scenarios: &["a_router_that_asks_gets_all_routes_again"],
        tests: &[],
        note: "GoBGP never asks: it keeps what it received.",
    },
    Row {
        number: 111,
        name: "two-peers-one-node, same-peer-two-ASN",
        scenarios: &[],
        tests: &[
            (
                ROUTES,
                "every_node_announces_the_address_of_a_service_to_every_router",
            ),
            (ROUTES, "one_router_is_met_with_another_as_from_each_node"),
        ],
        note: "",
    },
    Row {
        number: 112,
        name: "drain",
        scenarios: &["a_drained_node_asks_for_other_paths"],
        tests: &[
            (
                ROUTES,
                "a_node_that_is_cordoned_or_about_to_go_asks_routers_to_prefer_others",
            ),
            (
                PEERS,
                "as_root_a_router_spreads_connections_over_the_nodes_that_announce_an_address",
            ),
        ],
        note: "MetalLB withdraws at once.",
    },
    Row {
        number: 113,
        name: "10k prefixes",
        scenarios: &["ten_thousand_prefixes_take_few_messages"],
        tests: &[(
            ROUTES,
            "of_many_services_a_change_of_one_changes_one_route_of_each_router",
        )],
        note: "",
    },
];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page() -> PathBuf {
    workspace().join("docs/bgp-conformance.md")
}

/// The scenarios that are played with a program.
fn played_with(program: &str) -> Vec<&'static str> {
    let module = format!("mod {program} {{");
    let (_, rest) = SCENARIOS.split_once(&module).unwrap();
    let (list, _) = rest.split_once(");").unwrap();
    list.lines().map(str::trim).collect()
}

/// Plays the scenarios with programs, and returns which passed.
fn play(programs: &str) -> BTreeMap<(String, String), bool> {
    let mut played = BTreeMap::new();
    for (program, _) in PROGRAMS {
        if programs != "1" && !programs.split(',').any(|it| it == program) {
            continue;
        }
        let output = Command::new(env!("CARGO"))
            .args(["test", "--locked", "--no-fail-fast", "-p", "landfall-bgp"])
            .args(["--test", "it", "--", &format!("scenarios::{program}::")])
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        for (path, passed) in outcomes(&printed) {
            let scenario = path.rsplit("::").next().unwrap_or_default();
            played.insert((program.to_owned(), scenario.to_owned()), passed);
        }
    }
    played
}

fn text(result: impl Fn(&str, &str, &str) -> String) -> String {
    let mut text = String::from(
        "<!-- Written by crates/bgp/tests/it/conformance.rs; do not edit. -->\n\
        # Conformance of BGP\n\n\
        What speakers do with BGP and BFD, in comparison with MetalLB: each row is a behaviour of\n\
        MetalLB, with the scenarios that play it with FRR, BIRD and GoBGP as the router, in\n\
        network namespaces, and the commit at which each passed; then the tests without a router,\n\
        and the differences.\n",
    );
    for (program, name) in PROGRAMS {
        let here = played_with(program);
        write!(
            text,
            "\n## {name}\n\n| | row | scenario | result |\n|---|---|---|---|\n"
        )
        .unwrap();
        for row in ROWS {
            for scenario in row.scenarios.iter().filter(|it| here.contains(it)) {
                let said = scenario.replace('_', " ");
                let line = format!("| {} | {} | {name}: {said}", row.number, row.name);
                let result = result(program, scenario, &line);
                writeln!(text, "{line} | {result} |").unwrap();
            }
        }
    }
    text.push_str("\n## Other tests\n\n| | row | test |\n|---|---|---|\n");
    for row in ROWS {
        for (file, test) in row.tests {
            let said = test.trim_start_matches("as_root_").replace('_', " ");
            let of = file.split('/').nth(1).unwrap_or_default();
            writeln!(text, "| {} | {} | {of}: {said} |", row.number, row.name).unwrap();
        }
    }
    text.push_str("\n## Differences and gaps\n\n| | row | |\n|---|---|---|\n");
    for row in ROWS.iter().filter(|row| !row.note.is_empty()) {
        writeln!(text, "| {} | {} | {} |", row.number, row.name, row.note).unwrap();
    }
    text
}

#[test]
fn each_row_is_played_and_the_page_lists_the_results() {
    let earlier = fs::read_to_string(page()).unwrap_or_default();
    if let Ok(programs) = env::var("UPDATE_DOCS") {
        let (played, commit) = (play(&programs), commit());
        let before: BTreeMap<&str, &str> = earlier
            .lines()
            .filter_map(|line| line.strip_suffix(" |")?.rsplit_once(" | "))
            .collect();
        let result = |program: &str, scenario: &str, line: &str| {
            let of_it = (program.to_owned(), scenario.to_owned());
            match (played.get(&of_it), before.get(line)) {
                (Some(true), _) => format!("passed, {commit}"),
                (Some(false), _) => "failed".to_owned(),
                (None, Some(earlier)) => (*earlier).to_owned(),
                (None, None) => "not run".to_owned(),
            }
        };
        fs::write(page(), text(result)).unwrap();
    }
    for row in ROWS {
        assert!(
            !row.scenarios.is_empty() || !row.tests.is_empty(),
            "nothing plays row {}",
            row.number
        );
        for scenario in row.scenarios {
            let programs = PROGRAMS.iter();
            let programs = programs.filter(|it| played_with(it.0).contains(scenario));
            assert!(programs.count() > 0, "{scenario} is played with no program");
        }
        for (file, test) in row.tests {
            let source = fs::read_to_string(workspace().join(file)).unwrap();
            assert!(
                source.contains(&format!("fn {test}()")),
                "there is no test {test} in {file}"
            );
        }
    }
    let page = fs::read_to_string(page()).unwrap();
    let expected = text(|_, _, _| String::new());
    assert_eq!(
        without_results(&page),
        without_results(&expected),
        "UPDATE_DOCS=1"
    );
}
