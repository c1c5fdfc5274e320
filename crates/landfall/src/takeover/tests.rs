use std::io::Write as _;

use tempfile::TempDir;

use super::*;

/// A long path, as state directories may have.
fn state() -> (TempDir, PathBuf) {
    let home = TempDir::new().unwrap();
    let state = home.path().join("long".repeat(40));
    fs::create_dir(&state).unwrap();
    (home, state)
}

fn handover(count: usize) -> Handover {
    let mut handover = Handover {
        admin: Some(TcpListener::bind("127.0.0.1:0").unwrap()),
        ..Handover::default()
    };
    for _ in 0..count {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let id = ListenerId::of(socket.local_addr().unwrap(), Protocol::Tcp).unwrap();
        handover.sockets.entry(id).or_default().push(socket.into());
    }
    handover
}

#[tokio::test]
async fn sockets_arrive_in_any_number_and_both_sides_learn_that_all_is_well() {
    for count in [0, 1, 300] {
        let (_home, state) = state();
        let handover_listener = HandoverListener::open(&state).unwrap();
        let given = handover(count);
        let ids: Vec<ListenerId> = given.sockets.keys().copied().collect();
        let admin = given.admin.as_ref().unwrap().local_addr().unwrap();
        let running = async {
            let mut handing = handover_listener.knock().await;
            let outcome = handing.hand(&given).await;
            handing.done().await;
            outcome
        };
        let new = async {
            let (taking, taken) = IncomingHandover::ask(&state).await.unwrap().unwrap();
            let got: Vec<ListenerId> = taken.sockets.keys().copied().collect();
            assert_eq!(got, ids);
            assert_eq!(taken.admin.unwrap().local_addr().unwrap(), admin);
            taking.serving().await
        };
        let (outcome, served) = tokio::join!(running, new);
        assert_eq!(outcome, Outcome::Served);
        served.unwrap();
    }
}

#[tokio::test]
async fn where_no_process_runs_there_is_nothing_to_take_over() {
    let (_home, state) = state();
    assert!(IncomingHandover::ask(&state).await.unwrap().is_none());
    drop(HandoverListener::open(&state).unwrap());
    assert!(IncomingHandover::ask(&state).await.unwrap().is_none());
    let missing = state.join("missing");
    assert!(IncomingHandover::ask(&missing).await.unwrap().is_none());
    // What an earlier process left behind is no obstacle.
    drop(HandoverListener::open(&state).unwrap());
}

#[tokio::test]
async fn a_new_process_that_ends_before_it_serves_has_failed() {
    let (_home, state) = state();
    let handover_listener = HandoverListener::open(&state).unwrap();
    let given = handover(1);
    let running = async { handover_listener.knock().await.hand(&given).await };
    let new = async { drop(IncomingHandover::ask(&state).await.unwrap().unwrap()) };
    let (outcome, ()) = tokio::join!(running, new);
    let why = "the new process ended before it served".to_owned();
    assert_eq!(outcome, Outcome::Failed(why));
}

#[tokio::test]
async fn a_new_process_that_is_too_late_is_notified_that_the_other_goes_on() {
    let (_home, state) = state();
    let handover_listener = HandoverListener::open(&state).unwrap();
    let given = handover(1);
    let running = async {
        let mut handing = handover_listener.knock().await;
        handing.try_hand(&given).await.unwrap();
        handing.stay("it took too long".to_owned()).await;
    };
    let new = async {
        let (taking, _) = IncomingHandover::ask(&state).await.unwrap().unwrap();
        taking.serving().await.unwrap_err().to_string()
    };
    let ((), error) = tokio::join!(running, new);
    assert_eq!(error, "the running process continues: it took too long");
}

#[tokio::test]
async fn a_new_process_that_still_starts_is_notified_at_once_that_the_other_goes_on() {
    let (_home, state) = state();
    let handover_listener = HandoverListener::open(&state).unwrap();
    let given = handover(1);
    let running = async {
        let mut handing = handover_listener.knock().await;
        let handed = tokio::time::timeout(Duration::from_millis(50), handing.try_hand(&given));
        assert!(handed.await.is_err());
        handing.stay("it took too long".to_owned()).await;
    };
    let new = async {
        let (mut taking, _) = IncomingHandover::ask(&state).await.unwrap().unwrap();
        let why = taking.revoked().await;
        assert_eq!(why, "it took too long");
        // A process that has ended revokes nothing.
        tokio::time::timeout(Duration::from_millis(50), taking.revoked()).await
    };
    let ((), after) = tokio::join!(running, new);
    assert!(after.is_err());
}

#[tokio::test]
async fn a_version_that_is_not_spoken_and_nonsense_are_refused() {
    let (_home, state) = state();
    let handover_listener = HandoverListener::open(&state).unwrap();
    let (path, _folder) = path(&state).unwrap();
    let mut other = std::os::unix::net::UnixStream::connect(&path).unwrap();
    other
        .write_all(b"{\"type\":\"ask\",\"version\":99}\n")
        .unwrap();
    let refused = handover_listener.answer().await.unwrap_err().to_string();
    assert_eq!(refused, "it uses version 1 of the protocol, not 99");
    other = std::os::unix::net::UnixStream::connect(&path).unwrap();
    other.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(handover_listener.answer().await.is_err());
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
