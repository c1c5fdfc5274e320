use std::num::NonZeroU16;

use landfall_model::listener::{Listener, Member, Pool, ProxyProtocol};
use landfall_model::{ServiceKey, Uid};
use landfall_sys::arrival;
use landfall_sys::epoll::Epoll;

use super::*;
use crate::budget::Budget;
use crate::changes::Changes;
use crate::engine::member_socket::MemberSockets;
use crate::engine::pipes::Pipes;
use crate::identity::Owner;
use crate::listener::ListenerConfig;

/// The flows of a worker without one.
struct Scene {
    flows: Flows,
    tools: Tools,
    budget: Arc<Budget>,
    member: UdpSocket,
    /// Clients, each with a port of its own.
    clients: Vec<UdpSocket>,
}

impl Scene {
    fn new(files: u64) -> Self {
        Self {
            flows: Flows::new(0),
            tools: Tools {
                epoll: Arc::new(Epoll::new().unwrap()),
                buffer: Box::default(),
                pipes: Pipes::new(0),
                member_sockets: MemberSockets::new(0),
                budget: 0,
                now: 0,
            },
            budget: Budget::new(files, 10_000),
            member: UdpSocket::bind("127.0.0.1:0").unwrap(),
            clients: Vec::new(),
        }
    }

    /// Opens a port of a Service.
    fn open(&mut self, service: &str) -> Key {
        let member = Member::new(self.member.local_addr().unwrap());
        self.open_with(service, |pool| pool.members = vec![member])
    }

    /// The same, at an address.
    fn open_at(&mut self, address: &str, service: &str) -> Key {
        let member = Member::new(self.member.local_addr().unwrap());
        self.open_in(address, service, |pool| pool.members = vec![member])
    }

    fn open_with(&mut self, service: &str, change: impl FnOnce(&mut Pool)) -> Key {
        self.open_in("127.0.0.1", service, change)
    }

