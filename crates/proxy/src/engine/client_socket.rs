//! The client's socket of a task, with events of the engine's own epoll instance. With tokio's it
//! would cost an allocation, a second look for events per pass, and a system call more at its end.
//! The engine also ends such tasks, and wakes them when their listener closes: a task that waited
//! for that itself would enter itself in a list that all workers share.

use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use landfall_sys::epoll::{Epoll, Event, Watch};
use landfall_sys::stream::{Half, Stream, unacknowledged};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::AbortHandle;
use tokio::task::coop::poll_proceed;

use super::lists::Lists;
use super::pump::would_block;
use super::slab::{Key, Slab};
use super::{Subject, place_of};
use crate::http::ClientStream;
use crate::listener::ListenerState;

/// The sockets that tasks of a worker have.
#[derive(Debug)]
pub(super) struct ClientSockets {
    table: Slab<Entry>,
    /// Which of them are of one listener, by where its state lies.
    by_listener: Lists<usize>,
    shared: Arc<Shared>,
}

/// What a table and its sockets share.
#[derive(Debug)]
struct Shared {
    epoll: Arc<Epoll>,
    gone: Mutex<Vec<Key>>,
}

#[derive(Debug)]
struct Entry {
    readiness: Arc<Readiness>,
    listener: usize,
    client: IpAddr,
    task: Option<AbortHandle>,
}

/// A client's socket. Closing it takes it out of the epoll instance.
#[derive(Debug)]
pub(super) struct ClientSocket {
    stream: Stream,
    key: Key,
    readiness: Arc<Readiness>,
    shared: Arc<Shared>,
}

/// What is known of a socket: whether the next call would succeed. Only the worker's thread has it.
#[derive(Debug)]
struct Readiness(Mutex<State>);

#[derive(Debug)]
struct State {
    readable: bool,
    /// More may be there than a read returned, and not be reported again.
    more_behind: bool,
    /// A reset, or another error, has ended the connection.
    broken: bool,
    unwritable: bool,
    /// The connection was cut: its end must not look like one in good order, unless it was one.
    cut: bool,
    /// The client may not be connected any more: it gets nothing that is still on its way.
    shut_out: bool,
    /// The end was sent, behind all that was to be said.
    ended: bool,
    /// What is reported of it, if anything is.
    watched: Option<Watch>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

// === impl ClientSockets ===

impl ClientSockets {
    /// No sockets. What happens to those that come is reported by `epoll`.
    pub(super) fn new(epoll: Arc<Epoll>) -> Self {
        let gone = Mutex::default();
        Self {
            table: Slab::default(),
            by_listener: Lists::default(),
            shared: Arc::new(Shared { epoll, gone }),
        }
    }

    /// Adds a socket of a client of this listener.
    pub(super) fn add(
        &mut self,
        stream: Stream,
        client: IpAddr,
        listener: &Arc<ListenerState>,
    ) -> ClientSocket {
        self.forget_gone();
        let readiness = Arc::new(Readiness::default());
        let listener = place_of(listener);
        let key = self.table.insert_with(|_| Entry {
            readiness: readiness.clone(),
            listener,
            client,
            task: None,
        });
        self.by_listener.add(listener, key.index);
        ClientSocket {
            stream,
            key,
            readiness,
            shared: self.shared.clone(),
        }
    }

    /// The task that has a socket.
    pub(super) fn set_task(&mut self, key: Key, task: AbortHandle) {
        if let Some(entry) = self.table.get_mut(key) {
            entry.task = Some(task);
        }
    }

    /// Something happened to a socket.
    pub(super) fn note(&mut self, key: Key, event: Event) {
        if let Some(entry) = self.table.get_mut(key) {
            entry.readiness.note(event);
        }
    }

    /// Ends what must not go on of a listener's tasks, and wakes the others: it may be closing.
    pub(super) fn sweep(&mut self, listener: &Arc<ListenerState>) {
        self.forget_gone();
        let is_cut = listener.cut().is_cancelled();
        let config = listener.config();
        for place in self.by_listener.of(place_of(listener)) {
            let key = self.table.key_at(place);
            let Some(entry) = key.and_then(|key| self.table.get_mut(key)) else {
                continue;
            };
            let is_shut_out = !config.allows(entry.client);
            if is_cut || is_shut_out {
                let mut state = entry.readiness.state();
                (state.cut, state.shut_out) = (true, is_shut_out);
                drop(state);
                if let Some(task) = &entry.task {
                    task.abort();
                }
            } else {
                entry.readiness.wake_reader();
            }
        }
    }

