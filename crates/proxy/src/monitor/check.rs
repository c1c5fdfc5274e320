//! One check of one member over the network: TCP connect, HTTP request, or a datagram on a
//! connected UDP socket. Says what was found in plain words; what that means for the member is the
//! state machine's business. Never reads more of an answer than its head, and bounds that.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU16;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use landfall_model::listener::{Check, HttpMethod, ProxyProtocol, StatusCodes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

pub(super) use super::failure::{Failure, MAX_HEAD, Sign};
use super::grpc;
pub(super) use super::over_http2::{AGENT, MAX_BODY, beginning, over_http2};
use crate::dial;
use crate::tls::{Inside, MemberStream, TowardMembers};

/// What members are asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// What a check does.
    pub check: Check,
    /// Members speak HTTP/2 with prior knowledge.
    pub http2: bool,
    /// Checks begin with a PROXY header of this version, as members of the pool expect it.
    pub introduce: Option<ProxyProtocol>,
    /// Requests are made over TLS.
    pub tls: Option<Tls>,
    /// The host that requests name, where it is not the member's address.
    pub host: Option<String>,
    /// What the body of a good answer contains.
    pub body: Option<String>,
    /// Checked port, where it is not the member's own.
    pub port: Option<NonZeroU16>,
}

/// How TLS of a check is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tls {
    /// As that of clients' connections to members is.
    AsPool(Arc<TowardMembers>),
    /// Not at all: clients speak TLS to members through the listener, and verify them.
    Unverified,
}

// === impl Tls ===

impl From<Option<Arc<TowardMembers>>> for Tls {
    fn from(of_pool: Option<Arc<TowardMembers>>) -> Self {
        of_pool.map_or(Self::Unverified, Self::AsPool)
    }
}

impl Tls {
    async fn secure(&self, stream: TcpStream, inside: Inside) -> Result<MemberStream, Failure> {
        let of_pool = match self {
            Self::AsPool(tls) => tls.clone(),
            Self::Unverified => unverified()?,
        };
        let secured = of_pool.connect(stream, inside).await;
        secured.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => Failure::Tls(error.to_string()),
            _ => error.into(),
        })
    }
}

/// What checks need that verify nothing, made once.
fn unverified() -> Result<Arc<TowardMembers>, Failure> {
    static UNVERIFIED: OnceLock<Arc<TowardMembers>> = OnceLock::new();
    if let Some(made) = UNVERIFIED.get() {
        return Ok(made.clone());
    }
    let made = TowardMembers::of_checks().map_err(|error| Failure::Here(error.to_string()))?;
    Ok(UNVERIFIED.get_or_init(|| made).clone())
}

/// Checks one member. Takes at most `limit`.
pub async fn check(
    question: &Question,
    member: SocketAddr,
    limit: Duration,
) -> Result<Sign, Failure> {
    let check = &question.check;
    if matches!(check, Check::UdpConnect) {
        return check_udp(member, limit).await;
    }
    let work = async {
        let mut stream = dial::open(member).await?;
        // Ending with a reset leaves no port in TIME_WAIT on this side, check after check.
        stream.set_zero_linger()?;
        if let Some(version) = question.introduce {
            stream.write_all(introduction(version)).await?;
        }
        let inside = match check {
            Check::Grpc { .. } => Inside::Http2,
            Check::Http { .. } if question.http2 => Inside::Http2,
            Check::Http { .. } | Check::Tcp | Check::UdpConnect => Inside::Http1,
        };
        let mut stream = match &question.tls {
            None => MemberStream::plain(stream),
            Some(tls) => tls.secure(stream, inside).await?,
        };
        let host = || question.host.clone().unwrap_or_else(|| member.to_string());
        match check {
            Check::Tcp | Check::UdpConnect => Ok(Sign::Connected),
            Check::Grpc { service } => grpc::ask(stream, service, &host()).await,
            Check::Http {
                method,
                path,
                codes,
            } => {
                let (got, body) = match (&question.body, question.http2) {
                    (None, false) => {
                        let request = request(*method, path, &host());
                        (ask(&mut stream, &request, codes).await?, None)
                    }
                    (wanted, http2) => {
                        let secure = question.tls.is_some();
                        let page = Page {
                            method: *method,
                            path,
                            host: &host(),
                            secure,
                        };
                        page.ask(stream, http2, wanted.is_some()).await?
                    }
                };
                if let (Some(wanted), Some(body), true) =
                    (&question.body, body, codes.contains(got))
                    && !contains(&body, wanted.as_bytes())
                {
                    return Err(Failure::Body {
                        wanted: wanted.clone(),
                    });
                }
                if codes.contains(got) {
                    Ok(Sign::Status(got))
                } else {
                    Err(Failure::Status {
                        got,
                        wanted: codes.clone(),
                    })
                }
            }
        }
    };
    tokio::time::timeout(limit, work)
        .await
        .unwrap_or(Err(Failure::TimedOut(limit)))
}

