//! Sockets on which routers begin connections.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use ipnet::IpNet;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tracing::{info, warn};

use super::{Neighbor, Refusal, Wanted, connect};
use crate::peer::{Mode, Password, PeerAddress};

/// From one attempt to listen to the next, where another program has the port, and from one to
/// accept a connection to the next, where none can be.
const AGAIN: Duration = Duration::from_secs(1);

/// The first of the addresses that routers at the end of an interface have.
const LINK_LOCAL: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0));

/// Sets the key that a socket asks for from an address, or removes it.
type SetKey = fn(&TcpListener, &IpNet, Option<&Password>) -> io::Result<()>;

/// The sockets, of both families.
#[derive(Debug)]
pub(super) struct Listeners {
    port: Option<u16>,
    sockets: Vec<Open>,
    /// Which of the sockets is asked first: each in turn, so that hosts that begin one connection
    /// after the other on one of them don't keep the routers of the other waiting.
    turn: AtomicUsize,
    /// Why there is no socket of a family though it was attempted again: of IPv6, or of IPv4.
    closed: BTreeMap<bool, String>,
    /// When it is attempted again to listen, or to set keys; `None`: all is as it is to be.
    retry_at: Option<Instant>,
    set_key: SetKey,
    wanted: BTreeMap<IpNet, Password>,
    /// Why sockets do not ask for a key.
    unset: BTreeMap<IpNet, String>,
}

/// A socket that listens.
#[derive(Debug)]
struct Open {
    socket: TcpListener,
    /// The keys that it asks for, not those that it should.
    keys: BTreeMap<IpNet, Password>,
}

// === impl Listeners ===

impl Listeners {
    /// Listens nowhere.
    pub fn new(set_key: SetKey) -> Self {
        Self {
            port: None,
            sockets: Vec::new(),
            turn: AtomicUsize::new(0),
            closed: BTreeMap::new(),
            retry_at: None,
            set_key,
            wanted: BTreeMap::new(),
            unset: BTreeMap::new(),
        }
    }

    /// Listens as configured, with the passwords of all routers.
    pub fn adjust(&mut self, wanted: &Wanted) {
        let now = Instant::now();
        let is_first = self.port != wanted.listen;
        if is_first {
            self.port = wanted.listen;
            self.sockets.clear();
            self.closed.clear();
            self.retry_at = self.port.map(|_| now);
        }
        let is_due = self.retry_at.is_some_and(|at| at <= now);
        if is_due {
            self.retry_at = None;
            self.open(now, is_first);
        }
        let keys = wanted.peers.values().filter_map(key_of).collect();
        if is_due || keys != self.wanted {
            self.wanted = keys;
            self.set_keys(now);
        }
    }

    /// Listens where it does not yet. The program that had the port may end: an earlier speaker of
    /// this node, for example.
    fn open(&mut self, now: Instant, is_first: bool) {
        for is_ipv6 in [false, true] {
            let is_open = |it: &Open| it.is_ipv6() == is_ipv6;
            let Some(port) = self.port.filter(|_| !self.sockets.iter().any(is_open)) else {
                continue;
            };
            match connect::listen(port, is_ipv6) {
                Ok(socket) => {
                    info!(port, is_ipv6, "accepts BGP connections");
                    let keys = BTreeMap::new();
                    self.sockets.push(Open { socket, keys });
                    self.closed.remove(&is_ipv6);
                }
                Err(error) => {
                    if is_first {
                        warn!(port, is_ipv6, %error, "cannot accept BGP connections yet");
                    } else {
                        self.closed.insert(is_ipv6, error.to_string());
                    }
                    self.retry_at = Some(now + AGAIN);
                }
            }
        }
    }

    /// Lets all sockets ask for the keys that are wanted. Those that can't be set now, for want of
    /// memory of the socket for example, are attempted again.
    fn set_keys(&mut self, now: Instant) {
        let mut unset = BTreeMap::new();
        for open in &mut self.sockets {
            open.follow(&self.wanted, self.set_key, &mut unset);
        }
        for (from, why) in &unset {
            if self.unset.get(from) != Some(why) {
                warn!(%from, why, "connections of a router are refused: its password is not set");
            }
        }
        if !unset.is_empty() {
            self.retry_at.get_or_insert(now + AGAIN);
        }
        self.unset = unset;
    }

