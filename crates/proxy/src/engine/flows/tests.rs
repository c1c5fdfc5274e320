use std::num::NonZeroU16;

use landfall_model::listener::{Listener, Member};
use landfall_model::{ServiceKey, Uid};
use landfall_sys::epoll::Epoll;
use tokio::sync::watch;

use super::*;
use crate::budget::Budget;
use crate::engine::outlet::Outlets;
use crate::engine::pipes::Pipes;
use crate::listener::Owner;

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
                epoll: Epoll::new().unwrap(),
                room: Box::default(),
                pipes: Pipes::new(0),
                outlets: Outlets::new(0),
                now: 0,
            },
            budget: Budget::new(files, 10_000),
            member: UdpSocket::bind("127.0.0.1:0").unwrap(),
            clients: Vec::new(),
        }
    }

    /// Opens a port of a Service.
    fn open(&mut self, service: &str) -> Key {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let at = socket.local_addr().unwrap();
        let mut listener = Listener::new(Protocol::Udp, NonZeroU16::new(at.port()).unwrap());
        listener.pool.members = vec![Member::new(self.member.local_addr().unwrap())];
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
        let changes = watch::Sender::new(0);
        let state = ListenerState::with_account(id, owner, config, 1, changes, account);
        self.flows
            .open(Arc::new(state), socket, &self.tools)
            .unwrap();
        self.flows.ports_by_id[&id][0]
    }

    /// Another client sends to a port.
    fn send(&mut self, port: Key) {
        let to = self.flows.ports.get_mut(port).unwrap();
        let to = to.socket.local_addr().unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.send_to(b"a", to).unwrap();
        self.clients.push(client);
        self.flows.port_event(port, &mut self.tools);
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
    while scene.flows.end_oldest_of_most() {
        ended += 1;
        assert_eq!(of_greedy(&mut scene), 50 - ended);
    }
    // A quarter of 112 descriptors is for the minimums of two Services.
    assert_eq!((scene.count(modest), of_greedy(&mut scene)), (10, 14));
}

#[tokio::test]
async fn a_sweep_looks_at_the_flows_of_one_listener_and_closing_forgets_them() {
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
