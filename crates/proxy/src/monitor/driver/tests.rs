use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::num::NonZeroU16;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use landfall_model::listener::{Check, HttpMethod, Listener, Member, StatusCodes};
use landfall_model::{ListenerKey, Protocol, ServiceKey, Uid};
use tokio::sync::watch;

use super::*;
use crate::changes::Changes;
use crate::identity::{ListenerId, Owner};
use crate::listener::ListenerConfig;

/// A backend that answers every request with its present code. Ends with the test process.
struct Backend {
    address: SocketAddr,
    code: Arc<AtomicU16>,
    asked: Arc<AtomicU32>,
}

impl Backend {
    fn start(code: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let code = Arc::new(AtomicU16::new(code));
        let asked = Arc::new(AtomicU32::new(0));
        let (answer, count) = (code.clone(), asked.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { continue };
                count.fetch_add(1, Ordering::SeqCst);
                let _ = stream.read(&mut [0; 1024]);
                let code = answer.load(Ordering::SeqCst);
                let _ = write!(
                    stream,
                    "HTTP/1.1 {code} Some Reason\r\nContent-Length: 0\r\n\r\n"
                );
            }
        });
        Self {
            address,
            code,
            asked,
        }
    }

    fn answer(&self, code: u16) {
        self.code.store(code, Ordering::SeqCst);
    }

    fn asked(&self) -> u32 {
        self.asked.load(Ordering::SeqCst)
    }
}

struct Scene {
    listener: Arc<ListenerState>,
    changes: watch::Receiver<u64>,
    monitors: Monitors,
    stop: CancellationToken,
}

fn configuration(protocol: Protocol, monitor: Option<Monitor>, members: &[SocketAddr]) -> Listener {
    let mut listener = Listener::new(protocol, NonZeroU16::new(80).unwrap());
    listener.pool.monitor = monitor;
    listener.pool.members = members.iter().copied().map(Member::new).collect();
    listener
}

fn http(path: &str) -> Monitor {
    let check = Check::Http {
        method: HttpMethod::Get,
        path: path.into(),
        codes: StatusCodes::default(),
    };
    quick(check)
}

fn quick(check: Check) -> Monitor {
    Monitor {
        delay: Duration::from_millis(40),
        // Long, so that no busy machine makes a good backend look bad.
        timeout: Duration::from_secs(10),
        max_retries: 2,
        max_retries_down: 3,
        ..Monitor::new(check)
    }
}

impl Scene {
    fn start(listener: &Listener) -> Self {
        let id = ListenerId {
            address: IpAddr::from([127, 0, 0, 1]),
            key: ListenerKey {
                protocol: listener.key.protocol,
                port: listener.key.port,
            },
        };
        let config = ListenerConfig::new(id, listener).unwrap();
        let sender = Changes::default();
        let changes = sender.version();
        let owner = Owner {
            uid: Uid::new("uid-of-shop/web"),
            service: ServiceKey::new("shop", "web"),
        };
        let listener = Arc::new(ListenerState::new(id, owner, config, 1, &sender));
        let stop = CancellationToken::new();
        let monitors = Monitors::new(Handle::current(), stop.clone(), 8);
        monitors.watch(listener.clone());
        Self {
            listener,
            changes,
            monitors,
            stop,
        }
    }

    /// A listener of another Service, checked by the same monitors.
    fn beside(&self, uid: &str, listener: &Listener) -> Arc<ListenerState> {
        let mut id = self.listener.id();
        id.key.port = NonZeroU16::MAX;
        let config = ListenerConfig::new(id, listener).unwrap();
        let owner = Owner {
            uid: Uid::new(uid),
            service: ServiceKey::new("other", "web"),
        };
        let sender = Changes::default();
        let listener = Arc::new(ListenerState::new(id, owner, config, 1, &sender));
        self.monitors.watch(listener.clone());
        listener
    }

    fn apply(&self, listener: &Listener) {
        let config = ListenerConfig::new(self.listener.id(), listener).unwrap();
        self.listener.apply(config);
    }

