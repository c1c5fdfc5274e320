//! Messages as bytes. `netgauze-bgp-pkt` writes OPEN and UPDATE messages and reads capabilities;
//! what is read here without it, and why, is in docs/decisions/0016-bgp-wire.md.

pub(crate) mod open;
pub(crate) mod received;
pub(crate) mod update;

use netgauze_bgp_pkt::BgpMessage;
use netgauze_parse_utils::WritablePdu as _;

use crate::notification::{Notification, code, header};
use open::Open;
use received::{Context, Received};

/// Bytes of the header: marker, length and type.
pub(crate) const HEADER: usize = 19;

/// The most bytes of a message, without RFC 8654, which is not offered.
pub(crate) const LONGEST: usize = 4096;

const OPEN: u8 = 1;
const UPDATE: u8 = 2;
const NOTIFICATION: u8 = 3;
const KEEPALIVE: u8 = 4;
const ROUTE_REFRESH: u8 = 5;

/// A message that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Open(Open),
    Update(Received),
    Notification(Notification),
    Keepalive,
    Refresh(Refresh),
}

/// What is asked for again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refresh {
    Ipv4,
    Ipv6,
    /// Another family, or a mark of RFC 7313, which is not offered.
    Other,
}

/// Returns the length of the first message in a buffer if all of it is there. Its header is valid.
pub(crate) fn first(buffer: &[u8]) -> Result<Option<usize>, Notification> {
    let Some(head) = buffer.first_chunk::<HEADER>() else {
        let is_marker = buffer.iter().take(16).all(|&byte| byte == 0xff);
        return is_marker.then_some(None).ok_or_else(not_synchronized);
    };
    let [marker @ .., high, low, kind] = head;
    if marker.iter().any(|&byte| byte != 0xff) {
        return Err(not_synchronized());
    }
    let length = u16::from_be_bytes([*high, *low]);
    let shortest = match *kind {
        OPEN => 29,
        UPDATE => 23,
        NOTIFICATION => 21,
        ROUTE_REFRESH => 23,
        KEEPALIVE => 19,
        other => {
            return Err(Notification::new(code::HEADER, header::TYPE, [other]));
        }
    };
    let longest = match *kind {
        KEEPALIVE => 19,
        _ => LONGEST,
    };
    let size = usize::from(length);
    if size < shortest || size > longest {
        let data = length.to_be_bytes();
        return Err(Notification::new(code::HEADER, header::LENGTH, data));
    }
    Ok((buffer.len() >= size).then_some(size))
}

fn not_synchronized() -> Notification {
    Notification::new(code::HEADER, header::NOT_SYNCHRONIZED, [])
}

/// Reads one whole message, of which [`first`] returned the length.
pub(crate) fn read(message: &[u8], context: Context) -> Result<Message, Notification> {
    let kind = message.get(HEADER - 1).copied().unwrap_or_default();
    let body = message.get(HEADER..).unwrap_or_default();
    match kind {
        OPEN => Open::read(body).map(Message::Open),
        UPDATE => Received::read(body, context).map(Message::Update),
        NOTIFICATION => match body {
            [code, subcode, data @ ..] => {
                let notification = Notification::new(*code, *subcode, data);
                Ok(Message::Notification(notification))
            }
            _ => Err(Notification::new(code::HEADER, header::LENGTH, [])),
        },
        ROUTE_REFRESH => match *body {
            [0, 1, 0, 1] => Ok(Message::Refresh(Refresh::Ipv4)),
            [0, 2, 0, 1] => Ok(Message::Refresh(Refresh::Ipv6)),
            [_, _, _, _] => Ok(Message::Refresh(Refresh::Other)),
            _ => Err(Notification::new(code::HEADER, header::LENGTH, [])),
        },
        _ => Ok(Message::Keepalive),
    }
}

/// Writes a KEEPALIVE.
pub(crate) fn keepalive() -> Vec<u8> {
    framed(KEEPALIVE, &[])
}

/// Writes a NOTIFICATION.
pub(crate) fn notification(of: &Notification) -> Vec<u8> {
    let mut body = vec![of.code, of.subcode];
    let room = LONGEST - HEADER - body.len();
    body.extend(of.data.iter().take(room));
    framed(NOTIFICATION, &body)
}

fn framed(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = (HEADER + body.len()) as u16;
    let mut message = vec![0xff; 16];
    message.extend_from_slice(&length.to_be_bytes());
    message.push(kind);
    message.extend_from_slice(body);
    message
}

/// Writes a message of the crate. Nothing here can fail but writing into memory.
fn written(message: &BgpMessage) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(message.len());
    if let Err(error) = message.write(&mut bytes) {
        tracing::error!(%error, "a message could not be written");
    }
    bytes
}

#[cfg(test)]
pub(crate) mod tests;
