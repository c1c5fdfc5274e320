//! Moving bytes one direction, from one socket to another. Holds bytes only while the receiver
//! takes none; never waits, never decides what happens to the connection.
//!
//! Bytes are read into buffer that all connections of a worker share and written from there at
//! once. What the receiver does not take is kept aside, at most [`BUFFER_SIZE`] bytes. A direction
//! that keeps filling the buffer switches to splice(2): bytes then stay in the kernel, and what is
//! not taken waits in a pipe.

use std::io;

use landfall_sys::stream::{Half, Stream, unacknowledged};

use super::pipes::{Pipes, Reserved};

/// Size of the shared buffer, and the most that a direction keeps aside.
pub(super) const BUFFER_SIZE: usize = 64 * 1024;

/// Fewer kept bytes than this are sent together with what follows them.
const LITTLE: usize = 512;

/// After this many bytes, a direction that fills the buffer is spliced.
const SPLICE_AFTER: u64 = 128 * 1024;

/// A splice that brings less than this ends splicing: for small pieces two copies cost less.
const SPLICE_LEAST: usize = 8 * 1024;

/// How many bytes one direction may move before others have their turn.
const SHARE: u64 = 1024 * 1024;

/// One direction of a connection.
#[derive(Debug)]
pub(super) struct Direction {
    /// Reading may bring something.
    pub(super) readable: bool,
    /// A read that returns little does not show that all is read: behind it is the end, or an
    /// urgent byte, at which reads stop.
    pub(super) more_behind: bool,
    /// Writing may be possible.
    pub(super) writable: bool,
    /// The end of the stream has been read.
    pub(super) ended: bool,
    /// The end of the stream has been passed on.
    pub(super) closed: bool,
    /// How many bytes were read.
    pub(super) moved: u64,
    /// How many bytes the receiver took.
    pub(super) sent: u64,
    /// The receiver is gone: what still comes is read and dropped.
    pub(super) lost: bool,
    splicing: bool,
    held: Held,
}

#[derive(Debug)]
enum Held {
    Nothing,
    Bytes { bytes: Vec<u8>, taken: usize },
    Pipe(Box<Reserved>),
}

/// Why a direction rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// There is nothing to read at present, or nothing can be written: an event will follow.
    Waiting,
    /// It has had its share; there is more.
    Share,
    /// The end has been read, and all before it is written.
    Ended,
}

/// A failure, and whose.
#[derive(Debug)]
pub(super) enum Broken {
    /// The socket that is read.
    Sender(io::Error),
    /// The socket that is written.
    Receiver(io::Error),
}

// === impl Direction ===

impl Direction {
    /// A direction on which nothing has happened yet.
    pub(super) fn new() -> Self {
        Self {
            readable: false,
            more_behind: false,
            writable: false,
            ended: false,
            closed: false,
            moved: 0,
            sent: 0,
            lost: false,
            splicing: false,
            held: Held::Nothing,
        }
    }

    /// Whether bytes wait for the receiver.
    pub(super) fn holds(&self) -> bool {
        !matches!(self.held, Held::Nothing)
    }

    /// Keeps bytes for the receiver, behind those that are kept already.
    pub(super) fn hold(&mut self, more: &[u8]) {
        if more.is_empty() {
            return;
        }
        match &mut self.held {
            Held::Bytes { bytes, .. } => bytes.extend_from_slice(more),
            _ => {
                self.held = Held::Bytes {
                    bytes: more.to_vec(),
                    taken: 0,
                }
            }
        }
    }

    /// Goes on without the receiver, if that is all that failed: it had sent its end before it
    /// broke off, so what it said, in the direction `back`, is whole and still to be delivered.
    pub(super) fn outlive(
        &mut self,
        result: Result<Rest, Broken>,
        back: &Self,
        pipes: &mut Pipes,
    ) -> Result<Rest, Broken> {
        match result {
            // The kernel says EPIPE for a reset behind an end, which may not have been read yet.
            Err(Broken::Receiver(error))
                if !back.lost && (back.ended || error.kind() == io::ErrorKind::BrokenPipe) =>
            {
                self.lost = true;
                self.give_up(pipes);
                Ok(Rest::Share)
            }
            result => result,
        }
    }

