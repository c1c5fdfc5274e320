//! Rows of which there are many, packed into bytes until one is read.
//!
//! A Service that costs two kilobytes as a [`ServiceRow`] takes a hundred bytes here, and so does a
//! slice of three endpoints. With what is on record of it, a Service takes under three hundred
//! ([`dense`]). Keys are not in it: packed rows are held by key.

mod slice;
mod status;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::bytes::{Reader, Writer};
use super::{Family, FamilyPolicy, ServicePort, ServiceRow, SourceMap, TargetPort, dense};
use crate::id::{ServiceKey, Uid};
use crate::listener::Protocol;
use crate::status::ServiceStatus;
pub use slice::PackedSlice;
pub use status::KeptStatus;
use status::{pack_status, unpack_status};

/// A [`ServiceRow`] without its key. Equal where the rows are equal; copies share their bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedService {
    bytes: Arc<[u8]>,
    source: Option<Arc<SourceMap>>,
}

/// The fields that show the owner of a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnershipFields<'a> {
    /// See [`ServiceRow::wants_load_balancer`].
    pub wants_load_balancer: bool,
    /// See [`ServiceRow::finalized`].
    pub finalized: bool,
    /// See [`ServiceRow::deleting`].
    pub deleting: bool,
    /// Whether its status has conditions of ours.
    pub reported: bool,
    /// Whether its status publishes an address.
    pub published: bool,
    /// See [`ServiceRow::class`].
    pub class: Option<&'a str>,
    /// See [`ServiceRow::instance`].
    pub instance: Option<&'a str>,
}

// === impl OwnershipFields ===

impl<'a> From<&'a ServiceRow> for OwnershipFields<'a> {
    fn from(row: &'a ServiceRow) -> Self {
        Self {
            wants_load_balancer: row.wants_load_balancer,
            finalized: row.finalized,
            deleting: row.deleting,
            reported: !row.status.conditions.is_empty(),
            published: publishes(row),
            class: row.class.as_deref(),
            instance: row.instance(),
        }
    }
}

// === impl PackedService ===

impl PackedService {
    /// Packs a row.
    pub fn of(row: &ServiceRow) -> Self {
        // Every field by name, so that a new one can't be forgotten.
        let ServiceRow {
            key: _,
            uid,
            generation,
            resource_version,
            recorded,
            created,
            labels,
            annotations,
            finalized,
            deleting,
            wants_load_balancer,
            class,
            families,
            family_policy,
            headless,
            ports,
            selector,
            external_local,
            health_check_node_port,
            affinity,
            load_balancer_ip,
            source_ranges,
            publish_not_ready,
            allocate_node_ports,
            node_fields,
            status,
            faults,
            source,
        } = row;
        let mut head = Writer::new();
        head.byte(flags([
            *finalized,
            *deleting,
            *wants_load_balancer,
            !status.conditions.is_empty(),
            *headless,
            *external_local,
            *publish_not_ready,
            *allocate_node_ports,
        ]));
        // First the fields that show its owner: they are read without the rest.
        head.byte(flags([publishes(row)]));
        head.option(class.as_deref(), Writer::text);
        head.option(row.instance(), Writer::text);
        let mut to = Writer::new();
        // What is on record is read most.
        pack_status(&mut to, status);
        to.id(uid.as_str());
        to.option(*generation, Writer::signed);
        to.option(resource_version.as_deref(), Writer::id);
        to.option(recorded.as_deref(), Writer::text);
        to.option(*created, Writer::time);
        to.map(labels);
        to.map(annotations);
        to.list(families, |to, family| to.byte(family_byte(*family)));
        to.byte(policy_byte(*family_policy));
        to.list(ports, pack_service_port);
        to.map(selector);
        to.port(*health_check_node_port);
        to.option(*affinity, Writer::duration);
        to.option(load_balancer_ip.as_deref(), Writer::text);
        to.list(source_ranges, |to, range| to.text(range));
        to.map(node_fields);
        // Hardly any Service has one.
        to.text(&match faults.as_slice() {
            [] => String::new(),
            faults => serde_json::to_string(faults).unwrap_or_default(),
        });
        head.bytes(&dense::of(&to.finish()));
        Self {
            bytes: head.finish().into(),
            source: source.clone(),
        }
    }

    /// The row, under its key.
    pub fn row(&self, key: ServiceKey) -> Option<ServiceRow> {
        let mut from = Reader::new(&self.bytes);
        let [
            finalized,
            deleting,
            wants_load_balancer,
            _reported,
            headless,
            external_local,
            publish_not_ready,
            allocate_node_ports,
        ] = unflag(from.byte()?);
        let _published = from.byte()?;
        let class = from.option(Reader::text)?.map(Into::into);
        let _instance = from.option(Reader::text)?;
        let rest = dense::open(from.rest())?;
        let mut from = Reader::new(&rest);
        let status = unpack_status(&mut from)?;
        Some(ServiceRow {
            key,
            uid: Uid::new(&from.id()?),
            generation: from.option(Reader::signed)?,
            resource_version: from.option(Reader::id)?.map(Into::into),
            recorded: from.option(Reader::text)?.map(Into::into),
            created: from.option(Reader::time)?,
            labels: from.map()?,
            annotations: from.map()?,
            finalized,
            deleting,
            wants_load_balancer,
            class,
            families: from.list(|from| from.byte().and_then(family_of))?,
            family_policy: match from.byte()? {
                0 => FamilyPolicy::SingleStack,
                1 => FamilyPolicy::PreferDualStack,
                _ => FamilyPolicy::RequireDualStack,
            },
            headless,
            ports: from.list(unpack_service_port)?,
            selector: from.map()?,
            external_local,
            health_check_node_port: from.port()?,
            affinity: from.option(Reader::duration)?,
            load_balancer_ip: from.option(Reader::string)?,
            source_ranges: from.list(Reader::string)?,
            publish_not_ready,
            allocate_node_ports,
            node_fields: from.map()?,
            status,
            faults: match from.text()? {
                "" => Vec::new(),
                text => serde_json::from_str(text).ok()?,
            },
            source: self.source.clone(),
        })
    }

