//! Whose a listener is: each Service opens, changes and closes its own and no other.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use landfall_engine::{World, resolve};
use landfall_local::{Local, watch_health};
use landfall_model::intent::{Claim, Intent};
use landfall_model::limits::Limits;
use landfall_model::listener::ListenerKey;
use landfall_model::provider::{Applied, Provider};
use landfall_model::reason::Code;
use landfall_model::rows::{PoolRow, ServiceRow};
use landfall_model::view::Health;
use landfall_model::{Protocol, Uid};
use landfall_proxy::{ListenerId, Proxy, ProxyConfig};
use landfall_testkit::svc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// A provider with a data plane, and a pool of one loopback address that no other test uses.
pub struct Machine {
    pub proxy: Arc<Proxy>,
    pub local: Arc<Local>,
    pub address: IpAddr,
}

impl Machine {
    pub fn start(address: &str) -> Self {
        let proxy = Arc::new(Proxy::start(ProxyConfig::default()).unwrap());
        let local = Arc::new(Local::new(proxy.clone()));
        let pool = PoolRow {
            name: "default".to_owned(),
            addresses: vec![format!("{address}/32")],
            auto_assign: true,
            ..PoolRow::default()
        };
        assert_eq!(local.set_pools(&[Arc::new(pool)]), []);
        Self {
            proxy,
            local,
            address: address.parse().unwrap(),
        }
    }

    pub fn id(&self, port: u16) -> ListenerId {
        let key = ListenerKey {
            protocol: Protocol::Tcp,
            port: port.try_into().unwrap(),
        };
        ListenerId {
            address: self.address,
            key,
        }
    }

    /// Whose listener is open at each port.
    pub fn owners(&self) -> BTreeMap<u16, Uid> {
        let open = self.proxy.snapshot().into_iter().filter(|it| !it.draining);
        open.map(|it| (it.id.key.port.get(), it.owner.uid))
            .collect()
    }

    fn spec(&self, row: &ServiceRow) -> Intent {
        resolve(row, &World::default(), self.local.profile()).unwrap()
    }

    /// Applies the first steps of what a Service needs now.
    async fn apply(&self, intent: &Intent, count: usize) -> Vec<String> {
        let observed = self.local.observe(intent).await.unwrap();
        let steps = self.local.plan(intent, &observed).unwrap().steps;
        for planned in steps.iter().take(count) {
            if let Applied::Addressed(_) = self.local.apply(&planned.step).await.unwrap() {
                self.local.on_recorded(&intent.uid);
            }
        }
        let steps = steps.iter().map(|planned| planned.step.to_string());
        steps.collect()
    }

    async fn settle(&self, intent: &Intent) -> Vec<String> {
        let steps = self.apply(intent, usize::MAX).await;
        assert_eq!(self.apply(intent, 0).await, [] as [&str; 0]);
        steps
    }
}

pub fn sharing(name: &str, ports: &[u16]) -> Arc<ServiceRow> {
    let service = svc(name).annotated("landfall.dev/sharing-key", "k");
    let service = ports.iter().fold(service, |service, port| {
        service.named_port(&format!("p{port}"), *port)
    });
    service.row()
}

fn uid(name: &str) -> Uid {
    svc(name).row().uid.clone()
}

#[tokio::test]
async fn a_port_that_passed_to_another_service_is_not_closed_by_the_earlier_one() {
    let machine = Machine::start("127.78.1.1");
    let (a, b) = (
        machine.spec(&sharing("a", &[8081, 8082])),
        machine.spec(&sharing("b", &[8083])),
    );
    machine.settle(&a).await;
    machine.settle(&b).await;
    // A gives up 8081. Its pass is interrupted after the claim, and B is faster.
    let a = machine.spec(&sharing("a", &[8082]));
    let steps = machine.apply(&a, 1).await;
    assert_eq!(steps.last().unwrap(), "close 127.78.1.1:8081/TCP");
    let closing = {
        let observed = machine.local.observe(&a).await.unwrap();
        machine.local.plan(&a, &observed).unwrap().steps
    };
    machine
        .settle(&machine.spec(&sharing("b", &[8083, 8081])))
        .await;
    for planned in &closing {
        machine.local.apply(&planned.step).await.unwrap();
    }
    let expected = [(8081, uid("b")), (8082, uid("a")), (8083, uid("b"))];
    assert_eq!(machine.owners(), expected.into());
    assert_eq!(machine.apply(&a, 0).await, [] as [&str; 0]);
    assert_eq!(machine.local.audit().await, Ok(Vec::new()));
    let ports = |name| {
        let listeners = machine.local.live(&uid(name));
        let ports = listeners.iter().map(|listener| listener.key.port.get());
        ports.collect::<Vec<_>>()
    };
    assert_eq!((ports("a"), ports("b")), (vec![8082], vec![8081, 8083]));
}

