//! Requests of HTTP/1 clients for members that speak HTTP/2: bytes become frames and frames become
//! bytes.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Frame};
use landfall_model::listener::Timeouts;
use tokio::sync::mpsc;
use tokio_util::sync::PollSender;

use super::body::{Decoder, Kind};
use super::exchange::poll_gone;
use super::head::Version;
use super::request::RequestFacts;
use super::response::{ResponseStyle, write_response};
use super::{Connection, Then};
use crate::access_log;
use crate::budget::units::UNIT;
use crate::dial::MAX_TRIES;
use crate::http::CHUNK;
use crate::http::backpressure::STREAM_WINDOW;
use crate::http::buffer::{Buffer, Outgoing};
use crate::http::content::{BodyFailed, Progress, RequestContent, SilenceTimer};
use crate::http::fields::allowed_in_trailers;
use crate::http::front::{ClientStream, Settings};
use crate::http::over_http2::{self, OverHttp2, Sent};
use crate::http::refusal::Refusal;
use crate::memory::{ConnectionMemory, MemoryHold, MemoryOwner};

/// Frames that may wait for the member: one to be taken, while the next is read.
const FRAMES_AHEAD: usize = 1;

/// The body of a request on its way into frames.
struct Upload {
    decoder: Decoder,
    /// Gone when there is nothing more to send, or its receiver is gone.
    frames: Option<PollSender<Result<Frame<Bytes>, BodyFailed>>>,
    /// What the client waits for before it sends.
    permission: Outgoing,
    impatience: SilenceTimer,
    progress: Arc<Progress>,
}

/// A response on its way into bytes.
struct Download {
    out: Outgoing,
    /// Gone when all of it is in `out`.
    body: Option<OverHttp2>,
    chunked: bool,
    impatience: SilenceTimer,
    written: u64,
    /// One that pays, while the client takes nothing, for what is here and may come.
    payer: Option<Arc<MemoryOwner>>,
    paid: Option<MemoryHold>,
}

/// Units of memory that a response takes whose client does not read it: a frame, and what the
/// member may still send.
const WAITING: u8 = 1 + (STREAM_WINDOW as usize / UNIT) as u8;

impl<S: ClientStream> Connection<S> {
    /// Has a member answer a request over HTTP/2.
    pub(super) async fn answer_over_http2(
        &mut self,
        facts: RequestFacts,
        head: &Request<()>,
        settings: Settings,
    ) -> Then {
        let (mut upload, mut content) = Upload::new(facts, settings.timeouts, &self.input);
        let progress = content.progress();
        let mut tried: Vec<SocketAddr> = Vec::new();
        let mut refusal = Refusal::NoMember;
        while tried.len() < MAX_TRIES {
            let lease = match self.member(&tried, facts).await {
                Some(Ok(lease)) => lease,
                Some(Err(why)) if tried.is_empty() => {
                    refusal = why.into();
                    break;
                }
                Some(Err(_)) => break,
                None => return Then::Abort,
            };
            let member = lease.address();
            tried.push(member);
            self.record.asks(member);
            let (introduce, within) = (settings.introduce, settings.timeouts.member_connect);
            let links = match introduce {
                Some(_) => self.own_links.get_or_insert_default(),
                None => self.front.links(),
            };
            // Without one that stays open, the client's place has a descriptor for this request.
            let hold = || Ok(self.front.listener().account().extra(None).ok());
            let tls = self.front.toward_members();
            let get = links.get(member, within, introduce, tls.as_ref(), &self.inbound, hold);
            let link = match get.await {
                Ok(link) => link,
                Err(error) => {
                    refusal = self.front.no_link(&lease, &error);
                    continue;
                }
            };
            self.front.linked();
            lease.connected();
            let request = head.clone().map(|()| content);
            let sending = over_http2::send(link, lease, request, settings.timeouts);
            match self.send(sending, &mut upload).await {
                Ok(Sent::Response(response)) => {
                    let then = self.pass_on(response, upload, facts, settings).await;
                    self.record.passed(progress.bytes(), 0);
                    return then;
                }
                Ok(Sent::Unsent(back)) => {
                    refusal = Refusal::MemberFailed;
                    content = back;
                }
                Ok(Sent::Failed(why)) => {
                    refusal = why;
                    if !facts.may_be_repeated() || why != Refusal::MemberFailed {
                        break;
                    }
                    content = RequestContent::empty();
                }
                Err(BodyFailed::ClientTimeout) => {
                    refusal = Refusal::ClientTimeout;
                    break;
                }
                Err(_) if upload.is_done() => {
                    self.record.ends(access_log::CLIENT_ABORT);
                    return Then::Abort;
                }
                Err(_) => {
                    refusal = Refusal::Malformed("the body is broken");
                    break;
                }
            }
        }
        self.refuse(refusal, Some(facts), settings).await
    }

