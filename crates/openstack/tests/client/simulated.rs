//! The client against the simulated cloud: a load balancer from its beginning to its end, with
//! every kind of credentials.

use std::sync::Arc;
use std::time::Duration;

use landfall_openstack::client::auth::{
    Auth, CredentialRef, DomainRef, ProjectRef, Scope, UserRef,
};
use landfall_openstack::client::{Cloud, CloudConfig, ErrorKind, NoAnswer, Tagged, Transport};
use landfall_openstack::objects::{Id, Provisioning};
use landfall_testkit::openstack::{Fault, Logins, Sim};
use serde_json::json;

fn cloud(sim: &Sim, auth: Auth) -> Cloud {
    connected(sim, CloudConfig::new(&sim.auth_url(), auth))
}

/// A client of the simulated cloud.
pub fn connected(sim: &Sim, config: CloudConfig) -> Cloud {
    let sim = sim.clone();
    let transport = Transport::InProcess(Arc::new(move |request| {
        let sim = sim.clone();
        Box::pin(async move {
            let answer = sim.answer(request).await;
            answer.map_err(|_| NoAnswer::Lost("simulated".to_owned()))
        })
    }));
    Cloud::over(config, transport).unwrap()
}

/// The user of the simulated cloud.
pub fn password(scope: Scope) -> Auth {
    let logins = Logins::default();
    Auth::Password {
        user: UserRef::Name {
            name: logins.user,
            domain: DomainRef::Name(logins.domain),
        },
        password: logins.password.into(),
        scope,
    }
}

/// Its project.
pub fn project() -> Scope {
    let logins = Logins::default();
    Scope::Project(ProjectRef::Name {
        name: logins.project,
        domain: DomainRef::Name(logins.domain),
    })
}

