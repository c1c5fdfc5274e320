//! The way of one request of an HTTP/2 client: checked, given to a member, to another if that
//! fails, and answered from here if none can.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response, header};
use hyper::body::Incoming;

use super::over_http1::{NoResponse, OverHttp1};
use super::response::{ResponseBody, Source};
use super::{Busy, Client};
use crate::budget::Extra;
use crate::dial::{self, MAX_TRIES};
use crate::http::content::{BodyFailed, RequestContent};
use crate::http::fields::strip_hop_by_hop;
use crate::http::front::Settings;
use crate::http::h1::head::{is_host, number};
use crate::http::h1::request::{RequestFacts, write_request};
use crate::http::over_http2::{self, Sent};
use crate::http::record::Record;
use crate::http::redirect;
use crate::http::refusal::Refusal;
use crate::http::upstream::{Need, NoLink};
use crate::pool::Lease;
use crate::tls::{Inside, MemberStream};

/// Why one member gave no answer.
struct Unanswered {
    refusal: Refusal,
    /// The content, where all of it is still here and the request may be sent again.
    content: Option<RequestContent>,
}

/// One request under way.
struct RequestTask {
    client: Arc<Client>,
    parts: Parts,
    authority: String,
    settings: Settings,
    /// No other request of the client was under way when it began.
    alone: bool,
}

/// Answers a request.
pub(super) async fn answer(
    client: Arc<Client>,
    request: Request<Incoming>,
) -> Response<ResponseBody> {
    let front = client.front.clone();
    let settings = front.settings();
    let (parts, body) = request.into_parts();
    let content = RequestContent::http2(body, settings.timeouts.client_data, client.uploads());
    let mut busy = Busy::new(client.clone(), &parts, &content);
    let prepared = if busy.is_paid() {
        prepare(&client, parts, settings)
    } else {
        Err(Refusal::Share)
    };
    let answer = match prepared {
        Ok((parts, authority)) if settings.redirect.is_some() => {
            send_away(&parts, &authority, settings)
        }
        Ok((parts, authority)) => {
            let request_task = RequestTask {
                client,
                parts,
                authority,
                settings,
                alone: busy.alone,
            };
            request_task.run(content, &mut busy.record).await
        }
        Err(refusal) => Err(refusal),
    };
    let response = match answer {
        Ok(response) => {
            busy.record.responded(&front, response.status().as_u16());
            response
        }
        Err(refusal) => {
            busy.record.refused(&front, refusal);
            let response = refusal.response();
            response.map(|text| Source::Text(Bytes::from(text)))
        }
    };
    response.map(|source| ResponseBody::new(source, busy))
}

/// Sends the client elsewhere with its request, where that is configured.
fn send_away(
    parts: &Parts,
    authority: &str,
    settings: Settings,
) -> Result<Response<Source>, Refusal> {
    let redirect = settings.redirect.ok_or(Refusal::NoMember)?;
    let target = parts.uri.path_and_query().map_or("*", |path| path.as_str());
    let elsewhere = redirect::elsewhere(redirect, authority.as_bytes(), target)?;
    Ok(elsewhere.response().map(Source::Text))
}

/// Makes the head what a member is to see.
fn prepare(
    client: &Client,
    mut parts: Parts,
    settings: Settings,
) -> Result<(Parts, String), Refusal> {
    if parts.method == Method::CONNECT {
        return Err(Refusal::Connect);
    }
    let authority = if let Some(authority) = parts.uri.authority() {
        authority.as_str().to_owned()
    } else {
        let mut hosts = parts.headers.get_all(header::HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return Err(Refusal::Malformed("the authority is missing"));
        };
        // What is not text is no host either.
        host.to_str().unwrap_or("?").to_owned()
    };
    if !is_host(authority.as_bytes()) {
        return Err(Refusal::Malformed("the authority is broken"));
    }
    let target = parts.uri.path_and_query().map_or("", |path| path.as_str());
    // As over HTTP/1 (RFC 9113 section 8.3.1). A fragment is gone by now.
    let is_target = target.starts_with('/') || (target == "*" && parts.method == Method::OPTIONS);
    if !is_target {
        return Err(Refusal::Malformed("the request target is broken"));
    }
    let length = parts.headers.get(header::CONTENT_LENGTH);
    if length.is_some_and(|length| number(length.as_bytes()).is_none()) {
        return Err(Refusal::Malformed("the Content-Length field is broken"));
    }
    strip_hop_by_hop(&mut parts.headers, settings.http.member_http2);
    parts.headers.remove(header::HOST);
    // hyper sends no interim responses, so permission of a member would not reach the client.
    parts.headers.remove(header::EXPECT);
    let forwarding = client.forwarding(settings);
    if let Some(rate) = settings.request_rate {
        let earlier = parts.headers.get_all("x-forwarded-for").iter();
        let source = forwarding.source(earlier.map(http::HeaderValue::as_bytes));
        client.front.admit(rate, source).map_err(Refusal::TooMany)?;
    }
    forwarding.strip(&mut parts.headers);
    forwarding.insert(&mut parts.headers);
    Ok((parts, authority))
}

