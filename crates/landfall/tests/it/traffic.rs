//! Connections and datagrams: which are accepted, where they go, how long they last.

use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use landfall_model::reason::Code;
use landfall_model::view::ServiceView;

use crate::backend::{self, Backend};
use crate::client::{self, Talk};
use crate::lab::Lab;
use crate::manifest::svc;
use crate::view::{at, is_ready, listener};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_port_accepts_no_connection_and_lets_open_ones_end() {
    let lab = Lab::new();
    let pods = backend::pods(&lab, &["a"]).await;
    let service = |port: u16| svc("web").tcp(port).members(&[pods[0].address]).yaml();
    lab.write("web.yaml", &service(8080));
    let lab = lab.started().await;
    let web = lab.ready("default/web").await;
    let old = at(&web, 8080);
    let mut talk = Talk::to(old).await.unwrap();
    talk.say("before").await.unwrap();
    lab.write("web.yaml", &service(8081));
    let moved = |service: &ServiceView| {
        let ports: Vec<u16> = service
            .listeners
            .iter()
            .map(|it| it.key.port.get())
            .collect();
        ports == [8081] && is_ready(service)
    };
    let web = lab.until("default/web", "has moved its port", moved).await;
    assert_eq!(at(&web, 8081).ip(), old.ip());
    assert_eq!(client::member(at(&web, 8081)).await.unwrap(), "a");
    assert!(client::member(old).await.is_err());
    talk.say("after").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn datagrams_find_their_member_and_keep_it() {
    let lab = Lab::new();
    let mut pods = Vec::new();
    for (name, number) in [("a", 1), ("b", 2)] {
        pods.push(Backend::datagrams(name, lab.ranges.backend(number, 3053)).await);
    }
    let members = [pods[0].address, pods[1].address];
    let tcp = Backend::lines("tcp", members[0]).await;
    let service = svc("dns")
        .port("udp", "UDP", 8053)
        .port("tcp", "TCP", 8053)
        .option("endpoints.udp", &format!("{}, {}", members[0], members[1]))
        .option("endpoints.tcp", &tcp.address.to_string())
        .option("proxy-protocol.udp", "off");
    lab.write("dns.yaml", &service.yaml());
    let lab = lab.started().await;
    let dns = lab.ready("default/dns").await;
    let target = at(&dns, 8053);
    let mut names = Vec::new();
    for number in 0..6 {
        let socket = client::udp(target).await.unwrap();
        let first = client::exchange(&socket, "first").await.unwrap();
        let again = client::exchange(&socket, &format!("again {number}"))
            .await
            .unwrap();
        assert_eq!(again.text, format!("again {number}"));
        assert_eq!((again.name, again.peer), (first.name.clone(), first.peer));
        names.push(first.name);
    }
    names.sort();
    assert_eq!(names, ["a", "a", "a", "b", "b", "b"]);
    assert_eq!(client::member(target).await.unwrap(), "tcp");
    // An edit of the other port does not move a flow.
    let socket = client::udp(target).await.unwrap();
    let before = client::exchange(&socket, "before").await.unwrap();
    let edited = service.option("algorithm.tcp", "SOURCE_IP").yaml();
    lab.write("dns.yaml", &edited);
    lab.settled().await;
    let after = client::exchange(&socket, "after").await.unwrap();
    assert_eq!((after.name, after.peer), (before.name, before.peer));
    // Datagrams of every size that fits.
    for size in [1, 1472, 9000, 60_000] {
        let text = "x".repeat(size);
        assert_eq!(client::exchange(&socket, &text).await.unwrap().text, text);
    }
    // A header for members, where it is asked for.
    lab.write(
        "dns.yaml",
        &edited.replace("proxy-protocol.udp: \"off\"", "proxy-protocol.udp: v2"),
    );
    lab.settled().await;
    let socket = client::udp(target).await.unwrap();
    let said = client::exchange(&socket, "hello").await.unwrap();
    assert_eq!(
        said.header,
        format!("v2 {} {target}", socket.local_addr().unwrap())
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_allowed_sources_are_served_and_an_edit_changes_which() {
    let lab = Lab::new();
    let pods = backend::pods(&lab, &["a"]).await;
    let (one, other) = (lab.ranges.client(1), lab.ranges.client(2));
    let service = |ranges: &str| {
        let service = svc("web").tcp(8080).members(&[pods[0].address]);
        service
            .spec(format!("loadBalancerSourceRanges: [{ranges}]"))
            .yaml()
    };
    lab.write("web.yaml", &service(&format!("{one}/32")));
    let lab = lab.started().await;
    let target = at(&lab.ready("default/web").await, 8080);
    let from = async |source: IpAddr| match Talk::from(source, target).await {
        Ok(mut talk) => talk.say("hello").await.map(|said| said.name),
        Err(error) => Err(error),
    };
    assert_eq!(from(one).await.unwrap(), "a");
    assert!(from(other).await.is_err());
    let mut talk = Talk::from(one, target).await.unwrap();
    talk.say("before").await.unwrap();
    let refused = listener(&lab.service("default/web").await, 8080)
        .traffic
        .failed;
    assert_eq!(refused, 1);

    lab.write("web.yaml", &service(&format!("{other}/32, \"::1/128\"")));
    lab.settled().await;
    assert_eq!(from(other).await.unwrap(), "a");
    assert!(from(one).await.is_err());
    // A connection from before ends, too.
    assert!(talk.say("after").await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ipv6_and_both_families_are_served_where_there_are_addresses() {
    let lab = Lab::new();
    let pods = backend::pods(&lab, &["a"]).await;
    let six = IpAddr::V6(Ipv6Addr::LOCALHOST);
    // The only IPv6 address of a machine without a network; ports keep tests apart.
    let port = pods_port().await;
    let both = svc("both")
        .tcp(port)
        .members(&[pods[0].address])
        .spec("ipFamilyPolicy: RequireDualStack")
        .spec("ipFamilies: [IPv6, IPv4]")
        .spec("loadBalancerSourceRanges: [\"::1/128\"]");
    lab.write("both.yaml", &both.yaml());
    let lab = lab.also(&["--pool", "::1/128"]).started().await;
    let service = lab.ready("default/both").await;
    let addresses: Vec<IpAddr> = service.status.addresses().collect();
    assert_eq!(addresses.len(), 2, "{addresses:?}");
    // IPv4 first, whatever the order of the families: as MetalLB lists them.
    let four = addresses[0];
    assert!(four.is_ipv4());
    assert_eq!(addresses[1], six);
    assert_eq!(client::member((six, port).into()).await.unwrap(), "a");
    assert!(client::member((four, port).into()).await.is_err());
    assert_eq!(listener(&service, port).addresses.len(), 2);

    let wider = both.clone().spec("sessionAffinity: None").yaml();
    let wider = wider.replace("[\"::1/128\"]", "[\"::/0\", 127.0.0.0/8]");
    lab.write("both.yaml", &wider);
    lab.settled().await;
    assert_eq!(client::member((six, port).into()).await.unwrap(), "a");
    assert_eq!(client::member((four, port).into()).await.unwrap(), "a");

    // The next one finds no IPv6 address any more, and prefers both.
    let text = svc("next")
        .tcp(port + 1)
        .members(&[pods[0].address])
        .spec("ipFamilyPolicy: PreferDualStack")
        .spec("ipFamilies: [IPv4, IPv6]");
    lab.write("next.yaml", &text.yaml());
    let next = lab.ready("default/next").await;
    let addresses: Vec<IpAddr> = next.status.addresses().collect();
    assert_eq!(addresses.len(), 1, "{addresses:?}");
    assert!(addresses[0].is_ipv4());
    // One that needs an IPv6 address says why it has none.
    let text = text.yaml().replace("PreferDualStack", "SingleStack");
    let text = text
        .replace("[IPv4, IPv6]", "[IPv6]")
        .replace("name: next", "name: six");
    lab.write("six.yaml", &text);
    let reason = lab.reason("default/six", Code::PoolExhausted).await;
    assert!(reason.message.contains("IPv6"), "{reason}");
}

/// A port that is free on `::1`, as is the next one.
async fn pods_port() -> u16 {
    loop {
        let first = tokio::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0))
            .await
            .unwrap();
        let port = first.local_addr().unwrap().port();
        if tokio::net::TcpListener::bind((Ipv6Addr::LOCALHOST, port + 1))
            .await
            .is_ok()
        {
            return port;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_services_share_an_address_by_their_key() {
    let lab = Lab::new();
    let pods = backend::pods(&lab, &["a", "b"]).await;
    let service = |name: &str, port: u16, pod: usize| {
        let service = svc(name).tcp(port).members(&[pods[pod].address]);
        service.option("sharing-key", "edge")
    };
    lab.write("front.yaml", &service("front", 8081, 0).yaml());
    let address = lab.ranges.pool(33).to_string();
    let back = service("back", 8082, 1).option("addresses", &address);
    lab.write("back.yaml", &back.yaml());
    let front = service("front", 8081, 0).option("addresses", &address);
    lab.write("front.yaml", &front.yaml());
    let lab = lab.started().await;
    let front = lab.ready("default/front").await;
    let back = lab.ready("default/back").await;
    assert_eq!(at(&front, 8081).ip(), at(&back, 8082).ip());
    assert_eq!(client::member(at(&front, 8081)).await.unwrap(), "a");
    assert_eq!(client::member(at(&back, 8082)).await.unwrap(), "b");
    assert_eq!(lab.view().await.pools[0].assigned_ipv4, 1);

    // A third one with a port that is taken there, and one with another key.
    let clash = service("clash", 8082, 0).option("addresses", &address);
    lab.write("clash.yaml", &clash.yaml());
    let reason = lab.reason("default/clash", Code::AddressNotShareable).await;
    assert!(reason.message.contains("8082/TCP"), "{reason}");
    let other = clash.option("sharing-key", "other").yaml();
    lab.write("clash.yaml", &other.replace("8082", "8083"));
    let differs = |service: &ServiceView| {
        service
            .reasons
            .iter()
            .any(|it| it.message.contains("\"other\""))
    };
    lab.until("default/clash", "says that the keys differ", differs)
        .await;
    // Both go on, and the one that stays keeps the address when the other one goes.
    lab.remove("front.yaml");
    lab.gone("default/front").await;
    assert_eq!(client::member(at(&back, 8082)).await.unwrap(), "b");
    assert!(client::member(at(&front, 8081)).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_limit_holds_and_an_edit_lifts_it() {
    let lab = Lab::new();
    let pods = backend::pods(&lab, &["a"]).await;
    let service = svc("web").tcp(8080).members(&[pods[0].address]);
    let limited = service.clone().option("connection-limit", "2");
    lab.write("web.yaml", &limited.yaml());
    let lab = lab.started().await;
    let web = lab.ready("default/web").await;
    assert_eq!(listener(&web, 8080).connection_limit, Some(2));
    let target = at(&web, 8080);
    let mut first = Talk::to(target).await.unwrap();
    let mut second = Talk::to(target).await.unwrap();
    first.say("one").await.unwrap();
    second.say("two").await.unwrap();
    // The third one waits (its handshake is the kernel's) until a place is free.
    let waits = tokio::spawn(client::member(target));
    let mut third = Talk::to(target).await.unwrap();
    let time_limit = Duration::from_millis(300);
    let early = tokio::time::timeout(time_limit, third.say("three")).await;
    assert!(early.is_err(), "{early:?}");
    assert_eq!(
        listener(&lab.service("default/web").await, 8080)
            .traffic
            .open,
        2
    );
    drop(first);
    drop(third);
    assert_eq!(waits.await.unwrap().unwrap(), "a");
    lab.write("web.yaml", &service.yaml());
    lab.settled().await;
    let mut many = Vec::new();
    for _ in 0..5 {
        let mut talk = Talk::to(target).await.unwrap();
        talk.say("many").await.unwrap();
        many.push(talk);
    }
    second.say("still there").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_ends_a_connection_after_the_timeout_that_is_in_force() {
    let lab = Lab::new();
    let pods = backend::pods(&lab, &["a"]).await;
    let service = |timeout: &str| {
        let service = svc("web").tcp(8080).members(&[pods[0].address]);
        service.option("timeout-client-data", timeout).yaml()
    };
    lab.write("web.yaml", &service("2s"));
    let lab = lab.started().await;
    let target = at(&lab.ready("default/web").await, 8080);
    let mut talk = Talk::to(target).await.unwrap();
    talk.say("hello").await.unwrap();
    let began = Instant::now();
    talk.ended().await;
    assert!(
        began.elapsed() >= Duration::from_millis(1900),
        "{:?}",
        began.elapsed()
    );
    lab.write("web.yaml", &service("1h"));
    lab.settled().await;
    let mut talk = Talk::to(target).await.unwrap();
    talk.say("hello").await.unwrap();
    let quiet = tokio::time::timeout(Duration::from_millis(3500), talk.ended()).await;
    assert!(quiet.is_err(), "the old timeout is still in force");
    talk.say("still there").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn big_transfers_arrive_whole_in_both_directions() {
    let lab = Lab::new();
    let pods = backend::pods(&lab, &["a"]).await;
    lab.write(
        "web.yaml",
        &svc("web").tcp(8080).members(&[pods[0].address]).yaml(),
    );
    let lab = lab.started().await;
    let target = at(&lab.ready("default/web").await, 8080);
    let mut talk = Talk::to(target).await.unwrap();
    let mut total = 0;
    for size in [1, 100_000, 3_000_000, 20_000_000] {
        let text: String = "abcdefghijklmnopqrstuvw"
            .chars()
            .cycle()
            .take(size)
            .collect();
        // `say` compares what comes back with what was sent.
        assert_eq!(talk.say(&text).await.unwrap().name, "a");
        total += u64::try_from(size).unwrap();
    }
    let counted = |service: &ServiceView| {
        let traffic = listener(service, 8080).traffic;
        traffic.bytes_in >= total && traffic.bytes_out >= total
    };
    lab.until("default/web", "has counted every byte", counted)
        .await;
}
