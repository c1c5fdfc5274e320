//! A client of the simulated cloud.

use std::sync::Arc;

use landfall_exoscale::client::credentials::{Credentials, CredentialsSource};
use landfall_exoscale::client::{
    Begun, Cloud, CloudConfig, Given, NoAnswer, Pending, Progress, Transport,
};
use landfall_exoscale::objects::{
    CreateLoadBalancer, CreateService, Healthcheck, HealthcheckMode, Id, Labels, Protocol,
    Reference, Strategy,
};
use landfall_testkit::exoscale::{KEY, SECRET, Sim, ZONE};

use crate::schema;

/// Returns the settings for the simulated cloud.
pub fn config(sim: &Sim) -> CloudConfig {
    let given = Given {
        api_key: Some(KEY.to_owned()),
        api_secret: Some(SECRET.into()),
        zone: Some(ZONE.to_owned()),
        api_endpoint: Some(sim.endpoint()),
        ..Given::default()
    };
    given.complete("landfall/test".to_owned()).unwrap()
}

/// Returns a client with credentials from elsewhere.
pub fn cloud_with(sim: &Sim, credentials: CredentialsSource) -> Cloud {
    let config = CloudConfig {
        credentials,
        ..config(sim)
    };
    Cloud::over(config, transport(sim)).unwrap()
}

/// Returns a client.
pub fn cloud(sim: &Sim) -> Cloud {
    Cloud::over(config(sim), transport(sim)).unwrap()
}

pub fn key(key: &str, secret: &str) -> CredentialsSource {
    CredentialsSource::Given(Credentials {
        key: key.to_owned(),
        secret: secret.into(),
    })
}

/// Returns a transport that checks all that is said.
pub fn transport(sim: &Sim) -> Transport {
    let sim = sim.clone();
    Transport::InProcess(Arc::new(move |request| {
        let sim = sim.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let (method, uri) = (head.method.clone(), head.uri.clone());
            let request = ::http::Request::from_parts(head, body.clone());
            let answer = sim.answer(request).await;
            let answer = answer.map_err(|why| NoAnswer::Lost(why.to_string()))?;
            if answer.status().is_success() {
                let query = uri.query().unwrap_or_default();
                schema::check(method.as_str(), uri.path(), query, &body, answer.body());
            }
            Ok(answer)
        })
    }))
}

/// Waits for the end of a change, and returns what it was about.
pub async fn end(cloud: &Cloud, begun: Begun) -> Option<Id> {
    match begun {
        Begun::Done(id) => id,
        Begun::Pending(operation) => wait(cloud, operation).await.unwrap(),
    }
}

/// Polls an operation until it has ended.
pub async fn wait(
    cloud: &Cloud,
    mut operation: Pending,
) -> Result<Option<Id>, landfall_exoscale::client::ApiError> {
    loop {
        match cloud.poll(&mut operation).await? {
            Progress::Done(id) => return Ok(id),
            Progress::Pending(delay) => tokio::time::sleep(delay).await,
        }
    }
}

pub fn nlb(name: &str) -> CreateLoadBalancer {
    CreateLoadBalancer {
        name: name.to_owned(),
        description: None,
        labels: Labels::new(),
    }
}

pub fn service(port: u16, pool: &str) -> CreateService {
    CreateService {
        name: format!("uid-{port}"),
        description: None,
        instance_pool: Reference { id: Id::from(pool) },
        protocol: Protocol::Tcp,
        strategy: Strategy::RoundRobin,
        port,
        target_port: 30_000 + port,
        healthcheck: Healthcheck {
            mode: Some(HealthcheckMode::Tcp),
            port: Some(30_000 + port),
            interval: Some(10),
            timeout: Some(5),
            retries: Some(1),
            ..Healthcheck::default()
        },
    }
}