    /// Returns whether connections of a router are to be refused: nothing asked for the signature
    /// that its password is for. A socket has keys for addresses, and the address at the other end
    /// of an interface is not known before.
    pub fn refuses(&self, neighbor: &Neighbor) -> bool {
        if neighbor.peer.password.is_none() {
            return false;
        }
        let Some((from, key)) = key_of(neighbor) else {
            return true;
        };
        let is_asked = |it: &Open| it.keys.get(&from) == Some(&key);
        !self.sockets.iter().any(is_asked)
    }

    /// Returns why connections that a router is meant to begin are refused; `None`: they are not.
    pub fn refusal(&self, neighbor: &Neighbor) -> Option<Refusal> {
        let _is_listening = self.port?;
        let peer = &neighbor.peer;
        if peer.vrf.is_some() {
            return None;
        }
        // In the other mode this side begins the session, with the password.
        let is_waiting = peer.mode == Mode::Passive;
        if let Some(why) = self.closed.get(&is_ipv6(&peer.address))
            && is_waiting
        {
            return Some(Refusal::Closed(why.clone()));
        }
        if peer.password.is_none() {
            return self.range_around(&peer.address).map(Refusal::Keyed);
        }
        if let Some((from, _)) = key_of(neighbor) {
            return self.unset.get(&from).cloned().map(Refusal::Unsigned);
        }
        let is_unnumbered = matches!(peer.address, PeerAddress::Interface(_));
        let why = "a password is asked for at an address, and only the interface is known";
        (is_waiting && is_unnumbered).then(|| Refusal::Unsigned(why.to_owned()))
    }

    /// Returns a range around routers for which a key is asked.
    fn range_around(&self, routers: &PeerAddress) -> Option<IpNet> {
        let covers = |keyed: &&IpNet| match routers {
            PeerAddress::Ip(address) => keyed.contains(address),
            PeerAddress::Range(range) => keyed.contains(range),
            PeerAddress::Interface(_) => keyed.contains(&LINK_LOCAL),
        };
        let mut keyed = self.sockets.iter().flat_map(|it| it.keys.keys());
        keyed.find(covers).copied()
    }

