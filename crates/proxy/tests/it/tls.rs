//! TLS that ends at the listener, with plain bytes toward members.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_model::listener::{
    AllowedSources, Certificate, Certificates, Listener, Member, Mode, ProxyProtocol,
};
use landfall_proxy::counters::Refusal;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::scene::{Manner, Scene, Server, connect, ended, in_time, read_all, until};
use crate::streams::SOME;

/// A certificate, and a client that trusts nothing else.
pub struct Trust {
    certificates: Certificates,
    connector: TlsConnector,
}

impl Trust {
    pub fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(["web.test".to_owned()]).unwrap();
        let der = CertificateDer::from(made.cert.der().to_vec());
        let certificate = Certificate {
            source: "shop/tls".into(),
            chain_pem: made.cert.pem().into_bytes(),
            key_pem: made.signing_key.serialize_pem().into_bytes(),
        };
        let mut roots = RootCertStore::empty();
        roots.add(der).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self {
            certificates: Certificates(vec![Arc::new(certificate)]),
            connector: TlsConnector::from(Arc::new(config)),
        }
    }

    pub fn mode(&self) -> Mode {
        Mode::Tls {
            certificates: self.certificates.clone(),
        }
    }

    pub async fn client(&self, address: SocketAddr) -> TlsStream<TcpStream> {
        let stream = connect(address).await;
        let name = "web.test".try_into().unwrap();
        in_time(self.connector.connect(name, stream)).await.unwrap()
    }
}

async fn echo(client: &mut TlsStream<TcpStream>, bytes: &[u8]) {
    client.write_all(bytes).await.unwrap();
    let mut room = vec![0; bytes.len()];
    in_time(client.read_exact(&mut room)).await.unwrap();
    assert_eq!(room, bytes);
}

#[tokio::test]
async fn members_get_plain_bytes_and_a_change_of_mode_touches_no_open_connection() {
    let server = Server::start(Manner::Echo).await;
    let trust = Trust::new();
    let scene = Scene::tcp(&[server.address]).await;
    let mut plain = scene.settled().await;
    scene
        .change(|listener| listener.mode = trust.mode())
        .await
        .unwrap();
    let mut client = trust.client(scene.address()).await;
    echo(&mut client, b"a secret").await;
    crate::scene::echo(&mut plain, b"no secret").await;
    let renewed = Trust::new();
    scene
        .change(|listener| listener.mode = renewed.mode())
        .await
        .unwrap();
    echo(&mut client, b"still there").await;
    echo(
        &mut renewed.client(scene.address()).await,
        b"with the new one",
    )
    .await;
    assert_eq!(
        server.received(),
        b"readya secretno secretstill therewith the new one"
    );
}

#[tokio::test]
async fn megabytes_pass_whole_and_ends_are_passed_on() {
    const LENGTH: usize = 8 << 20;
    let server = Server::start(Manner::Echo).await;
    let trust = Trust::new();
    let scene = Scene::tcp_with(&[server.address], |listener| listener.mode = trust.mode()).await;
    let bytes: Vec<u8> = (0..LENGTH)
        .map(|index| (index / 3 + index / 1_000) as u8)
        .collect();
    let (mut from, mut to) = tokio::io::split(trust.client(scene.address()).await);
    let sent = bytes.clone();
    let writer = tokio::spawn(async move {
        to.write_all(&sent).await.unwrap();
        to.shutdown().await.unwrap();
    });
    let mut got = Vec::new();
    in_time(from.read_to_end(&mut got)).await.unwrap();
    in_time(writer).await.unwrap();
    assert!(got == bytes, "{} of {LENGTH} bytes", got.len());
    until("given back", || {
        scene.status().open == 0 && server.open() == 0
    })
    .await;
    let totals = scene.totals();
    assert_eq!(
        (totals.bytes_in, totals.bytes_out),
        (LENGTH as u64, LENGTH as u64)
    );
}

#[tokio::test]
async fn a_client_that_speaks_no_tls_is_refused() {
    let server = Server::start(Manner::Echo).await;
    let trust = Trust::new();
    let scene = Scene::tcp_with(&[server.address], |listener| listener.mode = trust.mode()).await;
    let mut client = scene.client().await;
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    ended(&mut client).await;
    until("counted", || scene.refused(Refusal::Tls) == 1).await;
    assert_eq!(server.accepted(), 0);
}

