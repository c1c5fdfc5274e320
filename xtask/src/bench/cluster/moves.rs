//! How soon traffic goes elsewhere once an EndpointSlice has changed.

use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use landfall_testkit::cluster::{Cluster, Program};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

use super::TIMEOUT;

/// Changes of the EndpointSlice of the first Service, by way of a `kubectl proxy`: one that is
/// started for each change would take longer than what is measured.
pub struct Moves {
    /// Where the first Service is served.
    service: SocketAddr,
    api: SocketAddr,
    /// Two members that answer with their name.
    members: [Member; 2],
    _proxy: Child,
}

/// A member that sends its name to each client.
struct Member {
    address: SocketAddr,
    name: u8,
}

impl Member {
    /// Listens on this machine's own address: the API server takes no loopback addresses.
    async fn start(name: u8) -> anyhow::Result<Self> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        // Nothing is sent: it only shows from where it would be.
        socket.connect("192.0.2.1:9")?;
        let listener = tokio::net::TcpListener::bind((socket.local_addr()?.ip(), 0)).await?;
        let address = listener.local_addr()?;
        // Ends with the process.
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                // A receiver that is gone is not notified.
                let _ = stream.write_all(&[name]).await;
            }
        });
        Ok(Self { address, name })
    }
}

impl Moves {
    /// Starts the proxy and the members.
    pub async fn prepare(cluster: &Cluster) -> anyhow::Result<Self> {
        let service = cluster.kubectl().get(&["service", "web-0"]).await?;
        let address = service.pointer("/status/loadBalancer/ingress/0/ip");
        let address: IpAddr = address
            .and_then(|ip| ip.as_str())
            .context("the first Service has no address")?
            .parse()?;
        let api = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let proxy = Command::new(cluster.program(Program::Kubectl))
            .args(["proxy", "--port", &api.port().to_string()])
            .env("KUBECONFIG", cluster.admin())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        Ok(Self {
            service: (address, 8080).into(),
            api,
            members: [Member::start(b'a').await?, Member::start(b'b').await?],
            _proxy: proxy,
        })
    }

    /// Times changes, each from when the API server has answered.
    pub async fn time(&self, count: u32) -> anyhow::Result<Vec<Duration>> {
        let mut took = Vec::new();
        // The first ones wait for the proxy, and for the members to be there at all.
        for number in 0..count + 2 {
            let [a, b] = &self.members;
            let member = if number % 2 == 0 { a } else { b };
            let first = Instant::now();
            while let Err(error) = self.patch(member).await {
                if first.elapsed() > Duration::from_secs(10) {
                    return Err(error);
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            let began = Instant::now();
            while self.ask().await != Some(member.name) {
                if began.elapsed() > TIMEOUT {
                    bail!("traffic did not move");
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            if number >= 2 {
                took.push(began.elapsed());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(took)
    }

    /// Points the slice to a member.
    async fn patch(&self, member: &Member) -> anyhow::Result<()> {
        let (ip, port) = (member.address.ip(), member.address.port());
        let body = format!(
            "{{\"ports\":[{{\"name\":\"http\",\"port\":{port},\"protocol\":\"TCP\"}}],\
             \"endpoints\":[{{\"addresses\":[\"{ip}\"],\"conditions\":{{\"ready\":true}}}}]}}"
        );
        let request = format!(
            "PATCH /apis/discovery.k8s.io/v1/namespaces/default/endpointslices/web-0-1 HTTP/1.1\r\n\
             Host: {}\r\nContent-Type: application/merge-patch+json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            self.api,
            body.len()
        );
        let mut stream = tokio::net::TcpStream::connect(self.api).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let status = answer.lines().next().unwrap_or_default();
        if !status.contains(" 200 ") {
            bail!("the API server answered {status}");
        }
        Ok(())
    }

    /// Asks which member serves.
    async fn ask(&self) -> Option<u8> {
        let mut stream = tokio::net::TcpStream::connect(self.service).await.ok()?;
        stream.read_u8().await.ok()
    }
}
