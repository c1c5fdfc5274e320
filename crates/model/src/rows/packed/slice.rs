//! A slice, packed.

use std::net::IpAddr;
use std::sync::Arc;

use super::super::bytes::{Reader, Writer};
use super::super::{Endpoint, SlicePort, SliceRow, SourceMap};
use super::{
    family_byte, family_of, flags, pack_octets, protocol_byte, protocol_of, unflag, unpack_octets,
};
use crate::id::ServiceKey;

/// A [`SliceRow`] without its keys. Equal where the rows are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedSlice {
    bytes: Box<[u8]>,
    source: Option<Arc<SourceMap>>,
}

const NO_FAMILY: u8 = 0;

/// Added to the byte of the family of a slice that is cut.
const CUT: u8 = 1 << 7;

// === impl PackedSlice ===

impl PackedSlice {
    /// Packs a row.
    pub fn of(row: &SliceRow) -> Self {
        let SliceRow {
            key: _,
            service: _,
            family,
            ports,
            endpoints,
            cut,
            source,
        } = row;
        let mut to = Writer::new();
        let cut = if *cut { CUT } else { 0 };
        to.byte(cut | family.map_or(NO_FAMILY, family_byte));
        to.list(ports, |to, port| {
            let SlicePort {
                name,
                protocol,
                port,
            } = port;
            to.text(name);
            to.byte(protocol_byte(*protocol));
            to.port(*port);
        });
        to.list(endpoints, pack_endpoint);
        Self {
            bytes: to.finish(),
            source: source.clone(),
        }
    }

    /// How many bytes it takes.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The row, under its own key and that of its Service.
    pub fn row(&self, key: ServiceKey, service: ServiceKey) -> Option<SliceRow> {
        let mut from = Reader::new(&self.bytes);
        let first = from.byte()?;
        Some(SliceRow {
            key,
            service,
            family: family_of(first & !CUT),
            ports: from.list(|from| {
                Some(SlicePort {
                    name: from.string()?,
                    protocol: protocol_of(from.byte()?),
                    port: from.port()?,
                })
            })?,
            endpoints: from.list(unpack_endpoint)?,
            cut: first & CUT != 0,
            source: self.source.clone(),
        })
    }

    /// Whether the address of one of its endpoints is sought. Unpacks nothing else: all slices may
    /// be searched.
    pub fn has_endpoint(&self, is_sought: impl Fn(IpAddr) -> bool) -> bool {
        let mut from = Reader::new(&self.bytes);
        let mut search = || {
            let _family = from.byte()?;
            for _ in 0..from.count()? {
                from.skip_text()?;
                let _protocol = from.byte()?;
                let _number = from.port()?;
            }
            for _ in 0..from.count()? {
                let [v6, _ready, _serving, _terminating, node, name] = unflag(from.byte()?);
                if is_sought(unpack_octets(&mut from, v6)?) {
                    return Some(true);
                }
                for _ in [node, name].into_iter().filter(|is_there| *is_there) {
                    from.skip_text()?;
                }
            }
            Some(false)
        };
        search().unwrap_or_default()
    }
}

fn pack_endpoint(to: &mut Writer, endpoint: &Endpoint) {
    let Endpoint {
        address,
        ready,
        serving,
        terminating,
        node,
        name,
    } = endpoint;
    to.byte(flags([
        address.is_ipv6(),
        *ready,
        *serving,
        *terminating,
        node.is_some(),
        name.is_some(),
    ]));
    pack_octets(to, *address);
    for text in [node, name].into_iter().flatten() {
        to.text(text);
    }
}

fn unpack_endpoint(from: &mut Reader<'_>) -> Option<Endpoint> {
    let [v6, ready, serving, terminating, has_node, has_name] = unflag(from.byte()?);
    let address = unpack_octets(from, v6)?;
    let text = |from: &mut Reader<'_>| from.text().map(Arc::<str>::from);
    Some(Endpoint {
        address,
        ready,
        serving,
        terminating,
        node: if has_node { Some(text(from)?) } else { None },
        name: if has_name { Some(text(from)?) } else { None },
    })
}
