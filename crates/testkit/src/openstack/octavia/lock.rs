//! The lock of a load balancer: which request may write, when it ends, and what becomes of what was
//! written.

use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::load_balancers::{
    ACTIVE, ERROR, Fate, PENDING_CREATE, PENDING_DELETE, PENDING_UPDATE, Pending, Touched,
};
use super::super::wire::{Reply, Row, text};
use super::super::world::World;
use super::{forbidden, missing};

/// Puts a status into a row.
pub(super) fn set_status(row: &mut Row, status: &str) {
    row.insert("provisioning_status".to_owned(), json!(status));
}

/// Notes when the row changed.
pub(super) fn touch(row: &mut Row, now: &str) {
    row.insert("updated_at".to_owned(), json!(now));
}

impl World {
    /// The project's load balancer, or why not.
    pub(super) fn own_balancer(&self, id: &str, project: &str) -> Result<&Row, Reply> {
        let balancer = self.balancers.get(id);
        let row = &balancer.ok_or_else(|| missing("Load Balancer", id))?.row;
        if text(row, "project_id") != project {
            return Err(forbidden());
        }
        Ok(row)
    }

    /// Whether a child may be written.
    pub(super) fn child_writable(&self, id: &str) -> Result<(), Reply> {
        let balancer = self.balancers.get(id);
        let row = &balancer.ok_or_else(|| missing("Load Balancer", id))?.row;
        if text(row, "provisioning_status") == ACTIVE {
            return Ok(());
        }
        let text = format!("Load Balancer {id} is immutable and cannot be updated.");
        Err(Reply::balancer(409, text))
    }

    /// Whether the load balancer itself may be written.
    pub(super) fn balancer_writable(&self, id: &str, good: &[&str]) -> Result<(), Reply> {
        let balancer = self.balancers.get(id);
        let row = &balancer.ok_or_else(|| missing("Load Balancer", id))?.row;
        let status = text(row, "provisioning_status");
        if good.contains(&status) {
            return Ok(());
        }
        let text = format!("Invalid state {status} of loadbalancer resource {id}");
        Err(Reply::balancer(409, text))
    }

    /// Locks a load balancer for a write and plans the end of the lock.
    pub(super) fn lock(&mut self, id: &str, write: &str, status: &str, touched: Vec<Touched>) {
        let settle = &self.settings.settle;
        let mut time = match write {
            "create" => settle.create,
            "delete" => settle.delete,
            "listener" => settle.listener,
            "pool" => settle.pool,
            "members" => settle.members,
            "monitor" => settle.monitor,
            "failover" => settle.failover,
            _ => settle.update,
        };
        let fate = match self.next_fates.pop_front() {
            Some(fate) => fate,
            None => match &mut self.fates {
                Some(decide) => decide(write, id),
                None => Fate::Active,
            },
        };
        if let Fate::Late(longer) = fate {
            time = longer;
        }
        let ticket = self.next_serial();
        let now = self.clock.plain();
        let Some(balancer) = self.balancers.get_mut(id) else {
            return;
        };
        set_status(&mut balancer.row, status);
        if write != "create" {
            touch(&mut balancer.row, &now);
        }
        balancer.pending = Some(Pending {
            ticket,
            touched,
            fate,
        });
        if fate != Fate::Stuck {
            self.due
                .insert((Instant::now() + time, ticket), id.to_owned());
        }
    }

    /// Ends all locks whose time has come.
    pub(in super::super) fn settle_due(&mut self) {
        if self.due.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some(entry) = self.due.first_entry() {
            let (at, ticket) = *entry.key();
            if at > now {
                return;
            }
            let id = entry.remove();
            let waiting = self.balancers.get(&id).and_then(|b| b.pending.as_ref());
            if waiting.is_some_and(|pending| pending.ticket == ticket) {
                let seconds = self.clock.seconds_at(at);
                self.settle(&id, seconds);
            }
        }
    }

    /// Ends the lock of one load balancer now.
    pub(in super::super) fn settle(&mut self, id: &str, seconds: i64) {
        let now = super::super::clock::plain(seconds);
        let Some(balancer) = self.balancers.get_mut(id) else {
            return;
        };
        let Some(pending) = balancer.pending.take() else {
            return;
        };
        let deleting = text(&balancer.row, "provisioning_status") == PENDING_DELETE;
        let own = pending.touched.is_empty() || deleting;
        let broken = match pending.fate {
            Fate::BalancerError => true,
            Fate::ChildError => own,
            Fate::Active | Fate::Stuck | Fate::Late(_) => false,
        };
        let child_broken = matches!(pending.fate, Fate::BalancerError | Fate::ChildError);
        if deleting && !broken {
            self.purge(id);
            return;
        }
        set_status(&mut balancer.row, if broken { ERROR } else { ACTIVE });
        let operating = if broken { "ERROR" } else { "ONLINE" };
        balancer
            .row
            .insert("operating_status".to_owned(), json!(operating));
        touch(&mut balancer.row, &now);
        for touched in pending.touched {
            self.finish(&touched, child_broken, &now, seconds);
        }
    }

