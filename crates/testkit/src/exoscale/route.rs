//! From a request to the function that answers it.

use bytes::Bytes;
use http::Request;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::ZONE;
use super::signature::verify;
use super::wire::{Answer, Refused, Reply};
use super::world::World;

impl World {
    pub fn handle(&mut self, request: &Request<Bytes>) -> Reply {
        match self.answer(request) {
            Ok(answer) => Reply::json(200, &answer),
            Err(refused) => refused.reply(self.settings.errors),
        }
    }

    fn answer(&mut self, request: &Request<Bytes>) -> Answer {
        let path = request.uri().path();
        let path = path.strip_prefix("/v2/").unwrap_or_default();
        let parts: Vec<_> = path.split('/').collect();
        let method = request.method().as_str();
        if (method, parts.as_slice()) == ("GET", ["zone"].as_slice()) {
            let zone = json!({
                "id": "00000000-0000-4000-8000-ffffffffffff", "name": ZONE,
                "api-endpoint": self.endpoint, "sos-endpoint": "http://sos.exoscale.test",
            });
            let other = json!({"name": "de-fra-1", "api-endpoint": "http://fra.exoscale.test/v2"});
            return Ok(json!({"zones": [other, zone]}));
        }
        let now = Timestamp::now().as_second() + self.settings.clock_ahead;
        verify(request, &self.keys, now).map_err(|why| {
            let status = self.settings.refused_key;
            Refused::new(status, format!("Invalid credentials: {why}"))
        })?;
        match method {
            "GET" => self.read(&parts, request.uri().query().unwrap_or_default()),
            "DELETE" => self.delete(&parts),
            _ => {
                let body: Map<String, Value> = serde_json::from_slice(request.body())
                    .map_err(|why| Refused::new(400, format!("Invalid body: {why}")))?;
                self.write(method, &parts, &body)
            }
        }
    }

    fn read(&mut self, parts: &[&str], query: &str) -> Answer {
        let found = |answer: Option<Value>, what| answer.ok_or_else(|| Refused::missing(what));
        match parts {
            ["load-balancer"] => Ok(self.list_load_balancers()),
            ["load-balancer", id] => self.get_load_balancer(id),
            ["load-balancer", of, "service", id] => self.get_service(of, id),
            ["operation", id] => self.poll(id),
            ["instance"] => {
                let pool = query
                    .split('&')
                    .find_map(|it| it.strip_prefix("manager-id="));
                let all = self.instances.iter();
                let all = all.filter(|(_, it)| pool.is_none() || it.pool.as_deref() == pool);
                let all: Vec<_> = all.filter_map(|(id, _)| self.instance(id)).collect();
                Ok(json!({ "instances": all }))
            }
            ["instance", id] => found(self.instance(id), "instance"),
            ["instance-pool"] => {
                let all: Vec<_> = self.pools.keys().filter_map(|id| self.pool(id)).collect();
                Ok(json!({ "instance-pools": all }))
            }
            ["instance-pool", id] => found(self.pool(id), "instance pool"),
            ["sks-cluster"] => {
                let all: Vec<_> = self.clusters.values().cloned().collect();
                Ok(json!({ "sks-clusters": all }))
            }
            ["sks-cluster", id] => found(self.clusters.get(*id).cloned(), "cluster"),
            ["quota", "network-load-balancer"] => Ok(json!({
                "resource": "network-load-balancer", "usage": self.load_balancers.len(),
                "limit": self.settings.max_load_balancers,
            })),
            _ => Err(Refused::missing("path")),
        }
    }

    fn write(&mut self, method: &str, parts: &[&str], body: &Map<String, Value>) -> Answer {
        match (method, parts) {
            ("POST", ["load-balancer"]) => self.create_load_balancer(body),
            ("PUT", ["load-balancer", id]) => self.update_load_balancer(id, body),
            ("POST", ["load-balancer", of, "service"]) => self.create_service(of, body),
            ("PUT", ["load-balancer", of, "service", id]) => self.update_service(of, id, body),
            _ => Err(Refused::missing("path")),
        }
    }

    fn delete(&mut self, parts: &[&str]) -> Answer {
        match parts {
            ["load-balancer", id] => self.delete_load_balancer(id),
            ["load-balancer", id, field] => self.reset_load_balancer(id, field),
            ["load-balancer", of, "service", id] => self.delete_service(of, id),
            ["load-balancer", of, "service", id, field] => self.reset_service(of, id, field),
            _ => Err(Refused::missing("path")),
        }
    }
}
