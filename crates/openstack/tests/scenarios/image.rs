//! The cloud and the cluster as they can be compared between two runs: by names, with no ids,
//! addresses or times.

use std::collections::{BTreeMap, BTreeSet};

use landfall_model::marks::managed_annotations;
use landfall_model::status::ConditionType;
use landfall_testkit::openstack::Sim;
use serde_json::{Value, json};

use crate::rig::Rig;

/// How closely two runs are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// With the names of everything.
    Names,
    /// Without the numbers in names, which depend on the past.
    Past,
}

/// Everything of the project but objects of other owners.
pub fn of_cloud(sim: &Sim, detail: Detail) -> Value {
    let foreign = sim.snapshot_foreign();
    let ours = |row: &Value| !foreign.contains_key(text(row, "id"));
    let mut balancers = sim.load_balancers();
    balancers.retain(ours);
    let by_port: BTreeMap<&str, &str> = balancers
        .iter()
        .map(|it| (text(it, "vip_port_id"), text(it, "name")))
        .collect();
    let mut floating = sim.floating_ips();
    floating.retain(ours);
    let floating = floating.iter().map(|it| {
        let leads = by_port.get(text(it, "port_id"));
        json!({"description": it["description"], "leads to": leads})
    });
    let mut groups = sim.security_groups();
    let names: BTreeMap<String, String> = groups
        .iter()
        .map(|it| (text(it, "id").to_owned(), text(it, "name").to_owned()))
        .collect();
    groups.retain(|it| ours(it) && it["name"] != "default");
    let ports = sim.ports();
    let ports = ports.iter().filter(|it| ours(it));
    let ports = ports.filter(|it| text(it, "device_owner").starts_with("compute"));
    let ports = ports.map(|it| {
        let of = it["security_groups"].as_array().into_iter().flatten();
        let of: BTreeSet<&str> = of
            .filter_map(|id| names.get(id.as_str()?))
            .map(String::as_str)
            .collect();
        json!({"node": it["name"], "groups": of})
    });
    json!({
        "load balancers": sorted(balancers.iter().map(|it| of_balancer(it, detail))),
        "floating IPs": sorted(floating),
        "groups": sorted(groups.iter().map(of_group)),
        "node ports": sorted(ports),
    })
}

/// What the Services say.
pub fn of_services(rig: &Rig) -> Value {
    let services = rig.cluster.services();
    let rows = services.iter().map(|row| {
        let truth = |kind| {
            let condition = row.status.condition(kind)?;
            Some(format!("{} {:?}", condition.status, condition.reason))
        };
        let marks: Vec<&str> = managed_annotations()
            .filter(|key| row.annotations.contains_key(*key))
            .collect();
        json!({
            "name": row.key.name(), "finalized": row.finalized, "deleting": row.deleting,
            "addresses": row.status.ingress.len(), "marks": marks,
            "conditions": ConditionType::ALL.map(truth),
        })
    });
    sorted(rows)
}

/// Whether nothing is left of what Services made. The group that all nodes of the cluster share
/// stays, and lets no client in.
pub fn is_bare(cloud: &Value) -> bool {
    let none = |key: &str| cloud[key].as_array().is_some_and(Vec::is_empty);
    let mut groups = cloud["groups"].as_array().into_iter().flatten();
    let closed = |it: &Value| {
        let mut rules = it["rules"].as_array().into_iter().flatten();
        it["name"] == "landfall-nodes-c1" && rules.all(|rule| rule[0] == "egress")
    };
    none("load balancers") && none("floating IPs") && groups.all(closed)
}

