//! A cluster as facts.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use landfall_l2::fsm::{Conflict, State, Status};
use landfall_l2::interfaces::Interface;
use landfall_l2::mac::MacAddress;
use landfall_membership::driver::View as Members;
use landfall_membership::machine::Peer;
use landfall_model::rows::{Fact, ResourceKind};
use landfall_model::wire;
use landfall_speaker::metadata::Metadata;
use serde_json::{Value, json};

/// A pool of 192.0.2.0/24.
pub fn pool() -> Fact {
    let shape: wire::IpAddressPool = serde_json::from_value(json!({
        "metadata": {"name": "lan", "namespace": "metallb-system"},
        "spec": {"addresses": ["192.0.2.0/24"]},
    }))
    .unwrap();
    Fact::Pool(Arc::new(shape.into_row().unwrap()))
}

/// A resource of MetalLB.
pub fn resource(kind: ResourceKind, version: &str, name: &str, spec: &Value) -> Fact {
    let shape: wire::Resource = serde_json::from_value(json!({
        "apiVersion": format!("metallb.io/{version}"), "kind": kind.to_string(),
        "metadata": {"name": name, "namespace": "metallb-system"}, "spec": spec,
    }))
    .unwrap();
    Fact::Resource(Arc::new(shape.into_row(kind).unwrap()))
}

/// A router of AS 64501, with what `spec` says otherwise.
pub fn peer(name: &str, spec: &Value) -> Fact {
    let mut whole = json!({"myASN": 64500, "peerASN": 64501, "peerAddress": "192.0.2.254"});
    let fields = spec.as_object().unwrap().clone();
    whole.as_object_mut().unwrap().extend(fields);
    resource(ResourceKind::BgpPeer, "v1beta2", name, &whole)
}

pub fn advertisement(spec: &Value) -> Fact {
    resource(ResourceKind::L2Advertisement, "v1beta1", "all", spec)
}

pub fn interface(name: &str, last: u8) -> Interface {
    Interface {
        name: name.to_owned(),
        mac: MacAddress([2, 0, 0, 0, 0, last]),
        has_arp: true,
        link_local: None,
    }
}

/// Members with these names, which announce on `eth0`.
pub fn members(names: &[&str]) -> Arc<Members> {
    let peers = names.iter().enumerate().map(|(number, name)| {
        let interfaces = [interface("eth0", 100 + number as u8)];
        let peer = Peer {
            address: ([10, 0, 0, 1], 7947).into(),
            incarnation: 1,
            metadata: Metadata::new(1, &interfaces).encode().into(),
        };
        (Arc::from(*name), peer)
    });
    Arc::new(Members {
        peers: peers.collect(),
        ..Members::default()
    })
}

/// What becomes of an address: a host has it, or it is announced.
pub fn status(address: IpAddr, state: State) -> BTreeMap<IpAddr, Status> {
    let conflict = Conflict {
        mac: MacAddress([2, 0xff, 0, 0, 0, 1]),
        interface: 2,
        is_peer: false,
        last: Instant::now(),
    };
    let status = Status {
        state,
        interfaces: vec!["eth0".to_owned()],
        conflict: (state != State::Announcing).then_some(conflict),
    };
    BTreeMap::from([(address, status)])
}
