//! The memory of rows that wait to be read, packed and as they are: 100,000 Services and as many
//! EndpointSlices of three endpoints, in the resident memory that holding them adds.
//!
//! `cargo bench -p landfall-engine --bench rows`. See docs/decisions/0011-packed-rows.md.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement")]

use std::hint::black_box;

use landfall_model::rows::{PackedService, PackedSlice, ServiceRow, SliceRow};
use landfall_model::wire;
use serde_json::json;

const ROWS: usize = 100_000;

/// Resident memory of this process in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<usize>()
        .unwrap()
        * 1024
}

/// Holds `ROWS` of what `make` returns, and returns the bytes of resident memory for each.
fn bytes_each<T>(make: impl Fn(usize) -> T) -> f64 {
    let before = resident();
    let held: Vec<T> = (0..ROWS).map(make).collect();
    let after = resident();
    black_box(&held);
    // Not freed: a later measurement must not find its memory here.
    std::mem::forget(held);
    #[expect(clippy::cast_precision_loss, reason = "a measurement")]
    let each = (after - before) as f64 / ROWS as f64;
    each
}

fn service(number: usize) -> ServiceRow {
    let json = json!({
        "metadata": {
            "name": format!("web-{number}"), "namespace": "default",
            "uid": format!("0b5d0f4c-8a3e-4d0c-9f1e-{number:012x}"),
            "resourceVersion": (1000 + number).to_string(),
            "creationTimestamp": "2026-11-21T10:00:00Z",
            "labels": {"app": format!("web-{number}"), "team": format!("team-{}", number % 50)},
        },
        "spec": {
            "type": "LoadBalancer", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "selector": {"app": format!("web-{number}")},
            "ports": [{"name": "http", "port": 8080, "targetPort": 8000, "protocol": "TCP"}],
        },
        "status": {"loadBalancer": {}},
    });
    let shape: wire::Service = serde_json::from_str(&json.to_string()).unwrap();
    shape.into_row().unwrap()
}

fn slice(number: usize) -> SliceRow {
    let endpoint = |index: usize| {
        json!({
            "addresses": [format!("10.{index}.{}.{}", number / 256 % 256, number % 256)],
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "nodeName": format!("node-{}", (number + index) % 500),
            "targetRef": {"kind": "Pod", "name": format!("web-{number}-{index}")},
        })
    };
    let json = json!({
        "metadata": {
            "name": format!("web-{number}-1"), "namespace": "default",
            "resourceVersion": (20_000 + number).to_string(),
            "labels": {"kubernetes.io/service-name": format!("web-{number}")},
        },
        "addressType": "IPv4",
        "endpoints": [endpoint(0), endpoint(1), endpoint(2)],
        "ports": [{"name": "http", "port": 8000, "protocol": "TCP"}],
    });
    let shape: wire::EndpointSlice = serde_json::from_str(&json.to_string()).unwrap();
    shape.into_row().unwrap()
}

fn main() {
    println!("Resident bytes for each of {ROWS} rows:");
    for (name, packed, plain) in [
        (
            "Service",
            bytes_each(|number| PackedService::of(&service(number))),
            bytes_each(service),
        ),
        (
            "EndpointSlice",
            bytes_each(|number| PackedSlice::of(&slice(number))),
            bytes_each(slice),
        ),
    ] {
        println!(
            "{name:14} packed {packed:6.0}   plain {plain:6.0}   {:4.1}x",
            plain / packed
        );
    }
}
