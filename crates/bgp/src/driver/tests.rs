use std::io;
use std::net::Ipv4Addr;

use ipnet::IpNet;
use tokio::net::TcpListener;

use super::*;
use crate::peer::Password;
use crate::session::tests::peer;

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
        listeners,
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

/// A connection, whatever it is of.
async fn connection() -> TcpStream {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let to = listener.local_addr().unwrap();
    TcpStream::connect(to).await.unwrap()
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
    assert_eq!(refusals, [("keyed".into(), "no memory".to_owned())].into());
    for from in ["10.0.0.7:4000", "10.0.1.7:4000"] {
        let stream = connection().await;
        supervisor.take(stream, from.parse().unwrap(), &stop);
    }
    assert_eq!(names(&supervisor), ["open/10.0.1.7"]);
}