#[tokio::test]
async fn members_learn_the_address_of_the_client() {
    let server = Server::start(Manner::Echo).await;
    let trust = Trust::new();
    let scene = Scene::tcp_with(&[server.address], |listener| {
        listener.mode = trust.mode();
        listener.pool.proxy_protocol = Some(ProxyProtocol::V1);
    })
    .await;
    let mut client = trust.client(scene.address()).await;
    let (from, to) = (client.get_ref().0.local_addr().unwrap(), scene.address());
    let expected = format!(
        "PROXY TCP4 {} {} {} {}\r\n",
        from.ip(),
        to.ip(),
        from.port(),
        to.port()
    );
    let mut room = vec![0; expected.len()];
    in_time(client.read_exact(&mut room)).await.unwrap();
    assert_eq!(room, expected.as_bytes());
}

#[tokio::test]
async fn silence_drain_times_and_broken_members_end_the_connection() {
    let short = Duration::from_millis(300);
    let (old, new) = (
        Server::start(Manner::Echo).await,
        Server::start(Manner::Echo).await,
    );
    let trust = Trust::new();
    let scene = Scene::tcp_with(&[old.address], |listener| {
        listener.mode = trust.mode();
        listener.drain = short;
    })
    .await;
    let mut cut = trust.client(scene.address()).await;
    echo(&mut cut, b"x").await;
    let swap = scene.change(|listener| {
        listener.pool.members = vec![Member::new(new.address)];
        listener.timeouts.client_data = short;
    });
    swap.await.unwrap();
    until("cut", || old.open() == 0).await;
    let mut silent = trust.client(scene.address()).await;
    echo(&mut silent, b"x").await;
    until("ended", || new.open() == 0).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let breaker = listener.local_addr().unwrap();
    scene
        .change(|listener| listener.pool.members[0].address = breaker)
        .await
        .unwrap();
    let mut client = trust.client(scene.address()).await;
    let (member, _) = in_time(listener.accept()).await.unwrap();
    member.set_zero_linger().unwrap();
    drop(member);
    // Without the closure alert, rustls reports an unexpected end.
    let reported = in_time(client.read(&mut [0])).await;
    assert!(reported.is_err(), "{reported:?}");
    until("given back", || scene.status().open == 0).await;
}

#[tokio::test]
async fn what_a_member_said_arrives_though_it_is_gone_when_the_client_goes_on() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let members = [listener.local_addr().unwrap()];
    let trust = Trust::new();
    let scene = Scene::tcp_with(&members, |listener| listener.mode = trust.mode()).await;
    let mut client = trust.client(scene.address()).await;
    let (mut member, _) = in_time(listener.accept()).await.unwrap();
    let said = vec![b'm'; SOME];
    in_time(member.write_all(&said)).await.unwrap();
    drop(member);
    until("passed on", || scene.totals().bytes_out == SOME as u64).await;
    // The first byte brings the member's reset, the second meets it, the third meets no member.
    for count in 1..=3 {
        client.write_all(b"c").await.unwrap();
        until("passed in", || scene.totals().bytes_in == count).await;
    }
    let mut received = Vec::new();
    in_time(client.read_to_end(&mut received)).await.unwrap();
    assert!(received == said);
    drop(client);
    until("given back", || scene.status().open == 0).await;
}

#[tokio::test]
async fn what_a_client_said_arrives_though_it_is_gone_when_the_member_goes_on() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let members = [listener.local_addr().unwrap()];
    let trust = Trust::new();
    let scene = Scene::tcp_with(&members, |listener| listener.mode = trust.mode()).await;
    let mut client = trust.client(scene.address()).await;
    let (mut member, _) = in_time(listener.accept()).await.unwrap();
    // What a client has not read when it closes would be a reset: here, session tickets.
    member.write_all(b"m").await.unwrap();
    in_time(client.read_exact(&mut [0])).await.unwrap();
    let said = vec![b'c'; SOME];
    in_time(client.write_all(&said)).await.unwrap();
    in_time(client.shutdown()).await.unwrap();
    drop(client);
    until("passed in", || scene.totals().bytes_in == SOME as u64).await;
    for count in 2..=4 {
        member.write_all(b"m").await.unwrap();
        until("passed on", || scene.totals().bytes_out == count).await;
    }
    assert!(read_all(&mut member).await == said);
    // It may not go on for ever.
    let deserted = async { while member.write_all(&[b'm'; 1024]).await.is_ok() {} };
    in_time(deserted).await;
    until("given back", || scene.status().open == 0).await;
}

