//! Operations: what every change is answered with, and what it leads to in the end.

use serde_json::{Value, json};
use tokio::time::Instant;

use super::operation::{Change, End, Fate, Operation};
use super::settings::Parallel;
use super::wire::{Answer, Refused};
use super::world::World;

// === impl World ===

impl World {
    /// Begins a change of an NLB, and returns the operation.
    pub fn begin(&mut self, load_balancer: &str, change: Change) -> Value {
        let id = self.id();
        let busy = self.is_busy(load_balancer);
        let fate = self.fates.pop_front();
        let stuck = busy && self.settings.parallel == Parallel::Stuck;
        let fate = fate.unwrap_or_else(|| {
            if stuck {
                Fate::stuck()
            } else {
                Fate::default()
            }
        });
        let at_once = fate.at_once;
        self.mark(load_balancer, &change);
        let operation = Operation {
            load_balancer: load_balancer.to_owned(),
            change,
            fate,
            polls_left: self.settings.polls,
            ends_at: Instant::now() + self.settings.duration,
            ended: false,
        };
        self.operations.insert(id.clone(), operation);
        if at_once {
            self.end(&id);
        }
        self.operation(&id)
    }

    /// Refuses a change while another one of the NLB goes on, if the settings say so.
    pub fn admit(&self, load_balancer: &str) -> Result<(), Refused> {
        if self.settings.parallel == Parallel::Refused && self.is_busy(load_balancer) {
            return Err(Refused::new(409, "the load balancer is being changed"));
        }
        Ok(())
    }

    fn is_busy(&self, load_balancer: &str) -> bool {
        self.operations
            .values()
            .any(|it| it.load_balancer == load_balancer && !it.ended)
    }

    /// Answers a request for an operation; time passes for it.
    pub fn poll(&mut self, id: &str) -> Answer {
        let Some(operation) = self.operations.get_mut(id) else {
            return Err(Refused::missing("operation"));
        };
        operation.polls_left = operation.polls_left.saturating_sub(1);
        if operation.polls_left == 0 {
            self.end(id);
        }
        Ok(self.operation(id))
    }

    /// Ends all operations whose time has come.
    pub fn settle_due(&mut self) {
        let now = Instant::now();
        let due = self.operations.iter();
        let due = due.filter(|(_, it)| !it.ended && it.ends_at <= now);
        let due: Vec<_> = due.map(|(id, _)| id.clone()).collect();
        for id in due {
            self.end(&id);
        }
    }

    fn operation(&self, id: &str) -> Value {
        let Some(operation) = self.operations.get(id) else {
            return Value::Null;
        };
        let mut answer = json!({ "id": id });
        if operation.fate.has_reference {
            let of = &operation.load_balancer;
            answer["reference"] = json!({
                "id": of, "link": format!("/v2/load-balancer/{of}"),
                "command": "get-load-balancer",
            });
        }
        let state = match &operation.fate.end {
            _ if !operation.ended => "pending",
            End::Never => "pending",
            End::Success => "success",
            End::Timeout => "timeout",
            End::Failure(reason, message) => {
                answer["reason"] = json!(reason);
                answer["message"] = json!(message);
                "failure"
            }
        };
        answer["state"] = json!(state);
        answer
    }

    /// Shows that a change has begun.
    fn mark(&mut self, load_balancer: &str, change: &Change) {
        let Some(lb) = self.load_balancers.get_mut(load_balancer) else {
            return;
        };
        let (fields, state) = match change {
            Change::Create | Change::Update(_) | Change::Reset(_) => return,
            Change::Delete => (Some(&mut lb.fields), "deleting"),
            Change::CreateService(id) => (lb.services.get_mut(id), "creating"),
            Change::UpdateService(id, _) | Change::ResetService(id) => {
                (lb.services.get_mut(id), "updating")
            }
            Change::DeleteService(id) => (lb.services.get_mut(id), "deleting"),
        };
        if let Some(fields) = fields {
            fields.insert("state".to_owned(), json!(state));
        }
    }

    fn end(&mut self, id: &str) {
        let Some(operation) = self.operations.get_mut(id) else {
            return;
        };
        if std::mem::replace(&mut operation.ended, true) {
            return;
        }
        let operation = operation.clone();
        if operation.fate.carried_out {
            self.carry_out(&operation.load_balancer, operation.change);
        } else {
            self.undo(&operation.load_balancer, &operation.change);
        }
    }

    fn carry_out(&mut self, load_balancer: &str, change: Change) {
        let address = matches!(change, Change::Create).then(|| self.address());
        if matches!(change, Change::Delete) {
            self.load_balancers.remove(load_balancer);
        }
        let Some(lb) = self.load_balancers.get_mut(load_balancer) else {
            return;
        };
        let running = ("state".to_owned(), json!("running"));
        match change {
            Change::Create => {
                lb.fields.extend([running]);
                lb.fields.insert("ip".to_owned(), json!(address));
            }
            Change::Update(fields) => lb.fields.extend(fields),
            Change::Reset(field) => drop(lb.fields.remove(&field)),
            Change::Delete => {}
            Change::CreateService(id) => {
                // It may have been deleted by hand meanwhile.
                if let Some(service) = lb.services.get_mut(&id) {
                    service.extend([running]);
                }
            }
            Change::UpdateService(id, fields) => {
                if let Some(service) = lb.services.get_mut(&id) {
                    service.extend(fields);
                    service.extend([running]);
                }
            }
            Change::ResetService(id) => {
                if let Some(service) = lb.services.get_mut(&id) {
                    service.remove("description");
                    service.extend([running]);
                }
            }
            Change::DeleteService(id) => drop(lb.services.remove(&id)),
        }
    }

    /// What a failed change leaves: new objects are gone, others as they were.
    fn undo(&mut self, load_balancer: &str, change: &Change) {
        if matches!(change, Change::Create) {
            self.load_balancers.remove(load_balancer);
        }
        let Some(lb) = self.load_balancers.get_mut(load_balancer) else {
            return;
        };
        let running = json!("running");
        match change {
            Change::Create | Change::Update(_) | Change::Reset(_) => {}
            Change::Delete => drop(lb.fields.insert("state".to_owned(), running)),
            Change::CreateService(id) => drop(lb.services.remove(id)),
            Change::UpdateService(id, _) | Change::ResetService(id) | Change::DeleteService(id) => {
                if let Some(service) = lb.services.get_mut(id) {
                    service.insert("state".to_owned(), running);
                }
            }
        }
    }
}
