//! Which members are chosen, without sockets.

use std::time::Duration;

use landfall_model::Member;
use landfall_model::listener::{Check, Monitor};

use super::*;
use crate::changes::Changes;
use std::io;

mod spared;

const CLIENT: SocketAddr = SocketAddr::V4(std::net::SocketAddrV4::new(
    std::net::Ipv4Addr::new(192, 0, 2, 1),
    40_000,
));

fn at(number: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], number))
}

/// Members 0, 1, ... with these weights.
fn wanted(weights: &[u16]) -> Pool {
    let numbered = weights.iter().zip(0..);
    let members = numbered.map(|(&weight, number)| Member {
        weight,
        ..Member::new(at(number))
    });
    Pool {
        members: members.collect(),
        ..Pool::default()
    }
}

fn monitored(weights: &[u16]) -> Pool {
    Pool {
        monitor: Some(Monitor::new(Check::Tcp)),
        ..wanted(weights)
    }
}

fn changes_of(changes: &Changes) -> ChangesOf {
    changes.of(&landfall_model::Uid::new("web"))
}

fn key() -> HashKey {
    HashKey::new([0; 16], &landfall_model::Uid::new("web"))
}

fn pool(wanted: &Pool) -> PoolState {
    let pool = PoolState::new(
        1,
        key(),
        changes_of(&Changes::default()),
        Account::unlimited(),
    );
    assert!(
        pool.update(wanted)
            .iter()
            .all(|member| !pool.status().is_empty() && member.address().port() < 100)
    );
    pool
}

/// The members that get the next connections, each of which ends at once.
fn next<const N: usize>(pool: &PoolState) -> [u16; N] {
    std::array::from_fn(|_| pool.pick(CLIENT, &[]).unwrap().address().port())
}

#[test]
fn connections_go_round_by_weight() {
    assert_eq!(next(&pool(&wanted(&[1, 3]))), [1, 1, 0, 1, 1, 1, 0, 1]);
}

#[test]
fn the_least_busy_member_for_its_weight_is_chosen() {
    let wanted = Pool {
        algorithm: Algorithm::LeastConnections,
        ..wanted(&[1, 2])
    };
    let pool = pool(&wanted);
    let open: Vec<Lease> = (0..9).map(|_| pool.pick(CLIENT, &[]).unwrap()).collect();
    let (first, mut second): (Vec<_>, Vec<_>) =
        open.into_iter().partition(|lease| lease.address() == at(0));
    assert_eq!((first.len(), second.len()), (3, 6));
    second.truncate(3);
    let _more: Vec<Lease> = (0..3)
        .map(|_| {
            let lease = pool.pick(CLIENT, &[]).unwrap();
            assert_eq!(lease.address(), at(1));
            lease
        })
        .collect();
}

#[test]
fn equals_share_among_least_connections() {
    let wanted = Pool {
        algorithm: Algorithm::LeastConnections,
        ..wanted(&[1, 1, 1])
    };
    let mut chosen: [u16; 30] = next(&pool(&wanted));
    chosen.sort_unstable();
    assert_eq!(
        (chosen[9], chosen[10], chosen[19], chosen[20]),
        (0, 1, 1, 2)
    );
}

#[test]
fn with_the_port_in_the_hash_one_client_meets_all_members() {
    let wanted = Pool {
        algorithm: Algorithm::SourceIpPort,
        ..wanted(&[1, 1, 1])
    };
    let pool = pool(&wanted);
    let pick = |port: u16| {
        let client = SocketAddr::new(CLIENT.ip(), port);
        pool.pick(client, &[]).unwrap().address().port()
    };
    let chosen: Vec<u16> = (1..300).map(pick).collect();
    assert_eq!(chosen, (1..300).map(pick).collect::<Vec<_>>());
    for number in 0..3 {
        let share = chosen.iter().filter(|&&other| other == number).count();
        assert!((60..140).contains(&share), "{share} of 299");
    }
}

#[test]
fn backups_serve_only_while_all_others_are_down() {
    let mut wanted = monitored(&[1, 1, 1]);
    wanted.members[2].backup = true;
    let pool = pool(&wanted);
    for number in 0..3 {
        assert!(pool.set_health(at(number), Health::Up, ""));
    }
    assert_eq!(next(&pool), [0, 1, 0, 1]);
    assert!(pool.set_health(at(0), Health::Down, "gone"));
    assert_eq!(next(&pool), [1, 1, 1]);
    assert!(pool.set_health(at(1), Health::Down, "gone"));
    assert_eq!(next(&pool), [2, 2]);
    assert!(pool.set_health(at(2), Health::Down, "gone"));
    assert!(pool.pick(CLIENT, &[]).is_none());
    assert!(pool.set_health(at(1), Health::Up, ""));
    assert_eq!(next(&pool), [1, 1]);
}

