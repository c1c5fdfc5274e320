//! Address pools in manifests, and what their edits do to addresses that are held.

use landfall_model::reason::Code;
use landfall_model::status::ConditionType;
use landfall_model::view::{InstanceView, ServiceView};

use crate::backend::Backend;
use crate::client;
use crate::lab::Lab;
use crate::manifest::{pool, svc};
use crate::view::{at, condition, is_ready};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pools_are_chosen_by_request_namespace_and_priority() {
    let lab = Lab::new();
    let backend = Backend::lines("pod", lab.ranges.backend(1, 3001)).await;
    let range = |first: u8, last: u8| {
        vec![format!(
            "{}-{}",
            lab.ranges.pool(first),
            lab.ranges.pool(last)
        )]
    };
    let namespaced = [
        "serviceAllocation:",
        "  priority: 10",
        "  namespaces: [store]",
    ];
    let late = ["serviceAllocation:", "  priority: 20"];
    let text = [
        pool("for-all", &range(10, 19), &late),
        pool("for-the-store", &range(20, 29), &namespaced),
        pool("reserved", &range(30, 39), &["autoAssign: false"]),
        pool(
            "careful",
            &range(0, 1),
            &["autoAssign: false", "avoidBuggyIPs: true"],
        ),
    ];
    lab.write("pools.yaml", &text.join("---\n"));
    let service = |name: &str| svc(name).tcp(8080).members(&[backend.address]);
    let asking = |name: &str, pool: &str| service(name).annotation("metallb.io/address-pool", pool);
    let third = lab.ranges.pool(33).to_string();
    let known = service("known").annotation("metallb.io/loadBalancerIPs", &third);
    for (name, text) in [
        ("any", service("any")),
        ("shop", service("shop").namespace("store")),
        ("asks", asking("asks", "reserved")),
        ("known", known),
        ("careful", asking("careful", "careful")),
        ("lost", asking("lost", "nowhere")),
        ("barred", asking("barred", "for-the-store")),
    ] {
        lab.write(&format!("{name}.yaml"), &text.yaml());
    }
    let lab = lab.options(&[]).started().await;
    for (key, last) in [
        ("default/any", 10),
        ("store/shop", 20),
        ("default/asks", 30),
        ("default/known", 33),
        ("default/careful", 1),
    ] {
        let service = lab.ready(key).await;
        assert_eq!(at(&service, 8080).ip(), lab.ranges.pool(last), "{key}");
        assert_eq!(client::member(at(&service, 8080)).await.unwrap(), "pod");
    }
    let lost = lab.reason("default/lost", Code::PoolNotFound).await;
    assert!(lost.message.contains("nowhere"), "{lost}");
    assert!(lost.remedy.contains("for-all"), "{lost}");
    let barred = lab.reason("default/barred", Code::PoolNotAllowed).await;
    assert!(barred.message.contains("namespace default"), "{barred}");
    let view = lab.view().await;
    let used: Vec<_> = view
        .pools
        .iter()
        .map(|it| (it.name.as_str(), it.assigned_ipv4, it.available_ipv4))
        .collect();
    assert_eq!(
        used,
        [
            ("careful", 1, 0),
            ("for-all", 1, 9),
            ("for-the-store", 1, 9),
            ("reserved", 2, 8)
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edited_pool_keeps_what_still_fits_and_moves_what_does_not() {
    let lab = Lab::new();
    let backend = Backend::lines("pod", lab.ranges.backend(1, 3001)).await;
    let text = |first: u8, last: u8| {
        let range = format!("{}-{}", lab.ranges.pool(first), lab.ranges.pool(last));
        pool("edge", &[range], &[])
    };
    lab.write("pool.yaml", &text(10, 12));
    let mut lab = lab.options(&[]);
    lab.start().await;
    for (name, last) in [("a", 10), ("b", 11), ("c", 12)] {
        let service = svc(name).tcp(8080).members(&[backend.address]);
        lab.write(&format!("{name}.yaml"), &service.yaml());
        let service = lab.ready(&format!("default/{name}")).await;
        assert_eq!(at(&service, 8080).ip(), lab.ranges.pool(last));
    }
    // Wider: no Service moves.
    let text = |first: u8, last: u8| {
        let range = format!("{}-{}", lab.ranges.pool(first), lab.ranges.pool(last));
        pool("edge", &[range], &[])
    };
    lab.write("pool.yaml", &text(5, 20));
    let wide = |view: &InstanceView| (view.pools[0].available_ipv4 == 13).then_some(());
    lab.wait("the pool is wider", wide).await;
    let mut talk = client::Talk::to((lab.ranges.pool(12), 8080).into())
        .await
        .unwrap();
    talk.say("before").await.unwrap();
    // One address goes: its Service moves and says why, the others stay.
    lab.write("pool.yaml", &text(5, 11));
    let moved = |service: &ServiceView| {
        let address = service.status.addresses().next();
        is_ready(service) && address == Some(lab.ranges.pool(5))
    };
    let c = lab.until("default/c", "has moved", moved).await;
    assert_eq!(client::member(at(&c, 8080)).await.unwrap(), "pod");
    for (name, last) in [("a", 10), ("b", 11)] {
        let service = lab.service(&format!("default/{name}")).await;
        assert!(is_ready(&service));
        assert_eq!(at(&service, 8080).ip(), lab.ranges.pool(last));
    }
    // The old address accepts no new connection, and open ones may end by themselves.
    assert!(
        client::member((lab.ranges.pool(12), 8080).into())
            .await
            .is_err()
    );
    talk.say("after").await.unwrap();
    let reported = lab.log().iter().any(|line| {
        line["because"]
            .as_str()
            .is_some_and(|it| it.contains("pool"))
            && line["service"] == "default/c"
    });
    assert!(reported, "the move was not explained");
    // The pool is gone altogether: there is nothing left to give.
    lab.write(
        "pool.yaml",
        &pool("other", &[format!("{}/32", lab.ranges.pool(200))], &[]),
    );
    let served = |view: &InstanceView| {
        let addresses: Vec<_> = view
            .services
            .iter()
            .flat_map(|service| service.status.addresses())
            .collect();
        (addresses == [lab.ranges.pool(200)]).then_some(())
    };
    lab.wait("one has moved on, the others have none", served)
        .await;
    let view = lab.view().await;
    let homeless = |service: &&ServiceView| service.status.ingress.is_empty();
    let homeless: Vec<_> = view.services.iter().filter(homeless).collect();
    assert_eq!(homeless.len(), 2);
    for service in homeless {
        let addressed = condition(service, ConditionType::Addressed);
        assert_eq!(addressed, (false, Code::PoolExhausted), "{}", service.key);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_change_of_address_keeps_the_address_that_is_held() {
    let lab = Lab::new();
    let backend = Backend::lines("pod", lab.ranges.backend(1, 3001)).await;
    let service = svc("web").tcp(8080).members(&[backend.address]);
    lab.write("web.yaml", &service.yaml());
    let lab = lab.started().await;
    let target = at(&lab.ready("default/web").await, 8080);
    let asking = service.clone().option("addresses", "192.0.2.1");
    lab.write("web.yaml", &asking.yaml());
    let reason = lab.reason("default/web", Code::AddressNotInPool).await;
    assert_eq!(reason.value.as_deref(), Some("192.0.2.1"));
    let web = lab.service("default/web").await;
    assert_eq!(at(&web, 8080), target);
    assert_eq!(
        condition(&web, ConditionType::Accepted),
        (false, Code::AddressNotInPool)
    );
    assert_eq!(
        condition(&web, ConditionType::Programmed),
        (true, Code::Ready)
    );
    assert_eq!(client::member(target).await.unwrap(), "pod");
    // One that can be had is moved to.
    let wanted = lab.ranges.pool(99);
    let asking = service.option("addresses", &wanted.to_string());
    lab.write("web.yaml", &asking.yaml());
    let moved = |service: &ServiceView| {
        is_ready(service) && service.status.addresses().next() == Some(wanted)
    };
    lab.until("default/web", "has moved", moved).await;
    assert_eq!(client::member((wanted, 8080).into()).await.unwrap(), "pod");
    assert!(client::member(target).await.is_err());
}