    /// Moves what can be moved, where `budget` is what may still be moved for all in this pass.
    pub(super) fn pump(
        &mut self,
        from: &Stream,
        to: &Stream,
        buffer: &mut [u8],
        pipes: &mut Pipes,
        budget: u64,
    ) -> Result<Rest, Broken> {
        let share = if self.splicing {
            budget.min(SHARE)
        } else {
            // Little is not worth a wait behind what others move.
            budget.clamp(BUFFER_SIZE as u64, SHARE)
        };
        if self.readable && matches!(self.held, Held::Bytes { .. }) {
            self.hold_more(from, buffer)?;
        }
        let begun = self.moved;
        while self.moved - begun < share {
            if !self.write_held(to, pipes)? {
                return Ok(Rest::Waiting);
            }
            if self.ended {
                return Ok(Rest::Ended);
            }
            if !self.readable {
                return Ok(Rest::Waiting);
            }
            if self.lost {
                self.read(from, buffer)?;
                continue;
            }
            if !self.splicing || !self.splice(from, pipes)? {
                self.copy(from, to, buffer)?;
            }
        }
        Ok(Rest::Share)
    }

    /// Puts what can be read behind what is kept, if that is little: a PROXY header and the
    /// client's first bytes then leave together.
    fn hold_more(&mut self, from: &Stream, buffer: &mut [u8]) -> Result<(), Broken> {
        let kept = if let Held::Bytes { bytes, .. } = &self.held {
            bytes.len()
        } else {
            0
        };
        if self.writable && kept < LITTLE {
            let count = self.read(
                from,
                buffer.get_mut(..BUFFER_SIZE - LITTLE).unwrap_or_default(),
            )?;
            self.hold(buffer.get(..count).unwrap_or_default());
        }
        Ok(())
    }

    /// Reads what is there into `buffer`. Zero: nothing is there.
    fn read(&mut self, from: &Stream, buffer: &mut [u8]) -> Result<usize, Broken> {
        match from.receive(buffer) {
            Ok(0) => {
                self.ended = true;
                Ok(0)
            }
            Ok(count) => {
                self.readable = self.more_behind || count == buffer.len();
                self.moved += count as u64;
                Ok(count)
            }
            Err(error) if would_block(&error) => {
                self.readable = false;
                Ok(0)
            }
            Err(error) => Err(Broken::Sender(error)),
        }
    }

    /// Signals the receiver that nothing more comes.
    pub(super) fn close(&mut self, to: &Stream) {
        self.closed = true;
        // Fails only where the receiver is gone already, which its own events show.
        let _ = to.shutdown(Half::Write);
    }

    /// Whether the receiver's system has acknowledged everything, and the end.
    pub(super) fn has_arrived(&self, to: &Stream) -> bool {
        self.closed && unacknowledged(to).is_ok_and(|count| count == 0)
    }

    /// Writes what was kept. `true`: nothing is left.
    pub(super) fn write_held(&mut self, to: &Stream, pipes: &mut Pipes) -> Result<bool, Broken> {
        loop {
            let sent = match &mut self.held {
                Held::Nothing => return Ok(true),
                _ if !self.writable => return Ok(false),
                Held::Bytes { bytes, taken } => {
                    let rest = bytes.get(*taken..).unwrap_or_default();
                    let sent = to.send(rest);
                    *taken += *sent.as_ref().unwrap_or(&0);
                    sent
                }
                Held::Pipe(reserved) => reserved.pipe.drain(to),
            };
            match sent {
                Ok(count) => {
                    self.sent += count as u64;
                    self.drop_empty(pipes);
                }
                Err(error) if would_block(&error) => self.writable = false,
                Err(error) => return Err(Broken::Receiver(error)),
            }
        }
    }

    /// Gives up what is held, and gives back the pipe.
    pub(super) fn give_up(&mut self, pipes: &mut Pipes) {
        if let Held::Pipe(pipe) = std::mem::replace(&mut self.held, Held::Nothing) {
            pipes.give(*pipe);
        }
    }

    fn drop_empty(&mut self, pipes: &mut Pipes) {
        let empty = match &self.held {
            Held::Nothing => true,
            Held::Bytes { bytes, taken } => *taken >= bytes.len(),
            Held::Pipe(reserved) => reserved.pipe.filled() == 0,
        };
        if empty {
            self.give_up(pipes);
        }
    }

