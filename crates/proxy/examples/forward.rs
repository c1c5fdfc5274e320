//! A TCP forwarder with one worker: the data plane and nothing else, for measuring.
//!
//! `forward LISTEN MEMBER`, for example `forward 127.0.0.1:8080 127.0.0.1:9090`. Ends on Ctrl-C.

use std::net::SocketAddr;
use std::num::NonZeroUsize;

use landfall_model::listener::Listener;
use landfall_model::{ListenerKey, Member, Protocol, ServiceKey, Uid};
use landfall_proxy::{ListenerId, Owner, Proxy, ProxyConfig};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut address = || -> Result<SocketAddr, Box<dyn std::error::Error>> {
        Ok(arguments
            .next()
            .ok_or("usage: forward LISTEN MEMBER")?
            .parse()?)
    };
    let (listen, member) = (address()?, address()?);
    let key = ListenerKey {
        protocol: Protocol::Tcp,
        port: listen.port().try_into()?,
    };
    let mut listener = Listener::new(key.protocol, key.port);
    listener.pool.members.push(Member::new(member));
    let config = ProxyConfig {
        workers: NonZeroUsize::new(1),
        ..ProxyConfig::default()
    };
    let proxy = Proxy::start(config)?;
    let id = ListenerId {
        address: listen.ip(),
        key,
    };
    let owner = Owner {
        uid: Uid::new("forward"),
        service: ServiceKey::new("examples", "forward"),
    };
    proxy.apply(id, &owner, &listener).await?;
    tokio::signal::ctrl_c().await?;
    proxy.shutdown(std::time::Duration::ZERO).await;
    Ok(())
}
