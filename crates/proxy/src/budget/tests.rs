use super::*;

/// Takes connections until one is refused.
fn flood(account: &Account) -> Vec<Share> {
    std::iter::from_fn(|| account.take(Cost::Connection, None).ok()).collect()
}

#[test]
fn what_is_kept_for_later_takes_nothing_of_the_minimum_of_its_service() {
    let budget = Budget::new(4096, 16);
    let accounts: Vec<_> = (0..200)
        .map(|number| budget.account(&Uid::new(&format!("victim-{number}")), "victims"))
        .collect();
    let rude = budget.account(&Uid::new("rude"), "rude");
    for victim in &accounts {
        // Connections that ended; what they had of members is kept.
        let kept: Vec<_> = (0..4).filter_map(|_| victim.spare()).collect();
        let taken = flood(&rude);
        let refused = victim.take(Cost::Connection, None);
        let share = refused.expect("its minimum");
        assert!(share.descriptors.is_some_and(|held| !held.common));
        victim.give_back(share);
        drop(kept);
        for share in taken {
            rude.give_back(share);
        }
    }
    assert_eq!(budget.pressure().used, 0);
}

#[test]
fn a_flood_leaves_room_for_clients_of_others_that_come_at_the_same_time() {
    let budget = Budget::new(4096, 16);
    let victims: Vec<_> = (0..200)
        .map(|number| budget.account(&Uid::new(&format!("victim-{number}")), "victims"))
        .collect();
    let rude = budget.account(&Uid::new("rude"), "rude");
    let sockets: Vec<_> = victims.iter().map(|victim| victim.sockets(2)).collect();
    assert!(sockets.iter().all(Option::is_some));
    let _taken = flood(&rude);
    // More than each one's minimum, all at one Service.
    let clients = (0..24).map(|_| victims[0].take(Cost::Connection, None));
    assert!(clients.filter_map(Result::ok).count() == 24);
}

#[test]
fn the_only_service_may_open_nearly_two_hundred_ports_with_few_descriptors() {
    let budget = Budget::new(1024, 2);
    let only = budget.account(&Uid::new("only"), "shop");
    let sockets: Vec<_> = std::iter::from_fn(|| only.sockets(2)).collect();
    assert!(sockets.len() > 190, "{}", sockets.len());
    let other = budget.account(&Uid::new("other"), "shop");
    let _socket = other.sockets(2).expect("the first listener of another");
    assert!(flood(&only).len() > 50 && flood(&other).len() > 4);
}

#[test]
fn listeners_that_are_opened_in_a_flood_leave_the_minimum_of_others() {
    let budget = Budget::new(1024, 2);
    let victim = budget.account(&Uid::new("victim"), "victims");
    let _socket = victim.sockets(2).expect("the first listener");
    let rude: Vec<_> = (0..8)
        .map(|number| budget.account(&Uid::new(&format!("rude-{number}")), "rude"))
        .collect();
    let _taken: Vec<Vec<Share>> = rude.iter().map(|rude| flood(rude)).collect();
    let more = || rude.iter().find_map(|rude| rude.sockets(2));
    let _sockets: Vec<_> = std::iter::from_fn(more).collect();
    let clients = std::iter::from_fn(|| victim.take(Cost::Connection, None).ok());
    assert!(clients.take(16).count() == 16);
}

#[test]
fn services_made_one_after_the_other_leave_the_minimum_of_another_namespace() {
    for (files, together) in [(1024, 1), (4096, 1), (4096, 7), (20_000, 1)] {
        let budget = Budget::new(files, 16);
        let victim = budget.account(&Uid::new("victim"), "victims");
        let mut taken = Vec::new();
        let mut services = Vec::new();
        // Each gets a part of what is due to all that there are, and keeps it when more come.
        for number in 0..100 {
            for beside in 0..together {
                let uid = Uid::new(&format!("rude-{number}-{beside}"));
                services.push(budget.account(&uid, "rude"));
            }
            for service in &services {
                taken.extend(flood(service));
            }
        }
        let clients = std::iter::from_fn(|| victim.take(Cost::Connection, None).ok());
        assert!(clients.take(16).count() == 16, "{files}, {together}");
    }
}
