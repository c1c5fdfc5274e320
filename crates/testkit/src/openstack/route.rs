//! The way of a request to its service. No sockets, no waiting.

use bytes::Bytes;
use http::Method;
use serde_json::Value;
use tokio::time::Instant;

use super::wire::{Ask, Handled, Reply, Service, parse_query};
use super::world::World;
use super::{barbican, keystone, neutron, octavia};

impl World {
    /// Answers a request as it came in.
    pub fn handle(&mut self, request: &http::Request<Bytes>, url: &str) -> Reply {
        self.settle_due();
        let Some((service, base)) = self.service_of(url) else {
            return Reply::empty(404);
        };
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let header = |name: &str| request.headers().get(name)?.to_str().ok();
        let body = request.body();
        if body.len() > self.settings.body_limit {
            return too_large();
        }
        let token = header("x-auth-token");
        let parts = path.get(base..).unwrap_or_default().split('/');
        let mut ask = Ask {
            method: request.method(),
            path: parts.filter(|part| !part.is_empty()).collect(),
            query: parse_query(query),
            body: Value::Null,
            token,
            if_match: header("if-match"),
            project: String::new(),
            url: path.to_owned(),
        };
        if let Some(answer) = self.answer_open(service, &ask) {
            return answer;
        }
        if service != Service::Identity {
            let known = token.and_then(|token| self.tokens.get(token));
            match known {
                Some((until, project)) if *until > Instant::now() => {
                    ask.project.clone_from(project);
                }
                _ => return keystone::unauthorized(),
            }
        }
        if !body.is_empty() {
            match serde_json::from_slice(body) {
                Ok(value) => ask.body = value,
                Err(error) => return broken_body(service, &error),
            }
        }
        let handled = self.dispatch(service, &ask);
        handled.unwrap_or_else(|refusal| refusal)
    }

    /// What needs no token: the versions documents.
    fn answer_open(&self, service: Service, ask: &Ask<'_>) -> Option<Reply> {
        let root = ask.method == Method::GET;
        match service {
            Service::Identity if root && ask.path.len() < 2 => {
                Some(keystone::versions(self, ask.path.first().copied()))
            }
            Service::LoadBalancer if root && ask.path.is_empty() => Some(octavia::versions(self)),
            Service::Network if root && ask.path.is_empty() => Some(neutron::versions(self)),
            Service::KeyManager if root && ask.path.is_empty() => Some(barbican::versions(self)),
            _ => None,
        }
    }

    /// Hands the request to its service, the token being good.
    pub fn dispatch(&mut self, service: Service, ask: &Ask<'_>) -> Handled {
        match service {
            Service::Identity => keystone::handle(self, ask),
            Service::Network => neutron::handle(self, ask),
            Service::LoadBalancer => octavia::handle(self, ask),
            Service::KeyManager => barbican::handle(self, ask),
        }
    }
}

fn too_large() -> Reply {
    // oslo.middleware answers by webob, as a page.
    let page =
        b"<html>\n <head>\n  <title>413 Request Entity Too Large</title>\n </head>\n</html>\n";
    Reply {
        status: 413,
        body: Bytes::from_static(page),
        headers: vec![("content-type", "text/html; charset=UTF-8".to_owned())],
    }
}

fn broken_body(service: Service, error: &serde_json::Error) -> Reply {
    match service {
        Service::LoadBalancer => Reply::balancer(400, "Request is not in valid JSON format"),
        Service::Network => Reply::network(
            400,
            "HTTPBadRequest",
            format!("The server could not comply with the request since it is malformed: {error}"),
        ),
        Service::Identity | Service::KeyManager => {
            Reply::identity(400, "Bad Request", "Malformed JSON in request body.")
        }
    }
}