/// Opens what a Service wants, as far as that may be.
async fn opened_by(local: &Local, intent: &Intent) -> Result<(), Code> {
    let observed = local.observe(intent).await.unwrap();
    for planned in local.plan(intent, &observed).unwrap().steps {
        let applied = local.apply(&planned.step).await;
        applied.map_err(|error| error.reason.code)?;
    }
    Ok(())
}

#[tokio::test]
async fn a_service_that_served_before_a_restart_keeps_its_place_also_in_plans() {
    let Machine {
        proxy,
        local,
        address,
    } = Machine::start("127.78.1.9");
    let limits = Limits {
        ports_per_namespace: Some(1),
        ..Limits::default()
    };
    let limited = Arc::into_inner(local).unwrap().within(limits);
    let local = Arc::new(limited);
    let machine = Machine {
        proxy,
        local,
        address,
    };
    let (early, late) = (sharing("early", &[8081]), sharing("late", &[8082]));
    let (early, late) = (machine.spec(&early), machine.spec(&late));
    let claim = Claim {
        service: late.service.clone(),
        uid: late.uid.clone(),
        addresses: vec![address],
        requested: Vec::new(),
        sharing_key: None,
        backend_key: String::new(),
        ports: vec![machine.id(8082).key],
    };
    machine.local.reserve_listeners(&[claim]);
    let refused = Err(Code::LimitReached);
    assert_eq!(opened_by(&machine.local.sandbox(), &early).await, refused);
    assert_eq!(opened_by(&machine.local, &early).await, refused);
    assert_eq!(opened_by(&machine.local, &late).await, Ok(()));
    assert_eq!(machine.owners(), [(8082, uid("late"))].into());
}

#[tokio::test]
async fn a_listener_that_the_data_plane_lost_is_named_by_the_audit_and_opened_again() {
    let machine = Machine::start("127.78.1.2");
    let web = machine.spec(&sharing("web", &[8081]));
    machine.settle(&web).await;
    assert!(machine.proxy.close(machine.id(8081), &web.uid).await);
    assert_eq!(machine.local.audit().await, Ok(vec![web.uid.clone()]));
    assert_eq!(
        machine.settle(&web).await,
        ["open 127.78.1.2:8081/TCP (stream, 0 members)"]
    );
    assert_eq!(machine.owners(), [(8081, web.uid.clone())].into());
    assert_eq!(machine.local.audit().await, Ok(Vec::new()));
}

#[tokio::test]
async fn a_listener_that_another_service_has_is_named_by_the_audit() {
    let machine = Machine::start("127.78.1.3");
    let web = machine.spec(&sharing("web", &[8081]));
    machine.settle(&web).await;
    let other = landfall_proxy::Owner {
        uid: uid("other"),
        service: svc("other").row().key.clone(),
    };
    let listener = web.load_balancer.as_ref().unwrap().listeners[0].clone();
    machine
        .proxy
        .apply(machine.id(8081), &other, &listener)
        .await
        .unwrap();
    assert_eq!(machine.local.audit().await, Ok(vec![web.uid.clone()]));
    let shown = machine.local.live(&web.uid);
    assert!(shown[0].members.is_empty(), "traffic of another: {shown:?}");
}

#[tokio::test]
async fn a_member_without_a_monitor_is_unchecked_until_connections_to_it_fail() {
    let machine = Machine::start("127.78.1.4");
    let row = svc("web")
        .port(8081)
        .annotated("landfall.dev/endpoints", &closed_address().to_string())
        .row();
    let web = machine.spec(&row);
    machine.settle(&web).await;
    let seen = || {
        let member = &machine.local.live(&web.uid)[0].members[0];
        (member.health, member.detail.clone())
    };
    assert_eq!(seen(), (Health::Unchecked, String::new()));
    let mut changes = machine.proxy.changes().version();
    let failing = async {
        while seen().0 != Health::Failing {
            let socket = machine.id(8081).socket_address();
            let mut client = tokio::net::TcpStream::connect(socket).await.unwrap();
            // The listener ends it: there is no member to give it to.
            let _ = client.read(&mut [0]).await;
        }
        changes.changed().await.unwrap();
    };
    let failing = tokio::time::timeout(Duration::from_secs(30), failing).await;
    assert!(failing.is_ok(), "{:?}", seen());
    let why = "connections fail: connection refused".to_owned();
    assert_eq!(seen(), (Health::Failing, why));
    let observed = machine.local.observe(&web).await.unwrap();
    let waiting = machine.local.status(&web, &observed).waiting;
    let reported: Vec<_> = waiting.iter().map(|reason| reason.code).collect();
    assert_eq!(reported, [Code::NoHealthyMembers]);
    assert!(
        waiting[0].message.contains("connection refused"),
        "{waiting:?}"
    );
}

