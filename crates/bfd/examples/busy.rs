//! How often sessions end although their way works, while all cores are busy: two systems in
//! network namespaces, 8 sessions between them at 3 x 50 ms, and four times as many threads that
//! compute as there are cores. Prints figures and validates nothing; as root.
//!
//! `cargo xtask bench bfd`, or `cargo run -p landfall-bfd --example busy -- SECONDS`

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a program for developers, which prints"
)]

#[path = "../tests/it/lab.rs"]
#[expect(dead_code, reason = "tests use all of it")]
mod lab;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lab::{Host, NO_DETECTION, sh};
use landfall_bfd::driver::{Config, Monitor, Snapshot};
use landfall_bfd::packet::State;
use landfall_bfd::session::Settings;
use landfall_bfd::table::{Path, Wanted};
use landfall_testkit::namespace::{inside, is_entered};

const SESSIONS: u8 = 8;
const INTERVAL: Duration = Duration::from_millis(50);
const SECONDS: u64 = 60;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if !is_entered() {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let status = inside(&arguments, NO_DETECTION)
            .status()
            .expect("unshare, of util-linux");
        std::process::exit(status.code().unwrap_or(1));
    }
    let seconds = arguments.first().map_or(SECONDS, |it| it.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let host = Host::neighbor();
        for number in 1..=SESSIONS {
            sh(&format!("ip address add 10.1.{number}.1/24 dev eth0"));
            host.sh(&format!("ip address add 10.1.{number}.2/24 dev eth0"));
        }
        let cores = std::thread::available_parallelism().unwrap().get();
        println!("{SESSIONS} sessions, 3 x {INTERVAL:?}, {cores} cores, {seconds} s each");
        println!("priority     threads  scheduling  packets  detections  per session and hour");
        for priority in [Config::default().priority, None] {
            for busy in [0, 4 * cores] {
                run(&host, Config { priority }, busy, seconds).await;
            }
        }
    });
}

async fn run(host: &Host, config: Config, busy: usize, seconds: u64) {
    let (one, _events) = Monitor::start(config).unwrap();
    let (other, _others) = host.within(move || Monitor::start(config)).unwrap();
    one.set(wanted(2));
    other.set(wanted(1));
    let is_up = |it: &Snapshot| {
        let mut sessions = it.sessions.values();
        it.sessions.len() == usize::from(SESSIONS)
            && sessions.all(|it| it.session.state == State::Up)
    };
    lab::until("sessions come up", || {
        is_up(&one.snapshot()) && is_up(&other.snapshot())
    })
    .await;
    let stop = Arc::new(AtomicBool::new(false));
    let compute = |stop: Arc<AtomicBool>| {
        let mut number = 1_u64;
        while !stop.load(Ordering::Relaxed) {
            number = std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005));
        }
    };
    let threads: Vec<_> = (0..busy)
        .map(|_| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || compute(stop))
        })
        .collect();
    let start = Instant::now();
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let (mut packets, mut downs) = (0, 0);
    for snapshot in [one.snapshot(), other.snapshot()] {
        for status in snapshot.sessions.values() {
            packets += status.counters.control_in;
            downs += status.counters.downs;
        }
    }
    let hours = start.elapsed().as_secs_f64() / 3_600.0 * f64::from(SESSIONS);
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
    println!(
        "{:<11}  {busy:>7}  {:<10}  {packets:>7}  {downs:>10}  {:>20.1}",
        config
            .priority
            .map_or("none".to_owned(), |it| it.to_string()),
        format!("{:?}", one.snapshot().scheduling),
        downs as f64 / hours,
    );
    one.stop();
    other.stop();
}

fn wanted(end: u8) -> Wanted {
    let settings = Settings {
        transmit_interval: INTERVAL,
        receive_interval: INTERVAL,
        ..Settings::default()
    };
    let path = |number| Path::to([10, 1, number, end].into());
    (1..=SESSIONS)
        .map(|number| (path(number), settings.clone()))
        .collect()
}
