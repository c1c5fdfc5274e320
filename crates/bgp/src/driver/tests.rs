use std::io;
use std::net::Ipv4Addr;

use ipnet::IpNet;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::peer::Password;
use crate::session::Session;
use crate::session::tests::peer;

/// After this time a router is not forgotten yet.
const ALMOST: Duration = Duration::from_mins(14);

/// A port that nothing listens on.
pub fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A supervisor that does nothing by itself.
fn supervisor(wanted: Wanted, listeners: Listeners) -> Supervisor {
    Supervisor {
        wanted: watch::channel(wanted).1,
        statuses: watch::channel(Arc::default()).0,
        refusals: watch::channel(Refusals::new()).0,
        commands: mpsc::channel(1).1,
        tasks: BTreeMap::new(),
        check_at: Instant::now(),
        listeners,
        closings: Arc::new(Semaphore::new(CLOSINGS)),
        tracker: TaskTracker::new(),
    }
}

/// A range of routers.
fn range(network: &str, password: Option<&str>) -> Neighbor {
    Neighbor {
        peer: Peer {
            address: PeerAddress::Range(network.parse().unwrap()),
            password: password.map(|it| Password::new(it).unwrap()),
            ..peer()
        },
        routes: Arc::default(),
    }
}

/// A connection, whatever it is of, and its other end.
async fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let to = listener.local_addr().unwrap();
    let router = TcpStream::connect(to).await.unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    (stream, router)
}

fn names(supervisor: &Supervisor) -> Vec<&str> {
    supervisor.tasks.keys().map(|name| &**name).collect()
}

#[tokio::test]
async fn a_connection_for_which_no_password_could_be_asked_is_not_taken_and_that_is_said() {
    let none = |_: &TcpListener, _: &IpNet, _: Option<&Password>| -> io::Result<()> {
        Err(io::Error::other("no memory"))
    };
    let peers = [
        ("keyed".into(), range("10.0.0.0/24", Some("secret"))),
        ("open".into(), range("10.0.1.0/24", None)),
    ];
    let wanted = Wanted {
        listen: Some(free_port()),
        peers: peers.into(),
        ..Wanted::default()
    };
    let mut supervisor = supervisor(wanted, Listeners::new(none));
    let stop = CancellationToken::new();
    supervisor.adjust(&stop);
    let refusals = supervisor.refusals.borrow().clone();
    let no_memory = Refusal::Unsigned("no memory".to_owned());
    assert_eq!(refusals, [("keyed".into(), no_memory)].into());
    for from in ["10.0.0.7:4000", "10.0.1.7:4000"] {
        let (stream, _) = connection().await;
        supervisor.take(stream, from.parse().unwrap(), &stop);
    }
    assert_eq!(names(&supervisor), ["open/10.0.1.7"]);
}

/// A supervisor of one range.
fn ranged() -> (Supervisor, CancellationToken) {
    let wanted = Wanted {
        peers: [("range".into(), range("10.0.0.0/8", None))].into(),
        ..Wanted::default()
    };
    let supervisor = supervisor(wanted, Listeners::new(connect::listen_key));
    (supervisor, CancellationToken::new())
}

fn address(number: usize) -> String {
    format!("10.0.0.{number}")
}

fn name(number: usize) -> String {
    format!("range/{}", address(number))
}

/// Makes it look as if a router of the range is there.
fn add(supervisor: &mut Supervisor, number: usize) {
    let running = Running {
        neighbor: watch::channel((range("10.0.0.0/8", None), Drain::Off)).0,
        commands: mpsc::channel(1).0,
        incoming: mpsc::channel(1).0,
        seen: Instant::now(),
        sessions: 0,
        removed: CancellationToken::new(),
    };
    supervisor.tasks.insert(name(number).into(), running);
}

/// Makes it look as if a router has a session, or had some.
fn show(supervisor: &Supervisor, number: usize, state: State, established: u64) {
    let session = Session::new(peer(), Arc::default(), 7, std::time::Instant::now());
    let mut status = session.status();
    status.state = state;
    status.counts.established = established;
    supervisor.statuses.send_modify(|all| {
        Arc::make_mut(all).insert(name(number).into(), status);
    });
}

/// Lets a router connect, and returns its end.
async fn connect(
    supervisor: &mut Supervisor,
    number: usize,
    stop: &CancellationToken,
) -> TcpStream {
    let (stream, router) = connection().await;
    let from = SocketAddr::new(address(number).parse().unwrap(), 4000);
    supervisor.take(stream, from, stop);
    router
}

/// Lets time pass, with all checks that come due.
async fn pass(supervisor: &mut Supervisor, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        tokio::time::advance(CHECK.min(end - Instant::now())).await;
        supervisor.forget();
    }
}

