//! Standard output and standard error behind a bounded queue, so that no task waits for a disk that
//! is full, a pipe that is closed or a reader that hangs: text that can't be written is counted and
//! left out.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// So many bytes wait at most for a reader that is slow.
const ROOM: usize = 1 << 20;

/// How long texts are gathered after the thread was idle: to be woken for each line of many would
/// cost more than to write it.
const GATHERING: Duration = Duration::from_millis(2);

/// How long a sink that takes nothing at the moment (EAGAIN) is left alone.
const PAUSE: Duration = Duration::from_millis(20);

/// A sink that is written by a thread of its own. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ThreadedWriter(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Raised when something is to be written.
    filled: Condvar,
    /// Raised when everything was written or left out.
    emptied: Condvar,
    lost: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    texts: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Whether the thread has a text in hand.
    writing: bool,
    /// Whether the thread waits for the first text.
    idle: bool,
}

/// The thread's side.
struct Writer<W> {
    shared: Arc<Shared>,
    sink: W,
    /// Whether the last text ended in the middle of a line.
    torn: bool,
    /// How many lost texts `recovered` was called about.
    reported: u64,
    recovered: fn(u64),
}

// === impl ThreadedWriter ===

impl ThreadedWriter {
    /// Starts the thread `name`. When the sink takes text again after some was lost, `recovered` is
    /// called with the number of texts, on that thread.
    pub fn start(
        name: &str,
        sink: impl Write + Send + 'static,
        recovered: fn(u64),
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let writer = Writer {
            shared: shared.clone(),
            sink,
            torn: false,
            reported: 0,
            recovered,
        };
        // It ends with the process: a write that hangs can't be ended in any other way.
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(|| writer.run())?;
        Ok(Self(shared))
    }

    /// Queues a text. Never waits for the sink: what finds no room is lost, and counted.
    pub fn put(&self, text: Vec<u8>) {
        let mut queue = self.0.queue();
        if queue.bytes + text.len() > ROOM {
            self.0.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        queue.bytes += text.len();
        queue.texts.push_back(text);
        let wakes = std::mem::take(&mut queue.idle);
        drop(queue);
        if wakes {
            self.0.filled.notify_one();
        }
    }

    /// How many texts could not be written so far.
    pub fn lost(&self) -> u64 {
        self.0.lost.load(Ordering::Relaxed)
    }

    /// Waits until everything is written, but not longer than `limit`.
    pub fn flush(&self, limit: Duration) {
        let until = Instant::now() + limit;
        let mut queue = self.0.queue();
        while queue.writing || !queue.texts.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            queue = match self.0.emptied.wait_timeout(queue, left) {
                Ok((queue, _)) => queue,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }
}

// === impl Shared ===

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Nothing that runs under the lock can leave the queue half changed.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next text.
    fn take(&self) -> Vec<u8> {
        let mut queue = self.queue();
        loop {
            if let Some(text) = queue.texts.pop_front() {
                queue.bytes -= text.len();
                queue.writing = true;
                return text;
            }
            queue.idle = true;
            while queue.texts.is_empty() {
                queue = match self.filled.wait(queue) {
                    Ok(queue) => queue,
                    Err(poisoned) => poisoned.into_inner(),
                };
            }
            queue.idle = false;
            drop(queue);
            std::thread::park_timeout(GATHERING);
            queue = self.queue();
        }
    }

    /// Notes that the text in hand was dealt with. Returns whether it was the last one.
    fn done(&self) -> bool {
        let mut queue = self.queue();
        queue.writing = false;
        let last = queue.texts.is_empty();
        if last {
            self.emptied.notify_all();
        }
        last
    }
}

// === impl Writer ===

impl<W: Write> Writer<W> {
    fn run(mut self) {
        loop {
            let text = self.shared.take();
            let written = self.write(&text).is_ok();
            if !written {
                self.shared.lost.fetch_add(1, Ordering::Relaxed);
            }
            let is_last = self.shared.done();
            let lost = self.shared.lost.load(Ordering::Relaxed);
            // Once the queue is empty there is room for the report itself.
            if written && is_last && lost > self.reported {
                (self.recovered)(lost - self.reported);
                self.reported = lost;
            }
        }
    }

    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        if self.torn {
            self.write_all(b"\n")?;
            self.torn = false;
        }
        self.write_all(text)?;
        self.sink.flush()
    }

