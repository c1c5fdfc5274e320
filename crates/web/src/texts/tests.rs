use std::sync::mpsc;

use http_body_util::BodyExt as _;

use super::*;

const MEGABYTE: usize = 1024 * 1024;

fn about(subject: Subject, began: Instant, megabytes: usize) -> About {
    About {
        subject,
        began,
        bytes: megabytes * MEGABYTE,
    }
}

async fn read(text: Text) -> io::Result<Vec<u8>> {
    let reader = Reader { text, at: 0 };
    reader.collect().await.map(|read| read.to_bytes().to_vec())
}

type Write = Box<dyn FnOnce() -> Result<Vec<u8>, String> + Send>;

/// A text that waits for its words, and reports that it has begun.
fn held() -> (Write, mpsc::Receiver<()>, mpsc::Sender<&'static str>) {
    let (report, reported) = mpsc::channel();
    let (say, words) = mpsc::channel::<&str>();
    let write = move || {
        report.send(()).map_err(|error| error.to_string())?;
        let words = words.recv().map_err(|error| error.to_string())?;
        Ok(words.as_bytes().to_vec())
    };
    (Box::new(write), reported, say)
}

#[test]
fn a_text_is_shared_by_clients_that_asked_before_it_was_begun_and_by_no_others() {
    let start = Instant::now();
    let second = Duration::from_secs(1);
    let texts = [about(Subject::Instance, start + second, 1)];
    let decide = |subject, asked| decide(subject, asked, start + second * 2, &texts);
    assert_eq!(decide(Subject::Instance, start), Verdict::Share(0));
    let new = Verdict::Make { without: 0 };
    assert_eq!(decide(Subject::Instance, start + second * 2), new);
    assert_eq!(decide(Subject::Services, start), new);
}

#[test]
fn where_the_room_is_full_a_text_of_the_last_seconds_will_do_and_then_the_oldest_goes() {
    let start = Instant::now();
    let second = Duration::from_secs(1);
    let texts: Vec<About> = (0..8)
        .map(|age| about(Subject::Instance, start + second * age, 9))
        .collect();
    let decide = |subject, age| decide(subject, start + second * age, start + second * age, &texts);
    assert_eq!(decide(Subject::Instance, 8), Verdict::Share(7));
    assert_eq!(decide(Subject::Instance, 13), Verdict::Make { without: 1 });
    assert_eq!(decide(Subject::Services, 8), Verdict::Make { without: 1 });
}

#[tokio::test]
async fn a_text_that_panics_is_the_trouble_of_its_client_alone() {
    let texts = Texts::default();
    let (report, reported) = mpsc::channel();
    let panicking: Write = Box::new(move || {
        report
            .send(crate::is_answering())
            .map_err(|error| error.to_string())?;
        std::panic::resume_unwind(Box::new("of a test"))
    });
    assert!(texts.get(Subject::Instance, panicking).await.is_err());
    assert_eq!(reported.recv(), Ok(true));
    let write = || Ok(b"whole".to_vec());
    let text = texts.get(Subject::Instance, write).await.unwrap();
    assert_eq!(read(text).await.unwrap(), b"whole");
}

#[tokio::test]
async fn one_text_is_made_at_a_time_and_shared_by_clients_that_asked_meanwhile() {
    let texts = Texts::default();
    let get = |write: Write| {
        let texts = texts.clone();
        tokio::spawn(async move { texts.get(Subject::Instance, write).await })
    };
    let (write, begun, say) = held();
    let first = get(write);
    while begun.try_recv().is_err() {
        tokio::task::yield_now().await;
    }
    let count = Arc::new(AtomicUsize::new(0));
    let others: Vec<_> = (0..100)
        .map(|_| {
            let count = count.clone();
            get(Box::new(move || {
                count.fetch_add(1, Ordering::Relaxed);
                Ok(b"second".to_vec())
            }))
        })
        .collect();
    while texts.0.waiting.load(Ordering::Relaxed) < others.len() {
        tokio::task::yield_now().await;
    }
    assert_eq!(count.load(Ordering::Relaxed), 0);
    say.send("first").unwrap();
    assert_eq!(read(first.await.unwrap().unwrap()).await.unwrap(), b"first");
    for other in others {
        let text = other.await.unwrap().unwrap();
        assert_eq!(read(text).await.unwrap(), b"second");
    }
    assert_eq!(count.load(Ordering::Relaxed), 1);
    assert!(texts.0.shelf.lock().await.newest.is_none());
}

#[tokio::test]
async fn a_client_that_leaves_does_not_let_another_begin_meanwhile() {
    let texts = Texts::default();
    let (write, begun, say) = held();
    let leaves = tokio::spawn({
        let texts = texts.clone();
        async move { texts.get(Subject::Instance, write).await }
    });
    while begun.try_recv().is_err() {
        tokio::task::yield_now().await;
    }
    leaves.abort();
    assert!(leaves.await.unwrap_err().is_cancelled());
    assert!(texts.0.shelf.try_lock().is_err(), "the turn is taken");
    say.send("unread").unwrap();
    let next = texts.get(Subject::Instance, || Ok(b"next".to_vec())).await;
    assert_eq!(read(next.unwrap()).await.unwrap(), b"next");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_too_long_is_asked_to_retry() {
    let texts = Texts::default();
    let _turn = texts.0.shelf.lock().await;
    let refused = texts.get(Subject::Services, || Ok(Vec::new())).await;
    let refused = axum::response::IntoResponse::into_response(refused.map(drop).unwrap_err());
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.headers()["retry-after"], "5");
    assert_eq!(texts.0.waiting.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn readers_that_stand_still_hold_no_more_than_there_is_room_for() {
    let texts = Texts::default();
    let mut readers = Vec::new();
    for _ in 0..50 {
        let text = texts.get(Subject::Instance, || Ok(vec![b'x'; 9 * MEGABYTE]));
        let mut reader = Reader {
            text: text.await.unwrap(),
            at: 0,
        };
        let part = reader.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(part.len(), PART);
        readers.push((reader, part));
        tokio::time::advance(FRESH).await;
        let mut distinct: Vec<*const u8> = Vec::new();
        for (reader, _) in &readers {
            let bytes = locked(&reader.text.bytes);
            if !bytes.is_empty() && !distinct.contains(&bytes.as_ptr()) {
                distinct.push(bytes.as_ptr());
            }
        }
        assert!(
            distinct.len() <= ROOM.div_ceil(9 * MEGABYTE),
            "{}",
            distinct.len()
        );
    }
    let (mut oldest, _) = readers.swap_remove(0);
    assert!(oldest.frame().await.unwrap().is_err());
    let (newest, _) = readers.pop().unwrap();
    let rest = newest.collect().await.unwrap().to_bytes();
    assert_eq!(rest.len(), 9 * MEGABYTE - PART);
}