    /// Sends a request while its body is read from the client.
    async fn send(
        &mut self,
        sending: impl Future<Output = Sent>,
        upload: &mut Upload,
    ) -> Result<Sent, BodyFailed> {
        let mut sending = pin!(sending);
        poll_fn(|context| {
            let uploaded = upload.poll(&mut self.client, &mut self.input, context);
            match uploaded {
                Poll::Ready(Err(failed)) => return Poll::Ready(Err(failed)),
                Poll::Ready(Ok(())) | Poll::Pending => {}
            }
            if let ready @ Poll::Ready(_) = sending.as_mut().poll(context) {
                return ready.map(Ok);
            }
            if !upload.is_done() {
                return Poll::Pending;
            }
            poll_gone(&self.front, &mut self.client, &mut self.input, context)
                .map(|()| Err(BodyFailed::Client))
        })
        .await
    }

    async fn pass_on(
        &mut self,
        response: Response<OverHttp2>,
        mut upload: Upload,
        facts: RequestFacts,
        settings: Settings,
    ) -> Then {
        let (parts, body) = response.into_parts();
        let status = parts.status.as_u16();
        self.record.responded(&self.front, status);
        let bodiless = facts.is_head || matches!(status, 204 | 304);
        let counted = parts.headers.contains_key(http::header::CONTENT_LENGTH);
        let chunked = !bodiless && !counted && facts.version == Version::Http11;
        let keep_alive = facts.keep_alive
            && (bodiless || counted || chunked)
            && upload.is_done()
            && !self.front.is_draining();
        let style = ResponseStyle {
            version: facts.version,
            keep_alive,
            enchunk: chunked,
        };
        let mut head = std::mem::take(&mut self.downward);
        head.clear();
        head.extend_from_slice(&upload.permission.take_begun());
        write_response(status, &parts.headers, style, &mut head);
        let mut download = Download {
            out: Outgoing::from(head),
            body: Some(body),
            chunked,
            impatience: SilenceTimer::new(settings.timeouts.client_data),
            written: 0,
            payer: self.input.payer().cloned(),
            paid: None,
        };
        let passed = poll_fn(|context| {
            // What becomes of the rest of the request no longer matters for the response.
            let _ = upload.poll(&mut self.client, &mut self.input, context);
            let polled = download.poll(&mut self.client, context);
            if polled.is_ready() || !upload.is_done() {
                return polled;
            }
            poll_gone(&self.front, &mut self.client, &mut self.input, context)
                .map(|()| Err(BodyFailed::Client))
        })
        .await;
        let counters = self.front.listener().counters().mine();
        counters.passed(0, download.written);
        self.record.passed(0, download.written);
        match passed {
            Ok(()) => self.record.ends_well(),
            Err(failed) => self.record.ends(failed.as_str()),
        }
        match passed {
            Ok(()) if keep_alive => Then::Continue,
            Ok(()) if upload.is_done() => Then::Close,
            Ok(()) => Then::Linger,
            Err(_) => Then::Abort,
        }
    }
}

// === impl Upload ===

impl Upload {
    fn new(facts: RequestFacts, timeouts: Timeouts, input: &Buffer) -> (Self, RequestContent) {
        let framing = facts.framing;
        let (sender, receiver) = mpsc::channel(FRAMES_AHEAD);
        let content = if framing.is_empty() {
            RequestContent::empty()
        } else {
            let ledger = input
                .payer()
                .cloned()
                .map(ConnectionMemory::of)
                .map(Arc::new);
            RequestContent::channel(receiver, ledger)
        };
        let upload = Self {
            decoder: Decoder::new(framing),
            frames: (!framing.is_empty()).then(|| PollSender::new(sender)),
            permission: Outgoing::from(if facts.expects_permission {
                b"HTTP/1.1 100 Continue\r\n\r\n".to_vec()
            } else {
                Vec::new()
            }),
            impatience: SilenceTimer::new(timeouts.client_data),
            progress: content.progress(),
        };
        (upload, content)
    }

    /// Whether the whole request was read.
    fn is_done(&self) -> bool {
        self.decoder.is_done()
    }