    fn copy(&mut self, from: &Stream, to: &Stream, buffer: &mut [u8]) -> Result<(), Broken> {
        let count = self.read(from, buffer)?;
        let bytes = buffer.get(..count).unwrap_or_default();
        self.splicing = count == buffer.len() && self.moved >= SPLICE_AFTER;
        if bytes.is_empty() {
            return Ok(());
        }
        let mut sent = 0;
        if self.writable {
            match to.send(bytes) {
                Ok(count) => sent = count,
                Err(error) if would_block(&error) => {}
                Err(error) => return Err(Broken::Receiver(error)),
            }
        }
        self.sent += sent as u64;
        if sent < bytes.len() {
            self.writable = false;
            self.hold(bytes.get(sent..).unwrap_or_default());
        }
        Ok(())
    }

    /// Fills a pipe. `false`: there is no pipe to be had.
    fn splice(&mut self, from: &Stream, pipes: &mut Pipes) -> Result<bool, Broken> {
        let Some(mut reserved) = pipes.take() else {
            self.splicing = false;
            return Ok(false);
        };
        match reserved.pipe.fill(from) {
            // That is also said at an urgent byte with an end behind it: a copy knows.
            Ok(0) => {
                self.splicing = false;
                pipes.give(reserved);
                return Ok(false);
            }
            Ok(count) => {
                self.moved += count as u64;
                self.splicing = count >= SPLICE_LEAST;
                self.held = Held::Pipe(Box::new(reserved));
                return Ok(true);
            }
            Err(error) if would_block(&error) && self.more_behind => {
                // Only a copy gets past an urgent byte.
                self.splicing = false;
                pipes.give(reserved);
                return Ok(false);
            }
            Err(error) if would_block(&error) => self.readable = false,
            Err(error) => {
                pipes.give(reserved);
                return Err(Broken::Sender(error));
            }
        }
        pipes.give(reserved);
        Ok(true)
    }
}

pub(super) fn would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// Two ends of a connection.
    fn pair() -> (Stream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Stream::accept(&listener).unwrap().0, far)
    }

    /// Sends bytes through a direction, and returns what arrived and the most that one turn moved.
    fn carry(bytes: &[u8], mut pipes: Pipes) -> (Vec<u8>, u64) {
        let (from, mut sender) = pair();
        let (to, mut reader) = pair();
        let (mut direction, mut buffer) = (Direction::new(), vec![0; BUFFER_SIZE]);
        let mut most = 0;
        let received = std::thread::scope(|scope| {
            scope.spawn(move || sender.write_all(bytes).unwrap());
            let received = scope.spawn(move || {
                let mut received = Vec::new();
                reader.read_to_end(&mut received).map(|_| received)
            });
            loop {
                // As if an event had said so: what is not true shows when it is tried.
                (direction.readable, direction.writable) = (true, true);
                let before = direction.moved;
                let rest = direction
                    .pump(&from, &to, &mut buffer, &mut pipes, u64::MAX)
                    .unwrap();
                most = most.max(direction.moved - before);
                if rest == Rest::Ended {
                    break;
                }
            }
            direction.close(&to);
            received.join().unwrap().unwrap()
        });
        assert_eq!(
            (direction.moved, direction.sent),
            (bytes.len() as u64, bytes.len() as u64)
        );
        (received, most)
    }

    #[test]
    fn a_turn_ends_after_its_share_however_large_the_pipe_is() {
        let bytes: Vec<u8> = (0..u32::MAX)
            .map(|n| (n >> 3) as u8)
            .take(16 << 20)
            .collect();
        for pipes in [0, 4] {
            let (received, most) = carry(&bytes, Pipes::new(pipes));
            assert!(received == bytes, "{pipes} pipes");
            // The last step of a turn may go beyond.
            assert!(most < SHARE + (1 << 20), "{pipes} pipes: {most}");
        }
    }

    #[test]
    fn without_a_budget_long_streams_wait_and_short_messages_pass() {
        let (from, mut sender) = pair();
        let (to, mut reader) = pair();
        let (mut buffer, mut pipes) = (vec![0; BUFFER_SIZE], Pipes::new(4));
        for splicing in [true, false] {
            let mut direction = Direction::new();
            (direction.readable, direction.writable) = (true, true);
            direction.splicing = splicing;
            sender.write_all(b"x").unwrap();
            let rest = direction
                .pump(&from, &to, &mut buffer, &mut pipes, 0)
                .unwrap();
            let expected = if splicing {
                (Rest::Share, 0)
            } else {
                (Rest::Waiting, 2)
            };
            assert_eq!((rest, direction.moved), expected);
        }
        reader.read_exact(&mut [0; 2]).unwrap();
    }
}