    fn members(&self) -> Vec<(SocketAddr, Health, String, u64)> {
        let rows = self.listener.pool().status().into_iter();
        rows.map(|row| {
            (
                row.address,
                row.health,
                row.cause.to_string(),
                row.transitions,
            )
        })
        .collect()
    }

    /// Waits until the pool looks as expected; changes of mere words raise no change, so look again
    /// now and then.
    async fn until(
        &self,
        what: &str,
        wanted: impl Fn(&[(SocketAddr, Health, String, u64)]) -> bool,
    ) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !wanted(&self.members()) {
            assert!(
                Instant::now() < deadline,
                "not in time: {what}; it is {:?}",
                self.members()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn until_health(&self, wanted: &[Health]) {
        self.until(&format!("{wanted:?}"), |members| {
            members.iter().map(|row| row.1).eq(wanted.iter().copied())
        })
        .await;
    }
}

#[tokio::test]
async fn members_follow_their_backends_down_and_up_again() {
    let (first, second) = (Backend::start(200), Backend::start(200));
    let config = configuration(
        Protocol::Tcp,
        Some(http("/")),
        &[first.address, second.address],
    );
    let mut scene = Scene::start(&config);
    scene.until_health(&[Health::Up, Health::Up]).await;
    scene.changes.borrow_and_update();

    second.answer(503);
    scene.until_health(&[Health::Up, Health::Down]).await;
    assert!(
        scene.changes.has_changed().unwrap(),
        "the control plane is notified"
    );
    assert_eq!(scene.members()[1].2, "HTTP 503, expected 200");
    let client = "127.0.0.1:5000".parse().unwrap();
    for _ in 0..4 {
        assert_eq!(
            scene.listener.pool().pick(client, &[]).unwrap().address(),
            first.address
        );
    }

    second.answer(200);
    scene.until_health(&[Health::Up, Health::Up]).await;
    assert_eq!(scene.members()[1].2, "HTTP 200");
    assert_eq!(scene.members()[1].3, 2, "down and up again");

    scene.stop.cancel();
    scene.monitors.stopped().await;
}

#[tokio::test]
async fn a_member_that_is_dead_from_the_start_is_out_after_one_check() {
    let dead = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let hourly = Monitor {
        delay: Duration::from_secs(3600),
        ..quick(Check::Tcp)
    };
    let scene = Scene::start(&configuration(Protocol::Tcp, Some(hourly), &[dead]));
    scene.until_health(&[Health::Down]).await;
    assert_eq!(scene.members()[0].2, "connection refused");
    assert!(
        scene
            .listener
            .pool()
            .pick("127.0.0.1:5000".parse().unwrap(), &[])
            .is_none()
    );
}

#[tokio::test]
async fn a_silent_member_is_distinguished_from_a_closed_one() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let members = [silent.local_addr().unwrap()];
    let hasty = Monitor {
        timeout: Duration::from_millis(30),
        ..http("/")
    };
    let scene = Scene::start(&configuration(Protocol::Tcp, Some(hasty), &members));
    scene.until_health(&[Health::Down]).await;
    assert_eq!(scene.members()[0].2, "no answer in 30 ms");
    let tcp = Some(quick(Check::Tcp));
    scene.apply(&configuration(Protocol::Tcp, tcp, &members));
    scene.until_health(&[Health::Up]).await;
    assert_eq!(scene.members()[0].2, "connected");
}

#[tokio::test]
async fn checks_of_a_question_that_changed_or_of_members_that_left_do_not_pile_up() {
    // More than have a turn.
    let silent: Vec<_> = (0..50)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let members: Vec<_> = silent.iter().map(|it| it.local_addr().unwrap()).collect();
    let scene = Scene::start(&configuration(Protocol::Tcp, Some(http("/")), &members));
    let mut most = 0;
    for number in 0..100 {
        let path = format!("/{number}");
        let members = if number % 3 == 2 { &[][..] } else { &members };
        scene.apply(&configuration(Protocol::Tcp, Some(http(&path)), members));
        tokio::time::sleep(Duration::from_millis(2)).await;
        most = most.max(scene.monitors.counts().waiting);
    }
    assert!((1..=100).contains(&most), "{most}");
    scene.stop.cancel();
    scene.monitors.stopped().await;
}

#[tokio::test]
async fn a_changed_pool_keeps_what_is_known_and_checks_new_members_at_once() {
    let (first, second) = (Backend::start(500), Backend::start(200));
    let hourly = Monitor {
        delay: Duration::from_secs(3600),
        ..http("/")
    };
    let scene = Scene::start(&configuration(
        Protocol::Tcp,
        Some(hourly.clone()),
        &[first.address],
    ));
    scene.until_health(&[Health::Down]).await;

    let both = [first.address, second.address];
    scene.apply(&configuration(Protocol::Tcp, Some(hourly.clone()), &both));
    scene.until_health(&[Health::Down, Health::Up]).await;
    assert_eq!((first.asked(), second.asked()), (1, 1));

    scene.apply(&configuration(
        Protocol::Tcp,
        Some(hourly),
        &[second.address],
    ));
    scene.until_health(&[Health::Up]).await;
    assert_eq!((first.asked(), second.asked()), (1, 1));
}

#[tokio::test]
async fn without_a_monitor_members_are_up_and_never_checked() {
    let backend = Backend::start(500);
    let members = [backend.address];
    let scene = Scene::start(&configuration(Protocol::Tcp, Some(http("/")), &members));
    scene.until_health(&[Health::Down]).await;

    scene.apply(&configuration(Protocol::Tcp, None, &members));
    assert_eq!(scene.members()[0].1, Health::Up);
    scene
        .until("what was known is forgotten", |_| {
            scene.listener.pool().members()[0].health() == Health::Unknown
        })
        .await;

    backend.answer(200);
    let hourly = Monitor {
        delay: Duration::from_secs(3600),
        ..http("/")
    };
    scene.apply(&configuration(Protocol::Tcp, Some(hourly), &members));
    scene
        .until("asked once more", |members| members[0].2 == "HTTP 200")
        .await;
    assert_eq!(
        scene.members()[0].1,
        Health::Up,
        "one good check decides, as for a new pool"
    );
}

#[tokio::test]
async fn the_monitors_own_port_is_checked_instead_of_the_members() {
    let health = Backend::start(200);
    let dead = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let monitor = Monitor {
        port: NonZeroU16::new(health.address.port()),
        ..http("/")
    };
    let scene = Scene::start(&configuration(Protocol::Tcp, Some(monitor), &[dead]));
    scene.until_health(&[Health::Up]).await;
}

#[tokio::test]
async fn a_udp_member_is_good_unless_its_port_is_closed() {
    let open = UdpSocket::bind("127.0.0.1:0").unwrap();
    let closed = UdpSocket::bind("127.0.0.2:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let members = [open.local_addr().unwrap(), closed];
    // Silence is good only once the time has passed.
    let monitor = Monitor {
        timeout: Duration::from_millis(500),
        ..quick(Check::UdpConnect)
    };
    let scene = Scene::start(&configuration(Protocol::Udp, Some(monitor), &members));
    scene.until_health(&[Health::Up, Health::Down]).await;
    let words: Vec<_> = scene.members().into_iter().map(|row| row.2).collect();
    assert_eq!(words, ["not refused", "connection refused"]);
}

#[tokio::test]
async fn checks_end_when_their_listener_closes() {
    let backend = Backend::start(200);
    let scene = Scene::start(&configuration(
        Protocol::Tcp,
        Some(http("/")),
        &[backend.address],
    ));
    scene.until_health(&[Health::Up]).await;
    scene.listener.closing().cancel();
    scene.monitors.stopped().await;
}

#[tokio::test]
async fn members_of_http2_are_asked_over_http2() {
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};

    let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let code = Arc::new(AtomicU16::new(200));
    let answer = code.clone();
    let _serving = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(async move {
        while let Ok((stream, _)) = socket.accept().await {
            let answer = answer.clone();
            let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let mut response =
                    http::Response::new(http_body_util::Empty::<bytes::Bytes>::new());
                let code = answer.load(Ordering::SeqCst);
                *response.status_mut() = http::StatusCode::from_u16(code).unwrap();
                assert_eq!(request.uri().path(), "/healthz");
                async move { Ok::<_, std::convert::Infallible>(response) }
            });
            let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service);
            tokio::spawn(serving);
        }
    }));
    let mut config = configuration(Protocol::Tcp, Some(http("/healthz")), &[address]);
    let scene = Scene::start(&config);
    scene.until_health(&[Health::Down]).await;
    assert_eq!(scene.members()[0].2, "the answer is not HTTP/1");

    let http2 = landfall_model::listener::Http {
        member_http2: true,
        ..landfall_model::listener::Http::default()
    };
    config.mode = landfall_model::listener::Mode::Http(http2);
    scene.apply(&config);
    scene.until_health(&[Health::Up]).await;
    assert_eq!(scene.members()[0].2, "HTTP 200");
    code.store(503, Ordering::SeqCst);
    scene.until_health(&[Health::Down]).await;
    assert_eq!(scene.members()[0].2, "HTTP 503, expected 200");

    let old = Backend::start(200);
    config.pool.members = vec![Member::new(old.address)];
    scene.apply(&config);
    scene
        .until("spoken to wrongly", |members| {
            members[0].2 == "the answer is not HTTP/2"
        })
        .await;
}

