//! Members with limits, with injected time and without sockets.

use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll, Waker};

use super::super::*;
use super::{CLIENT, at, monitored, pool, refused, wanted};

fn spared(weights: &[u16], change: impl FnOnce(&mut Protection)) -> Pool {
    let mut pool = wanted(weights);
    change(&mut pool.protection);
    pool
}

fn full(weights: &[u16], limit: u32) -> Pool {
    spared(weights, |protection| protection.connections = Some(limit))
}

fn port(lease: &Lease) -> u16 {
    lease.address().port()
}

#[test]
fn a_member_gets_no_more_than_its_limit() {
    for algorithm in [
        Algorithm::RoundRobin,
        Algorithm::LeastConnections,
        Algorithm::SourceIp,
        Algorithm::SourceIpPort,
    ] {
        let pool = pool(&Pool {
            algorithm,
            ..full(&[1, 5], 3)
        });
        let mut held: Vec<_> = (0..6).map(|_| pool.pick(CLIENT, &[]).unwrap()).collect();
        assert_eq!(held.iter().filter(|lease| port(lease) == 0).count(), 3);
        assert_eq!(pool.try_pick(CLIENT, &[]).unwrap_err(), Unavailable::Full);
        let freed = port(&held.remove(2));
        assert_eq!(port(&pool.pick(CLIENT, &[]).unwrap()), freed);
    }
}

#[test]
fn full_and_without_members_are_not_the_same() {
    let pool = pool(&full(&[1], 1));
    let _held = pool.pick(CLIENT, &[]).unwrap();
    assert_eq!(pool.try_pick(CLIENT, &[]).unwrap_err(), Unavailable::Full);
    pool.update(&full(&[], 1));
    assert_eq!(
        pool.try_pick(CLIENT, &[]).unwrap_err(),
        Unavailable::NoMember
    );
}

#[test]
fn a_client_whose_own_member_is_full_meets_another_and_comes_back_later() {
    let pool = pool(&Pool {
        affinity: Some(ClientAffinity {
            timeout: Duration::from_secs(60),
        }),
        ..full(&[1, 1], 1)
    });
    let first = pool.pick(CLIENT, &[]).unwrap();
    let own = port(&first);
    assert_ne!(port(&pool.pick(CLIENT, &[]).unwrap()), own);
    drop(first);
    for _ in 0..3 {
        assert_eq!(port(&pool.pick(CLIENT, &[]).unwrap()), own);
    }
}

/// A wait in line that is checked by hand.
type Wait<'a> = std::pin::Pin<Box<dyn Future<Output = Result<Lease, Unavailable>> + 'a>>;

fn look(wait: &mut Wait<'_>) -> Option<Result<Lease, Unavailable>> {
    match wait.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(picked) => Some(picked),
        Poll::Pending => None,
    }
}

#[tokio::test(start_paused = true)]
async fn clients_that_wait_are_served_in_order_and_none_overtakes_them() {
    let pool = pool(&full(&[1], 1));
    let held = pool.pick(CLIENT, &[]).unwrap();
    let mut waits: Vec<Wait<'_>> = (0..3)
        .map(|_| Box::pin(pool.wait(CLIENT)) as Wait<'_>)
        .collect();
    for wait in &mut waits {
        assert!(look(wait).is_none());
    }
    assert_eq!(pool.waiting(), 3);
    drop(held);
    assert!(look(&mut waits[1]).is_none(), "it is not the first");
    assert_eq!(pool.try_pick(CLIENT, &[]).unwrap_err(), Unavailable::Full);
    let first = look(&mut waits[0]).unwrap().unwrap();
    drop(first);
    // One that gives up makes way.
    drop(waits.remove(1));
    assert!(look(&mut waits[1]).unwrap().is_ok());
    drop(waits);
    assert_eq!(pool.waiting(), 0);
    assert!(pool.try_pick(CLIENT, &[]).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_its_time_and_beyond_the_bound_none_waits() {
    let pool = pool(&spared(&[1], |protection| {
        protection.connections = Some(1);
        protection.queue = 2;
        protection.queue_timeout = Duration::from_secs(3);
    }));
    let _held = pool.pick(CLIENT, &[]).unwrap();
    let start = tokio::time::Instant::now();
    let both = async { tokio::join!(pool.take(CLIENT, &[]), pool.take(CLIENT, &[])) };
    let third = async {
        tokio::task::yield_now().await;
        assert_eq!(pool.waiting(), 2);
        let refused = pool.take(CLIENT, &[]).await;
        assert!(start.elapsed() < Duration::from_secs(1));
        refused
    };
    let ((one, two), third) = tokio::join!(both, third);
    for refused in [one, two, third] {
        assert_eq!(refused.unwrap_err(), Unavailable::Full);
    }
    assert!(start.elapsed() >= Duration::from_secs(3));
    assert_eq!(pool.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_pool_ends_waits_that_it_makes_pointless() {
    let pool = pool(&full(&[1], 1));
    let _held = pool.pick(CLIENT, &[]).unwrap();
    let raised = async {
        tokio::task::yield_now().await;
        pool.update(&full(&[1], 3));
    };
    let (one, two, ()) = tokio::join!(pool.take(CLIENT, &[]), pool.take(CLIENT, &[]), raised);
    let _held = (one.unwrap(), two.unwrap());
    let removed = async {
        tokio::task::yield_now().await;
        pool.update(&full(&[], 3));
    };
    let (one, two, ()) = tokio::join!(pool.take(CLIENT, &[]), pool.take(CLIENT, &[]), removed);
    assert_eq!(one.unwrap_err(), Unavailable::NoMember);
    assert_eq!(two.unwrap_err(), Unavailable::NoMember);
}

#[test]
fn many_threads_never_exceed_a_limit_and_lose_no_place() {
    let pool = pool(&spared(&[1, 1], |protection| {
        protection.connections = Some(2);
        protection.queue = 100_000;
        protection.queue_timeout = Duration::from_secs(600);
    }));
    let exceeded = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_time()
                    .build()
                    .unwrap();
                let one = async || {
                    for _ in 0..200 {
                        let lease = pool.take(CLIENT, &[]).await.unwrap();
                        if lease.member().open() > 2 {
                            exceeded.store(true, Ordering::SeqCst);
                        }
                        tokio::task::yield_now().await;
                    }
                };
                runtime.block_on(async { tokio::join!(one(), one(), one()) });
            });
        }
    });
    assert!(!exceeded.load(Ordering::SeqCst));
    assert_eq!(pool.waiting(), 0);
    assert!(pool.status().iter().all(|member| member.open == 0));
}