    /// Forgets sockets that are closed.
    pub(super) fn forget_gone(&mut self) {
        for key in lock(&self.shared.gone).drain(..) {
            if let Some(entry) = self.table.remove(key) {
                self.by_listener.remove(entry.listener, key.index);
            }
        }
    }
}

// === impl Readiness ===

impl Default for Readiness {
    fn default() -> Self {
        Self(Mutex::new(State {
            // Most clients say something before their connection has a task.
            readable: true,
            more_behind: false,
            broken: false,
            unwritable: false,
            cut: false,
            shut_out: false,
            ended: false,
            watched: None,
            reader: None,
            writer: None,
        }))
    }
}

impl Readiness {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    fn wake_reader(&self) {
        let reader = self.state().reader.take();
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    fn note(&self, event: Event) {
        let mut state = self.state();
        let mut wakers = [None, None];
        state.broken |= event.is_error();
        if event.is_readable() {
            state.readable = true;
            state.more_behind |= event.has_more_behind();
            wakers[0] = state.reader.take();
        }
        if event.is_writable() {
            state.unwritable = false;
            wakers[1] = state.writer.take();
        }
        drop(state);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

/// Notes what to wake.
fn register(place: &mut Option<Waker>, cx: &Context<'_>) {
    if !place
        .as_ref()
        .is_some_and(|waker| waker.will_wake(cx.waker()))
    {
        *place = Some(cx.waker().clone());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each operation leaves the values valid at every step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl ClientSocket ===

impl ClientSocket {
    /// Its key among all of the worker.
    pub(super) fn key(&self) -> Key {
        self.key
    }

    /// Has it reported when the socket can be read, or written as well. Watched only once something
    /// has to be waited for, it is not reported that a request is there which was read meanwhile.
    /// What is so already is reported at once.
    fn watch(&self, state: &mut State, wanted: Watch) -> io::Result<()> {
        let (epoll, token) = (&self.shared.epoll, Subject::Task(self.key).token());
        match (state.watched, wanted) {
            (Some(Watch::Both), _) | (Some(Watch::Reading), Watch::Reading) => return Ok(()),
            (Some(Watch::Reading), Watch::Both) => epoll.change(&self.stream, token, wanted)?,
            (None, _) => epoll.add(&self.stream, token, wanted)?,
        }
        state.watched = Some(wanted);
        Ok(())
    }

    fn poll_send(
        &self,
        cx: &mut Context<'_>,
        send: impl FnOnce(&Stream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let turn = ready!(poll_proceed(cx));
        let mut state = self.readiness.state();
        if state.unwritable {
            register(&mut state.writer, cx);
            return Poll::Pending;
        }
        match send(&self.stream) {
            Err(error) if would_block(&error) => {
                state.unwritable = true;
                register(&mut state.writer, cx);
                self.watch(&mut state, Watch::Both)?;
                Poll::Pending
            }
            result => {
                turn.made_progress();
                Poll::Ready(result)
            }
        }
    }
}

impl AsyncRead for ClientSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let turn = ready!(poll_proceed(cx));
        let mut state = self.readiness.state();
        if !state.readable {
            register(&mut state.reader, cx);
            self.watch(&mut state, Watch::Reading)?;
            return Poll::Pending;
        }
        match self.stream.receive_into(room) {
            Ok(()) => {
                // With room left it was all that was there, and what follows is reported.
                state.readable = room.remaining() == 0 || state.more_behind;
                turn.made_progress();
                Poll::Ready(Ok(()))
            }
            Err(error) if would_block(&error) => {
                state.readable = false;
                register(&mut state.reader, cx);
                self.watch(&mut state, Watch::Reading)?;
                Poll::Pending
            }
            Err(error) => {
                turn.made_progress();
                Poll::Ready(Err(error))
            }
        }
    }
}

impl AsyncWrite for ClientSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(cx, |stream| stream.send(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(cx, |stream| stream.send_vectored(pieces))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = self.stream.shutdown(Half::Write);
        self.readiness.state().ended = ended.is_ok();
        Poll::Ready(ended)
    }
}

impl ClientStream for ClientSocket {
    fn abort(&mut self) {
        // A reset; should the option fail, the client sees an early end instead.
        let _ = self.stream.set_reset_on_close();
    }

    fn agreed(&self) -> Option<&[u8]> {
        None
    }

    fn ends_by_itself(&self) -> bool {
        true
    }

    fn unacknowledged(&self) -> io::Result<usize> {
        unacknowledged(&self.stream)
    }

    fn poll_broken(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.readiness.state();
        register(&mut state.reader, cx);
        if self.watch(&mut state, Watch::Reading).is_err() || state.broken {
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

impl Drop for ClientSocket {
    fn drop(&mut self) {
        let (is_cut, is_whole) = {
            let state = self.readiness.state();
            (state.cut, state.ended && !state.shut_out)
        };
        // A reset could destroy what is on its way to a client that has its end.
        if is_cut && !is_whole {
            self.abort();
        }
        lock(&self.shared.gone).push(self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::num::NonZeroU16;
    use std::time::Duration;

    use landfall_model::Protocol;
    use landfall_model::listener::Listener;
    use landfall_sys::epoll::Events;
    use socket2::SockRef;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    struct Scene {
        epoll: Arc<Epoll>,
        sockets: ClientSockets,
        listener: Arc<ListenerState>,
    }

    impl Scene {
        fn new() -> Self {
            let listener = Listener::new(Protocol::Tcp, NonZeroU16::MIN);
            let listener = ListenerState::of_test("127.0.0.1".parse().unwrap(), &listener);
            let epoll = Arc::new(Epoll::new().unwrap());
            Self {
                sockets: ClientSockets::new(epoll.clone()),
                epoll,
                listener,
            }
        }

        fn pair(&mut self) -> (ClientSocket, TcpStream) {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (near, _) = Stream::accept(&listener).unwrap();
            let client = far.local_addr().unwrap().ip();
            (self.sockets.add(near, client, &self.listener), far)
        }

        /// Runs the future, with events reported as the engine does it.
        async fn run<T>(&mut self, future: impl Future<Output = T>) -> T {
            let mut events = Events::default();
            let (epoll, sockets) = (&self.epoll, &mut self.sockets);
            let report = async {
                loop {
                    poll_fn(|cx| epoll.poll_look(cx, &mut events))
                        .await
                        .unwrap();
                    for event in (0..events.len()).filter_map(|place| events.get(place)) {
                        sockets.note(Key::unpack(event.token), event);
                    }
                }
            };
            let both = async {
                tokio::select! {
                    value = future => value,
                    () = report => unreachable!(),
                }
            };
            tokio::time::timeout(Duration::from_secs(20), both)
                .await
                .unwrap()
        }
    }

    #[tokio::test]
    async fn bytes_and_the_end_that_came_with_them_are_read() {
        let mut scene = Scene::new();
        let (mut near, mut far) = scene.pair();
        far.write_all(b"all of it").unwrap();
        drop(far);
        let mut bytes = Vec::new();
        scene.run(near.read_to_end(&mut bytes)).await.unwrap();
        assert_eq!(bytes, b"all of it");
    }

    #[tokio::test]
    async fn more_than_the_kernel_holds_is_written_once_the_other_side_reads() {
        let mut scene = Scene::new();
        let (mut near, mut far) = scene.pair();
        let sent: Vec<u8> = (0..16 << 20).map(|at: u32| (at % 251) as u8).collect();
        let reader = std::thread::spawn(move || {
            let mut received = Vec::new();
            far.read_to_end(&mut received).unwrap();
            received
        });
        let write = async {
            near.write_all(&sent).await.unwrap();
            near.shutdown().await.unwrap();
        };
        scene.run(write).await;
        assert!(reader.join().unwrap() == sent);
    }

    #[tokio::test]
    async fn what_is_behind_an_urgent_byte_is_read() {
        let mut scene = Scene::new();
        let (mut near, mut far) = scene.pair();
        let mut waits = Context::from_waker(Waker::noop());
        let mut room = [0; 6];
        for _ in 0..2 {
            let read = std::pin::pin!(near.read_u8()).poll(&mut waits);
            assert!(read.is_pending());
            far.write_all(b"abc").unwrap();
            SockRef::from(&far).send_out_of_band(b"!").unwrap();
            far.write_all(b"def").unwrap();
            scene.run(near.read_exact(&mut room)).await.unwrap();
            assert_eq!(&room, b"abcdef");
        }
    }

    #[tokio::test]
    async fn a_socket_that_is_gone_leaves_its_place_to_the_next_and_no_event() {
        let mut scene = Scene::new();
        let (first, mut far_first) = scene.pair();
        let key = first.key;
        drop(first);
        let (mut second, mut far) = scene.pair();
        assert_eq!(second.key.index, key.index);
        assert_ne!(second.key, key);
        let _ = far_first.write_all(b"late");
        far.write_all(b"x").unwrap();
        assert_eq!(scene.run(second.read_u8()).await.unwrap(), b'x');
    }

    #[tokio::test]
    async fn tasks_of_a_listener_that_is_cut_end_and_others_look_again() {
        let mut scene = Scene::new();
        let (mut near, _far) = scene.pair();
        let key = near.key();
        let waits = tokio::spawn(async move { near.read_u8().await });
        scene.sockets.set_task(key, waits.abort_handle());
        let listener = scene.listener.clone();
        scene.sockets.sweep(&listener);
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        listener.cut().cancel();
        scene.sockets.sweep(&listener);
        assert!(waits.await.unwrap_err().is_cancelled());
        scene.sockets.forget_gone();
        assert!(scene.sockets.table.key_at(key.index).is_none());
        assert_eq!(scene.sockets.by_listener.of(place_of(&listener)).count(), 0);
    }
}