/// A header that says: this connection is for no client.
fn introduction(version: ProxyProtocol) -> &'static [u8] {
    match version {
        ProxyProtocol::V1 => b"PROXY UNKNOWN\r\n",
        // Signature, version 2 with the command LOCAL, no address, nothing behind.
        ProxyProtocol::V2 => b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0",
    }
}

pub(super) async fn ask(
    stream: &mut MemberStream,
    request: &str,
    codes: &StatusCodes,
) -> Result<u16, Failure> {
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut head = Vec::with_capacity(1024);
    loop {
        match response(&head)? {
            // Interim responses come ahead of the one that counts.
            Some((code @ 100..=199, length)) if code != 101 && !codes.contains(code) => {
                head.drain(..length);
            }
            Some((code, _)) => return Ok(code),
            None if head.len() >= MAX_HEAD => return Err(Failure::HeadTooLong),
            None => {
                if stream.read_buf(&mut head).await? == 0 {
                    return Err(if head.is_empty() {
                        Failure::Closed
                    } else {
                        Failure::NotHttp
                    });
                }
            }
        }
    }
}

/// A request whose answer is read beyond its head, or over HTTP/2.
struct Page<'a> {
    method: HttpMethod,
    path: &'a str,
    pub(super) host: &'a str,
    secure: bool,
}

impl Page<'_> {
    /// The code of the answer, and its body if that is `wanted`, as far as it is checked.
    pub(super) async fn ask(
        self,
        stream: MemberStream,
        http2: bool,
        wanted: bool,
    ) -> Result<(u16, Option<Vec<u8>>), Failure> {
        let path = clean(self.path);
        let request = http::Request::builder()
            .method(self.method.as_str())
            .header(http::header::USER_AGENT, AGENT);
        let request = if http2 {
            let scheme = if self.secure { "https" } else { "http" };
            request.uri(format!("{scheme}://{}{path}", self.host))
        } else {
            let request = request.uri(path).header(http::header::HOST, self.host);
            request.header(http::header::CONNECTION, "close")
        };
        let request = request
            .body(Empty::<Bytes>::new())
            .map_err(|error| Failure::Here(error.to_string()))?;
        let take = async |response: http::Response<Incoming>| {
            let code = response.status().as_u16();
            let body = if wanted {
                Some(beginning(response.into_body(), MAX_BODY).await)
            } else {
                None
            };
            Ok((code, body))
        };
        if http2 {
            return over_http2(stream, request, take).await;
        }
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|_| Failure::NotHttp)?;
        let asked = async {
            let response = sender.send_request(request).await;
            take(response.map_err(|error| {
                if error.is_parse() {
                    Failure::NotHttp
                } else {
                    Failure::Closed
                }
            })?)
            .await
        };
        let mut asked = std::pin::pin!(asked);
        tokio::select! {
            biased;
            done = &mut asked => done,
            _ = connection => asked.await,
        }
    }
}

fn contains(body: &[u8], wanted: &[u8]) -> bool {
    body.windows(wanted.len().max(1)).any(|part| part == wanted)
}

pub(super) fn request(method: HttpMethod, path: &str, host: &str) -> String {
    let length = match method {
        HttpMethod::Post | HttpMethod::Put | HttpMethod::Patch => "Content-Length: 0\r\n",
        HttpMethod::Get
        | HttpMethod::Head
        | HttpMethod::Options
        | HttpMethod::Delete
        | HttpMethod::Trace
        | HttpMethod::Connect => "",
    };
    let path = clean(path);
    format!(
        "{} {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {AGENT}\r\nAccept: */*\r\n\
         {length}Connection: close\r\n\r\n",
        method.as_str()
    )
}

