//! Clients that misuse one Service in every way that is known, beside Services of every kind.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use landfall_model::view::ServiceView;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;

use super::abuse::{Abuse, Misused};
use super::victims::{Holding, Kind, Victims};
use crate::client;
use crate::lab::{DEADLINE, LOOK, Lab};
use crate::shortage::limited_to;

/// Few enough to be used up by a crowd.
const FILES: u32 = 1024;

/// Clients of each abuse,
const CLIENTS: usize = 60;

/// and of those that cost processor time, of which a program that was built for tests needs much.
const BUSY_CLIENTS: usize = 10;

/// Exchanges with each victim under each abuse.
const EXCHANGES: usize = 3;

/// More descriptors than before that may be kept for later: spare sockets and idle connections to
/// members.
const KEPT: usize = 64;

/// How long idle connections to members are kept for later requests.
const IDLE: Duration = Duration::from_secs(30);

/// More memory than before that may be kept, in KiB, after all of it.
const KEPT_MEMORY: u64 = 64 * 1024;

/// More lines than all of it may cost.
const LINES: usize = 300;

/// More bytes than a log of all of it may have.
const LOGGED: usize = 16 * 1024;

/// Rounds of what libraries complain of.
const COMPLAINTS: usize = 40;

/// A TLS hello that asks for a name.
fn hello(name: &[u8]) -> Vec<u8> {
    let length = |bytes: usize| u16::try_from(bytes).unwrap().to_be_bytes();
    let mut names = [&length(name.len() + 3)[..], &[0], &length(name.len()), name].concat();
    names = [&[0, 0][..], &length(names.len()), &names].concat();
    // Groups, signatures, versions, and a key of zeros.
    names.extend([0, 10, 0, 4, 0, 2, 0, 29, 0, 13, 0, 4, 0, 2, 4, 3]);
    names.extend([0, 43, 0, 3, 2, 3, 4, 0, 51, 0, 38, 0, 36, 0, 29, 0, 32]);
    names.extend([9; 32]);
    let mut body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0]].concat();
    body.extend(length(names.len()));
    body.extend(names);
    let message = [&[1, 0][..], &length(body.len()), &body].concat();
    [&[22, 3, 1][..], &length(message.len()), &message].concat()
}

