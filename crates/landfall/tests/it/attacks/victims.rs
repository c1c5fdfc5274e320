//! Services of every kind whose clients stay within their limits, and what their process holds.

use std::net::{IpAddr, SocketAddr};

use tokio::net::UdpSocket;

use super::abuse::connect;
use crate::backend::Backend;
use crate::client::{self, Browser, Talk};
use crate::lab::Lab;
use crate::manifest::{Svc, svc};
use crate::requests::{Identity, tls_over};
use crate::view::at;

/// The name in the certificate.
const NAME: &str = "victim.example";

/// The Secret of the certificate.
const SECRET: &str = "victim-tls";

/// What a Service speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Stream,
    Http,
    Http2,
    Tls,
    Datagrams,
}

/// Members and certificate of Services that are not to notice anything.
pub struct Victims {
    lines: Backend,
    web: Backend,
    datagrams: Backend,
    identity: Identity,
}

/// What a process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Open descriptors.
    pub files: usize,
    /// Resident memory in KiB.
    pub resident: u64,
}

// === impl Kind ===

impl Kind {
    pub const ALL: [Self; 5] = [
        Self::Stream,
        Self::Http,
        Self::Http2,
        Self::Tls,
        Self::Datagrams,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Http => "http",
            Self::Http2 => "http2",
            Self::Tls => "tls",
            Self::Datagrams => "udp",
        }
    }
}

// === impl Victims ===

impl Victims {
    pub async fn set(lab: &Lab) -> Self {
        Self {
            lines: Backend::lines("victim", lab.ranges.backend(1, 3001)).await,
            web: Backend::http("victim", lab.ranges.backend(1, 3002)).await,
            datagrams: Backend::datagrams("victim", lab.ranges.backend(1, 3003)).await,
            identity: Identity::of(&[NAME]),
        }
    }

    /// The Secret that Services of the kind `Tls` name.
    pub fn secret(&self) -> String {
        self.identity.secret(SECRET)
    }

    /// A Service of a kind with one port.
    pub fn service(&self, name: &str, kind: Kind) -> Svc {
        let service = svc(name);
        match kind {
            Kind::Stream => service.tcp(8080).members(&[self.lines.address]),
            Kind::Http | Kind::Http2 => service
                .tcp(8080)
                .option("mode", "http")
                .members(&[self.web.address]),
            Kind::Tls => service
                .tcp(8080)
                .option("mode", "tls")
                .option("tls-secret", SECRET)
                .members(&[self.lines.address]),
            Kind::Datagrams => service
                .port("dns", "UDP", 8080)
                .option("timeout-client-data", "5s")
                .members(&[self.datagrams.address]),
        }
    }

    /// One Service of each kind, named after it, all in one folder.
    pub fn one_of_each(&self, lab: &Lab) {
        let mut text = self.secret();
        for kind in Kind::ALL {
            text = format!("{text}---\n{}", self.service(kind.as_str(), kind).yaml());
        }
        lab.write("victims.yaml", &text);
    }

    /// Where they are served, once they are.
    pub async fn targets(lab: &Lab) -> Vec<(Kind, SocketAddr)> {
        let mut targets = Vec::new();
        for kind in Kind::ALL {
            let service = lab.ready(&format!("default/{}", kind.as_str())).await;
            targets.push((kind, at(&service, 8080)));
        }
        targets
    }

    /// A client at an address does what clients do, on a connection of its own.
    pub async fn exchange(
        &self,
        kind: Kind,
        source: IpAddr,
        target: SocketAddr,
    ) -> Result<(), String> {
        let all = self.exchange_at_leisure(kind, source, target);
        match tokio::time::timeout(client::TIMEOUT, all).await {
            Ok(outcome) => outcome,
            Err(_) => Err("no answer in time".to_owned()),
        }
    }

    async fn exchange_at_leisure(
        &self,
        kind: Kind,
        source: IpAddr,
        target: SocketAddr,
    ) -> Result<(), String> {
        let said = |text: &str| {
            if text == "victim" {
                Ok(())
            } else {
                Err(format!("{text:?} answered"))
            }
        };
        let failed = |error: std::io::Error| error.to_string();
        match kind {
            Kind::Stream => {
                let mut talk = Talk::from(source, target).await.map_err(failed)?;
                said(&talk.say("name").await.map_err(failed)?.name)
            }
            Kind::Http | Kind::Http2 => {
                let stream = connect(source, target).await.map_err(failed)?;
                let browser = if kind == Kind::Http {
                    Browser::over(stream).await
                } else {
                    Browser::over_h2(stream).await
                };
                let mut browser = browser.map_err(failed)?;
                for _ in 0..2 {
                    let answer = browser.get("victim", "/", &[]).await.map_err(failed)?;
                    if answer.status != 200 {
                        return Err(format!("status {}", answer.status));
                    }
                }
                Ok(())
            }
            Kind::Tls => {
                let stream = connect(source, target).await.map_err(failed)?;
                let stream = tls_over(stream, NAME, &[&self.identity], &[]).await;
                let mut talk = Talk::over(stream.map_err(failed)?);
                said(&talk.say("name").await.map_err(failed)?.name)
            }
            Kind::Datagrams => {
                let socket = UdpSocket::bind((source, 0)).await.map_err(failed)?;
                socket.connect(target).await.map_err(failed)?;
                said(
                    &client::exchange(&socket, "name")
                        .await
                        .map_err(failed)?
                        .name,
                )
            }
        }
    }
}

// === impl Holding ===

impl Holding {
    /// What a process holds now.
    pub fn of(process: u32) -> Self {
        let files = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let mut lines = status.lines();
        let line = lines.find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        Self {
            files: files.count(),
            resident: line.split_whitespace().next().unwrap().parse().unwrap(),
        }
    }
}
