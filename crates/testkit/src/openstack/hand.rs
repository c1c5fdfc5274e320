//! What happens behind the controller's back, and what a test wants to see: all of it without a
//! call in the log.

use std::collections::BTreeMap;
use std::net::IpAddr;

use http::Method;
use ipnet::IpNet;
use serde_json::{Value, json};

use super::Sim;
use super::barbican;
use super::load_balancers::Fate;
use super::octavia::full;
use super::wire::{Ask, Row, Service, parse_query, text};
use super::world::World;

/// A refusal of `Sim::hand`: status and body.
pub type Refusal = (u16, Value);

impl Sim {
    /// Carries out a request by hand, as our project: no token, no fault, not in the log, and load
    /// balancers settle at once. `path` is what follows the service's base, such as
    /// `/v2/lbaas/pools?loadbalancer_id=...`.
    pub fn hand(
        &self,
        service: Service,
        method: &Method,
        path: &str,
        body: Value,
    ) -> Result<Value, Refusal> {
        let project = self.project();
        self.hand_as(&project, service, method, path, body)
    }

    /// The same as another project.
    pub fn hand_as(
        &self,
        project: &str,
        service: Service,
        method: &Method,
        path: &str,
        body: Value,
    ) -> Result<Value, Refusal> {
        self.world(|world| {
            let fates = (world.fates.take(), std::mem::take(&mut world.next_fates));
            let (route, query) = path.split_once('?').unwrap_or((path, ""));
            let base = world.base(service).strip_suffix("/v3");
            let base = base.unwrap_or(world.base(service)).to_owned();
            let ask = Ask {
                method,
                path: route.split('/').filter(|part| !part.is_empty()).collect(),
                query: parse_query(query),
                body,
                token: None,
                if_match: None,
                project: project.to_owned(),
                url: format!("{base}{route}"),
            };
            let last = world.serial;
            let reply = world.dispatch(service, &ask);
            let locked: Vec<_> = world
                .due
                .range(..)
                .filter(|((_, ticket), _)| *ticket > last)
                .map(|(key, id)| (*key, id.clone()))
                .collect();
            let seconds = world.clock.seconds();
            for (key, id) in locked {
                world.due.remove(&key);
                world.settle(&id, seconds);
            }
            (world.fates, world.next_fates) = fates;
            let parse = |bytes: &[u8]| serde_json::from_slice(bytes).unwrap_or(Value::Null);
            match reply {
                Ok(reply) => Ok(parse(&reply.body)),
                Err(reply) => Err((reply.status, parse(&reply.body))),
            }
        })
    }

    /// Removes an object of any kind, with what hangs on it. Whether there was one.
    pub fn delete(&self, id: &str) -> bool {
        self.world(|world| {
            let parent = world.balancer_of(id);
            let known = if world.balancers.contains(id) {
                world.purge(id);
                true
            } else if world.listeners.contains(id) {
                world.drop_listener(id);
                true
            } else if world.pools.contains(id) {
                world.drop_pool(id);
                true
            } else if world.monitors.contains(id) {
                world.drop_monitor(id);
                true
            } else if world.ports.contains(id) {
                world.drop_port(id);
                true
            } else if world.floating_ips.contains(id) {
                world.drop_floating(id);
                true
            } else if world.groups.contains(id) {
                world.drop_group(id);
                true
            } else if world.rules.contains(id) {
                world.drop_rule(id);
                true
            } else {
                world.subnets.remove(id).is_some() || world.networks.remove(id).is_some()
            };
            world.touched_by_hand(parent.as_deref());
            known
        })
    }

    /// Changes the fields of an object of any kind but members, without any rule. Whether there is
    /// one. Change marks (`updated_at`, `revision_number`) move as they would.
    pub fn edit(&self, id: &str, change: impl FnOnce(&mut serde_json::Map<String, Value>)) -> bool {
        self.world(|world| {
            let parent = world.balancer_of(id);
            let Some(row) = world.row_mut(id) else {
                return false;
            };
            change(row);
            world.touched_by_hand(parent.as_deref());
            for kind in [
                "ports",
                "floatingips",
                "security-groups",
                "subnets",
                "networks",
            ] {
                world.bump(kind, id);
            }
            true
        })
    }

    /// Puts a load balancer into a provisioning status; a lock that it may have is gone.
    pub fn set_status(&self, id: &str, status: &str) {
        self.world(|world| {
            if let Some(balancer) = world.balancers.get_mut(id) {
                balancer.pending = None;
            }
        });
        self.edit(id, |row| {
            row.insert("provisioning_status".to_owned(), json!(status));
        });
    }