#[tokio::test(start_paused = true)]
async fn a_router_of_a_range_is_forgotten_once_it_was_not_there_for_a_while() {
    let (mut supervisor, stop) = ranged();
    for number in 1..4 {
        add(&mut supervisor, number);
    }
    assert_eq!(ALMOST + CHECK, FORGET);
    let [one, two, three] = [name(1), name(2), name(3)];
    show(&supervisor, 1, State::Established, 1);
    pass(&mut supervisor, ALMOST).await;
    assert_eq!(names(&supervisor), [&*one, &*two, &*three]);
    // It attempts it again.
    connect(&mut supervisor, 2, &stop).await;
    pass(&mut supervisor, CHECK).await;
    assert_eq!(names(&supervisor), [&*one, &*two]);
    // Its session ends, and another one comes and goes between two checks.
    show(&supervisor, 1, State::Active, 1);
    pass(&mut supervisor, ALMOST).await;
    assert_eq!(names(&supervisor), [&*one]);
    show(&supervisor, 1, State::Active, 2);
    pass(&mut supervisor, FORGET).await;
    assert_eq!(names(&supervisor), [&*one]);
    pass(&mut supervisor, CHECK).await;
    assert_eq!(names(&supervisor), [] as [&str; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_range_that_is_full_forgets_the_router_that_was_there_the_longest_time_ago() {
    let (mut supervisor, stop) = ranged();
    for number in 0..ROUTERS {
        add(&mut supervisor, number);
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    show(&supervisor, 0, State::Established, 1);
    connect(&mut supervisor, 1, &stop).await;
    connect(&mut supervisor, ROUTERS, &stop).await;
    let names = names(&supervisor);
    assert_eq!(names.len(), ROUTERS);
    for (number, is_there) in [(0, true), (1, true), (2, false), (3, true), (ROUTERS, true)] {
        assert_eq!(names.contains(&&*name(number)), is_there, "{number}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_range_that_is_full_forgets_the_router_that_is_the_farthest_from_a_session() {
    let (mut supervisor, stop) = ranged();
    for number in 0..ROUTERS {
        add(&mut supervisor, number);
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    // What the last ones show is not there yet.
    for (number, state) in [
        (0, State::OpenConfirm),
        (1, State::OpenSent),
        (2, State::OpenSent),
        (ROUTERS - 2, State::Active),
    ] {
        show(&supervisor, number, state, 0);
    }
    let mut held = Vec::new();
    for (gone, new) in [(ROUTERS - 2, ROUTERS), (1, ROUTERS + 1), (2, ROUTERS + 2)] {
        held.push(connect(&mut supervisor, new, &stop).await);
        let names = names(&supervisor);
        assert!(!names.contains(&&*name(gone)), "{gone}");
        assert_eq!(names.len(), ROUTERS);
    }
    for number in [0, 3, ROUTERS - 1, ROUTERS, ROUTERS + 1, ROUTERS + 2] {
        assert!(names(&supervisor).contains(&&*name(number)), "{number}");
    }
}

#[tokio::test]
async fn few_connections_live_on_for_their_last_message_and_the_others_have_it_too() {
    let (mut supervisor, stop) = ranged();
    supervisor.closings = Arc::new(Semaphore::new(2));
    let mut held = Vec::new();
    for _ in 0..8 {
        let mut router = connect(&mut supervisor, 1, &stop).await;
        // No message begins so, and the router does not end the connection.
        router.write_all(&[0; 19]).await.unwrap();
        let mut received = Vec::new();
        router.read_to_end(&mut received).await.unwrap();
        assert!(received.ends_with(&[3, 1, 1]), "{received:?}");
        held.push(router);
    }
    // With the task of the router.
    assert!(supervisor.tracker.len() <= 1 + 2);
}

#[tokio::test]
async fn a_range_full_of_sessions_takes_no_other_router() {
    let (mut supervisor, stop) = ranged();
    for number in 0..ROUTERS {
        add(&mut supervisor, number);
        show(&supervisor, number, State::Established, 1);
    }
    connect(&mut supervisor, ROUTERS, &stop).await;
    assert!(!names(&supervisor).contains(&&*name(ROUTERS)));
    assert_eq!(supervisor.tasks.len(), ROUTERS);
}

#[tokio::test]
async fn a_router_that_is_back_before_its_old_task_ended_is_known() {
    let (mut supervisor, stop) = ranged();
    let mut statuses = supervisor.statuses.subscribe();
    let _router = connect(&mut supervisor, 1, &stop).await;
    // The old task has a connection that it ends.
    let is_begun = |it: &Arc<Statuses>| {
        let status = it.get(&*name(1));
        status.is_some_and(|it| it.state == State::OpenSent)
    };
    statuses.wait_for(is_begun).await.unwrap();
    // What the new one shows is there before.
    show(&supervisor, 1, State::Active, 0);
    supervisor.tasks.clear();
    supervisor.tracker.close();
    supervisor.tracker.wait().await;
    assert!(supervisor.statuses.borrow().contains_key(&*name(1)));
}

#[tokio::test(start_paused = true)]
async fn a_speaker_forgets_a_router_of_a_range_by_itself() {
    let port = free_port();
    let wanted = Wanted {
        listen: Some(port),
        peers: [("range".into(), range("127.0.0.0/8", None))].into(),
        ..Wanted::default()
    };
    let (tracker, stop) = (TaskTracker::new(), CancellationToken::new());
    let speaker = Speaker::start(wanted, &tracker, stop.clone());
    let mut statuses = speaker.statuses();
    let router = loop {
        match TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
            Ok(router) => break router,
            Err(_not_yet) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    };
    statuses.wait_for(|it| !it.is_empty()).await.unwrap();
    drop(router);
    let began = Instant::now();
    let forgotten = statuses.wait_for(|it| it.is_empty());
    let forgotten = tokio::time::timeout(FORGET * 2, forgotten).await;
    assert!(forgotten.is_ok() && began.elapsed() >= ALMOST);
    stop.cancel();
    tracker.close();
    tracker.wait().await;
}