    fn open_in(&mut self, address: &str, service: &str, change: impl FnOnce(&mut Pool)) -> Key {
        let socket = UdpSocket::bind((address, 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let at = socket.local_addr().unwrap();
        let mut listener = Listener::new(Protocol::Udp, NonZeroU16::new(at.port()).unwrap());
        change(&mut listener.pool);
        let id = ListenerId {
            address: at.ip(),
            key: listener.key,
        };
        let owner = Owner {
            uid: Uid::new(service),
            service: ServiceKey::new("shop", service),
        };
        let config = ListenerConfig::new(id, &listener).unwrap();
        let account = self.budget.account(&owner.uid, "shop");
        let changes = Changes::default();
        let key = crate::pool::HashKey::new([0; 16], &owner.uid);
        let state = ListenerState::with_account(id, owner, config, 1, &changes, account, key);
        self.flows
            .open(Arc::new(state), socket, &self.tools)
            .unwrap();
        self.flows.ports_by_id[&id][0]
    }

    /// Another client sends to a port.
    fn send(&mut self, port: Key) {
        self.send_from(0, port, b"a");
    }

    /// The same, with an address of its own among many.
    fn send_from(&mut self, source: u8, port: Key, bytes: &[u8]) {
        let to = self.flows.ports.get_mut(port).unwrap();
        let to = to.socket.local_addr().unwrap();
        let own = SocketAddr::from(([127, 0, 1, source + 1], 0));
        let client = UdpSocket::bind(own).unwrap();
        client.send_to(bytes, to).unwrap();
        self.clients.push(client);
        self.flows.port_event(port, &mut self.tools);
    }

    /// Flows that a port ever had.
    fn begun(&mut self, port: Key) -> u64 {
        let port = self.flows.ports.get_mut(port).unwrap();
        port.listener.counters().totals().connections
    }

    /// What a port turned away.
    fn refused(&mut self, port: Key) -> impl Fn(Refusal) -> u64 {
        let port = self.flows.ports.get_mut(port).unwrap();
        let totals = port.listener.counters().totals();
        move |refusal| totals.refused(refusal)
    }

    fn count(&mut self, port: Key) -> usize {
        self.flows.ports.get_mut(port).unwrap().known.len()
    }
}

#[tokio::test]
async fn flows_of_a_service_within_its_minimum_do_not_make_room_for_others() {
    let mut scene = Scene::new(256);
    let modest = scene.open("modest");
    let greedy: Vec<Key> = (0..10).map(|_| scene.open("greedy")).collect();
    for _ in 0..10 {
        scene.send(modest);
    }
    for _ in 0..5 {
        for &port in &greedy {
            scene.send(port);
        }
    }
    let of_greedy = |scene: &mut Scene| {
        let counts = greedy.iter().map(|&port| scene.count(port));
        counts.sum::<usize>()
    };
    assert_eq!((scene.count(modest), of_greedy(&mut scene)), (10, 50));
    let mut ended = 0;
    while let Some(port) = scene.flows.port_with_most() {
        assert!(scene.flows.end_oldest_of(port));
        ended += 1;
        assert_eq!(of_greedy(&mut scene), 50 - ended);
    }
    // A quarter of 112 descriptors is for the minimums of two Services.
    assert_eq!((scene.count(modest), of_greedy(&mut scene)), (10, 14));
}

#[tokio::test]
async fn a_sweep_checks_the_flows_of_one_listener_and_closing_forgets_them() {
    let mut scene = Scene::new(256);
    let (first, second) = (scene.open("first"), scene.open("second"));
    for port in [first, first, second] {
        scene.send(port);
    }
    let id = scene.flows.ports.get_mut(first).unwrap().listener.id();
    assert_eq!(scene.flows.flows_of(id).len(), 2);
    scene.flows.sweep(id);
    assert_eq!(scene.count(first), 2);
    scene.flows.close(id, &scene.tools);
    assert!(scene.flows.flows_of(id).is_empty());
    assert_eq!((scene.count(second), scene.budget.pressure().flows), (1, 1));
}

#[tokio::test]
async fn a_datagram_too_large_for_any_member_is_no_sign_of_overload() {
    let mut scene = Scene::new(256);
    let member = Member::new(scene.member.local_addr().unwrap());
    let port = scene.open_with("web", |pool| {
        pool.members = vec![member];
        pool.proxy_protocol = Some(ProxyProtocol::V2);
    });
    scene.send_from(0, port, &vec![7; 65_507]);
    assert_eq!(scene.begun(port), 0);
    assert_eq!(scene.budget.pressure().shortages, 0);
}

#[tokio::test]
async fn a_datagram_that_no_member_takes_ends_no_flow() {
    // From one source, which has its share of the Service's, and from many.
    for sources in [1, 100] {
        let mut scene = Scene::new(256);
        let [empty, wrapping] = [None, Some(ProxyProtocol::V2)].map(|version| {
            let member = Member::new(scene.member.local_addr().unwrap());
            scene.open_with("web", |pool| {
                pool.members = version.map(|_| member).into_iter().collect();
                pool.proxy_protocol = version;
            })
        });
        // Until flows make room for others; then there is room for one more.
        let mut before = 0;
        for source in (0..sources).cycle() {
            scene.send_from(source, wrapping, b"a");
            let now = scene.count(wrapping);
            if std::mem::replace(&mut before, now) > now {
                break;
            }
        }
        scene.send_from(0, wrapping, b"a");
        let before = scene.count(wrapping);
        for _ in 0..3 {
            // No member, and no room for the header in front of it.
            scene.send_from(0, empty, b"a");
            scene.send_from(0, wrapping, &vec![7; 65_507]);
        }
        assert_eq!(scene.count(wrapping), before, "from {sources}");
        let begun = scene.begun(wrapping);
        scene.send_from(0, wrapping, b"a");
        assert_eq!(scene.begun(wrapping), begun + 1, "from {sources}");
        assert!(scene.count(wrapping) < before, "from {sources}");
    }
}

#[tokio::test]
async fn a_flow_in_which_only_the_member_speaks_is_not_the_oldest() {
    let mut scene = Scene::new(256);
    let port = scene.open("web");
    let mut room = [0; 8];
    scene.send(port);
    let (_, first) = scene.member.recv_from(&mut room).unwrap();
    scene.tools.now += 1;
    scene.send(port);
    scene.tools.now += 1;
    scene.member.send_to(b"b", first).unwrap();
    let peers: Vec<SocketAddr> = scene
        .clients
        .iter()
        .map(|client| client.local_addr().unwrap())
        .collect();
    let known = |scene: &mut Scene, peer| {
        let port = scene.flows.ports.get_mut(port).unwrap();
        port.known.get(peer).copied()
    };
    let first = known(&mut scene, &peers[0]).unwrap();
    scene.flows.flow_event(first, &mut scene.tools);
    assert!(scene.flows.end_oldest_of(port));
    assert_eq!(known(&mut scene, &peers[0]), Some(first));
    assert_eq!(known(&mut scene, &peers[1]), None);
}

/// Receives what a member gets, and with how many hops.
fn arrives(member: &UdpSocket) -> Option<u8> {
    let mut room = [0; 8];
    arrival::receive(member, &mut room).ok()?.hops
}

#[tokio::test]
async fn each_datagram_has_one_hop_less_toward_the_member() {
    let mut scene = Scene::new(256);
    arrival::report(&scene.member, false).unwrap();
    let port = scene.open("web");
    let to = scene.flows.ports.get_mut(port).unwrap();
    let to = to.socket.local_addr().unwrap();
    let [one, two] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    for (client, sent, expected) in [
        (&one, 20, Some(19)),
        (&one, 10, Some(9)),
        (&one, 255, Some(64)),
        (&one, 1, None),
        (&two, 255, Some(64)),
        (&two, 2, Some(1)),
    ] {
        client.set_ttl(sent).unwrap();
        client.send_to(b"a", to).unwrap();
        scene.flows.port_event(port, &mut scene.tools);
        assert_eq!(arrives(&scene.member), expected, "{sent}");
    }
    assert_eq!(scene.begun(port), 2);
    let refused = scene.refused(port);
    assert_eq!([Refusal::Hops, Refusal::Source].map(refused), [1, 0]);
}

#[tokio::test]
async fn an_answer_has_all_hops_however_few_the_question_had() {
    let mut scene = Scene::new(256);
    let port = scene.open("web");
    let to = scene.flows.ports.get_mut(port).unwrap();
    let to = to.socket.local_addr().unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    let usual = client.ttl().unwrap();
    arrival::report(&client, false).unwrap();
    client.set_ttl(2).unwrap();
    client.send_to(b"a", to).unwrap();
    scene.flows.port_event(port, &mut scene.tools);
    let (_, proxy) = scene.member.recv_from(&mut [0]).unwrap();
    scene.member.send_to(b"b", proxy).unwrap();
    let flow = scene.flows.table.key_at(0).unwrap();
    scene.flows.flow_event(flow, &mut scene.tools);
    assert_eq!(arrives(&client).map(u32::from), Some(usual));
}

#[tokio::test]
async fn datagrams_of_one_batch_keep_their_order_and_have_their_own_hops() {
    let mut scene = Scene::new(256);
    arrival::report(&scene.member, false).unwrap();
    let port = scene.open("web");
    let to = scene.flows.ports.get_mut(port).unwrap();
    let to = to.socket.local_addr().unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    for (number, hops) in [9, 9, 5, 1, 9, 9].into_iter().enumerate() {
        client.set_ttl(hops).unwrap();
        client.send_to(&[number as u8], to).unwrap();
    }
    scene.flows.port_event(port, &mut scene.tools);
    let mut came = Vec::new();
    let mut room = [0];
    while let Ok(arrival) = arrival::receive(&scene.member, &mut room) {
        came.push((room[0], arrival.hops.unwrap()));
    }
    assert_eq!(came, [(0, 8), (1, 8), (2, 4), (4, 8), (5, 8)]);
}

#[tokio::test]
async fn over_ipv6_each_datagram_has_one_hop_less_too() {
    let mut scene = Scene::new(256);
    scene.member = UdpSocket::bind("[::1]:0").unwrap();
    arrival::report(&scene.member, true).unwrap();
    let port = scene.open_at("::1", "web");
    let to = scene.flows.ports.get_mut(port).unwrap();
    let to = to.socket.local_addr().unwrap();
    let client = UdpSocket::bind("[::1]:0").unwrap();
    for (sent, expected) in [(20, Some(19)), (255, Some(64)), (1, None), (2, Some(1))] {
        datagram::set_hops(&client, to.ip(), sent).unwrap();
        client.send_to(b"a", to).unwrap();
        scene.flows.port_event(port, &mut scene.tools);
        assert_eq!(arrives(&scene.member), expected, "{sent}");
    }
}

#[tokio::test]
async fn a_datagram_that_comes_round_by_a_way_that_is_not_known_here_comes_to_an_end() {
    let mut scene = Scene::new(4096);
    arrival::report(&scene.member, false).unwrap();
    let port = scene.open("web");
    let to = scene.flows.ports.get_mut(port).unwrap();
    let to = to.socket.local_addr().unwrap();
    scene.send(port);
    // As kube-proxy does: another source and destination, the same datagram otherwise.
    let mut rounds = 0;
    while let Some(hops) = arrives(&scene.member) {
        rounds += 1;
        assert!(rounds <= 64, "it goes round for ever");
        let translated = UdpSocket::bind("127.0.0.1:0").unwrap();
        translated.set_ttl(hops.into()).unwrap();
        translated.send_to(b"a", to).unwrap();
        scene.clients.push(translated);
        scene.flows.port_event(port, &mut scene.tools);
    }
    assert_eq!(rounds, 63);
}