    /// Waits until it is to be attempted again to listen.
    pub async fn retry(&self) {
        match self.retry_at {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// Waits for a connection. Where none can be accepted, for want of descriptors for example, it
    /// is attempted again after a while: the socket stays ready, and asking it at once would keep a
    /// core busy and everything else on this thread waiting.
    pub async fn accept(&self) -> (TcpStream, SocketAddr) {
        loop {
            match self.accept_next().await {
                Ok(accepted) => return accepted,
                Err(error) => warn!(%error, "a router's connection was not accepted"),
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn accept_next(&self) -> io::Result<(TcpStream, SocketAddr)> {
        poll_fn(|cx| {
            let count = self.sockets.len();
            let first = self.turn.load(Ordering::Relaxed) % count.max(1);
            for open in self.sockets.iter().cycle().skip(first).take(count) {
                if let Poll::Ready(accepted) = open.socket.poll_accept(cx) {
                    self.turn.store(first + 1, Ordering::Relaxed);
                    return Poll::Ready(accepted);
                }
            }
            Poll::Pending
        })
        .await
    }
}

// === impl Open ===

impl Open {
    fn is_ipv6(&self) -> bool {
        self.socket.local_addr().is_ok_and(|it| it.is_ipv6())
    }

    /// Asks for these keys, and for no others. Notes why it does not for some.
    fn follow(
        &mut self,
        wanted: &BTreeMap<IpNet, Password>,
        set_key: SetKey,
        unset: &mut BTreeMap<IpNet, String>,
    ) {
        let Self { socket, keys } = self;
        // Room for others is made first.
        keys.retain(|from, _| {
            if wanted.contains_key(from) {
                return true;
            }
            let Err(error) = set_key(socket, from, None) else {
                return false;
            };
            unset.insert(
                *from,
                format!("the old password is still asked for: {error}"),
            );
            true
        });
        let is_ipv6 = socket.local_addr().is_ok_and(|it| it.is_ipv6());
        let of_family = wanted
            .iter()
            .filter(|(from, _)| from.addr().is_ipv6() == is_ipv6);
        let mut is_new = false;
        for (from, key) in of_family {
            if keys.get(from) == Some(key) {
                continue;
            }
            match set_key(socket, from, Some(key)) {
                Ok(()) => {
                    is_new = true;
                    keys.insert(*from, key.clone());
                }
                Err(error) => drop(unset.insert(*from, error.to_string())),
            }
        }
        if is_new {
            self.drop_waiting();
        }
    }

    /// Drops connections that wait to be accepted: what they sent before a key was asked for is not
    /// signed, and would be read.
    fn drop_waiting(&self) {
        let socket = SockRef::from(&self.socket);
        for _ in 0..=connect::BACKLOG {
            if socket.accept().is_err() {
                break;
            }
        }
    }
}

/// Returns of which family connections of routers are.
const fn is_ipv6(routers: &PeerAddress) -> bool {
    match routers {
        PeerAddress::Ip(address) => address.is_ipv6(),
        PeerAddress::Range(IpNet::V6(_)) | PeerAddress::Interface(_) => true,
        PeerAddress::Range(IpNet::V4(_)) => false,
    }
}

fn key_of(neighbor: &Neighbor) -> Option<(IpNet, Password)> {
    if neighbor.peer.vrf.is_some() {
        // Its connections don't come here, and another router may have the address.
        return None;
    }
    let from = match neighbor.peer.address {
        PeerAddress::Ip(address) => address.into(),
        PeerAddress::Range(network) => network,
        PeerAddress::Interface(_) => return None,
    };
    Some((from, neighbor.peer.password.clone()?))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::peer::Peer;
    use crate::session::tests::peer;

    #[tokio::test(start_paused = true)]
    async fn a_socket_that_gives_no_connection_is_asked_again_after_a_while_and_not_at_once() {
        let socket = connect::listen(0, false).unwrap();
        // From now on it is always ready, and always fails.
        SockRef::from(&socket)
            .shutdown(std::net::Shutdown::Both)
            .unwrap();
        let listeners = Listeners {
            sockets: vec![Open {
                socket,
                keys: BTreeMap::new(),
            }],
            ..Listeners::new(connect::listen_key)
        };
        assert!(listeners.accept_next().await.is_err());
        let others = async {
            for _ in 0..10 {
                tokio::time::sleep(AGAIN).await;
            }
        };
        tokio::select! {
            biased;
            _ = listeners.accept() => panic!("there was no connection"),
            () = others => {}
        }
    }

    #[tokio::test]
    async fn a_port_that_another_program_has_is_listened_on_once_that_ends() {
        let other = connect::listen(0, false).unwrap();
        let port = other.local_addr().unwrap().port();
        let wanted = Wanted {
            listen: Some(port),
            ..Wanted::default()
        };
        let mut listeners = Listeners::new(connect::listen_key);
        let is_open = |it: &Listeners| it.sockets.iter().any(|it| !it.is_ipv6());
        listeners.adjust(&wanted);
        assert!(!is_open(&listeners));
        drop(other);
        let opened = async {
            while !is_open(&listeners) {
                listeners.retry().await;
                listeners.adjust(&wanted);
            }
        };
        tokio::time::timeout(Duration::from_secs(60), opened)
            .await
            .unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn where_nothing_listens_that_is_said_of_routers_that_are_to_begin_once_it_lasts() {
        let other = connect::listen(0, false).unwrap();
        let port = other.local_addr().unwrap().port();
        let wanted = Wanted {
            listen: Some(port),
            ..Wanted::default()
        };
        let of = |address, mode| {
            let mut neighbor = keyed(address, None);
            neighbor.peer.mode = mode;
            neighbor
        };
        let waits = of(at("10.0.0.0/24"), Mode::Passive);
        let begins = of(PeerAddress::Ip([192, 0, 2, 1].into()), Mode::Active);
        let other_family = of(at("2001:db8::/64"), Mode::Passive);
        let mut listeners = Listeners::new(set_key);
        // An earlier speaker may end in a moment.
        listeners.adjust(&wanted);
        assert_eq!(listeners.refusal(&waits), None);
        listeners.retry().await;
        listeners.adjust(&wanted);
        let said = listeners.refusal(&waits);
        assert!(matches!(said, Some(Refusal::Closed(_))), "{said:?}");
        for it in [&begins, &other_family] {
            assert_eq!(listeners.refusal(it), None);
        }
        drop(other);
        listeners.retry().await;
        listeners.adjust(&wanted);
        assert_eq!(listeners.refusal(&waits), None);
    }

    #[tokio::test]
    async fn connections_of_one_family_do_not_keep_those_of_the_other_waiting() {
        let sockets = [false, true].map(|is_ipv6| connect::listen(0, is_ipv6).unwrap());
        let to = sockets.each_ref().map(|it| it.local_addr().unwrap().port());
        let (many, one) = ((Ipv4Addr::LOCALHOST, to[0]), (Ipv6Addr::LOCALHOST, to[1]));
        let connect = |to: SocketAddr| std::net::TcpStream::connect(to).unwrap();
        let mut routers: Vec<_> = (0..8).map(|_| connect(many.into())).collect();
        routers.push(connect(one.into()));
        let open = |socket| Open {
            socket,
            keys: BTreeMap::new(),
        };
        let listeners = Listeners {
            sockets: sockets.map(open).into(),
            ..Listeners::new(connect::listen_key)
        };
        let mut families = Vec::new();
        for _ in 0..4 {
            let (_, from) = listeners.accept_next().await.unwrap();
            families.push(from.is_ipv6());
        }
        assert!(families.contains(&true), "{families:?}");
    }

    /// Whether keys of 10.0.0.0/8 can't be set, and whether none can be removed.
    static FULL: AtomicBool = AtomicBool::new(true);
    static STUCK: AtomicBool = AtomicBool::new(false);

    fn set_key(_: &TcpListener, from: &IpNet, key: Option<&Password>) -> io::Result<()> {
        let is_far = from.to_string().starts_with("10.");
        let fails = match key {
            Some(_) => is_far && FULL.load(Ordering::Relaxed),
            None => STUCK.load(Ordering::Relaxed),
        };
        if fails {
            return Err(io::Error::other("no memory"));
        }
        Ok(())
    }

    fn keyed(address: PeerAddress, password: Option<&str>) -> Neighbor {
        let password = password.map(|it| Password::new(it).unwrap());
        Neighbor {
            peer: Peer {
                address,
                password,
                ..peer()
            },
            routes: Arc::default(),
        }
    }

    fn at(network: &str) -> PeerAddress {
        PeerAddress::Range(network.parse().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn connections_of_a_router_are_refused_until_its_password_is_asked_for() {
        let port = super::super::tests::free_port();
        let near = keyed(PeerAddress::Ip([192, 0, 2, 1].into()), Some("near"));
        let far = keyed(at("10.0.0.0/24"), Some("far"));
        let open = keyed(PeerAddress::Ip([192, 0, 2, 2].into()), None);
        let mut wanted = Wanted {
            listen: Some(port),
            peers: [("near".into(), near.clone()), ("far".into(), far.clone())].into(),
            ..Wanted::default()
        };
        let mut listeners = Listeners::new(set_key);
        assert!(listeners.refuses(&near));
        listeners.adjust(&wanted);
        assert!(!listeners.refuses(&near) && !listeners.refuses(&open));
        assert!(listeners.refuses(&far));
        let no_memory = Refusal::Unsigned("no memory".to_owned());
        assert_eq!(listeners.refusal(&far), Some(no_memory));
        assert_eq!(listeners.refusal(&near), None);

        // It is attempted again by itself.
        FULL.store(false, Ordering::Relaxed);
        listeners.adjust(&wanted);
        assert!(listeners.refuses(&far));
        listeners.retry().await;
        listeners.adjust(&wanted);
        assert!(!listeners.refuses(&far));
        assert_eq!(listeners.refusal(&far), None);

        // A password that can't be replaced is not the one that is asked for.
        FULL.store(true, Ordering::Relaxed);
        let changed = keyed(at("10.0.0.0/24"), Some("changed"));
        wanted.peers.insert("far".into(), changed.clone());
        listeners.adjust(&wanted);
        assert!(listeners.refuses(&changed) && listeners.refusal(&changed).is_some());

        // One that can't be removed is attempted again, too.
        STUCK.store(true, Ordering::Relaxed);
        wanted.peers.clear();
        listeners.adjust(&wanted);
        STUCK.store(false, Ordering::Relaxed);
        listeners.retry().await;
        listeners.adjust(&wanted);
        assert!(listeners.sockets.iter().all(|it| it.keys.is_empty()));
    }

    #[tokio::test]
    async fn a_router_without_password_in_a_range_with_one_is_refused_and_that_is_said() {
        let ranges = [("172.16.0.0/12", "near"), ("::/0", "far")];
        let name = |it: &str| Arc::from(it);
        let ranges = ranges.map(|(range, key)| (name(range), keyed(at(range), Some(key))));
        let wanted = Wanted {
            listen: Some(super::super::tests::free_port()),
            peers: ranges.clone().into(),
            ..Wanted::default()
        };
        let mut listeners = Listeners::new(set_key);
        let ip = |it: &str| PeerAddress::Ip(it.parse().unwrap());
        for is_keyed in [false, true] {
            for (address, range) in [
                (ip("172.16.0.1"), Some("172.16.0.0/12")),
                (at("172.16.0.0/24"), Some("172.16.0.0/12")),
                (PeerAddress::Interface("eth0".into()), Some("::/0")),
                (ip("192.0.2.1"), None),
                (at("172.0.0.0/8"), None),
            ] {
                // Not before the sockets have the keys.
                let range = range.filter(|_| is_keyed).map(|it| it.parse().unwrap());
                let plain = keyed(address.clone(), None);
                assert_eq!(
                    listeners.refusal(&plain),
                    range.map(Refusal::Keyed),
                    "{address:?}"
                );
                let mut far = plain.clone();
                far.peer.vrf = Some("red".to_owned());
                assert_eq!(listeners.refusal(&far), None);
                let PeerAddress::Ip(_) = address else {
                    continue;
                };
                assert_eq!(listeners.refusal(&keyed(address, Some("own"))), None);
            }
            for (_, range) in &ranges {
                assert_eq!(listeners.refusal(range), None);
            }
            listeners.adjust(&wanted);
        }
    }

    #[tokio::test]
    async fn a_connection_that_waits_since_before_its_key_was_asked_for_is_not_taken() {
        let port = super::super::tests::free_port();
        let mut wanted = Wanted {
            listen: Some(port),
            ..Wanted::default()
        };
        let mut listeners = Listeners::new(connect::listen_key);
        listeners.adjust(&wanted);
        let own = IpAddr::from(Ipv4Addr::LOCALHOST);
        let to = SocketAddr::new(own, port);
        let mut plain = std::net::TcpStream::connect(to).unwrap();
        std::io::Write::write_all(&mut plain, b"not signed").unwrap();
        let router = keyed(PeerAddress::Ip(own), Some("secret"));
        wanted.peers.insert("tor".into(), router);
        listeners.adjust(&wanted);
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        landfall_sys::bgp::set_md5_key(&socket, own, b"secret").unwrap();
        let signed = socket.connect(to).await.unwrap();
        let (_, from) = listeners.accept_next().await.unwrap();
        assert_eq!(from, signed.local_addr().unwrap());
    }

    #[tokio::test]
    async fn a_password_at_an_interface_is_for_connections_that_this_side_begins() {
        let mut listeners = Listeners::new(connect::listen_key);
        let mut unnumbered = keyed(PeerAddress::Interface("eth0".into()), Some("secret"));
        listeners.port = Some(179);
        assert!(listeners.refuses(&unnumbered));
        assert_eq!(listeners.refusal(&unnumbered), None);
        unnumbered.peer.mode = Mode::Passive;
        assert!(listeners.refusal(&unnumbered).is_some());
    }
}