#[test]
fn a_member_not_yet_checked_waits_while_another_is_known_to_be_up() {
    let pool = pool(&monitored(&[1, 1]));
    assert_eq!(next(&pool), [0, 1]);
    pool.set_health(at(1), Health::Up, "");
    assert_eq!(next(&pool), [1, 1]);
    pool.set_health(at(0), Health::Up, "");
    let mut both = next(&pool);
    both.sort_unstable();
    assert_eq!(both, [0, 1]);
}

#[test]
fn without_a_monitor_health_does_not_matter() {
    let pool = pool(&wanted(&[1, 1]));
    pool.set_health(at(0), Health::Down, "a monitor that was there before");
    assert_eq!(next(&pool), [0, 1]);
    assert!(
        pool.status()
            .iter()
            .all(|row| row.health == Health::Up && row.cause.is_empty())
    );
}

#[test]
fn members_without_weight_get_nothing_and_draining_ones_only_in_need() {
    let mut wanted = wanted(&[0, 1, 1, 1]);
    wanted.members[1].draining = true;
    wanted.members[2].backup = true;
    let pool = pool(&wanted);
    assert_eq!(next(&pool), [3, 3]);
    wanted.members.remove(3);
    pool.update(&wanted);
    assert_eq!(next(&pool), [2, 2]);
    wanted.members.remove(2);
    pool.update(&wanted);
    assert_eq!(next(&pool), [1, 1]);
    wanted.members.remove(1);
    pool.update(&wanted);
    assert!(pool.pick(CLIENT, &[]).is_none());
}

#[test]
fn a_tried_member_is_left_out_and_one_that_failed_comes_last() {
    for algorithm in [
        Algorithm::RoundRobin,
        Algorithm::LeastConnections,
        Algorithm::SourceIp,
        Algorithm::SourceIpPort,
    ] {
        let pool = pool(&Pool {
            algorithm,
            ..wanted(&[1, 1, 1])
        });
        let first = pool.pick(CLIENT, &[]).unwrap();
        first.failed(&refused());
        let failed = first.address();
        let second = pool.pick(CLIENT, &[failed]).unwrap().address();
        assert_ne!(second, failed);
        let third = pool.pick(CLIENT, &[failed, second]).unwrap().address();
        assert!(third != failed && third != second);
        assert!(pool.pick(CLIENT, &[failed, second, third]).is_none());
        for _ in 0..10 {
            assert_ne!(
                pool.pick(CLIENT, &[]).unwrap().address(),
                failed,
                "{algorithm}"
            );
        }
        // Better one that failed than none.
        assert_eq!(
            pool.pick(CLIENT, &[second, third]).unwrap().address(),
            failed
        );
        first.connected();
        drop(first);
        let again: Vec<_> = (0..10)
            .map(|_| pool.pick(CLIENT, &[]).unwrap().address())
            .collect();
        assert!(again.contains(&failed), "{algorithm}");
    }
}

#[test]
fn affinity_lasts_from_the_last_connection_s_end() {
    let timeout = Duration::from_millis(80);
    let wanted = Pool {
        affinity: Some(ClientAffinity { timeout }),
        ..wanted(&[1, 1])
    };
    let pool = pool(&wanted);
    let lease = pool.pick(CLIENT, &[]).unwrap();
    let first = lease.address();
    let started = Instant::now();
    while started.elapsed() < timeout * 2 {
        std::thread::yield_now();
    }
    drop(lease);
    // Had the time counted from the connection's beginning, the other one would be next.
    assert_eq!(pool.pick(CLIENT, &[]).unwrap().address(), first);
    let ended = Instant::now();
    while ended.elapsed() < timeout * 2 {
        std::thread::yield_now();
    }
    assert_ne!(pool.pick(CLIENT, &[]).unwrap().address(), first);
}