#[tokio::test]
async fn a_service_is_sent_when_its_member_turns_also_beside_another_instance() {
    let machine = Machine::start("127.78.1.9");
    let other = Arc::new(Local::new(machine.proxy.clone()));
    let row = svc("web")
        .port(8081)
        .annotated("landfall.dev/endpoints", &closed_address().to_string())
        .row();
    let web = machine.spec(&row);
    machine.settle(&web).await;
    let cancel = CancellationToken::new();
    let (sent_by_other, mut none) = mpsc::channel(1);
    let (wakes, mut woken) = mpsc::channel(1);
    tokio::spawn(watch_health(other, sent_by_other, cancel.clone()));
    tokio::spawn(watch_health(machine.local.clone(), wakes, cancel.clone()));
    let failing = async {
        loop {
            let socket = machine.id(8081).socket_address();
            let mut client = tokio::net::TcpStream::connect(socket).await.unwrap();
            let _ = client.read(&mut [0]).await;
            if machine.local.live(&web.uid)[0].members[0].health == Health::Failing {
                return woken.recv().await;
            }
        }
    };
    let sent = tokio::time::timeout(Duration::from_secs(30), failing).await;
    assert_eq!(sent, Ok(Some(web.uid)));
    assert!(none.try_recv().is_err(), "it is not that instance's");
    cancel.cancel();
}

#[tokio::test]
async fn members_of_a_listener_that_can_not_open_are_shown_as_down() {
    let machine = Machine::start("127.78.1.5");
    let taken = machine.id(8081).socket_address();
    let _other = std::net::TcpListener::bind(taken).unwrap();
    let row = svc("web")
        .port(8081)
        .annotated("landfall.dev/endpoints", "10.0.0.1:80,10.0.0.2:80")
        .row();
    let web = machine.spec(&row);
    let observed = machine.local.observe(&web).await.unwrap();
    let mut failed = Vec::new();
    for planned in &machine.local.plan(&web, &observed).unwrap().steps {
        failed.extend(machine.local.apply(&planned.step).await.err());
    }
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].reason.code, Code::PortInUse);
    let live = machine.local.live(&web.uid);
    assert!(live[0].problem.is_some());
    let healths: Vec<_> = live[0].members.iter().map(|member| member.health).collect();
    assert_eq!(healths, [Health::Down, Health::Down]);
}

/// Returns an address on which nothing listens.
fn closed_address() -> SocketAddr {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    socket.local_addr().unwrap()
}

/// Answers every connection with a name. Ends with the test.
pub async fn server(name: &'static str) -> SocketAddr {
    let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = socket.accept().await {
            // A client that has gone away needs no answer.
            let _ = stream.write_all(name.as_bytes()).await;
        }
    });
    address
}

/// Begins the next step of what a Service needs and lets go of it, as a pass that is broken off
/// does.
async fn begin(machine: &Machine, intent: &Intent) -> String {
    let observed = machine.local.observe(intent).await.unwrap();
    let steps = machine.local.plan(intent, &observed).unwrap().steps;
    let step = &steps.first().expect("there is something to do").step;
    tokio::select! {
        biased;
        _ = machine.local.apply(step) => {}
        () = std::future::ready(()) => {}
    }
    step.to_string()
}

#[tokio::test]
async fn a_listener_that_opens_after_its_pass_was_broken_off_is_known_and_closed() {
    let machine = Machine::start("127.76.3.1");
    let row = |ports: &[u16]| {
        let service = svc("web");
        let service = ports
            .iter()
            .fold(service, |it, port| it.named_port(&port.to_string(), *port));
        service.row()
    };
    let (both, one) = (row(&[18201, 18202]), row(&[18201]));
    machine.apply(&machine.spec(&both), 2).await;
    let opened = machine.id(18202);
    let step = begin(&machine, &machine.spec(&both)).await;
    assert_eq!(step, format!("open {opened} (stream, 0 members)"));
    let began = std::time::Instant::now();
    while !machine.apply(&machine.spec(&both), 0).await.is_empty() {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "that it is open is not known"
        );
        tokio::task::yield_now().await;
    }
    let steps = machine.settle(&machine.spec(&one)).await;
    assert_eq!(steps.last().unwrap(), &format!("close {opened}"));
    assert_eq!(machine.owners().into_keys().collect::<Vec<_>>(), [18201]);
}

#[tokio::test]
async fn a_listener_whose_opening_outlives_its_pass_is_not_left_open_when_everything_is_let_go_of()
{
    let machine = Machine::start("127.76.4.1");
    let row = svc("web")
        .named_port("a", 18211)
        .named_port("b", 18212)
        .row();
    let spec = machine.spec(&row);
    machine.apply(&spec, 2).await;
    assert_eq!(machine.owners().len(), 1);
    begin(&machine, &spec).await;
    machine.local.retire().await;
    // What was begun goes on now, and the request for all sockets is handled after it.
    tokio::task::yield_now().await;
    assert!(machine.proxy.sockets().await.unwrap().is_empty());
    assert_eq!(machine.owners(), BTreeMap::new());
}