    fn finish(&mut self, touched: &Touched, broken: bool, now: &str, seconds: i64) {
        match touched {
            Touched::Listener(id) => {
                let row = self.listeners.get_mut(id).map(|listener| &mut listener.row);
                if row.is_some_and(|row| end_row(row, broken, now)) {
                    self.drop_listener(id);
                }
            }
            Touched::Pool(id) => {
                let row = self.pools.get_mut(id).map(|pool| &mut pool.row);
                if row.is_some_and(|row| end_row(row, broken, now)) {
                    self.drop_pool(id);
                }
            }
            Touched::Monitor(id) => {
                let row = self.monitors.get_mut(id).map(|monitor| &mut monitor.row);
                if row.is_some_and(|row| end_row(row, broken, now)) {
                    self.drop_monitor(id);
                }
            }
            Touched::Members(id) => self.end_members(id, broken, seconds),
        }
    }

    fn end_members(&mut self, pool: &str, broken: bool, seconds: i64) {
        let Some(pool) = self.pools.get_mut(pool) else {
            return;
        };
        let monitored = pool
            .row
            .get("healthmonitor_id")
            .is_some_and(|id| !id.is_null());
        let before = pool.members.len();
        pool.members.retain_mut(|member| match member.status {
            PENDING_DELETE if !broken => false,
            PENDING_CREATE | PENDING_UPDATE | PENDING_DELETE => {
                member.status = if broken { ERROR } else { ACTIVE };
                member.operating = if monitored { "ONLINE" } else { "NO_MONITOR" };
                member.updated = Some(seconds);
                true
            }
            _ => true,
        });
        let gone = before - pool.members.len();
        let project = text(&pool.row, "project_id").to_owned();
        self.count_members(&project, 0, gone);
    }

    /// Keeps the number of members per project, for the quota.
    pub(super) fn count_members(&mut self, project: &str, more: usize, fewer: usize) {
        let count = self.member_count.entry(project.to_owned()).or_default();
        *count = (*count + more).saturating_sub(fewer);
    }

    /// Removes a load balancer with all below and its own VIP port.
    pub(in super::super) fn purge(&mut self, id: &str) {
        let Some(balancer) = self.balancers.remove(id) else {
            return;
        };
        for listener in &balancer.listeners {
            self.listeners.remove(listener);
        }
        for pool in &balancer.pools {
            self.drop_pool(pool);
        }
        let port = text(&balancer.row, "vip_port_id");
        if balancer.owns_port {
            self.drop_port(port);
        } else if let Some(row) = self.ports.get_mut(port) {
            row.insert("device_owner".to_owned(), json!(""));
            let old = row.insert("device_id".to_owned(), json!(""));
            let old = old.as_ref().and_then(Value::as_str).unwrap_or_default();
            self.index_device(port, old, "");
        }
    }

    /// Removes a listener.
    pub(in super::super) fn drop_listener(&mut self, id: &str) {
        self.attach(id, None);
        if let Some(listener) = self.listeners.remove(id)
            && let Some(balancer) = self.balancers.get_mut(&listener.balancer)
        {
            balancer.listeners.retain(|other| other != id);
        }
    }

    /// Removes a pool with members and monitor; listeners lose their default pool.
    pub(in super::super) fn drop_pool(&mut self, id: &str) {
        let Some(pool) = self.pools.get(id) else {
            return;
        };
        let users = pool.row.get("listeners").and_then(Value::as_array);
        let users = users.into_iter().flatten();
        let users: Vec<String> = users
            .filter_map(|one| Some(one.get("id")?.as_str()?.to_owned()))
            .collect();
        for listener in users {
            self.attach(&listener, None);
        }
        let Some(pool) = self.pools.remove(id) else {
            return;
        };
        self.monitors.remove(text(&pool.row, "healthmonitor_id"));
        self.count_members(text(&pool.row, "project_id"), 0, pool.members.len());
        if let Some(balancer) = self.balancers.get_mut(&pool.balancer) {
            balancer.pools.retain(|other| other != id);
        }
    }

    /// Removes a monitor.
    pub(in super::super) fn drop_monitor(&mut self, id: &str) {
        if let Some(monitor) = self.monitors.remove(id)
            && let Some(pool) = self.pools.get_mut(&monitor.pool)
        {
            pool.row.remove("healthmonitor_id");
            for member in &mut pool.members {
                member.operating = "NO_MONITOR";
            }
        }
    }

    /// Makes a pool the default of a listener, on both sides.
    pub(super) fn attach(&mut self, listener: &str, pool: Option<&str>) {
        let Some(found) = self.listeners.get_mut(listener) else {
            return;
        };
        let old = found.row.insert("default_pool_id".to_owned(), json!(pool));
        let old = old.as_ref().and_then(Value::as_str);
        let old = old.and_then(|old| self.pools.get_mut(old));
        if let Some(Value::Array(users)) = old.and_then(|old| old.row.get_mut("listeners")) {
            users.retain(|user| user.get("id").and_then(Value::as_str) != Some(listener));
        }
        let new = pool.and_then(|pool| self.pools.get_mut(pool));
        if let Some(Value::Array(users)) = new.and_then(|new| new.row.get_mut("listeners")) {
            users.push(json!({"id": listener}));
        }
    }
}

/// Ends a child's lock; true if it is to go.
fn end_row(row: &mut Row, broken: bool, now: &str) -> bool {
    let status = text(row, "provisioning_status");
    if status == PENDING_DELETE && !broken {
        return true;
    }
    if status.starts_with("PENDING") {
        set_status(row, if broken { ERROR } else { ACTIVE });
        let operating = if broken { "ERROR" } else { "ONLINE" };
        row.insert("operating_status".to_owned(), json!(operating));
        touch(row, now);
    }
    false
}
