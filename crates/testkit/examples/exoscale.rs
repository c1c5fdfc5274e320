//! A simulated Exoscale on loopback, for clients of any kind.
//!
//!     cargo run -p landfall-testkit --features exoscale --example exoscale [PORT]
//!
//! It prints the environment for a client, and runs until it is stopped.

#![expect(
    clippy::print_stdout,
    reason = "a program that prints what it was asked for"
)]

use std::net::Ipv4Addr;

use landfall_testkit::exoscale::{KEY, SECRET, Sim, ZONE};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port = std::env::args().nth(1).map(|port| port.parse());
    let sim = Sim::new();
    let pool = sim.add_pool("web");
    for number in 1..=2 {
        let ip = Ipv4Addr::new(192, 0, 2, number);
        sim.add_instance(&format!("web-{number}"), ip, Some(&pool));
    }
    let served = sim.serve(port.transpose()?.unwrap_or(0)).await?;
    println!("EXOSCALE_API_ENDPOINT={}", served.endpoint);
    println!("EXOSCALE_API_KEY={KEY}");
    println!("EXOSCALE_API_SECRET={SECRET}");
    println!("EXOSCALE_API_ZONE={ZONE}");
    println!("INSTANCE_POOL={pool}");
    std::future::pending().await
}
