//! Free ports for the programs of a cluster.

use std::net::{IpAddr, Ipv4Addr, TcpListener};

use super::ClusterError;

/// The ports of a cluster's programs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) api_server: u16,
    pub(super) etcd: u16,
    pub(super) etcd_peer: u16,
}

// === impl Ports ===

impl Ports {
    /// Finds free ports; the API server's is free at the address where that listens.
    pub(super) fn free(bind: IpAddr) -> Result<Self, ClusterError> {
        let listen = |address: IpAddr| {
            TcpListener::bind((address, 0)).map_err(|source| ClusterError::Io {
                what: format!("no free port on {address}"),
                source,
            })
        };
        // All at once, so that they differ.
        let held = [
            listen(bind)?,
            listen(Ipv4Addr::LOCALHOST.into())?,
            listen(Ipv4Addr::LOCALHOST.into())?,
        ];
        let mut ports = [0; 3];
        for (port, listener) in ports.iter_mut().zip(&held) {
            let address = listener.local_addr();
            *port = address
                .map_err(|source| ClusterError::Io {
                    what: "a port has no number".to_owned(),
                    source,
                })?
                .port();
        }
        let [api_server, etcd, etcd_peer] = ports;
        Ok(Self {
            api_server,
            etcd,
            etcd_peer,
        })
    }
}
