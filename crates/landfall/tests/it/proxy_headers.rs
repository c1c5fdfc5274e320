//! The PROXY protocol: written toward members, and accepted from trusted peers.

use std::net::{IpAddr, SocketAddr};

use landfall_model::view::ServiceView;

use crate::backend::Backend;
use crate::client::{Said, Talk};
use crate::lab::Lab;
use crate::manifest::svc;
use crate::view::{at, listener};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_learn_the_client_in_the_version_that_is_in_force() {
    let lab = Lab::new();
    let a = Backend::lines("a", lab.ranges.backend(1, 3001)).await;
    let service = |version: &str| {
        let service = svc("web").tcp(8080).members(&[a.address]);
        service.option("proxy-protocol", version).yaml()
    };
    lab.write("web.yaml", &service("v1"));
    let lab = lab.started().await;
    let target = at(&lab.ready("default/web").await, 8080);
    let mut old = Talk::to(target).await.unwrap();
    for version in ["v1", "v2", "off"] {
        lab.write("web.yaml", &service(version));
        lab.settled().await;
        let mut talk = Talk::from(lab.ranges.client(9), target).await.unwrap();
        let expected = match version {
            "off" => "none".to_owned(),
            version => format!("{version} {} {target}", talk.local()),
        };
        assert_eq!(talk.say("hello").await.unwrap().header, expected);
        // The header of an open connection stays what it was.
        let header = old.say("hello").await.unwrap().header;
        assert_eq!(header, format!("v1 {} {target}", old.local()));
    }
}

/// The header of version 2 that a load balancer in front would write.
fn version_two(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c".to_vec();
    for address in [source, destination] {
        let IpAddr::V4(ip) = address.ip() else {
            panic!("{address}");
        };
        header.extend(ip.octets());
    }
    for address in [source, destination] {
        header.extend(address.port().to_be_bytes());
    }
    header
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_are_accepted_from_trusted_peers_only() {
    let lab = Lab::new();
    let a = Backend::lines("a", lab.ranges.backend(1, 3001)).await;
    let (front, untrusted) = (lab.ranges.client(1), lab.ranges.client(2));
    let allowed = "198.51.100.0/24";
    let service = svc("web")
        .tcp(8080)
        .members(&[a.address])
        .option("accept-proxy-protocol-from", &format!("{front}/32"))
        .option("proxy-protocol", "v2");
    lab.write("web.yaml", &service.yaml());
    let lab = lab.started().await;
    let target = at(&lab.ready("default/web").await, 8080);
    let claimed: SocketAddr = "198.51.100.7:4711".parse().unwrap();
    let said = async |source: IpAddr, header: &[u8]| -> std::io::Result<Said> {
        let mut talk = Talk::from(source, target).await?;
        talk.send(header).await?;
        talk.say("hello").await
    };
    let one = format!(
        "PROXY TCP4 {} {} {} {}\r\n",
        claimed.ip(),
        target.ip(),
        claimed.port(),
        target.port()
    );
    let two = version_two(claimed, target);
    for header in [one.as_bytes(), &two] {
        let said = said(front, header).await.unwrap();
        assert_eq!((said.name.as_str(), said.text.as_str()), ("a", "hello"));
        assert_eq!(said.header, format!("v2 {claimed} {target}"));
    }
    // A trusted peer that sends none is no client of this port.
    assert!(said(front, b"").await.is_err());
    // From any other peer it is payload, and the member sees the peer's real address.
    let mut talk = Talk::from(untrusted, target).await.unwrap();
    let real = talk.local();
    talk.send(b"PROXY TCP4 1.2.3.4").await.unwrap();
    let answer = talk.say("").await;
    let error = answer.unwrap_err().to_string();
    assert!(error.contains("PROXY TCP4 1.2.3.4"), "{error}");
    assert!(error.contains(&format!("v2 {real} {target}")), "{error}");

    // Source ranges are checked against the client that the header names.
    let guarded = service.spec(format!("loadBalancerSourceRanges: [{allowed}]"));
    lab.write("web.yaml", &guarded.yaml());
    lab.settled().await;
    assert_eq!(said(front, &two).await.unwrap().name, "a");
    let foreign = version_two("203.0.113.9:1".parse().unwrap(), target);
    assert!(said(front, &foreign).await.is_err());
    assert!(said(untrusted, b"").await.is_err());
    let refused = |service: &ServiceView| listener(service, 8080).traffic.failed >= 3;
    lab.until("default/web", "counts refused clients", refused)
        .await;
}
