//! Keystone and Barbican.

use std::time::Duration;

use landfall_testkit::openstack::{Service, Sim};
use serde_json::{Value, json};

use crate::client::{BALANCERS, Client, login, password};

#[tokio::test(start_paused = true)]
async fn every_kind_of_login_gives_a_token_that_works() {
    let sim = Sim::new();
    let client = Client::new(sim.clone()).await;
    let project = json!({"project": {"name": "demo", "domain": {"name": "Default"}}});
    let trusted = json!({"OS-TRUST:trust": {"id": "simulated-trust"}});
    let credential = json!({"auth": {"identity": {"methods": ["application_credential"],
        "application_credential": {"id": "simulated-credential", "secret": "simulated-secret"}}}});
    let token = json!({"auth": {"identity": {"methods": ["token"], "token": {"id": client.token}},
        "scope": project}});
    let mut trust = password(&sim);
    trust["auth"]["scope"] = trusted;
    let mut named = password(&sim);
    named["auth"]["scope"] = project;
    for body in [credential, token, trust, named] {
        let reply = login(&sim, &body).await;
        assert_eq!(reply.status(), 201, "{body}");
        let token = reply.headers()["x-subject-token"]
            .to_str()
            .unwrap()
            .to_owned();
        let client = Client {
            sim: sim.clone(),
            token,
        };
        assert_eq!(client.lb("GET", BALANCERS, Value::Null).await.0, 200);
    }
}

#[tokio::test]
async fn a_wrong_login_is_refused() {
    let sim = Sim::new();
    for pointer in [
        "/auth/identity/password/user/password",
        "/auth/identity/password/user/name",
        "/auth/scope/project/id",
    ] {
        let mut body = password(&sim);
        *body.pointer_mut(pointer).unwrap() = json!("wrong");
        assert_eq!(login(&sim, &body).await.status(), 401, "{pointer}");
    }
    let body = json!({"auth": {"identity": {"methods": ["token"], "token": {"id": "unknown"}}}});
    assert_eq!(login(&sim, &body).await.status(), 401);
    assert_eq!(login(&sim, &json!({})).await.status(), 400);
}

#[tokio::test(start_paused = true)]
async fn a_token_dies_of_age_and_by_revocation() {
    let client = Client::new(Sim::new()).await;
    tokio::time::sleep(Duration::from_secs(3601)).await;
    let (status, reply) = client.lb("GET", BALANCERS, Value::Null).await;
    assert_eq!((status, &reply["error"]["code"]), (401, &json!(401)));
    let client = Client::new(client.sim).await;
    let url = format!("{}/auth/tokens", client.sim.auth_url());
    assert_eq!(client.call("DELETE", &url, Value::Null).await.0, 204);
    assert_eq!(client.net("GET", "/ports", Value::Null).await.0, 401);
    let client = Client::new(client.sim).await;
    client.sim.revoke_tokens();
    assert_eq!(client.net("GET", "/ports", Value::Null).await.0, 401);
}

#[tokio::test]
async fn the_catalog_names_the_services_that_there_are() {
    let sim = Sim::new();
    sim.configure(|settings| {
        settings
            .services
            .retain(|service| *service != Service::LoadBalancer);
    });
    let reply = login(&sim, &password(&sim)).await;
    let token: Value = serde_json::from_slice(reply.body()).unwrap();
    let catalog = token["token"]["catalog"].as_array().unwrap();
    let types: Vec<_> = catalog
        .iter()
        .map(|entry| entry["type"].as_str().unwrap())
        .collect();
    assert_eq!(types, ["identity", "network", "key-manager"]);
    assert_eq!(catalog[1]["endpoints"][0]["url"], "http://network.sim");
}

#[tokio::test]
async fn secrets_and_containers_exist_or_not() {
    let client = Client::new(Sim::new()).await;
    let (secret, container) = (client.sim.add_secret(), client.sim.add_container());
    for reference in [&secret, &container] {
        assert_eq!(client.call("GET", reference, Value::Null).await.0, 200);
        client.sim.remove_secret(reference);
        assert_eq!(client.call("GET", reference, Value::Null).await.0, 404);
    }
}

#[tokio::test]
async fn the_same_cloud_answers_over_http() {
    let sim = Sim::new();
    let served = sim.serve().await.unwrap();
    assert_eq!(sim.auth_url(), served.auth_url);
    let address = served.base.strip_prefix("http://").unwrap();
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request =
        format!("GET /load-balancer/ HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    tokio::io::AsyncWriteExt::write_all(&mut stream, request.as_bytes())
        .await
        .unwrap();
    let mut answer = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut stream, &mut answer)
        .await
        .unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("v2.27"),
        "{answer}"
    );
    assert!(
        answer.contains(&format!("{}/load-balancer/v2", served.base)),
        "{answer}"
    );
}
