//! Fills a /16 and prints what that costs, beside a naive first-fit scan over the same addresses.
//!
//! `cargo bench -p landfall-ipam --bench fill`. A program, not a timed test. The allocator goes the
//! whole way of a new Service each time: propose, claim, and the claim written down under its
//! identity. The scan does the least that a first-fit allocator can: it looks from the first
//! address on for one that is not in a hash map of holders, and enters it. Its cost is quadratic:
//! it fills a quarter of the /16, and prints sixteen times its time as that of the whole.

#![expect(clippy::print_stdout, reason = "a benchmark's output is its purpose")]
#![expect(
    clippy::unwrap_used,
    reason = "a benchmark may stop at the first surprise"
)]

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use landfall_ipam::{
    Addresses, Allocator, BackendKey, Claimant, Pool, PoolSet, PoolSpec, Request, SharingKey,
    Terms, WantedFamilies,
};
use landfall_model::rows::Family;
use landfall_model::{ListenerKey, Protocol, ServiceKey, Uid};

const ADDRESSES: usize = 65_536;
const SCANNED: usize = ADDRESSES / 4;
const RUNS: usize = 5;
const FIRST: u32 = u32::from_be_bytes([10, 0, 0, 0]);

fn main() {
    println!("fill a /16, {ADDRESSES} Services, best of {RUNS} runs (the scan: one run)");
    let plain: Vec<Request> = (0..ADDRESSES).map(|number| request(number, None)).collect();
    let keyed: Vec<Request> = (0..ADDRESSES)
        .map(|number| request(number, Some("k")))
        .collect();

    let before = resident();
    let first = fill(&plain);
    let after = resident();
    drop(first);
    let (time, filled) = best(&plain);
    report("allocator, no sharing keys", time, ADDRESSES);
    let (keyed_fill, _) = best(&keyed);
    report(
        "allocator, one sharing key, one port, so no Service fits",
        keyed_fill,
        ADDRESSES,
    );
    churn(filled.clone(), &plain);

    let scan = scan();
    report("first-fit scan, measured over a /18", scan, SCANNED);
    let scan = scan * 16;
    report(
        "first-fit scan of the /16, extrapolated from that",
        scan,
        ADDRESSES,
    );
    println!(
        "ratio scan (extrapolated) / allocator: {:.0}",
        scan.as_secs_f64() / time.as_secs_f64()
    );

    println!(
        "bytes of the bitmap part: {} (limit {})",
        filled.slot_bytes(),
        1 << 20
    );
    if let (Some(before), Some(after)) = (before, after) {
        let each = (after.saturating_sub(before)) / ADDRESSES;
        println!("resident bytes per claim, all maps included: {each}");
    }
    let verdict = |good| if good { "kept" } else { "MISSED" };
    println!(
        "limit of 100 ms: {}",
        verdict(time < Duration::from_millis(100))
    );
    println!(
        "limit of 1 MiB: {}",
        verdict(filled.slot_bytes() <= 1 << 20)
    );
}

fn best(requests: &[Request]) -> (Duration, Allocator) {
    let mut runs: Vec<(Duration, Allocator)> = (0..RUNS).map(|_| fill(requests)).collect();
    runs.sort_by_key(|(time, _)| *time);
    runs.swap_remove(0)
}

fn fill(requests: &[Request]) -> (Duration, Allocator) {
    let pool = Pool::parse(&PoolSpec::new("a", ["10.0.0.0/16"])).unwrap();
    let mut allocator = Allocator::new(PoolSet::new(vec![pool]).unwrap());
    let start = Instant::now();
    for request in requests {
        let proposal = allocator.propose(request).unwrap();
        allocator.claim(request, &proposal).unwrap();
    }
    let time = start.elapsed();
    let expected = |number: usize| Addresses::from(std::net::IpAddr::from(address(number)));
    for (number, request) in requests.iter().enumerate() {
        let held = allocator.held(&request.claimant.uid).unwrap();
        assert_eq!(held.addresses, expected(number));
    }
    (time, allocator)
}

/// In the full pool: one Service goes and another comes, in its place.
fn churn(mut allocator: Allocator, requests: &[Request]) {
    let newcomer = request(ADDRESSES, None);
    let start = Instant::now();
    for request in requests.iter().step_by(7) {
        allocator.release(&request.claimant.uid).unwrap();
        let proposal = allocator.propose(&newcomer).unwrap();
        allocator.claim(&newcomer, &proposal).unwrap();
        allocator.release(&newcomer.claimant.uid).unwrap();
        let proposal = allocator.propose(request).unwrap();
        allocator.claim(request, &proposal).unwrap();
    }
    let rounds = requests.len().div_ceil(7);
    report(
        "allocator, full pool, release and claim, twice",
        start.elapsed(),
        rounds,
    );
}

fn scan() -> Duration {
    let names: Vec<String> = (0..SCANNED)
        .map(|number| format!("default/s{number}"))
        .collect();
    let mut holders: HashMap<Ipv4Addr, &str> = HashMap::new();
    let start = Instant::now();
    for name in &names {
        let free = (0..SCANNED)
            .map(address)
            .find(|address| !holders.contains_key(address));
        holders.insert(free.unwrap(), name);
    }
    let time = start.elapsed();
    assert_eq!(holders.len(), SCANNED);
    time
}

/// Resident bytes of this process, where the system reports it.
fn resident() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim()
        .strip_suffix(" kB")?
        .parse::<usize>()
        .ok()
        .map(|kib| kib * 1024)
}

fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(FIRST + number as u32)
}

fn request(number: usize, key: Option<&str>) -> Request {
    let port = ListenerKey {
        protocol: Protocol::Tcp,
        port: 443.try_into().unwrap(),
    };
    let claimant = Claimant {
        uid: Uid::new(&format!("8f0c5b9e-0000-4000-8000-{number:012}")),
        service: ServiceKey::new("default", &format!("s{number}")),
        terms: Terms {
            key: key.and_then(SharingKey::new),
            backend: BackendKey::Cluster,
            ports: [port].into(),
        },
    };
    Request::new(claimant, WantedFamilies::Only(Family::V4))
}

fn report(what: &str, time: Duration, operations: usize) {
    let each = time.as_secs_f64() * 1e9 / operations as f64;
    println!(
        "{what:54} {:>9.1} ms {each:>9.0} ns each",
        time.as_secs_f64() * 1e3
    );
}
