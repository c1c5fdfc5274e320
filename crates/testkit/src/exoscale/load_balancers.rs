//! NLBs.

use serde_json::{Map, Value, json};

use super::operation::Change;
use super::rules::Checked;
use super::wire::{Answer, Refused};
use super::world::{LoadBalancer, World};

const FIELDS: [&str; 3] = ["name", "description", "labels"];

impl World {
    pub fn list_load_balancers(&self) -> Value {
        let all = self.load_balancers.keys();
        let all: Vec<_> = all.filter_map(|id| self.load_balancer(id)).collect();
        json!({ "load-balancers": all })
    }

    pub fn get_load_balancer(&self, id: &str) -> Answer {
        self.load_balancer(id)
            .ok_or_else(|| Refused::missing("load balancer"))
    }

    pub fn create_load_balancer(&mut self, body: &Map<String, Value>) -> Answer {
        let mut checked = Checked::new(body, &FIELDS);
        checked.require(&["name"]);
        self.check_load_balancer(checked)?;
        self.check_name(None, body)?;
        let quota = self.settings.max_load_balancers;
        if self.load_balancers.len() >= quota {
            return Err(Refused::new(
                403,
                format!("quota of {quota} load balancers"),
            ));
        }
        let id = self.id();
        let mut fields = body.clone();
        fields.insert("id".to_owned(), json!(id));
        fields.insert("state".to_owned(), json!("creating"));
        fields.insert("created-at".to_owned(), json!("2026-01-01T00:00:00Z"));
        let load_balancer = LoadBalancer {
            fields,
            ..LoadBalancer::default()
        };
        self.load_balancers.insert(id.clone(), load_balancer);
        Ok(self.begin(&id, Change::Create))
    }

    pub fn update_load_balancer(&mut self, id: &str, body: &Map<String, Value>) -> Answer {
        self.exists(id)?;
        let checked = Checked::new(body, &FIELDS);
        self.check_load_balancer(checked)?;
        self.check_name(Some(id), body)?;
        self.admit(id)?;
        Ok(self.begin(id, Change::Update(body.clone())))
    }

    pub fn reset_load_balancer(&mut self, id: &str, field: &str) -> Answer {
        self.exists(id)?;
        if !["description", "labels"].contains(&field) {
            return Err(Refused::new(400, format!("{field} can't be reset")));
        }
        self.admit(id)?;
        Ok(self.begin(id, Change::Reset(field.to_owned())))
    }

    pub fn delete_load_balancer(&mut self, id: &str) -> Answer {
        let empty = self.exists(id)?.services.is_empty();
        if !empty && !self.settings.deletes_with_services {
            return Err(Refused::new(412, "the load balancer has services"));
        }
        self.admit(id)?;
        Ok(self.begin(id, Change::Delete))
    }

    pub fn exists(&self, id: &str) -> Result<&LoadBalancer, Refused> {
        self.load_balancers
            .get(id)
            .ok_or_else(|| Refused::missing("load balancer"))
    }

    fn check_load_balancer(&self, mut checked: Checked<'_>) -> Result<(), Refused> {
        checked.text("name", 1);
        checked.text("description", self.shortest_description());
        checked.labels();
        checked.done()
    }

    pub fn shortest_description(&self) -> usize {
        usize::from(!self.settings.accepts_empty_description)
    }

    fn check_name(&self, id: Option<&str>, body: &Map<String, Value>) -> Result<(), Refused> {
        let Some(name) = body.get("name") else {
            return Ok(());
        };
        let mut others = self.load_balancers.iter();
        let taken = others
            .any(|(other, it)| Some(other.as_str()) != id && it.fields.get("name") == Some(name));
        if taken {
            let status = self.settings.name_taken;
            return Err(Refused::new(
                status,
                format!("name {name} is already in use"),
            ));
        }
        Ok(())
    }
}
