//! Times after which something ends.

use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::scene::{Manner, Scene, Server, echo, ended, in_time, until};
use crate::tls::Trust;

const SHORT: Duration = Duration::from_millis(300);

/// The engine's clock is a few milliseconds behind at times.
const NEARLY: Duration = Duration::from_millis(285);

#[tokio::test]
async fn a_silent_client_is_ended_after_its_time() {
    let server = Server::start(Manner::Echo).await;
    let scene = Scene::tcp_with(&[server.address], |listener| {
        listener.timeouts.client_data = SHORT;
    })
    .await;
    let mut client = scene.settled().await;
    let start = Instant::now();
    let looks_whole = ended(&mut client).await;
    assert!(!looks_whole && start.elapsed() >= NEARLY);
    until("given back", || {
        scene.status().open == 0 && server.open() == 0
    })
    .await;
}

#[tokio::test]
async fn a_silent_member_is_ended_after_its_time() {
    let server = Server::start(Manner::Listen).await;
    let scene = Scene::tcp_with(&[server.address], |listener| {
        listener.timeouts.member_data = SHORT;
    })
    .await;
    let start = Instant::now();
    let looks_whole = ended(&mut scene.client().await).await;
    assert!(!looks_whole && start.elapsed() >= NEARLY);
    until("given back", || server.open() == 0).await;
}

#[tokio::test]
async fn bytes_either_way_keep_a_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let scene = Scene::tcp_with(&[listener.local_addr().unwrap()], |listener| {
        listener.timeouts.client_data = SHORT;
        listener.timeouts.member_data = SHORT;
    })
    .await;
    let mut client = scene.client().await;
    let (mut member, _) = in_time(listener.accept()).await.unwrap();
    // A download: the client has nothing to say for longer than its time.
    let start = Instant::now();
    while start.elapsed() < SHORT * 3 {
        member.write_all(b"more").await.unwrap();
        in_time(client.read_exact(&mut [0; 4])).await.unwrap();
        tokio::time::sleep(SHORT / 10).await;
    }
    drop(member);
    assert!(ended(&mut client).await);
}

#[tokio::test]
async fn after_its_last_word_only_the_other_side_is_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let scene = Scene::tcp_with(&[listener.local_addr().unwrap()], |listener| {
        listener.timeouts.client_data = SHORT;
    })
    .await;
    let mut client = scene.client().await;
    let (mut member, _) = in_time(listener.accept()).await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(in_time(member.read(&mut [0])).await.unwrap(), 0);
    tokio::time::sleep(SHORT * 2).await;
    member.write_all(b"late").await.unwrap();
    drop(member);
    let mut answer = Vec::new();
    in_time(client.read_to_end(&mut answer)).await.unwrap();
    assert_eq!(answer, b"late");
}

#[tokio::test]
async fn a_side_is_not_late_while_what_it_said_waits_for_the_other() {
    tokio::join!(
        pass_with_a_pause(false, false),
        pass_with_a_pause(false, true),
        pass_with_a_pause(true, false),
        pass_with_a_pause(true, true),
    );
}

/// Sends a lot that the receiver does not take for longer than the sender has time.
async fn pass_with_a_pause(secure: bool, member_says: bool) {
    // Long enough for a sender that has to wait for a CPU.
    let time = Duration::from_secs(3);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let trust = Trust::new();
    let scene = Scene::tcp_with(&[listener.local_addr().unwrap()], |listener| {
        if secure {
            listener.mode = trust.mode();
        }
        if member_says {
            listener.timeouts.member_data = time;
        } else {
            listener.timeouts.client_data = time;
        }
    })
    .await;
    let client: Box<dyn Wire> = if secure {
        Box::new(trust.client(scene.address()).await)
    } else {
        Box::new(scene.client().await)
    };
    let (member, _) = in_time(listener.accept()).await.unwrap();
    let (mut says, mut takes): (Box<dyn Wire>, Box<dyn Wire>) = if member_says {
        (Box::new(member), client)
    } else {
        (client, Box::new(member))
    };
    let (enough, mut is_enough) = oneshot::channel::<()>();
    let writer = tokio::spawn(async move {
        let (block, mut said) = (vec![b'x'; 64 * 1024], 0);
        loop {
            tokio::select! {
                _ = &mut is_enough => break,
                count = says.write(&block) => said += count.unwrap(),
            }
        }
        says.shutdown().await.unwrap();
        // Closed with tickets of the session unread, it would reset what is on its way.
        (said, says)
    });
    let mut passed = 0;
    until("full", || {
        let totals = scene.totals();
        let before = std::mem::replace(&mut passed, totals.bytes_in + totals.bytes_out);
        passed > 0 && passed == before
    })
    .await;
    tokio::time::sleep(time * 2).await;
    drop(enough);
    let mut received = Vec::new();
    in_time(takes.read_to_end(&mut received)).await.unwrap();
    let (said, _says) = in_time(writer).await.unwrap();
    assert_eq!(said, received.len());
}

/// A connection of either side.
trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Wire for T {}

#[tokio::test]
async fn a_client_that_takes_nothing_is_late_also_after_its_last_word() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let scene = Scene::tcp_with(&[listener.local_addr().unwrap()], |listener| {
        listener.timeouts.client_data = SHORT;
        listener.timeouts.member_data = Duration::from_secs(3_600);
    })
    .await;
    let mut client = scene.client().await;
    let (mut member, _) = in_time(listener.accept()).await.unwrap();
    client.shutdown().await.unwrap();
    let block = vec![b'x'; 1 << 20];
    let flood = async { while member.write_all(&block).await.is_ok() {} };
    in_time(flood).await;
    until("given back", || scene.status().open == 0).await;
}

#[tokio::test]
async fn a_changed_time_holds_for_new_connections() {
    let server = Server::start(Manner::Echo).await;
    let scene = Scene::tcp(&[server.address]).await;
    let mut old = scene.settled().await;
    scene
        .change(|listener| listener.timeouts.client_data = SHORT)
        .await
        .unwrap();
    let mut new = scene.settled().await;
    ended(&mut new).await;
    echo(&mut old, b"still there").await;
}

#[tokio::test]
async fn a_member_is_chosen_when_the_client_speaks_or_the_inspection_time_is_over() {
    let server = Server::start(Manner::Echo).await;
    let scene = Scene::tcp_with(&[server.address], |listener| {
        listener.timeouts.tcp_inspect = Duration::from_secs(3_600);
    })
    .await;
    let mut speaks = scene.client().await;
    let silent = scene.client().await;
    echo(&mut speaks, b"hello").await;
    assert_eq!(server.accepted(), 1);
    drop(silent);
    scene
        .change(|listener| listener.timeouts.tcp_inspect = SHORT)
        .await
        .unwrap();
    let greeter = Server::named("welcome").await;
    let swap = scene.change(|listener| listener.pool.members[0].address = greeter.address);
    swap.await.unwrap();
    let start = Instant::now();
    assert_eq!(scene.receive().await, b"welcome");
    assert!(start.elapsed() >= NEARLY, "{:?}", start.elapsed());
}