/// Clients that misuse a Service until this is dropped.
fn misusing(abuse: Abuse, targets: super::abuse::Targets, from: &[IpAddr]) -> JoinSet<()> {
    let mut clients = JoinSet::new();
    let count = if abuse.is_busy() {
        BUSY_CLIENTS
    } else {
        CLIENTS
    };
    for number in 0..count {
        clients.spawn(abuse.go_on(targets, from[number % from.len()]));
    }
    clients
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_clients_do_to_one_service_clients_of_others_are_served() {
    let mut lab = Lab::new();
    let victims = Victims::set(&lab).await;
    let misused = Misused::set(&lab, "misused", "2s").await;
    victims.one_of_each(&lab);
    lab.write("misused.yaml", misused.manifest());
    lab.start_with(|command| limited_to(command, FILES)).await;
    let targets = misused.targets(&lab, "misused").await;
    let served = Victims::targets(&lab).await;
    let own = lab.ranges.client(1);
    let from: Vec<IpAddr> = (10..40).map(|last| lab.ranges.client(last)).collect();
    for (kind, target) in &served {
        victims.exchange(*kind, own, *target).await.unwrap();
    }
    let before = Holding::of(lab.pid());

    for abuse in Abuse::ALL {
        let refused = abuse.refused(&lab).await;
        let mut clients = misusing(abuse, targets, &from);
        tokio::time::sleep(Duration::from_millis(300)).await;
        abuse.reached(&lab, refused).await;
        for _ in 0..EXCHANGES {
            for (kind, target) in &served {
                let outcome = victims.exchange(*kind, own, *target).await;
                assert_eq!(outcome, Ok(()), "{abuse:?} against {kind:?}");
            }
            let health = client::http(lab.admin(), "/healthz").await.unwrap();
            assert_eq!(health.status, 200, "{abuse:?}");
        }
        let most = Holding::of(lab.pid());
        eprintln!("{abuse:?}: {most:?}");
        assert!(most.files < FILES as usize - 100, "{abuse:?}: {most:?}");
        clients.shutdown().await;
        // All is given back, at the latest when what was idle has ended.
        let began = Instant::now();
        while Holding::of(lab.pid()).files > before.files + KEPT {
            let now = Holding::of(lab.pid());
            let late = began.elapsed() > IDLE + DEADLINE;
            assert!(!late, "{abuse:?}: {now:?}, {before:?}");
            tokio::time::sleep(LOOK).await;
        }
    }
    let after = Holding::of(lab.pid());
    assert!(
        after.resident < before.resident + KEPT_MEMORY,
        "{after:?}, before {before:?}"
    );
    let none_open = |service: &ServiceView| service.listeners.iter().all(|it| it.traffic.open == 0);
    lab.until("rude/misused", "has no client", none_open).await;
    let log = lab.log();
    assert!(log.len() < LINES, "{} lines", log.len());
    let of_library = log.iter().filter(|line| line.to_string().contains("recv_"));
    assert_eq!(
        of_library.count(),
        0,
        "a client makes the HTTP/2 library log"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn six_clients_whose_windows_never_open_leave_descriptors_to_others() {
    let mut lab = Lab::new();
    let victims = Victims::set(&lab).await;
    // They may stay as long as they want.
    let misused = Misused::set(&lab, "misused", "10m").await;
    victims.one_of_each(&lab);
    lab.write("misused.yaml", misused.manifest());
    lab.start_with(|command| limited_to(command, FILES)).await;
    let targets = misused.targets(&lab, "misused").await;
    let served = Victims::targets(&lab).await;
    let own = lab.ranges.client(1);
    let mut clients = JoinSet::new();
    for last in 10..16 {
        clients.spawn(Abuse::ClosedWindows.go_on(targets, lab.ranges.client(last)));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    for _ in 0..EXCHANGES {
        for (kind, target) in &served {
            let outcome = victims.exchange(*kind, own, *target).await;
            assert_eq!(outcome, Ok(()), "{kind:?}");
        }
        lab.text("/healthz").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_to_the_admin_endpoint_keep_no_probe_and_no_person_out() {
    let lab = Lab::new().started().await;
    let mut idle = Vec::new();
    for _ in 0..400 {
        idle.push(client::connect(lab.admin()).await.unwrap());
    }
    for path in ["/healthz", "/readyz", "/metrics", "/api/v1/instance"] {
        lab.text(path).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_clients_do_to_libraries_fills_no_log() {
    let mut lab = Lab::new();
    let victims = Victims::set(&lab).await;
    victims.one_of_each(&lab);
    // As the chart and the manifests have it.
    lab.start_with(|command| {
        command.env("LANDFALL_LOG", "info");
    })
    .await;
    let served = Victims::targets(&lab).await;
    let of = |wanted| served.iter().find(|(kind, _)| *kind == wanted).unwrap().1;
    let (tls, http) = (of(Kind::Tls), of(Kind::Http));
    let before = lab.log().len();
    for _ in 0..COMPLAINTS {
        for name in [&b"192.0.2.1"[..], &[0xff; 10_000]] {
            let mut stream = client::connect(tls).await.unwrap();
            stream.write_all(&hello(name)).await.unwrap();
            // It is answered, by whatever.
            stream.read_u8().await.unwrap();
        }
        let mut stream = client::connect(http).await.unwrap();
        let answers: Vec<u8> = [0, 0, 8, 6, 1, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8].repeat(500);
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        let all = [&preface[..], &settings, &answers].concat();
        stream.write_all(&all).await.unwrap();
        stream.read_u8().await.unwrap();
    }
    // What is logged last is there when this is.
    let last = victims.service("last", Kind::Stream);
    lab.write("last.yaml", &last.yaml());
    lab.ready("default/last").await;
    let log = lab.log().split_off(before);
    let bytes: usize = log.iter().map(|line| line.to_string().len()).sum();
    assert!(bytes < LOGGED, "{bytes} bytes, of which {:?}", log.first());
}
