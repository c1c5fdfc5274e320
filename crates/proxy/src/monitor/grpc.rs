//! The question of gRPC's health checking protocol, `grpc.health.v1.Health/Check`: one small
//! message
//! each way over HTTP/2, written and read by hand.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};

use super::failure::{Failure, Sign};
use super::over_http2::{AGENT, over_http2};
use crate::tls::MemberStream;

/// An answer has a few bytes.
const MAX_ANSWER: usize = 4 * 1024;

/// What a health service may say, by number.
const STATUSES: [&str; 4] = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];

/// Asks how a service, or the whole server where the name is empty, is.
pub(super) async fn ask(stream: MemberStream, service: &str, host: &str) -> Result<Sign, Failure> {
    let scheme = if stream.is_secured() { "https" } else { "http" };
    let request = http::Request::post(format!("{scheme}://{host}/grpc.health.v1.Health/Check"))
        .header(http::header::CONTENT_TYPE, "application/grpc")
        .header(http::header::TE, "trailers")
        .header(http::header::USER_AGENT, AGENT)
        .body(Full::new(Bytes::from(question(service))))
        .map_err(|error| Failure::Here(error.to_string()))?;
    over_http2(stream, request, async |response| {
        let code = response.status().as_u16();
        if code != 200 {
            return Err(Failure::Grpc(format!("HTTP {code}")));
        }
        // An answer without a message has its status in the head.
        let mut status = status(response.headers());
        let mut body = response.into_body();
        let mut message = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| Failure::Closed)?;
            if let Some(data) = frame.data_ref() {
                if message.len() + data.len() > MAX_ANSWER {
                    return Err(Failure::Grpc("the answer is too long".to_owned()));
                }
                message.extend_from_slice(data);
            } else if let Some(trailers) = frame.trailers_ref() {
                status = status.or(self::status(trailers));
            }
        }
        validate(status.as_deref(), &message)
    })
    .await
}

/// What status and message say together.
fn validate(status: Option<&str>, message: &[u8]) -> Result<Sign, Failure> {
    match status {
        Some("0") => {}
        Some(status) => return Err(Failure::Grpc(format!("status {status}"))),
        None => return Err(Failure::Grpc("the answer has no status".to_owned())),
    }
    match health(message) {
        Some(1) => Ok(Sign::Serving),
        Some(health) => {
            let name = usize::try_from(health).ok().and_then(|at| STATUSES.get(at));
            let name = name.map_or_else(|| health.to_string(), ToString::to_string);
            Err(Failure::Grpc(name))
        }
        None => Err(Failure::Grpc("the answer can't be read".to_owned())),
    }
}

fn status(fields: &http::HeaderMap) -> Option<String> {
    let status = fields.get("grpc-status")?.to_str().ok()?;
    let code: u8 = status.parse().ok()?;
    Some(code.to_string())
}

/// A message with its prefix: not compressed, so many bytes. Field 1 is the name, a text.
fn question(service: &str) -> Vec<u8> {
    let mut message = Vec::new();
    if !service.is_empty() {
        message.push(1 << 3 | 2);
        let mut length = service.len();
        while length >= 0x80 {
            message.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        message.push((length & 0x7f) as u8);
        message.extend_from_slice(service.as_bytes());
    }
    let mut framed = vec![0];
    framed.extend_from_slice(&u32::try_from(message.len()).unwrap_or(0).to_be_bytes());
    framed.extend_from_slice(&message);
    framed
}

/// The status in an answer: field 1, a number; zero where it is missing. `None`: no such message.
fn health(framed: &[u8]) -> Option<u64> {
    let (prefix, mut message) = framed.split_at_checked(5)?;
    let (flag, length) = prefix.split_first()?;
    let length = u32::from_be_bytes(length.try_into().ok()?);
    if *flag != 0 || usize::try_from(length).ok()? != message.len() {
        return None;
    }
    let mut health = 0;
    while !message.is_empty() {
        let key = number(&mut message)?;
        match key & 7 {
            0 => {
                let value = number(&mut message)?;
                if key >> 3 == 1 {
                    health = value;
                }
            }
            1 => message = message.get(8..)?,
            2 => {
                let length = usize::try_from(number(&mut message)?).ok()?;
                message = message.get(length..)?;
            }
            5 => message = message.get(4..)?,
            _ => return None,
        }
    }
    Some(health)
}

/// A number in groups of seven bits, the lowest first.
fn number(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, behind) = rest.split_first()?;
        *rest = behind;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_names_its_service_or_none() {
        assert_eq!(question(""), [0, 0, 0, 0, 0]);
        assert_eq!(question("cart"), b"\0\0\0\0\x06\x0a\x04cart");
        assert_eq!(
            question(&"x".repeat(200))[..8],
            *b"\0\0\0\0\xcb\x0a\xc8\x01"
        );
    }

    #[test]
    fn only_serving_with_status_zero_is_good() {
        let said = |status, message: &[u8]| match validate(status, message) {
            Ok(sign) => sign.to_string(),
            Err(failure) => failure.to_string(),
        };
        let serving = b"\0\0\0\0\x02\x08\x01";
        assert_eq!(said(Some("0"), serving), "gRPC SERVING");
        assert_eq!(said(Some("12"), serving), "gRPC health: status 12");
        assert_eq!(said(None, serving), "gRPC health: the answer has no status");
        assert_eq!(
            said(Some("0"), b"\0\0\0\0\x02\x08\x02"),
            "gRPC health: NOT_SERVING"
        );
        assert_eq!(said(Some("0"), b"\0\0\0\0\0"), "gRPC health: UNKNOWN");
        assert_eq!(said(Some("0"), b"\0\0\0\0\x02\x08\x09"), "gRPC health: 9");
    }

    #[test]
    fn broken_answers_are_none_and_unknown_fields_are_skipped() {
        for broken in [
            &b""[..],
            b"\0\0\0\0",
            b"\x01\0\0\0\x02\x08\x01",
            b"\0\0\0\0\x03\x08\x01",
            b"\0\0\0\0\x01\x08",
            b"\0\0\0\0\x02\x12\x09",
            b"\0\0\0\0\x01\x0b",
            b"\0\0\0\0\x0b\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ] {
            assert_eq!(health(broken), None, "{broken:?}");
        }
        assert_eq!(health(b"\0\0\0\0\x05\x12\x01x\x08\x01"), Some(1));
    }
}
