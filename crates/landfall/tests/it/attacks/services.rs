//! Services of one tenant that want too much, beside a Service of another.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use landfall_model::reason::Code;
use landfall_model::view::{Health, ServiceView};
use tokio::net::{TcpListener, TcpStream};

use super::victims::Holding;
use crate::backend::Backend;
use crate::client::{self, Talk};
use crate::lab::{DEADLINE, LOOK, Lab};
use crate::manifest::{slice, svc};
use crate::shortage::limited_to;
use crate::view::{at, find, health_of, is_ready, listener};

/// A Service that is edited and used while another tenant does its worst.
struct Victim {
    backend: Backend,
    port: u16,
}

// === impl Victim ===

impl Victim {
    async fn set(lab: &Lab) -> Self {
        let backend = Backend::lines("victim", lab.ranges.backend(1, 3001)).await;
        let victim = Self {
            backend,
            port: 8080,
        };
        victim.write(lab);
        victim
    }

    fn write(&self, lab: &Lab) {
        let service = svc("victim").namespace("victims").tcp(self.port);
        let service = service.members(&[self.backend.address]);
        lab.write("victim.yaml", &service.yaml());
    }

    async fn target(&self, lab: &Lab) -> SocketAddr {
        at(&lab.ready("victims/victim").await, self.port)
    }