#[tokio::test]
async fn checks_that_never_end_do_not_hold_up_those_of_another_service() {
    let everywhere = tokio::net::TcpListener::bind(("0.0.0.0", 0)).await.unwrap();
    let port = everywhere.local_addr().unwrap().port();
    let endless: Vec<_> = (1..60)
        .map(|last| SocketAddr::from(([127, 0, 0, last], port)))
        .collect();
    let monitor = Monitor {
        timeout: Duration::from_secs(3600),
        ..http("/")
    };
    let scene = Scene::start(&configuration(Protocol::Tcp, Some(monitor), &endless));
    // All places that the Service may have are taken once so many were connected to.
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(everywhere.accept().await.unwrap());
    }
    let good = Backend::start(200);
    let other = scene.beside(
        "uid-of-other/web",
        &configuration(Protocol::Tcp, Some(http("/")), &[good.address]),
    );
    let deadline = Instant::now() + Duration::from_secs(10);
    while other.pool().status()[0].health != Health::Up {
        assert!(Instant::now() < deadline, "not checked");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A member that answers only what a PROXY header comes ahead of. Returns what it got first.
fn strict() -> (SocketAddr, std::sync::mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, requests) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut got = Vec::new();
            while !got.ends_with(b"close\r\n\r\n") {
                let mut room = [0; 1024];
                match stream.read(&mut room) {
                    Ok(count) if count > 0 => got.extend_from_slice(&room[..count]),
                    _ => break,
                }
            }
            if got.starts_with(b"PROXY ") || got.starts_with(b"\r\n\r\n\0") {
                let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            }
            let _ = sender.send(got);
        }
    });
    (address, requests)
}

#[tokio::test]
async fn members_that_expect_a_proxy_header_get_one_from_monitors() {
    use landfall_model::listener::ProxyProtocol;

    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
    let versions = [
        (ProxyProtocol::V1, &b"PROXY UNKNOWN\r\n"[..]),
        (ProxyProtocol::V2, &local[..]),
    ];
    for (version, header) in versions {
        let (address, requests) = strict();
        let mut config = configuration(Protocol::Tcp, Some(http("/")), &[address]);
        config.pool.proxy_protocol = Some(version);
        let scene = Scene::start(&config);
        scene.until_health(&[Health::Up]).await;
        let expected = [header, b"GET / HTTP/1.1\r\n"].concat();
        assert!(
            requests.recv().unwrap().starts_with(&expected),
            "{version:?}"
        );
    }
}
