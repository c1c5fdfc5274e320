//! Listeners at addresses that something else assigned.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;

use landfall_local::Serving;
use landfall_model::limits::Limits;
use landfall_model::listener::Listener;
use landfall_model::reason::Code;
use landfall_model::{Protocol, ServiceKey, Uid};
use landfall_proxy::{Proxy, ProxyConfig};

struct Node {
    proxy: Arc<Proxy>,
    serving: Serving,
}

impl Node {
    fn start(limits: Limits) -> Self {
        let proxy = Arc::new(Proxy::start(ProxyConfig::default()).unwrap());
        let serving = Serving::new(proxy.clone(), limits);
        Self { proxy, serving }
    }

    fn open(&self) -> BTreeSet<SocketAddr> {
        let open = self.proxy.snapshot().into_iter().filter(|it| !it.draining);
        open.map(|it| it.id.socket_address()).collect()
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn listeners(ports: &[u16]) -> Vec<Listener> {
    let listener = |port: &u16| Listener::new(Protocol::Tcp, (*port).try_into().unwrap());
    ports.iter().map(listener).collect()
}

fn sockets(texts: &[&str]) -> BTreeSet<SocketAddr> {
    texts.iter().map(|it| it.parse().unwrap()).collect()
}

fn web() -> (Uid, ServiceKey) {
    (Uid::new("1"), ServiceKey::new("shop", "web"))
}

#[tokio::test]
async fn a_service_has_its_listeners_at_its_addresses_and_no_others() {
    let node = Node::start(Limits::default());
    let (uid, key) = web();
    let both = [ip("127.78.3.1"), ip("127.78.3.2")];
    let two = listeners(&[8080, 8081]);
    let serve = node.serving.serve(&uid, &key, &two, &both);
    assert!(serve.await.is_ok());
    assert_eq!(node.open().len(), 4);
    assert_eq!(node.proxy.addresses(), both.into());
    // Both at once: a port and an address less.
    let one = listeners(&[8081]);
    let serve = node.serving.serve(&uid, &key, &one, &both[1..]);
    assert!(serve.await.is_ok());
    assert_eq!(node.open(), sockets(&["127.78.3.2:8081"]));
    assert_eq!(node.serving.live(&uid).len(), 1);
    assert!(node.serving.serve(&uid, &key, &[], &both).await.is_ok());
    assert_eq!(node.open(), sockets(&[]));
    assert_eq!(node.proxy.addresses(), BTreeSet::new());
}

#[tokio::test]
async fn a_port_that_is_taken_is_reported_and_opened_once_it_is_free() {
    let node = Node::start(Limits::default());
    let (uid, key) = web();
    let other = TcpListener::bind("127.78.3.3:8080").unwrap();
    let (wanted, addresses) = (listeners(&[8080, 8081]), [ip("127.78.3.3")]);
    let serve = async || node.serving.serve(&uid, &key, &wanted, &addresses).await;
    let failed = serve().await.unwrap_err();
    let reasons: Vec<Code> = failed.iter().map(|it| it.reason.code).collect();
    assert_eq!(reasons, [Code::PortInUse]);
    assert_eq!(
        node.open(),
        sockets(&["127.78.3.3:8081"]),
        "the rest serves"
    );
    drop(other);
    assert!(serve().await.is_ok());
    assert_eq!(node.open().len(), 2);
}

#[tokio::test]
async fn a_listener_that_is_gone_is_found_by_the_audit() {
    let node = Node::start(Limits::default());
    let (uid, key) = web();
    let (wanted, addresses) = (listeners(&[8080]), [ip("127.78.3.4")]);
    let serve = async || node.serving.serve(&uid, &key, &wanted, &addresses).await;
    assert!(serve().await.is_ok());
    assert_eq!(node.serving.audit(), []);
    node.proxy.close_all().await;
    assert_eq!(node.serving.audit(), std::slice::from_ref(&uid));
    assert!(serve().await.is_ok());
    assert_eq!(node.serving.audit(), []);
}

#[tokio::test]
async fn a_namespace_has_no_more_listeners_than_it_may() {
    let limits = Limits {
        ports_per_namespace: Some(1),
        ..Limits::default()
    };
    let node = Node::start(limits);
    let (uid, key) = web();
    let (wanted, addresses) = (listeners(&[8080, 8081]), [ip("127.78.3.5")]);
    let served = node.serving.serve(&uid, &key, &wanted, &addresses).await;
    let failed = served.unwrap_err();
    assert_eq!(failed[0].reason.code, Code::LimitReached);
    assert_eq!(node.open().len(), 1);
}
