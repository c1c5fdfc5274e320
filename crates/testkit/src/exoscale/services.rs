//! NLB services.

use serde_json::{Map, Value, json};

use super::operation::Change;
use super::rules::{Checked, healthcheck};
use super::wire::{Answer, Refused};
use super::world::World;

type Fields = Map<String, Value>;

const UPDATABLE: [&str; 7] = [
    "name",
    "description",
    "protocol",
    "strategy",
    "port",
    "target-port",
    "healthcheck",
];

impl World {
    pub fn get_service(&self, load_balancer: &str, id: &str) -> Answer {
        self.stored(load_balancer, id).map(|it| self.service(it))
    }

    pub fn create_service(&mut self, load_balancer: &str, body: &Fields) -> Answer {
        self.exists(load_balancer)?;
        let known: Vec<_> = UPDATABLE.into_iter().chain(["instance-pool"]).collect();
        let mut checked = Checked::new(body, &known);
        checked.require(&[
            "name",
            "instance-pool",
            "protocol",
            "strategy",
            "port",
            "target-port",
            "healthcheck",
        ]);
        self.check_service(checked, body)?;
        let pool = body.get("instance-pool").and_then(|it| it["id"].as_str());
        let pool = pool.ok_or_else(|| Refused::new(400, "instance-pool needs an id"))?;
        if !self.pools.contains_key(pool) {
            return Err(Refused::missing("instance pool"));
        }
        self.check_unique(load_balancer, None, body)?;
        let limit = self.settings.max_services;
        if self.exists(load_balancer)?.services.len() >= limit {
            return Err(Refused::new(412, format!("{limit} services are the limit")));
        }
        self.admit(load_balancer)?;
        let id = self.id();
        let mut fields = body.clone();
        fields.insert("id".to_owned(), json!(id));
        fields.insert("instance-pool".to_owned(), json!({ "id": pool }));
        let check = fields.entry("healthcheck").or_insert(json!({}));
        for (key, default) in [("mode", json!("tcp")), ("interval", 10.into())] {
            default_to(check, key, default);
        }
        default_to(check, "timeout", 2.into());
        default_to(check, "retries", 1.into());
        if let Some(lb) = self.load_balancers.get_mut(load_balancer) {
            lb.services.insert(id.clone(), fields);
        }
        Ok(self.begin(load_balancer, Change::CreateService(id)))
    }

    pub fn update_service(&mut self, load_balancer: &str, id: &str, body: &Fields) -> Answer {
        let before = self.stored(load_balancer, id)?.clone();
        self.check_service(Checked::new(body, &UPDATABLE), body)?;
        let mut after = before.clone();
        after.extend(body.clone());
        self.check_unique(load_balancer, Some(id), &after)?;
        self.admit(load_balancer)?;
        let mut changed = body.clone();
        if self.settings.merges_healthcheck
            && let Some(Value::Object(new)) = changed.get_mut("healthcheck")
            && let Some(Value::Object(old)) = before.get("healthcheck")
        {
            let mut merged = old.clone();
            merged.extend(std::mem::take(new));
            *new = merged;
        }
        let change = Change::UpdateService(id.to_owned(), changed);
        Ok(self.begin(load_balancer, change))
    }

    pub fn reset_service(&mut self, load_balancer: &str, id: &str, field: &str) -> Answer {
        self.stored(load_balancer, id)?;
        if field != "description" {
            return Err(Refused::new(400, format!("{field} can't be reset")));
        }
        self.admit(load_balancer)?;
        Ok(self.begin(load_balancer, Change::ResetService(id.to_owned())))
    }

    pub fn delete_service(&mut self, load_balancer: &str, id: &str) -> Answer {
        self.stored(load_balancer, id)?;
        self.admit(load_balancer)?;
        Ok(self.begin(load_balancer, Change::DeleteService(id.to_owned())))
    }

    fn stored(&self, load_balancer: &str, id: &str) -> Result<&Fields, Refused> {
        let services = &self.exists(load_balancer)?.services;
        services
            .get(id)
            .ok_or_else(|| Refused::missing("load balancer service"))
    }

    fn check_service(&self, mut checked: Checked<'_>, body: &Fields) -> Result<(), Refused> {
        checked.text("name", 1);
        checked.text("description", self.shortest_description());
        checked.word("protocol", &["tcp", "udp"]);
        checked.word("strategy", &["round-robin", "maglev-hash", "source-hash"]);
        checked.number("port", 1, 65_535);
        checked.number("target-port", 1, 65_535);
        checked.also(body.get("healthcheck").map(healthcheck).unwrap_or_default());
        checked.done()
    }

    /// Refuses a port with a protocol that another service has, and its name.
    fn check_unique(
        &self,
        load_balancer: &str,
        id: Option<&str>,
        wanted: &Fields,
    ) -> Result<(), Refused> {
        let services = self.exists(load_balancer)?.services.iter();
        for (_, other) in services.filter(|(other, _)| Some(other.as_str()) != id) {
            let same = |key: &str| wanted.get(key) == other.get(key);
            if same("port") && same("protocol") {
                return Err(Refused::new(409, "port and protocol are already in use"));
            }
            if self.settings.unique_service_names && same("name") {
                return Err(Refused::new(409, "the name is already in use"));
            }
        }
        Ok(())
    }
}

fn default_to(object: &mut Value, key: &str, default: Value) {
    if let Value::Object(object) = object {
        object.entry(key).or_insert(default);
    }
}