#[test]
fn a_dead_pool_is_not_tried_without_end() {
    let pool = pool(&wanted(&[1, 1]));
    let again = |pool: &PoolState| pool.try_pick(CLIENT, &[at(0)]);
    let few: Vec<_> = (0..10).map(|_| again(&pool).unwrap()).collect();
    assert_eq!(again(&pool).unwrap_err(), Unavailable::Retries);
    assert!(pool.pick(CLIENT, &[]).is_some(), "first tries go on");
    drop(few);
    let _open: Vec<_> = (0..100).map(|_| pool.pick(CLIENT, &[]).unwrap()).collect();
    let some: Vec<_> = std::iter::from_fn(|| again(&pool).ok()).collect();
    // Of 100 and these themselves.
    assert!((20..=26).contains(&some.len()), "{}", some.len());
    drop(some);
    pool.update(&spared(&[1, 1], |protection| protection.retry_budget = 0));
    assert_eq!(again(&pool).unwrap_err(), Unavailable::Retries);
    pool.update(&spared(&[1, 1], |protection| protection.retry_budget = 100));
    let all: Vec<_> = (0..200).map_while(|_| again(&pool).ok()).collect();
    assert_eq!(all.len(), 200);
}

#[test]
fn a_member_that_fails_in_a_row_is_left_out_and_comes_back() {
    let pool = pool(&spared(&[1, 1, 1], |protection| {
        protection.outlier_failures = Some(3);
    }));
    let start = Instant::now();
    let after = |seconds| start + Duration::from_secs(seconds);
    let members = pool.members();
    let member = |number: usize| &members[number];
    let fail = |number: usize, now| {
        for _ in 0..3 {
            member(number).note_outlier(now, || "refused".to_owned());
        }
    };
    let served = |now: Instant| {
        let mut ports: Vec<u16> = (0..12)
            .map(|_| port(&pool.look_with_clock(CLIENT, &[], || now).unwrap()))
            .collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    };
    member(0).note_outlier(start, String::new);
    member(0).note_outlier(start, String::new);
    member(0).note_success();
    member(0).note_outlier(start, String::new);
    assert_eq!(served(start), [0, 1, 2], "never three in a row");
    fail(0, start);
    assert_eq!(served(after(29)), [1, 2]);
    let why = member(0).left_out(after(29)).unwrap();
    assert_eq!(&*why, "ejected for 30 s after 3 failures in a row: refused");
    fail(1, after(1));
    assert_eq!(served(after(2)), [1, 2], "two of three are too many");
    assert_eq!(served(after(30)), [0, 1, 2]);
    // For longer the next time.
    fail(0, after(31));
    assert_eq!(served(after(90)), [1, 2]);
    assert_eq!(served(after(92)), [0, 1, 2]);
    // Long after that, from the beginning.
    fail(0, after(1000));
    assert_eq!(served(after(1031)), [0, 1, 2]);
}

#[test]
fn the_last_member_is_never_left_out() {
    let pool = pool(&spared(&[1], |protection| {
        protection.outlier_failures = Some(1);
    }));
    for _ in 0..20 {
        pool.pick(CLIENT, &[]).unwrap().answered(503);
    }
    assert_eq!(pool.status()[0].left_out, None);
}