#[tokio::test]
async fn what_a_member_did_not_take_in_time_does_not_look_whole() {
    let short = Duration::from_millis(300);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let trust = Trust::new();
    for drains in [false, true] {
        let scene = Scene::tcp_with(&[listener.local_addr().unwrap()], |listener| {
            listener.mode = trust.mode();
            listener.drain = short;
            if !drains {
                listener.timeouts.member_data = short;
            }
        })
        .await;
        let mut client = trust.client(scene.address()).await;
        let (mut member, _) = in_time(listener.accept()).await.unwrap();
        // More than all buffers on the way hold.
        let flood = async {
            let block = vec![b'x'; 1 << 20];
            while client.write_all(&block).await.is_ok() {}
        };
        let end = async {
            if drains {
                until("bytes wait", || scene.totals().bytes_in > 1 << 20).await;
                scene
                    .change(|listener| listener.pool.members.clear())
                    .await
                    .unwrap();
            }
            until("ended", || scene.status().open == 0).await;
            let mut room = vec![0; 1 << 20];
            loop {
                match in_time(member.read(&mut room)).await {
                    Ok(0) => panic!("it looks whole"),
                    Ok(_) => {}
                    Err(_) => break,
                }
            }
        };
        tokio::join!(flood, end);
    }
}

#[tokio::test]
async fn an_upload_that_is_cut_or_late_does_not_look_whole_to_its_member() {
    const SHORT: Duration = Duration::from_millis(300);
    type Change = fn(&mut Listener);
    let member = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let trust = Trust::new();
    let late: Change = |listener| listener.timeouts.client_data = SHORT;
    let drained: Change = |listener| listener.pool.members.clear();
    let shut_out: Change = |listener| {
        listener.allowed = AllowedSources::Only(["192.0.2.0/24".parse().unwrap()].into());
    };
    let nothing: Change = |_| {};
    for (at_first, then) in [(late, nothing), (nothing, drained), (nothing, shut_out)] {
        let scene = Scene::tcp_with(&[member.local_addr().unwrap()], |listener| {
            listener.mode = trust.mode();
            listener.drain = SHORT;
            at_first(listener);
        })
        .await;
        let mut client = trust.client(scene.address()).await;
        let (mut served, _) = in_time(member.accept()).await.unwrap();
        client.write_all(b"half").await.unwrap();
        let mut room = [0; 4];
        in_time(served.read_exact(&mut room)).await.unwrap();
        scene.change(then).await.unwrap();
        assert!(!ended(&mut served).await, "the upload looks whole");
        let reported = in_time(client.read(&mut room)).await;
        assert!(reported.is_err(), "{reported:?}");
    }
}

#[tokio::test]
async fn ends_over_tls_are_passed_on_one_direction_at_a_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let members = [listener.local_addr().unwrap()];
    let trust = Trust::new();
    let scene = Scene::tcp_with(&members, |listener| listener.mode = trust.mode()).await;
    for client_first in [false, true] {
        let mut client = trust.client(scene.address()).await;
        let (mut member, _) = in_time(listener.accept()).await.unwrap();
        let mut received = Vec::new();
        if client_first {
            client.write_all(b"question").await.unwrap();
            client.shutdown().await.unwrap();
            assert_eq!(read_all(&mut member).await, b"question");
            member.write_all(b"answer").await.unwrap();
            member.shutdown().await.unwrap();
            in_time(client.read_to_end(&mut received)).await.unwrap();
            assert_eq!(received, b"answer");
        } else {
            member.write_all(b"first").await.unwrap();
            member.shutdown().await.unwrap();
            in_time(client.read_to_end(&mut received)).await.unwrap();
            assert_eq!(received, b"first");
            client.write_all(b"one thing more").await.unwrap();
            client.shutdown().await.unwrap();
            assert_eq!(read_all(&mut member).await, b"one thing more");
        }
        until("given back", || scene.status().open == 0).await;
    }
}

