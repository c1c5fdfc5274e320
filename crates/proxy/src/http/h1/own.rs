//! Responses that are Landfall's own, and the end of a connection.

use std::future::poll_fn;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::super::front::{ClientStream, Settings};
use super::super::redirect::RedirectTarget;
use super::super::refusal::Refusal;
use super::request::RequestFacts;
use super::{Connection, Then};
use crate::access_log;

impl<S: ClientStream> Connection<S> {
    /// Answers in the member's stead.
    pub(super) async fn refuse(
        &mut self,
        refusal: Refusal,
        request: Option<RequestFacts>,
        settings: Settings,
    ) -> Then {
        self.record.refused(&self.front, refusal);
        let to_head = request.is_some_and(|request| request.is_head);
        let write = |keep_alive, out: &mut Vec<u8>| refusal.write(to_head, keep_alive, out);
        self.say(request, write, settings).await
    }

    /// Sends a client elsewhere with its request.
    pub(super) async fn send_away(
        &mut self,
        request: RequestFacts,
        elsewhere: &RedirectTarget,
        settings: Settings,
    ) -> Then {
        self.record
            .responded(&self.front, elsewhere.status.as_u16());
        self.record.ends(access_log::OK);
        let write = |keep_alive, out: &mut Vec<u8>| elsewhere.write(keep_alive, out);
        self.say(Some(request), write, settings).await
    }

    /// Gives an answer from here.
    async fn say(
        &mut self,
        request: Option<RequestFacts>,
        write: impl FnOnce(bool, &mut Vec<u8>),
        settings: Settings,
    ) -> Then {
        let intact = request.is_some_and(|request| request.framing.is_empty());
        let keep_alive = intact
            && request.is_some_and(|request| request.keep_alive)
            && !self.front.is_draining();
        let mut response = std::mem::take(&mut self.downward);
        response.clear();
        write(keep_alive, &mut response);
        let work = async {
            self.client.write_all(&response).await?;
            self.client.flush().await
        };
        let sent = timeout(settings.timeouts.client_data, work).await;
        self.front
            .listener()
            .counters()
            .mine()
            .passed(0, response.len() as u64);
        self.record.passed(0, response.len() as u64);
        self.downward = response;
        match sent {
            Ok(Ok(())) if keep_alive => Then::Continue,
            Ok(Ok(())) if intact => Then::Close,
            Ok(Ok(())) => Then::Linger,
            Ok(Err(_)) | Err(_) => Then::Abort,
        }
    }

    pub(super) async fn close(&mut self) {
        let _ = timeout(LINGER, self.client.shutdown()).await;
    }

    /// Closes, and reads on for a while what is not needed any more.
    pub(super) async fn linger(&mut self) {
        let read_on = async {
            if self.client.shutdown().await.is_err() {
                return;
            }
            loop {
                self.input.consume(usize::MAX);
                let read = poll_fn(|context| self.input.poll_fill(&mut self.client, context)).await;
                if matches!(read, Ok(0) | Err(_)) {
                    return;
                }
            }
        };
        let _ = timeout(LINGER, read_on).await;
    }
}

/// How long a client that was refused may go on sending before the connection is closed in its
/// face: closing with unread bytes would be a reset, which can overtake and destroy the answer.
const LINGER: Duration = Duration::from_secs(2);