#[test]
fn answers_that_say_that_a_request_is_not_supported_are_no_failures() {
    let pool = pool(&spared(&[1, 1], |protection| {
        protection.outlier_failures = Some(3);
    }));
    let lease = pool.pick(CLIENT, &[]).unwrap();
    let answer = |statuses: &[u16]| {
        for &status in statuses {
            lease.answered(status);
        }
        pool.status()[0].left_out.is_some()
    };
    assert!(!answer(&[501, 505, 501, 505]));
    // They say as little for a member as against it.
    assert!(answer(&[500, 501, 503, 505, 500]));
}

#[test]
fn answers_and_connections_count_as_failures_only_where_that_is_asked_for() {
    let asked = pool(&spared(&[1, 1], |protection| {
        protection.outlier_failures = Some(3);
    }));
    let unasked = pool(&wanted(&[1, 1]));
    for pool in [&asked, &unasked] {
        let lease = pool.pick(CLIENT, &[]).unwrap();
        lease.answered(500);
        lease.failed(&refused());
        lease.unanswered();
    }
    let left_out = |pool: &PoolState| pool.status()[0].left_out.clone();
    assert_eq!(
        left_out(&asked).as_deref(),
        Some("ejected for 30 s after 3 failures in a row: it does not answer")
    );
    assert_eq!(left_out(&unasked), None);
}

/// How many of 1,000 picks each member gets at a moment.
fn shares(pool: &PoolState, now: Instant) -> Vec<usize> {
    let mut counts = vec![0; pool.members().len()];
    for number in 0..1000 {
        let client = SocketAddr::new(CLIENT.ip(), 1 + number);
        let lease = pool.look_with_clock(client, &[], || now).unwrap();
        counts[usize::from(port(&lease))] += 1;
    }
    counts
}

#[test]
fn a_member_that_joins_gets_its_share_slowly_and_those_of_the_beginning_at_once() {
    for algorithm in [Algorithm::RoundRobin, Algorithm::SourceIpPort] {
        let slowly = |weights: &[u16]| Pool {
            algorithm,
            ..spared(weights, |protection| {
                protection.slow_start = Duration::from_secs(100);
            })
        };
        let pool = pool(&slowly(&[1]));
        let start = Instant::now();
        assert_eq!(shares(&pool, start), [1000]);
        pool.update(&slowly(&[1, 1]));
        let share = |seconds| shares(&pool, start + Duration::from_secs(seconds))[1];
        let [first, middle, last] = [0, 50, 101].map(share);
        assert!((60..=130).contains(&first), "{algorithm}: {first}");
        assert!((270..=400).contains(&middle), "{algorithm}: {middle}");
        assert!((440..=560).contains(&last), "{algorithm}: {last}");
    }
}

#[test]
fn a_member_that_comes_back_to_the_pool_begins_as_a_new_one() {
    let slowly = |weights: &[u16]| {
        spared(weights, |protection| {
            protection.slow_start = Duration::from_secs(1000);
        })
    };
    let pool = pool(&slowly(&[1, 1]));
    pool.update(&slowly(&[1, 0]));
    assert_eq!(shares(&pool, Instant::now()), [1000, 0]);
    pool.update(&slowly(&[1, 1]));
    let back = shares(&pool, Instant::now())[1];
    assert!((60..=130).contains(&back), "{back}");
}

#[test]
fn a_member_that_begins_has_few_connections_with_least_connections() {
    let slowly = |weights: &[u16]| Pool {
        algorithm: Algorithm::LeastConnections,
        ..spared(weights, |protection| {
            protection.slow_start = Duration::from_secs(100);
        })
    };
    let pool = pool(&slowly(&[1]));
    let _before: Vec<_> = (0..100).map(|_| pool.pick(CLIENT, &[]).unwrap()).collect();
    pool.update(&slowly(&[1, 1]));
    let _after: Vec<_> = (0..100).map(|_| pool.pick(CLIENT, &[]).unwrap()).collect();
    let open = pool.members()[1].open();
    assert!((15..=22).contains(&open), "{open}");
}

#[test]
fn a_member_that_is_healthy_again_begins_slowly_and_serves_alone_if_it_must() {
    let mut wanted = monitored(&[1, 1]);
    wanted.protection.slow_start = Duration::from_secs(1000);
    let pool = pool(&wanted);
    for number in 0..2 {
        pool.set_health(at(number), Health::Up, "");
    }
    let now = Instant::now();
    assert_eq!(shares(&pool, now), [500, 500], "all are alike at the start");
    pool.set_health(at(1), Health::Down, "gone");
    pool.set_health(at(1), Health::Up, "");
    let back = shares(&pool, Instant::now())[1];
    assert!((60..=130).contains(&back), "{back}");
    pool.set_health(at(0), Health::Down, "gone");
    assert_eq!(shares(&pool, Instant::now()), [0, 1000]);
}
