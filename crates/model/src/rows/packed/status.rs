//! The status of a Service, packed. A start with many Services reads each several times, so that it
//! is no text that has to be parsed.

use super::super::bytes::{Reader, Writer};
use super::super::dense;
use super::{flags, pack_octets, protocol_byte, protocol_of, unflag, unpack_octets};
use crate::reason::Code;
use crate::status::{Condition, ConditionType, IngressAddress, IpMode, PortStatus, ServiceStatus};

/// A [`ServiceStatus`] that is kept packed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptStatus(Box<[u8]>);

// === impl KeptStatus ===

impl KeptStatus {
    /// Keeps a status.
    pub fn new(status: &ServiceStatus) -> Self {
        let mut to = Writer::new();
        pack_status(&mut to, status);
        Self(dense::of(&to.finish()))
    }

    /// Returns the status.
    pub fn status(&self) -> ServiceStatus {
        let bytes = dense::open(&self.0).unwrap_or_default();
        unpack_status(&mut Reader::new(&bytes)).unwrap_or_default()
    }
}

/// Packs a status: one byte where there is none of ours, as on most Services of a cluster.
pub(super) fn pack_status(to: &mut Writer, status: &ServiceStatus) {
    // Every field by name, so that a new one can't be forgotten.
    let ServiceStatus {
        ingress,
        conditions,
        marks,
    } = status;
    let is_there = *status != ServiceStatus::default();
    to.byte(is_there.into());
    if is_there {
        to.list(ingress, pack_ingress);
        to.list(conditions, pack_condition);
        to.map(marks);
    }
}

/// Returns the status that was packed.
pub(super) fn unpack_status(from: &mut Reader<'_>) -> Option<ServiceStatus> {
    if from.byte()? == 0 {
        return Some(ServiceStatus::default());
    }
    Some(ServiceStatus {
        ingress: from.list(unpack_ingress)?,
        conditions: from.list(unpack_condition)?,
        marks: from.map()?,
    })
}

fn pack_ingress(to: &mut Writer, entry: &IngressAddress) {
    let IngressAddress {
        ip,
        hostname,
        ip_mode,
        ports,
    } = entry;
    to.byte(flags([
        ip.is_some(),
        ip.is_some_and(|ip| ip.is_ipv6()),
        ip_mode.is_some(),
        *ip_mode == Some(IpMode::Proxy),
    ]));
    if let Some(ip) = ip {
        pack_octets(to, *ip);
    }
    to.option(hostname.as_deref(), Writer::text);
    to.list(ports, |to, entry| {
        let PortStatus {
            port,
            protocol,
            error,
        } = entry;
        to.number((*port).into());
        to.byte(protocol_byte(*protocol));
        to.option(error.as_deref(), Writer::text);
    });
}

fn unpack_ingress(from: &mut Reader<'_>) -> Option<IngressAddress> {
    let [has_ip, v6, has_mode, proxy] = unflag(from.byte()?);
    let ip = if has_ip {
        Some(unpack_octets(from, v6)?)
    } else {
        None
    };
    let mode = if proxy { IpMode::Proxy } else { IpMode::Vip };
    Some(IngressAddress {
        ip,
        hostname: from.option(Reader::string)?,
        ip_mode: has_mode.then_some(mode),
        ports: from.list(|from| {
            Some(PortStatus {
                port: from.number()?.try_into().ok()?,
                protocol: protocol_of(from.byte()?),
                error: from.option(Reader::string)?,
            })
        })?,
    })
}

fn pack_condition(to: &mut Writer, condition: &Condition) {
    let Condition {
        kind,
        status,
        reason,
        message,
        last_transition_time,
        observed_generation,
    } = condition;
    to.byte(match kind {
        ConditionType::Accepted => 0,
        ConditionType::Addressed => 1,
        ConditionType::Programmed => 2,
    });
    to.byte((*status).into());
    // Its place in the list of all.
    to.number(*reason as u64);
    to.text(message);
    to.time(*last_transition_time);
    to.option(*observed_generation, Writer::signed);
}