// === impl Unanswered ===

impl Unanswered {
    /// What another member would not change.
    fn at_once(refusal: Refusal) -> Self {
        Self {
            refusal,
            content: None,
        }
    }
}

// === impl RequestTask ===

impl RequestTask {
    async fn run(
        self,
        mut content: RequestContent,
        record: &mut Record,
    ) -> Result<Response<Source>, Refusal> {
        let mut tried: Vec<SocketAddr> = Vec::new();
        let mut refusal = Refusal::NoMember;
        while tried.len() < MAX_TRIES {
            let pool = self.client.front.listener().pool();
            let lease = match pool.take(self.client.inbound.client, &tried).await {
                Ok(lease) => lease,
                Err(why) if tried.is_empty() => return Err(why.into()),
                Err(_) => break,
            };
            let member = lease.address();
            record.asks(member);
            let asked = if self.settings.http.member_http2 {
                self.ask_over_http2(lease, content).await
            } else {
                self.ask_over_http1(lease, content).await
            };
            match asked {
                Ok(response) => return Ok(response),
                Err(unanswered) => {
                    refusal = unanswered.refusal;
                    match unanswered.content {
                        Some(back) => content = back,
                        None => break,
                    }
                    tried.push(member);
                }
            }
        }
        Err(refusal)
    }

    async fn ask_over_http1(
        &self,
        lease: Lease,
        content: RequestContent,
    ) -> Result<Response<Source>, Unanswered> {
        let member = lease.address();
        let repeatable = content.is_empty() && self.parts.method.is_idempotent();
        let need = if repeatable {
            Need::Open
        } else {
            Need::SurelyOpen
        };
        // Asked first: what is refused shall not use up connections that are kept.
        let hold = match self.client.hold(self.alone) {
            Ok(hold) => hold,
            Err(refusal) => return Err(Unanswered::at_once(refusal)),
        };
        let tls = self.client.front.toward_members();
        let idle = self.client.idle(self.settings);
        let kept = idle.take(member, need, tls.as_ref());
        let (lease, hold, content) = match kept {
            None => (lease, hold, content),
            Some(stream) => match self.exchange(lease, (stream, hold, true), content).await {
                Ok(response) => return Ok(response),
                // The member closed the connection just when it was to be used: no failure of its
                // own.
                Err((unanswered, lease)) => match unanswered.content {
                    Some(content) => match self.client.hold(self.alone) {
                        Ok(hold) => (lease, hold, content),
                        Err(refusal) => return Err(Unanswered::at_once(refusal)),
                    },
                    None => return Err(unanswered),
                },
            },
        };
        let (introduce, within) = (
            self.settings.introduce,
            self.settings.timeouts.member_connect,
        );
        let (tls, inbound) = ((tls.as_ref(), Inside::Http1), &self.client.inbound);
        match dial::reach(member, within, introduce, tls, inbound).await {
            Ok(stream) => {
                let asked = self.exchange(lease, (stream, hold, false), content);
                asked.await.map_err(|(why, _)| why)
            }
            Err(error) => Err(self.unreachable(&lease, &error, content)),
        }
    }