    /// Reads and hands on as much as is wanted at present. Fails because of the client only.
    fn poll<S: ClientStream>(
        &mut self,
        client: &mut S,
        input: &mut Buffer,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), BodyFailed>> {
        loop {
            let Some(frames) = &mut self.frames else {
                return Poll::Ready(Ok(()));
            };
            // Room for a frame first: what is read must not be lost.
            if ready!(frames.poll_reserve(context)).is_err() {
                self.frames = None;
                return Poll::Ready(Ok(()));
            }
            if self.decoder.is_done() {
                let trailers = self.decoder.trailer_map().unwrap_or_default();
                if !trailers.is_empty() {
                    let _ = frames.send_item(Ok(Frame::trailers(trailers)));
                }
                self.frames = None;
                return Poll::Ready(Ok(()));
            }
            if !input.is_empty() {
                let bytes = input.bytes();
                let Ok(piece) = self.decoder.next(bytes.get(..CHUNK).unwrap_or(bytes)) else {
                    return self.fail(BodyFailed::Client);
                };
                if piece.kind == Kind::Data {
                    let data = input.bytes().get(..piece.length).unwrap_or_default();
                    let _ = frames.send_item(Ok(Frame::data(Bytes::copy_from_slice(data))));
                }
                input.consume(piece.length);
                continue;
            }
            while !self.permission.rest().is_empty() {
                match ready!(Pin::new(&mut *client).poll_write(context, self.permission.rest())) {
                    Ok(count) if count > 0 => self.permission.advance(count),
                    Ok(_) | Err(_) => return self.fail(BodyFailed::Client),
                }
            }
            match input.poll_fill(client, context) {
                Poll::Ready(Ok(0) | Err(_)) => return self.fail(BodyFailed::Client),
                Poll::Ready(Ok(_)) => self.impatience.calm(),
                Poll::Pending => {
                    let _ = Pin::new(&mut *client).poll_flush(context);
                    ready!(self.impatience.poll(context));
                    return self.fail(BodyFailed::ClientTimeout);
                }
            }
        }
    }

    fn fail(&mut self, failed: BodyFailed) -> Poll<Result<(), BodyFailed>> {
        if let Some(mut frames) = self.frames.take() {
            let _ = frames.send_item(Err(failed));
        }
        Poll::Ready(Err(failed))
    }
}

impl Drop for Upload {
    /// What the member has of the request would look whole.
    fn drop(&mut self) {
        if self.frames.is_some() && !self.is_done() {
            self.progress.breaks_off();
        }
    }
}

// === impl Download ===

impl Download {
    fn poll<S: ClientStream>(
        &mut self,
        client: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), BodyFailed>> {
        loop {
            while !self.out.rest().is_empty() {
                match Pin::new(&mut *client).poll_write(context, self.out.rest()) {
                    Poll::Ready(Ok(count)) if count > 0 => {
                        self.impatience.calm();
                        self.paid = None;
                        self.written += count as u64;
                        self.out.advance(count);
                    }
                    Poll::Ready(_) => return Poll::Ready(Err(BodyFailed::Client)),
                    Poll::Pending => {
                        if let (Some(payer), None) = (&self.payer, &self.paid) {
                            self.paid = Some(payer.take(WAITING).ok_or(BodyFailed::Share)?);
                        }
                        let failed = Err(BodyFailed::ClientTimeout);
                        return self.impatience.poll(context).map(|()| failed);
                    }
                }
            }
            let Some(body) = &mut self.body else {
                return Pin::new(client)
                    .poll_flush(context)
                    .map_err(|_| BodyFailed::Client);
            };
            match Pin::new(body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => self.push(frame),
                Poll::Ready(Some(Err(failed))) => return Poll::Ready(Err(failed)),
                Poll::Ready(None) => {
                    self.body = None;
                    if self.chunked {
                        self.out.push(b"0\r\n\r\n");
                    }
                }
                Poll::Pending => {
                    let _ = Pin::new(client).poll_flush(context);
                    return Poll::Pending;
                }
            }
        }
    }

    fn push(&mut self, frame: Frame<Bytes>) {
        match frame.into_data() {
            Ok(data) if data.is_empty() => {}
            Ok(data) if self.chunked => {
                self.out.push(format!("{:x}\r\n", data.len()).as_bytes());
                self.out.push(&data);
                self.out.push(b"\r\n");
            }
            Ok(data) => self.out.push(&data),
            Err(frame) => {
                self.body = None;
                if !self.chunked {
                    return;
                }
                self.out.push(b"0\r\n");
                for (name, value) in frame.trailers_ref().into_iter().flatten() {
                    if allowed_in_trailers(name.as_str().as_bytes()) {
                        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                            self.out.push(part);
                        }
                    }
                }
                self.out.push(b"\r\n");
            }
        }
    }
}