    /// Clients are served, and an edit is followed.
    async fn is_unharmed(&mut self, lab: &Lab) {
        let target = self.target(lab).await;
        for _ in 0..5 {
            assert_eq!(client::member(target).await.unwrap(), "victim");
        }
        self.port = if self.port == 8080 { 9090 } else { 8080 };
        self.write(lab);
        let target = SocketAddr::new(target.ip(), self.port);
        let began = Instant::now();
        while client::member(target).await.is_err() {
            assert!(began.elapsed() < DEADLINE, "the edit is not followed");
            tokio::time::sleep(LOOK).await;
        }
        lab.text("/healthz").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_that_name_themselves_or_each_other_make_no_connection_go_round() {
    let mut lab = Lab::new();
    let mut victim = Victim::set(&lab).await;
    let pool: Vec<SocketAddr> = (0..60)
        .map(|number| SocketAddr::new(lab.ranges.pool(number), 8080))
        .collect();
    let own = |number: u8| pool[usize::from(number)];
    let of = |name: &str, number: u8| {
        let address = lab.ranges.pool(number).to_string();
        svc(name).option("addresses", &address).namespace("loops")
    };
    let named = |name: &str, number: u8, member: u8| {
        let service = of(name, number).tcp(8080).members(&[own(member)]);
        lab.write(&format!("{name}.yaml"), &service.yaml());
    };
    named("itself", 50, 50);
    named("there", 51, 52);
    named("back", 52, 51);
    let in_slice = |name: &str, number: u8, member: u8| {
        let service = of(name, number).port("web", "TCP", 8080).yaml();
        let slice = slice(name, "web", "TCP", &[("pod", own(member))]);
        let slice = slice.replace("metadata:\n", "metadata:\n  namespace: loops\n");
        lab.write(&format!("{name}.yaml"), &format!("{service}---\n{slice}"));
    };
    in_slice("slice-itself", 53, 53);
    in_slice("slice-there", 54, 55);
    in_slice("slice-back", 55, 54);
    lab.start().await;
    for name in ["itself", "there", "slice-itself", "slice-back"] {
        let key = format!("loops/{name}");
        lab.reason(&key, Code::MemberNotAllowed).await;
    }
    victim.is_unharmed(&lab).await;
    let before = Holding::of(lab.pid());
    let mut clients = Vec::new();
    for number in 50..56 {
        for _ in 0..5 {
            // It may be refused.
            clients.push(Talk::to(own(number)).await);
        }
    }
    for talk in clients.iter_mut().flatten() {
        assert!(talk.say("round?").await.is_err());
    }
    let after = Holding::of(lab.pid());
    assert!(after.files < before.files + 80, "{after:?}, {before:?}");
    victim.is_unharmed(&lab).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_services_of_one_namespace_leave_room_for_another() {
    const SERVICES: u8 = 150;
    let mut lab = Lab::new();
    let mut victim = Victim::set(&lab).await;
    let member = Backend::lines("many", lab.ranges.backend(2, 3001)).await;
    let mut text = String::new();
    for number in 0..SERVICES {
        let service = svc(&format!("many-{number}")).namespace("many").tcp(8080);
        let service = service.option("addresses", &lab.ranges.pool(100 + number).to_string());
        write!(text, "---\n{}", service.members(&[member.address]).yaml()).unwrap();
    }
    lab.write("many.yaml", &text);
    lab.start_with(|command| limited_to(command, 1024)).await;
    let last = format!("many/many-{}", SERVICES - 1);
    lab.ready(&last).await;
    victim.is_unharmed(&lab).await;
    let mut held = Vec::new();
    for round in 0..6 {
        for number in 0..SERVICES {
            let target = SocketAddr::new(lab.ranges.pool(100 + number), 8080);
            let source = lab.ranges.client(round * 40 + number % 40);
            held.push(Talk::from(source, target).await);
        }
    }
    lab.problem(Code::Overloaded).await;
    let listed = lab.landfall(&["get", "services"], &[]).await;
    assert!(listed.stderr.starts_with("Warning: "), "{}", listed.stderr);
    for _ in 0..3 {
        victim.is_unharmed(&lab).await;
    }
    drop(held);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_that_hang_at_six_hundred_services_hide_no_dead_member() {
    const SERVICES: u16 = 600;
    let lab = Lab::new();
    let mut dying = Backend::lines("dying", lab.ranges.backend(1, 3001)).await;
    let tarpit = TcpListener::bind(lab.ranges.backend(2, 3001))
        .await
        .unwrap();
    let tarpit_address = tarpit.local_addr().unwrap();
    let swallow = tokio::spawn(async move {
        let mut held: Vec<TcpStream> = Vec::new();
        while let Ok((stream, _)) = tarpit.accept().await {
            held.push(stream);
        }
    });
    let mut text = String::new();
    for number in 0..SERVICES {
        // Many share an address: it is about checks.
        let service = svc(&format!("tar-{number}")).namespace("tar");
        let service = service
            .tcp(10_000 + number)
            .option("addresses", &lab.ranges.pool(200).to_string())
            .option("sharing-key", "tar")
            .option("monitor", "http")
            .option("monitor-delay", "60s")
            .option("monitor-timeout", "60s")
            .members(&[tarpit_address]);
        write!(text, "---\n{}", service.yaml()).unwrap();
    }
    lab.write("tar.yaml", &text);
    let service = svc("dying")
        .tcp(8080)
        .option("monitor", "tcp")
        .option("monitor-delay", "500ms")
        .option("monitor-max-retries-down", "2")
        .members(&[dying.address]);
    lab.write("dying.yaml", &service.yaml());
    let lab = lab.started().await;
    lab.until("tar/tar-599", "listens", |it| !it.listeners.is_empty())
        .await;
    let address = dying.address;
    let is = |health| move |service: &ServiceView| health_of(service, address) == Some(health);
    lab.until("default/dying", "is up", is(Health::Up)).await;
    for _ in 0..2 {
        dying.stop().await;
        let began = Instant::now();
        lab.until("default/dying", "is down", is(Health::Down))
            .await;
        eprintln!("noticed after {:?}", began.elapsed());
        dying.start().await;
        lab.until("default/dying", "is up again", is(Health::Up))
            .await;
    }
    swallow.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_that_change_without_end_hold_up_no_edit_of_another() {
    let lab = Lab::new();
    let mut victim = Victim::set(&lab).await;
    let lab = lab.started().await;
    let (folder, fresh) = (lab.folder(), lab.path("fresh"));
    let member = lab.ranges.backend(3, 3001);
    let flapping = tokio::spawn(async move {
        for round in 0_u16.. {
            for name in 0..20 {
                let name = format!("flap-{name}");
                let port = 8000 + round % 7;
                let service = svc(&name).namespace("flaps").tcp(port).members(&[member]);
                let mut text = service.yaml();
                if round % 3 == 2 {
                    text = text.replace("type: LoadBalancer", "type: ClusterIP");
                }
                let file = format!("{name}.yaml");
                std::fs::write(fresh.join(&file), text).unwrap();
                std::fs::rename(fresh.join(&file), folder.join(&file)).unwrap();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    for _ in 0..10 {
        victim.is_unharmed(&lab).await;
    }
    flapping.abort();
    assert!(flapping.await.unwrap_err().is_cancelled());
    victim.is_unharmed(&lab).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn annotations_and_slices_of_any_size_hold_up_nothing_and_are_reported_briefly() {
    let lab = Lab::new();
    let mut victim = Victim::set(&lab).await;
    let mut bombs = String::new();
    let all: Vec<SocketAddr> = (0..=255)
        .flat_map(|port| (1..=49).map(move |last| (last, 4000 + port)))
        .map(|(last, port)| lab.ranges.backend(last, port))
        .collect();
    let bomb = svc("endpoints").namespace("bombs").tcp(8080).members(&all);
    write!(bombs, "---\n{}", bomb.yaml()).unwrap();
    let nonsense = svc("nonsense").namespace("bombs").tcp(8080);
    let nonsense = nonsense.option("endpoints", &"x,".repeat(60_000));
    write!(bombs, "---\n{}", nonsense.yaml()).unwrap();
    let mut unknown = svc("unknown").namespace("bombs").tcp(8080);
    for number in 0..3000 {
        unknown = unknown.option(&format!("no-option-{number}"), "of any use");
    }
    write!(bombs, "---\n{}", unknown.yaml()).unwrap();
    let pods: Vec<(String, SocketAddr)> = (0..40_u8)
        .flat_map(|high| (0..250_u8).map(move |low| (high, low)))
        .map(|(high, low)| {
            let ip = std::net::IpAddr::from([127, 90, high, low]);
            (format!("pod-{high}-{low}"), SocketAddr::new(ip, 3000))
        })
        .collect();
    let pods: Vec<(&str, SocketAddr)> =
        pods.iter().map(|(name, at)| (name.as_str(), *at)).collect();
    let large = slice("slice", "web", "TCP", &pods);
    let large = large.replace("metadata:\n", "metadata:\n  namespace: bombs\n");
    let service = svc("slice").namespace("bombs").port("web", "TCP", 8080);
    write!(bombs, "---\n{}---\n{large}", service.yaml()).unwrap();
    lab.write("bombs.yaml", &bombs);
    let lab = lab.started().await;
    for _ in 0..3 {
        victim.is_unharmed(&lab).await;
    }
    lab.reason("bombs/endpoints", Code::LimitReached).await;
    lab.until("bombs/slice", "has its members", |service| {
        is_ready(service) && listener(service, 8080).members.len() == 10_000
    })
    .await;
    let view = lab.view().await;
    for name in ["endpoints", "nonsense", "unknown"] {
        let service = find(&view, &format!("bombs/{name}")).unwrap();
        let reported: usize = service
            .status
            .conditions
            .iter()
            .map(|condition| condition.message.len())
            .sum();
        assert!(
            reported < 32 * 1024,
            "{name}: {reported} bytes of conditions"
        );
    }
    let log = lab.log();
    let longest = log.iter().map(|line| line.to_string().len()).max();
    assert!(longest < Some(32 * 1024), "a line of {longest:?} bytes");
    assert!(log.len() < 400, "{} lines", log.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scrapes_of_fourteen_thousand_members_hold_up_nothing() {
    let series = |text: &str| {
        let lines = text.lines();
        lines
            .filter(|line| line.starts_with("landfall_member_up{"))
            .count()
    };
    let lab = Lab::new();
    let mut victim = Victim::set(&lab).await;
    for half in 0..2_u16 {
        let members: Vec<SocketAddr> = (0..35)
            .flat_map(|port| (1..=200).map(move |last| (last, 4000 + half * 100 + port)))
            .map(|(last, port)| lab.ranges.backend(last, port))
            .collect();
        let name = format!("large-{half}");
        lab.write(
            &format!("{name}.yaml"),
            &svc(&name).tcp(8080).members(&members).yaml(),
        );
    }
    let lab = lab.started().await;
    for half in 0..2 {
        lab.ready(&format!("default/large-{half}")).await;
    }
    let admin = lab.admin();
    let scrapes: Vec<_> = (0..4)
        .map(|_| tokio::spawn(client::http(admin, "/metrics")))
        .collect();
    victim.is_unharmed(&lab).await;
    for scrape in scrapes {
        let answer = scrape.await.unwrap().unwrap();
        // On a busy machine its turn may not come in time.
        assert!(matches!(answer.status, 200 | 503), "{}", answer.status);
        if answer.status == 200 {
            assert_eq!(series(&answer.body), 14_001);
        }
    }
    assert_eq!(series(&lab.text("/metrics").await), 14_001);
    let brief = lab.text("/metrics?members=false").await;
    assert!(brief.len() < 128 * 1024, "{} bytes", brief.len());
    victim.is_unharmed(&lab).await;
}
