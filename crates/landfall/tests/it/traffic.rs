//! What happens to connections and datagrams: who gets them, who may come, how long they last.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use landfall_model::reason::Code;
use landfall_model::status::ConditionType;
use landfall_model::view::{Health, ServiceView};

use crate::backend::Backend;
use crate::client::{self, Talk};
use crate::lab::{Lab, at, condition, is_ready, listener};
use crate::manifest::{slice, svc};

/// Line backends `a`, `b`, ... on neighbouring addresses.
async fn backends(lab: &Lab, names: &[&str]) -> Vec<Backend> {
    let mut backends = Vec::new();
    for (name, number) in names.iter().zip(1..) {
        backends.push(Backend::lines(name, lab.ranges.backend(number, 3001)).await);
    }
    backends
}

fn health_of(service: &ServiceView, address: SocketAddr) -> Option<Health> {
    let mut members = service.listeners.iter().flat_map(|it| &it.members);
    let member = members.find(|it| it.address == address);
    member.map(|member| member.health)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn weights_and_backups_decide_who_gets_what() {
    let lab = Lab::new();
    let [a, b, mut c, d]: [Backend; 4] = backends(&lab, &["a", "b", "c", "d"])
        .await
        .try_into()
        .unwrap();
    let endpoints = |c: &str| {
        let (a, b, d) = (a.address, b.address, d.address);
        format!("{a} weight=3, {b}, {c} weight=0, {d} backup")
    };
    let service = svc("web")
        .tcp(8080)
        .option("monitor", "tcp")
        .option("monitor-delay", "200ms")
        .option("monitor-max-retries-down", "1");
    let text = service
        .clone()
        .option("endpoints", &endpoints(&c.address.to_string()));
    lab.write("web.yaml", &text.yaml());
    let lab = lab.started().await;
    let web = lab.ready("default/web").await;
    let target = at(&web, 8080);
    let names = client::roll_call(target, 40).await;
    let count = |names: &[String], name: &str| names.iter().filter(|it| *it == name).count();
    assert_eq!(
        (count(&names, "a"), count(&names, "b")),
        (30, 10),
        "{names:?}"
    );

    // Weights of none: nobody serves but the backup ...
    c.stop().await;
    let (mut a, mut b) = (a, b);
    a.stop().await;
    b.stop().await;
    let all_down = |service: &ServiceView| {
        [a.address, b.address]
            .iter()
            .all(|address| health_of(service, *address) == Some(Health::Down))
    };
    lab.until("default/web", "has lost its members", all_down)
        .await;
    assert_eq!(client::roll_call(target, 4).await, ["d"; 4]);
    assert!(is_ready(&lab.service("default/web").await));
    // ... until one comes back.
    b.start().await;
    let up = |service: &ServiceView| health_of(service, b.address) == Some(Health::Up);
    lab.until("default/web", "has one back", up).await;
    assert_eq!(client::roll_call(target, 4).await, ["b"; 4]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_backend_shows_in_conditions_and_so_does_its_return() {
    let lab = Lab::new();
    let mut pods = backends(&lab, &["a", "b"]).await;
    let members = [pods[0].address, pods[1].address];
    let service = svc("web")
        .tcp(8080)
        .members(&members)
        .option("monitor", "tcp")
        .option("monitor-delay", "200ms")
        .option("monitor-max-retries-down", "2");
    lab.write("web.yaml", &service.yaml());
    let lab = lab.started().await;
    let both_up = |service: &ServiceView| {
        members
            .iter()
            .all(|it| health_of(service, *it) == Some(Health::Up))
            && is_ready(service)
    };
    let web = lab.until("default/web", "has both members", both_up).await;
    let target = at(&web, 8080);
    assert_eq!(client::roll_call(target, 4).await, ["a", "a", "b", "b"]);

    pods[0].stop().await;
    let first_down = |service: &ServiceView| {
        health_of(service, members[0]) == Some(Health::Down) && is_ready(service)
    };
    let web = lab
        .until("default/web", "goes on with one", first_down)
        .await;
    let detail = &listener(&web, 8080).members[0].detail;
    assert!(detail.contains("refused"), "{detail}");
    assert_eq!(client::roll_call(target, 4).await, ["b"; 4]);

    pods[1].stop().await;
    let stopped = |service: &ServiceView| {
        condition(service, ConditionType::Programmed) == (false, Code::NoHealthyMembers)
    };
    let web = lab.until("default/web", "has nobody left", stopped).await;
    assert_eq!(
        condition(&web, ConditionType::Accepted),
        (true, Code::Accepted)
    );
    assert_eq!(
        condition(&web, ConditionType::Addressed),
        (true, Code::Assigned)
    );
    let reason = lab.reason("default/web", Code::NoHealthyMembers).await;
    assert!(reason.message.contains("none of 2 members"), "{reason}");

    pods[1].start().await;
    let web = lab.ready("default/web").await;
    assert_eq!(health_of(&web, members[1]), Some(Health::Up));
    assert_eq!(client::roll_call(target, 4).await, ["b"; 4]);
    pods[0].start().await;
    let web = lab.until("default/web", "has both members", both_up).await;
    assert!(listener(&web, 8080).members[0].traffic.health_changes >= 2);
    let metrics = lab.text("/metrics").await;
    assert!(metrics.contains("health"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_http_check_takes_a_sick_backend_out_and_a_dead_one_is_tried_around() {
    let lab = Lab::new();
    let a = Backend::http("a", lab.ranges.backend(1, 3001)).await;
    let mut b = Backend::http("b", lab.ranges.backend(2, 3001)).await;
    let service = svc("web")
        .tcp(8080)
        .members(&[a.address, b.address])
        .option("monitor", "http")
        .option("monitor-path", "/healthz")
        .option("monitor-delay", "200ms");
    lab.write("web.yaml", &service.yaml());
    let lab = lab.started().await;
    let target = at(&lab.ready("default/web").await, 8080);
    a.sick(true);
    let sick = |service: &ServiceView| health_of(service, a.address) == Some(Health::Down);
    let web = lab.until("default/web", "knows who is sick", sick).await;
    let member = listener(&web, 8080)
        .members
        .iter()
        .find(|it| it.address == a.address);
    assert!(member.unwrap().detail.contains("503"), "{member:?}");
    for _ in 0..4 {
        assert_eq!(client::http(target, "/").await.unwrap().json()["name"], "b");
    }
    a.sick(false);
    let well = |service: &ServiceView| health_of(service, a.address) == Some(Health::Up);
    lab.until("default/web", "knows who is well", well).await;
    // Before the monitor notices, the others are tried.
    b.stop().await;
    for _ in 0..6 {
        assert_eq!(client::http(target, "/").await.unwrap().json()["name"], "a");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_leaves_keeps_its_connections_for_the_drain_time() {
    let lab = Lab::new();
    let pods = backends(&lab, &["a", "b"]).await;
    let service = |drain: &str| {
        svc("web")
            .port("line", "TCP", 8080)
            .option("drain", drain)
            .yaml()
    };
    let pod = |index: usize| (pods[index].name.as_str(), pods[index].address);
    lab.write("web.yaml", &service("1h"));
    lab.write("slice.yaml", &slice("web", "line", "TCP", &[pod(0)]));
    let lab = lab.started().await;
    let target = at(&lab.ready("default/web").await, 8080);
    let mut talk = Talk::to(target).await.unwrap();
    assert_eq!(talk.say("before").await.unwrap().name, "a");

    lab.write("slice.yaml", &slice("web", "line", "TCP", &[pod(1)]));
    let drains = |service: &ServiceView| {
        health_of(service, pods[0].address) == Some(Health::Draining)
            && health_of(service, pods[1].address).is_some()
    };
    let web = lab.until("default/web", "drains a member", drains).await;
    let leaving = listener(&web, 8080)
        .members
        .iter()
        .find(|it| it.address == pods[0].address);
    assert_eq!(leaving.unwrap().traffic.open, 1);
    assert_eq!(client::roll_call(target, 4).await, ["b"; 4]);
    assert_eq!(talk.say("while it drains").await.unwrap().name, "a");
    // A member that comes back is a member again, and its connection never noticed.
    lab.write(
        "slice.yaml",
        &slice("web", "line", "TCP", &[pod(0), pod(1)]),
    );
    let back = |service: &ServiceView| {
        matches!(
            health_of(service, pods[0].address),
            Some(Health::Up | Health::Unknown)
        )
    };
    lab.until("default/web", "has it back", back).await;
    assert_eq!(client::roll_call(target, 4).await, ["a", "a", "b", "b"]);
    assert_eq!(talk.say("again").await.unwrap().name, "a");
    // A shorter drain time ends it soon after the member has left.
    lab.write("web.yaml", &service("300ms"));
    lab.settled().await;
    lab.write("slice.yaml", &slice("web", "line", "TCP", &[pod(1)]));
    talk.ended().await;
    let gone = |service: &ServiceView| health_of(service, pods[0].address).is_none();
    lab.until("default/web", "has forgotten it", gone).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_that_goes_accepts_nobody_and_lets_connections_end() {
    let lab = Lab::new();
    let pods = backends(&lab, &["a"]).await;
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
    assert_eq!(client::who(at(&web, 8081)).await.unwrap(), "a");
    assert!(client::who(old).await.is_err());
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
    assert_eq!(client::who(target).await.unwrap(), "tcp");
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
async fn only_allowed_sources_get_through_and_an_edit_changes_who() {
    let lab = Lab::new();
    let pods = backends(&lab, &["a"]).await;
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
    // Who is connected already stays so.
    talk.say("after").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ipv6_and_both_families_are_served_where_there_are_addresses() {
    let lab = Lab::new();
    let pods = backends(&lab, &["a"]).await;
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
    assert_eq!(client::who((six, port).into()).await.unwrap(), "a");
    assert!(client::who((four, port).into()).await.is_err());
    assert_eq!(listener(&service, port).addresses.len(), 2);

    let wider = both.clone().spec("sessionAffinity: None").yaml();
    let wider = wider.replace("[\"::1/128\"]", "[\"::/0\", 127.0.0.0/8]");
    lab.write("both.yaml", &wider);
    lab.settled().await;
    assert_eq!(client::who((six, port).into()).await.unwrap(), "a");
    assert_eq!(client::who((four, port).into()).await.unwrap(), "a");

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
    let pods = backends(&lab, &["a", "b"]).await;
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
    assert_eq!(client::who(at(&front, 8081)).await.unwrap(), "a");
    assert_eq!(client::who(at(&back, 8082)).await.unwrap(), "b");
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
    assert_eq!(client::who(at(&back, 8082)).await.unwrap(), "b");
    assert!(client::who(at(&front, 8081)).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_limit_holds_and_an_edit_lifts_it() {
    let lab = Lab::new();
    let pods = backends(&lab, &["a"]).await;
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
    let waits = tokio::spawn(client::who(target));
    let mut third = Talk::to(target).await.unwrap();
    let patience = Duration::from_millis(300);
    let early = tokio::time::timeout(patience, third.say("three")).await;
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
async fn a_client_keeps_its_member_with_session_affinity() {
    let lab = Lab::new();
    let pods = backends(&lab, &["a", "b", "c"]).await;
    let members: Vec<SocketAddr> = pods.iter().map(|it| it.address).collect();
    let service = svc("web").tcp(8080).members(&members);
    let sticky = service.clone().spec("sessionAffinity: ClientIP");
    let sticky = sticky.spec("sessionAffinityConfig: {clientIP: {timeoutSeconds: 600}}");
    lab.write("web.yaml", &sticky.yaml());
    let lab = lab.started().await;
    let web = lab.ready("default/web").await;
    let affinity = listener(&web, 8080).affinity.expect("it was asked for");
    assert_eq!(affinity.timeout, Duration::from_secs(600));
    let target = at(&web, 8080);
    let from = async |last: u8| {
        let mut talk = Talk::from(lab.ranges.client(last), target).await.unwrap();
        talk.say("hello").await.unwrap().name
    };
    let mut met = BTreeSet::new();
    for last in 1..=6 {
        let name = from(last).await;
        for _ in 0..4 {
            assert_eq!(from(last).await, name);
        }
        met.insert(name);
    }
    assert_eq!(met.len(), 3, "clients spread over all members");
    lab.write("web.yaml", &service.yaml());
    lab.settled().await;
    let mut met = BTreeSet::new();
    for _ in 0..3 {
        met.insert(from(1).await);
    }
    assert_eq!(met.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_source_meets_the_same_member_by_its_hash() {
    let lab = Lab::new();
    let pods = backends(&lab, &["a", "b", "c"]).await;
    let members: Vec<SocketAddr> = pods.iter().map(|it| it.address).collect();
    let service = svc("web")
        .tcp(8080)
        .members(&members)
        .option("algorithm", "SOURCE_IP");
    lab.write("web.yaml", &service.yaml());
    let lab = lab.started().await;
    let target = at(&lab.ready("default/web").await, 8080);
    let mut met = BTreeSet::new();
    for last in 1..=30 {
        let source = lab.ranges.client(last);
        let mut names = BTreeSet::new();
        for _ in 0..3 {
            let mut talk = Talk::from(source, target).await.unwrap();
            names.insert(talk.say("hello").await.unwrap().name);
        }
        assert_eq!(names.len(), 1, "{source} met {names:?}");
        met.extend(names);
    }
    assert_eq!(met.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fewest_connections_decide_where_they_last() {
    let lab = Lab::new();
    let pods = backends(&lab, &["a", "b"]).await;
    let members = [pods[0].address, pods[1].address];
    let service = svc("web").tcp(8080).members(&members);
    let service = service.option("algorithm", "LEAST_CONNECTIONS");
    lab.write("web.yaml", &service.yaml());
    let lab = lab.started().await;
    let target = at(&lab.ready("default/web").await, 8080);
    let mut kept = Vec::new();
    for _ in 0..6 {
        let mut talk = Talk::to(target).await.unwrap();
        let name = talk.say("hello").await.unwrap().name;
        kept.push((name, talk));
    }
    assert_eq!((pods[0].open(), pods[1].open()), (3, 3));
    kept.retain(|(name, _)| name == "a");
    let even = |service: &ServiceView| listener(service, 8080).traffic.open == 3;
    lab.until("default/web", "has seen three go", even).await;
    for _ in 0..3 {
        let mut talk = Talk::to(target).await.unwrap();
        let said = talk.say("hello").await.unwrap();
        assert_eq!(said.name, "b");
        kept.push((said.name, talk));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_ends_a_connection_after_the_time_out_that_is_in_force() {
    let lab = Lab::new();
    let pods = backends(&lab, &["a"]).await;
    let service = |timeout: &str| {
        let service = svc("web").tcp(8080).members(&[pods[0].address]);
        service.option("timeout-client-data", timeout).yaml()
    };
    lab.write("web.yaml", &service("500ms"));
    let lab = lab.started().await;
    let target = at(&lab.ready("default/web").await, 8080);
    let mut talk = Talk::to(target).await.unwrap();
    talk.say("hello").await.unwrap();
    let began = Instant::now();
    talk.ended().await;
    assert!(
        began.elapsed() >= Duration::from_millis(400),
        "{:?}",
        began.elapsed()
    );
    lab.write("web.yaml", &service("1h"));
    lab.settled().await;
    let mut talk = Talk::to(target).await.unwrap();
    talk.say("hello").await.unwrap();
    let quiet = tokio::time::timeout(Duration::from_millis(1500), talk.ended()).await;
    assert!(quiet.is_err(), "the old time-out is still in force");
    talk.say("still there").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn big_transfers_arrive_whole_in_both_directions() {
    let lab = Lab::new();
    let pods = backends(&lab, &["a"]).await;
    lab.write(
        "web.yaml",
        &svc("web").tcp(8080).members(&[pods[0].address]).yaml(),
    );
    let lab = lab.started().await;
    let target = at(&lab.ready("default/web").await, 8080);
    let mut talk = Talk::to(target).await.unwrap();
    let mut total = 0;
    for size in [1, 100_000, 3_000_000, 20_000_000] {
        let text: String = (0..size)
            .map(|n| char::from(b'a' + (n % 23) as u8))
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