#[tokio::test]
async fn a_side_that_has_its_end_is_not_reset_when_its_listener_is_cut() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let trust = Trust::new();
    for (secured, client_ends) in [(false, false), (false, true), (true, false), (true, true)] {
        let scene = Scene::tcp_with(&[listener.local_addr().unwrap()], |listener| {
            listener.drain = Duration::ZERO;
            if secured {
                listener.mode = trust.mode();
            }
        })
        .await;
        let case = format!("secured: {secured}, the client ends: {client_ends}");
        let mut client = if secured {
            Either::Secured(Box::new(trust.client(scene.address()).await))
        } else {
            Either::Plain(scene.client().await)
        };
        let (mut member, _) = in_time(listener.accept()).await.unwrap();
        if client_ends {
            client.end().await;
            assert_eq!(read_all(&mut member).await, b"");
            scene.proxy.shutdown(Duration::ZERO).await;
            assert!(!client.ends_in_order().await, "{case}");
            assert!(member.take_error().unwrap().is_none(), "{case}");
        } else {
            member.shutdown().await.unwrap();
            assert!(client.ends_in_order().await, "{case}");
            scene.proxy.shutdown(Duration::ZERO).await;
            assert!(!ended(&mut member).await, "{case}");
            assert!(client.socket().take_error().unwrap().is_none(), "{case}");
        }
    }
}

/// A client with TLS or without.
enum Either {
    Plain(TcpStream),
    Secured(Box<TlsStream<TcpStream>>),
}

impl Either {
    fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Secured(stream) => stream.get_ref().0,
        }
    }

    async fn end(&mut self) {
        match self {
            Self::Plain(stream) => stream.shutdown().await.unwrap(),
            Self::Secured(stream) => stream.shutdown().await.unwrap(),
        }
    }

    /// Whether it gets nothing but an end in order.
    async fn ends_in_order(&mut self) -> bool {
        let mut room = [0];
        let read = match self {
            Self::Plain(stream) => in_time(stream.read(&mut room)).await,
            Self::Secured(stream) => in_time(stream.read(&mut room)).await,
        };
        matches!(read, Ok(0))
    }
}

/// A client that says more than its member takes, ends and leaves.
async fn leaves_much_behind(
    mut client: impl AsyncRead + AsyncWrite + Unpin,
    member: &mut TcpStream,
    scene: &Scene,
) {
    // What a client has not read when it closes would be a reset: here, session tickets.
    member.write_all(b"m").await.unwrap();
    in_time(client.read_exact(&mut [0])).await.unwrap();
    let block = [b'c'; 16 * 1024];
    let mut before = 0;
    loop {
        in_time(client.write_all(&block)).await.unwrap();
        let wrote = Instant::now();
        let passed = || scene.totals().bytes_in;
        let waits = || wrote.elapsed() > Duration::from_secs(1);
        until("it is passed or waits", || passed() > before || waits()).await;
        if passed() == before {
            break;
        }
        before = passed();
    }
    in_time(client.shutdown()).await.unwrap();
}

#[tokio::test]
async fn what_a_client_left_behind_does_not_look_whole_to_a_member_that_is_late() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let trust = Trust::new();
    for secured in [false, true] {
        let scene = Scene::tcp_with(&[listener.local_addr().unwrap()], |listener| {
            listener.timeouts.member_data = Duration::from_secs(5);
            if secured {
                listener.mode = trust.mode();
            }
        })
        .await;
        let (mut member, _) = if secured {
            let client = trust.client(scene.address()).await;
            let mut accepted = in_time(listener.accept()).await.unwrap();
            Box::pin(leaves_much_behind(client, &mut accepted.0, &scene)).await;
            accepted
        } else {
            let client = scene.client().await;
            let mut accepted = in_time(listener.accept()).await.unwrap();
            Box::pin(leaves_much_behind(client, &mut accepted.0, &scene)).await;
            accepted
        };
        // The first byte brings the client's reset, the second meets it.
        let passed = || scene.totals().bytes_out;
        for count in 2..=3 {
            member.write_all(b"m").await.unwrap();
            until("passed on", || passed() == count).await;
        }
        until("ended", || scene.status().open == 0).await;
        assert!(
            !ended(&mut member).await,
            "the upload looks whole: {secured}"
        );
    }
}