    /// Ends the lock of a stuck load balancer.
    pub fn release(&self, id: &str) {
        self.world(|world| {
            let seconds = world.clock.seconds();
            world.settle(id, seconds);
        });
    }

    /// How the next locks end, in this order; before what `on_lock` says.
    pub fn next_fate(&self, fate: Fate) {
        self.world(|world| world.next_fates.push_back(fate));
    }

    /// Decides how locks end: by the write (`create`, `update`, `delete`, `listener`, `pool`,
    /// `members`, `monitor`, `failover`) and the load balancer's id.
    pub fn on_lock(&self, decide: impl FnMut(&str, &str) -> Fate + Send + 'static) {
        self.world(|world| world.fates = Some(Box::new(decide)));
    }

    /// Adds a server with one address in the tenant's subnet that contains it. Its id.
    pub fn add_node(&self, name: &str, ip: IpAddr) -> String {
        let server = self.world(|world| world.dice.uuid());
        self.add_nic(name, &server, ip, true);
        server
    }

    /// Adds a port of a server, in the subnet that contains the address. Its id.
    pub fn add_nic(&self, name: &str, server: &str, ip: IpAddr, port_security: bool) -> String {
        self.world(|world| {
            let subnets = world.subnets.iter();
            let found = subnets.filter(|(_, row)| {
                let cidr = text(row, "cidr").parse::<IpNet>();
                cidr.is_ok_and(|cidr| cidr.contains(&ip)) && row.get("shared") != Some(&json!(true))
            });
            let found = found.map(|(id, row)| (id.to_owned(), text(row, "network_id").to_owned()));
            let (subnet, network) = found.last().unwrap_or_default();
            world.taken.insert((subnet.clone(), ip));
            world.insert_port(&json!({
                "name": name, "network_id": network, "device_id": server,
                    "device_owner": "compute:nova",
                "port_security_enabled": port_security,
                "fixed_ips": [{"subnet_id": subnet, "ip_address": ip.to_string()}],
            }))
        })
    }

    /// Adds a network. Its id.
    pub fn add_network(&self, name: &str, external: bool) -> String {
        self.world(|world| world.add_network(name, external))
    }

    /// Adds a subnet with tags. Its id.
    pub fn add_subnet(&self, network: &str, name: &str, cidr: IpNet, tags: &[&str]) -> String {
        self.world(|world| world.add_subnet(network, name, cidr, tags))
    }

    /// Adds a secret (`/v1/secrets/ID`) to Barbican. Its reference.
    pub fn add_secret(&self) -> String {
        self.world(|world| {
            let id = world.dice.uuid();
            world
                .secrets
                .insert(id.clone(), barbican::by_hand("secret"));
            format!("{}/v1/secrets/{id}", world.base(Service::KeyManager))
        })
    }

    /// Adds a container (`/v1/containers/ID`) to Barbican. Its reference.
    pub fn add_container(&self) -> String {
        self.world(|world| {
            let id = world.dice.uuid();
            world
                .containers
                .insert(id.clone(), barbican::by_hand("container"));
            format!("{}/v1/containers/{id}", world.base(Service::KeyManager))
        })
    }

    /// The names of all secrets and containers of Barbican, in order.
    pub fn certificates(&self) -> (Vec<String>, Vec<String>) {
        let names = |rows: &BTreeMap<String, Row>| {
            let names = rows.values().map(|row| text(row, "name").to_owned());
            let mut names: Vec<String> = names.collect();
            names.sort();
            names
        };
        self.world(|world| (names(&world.secrets), names(&world.containers)))
    }

    /// What the secret of a container holds, by its name there: `private_key`.
    pub fn payload(&self, container: &str, name: &str) -> Option<String> {
        let id = |reference: &str| reference.rsplit('/').next().map(str::to_owned);
        self.world(|world| {
            let row = world.containers.get(&id(container)?)?;
            let mut parts = row.get("secret_refs")?.as_array()?.iter();
            let part = parts.find(|part| part["name"] == name)?;
            let secret = world.secrets.get(&id(part["secret_ref"].as_str()?)?)?;
            Some(text(secret, "payload").to_owned())
        })
    }

    /// Removes a secret or container.
    pub fn remove_secret(&self, reference: &str) {
        let id = reference.rsplit('/').next().unwrap_or_default();
        self.world(|world| {
            world.secrets.remove(id);
            world.containers.remove(id);
        });
    }

    /// Ends the life of all tokens.
    pub fn revoke_tokens(&self) {
        self.world(|world| world.tokens.clear());
    }