    /// Writes everything, and remembers whether a failure left the sink within a line.
    fn write_all(&mut self, mut text: &[u8]) -> io::Result<()> {
        while !text.is_empty() {
            match self.sink.write(text) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    text = text.get(count..).unwrap_or_default();
                    self.torn = !text.is_empty();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::park_timeout(PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A sink that handles each write as scripted.
    struct ScriptedSink {
        steps: mpsc::Receiver<io::Result<usize>>,
        written: mpsc::Sender<Vec<u8>>,
    }

    impl Write for ScriptedSink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let step = self.steps.recv().unwrap_or(Ok(usize::MAX))?;
            let count = step.min(bytes.len());
            self.written.send(bytes[..count].to_vec()).unwrap();
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// An outlet, what its sink does next, and what came out.
    fn scene(
        recovered: fn(u64),
    ) -> (
        ThreadedWriter,
        mpsc::Sender<io::Result<usize>>,
        mpsc::Receiver<Vec<u8>>,
    ) {
        let (step, steps) = mpsc::channel();
        let (written, out) = mpsc::channel();
        let threaded_writer =
            ThreadedWriter::start("outlet", ScriptedSink { steps, written }, recovered).unwrap();
        (threaded_writer, step, out)
    }

    const FOREVER: Duration = Duration::from_secs(60);

    #[test]
    fn a_sink_that_hangs_keeps_no_one_waiting_and_what_has_no_room_is_counted() {
        let (threaded_writer, step, out) = scene(|_| {});
        // The sink waits for its first step: all of this must return nevertheless.
        for _ in 0..2000 {
            threaded_writer.put(vec![b'x'; 1024]);
        }
        let lost = threaded_writer.lost();
        // All that fits, and possibly one text that is in the sink's hand already.
        assert!((975..=976).contains(&lost), "{lost}");
        threaded_writer.flush(Duration::from_millis(1));
        drop(step);
        threaded_writer.flush(FOREVER);
        assert_eq!(out.try_iter().count() as u64, 2000 - lost);
    }

    #[test]
    fn a_line_that_broke_off_does_not_spoil_the_next_one() {
        let (threaded_writer, step, out) = scene(|_| {});
        step.send(Ok(3)).unwrap();
        step.send(Err(io::ErrorKind::StorageFull.into())).unwrap();
        threaded_writer.put(b"broken\n".to_vec());
        threaded_writer.flush(FOREVER);
        assert_eq!(threaded_writer.lost(), 1);
        drop(step);
        threaded_writer.put(b"whole\n".to_vec());
        threaded_writer.flush(FOREVER);
        assert_eq!(out.try_iter().collect::<Vec<_>>().concat(), b"bro\nwhole\n");
    }

    #[test]
    fn once_text_is_taken_again_the_number_that_was_lost_is_reported_once() {
        static REPORTS: Mutex<Vec<u64>> = Mutex::new(Vec::new());
        let (threaded_writer, step, _out) = scene(|lost| REPORTS.lock().unwrap().push(lost));
        for _ in 0..3 {
            step.send(Err(io::ErrorKind::StorageFull.into())).unwrap();
            threaded_writer.put(b"lost\n".to_vec());
        }
        threaded_writer.flush(FOREVER);
        assert!(REPORTS.lock().unwrap().is_empty());
        drop(step);
        for _ in 0..2 {
            threaded_writer.put(b"good\n".to_vec());
            threaded_writer.flush(FOREVER);
        }
        // The report of the first good text was made before the second was taken in hand.
        threaded_writer.put(b"good\n".to_vec());
        threaded_writer.flush(FOREVER);
        assert_eq!(*REPORTS.lock().unwrap(), [3]);
    }

    #[test]
    fn a_sink_that_is_busy_for_a_moment_loses_nothing() {
        let (threaded_writer, step, out) = scene(|_| {});
        step.send(Err(io::ErrorKind::WouldBlock.into())).unwrap();
        step.send(Err(io::ErrorKind::Interrupted.into())).unwrap();
        threaded_writer.put(b"line\n".to_vec());
        drop(step);
        threaded_writer.flush(FOREVER);
        assert_eq!(
            (threaded_writer.lost(), out.recv().unwrap()),
            (0, b"line\n".to_vec())
        );
    }
}
