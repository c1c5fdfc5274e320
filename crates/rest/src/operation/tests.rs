use super::*;

const POLLING: Polling = Polling {
    first: seconds(3),
    longest: seconds(10),
    timeout: seconds(120),
    max_errors: 2,
};

const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// An operation that began at a time from which tests count.
fn begun() -> (Operation, Instant) {
    let now = Instant::now();
    (Operation::new("op-1", POLLING, now), now)
}

type State = Result<OperationState<()>, ApiError>;

const PENDING: State = Ok(OperationState::Pending);

fn refused(kind: ErrorKind) -> State {
    Err(ApiError::ours(kind, "GET /operation/op-1", "no"))
}

/// Answers each request of an operation when it is due, and returns the times of the requests.
fn asked_at(
    operation: &mut Operation,
    start: Instant,
    mut answer: impl FnMut(usize) -> State,
) -> (Vec<u64>, Result<Progress<()>, ApiError>) {
    let mut now = start;
    let mut times = Vec::new();
    loop {
        now += operation.due_in(now);
        let result = operation.on_state(answer(times.len()), now);
        times.push((now - start).as_secs());
        if !matches!(result, Ok(Progress::Pending(_))) {
            return (times, result);
        }
    }
}

#[test]
fn an_operation_is_asked_about_until_it_is_done() {
    let (mut operation, start) = begun();
    assert_eq!(operation.id(), "op-1");
    assert_eq!(operation.due_in(start), seconds(3));
    assert_eq!(operation.due_in(start + seconds(5)), Duration::ZERO);
    let (times, result) = asked_at(&mut operation, start, |n| match n {
        2 => Ok(OperationState::Done(())),
        _ => PENDING,
    });
    assert_eq!((times, result), (vec![3, 6, 9], Ok(Progress::Done(()))));
}

#[test]
fn delays_grow_with_the_age_and_end_at_the_timeout() {
    let (mut operation, start) = begun();
    let (times, result) = asked_at(&mut operation, start, |_| PENDING);
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|gap| *gap <= 10), "{times:?}");
    assert!(gaps[0] < gaps[gaps.len() - 2], "{times:?}");
    assert_eq!(times.last(), Some(&120));
    let error = result.unwrap_err();
    assert_eq!(error.to_string(), "operation op-1: pending after 120 s");
    assert!(error.may_be_done() && error.is_transient(), "{error}");
}

#[test]
fn a_failure_is_final_and_in_the_words_of_the_cloud() {
    let (mut operation, start) = begun();
    let (times, result) = asked_at(&mut operation, start, |_| {
        let words = "no such pool".to_owned();
        Ok(OperationState::Failed(ErrorKind::Invalid, words))
    });
    assert_eq!(times, [3]);
    let error = result.unwrap_err();
    assert_eq!(error.to_string(), "operation op-1: no such pool");
    assert_eq!(error.kind, ErrorKind::Invalid);
}

#[test]
fn an_operation_that_was_done_at_the_timeout_is_done() {
    let (mut operation, start) = begun();
    let late = start + seconds(500);
    let done = operation.on_state(Ok(OperationState::Done(7)), late);
    assert_eq!(done, Ok(Progress::Done(7)));
}

#[test]
fn transient_errors_are_tolerated_until_too_many_come_in_a_row() {
    let (mut operation, start) = begun();
    // Two, then an answer, then three.
    let (times, result) = asked_at(&mut operation, start, |n| match n {
        2 => PENDING,
        _ => refused(ErrorKind::Unavailable),
    });
    assert_eq!(times.len(), 6);
    assert_eq!(result.unwrap_err().kind, ErrorKind::Unavailable);
}

#[test]
fn an_error_that_is_not_transient_ends_it_at_once() {
    let (mut operation, start) = begun();
    let (times, result) = asked_at(&mut operation, start, |_| refused(ErrorKind::NotFound));
    assert_eq!(times, [3]);
    assert_eq!(result.unwrap_err().kind, ErrorKind::NotFound);
}

#[test]
fn a_server_that_asks_to_slow_down_is_asked_later() {
    let (mut operation, start) = begun();
    let mut throttled = ApiError::ours(ErrorKind::Throttled, "GET /", "slow down");
    throttled.retry_after = Some(seconds(30));
    let state: State = Err(throttled);
    let progress = operation.on_state(state, start + seconds(3));
    assert_eq!(progress, Ok(Progress::Pending(seconds(30))));
    assert_eq!(operation.due_in(start + seconds(3)), seconds(30));
}

#[tokio::test(start_paused = true)]
async fn a_poll_asks_only_when_that_is_due() {
    let mut operation = Operation::new("op-1", POLLING, Instant::now());
    let early: Result<Progress<()>, _> = operation
        .poll(|_| async { panic!("asked before it is due") })
        .await;
    assert_eq!(early, Ok(Progress::Pending(seconds(3))));
    tokio::time::advance(seconds(3)).await;
    let due = operation
        .poll(|id| async move { Ok(OperationState::Done(id)) })
        .await;
    assert_eq!(due, Ok(Progress::Done("op-1".to_owned())));
}