/// A path from a manifest must not be able to add header lines.
fn clean(path: &str) -> String {
    path.chars().filter(char::is_ascii_graphic).collect()
}

/// The code and length of a response head; `None` while it is incomplete.
pub(super) fn response(bytes: &[u8]) -> Result<Option<(u16, usize)>, Failure> {
    let mut headers = [httparse::EMPTY_HEADER; 128];
    let mut response = httparse::Response::new(&mut headers);
    match response.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => Ok(response.code.map(|code| (code, length))),
        Ok(httparse::Status::Partial) => Ok(None),
        Err(httparse::Error::TooManyHeaders) => Err(Failure::HeadTooLong),
        Err(_) => Err(Failure::NotHttp),
    }
}

async fn check_udp(member: SocketAddr, limit: Duration) -> Result<Sign, Failure> {
    let unspecified = match member {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpSocket::bind(unspecified).await?;
    socket.connect(member).await?;
    // An empty datagram provokes the ICMP error of a closed port like any other, and is the one
    // thing that no protocol can mistake for a request.
    socket.send(&[]).await?;
    match tokio::time::timeout(limit, socket.recv(&mut [0; 1])).await {
        Ok(answer) => answer.map(|_| Sign::Answered).map_err(Failure::from),
        Err(_) => Ok(Sign::NotRefused),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::fsm::Verdict;

    #[test]
    fn a_request_names_its_host_and_closes() {
        assert_eq!(
            request(HttpMethod::Get, "/healthz?full=1", "127.0.0.9:8080"),
            "GET /healthz?full=1 HTTP/1.1\r\nHost: 127.0.0.9:8080\r\n\
             User-Agent: landfall-monitor\r\nAccept: */*\r\nConnection: close\r\n\r\n"
        );
        assert!(
            request(HttpMethod::Post, "/", "127.0.0.9:8080").contains("\r\nContent-Length: 0\r\n")
        );
    }

    #[test]
    fn a_path_cannot_add_header_lines() {
        let request = request(
            HttpMethod::Get,
            "/ HTTP/1.1\r\nX-Evil: 1\r\n\r\n",
            "127.0.0.9:8080",
        );
        assert!(
            request.starts_with("GET /HTTP/1.1X-Evil:1 HTTP/1.1\r\nHost"),
            "{request}"
        );
    }

    #[test]
    fn a_response_head_is_read_to_its_end_and_no_further() {
        let head = b"HTTP/1.1 204 No Content\r\nServer: x\r\n\r\n";
        assert_eq!(response(head), Ok(Some((204, head.len()))));
        assert_eq!(response(b"HTTP/1.0 503\r\n\r\nbody"), Ok(Some((503, 16))));
        assert_eq!(response(&head[..head.len() - 1]), Ok(None));
        assert_eq!(response(b""), Ok(None));
        assert_eq!(response(b"SSH-2.0-OpenSSH_9.2\r\n"), Err(Failure::NotHttp));
    }

    #[test]
    fn failures_speak_plainly() {
        let wanted = "200,204".parse().unwrap();
        let cases = [
            (
                Failure::Status { got: 503, wanted },
                "HTTP 503, expected 200,204",
            ),
            (
                Failure::TimedOut(Duration::from_secs(3)),
                "no answer in 3 s",
            ),
            (
                Failure::TimedOut(Duration::from_millis(1500)),
                "no answer in 1500 ms",
            ),
            (
                io::Error::from_raw_os_error(111).into(),
                "connection refused",
            ),
            (
                io::Error::from_raw_os_error(104).into(),
                "closed before answering",
            ),
            (io::Error::from_raw_os_error(113).into(), "no route to host"),
            (
                io::Error::from_raw_os_error(24).into(),
                "could not be checked: too many open files",
            ),
        ];
        for (failure, words) in cases {
            assert_eq!(failure.to_string(), words);
        }
    }

    #[test]
    fn trouble_on_this_side_is_not_held_against_the_member() {
        for code in [1, 11, 12, 23, 24, 98, 99, 105] {
            let failure = Failure::from(io::Error::from_raw_os_error(code));
            assert_eq!(failure.verdict(), Verdict::Unclear, "{failure}");
        }
        assert_eq!(
            Failure::from(io::Error::from_raw_os_error(113)).verdict(),
            Verdict::Bad
        );
    }
}