    /// Returns the fields that show its owner, without unpacking the rest.
    pub fn affiliation(&self) -> Option<OwnershipFields<'_>> {
        let mut from = Reader::new(&self.bytes);
        let [finalized, deleting, wants_load_balancer, reported] = unflag(from.byte()?);
        let [published] = unflag(from.byte()?);
        Some(OwnershipFields {
            wants_load_balancer,
            finalized,
            deleting,
            reported,
            published,
            class: from.option(Reader::text)?,
            instance: from.option(Reader::text)?,
        })
    }

    /// Returns its status, without making the rest of the row.
    pub fn status(&self) -> Option<ServiceStatus> {
        unpack_status(&mut Reader::new(&self.rest()?))
    }

    /// Returns what follows the fields that show its owner.
    fn rest(&self) -> Option<Vec<u8>> {
        dense::open(self.dense()?)
    }

    fn dense(&self) -> Option<&[u8]> {
        let mut from = Reader::new(&self.bytes);
        let _flags = from.bytes(2)?;
        let _class = from.option(Reader::text)?;
        let _instance = from.option(Reader::text)?;
        Some(from.rest())
    }

    /// Whether the bytes are the same in memory.
    #[cfg(test)]
    pub(super) fn shares(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.bytes, &other.bytes)
    }

    /// How many bytes are read where it is unpacked. It takes fewer, and many times fewer where
    /// they repeat themselves, but a limit on those would not limit that work.
    pub fn size(&self) -> usize {
        let dense = self.dense().unwrap_or_default();
        let rest = dense::length(dense).unwrap_or_default();
        self.bytes.len() - dense.len() + rest
    }
}

// === parts ===

fn publishes(row: &ServiceRow) -> bool {
    row.status.addresses().next().is_some()
}

fn flags<const N: usize>(truths: [bool; N]) -> u8 {
    let bit = |flags, truth| (flags << 1) | u8::from(truth);
    truths.into_iter().rev().fold(0, bit)
}

fn unflag<const N: usize>(flags: u8) -> [bool; N] {
    std::array::from_fn(|bit| (flags >> bit) & 1 == 1)
}

fn family_byte(family: Family) -> u8 {
    match family {
        Family::V4 => 4,
        Family::V6 => 6,
    }
}

fn policy_byte(policy: FamilyPolicy) -> u8 {
    match policy {
        FamilyPolicy::SingleStack => 0,
        FamilyPolicy::PreferDualStack => 1,
        FamilyPolicy::RequireDualStack => 2,
    }
}

fn family_of(byte: u8) -> Option<Family> {
    match byte {
        4 => Some(Family::V4),
        6 => Some(Family::V6),
        _ => None,
    }
}

fn protocol_byte(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Tcp => 0,
        Protocol::Udp => 1,
        Protocol::Sctp => 2,
    }
}

fn protocol_of(byte: u8) -> Protocol {
    match byte {
        0 => Protocol::Tcp,
        1 => Protocol::Udp,
        _ => Protocol::Sctp,
    }
}

fn pack_service_port(to: &mut Writer, port: &ServicePort) {
    let ServicePort {
        name,
        protocol,
        port,
        target,
        node_port,
        app_protocol,
    } = port;
    to.text(name);
    to.byte(protocol_byte(*protocol));
    to.port(Some(*port));
    match target {
        TargetPort::Number(number) => to.port(Some(*number)),
        TargetPort::Name(name) => {
            to.port(None);
            to.text(name);
        }
    }
    to.port(*node_port);
    to.option(app_protocol.as_deref(), Writer::text);
}

fn unpack_service_port(from: &mut Reader<'_>) -> Option<ServicePort> {
    Some(ServicePort {
        name: from.string()?,
        protocol: protocol_of(from.byte()?),
        port: from.port()??,
        target: match from.port()? {
            Some(number) => TargetPort::Number(number),
            None => TargetPort::Name(from.string()?),
        },
        node_port: from.port()?,
        app_protocol: from.option(Reader::string)?,
    })
}

fn pack_octets(to: &mut Writer, address: IpAddr) {
    match address {
        IpAddr::V4(address) => to.bytes(&address.octets()),
        IpAddr::V6(address) => to.bytes(&address.octets()),
    }
}

fn unpack_octets(from: &mut Reader<'_>, v6: bool) -> Option<IpAddr> {
    Some(if v6 {
        Ipv6Addr::from(from.array::<16>()?).into()
    } else {
        Ipv4Addr::from(from.array::<4>()?).into()
    })
}

#[cfg(test)]
mod tests;