    async fn exchange(
        &self,
        lease: Lease,
        (stream, hold, kept): (MemberStream, Option<Extra>, bool),
        content: RequestContent,
    ) -> Result<Response<Source>, (Unanswered, Lease)> {
        lease.connected();
        let repeatable = content.is_empty() && self.parts.method.is_idempotent();
        let mut head = Vec::with_capacity(512);
        let framing = write_request(&self.parts, &self.authority, content.is_empty(), &mut head);
        let facts = RequestFacts::of_http2(&self.parts.method, framing);
        let (client, timeouts) = (self.client.clone(), self.settings.timeouts);
        let over = OverHttp1::new(
            client,
            lease,
            (stream, hold),
            head,
            content,
            framing,
            timeouts,
        );
        match over.response(facts).await {
            Ok(response) => Ok(response.map(|body| Source::Http1(Box::new(body)))),
            Err((failed, lease)) => {
                if failed.is_of_member(kept) {
                    lease.unanswered();
                }
                let again = repeatable && failed.may_be_stale();
                let content = again.then(RequestContent::empty);
                Err((
                    Unanswered {
                        refusal: failed.refusal(),
                        content,
                    },
                    lease,
                ))
            }
        }
    }

    async fn ask_over_http2(
        &self,
        lease: Lease,
        content: RequestContent,
    ) -> Result<Response<Source>, Unanswered> {
        let member = lease.address();
        let (introduce, within) = (
            self.settings.introduce,
            self.settings.timeouts.member_connect,
        );
        let links = self.client.links(self.settings);
        let tls = self.client.front.toward_members();
        let hold = || self.client.hold_link(self.alone).map_err(|_| NoLink::Share);
        let inbound = &self.client.inbound;
        let get = links.get(member, within, introduce, tls.as_ref(), inbound, hold);
        let link = match get.await {
            Ok(link) => link,
            Err(why) => {
                return Err(match self.client.front.no_link(&lease, &why) {
                    Refusal::Share => Unanswered::at_once(Refusal::Share),
                    refusal => Unanswered {
                        refusal,
                        content: Some(content),
                    },
                });
            }
        };
        self.client.front.linked();
        lease.connected();
        let repeatable = content.is_empty() && self.parts.method.is_idempotent();
        let request = self.for_http2(content).map_err(|refusal| Unanswered {
            refusal,
            content: None,
        })?;
        match over_http2::send(link, lease, request, self.settings.timeouts).await {
            Sent::Response(response) => Ok(response.map(|body| Source::Http2(Box::new(body)))),
            Sent::Unsent(content) => Err(Unanswered {
                refusal: Refusal::MemberFailed,
                content: Some(content),
            }),
            Sent::Failed(refusal) => {
                let again = repeatable && refusal == Refusal::MemberFailed;
                Err(Unanswered {
                    refusal,
                    content: again.then(RequestContent::empty),
                })
            }
        }
    }

    fn for_http2(&self, content: RequestContent) -> Result<Request<RequestContent>, Refusal> {
        let path = self.parts.uri.path_and_query().cloned();
        let path = path.unwrap_or_else(|| http::uri::PathAndQuery::from_static("/"));
        let uri = http::Uri::builder()
            .scheme(http::uri::Scheme::HTTP)
            .authority(self.authority.as_str())
            .path_and_query(path)
            .build()
            .map_err(|_| Refusal::Malformed("the target is broken"))?;
        let mut request = Request::new(content);
        *request.method_mut() = self.parts.method.clone();
        *request.uri_mut() = uri;
        *request.version_mut() = http::Version::HTTP_2;
        request.headers_mut().clone_from(&self.parts.headers);
        Ok(request)
    }

    fn unreachable(
        &self,
        lease: &Lease,
        error: &std::io::Error,
        content: RequestContent,
    ) -> Unanswered {
        let refusal = self.client.front.connect_failed(lease, error);
        Unanswered {
            refusal,
            content: Some(content),
        }
    }
}

// === impl NoResponse ===

impl NoResponse {
    fn refusal(&self) -> Refusal {
        match self {
            Self::Failed(BodyFailed::ClientTimeout) => Refusal::ClientTimeout,
            Self::Failed(BodyFailed::Client) => Refusal::Malformed("the body is broken"),
            Self::Failed(BodyFailed::MemberTimeout) => Refusal::MemberTimeout,
            Self::Failed(BodyFailed::Share) | Self::Share => Refusal::Share,
            Self::Failed(BodyFailed::Member | BodyFailed::Cut)
            | Self::Ended
            | Self::GaveUp
            | Self::Broken => Refusal::MemberFailed,
        }
    }
}
