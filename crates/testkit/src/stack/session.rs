//! A user of the stack: logs in with a password, finds services in the catalogue, asks them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::http::{Answer, Client, Method, Request, USER_AGENT};
use super::{Service, StackError};

/// The credentials. The password is never shown.
#[derive(Clone)]
pub(super) struct Account {
    pub(super) auth_url: String,
    pub(super) username: String,
    pub(super) password: String,
    /// Name of the project.
    pub(super) project: String,
}

/// A user that logs in on first use, and again after a 401.
#[derive(Clone)]
pub(super) struct Session {
    client: Client,
    account: Account,
    login: Arc<Mutex<Option<Login>>>,
}

#[derive(Clone)]
struct Login {
    token: String,
    catalogue: BTreeMap<&'static str, String>,
}

// === impl Session ===

impl Session {
    pub(super) fn new(client: Client, account: Account) -> Self {
        Self {
            client,
            account,
            login: Arc::default(),
        }
    }

    pub(super) fn account(&self) -> &Account {
        &self.account
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// The token in use. Logs in, if there is no token yet.
    pub(super) async fn token(&self) -> Result<String, StackError> {
        Ok(self.login().await?.token)
    }

    /// Forgets the token.
    pub(super) fn log_out(&self) {
        if let Ok(mut login) = self.login.lock() {
            *login = None;
        }
    }

    /// Where a service is, without a slash at the end.
    pub(super) async fn endpoint(&self, service: Service) -> Result<String, StackError> {
        let login = self.login().await?;
        let found = login.catalogue.get(service.kind()).cloned();
        found.ok_or_else(|| StackError::Answer(format!("the catalogue lacks {}", service.kind())))
    }

    /// Asks, and returns the answer whatever its status.
    pub(super) async fn ask(
        &self,
        method: Method,
        service: Service,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Answer, StackError> {
        let mut second = false;
        loop {
            let login = self.login().await?;
            let url = format!("{}{path}", self.endpoint(service).await?);
            let answer = self
                .client
                .send(Request {
                    method: method.clone(),
                    url: &url,
                    user_agent: USER_AGENT,
                    token: Some(&login.token),
                    body,
                })
                .await?;
            if answer.status != 401 || second {
                return Ok(answer);
            }
            second = true;
            self.log_out();
        }
    }

    /// Asks, and fails unless it was carried out.
    pub(super) async fn call(
        &self,
        method: Method,
        service: Service,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, StackError> {
        let request = format!("{method} {path} ({})", service.kind());
        self.ask(method, service, path, body)
            .await?
            .successful(&request)
    }

    /// Asks for a list, which stands under a name in the answer.
    pub(super) async fn list(
        &self,
        service: Service,
        path: &str,
        name: &str,
    ) -> Result<Vec<Value>, StackError> {
        let mut answer = self.call(Method::GET, service, path, None).await?;
        match answer.get_mut(name).map(Value::take) {
            Some(Value::Array(items)) => Ok(items),
            _ => Err(StackError::Answer(format!("{path} without {name}"))),
        }
    }

    /// Creates something and returns it: both the body and the answer hold it under its name.
    pub(super) async fn create(
        &self,
        service: Service,
        path: &str,
        name: &str,
        what: Value,
    ) -> Result<Value, StackError> {
        let body = json!({ name: what });
        let mut answer = self.call(Method::POST, service, path, Some(&body)).await?;
        match answer.get_mut(name).map(Value::take) {
            Some(made @ Value::Object(_)) => Ok(made),
            _ => Err(StackError::Answer(format!("{path} without {name}"))),
        }
    }

    /// Deletes. What is gone already is as good.
    pub(super) async fn delete(&self, service: Service, path: &str) -> Result<(), StackError> {
        let answer = self.ask(Method::DELETE, service, path, None).await?;
        if answer.status == 404 {
            return Ok(());
        }
        let request = format!("DELETE {path} ({})", service.kind());
        answer.successful(&request).map(drop)
    }

    async fn login(&self) -> Result<Login, StackError> {
        let known = self.login.lock().ok().and_then(|login| login.clone());
        if let Some(login) = known {
            return Ok(login);
        }
        let account = &self.account;
        let body = json!({"auth": {
            "identity": {"methods": ["password"], "password": {"user": {
                "name": account.username,
                "password": account.password,
                "domain": {"id": "default"},
            }}},
            "scope": {"project": {"name": account.project, "domain": {"id": "default"}}},
        }});
        let url = format!("{}/auth/tokens", account.auth_url);
        let answer = self
            .client
            .send(Request {
                method: Method::POST,
                url: &url,
                user_agent: USER_AGENT,
                token: None,
                body: Some(&body),
            })
            .await?;
        let token = answer.token.clone();
        let body = answer.successful("POST /auth/tokens (identity)")?;
        let login = Login {
            token: token.ok_or_else(|| StackError::Answer("a login without token".to_owned()))?,
            catalogue: catalogue(&body, &account.auth_url),
        };
        if let Ok(mut slot) = self.login.lock() {
            *slot = Some(login.clone());
        }
        Ok(login)
    }
}

/// The public addresses by kind of service. Keystone is where we just were.
fn catalogue(body: &Value, auth_url: &str) -> BTreeMap<&'static str, String> {
    let entries = body["token"]["catalog"].as_array();
    let mut addresses = BTreeMap::new();
    for service in Service::ALL {
        let entry = entries
            .into_iter()
            .flatten()
            .find(|entry| entry["type"] == service.kind());
        let endpoints = entry.and_then(|entry| entry["endpoints"].as_array());
        let public = endpoints
            .into_iter()
            .flatten()
            .find(|endpoint| endpoint["interface"] == "public");
        if let Some(url) = public.and_then(|endpoint| endpoint["url"].as_str()) {
            addresses.insert(service.kind(), url.trim_end_matches('/').to_owned());
        }
    }
    // Paths begin with their version for every service.
    let root = auth_url.trim_end_matches('/').trim_end_matches("/v3");
    addresses.insert(Service::Identity.kind(), root.to_owned());
    addresses
}