async fn settled(cloud: &Cloud, id: &Id) -> Option<Provisioning> {
    loop {
        let status = cloud.load_balancer(id).await.unwrap()?.provisioning_status;
        if !status.is_pending() {
            return Some(status);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_credentials_opens_the_cloud() {
    let sim = Sim::new();
    let logins = Logins::default();
    let credential = Auth::ApplicationCredential {
        credential: CredentialRef::Id(logins.credential),
        secret: logins.credential_secret.into(),
    };
    for auth in [
        password(project()),
        password(Scope::Project(ProjectRef::Id(sim.project()))),
        password(Scope::Trust(logins.trust)),
        credential,
    ] {
        let shown = format!("{auth:?}");
        let cloud = cloud(&sim, auth);
        assert_eq!(cloud.check().await.unwrap().to_string(), "2.27", "{shown}");
        assert_eq!(cloud.load_balancers().await.unwrap(), []);
        let project = cloud.project_id().await.unwrap().unwrap();
        assert_eq!(project.as_str(), sim.project());
    }
    let mut wrong = password(project());
    if let Auth::Password { password, .. } = &mut wrong {
        *password = "wrong".into();
    }
    let error = cloud(&sim, wrong).check().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unauthorized);
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_lives_from_create_to_delete() {
    let sim = Sim::new();
    sim.configure(|settings| settings.page_size = 2);
    let cloud = cloud(&sim, password(project()));
    let body = json!({"name": "n", "vip_subnet_id": sim.subnet()});
    let other = cloud.create_load_balancer(&body).await.unwrap();
    let balancer = cloud.create_load_balancer(&body).await.unwrap();
    assert_eq!(balancer.provisioning_status, Provisioning::PendingCreate);
    let id = &balancer.id;
    let listener = json!({"loadbalancer_id": id, "protocol": "TCP", "protocol_port": 80});
    let busy = cloud.create_listener(&listener).await.unwrap_err();
    assert_eq!(busy.kind, ErrorKind::Busy, "{busy}");
    assert_eq!(settled(&cloud, id).await, Some(Provisioning::Active));
    assert_eq!(cloud.load_balancers_named("n").await.unwrap().len(), 2);

    for port in 80..85 {
        let body = json!({"loadbalancer_id": id, "protocol": "TCP", "protocol_port": port});
        cloud.create_listener(&body).await.unwrap();
        settled(&cloud, id).await;
    }
    let taken = cloud.create_listener(&listener).await.unwrap_err();
    assert_eq!(taken.kind, ErrorKind::Conflict, "{taken}");
    // Those of the other load balancer stay out, on all pages.
    let foreign = json!({"loadbalancer_id": other.id, "protocol": "UDP", "protocol_port": 1});
    cloud.create_listener(&foreign).await.unwrap();
    let listeners = cloud.listeners(Some(id)).await.unwrap();
    let mut ports: Vec<_> = listeners
        .iter()
        .map(|listener| listener.protocol_port)
        .collect();
    ports.sort_unstable();
    assert_eq!(ports, [80, 81, 82, 83, 84]);
    assert_eq!(cloud.listeners(None).await.unwrap().len(), 6);

    let listener = &listeners[0].id;
    let body = json!({"listener_id": listener, "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN"});
    let pool = cloud.create_pool(&body).await.unwrap().id;
    settled(&cloud, id).await;
    let member = |n: u8| json!({"address": format!("10.0.0.{n}"), "protocol_port": 30080});
    cloud
        .set_members(&pool, &[member(11), member(12)], false)
        .await
        .unwrap();
    settled(&cloud, id).await;
    cloud.set_members(&pool, &[member(13)], true).await.unwrap();
    settled(&cloud, id).await;
    assert_eq!(cloud.members(&pool).await.unwrap().len(), 3);
    let body = json!({"pool_id": pool, "type": "TCP", "delay": 5, "timeout": 3, "max_retries": 1});
    let monitor = cloud.create_monitor(&body).await.unwrap().id;
    settled(&cloud, id).await;
    assert_eq!(cloud.monitors(Some(&pool)).await.unwrap()[0].id, monitor);
    let tree = cloud.statuses(id).await.unwrap().unwrap();
    assert_eq!(tree["loadbalancer"]["id"], json!(id));

    let port = balancer.vip_port_id.unwrap();
    let body = json!({"floating_network_id": sim.external_network(), "port_id": port});
    let floating = cloud.create_floating_ip(&body).await.unwrap();
    let tags = ["a".to_owned()];
    cloud
        .put_tags(Tagged::FloatingIp, &floating.id, &tags)
        .await
        .unwrap();
    let found = cloud
        .floating_ips(&[("port_id", port.as_str())])
        .await
        .unwrap();
    assert_eq!(
        (found.len(), found[0].tags.as_slice()),
        (1, tags.as_slice())
    );

    let children = cloud.delete_load_balancer(id, false).await.unwrap_err();
    assert_eq!(children.kind, ErrorKind::Invalid, "{children}");
    cloud.delete_load_balancer(id, true).await.unwrap();
    assert_eq!(settled(&cloud, id).await, None);
    cloud.delete_load_balancer(id, true).await.unwrap();
    assert_eq!(cloud.load_balancers().await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_dies_on_the_way_is_replaced_without_a_second_write() {
    let sim = Sim::new();
    let cloud = cloud(&sim, password(project()));
    cloud.check().await.unwrap();
    let mut dead = false;
    sim.on_call(move |call| {
        let first = call.is_write() && !std::mem::replace(&mut dead, true);
        first.then_some(Fault::TokenDies)
    });
    let group = cloud
        .create_security_group(&json!({"name": "g"}))
        .await
        .unwrap();
    assert_eq!(group.name, "g");
    let groups = cloud.security_groups(&[("name", "g")]).await.unwrap();
    assert_eq!(groups.len(), 1);
    let rule = |port: u16| {
        json!({"security_group_id": group.id, "direction": "ingress", "ethertype": "IPv4",
               "protocol": "tcp", "port_range_min": port, "port_range_max": port})
    };
    let rules = cloud.create_rules(&[rule(80), rule(81)]).await.unwrap();
    assert_eq!(rules.len(), 2);
    let twice = cloud.create_rules(&[rule(80)]).await.unwrap_err();
    assert_eq!(twice.kind, ErrorKind::Conflict, "{twice}");
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_is_met_is_distinguished_from_a_forbidden_call() {
    let sim = Sim::new();
    sim.configure(|settings| {
        settings.quota.load_balancers = Some(0);
        settings.quota.floating_ips = Some(0);
    });
    let cloud = cloud(&sim, password(project()));
    let body = json!({"name": "n", "vip_subnet_id": sim.subnet()});
    let error = cloud.create_load_balancer(&body).await.unwrap_err();
    assert_eq!(
        (error.kind, error.status),
        (ErrorKind::Quota, Some(403)),
        "{error}"
    );
    let body = json!({"floating_network_id": sim.external_network()});
    let error = cloud.create_floating_ip(&body).await.unwrap_err();
    assert_eq!(
        (error.kind, error.status),
        (ErrorKind::Quota, Some(409)),
        "{error}"
    );
}
