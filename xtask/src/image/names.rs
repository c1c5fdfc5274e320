//! A name server with a handful of names, for trying an image where there is no other. RFC 1035.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use tokio::net::UdpSocket;

/// Names and their addresses.
pub type Zone = BTreeMap<String, Ipv4Addr>;

const HEADER: usize = 12;
/// A response to a query that may be asked recursively.
const RESPONSE: u8 = 0x84;
const NO_ERROR: u8 = 0;
const NO_SUCH_NAME: u8 = 3;
const TYPE_A: [u8; 4] = [0, 1, 0, 1];
/// The question's name, type A, class IN, a minute, four bytes.
const ANSWER: [u8; 12] = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4];

/// Answers until a socket error.
pub async fn serve(socket: &UdpSocket, zone: &Zone) -> anyhow::Result<()> {
    let mut query = [0; 512];
    loop {
        let (length, client) = socket.recv_from(&mut query).await?;
        if let Some(answer) = query.get(..length).and_then(|query| answer(query, zone)) {
            socket.send_to(&answer, client).await?;
        }
    }
}

/// The answer to a query; `None` where it can't be understood.
fn answer(query: &[u8], zone: &Zone) -> Option<Vec<u8>> {
    let mut labels = Vec::new();
    let mut at = HEADER;
    loop {
        let length = usize::from(*query.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        labels.push(std::str::from_utf8(query.get(at..at + length)?).ok()?);
        at += length;
    }
    let kind = query.get(at..at + 4)?;
    let name = labels.join(".").to_ascii_lowercase();
    let known = zone.get(&name);
    let address = known.filter(|_| kind == TYPE_A);
    let code = if known.is_some() {
        NO_ERROR
    } else {
        NO_SUCH_NAME
    };
    let mut answer = query.get(..2)?.to_vec();
    answer.extend([
        RESPONSE,
        code,
        0,
        1,
        0,
        u8::from(address.is_some()),
        0,
        0,
        0,
        0,
    ]);
    answer.extend(query.get(HEADER..at + 4)?);
    if let Some(address) = address {
        answer.extend(ANSWER);
        answer.extend(address.octets());
    }
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(kind: u8) -> Vec<u8> {
        let mut query = vec![7, 8, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        query.extend(b"\x05Asked\x04test\x00");
        query.extend([0, kind, 0, 1]);
        query
    }

    #[test]
    fn a_known_name_has_its_address_and_nothing_else() {
        let zone = Zone::from([("asked.test".to_owned(), Ipv4Addr::new(127, 0, 0, 3))]);
        let found = answer(&query(1), &zone).unwrap();
        assert_eq!(&found[..8], [7, 8, 0x84, 0, 0, 1, 0, 1]);
        assert_eq!(&found[found.len() - 4..], [127, 0, 0, 3]);
        let other_type = answer(&query(28), &zone).unwrap();
        assert_eq!(&other_type[..8], [7, 8, 0x84, 0, 0, 1, 0, 0]);
        assert_eq!(other_type.len(), query(28).len());
    }

    #[test]
    fn an_unknown_name_does_not_exist_and_rubbish_is_not_answered() {
        assert_eq!(answer(&query(1), &Zone::new()).unwrap()[3], NO_SUCH_NAME);
        let whole = query(1);
        for length in 0..whole.len() {
            assert_eq!(answer(&whole[..length], &Zone::new()), None);
        }
    }
}
