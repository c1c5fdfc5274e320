//! Crashes and restarts: addresses are remembered, and what went meanwhile is cleaned up.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use landfall_model::reason::Code;
use landfall_model::status::ConditionType;
use landfall_model::view::ServiceView;

use crate::backend::Backend;
use crate::client;
use crate::lab::{DEADLINE, Lab};
use crate::manifest::{line_of, svc};
use crate::view::{at, find};

/// The address of every Service that has one.
async fn addresses(lab: &Lab) -> BTreeMap<String, IpAddr> {
    let view = lab.view().await;
    let mut found = BTreeMap::new();
    for service in &view.services {
        if let Some(address) = service.status.addresses().next() {
            found.insert(service.key.to_string(), address);
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_dash_nine_and_restart_keeps_addresses() {
    let mut lab = Lab::new();
    let backend = Backend::lines("pod", lab.ranges.backend(1, 3001)).await;
    let service = |number: usize| {
        let name = format!("web-{number}");
        svc(&name).tcp(8080).members(&[backend.address]).yaml()
    };
    // In an order in which counting up would give each another address than the next time.
    for number in [3, 1, 4, 2, 5] {
        lab.write(&format!("{number}.yaml"), &service(number));
    }
    lab.start().await;
    for number in [3, 1, 4, 2, 5] {
        lab.ready(&format!("default/web-{number}")).await;
    }
    let before = addresses(&lab).await;
    assert_eq!(before.len(), 5);
    lab.kill().await;

    // The files come in another order, and a new Service comes before all of them.
    for number in 1..=5 {
        lab.remove(&format!("{number}.yaml"));
        lab.write(&format!("z{}.yaml", 9 - number), &service(number));
    }
    lab.write("0.yaml", &service(0));
    let target = (before["default/web-3"], 8080).into();
    let began = Instant::now();
    lab.spawn();
    let first_answer = loop {
        match client::member(target).await {
            Ok(name) => {
                assert_eq!(name, "pod");
                break began.elapsed();
            }
            Err(_) => assert!(began.elapsed() < DEADLINE, "no answer after the restart"),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    eprintln!("from exec to the first answer: {first_answer:?}");
    lab.found().await;
    for number in 0..=5 {
        lab.ready(&format!("default/web-{number}")).await;
    }
    let mut after = addresses(&lab).await;
    let new = after.remove("default/web-0").unwrap();
    assert_eq!(after, before);
    assert!(!before.values().any(|address| *address == new));
    for address in after.values() {
        assert_eq!(
            client::member((*address, 8080).into()).await.unwrap(),
            "pod"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_at_any_moment_lose_no_address_and_give_none_twice() {
    let mut lab = Lab::new();
    let backend = Backend::lines("pod", lab.ranges.backend(1, 3001)).await;
    let service = |name: &str| svc(name).tcp(8080).members(&[backend.address]).yaml();
    lab.write("first.yaml", &service("first"));
    lab.start().await;
    lab.ready("default/first").await;
    let mut known = addresses(&lab).await;

    // The moments differ from run to run, and are printed when it fails.
    let mut random = u64::from(std::process::id()) | 1;
    let mut moments = Vec::new();
    for round in 0..8 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let moment = Duration::from_millis((random >> 33) % 250);
        moments.push(moment);
        eprintln!("round {round}: killed after {moment:?}");
        // Work for the moment of the kill: one more Service, and one that changes.
        let name = format!("late-{round}");
        lab.write(&format!("{name}.yaml"), &service(&name));
        let first = svc("first").tcp(8080).members(&[backend.address]);
        let first = first.port(&format!("round-{round}"), "TCP", 9000 + round);
        let first = first
            .yaml()
            .replace("{port: 8080}", "{name: main, port: 8080}");
        lab.write("first.yaml", &first);
        // Every moment is as good as the others: nothing is waited for here.
        tokio::time::sleep(moment).await;
        lab.kill().await;
        lab.spawn();
        if round % 3 == 2 {
            // Now and then it gets to say what it has promised.
            lab.found().await;
            for (key, address) in addresses(&lab).await {
                let earlier = known.insert(key.clone(), address);
                assert!(
                    earlier.is_none_or(|it| it == address),
                    "{key} moved: {moments:?}"
                );
            }
        }
    }
    lab.found().await;
    for round in 0..8 {
        lab.ready(&format!("default/late-{round}")).await;
    }
    lab.ready("default/first").await;
    let end = addresses(&lab).await;
    assert_eq!(end.len(), 9, "{moments:?}");
    let distinct: BTreeSet<_> = end.values().collect();
    assert_eq!(distinct.len(), 9, "{end:?} {moments:?}");
    for (key, address) in &known {
        assert_eq!(&end[key], address, "{key} moved: {moments:?}");
    }
    for address in end.values() {
        assert_eq!(
            client::member((*address, 8080).into()).await.unwrap(),
            "pod"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_deleted_while_no_instance_ran_is_released_and_cleaned() {
    let mut lab = Lab::new();
    let backend = Backend::lines("pod", lab.ranges.backend(1, 3001)).await;
    let service = |name: &str| svc(name).tcp(8080).members(&[backend.address]);
    lab.write("gone.yaml", &service("gone").yaml());
    lab.write("stays.yaml", &service("stays").yaml());
    lab.start().await;
    let address = at(&lab.ready("default/gone").await, 8080);
    lab.ready("default/stays").await;
    lab.kill().await;
    lab.remove("gone.yaml");

    lab.start().await;
    lab.ready("default/stays").await;
    lab.gone("default/gone").await;
    let view = lab.view().await;
    assert_eq!(view.pools[0].assigned_ipv4, 1);
    assert!(client::member(address).await.is_err());
    // It is written while nothing waits for it.
    let began = Instant::now();
    while !fs::read_to_string(lab.state().join("state.journal"))
        .unwrap()
        .contains("{\"service\":\"default/gone\",\"gone\":true}")
    {
        assert!(began.elapsed() < DEADLINE, "it is still remembered");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // No Service holds the address any more.
    let next = service("next").option("addresses", &address.ip().to_string());
    lab.write("next.yaml", &next.yaml());
    let next = lab.ready("default/next").await;
    assert_eq!(at(&next, 8080), address);
    assert_eq!(client::member(address).await.unwrap(), "pod");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_whose_file_is_broken_at_a_restart_keeps_its_address_and_is_served() {
    let mut lab = Lab::new();
    let backend = Backend::lines("pod", lab.ranges.backend(1, 3001)).await;
    let text = svc("web").tcp(8080).members(&[backend.address]).yaml();
    lab.write("web.yaml", &text);
    lab.start().await;
    let address = at(&lab.ready("default/web").await, 8080);
    lab.kill().await;
    let broken = text.replace("  type: LoadBalancer", "  type: [LoadBalancer");
    lab.write("web.yaml", &broken);

    lab.start().await;
    let served = |it: &ServiceView| {
        let met = |kind| it.status.condition(kind).map(|condition| condition.status);
        met(ConditionType::Programmed) == Some(true) && met(ConditionType::Accepted) == Some(false)
    };
    let web = lab
        .until("default/web", "is served and not accepted", served)
        .await;
    assert_eq!(at(&web, 8080), address);
    assert_eq!(client::member(address).await.unwrap(), "pod");
    let problem = lab.problem(Code::InvalidManifest).await;
    let origin = problem.origin.expect("it names the file");
    assert_eq!(*origin.file, *lab.file("web.yaml").to_str().unwrap());
    assert!(origin.line >= line_of(&broken, "[LoadBalancer"));
    let kept = lab.problem(Code::ServingPreviousVersion).await;
    assert!(kept.message.contains("default/web"), "{kept}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clean_stop_keeps_addresses_as_well() {
    let mut lab = Lab::new();
    let backend = Backend::lines("pod", lab.ranges.backend(1, 3001)).await;
    for name in ["b", "a"] {
        let service = svc(name).tcp(8080).members(&[backend.address]);
        lab.write(&format!("{name}.yaml"), &service.yaml());
        if name == "b" {
            lab.start().await;
        }
        lab.ready(&format!("default/{name}")).await;
    }
    let before = addresses(&lab).await;
    assert!(before["default/b"] < before["default/a"], "{before:?}");
    lab.stop().await;
    lab.start().await;
    for key in before.keys() {
        lab.ready(key).await;
    }
    assert_eq!(addresses(&lab).await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conditions_survive_a_restart_with_their_times() {
    let mut lab = Lab::new();
    let backend = Backend::lines("pod", lab.ranges.backend(1, 3001)).await;
    let service = svc("web").tcp(8080).members(&[backend.address]);
    lab.write("web.yaml", &service.yaml());
    lab.start().await;
    let before = lab.ready("default/web").await.status;
    lab.kill().await;
    lab.start().await;
    // Claimed addresses are reported before listeners open, so `Programmed` may turn on the way.
    let after = lab.ready("default/web").await.status;
    assert_eq!(after.ingress, before.ingress);
    assert_eq!(after.conditions[..2], before.conditions[..2]);
    let view = lab.view().await;
    assert!(find(&view, "default/web").is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_file_that_makes_no_sense_is_refused_and_left_alone() {
    let mut lab = Lab::new();
    lab.write("web.yaml", &svc("web").tcp(8080).yaml());
    fs::create_dir(lab.state()).unwrap();
    let path = lab.state().join("state.json");
    for (content, why) in [
        ("{\"version\":1,\"services\":[{", "can't be parsed"),
        ("not JSON", "can't be parsed"),
        ("", "can't be parsed"),
        ("{\"version\":7,\"services\":[]}", "has format 7"),
    ] {
        fs::write(&path, content).unwrap();
        lab.spawn();
        let ended = lab.end().await;
        assert_eq!(ended.code(), Some(1), "{content}");
        assert_eq!(ended.stdout, "");
        let message = ended.stderr.trim();
        let beginning = format!("landfall: {} {why}", path.display());
        assert!(message.starts_with(&beginning), "{message}");
        assert!(message.contains("move"), "no remedy: {message}");
        assert_eq!(fs::read_to_string(&path).unwrap(), content);
    }
}