#[test]
fn a_leaving_member_is_cut_once_its_time_is_over_unless_it_came_back() {
    let mut two = wanted(&[1, 1]);
    let pool = pool(&two);
    let leases = [
        pool.pick(CLIENT, &[]).unwrap(),
        pool.pick(CLIENT, &[]).unwrap(),
    ];
    let gone = two.members.remove(1);
    let leaving = pool.update(&two);
    assert_eq!(
        leaving.iter().map(Leaving::address).collect::<Vec<_>>(),
        [at(1)]
    );
    let row = |address| {
        let status = pool.status();
        let row = status.iter().find(|row| row.address == address)?;
        Some((row.leaving, row.serves, row.open))
    };
    assert_eq!(row(at(1)), Some((true, false, 1)));
    two.members.push(gone);
    assert!(pool.update(&two).is_empty());
    assert_eq!(row(at(1)), Some((false, true, 1)));
    assert!(leaving.iter().all(|member| !member.cut()));
    assert!(leases.iter().all(|lease| !lease.is_cut()));
    two.members[1].draining = true;
    let leaving = pool.update(&two);
    // Updated twice, it leaves once.
    assert!(pool.update(&two).is_empty());
    assert!(leaving.iter().all(Leaving::cut));
    assert_eq!(
        leases.iter().map(Lease::is_cut).collect::<Vec<_>>(),
        [false, true]
    );
    drop(leases);
    two.members.remove(1);
    pool.update(&two);
    assert_eq!(row(at(1)), None);
}

#[test]
fn health_changes_are_counted_and_reported() {
    let sender = Changes::default();
    let changes = sender.version();
    let pool = PoolState::new(1, key(), changes_of(&sender), Account::unlimited());
    pool.update(&monitored(&[1]));
    let before = *changes.borrow();
    assert!(pool.set_health(at(0), Health::Up, ""));
    assert!(!pool.set_health(at(0), Health::Up, "still"));
    assert!(pool.set_health(at(0), Health::Down, "connection refused"));
    assert!(!pool.set_health(at(7), Health::Down, "no member's"));
    assert_eq!(*changes.borrow(), before + 2);
    let row = pool.status().remove(0);
    assert_eq!(
        (row.health, &*row.cause, row.transitions),
        (Health::Down, "connection refused", 1)
    );
}

fn refused() -> io::Error {
    io::ErrorKind::ConnectionRefused.into()
}

#[test]
fn connections_that_fail_in_a_row_show_and_the_member_serves_on() {
    let changes = Changes::default();
    let mut raised = changes.version();
    let pool = PoolState::new(1, key(), changes_of(&changes), Account::unlimited());
    pool.update(&wanted(&[1]));
    raised.mark_unchanged();
    let fail = || pool.pick(CLIENT, &[]).unwrap().failed(&refused());
    fail();
    pool.pick(CLIENT, &[]).unwrap().connected();
    fail();
    fail();
    assert_eq!(pool.status()[0].failing, None, "never three in a row");
    assert!(!raised.has_changed().unwrap());
    fail();
    let status = &pool.status()[0];
    assert_eq!(status.failing.as_deref(), Some("connection refused"));
    assert!(status.serves && !status.checked);
    assert!(raised.has_changed().unwrap());
}

#[test]
fn a_member_that_fails_does_so_until_nothing_failed_for_a_while() {
    let (changes, start) = (changes_of(&Changes::default()), Instant::now());
    let member = MemberState::new(CLIENT, 1, Arc::new(Shared::new(changes)));
    let at = |seconds| start + Duration::from_secs(seconds);
    for second in 0..3 {
        member.suspect(at(second), &refused());
    }
    member.trust(|| at(5));
    assert!(member.failing().is_some(), "it failed just now");
    member.trust(|| at(13));
    assert_eq!(member.failing(), None);
    member.suspect(at(14), &refused());
    assert_eq!(member.failing(), None, "it is counted from nothing again");
}

#[test]
fn a_failure_is_forgotten_when_no_client_came_for_long_or_a_check_passes() {
    let start = Instant::now();
    let member = MemberState::new(
        CLIENT,
        1,
        Arc::new(Shared::new(changes_of(&Changes::default()))),
    );
    let at = |seconds| start + Duration::from_secs(seconds);
    let fail = || (0..3).for_each(|second| member.suspect(at(second), &refused()));
    fail();
    member.forget_failures(at(30));
    assert!(member.failing().is_some());
    member.forget_failures(at(90));
    assert_eq!(member.failing(), None);
    fail();
    member.set_health(Health::Down, "refused", start);
    assert!(member.failing().is_some());
    member.set_health(Health::Up, "", start);
    assert_eq!(member.failing(), None);
}