    /// Marks an object as another owner's, with all below it: it appears in `snapshot_foreign`.
    pub fn mark_foreign(&self, id: &str) {
        self.world(|world| world.foreign.insert(id.to_owned()));
    }

    /// Everything that was marked as foreign, by id. Compare before and after.
    pub fn snapshot_foreign(&self) -> BTreeMap<String, Value> {
        self.world(|world| {
            let ids = world.foreign.clone();
            ids.into_iter()
                .map(|id| (id.clone(), world.picture(&id)))
                .collect()
        })
    }

    /// All load balancers of our project with listeners, pools, members and monitors nested.
    pub fn load_balancers(&self) -> Vec<Value> {
        self.world(|world| {
            let project = world.project.clone();
            let all = world.balancers.values();
            let mine = all.filter(|b| text(&b.row, "project_id") == project);
            mine.map(|b| Value::Object(full(world, b))).collect()
        })
    }

    /// One load balancer, of any project, with everything nested; null if it does not exist.
    pub fn load_balancer(&self, id: &str) -> Value {
        self.world(|world| world.picture(id))
    }

    /// All floating IPs of our project.
    pub fn floating_ips(&self) -> Vec<Value> {
        self.world(|world| mine(world, world.floating_ips.values()))
    }

    /// All security groups of our project, with their rules.
    pub fn security_groups(&self) -> Vec<Value> {
        self.world(|world| {
            let all = world.groups.iter();
            let all = all.filter(|(_, row)| text(row, "project_id") == world.project);
            all.map(|(id, _)| world.picture(id)).collect()
        })
    }

    /// All ports of our project.
    pub fn ports(&self) -> Vec<Value> {
        self.world(|world| mine(world, world.ports.values()))
    }
}

fn mine<'a>(world: &World, rows: impl Iterator<Item = &'a Row>) -> Vec<Value> {
    let rows = rows.filter(|row| text(row, "project_id") == world.project);
    rows.map(|row| Value::Object(row.clone())).collect()
}

impl World {
    /// Any object as it is now, with all below.
    fn picture(&self, id: &str) -> Value {
        if let Some(balancer) = self.balancers.get(id) {
            return Value::Object(full(self, balancer));
        }
        if let Some(listener) = self.listeners.get(id) {
            return Value::Object(listener.row.clone());
        }
        if let Some(pool) = self.pools.get(id) {
            return Value::Object(super::octavia::full_pool(self, pool));
        }
        if let Some(group) = self.groups.get(id) {
            let mut row = group.clone();
            row.insert("security_group_rules".to_owned(), self.rules_of(id));
            return Value::Object(row);
        }
        let tables = [
            &self.ports,
            &self.floating_ips,
            &self.rules,
            &self.subnets,
            &self.networks,
        ];
        let found = tables.iter().find_map(|table| table.get(id));
        found.map_or(Value::Null, |row| Value::Object(row.clone()))
    }

    fn row_mut(&mut self, id: &str) -> Option<&mut Row> {
        if self.balancers.contains(id) {
            return self.balancers.get_mut(id).map(|found| &mut found.row);
        }
        if self.listeners.contains(id) {
            return self.listeners.get_mut(id).map(|found| &mut found.row);
        }
        if self.pools.contains(id) {
            return self.pools.get_mut(id).map(|found| &mut found.row);
        }
        if self.monitors.contains(id) {
            return self.monitors.get_mut(id).map(|found| &mut found.row);
        }
        let kinds = [
            "ports",
            "floatingips",
            "security-groups",
            "security-group-rules",
            "subnets",
            "networks",
        ];
        let kind = kinds.iter().find(|kind| {
            self.network_table(kind)
                .is_some_and(|table| table.contains(id))
        })?;
        self.network_table_mut(kind)?.get_mut(id)
    }

    /// The load balancer that an object belongs to, or is.
    fn balancer_of(&self, id: &str) -> Option<String> {
        if self.balancers.contains(id) {
            return Some(id.to_owned());
        }
        if let Some(listener) = self.listeners.get(id) {
            return Some(listener.balancer.clone());
        }
        let pool = self
            .monitors
            .get(id)
            .map_or(id, |monitor| monitor.pool.as_str());
        self.pools.get(pool).map(|pool| pool.balancer.clone())
    }

    /// A load balancer was changed: its time of change moves.
    fn touched_by_hand(&mut self, balancer: Option<&str>) {
        let now = self.clock.plain();
        if let Some(balancer) = balancer.and_then(|id| self.balancers.get_mut(id)) {
            balancer.row.insert("updated_at".to_owned(), json!(now));
        }
    }
}
