//! Random input for what reads the network or files: more of the cases that the tests begin with.

use std::time::Duration;

use anyhow::Context as _;
use clap::Args;

use crate::cargo::cargo;
use crate::place::Place;
use crate::stage::Stages;

/// Help of `fuzz`.
pub const HELP: &str = "\
Targets: http1-requests, http1-responses, chunked-bodies, http1-connections, http2-frames,
http2-members, proxy-headers, tls-hellos, manifests, arp-ndp-frames, bfd-packets, bgp-messages,
bgp-sessions, membership-datagrams, membership-packets. Each runs in a process of its own, whose
memory must not grow. `cargo test` runs the first 3,000 cases of each. A case that fails is printed;
repeat it with --target, --seed and --first, and --cases 1.";

/// Each target, the crate that has it, and the test that it is.
const TARGETS: [(&str, &str, &str); 15] = [
    ("http1-requests", "proxy", "http::fuzz::fuzz_http1_requests"),
    (
        "http1-responses",
        "proxy",
        "http::fuzz::fuzz_http1_responses",
    ),
    ("chunked-bodies", "proxy", "http::fuzz::fuzz_chunked_bodies"),
    (
        "http1-connections",
        "proxy",
        "http::fuzz::fuzz_http1_connections",
    ),
    ("http2-frames", "proxy", "http::fuzz::fuzz_http2_frames"),
    (
        "http2-members",
        "proxy",
        "http::upstream::fuzz::fuzz_http2_members",
    ),
    (
        "proxy-headers",
        "proxy",
        "proxy_protocol::fuzz::fuzz_proxy_headers",
    ),
    ("tls-hellos", "proxy", "tls::fuzz::fuzz_tls_hellos"),
    ("manifests", "files", "manifest::fuzz::fuzz_manifests"),
    ("arp-ndp-frames", "l2", "fsm::fuzz::fuzz_frames"),
    ("bfd-packets", "bfd", "session::fuzz::fuzz_packets"),
    (
        "membership-datagrams",
        "membership",
        "machine::fuzz::fuzz_datagrams",
    ),
    (
        "membership-packets",
        "membership",
        "machine::fuzz::fuzz_packets",
    ),
    ("bgp-messages", "bgp", "session::fuzz::fuzz_messages"),
    ("bgp-sessions", "bgp", "session::fuzz::fuzz_sessions"),
];

/// A target that takes longer hangs.
const DEADLINE: Duration = Duration::from_hours(6);

/// `fuzz`
#[derive(Debug, Args)]
pub struct FuzzArgs {
    /// Cases of each target
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    cases: u64,
    /// Only this target; may be repeated
    #[arg(long, value_name = "NAME", value_parser = TARGETS.map(|(name, _, _)| name))]
    target: Vec<String>,
    /// The number of the first case
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    first: u64,
    /// Where the cases come from; that of the tests if left out
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
}

/// Runs the targets one after the other, up to the first that fails.
pub async fn run(place: &Place, args: &FuzzArgs) -> anyhow::Result<()> {
    let wanted = |name| args.target.is_empty() || args.target.iter().any(|target| target == name);
    let targets = TARGETS.iter().filter(|&&(name, _, _)| wanted(name));
    let mut stages = Stages::new(targets.clone().count());
    for (name, package, test) in targets {
        let package = format!("landfall-{package}");
        let line = [
            "test",
            "--locked",
            "--profile",
            "fuzz",
            "-p",
            &package,
            "--lib",
        ];
        let filter = ["--", "--exact", test, "--nocapture"];
        let mut command = cargo(place, &[&line[..], &filter[..]].concat());
        command
            .env("LANDFALL_FUZZ_CASES", args.cases.to_string())
            .env("LANDFALL_FUZZ_FIRST", args.first.to_string());
        if let Some(seed) = args.seed {
            command.env("LANDFALL_FUZZ_SEED", seed.to_string());
        }
        stages
            .run(name, DEADLINE, &mut command)
            .await
            .with_context(|| format!("the case of {name} that failed is printed above"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_target_is_a_test() {
        let place = Place::find().unwrap();
        for (name, package, test) in TARGETS {
            let (module, function) = test.rsplit_once("::").unwrap();
            let path = format!("crates/{package}/src/{}.rs", module.replace("::", "/"));
            let source = fs::read_to_string(place.root.join(&path)).unwrap();
            assert!(
                source.contains(&format!("fn {function}()")),
                "{path}: {function}"
            );
            assert!(
                source.contains(&format!("run(\"{name}\"")),
                "{path}: {name}"
            );
        }
    }
}