fn unpack_condition(from: &mut Reader<'_>) -> Option<Condition> {
    Some(Condition {
        kind: match from.byte()? {
            0 => ConditionType::Accepted,
            1 => ConditionType::Addressed,
            _ => ConditionType::Programmed,
        },
        status: from.byte()? != 0,
        reason: *Code::ALL.get(from.count()?)?,
        message: from.string()?,
        last_transition_time: from.time()?,
        observed_generation: from.option(Reader::signed)?,
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::*;
    use crate::listener::Protocol;

    fn condition(
        (kind, status, code, generation): (u8, bool, prop::sample::Index, Option<i64>),
        message: &str,
    ) -> Condition {
        let kinds = [
            ConditionType::Accepted,
            ConditionType::Addressed,
            ConditionType::Programmed,
        ];
        Condition {
            kind: *kinds.get(usize::from(kind)).unwrap(),
            status,
            reason: *code.get(Code::ALL),
            message: message.to_owned(),
            last_transition_time: Timestamp::new(1_764_000_000, 5).unwrap(),
            observed_generation: generation,
        }
    }

    fn ingress(
        (ip, v4, mode): (Option<[u8; 16]>, bool, Option<bool>),
        hostname: Option<String>,
        ports: Vec<(u16, u8, Option<String>)>,
    ) -> IngressAddress {
        let protocols = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];
        let ports = ports.into_iter().map(|(port, protocol, error)| PortStatus {
            port,
            protocol: *protocols.get(usize::from(protocol)).unwrap(),
            error,
        });
        IngressAddress {
            ip: ip.map(|octets| match octets {
                [one, two, three, four, ..] if v4 => [one, two, three, four].into(),
                octets => octets.into(),
            }),
            hostname,
            ip_mode: mode.map(|proxy| if proxy { IpMode::Proxy } else { IpMode::Vip }),
            ports: ports.collect(),
        }
    }

    fn any_text() -> impl Strategy<Value = String> {
        "\\PC{0,12}"
    }

    fn any_status() -> impl Strategy<Value = ServiceStatus> {
        let of_port = (any::<u16>(), 0..3_u8, prop::option::of(any_text()));
        let entry = (
            any::<(Option<[u8; 16]>, bool, Option<bool>)>(),
            prop::option::of(any_text()),
            prop::collection::vec(of_port, 0..3),
        );
        let of_condition = (
            0..3_u8,
            any::<bool>(),
            any::<prop::sample::Index>(),
            any::<Option<i64>>(),
        );
        (
            prop::collection::vec(entry, 0..3),
            prop::collection::vec((of_condition, any_text()), 0..4),
            prop::collection::btree_map(any_text(), any_text(), 0..3),
        )
            .prop_map(|(entries, conditions, marks)| ServiceStatus {
                ingress: entries
                    .into_iter()
                    .map(|(ip, hostname, ports)| ingress(ip, hostname, ports))
                    .collect(),
                conditions: conditions
                    .iter()
                    .map(|(fields, message)| condition(*fields, message))
                    .collect(),
                marks,
            })
    }

    proptest! {
        #[test]
        fn any_status_is_read_back_as_it_was(status in any_status()) {
            let mut to = Writer::new();
            pack_status(&mut to, &status);
            let bytes = to.finish();
            let mut from = Reader::new(&bytes);
            prop_assert_eq!(unpack_status(&mut from), Some(status.clone()));
            prop_assert_eq!(from.byte(), None, "nothing is left");
            prop_assert_eq!(KeptStatus::new(&status).status(), status);
        }

        #[test]
        fn bytes_that_end_too_soon_are_no_status(
            status in any_status(),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut to = Writer::new();
            pack_status(&mut to, &status);
            let bytes = to.finish();
            let (whole, _) = bytes.split_at(cut.index(bytes.len()));
            prop_assert_eq!(unpack_status(&mut Reader::new(whole)), None);
        }
    }

    #[test]
    fn each_code_has_its_place() {
        for (place, code) in Code::ALL.iter().enumerate() {
            assert_eq!(*code as usize, place);
        }
    }
}