/// Statuses that publish an address which is not that of the Service's load balancer.
pub fn wrong_addresses(rig: &Rig) -> Vec<String> {
    let (balancers, floating) = (rig.sim.load_balancers(), rig.sim.floating_ips());
    let mut wrong = Vec::new();
    for row in rig.cluster.services() {
        // What can't go away yet is not kept up either.
        let id = row
            .annotations
            .get(landfall_model::dialect::openstack::LOAD_BALANCER_ID);
        let Some(id) = id.filter(|_| !row.deleting) else {
            continue;
        };
        let balancer = balancers.iter().find(|it| it["id"] == **id);
        let internal = row
            .annotations
            .get(crate::addresses::INTERNAL)
            .is_some_and(|it| it == "true");
        // One that shares a load balancer and is to become internal is refused, and stays public.
        let accepted = row.status.condition(ConditionType::Accepted);
        let internal = internal && accepted.is_some_and(|it| it.status);
        let reached = balancer.map(|it| {
            if internal {
                return text(it, "vip_address").to_owned();
            }
            let port = &it["vip_port_id"];
            let leading = floating.iter().find(|ip| ip["port_id"] == *port);
            leading.map_or_else(
                || text(it, "vip_address").to_owned(),
                |ip| text(ip, "floating_ip_address").to_owned(),
            )
        });
        let published: Vec<String> = row
            .status
            .ingress
            .iter()
            .filter_map(|it| Some(it.ip?.to_string()))
            .collect();
        // That of the second family is at a load balancer of its own.
        let name = balancer.map_or("", |it| text(it, "name"));
        let mut beside = balancers.iter();
        let beside = beside.find(|it| text(it, "name") == format!("{name}.ipv6"));
        let beside = beside.map(|it| text(it, "vip_address").to_owned());
        if published
            .iter()
            .any(|address| Some(address) != reached.as_ref() && Some(address) != beside.as_ref())
        {
            wrong.push(format!(
                "{} publishes {published:?}, and is at {reached:?}",
                row.key
            ));
        }
    }
    wrong
}

fn of_balancer(it: &Value, detail: Detail) -> Value {
    let listeners = it["listeners"].as_array().cloned().unwrap_or_default();
    let pools = it["pools"].as_array().cloned().unwrap_or_default();
    let pool = |id: &Value| pools.iter().find(|it| it["id"] == *id);
    let mut used = BTreeSet::new();
    let listeners: Vec<Value> = listeners
        .iter()
        .map(|row| {
            used.insert(text(row, "default_pool_id").to_owned());
            let pool = pool(&row["default_pool_id"]).map(|it| of_pool(it, detail));
            json!({
                "name": plain(&row["name"], detail), "port": row["protocol_port"],
                "protocol": row["protocol"], "limit": row["connection_limit"],
                "allowed": set(&row["allowed_cidrs"]), "headers": row["insert_headers"],
                "timeout": row["timeout_client_data"], "tags": set(&row["tags"]),
                "status": row["provisioning_status"], "pool": pool,
            })
        })
        .collect();
    let spare = pools
        .iter()
        .filter(|it| !used.contains(text(it, "id")))
        .map(|it| of_pool(it, detail));
    json!({
        "name": it["name"], "description": it["description"], "tags": set(&it["tags"]),
        "provider": it["provider"], "status": it["provisioning_status"],
        "listeners": sorted(listeners.into_iter()), "spare pools": sorted(spare),
    })
}

fn of_pool(it: &Value, detail: Detail) -> Value {
    let members = it["members"].as_array().cloned().unwrap_or_default();
    let members = members.iter().map(|it| {
        json!([
            it["address"],
            it["protocol_port"],
            it["name"],
            it["monitor_port"],
            it["subnet_id"]
        ])
    });
    let monitor = it.get("healthmonitor").filter(|it| it.is_object());
    let monitor = monitor.map(|it| {
        json!({
            "name": plain(&it["name"], detail), "type": it["type"], "delay": it["delay"],
            "timeout": it["timeout"], "retries": it["max_retries"], "path": it["url_path"],
        })
    });
    json!({
        "name": plain(&it["name"], detail), "protocol": it["protocol"],
            "algorithm": it["lb_algorithm"],
        "sticky": it["session_persistence"]["type"], "tags": set(&it["tags"]),
        "members": sorted(members), "monitor": monitor, "status": it["provisioning_status"],
    })
}

fn of_group(it: &Value) -> Value {
    let rules = it["security_group_rules"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let rules = rules.iter().map(|it| {
        json!([
            it["direction"],
            it["ethertype"],
            it["protocol"],
            it["port_range_min"],
            it["port_range_max"],
            it["remote_ip_prefix"],
            it["description"]
        ])
    });
    json!({"name": it["name"], "description": it["description"], "rules": sorted(rules)})
}

fn plain(name: &Value, detail: Detail) -> String {
    let name = name.as_str().unwrap_or_default();
    let mut words: Vec<&str> = name.split('_').collect();
    if detail == Detail::Past && words.len() > 1 && words[1].chars().all(|it| it.is_ascii_digit()) {
        words[1] = "#";
    }
    words.join("_")
}

fn set(list: &Value) -> Value {
    sorted(list.as_array().cloned().unwrap_or_default().into_iter())
}

fn sorted(rows: impl Iterator<Item = Value>) -> Value {
    let mut rows: Vec<Value> = rows.collect();
    rows.sort_by_key(ToString::to_string);
    rows.into()
}

/// A text field; empty where there is none.
pub fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_default()
}
