//! Writes on listeners, and what a listener may be.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Value, json};

use super::super::barbican;
use super::super::load_balancers::{Listener, PENDING_DELETE, PENDING_UPDATE, Touched};
use super::super::wire::{Ask, Handled, Reply, Row, text};
use super::super::world::World;
use super::lock::set_status;
use super::schema::{self, LISTENER};
use super::show::own;
use super::vip::Vip;
use super::{child, envelope, missing, over_quota, ovn, refuse};

const HTTP_HEADERS: [&str; 3] = ["X-Forwarded-For", "X-Forwarded-Port", "X-Forwarded-Proto"];
const SSL_HEADERS: [&str; 7] = [
    "X-SSL-Client-Verify",
    "X-SSL-Client-Has-Cert",
    "X-SSL-Client-DN",
    "X-SSL-Client-CN",
    "X-SSL-Issuer",
    "X-SSL-Client-SHA1",
    "X-SSL-Client-Not-Before",
];

/// What a listener must agree with.
pub(super) struct Around {
    pub provider: String,
    vips: Vec<IpAddr>,
    custom_groups: bool,
}

impl Around {
    /// Around a load balancer that is about to be made.
    pub fn new(world: &World, row: &Row, vip: &Vip) -> Self {
        let vips = vip.places.iter().filter_map(|(subnet, _)| {
            let cidr = text(world.subnets.get(subnet)?, "cidr").parse::<IpNet>();
            cidr.ok().map(|cidr| cidr.addr())
        });
        Self {
            provider: text(row, "provider").to_owned(),
            vips: vips.collect(),
            custom_groups: has_groups(row),
        }
    }

    /// Around one that exists.
    pub fn of(row: &Row) -> Self {
        let more = row.get("additional_vips").and_then(Value::as_array);
        let more = more.into_iter().flatten();
        let more = more.filter_map(|vip| vip.get("ip_address")?.as_str());
        let all = std::iter::once(text(row, "vip_address")).chain(more);
        Self {
            provider: text(row, "provider").to_owned(),
            vips: all.filter_map(|address| address.parse().ok()).collect(),
            custom_groups: has_groups(row),
        }
    }
}

fn has_groups(row: &Row) -> bool {
    let groups = row.get("vip_sg_ids").and_then(Value::as_array);
    groups.is_some_and(|groups| !groups.is_empty())
}

/// The protocol below: what must be unique per port.
pub(super) fn layer4(protocol: &str) -> &str {
    match protocol {
        "UDP" | "SCTP" => protocol,
        _ => "TCP",
    }
}

/// 409 for a second listener on a port.
pub(super) fn duplicate(protocol: &str, port: u64) -> Reply {
    let text = format!(
        "Another Listener on this Load Balancer is already using protocol {protocol} and \
        protocol_port {port}"
    );
    Reply::balancer(409, text)
}

/// Whether the pool's protocol suits the listener's.
pub(super) fn matrix(listener: &Row, pool: &Row) -> Result<(), Reply> {
    let (front, back) = (text(listener, "protocol"), text(pool, "protocol"));
    let good: &[&str] = match front {
        "TCP" => &["HTTP", "HTTPS", "PROXY", "PROXYV2", "TCP"],
        "HTTP" | "TERMINATED_HTTPS" => &["HTTP", "PROXY", "PROXYV2"],
        "HTTPS" => &["HTTPS", "PROXY", "PROXYV2", "TCP"],
        "UDP" => &["UDP"],
        "SCTP" => &["SCTP"],
        _ => &[],
    };
    if good.contains(&back) {
        return Ok(());
    }
    Err(refuse(&format!(
        "The pool protocol '{back}' is invalid while the listener protocol is '{front}'."
    )))
}

/// Whether such a listener may exist there.
pub(super) fn validate_listener(world: &World, around: &Around, row: &Row) -> Result<(), Reply> {
    let protocol = text(row, "protocol");
    validate_headers(protocol, row)?;
    let references = references(row);
    if ["UDP", "SCTP"].contains(&protocol) && !references.is_empty() {
        return Err(refuse(&format!(
            "{protocol} protocol listener does not support TLS."
        )));
    }
    if protocol == "TERMINATED_HTTPS" {
        if references.is_empty() {
            return Err(refuse(&format!(
                "An SNI or default certificate container reference must be provided for {protocol} \
                protocol listeners."
            )));
        }
    } else if !references.is_empty() {
        return Err(refuse(&format!(
            "Certificate container references are not allowed on {protocol} protocol listeners."
        )));
    }
    for reference in references {
        if !barbican::readable(world, reference) {
            let text = format!("Could not retrieve certificate: {:?}", [reference]);
            return Err(Reply::balancer(400, text.replace('"', "'")));
        }
    }
    let cidrs = row.get("allowed_cidrs").and_then(Value::as_array);
    let cidrs = cidrs.map(Vec::as_slice).unwrap_or_default();
    if !cidrs.is_empty() && around.custom_groups {
        return Err(refuse(
            "Allowed CIDRs are not allowed when using custom VIP Security Groups.",
        ));
    }
    for cidr in cidrs.iter().filter_map(Value::as_str) {
        let six = cidr.contains(':');
        if !around.vips.iter().any(|vip| vip.is_ipv6() == six) {
            let vips: Vec<String> = around.vips.iter().map(|vip| format!("'{vip}'")).collect();
            return Err(refuse(&format!(
                "CIDR {cidr} IP version incompatible with all VIPs [{}] IP version.",
                vips.join(", ")
            )));
        }
    }
    ovn::listener(&around.provider, row)
}

fn references(row: &Row) -> Vec<&str> {
    let more = row.get("sni_container_refs").and_then(Value::as_array);
    let more = more.into_iter().flatten().filter_map(Value::as_str);
    let first = Some(text(row, "default_tls_container_ref"));
    let all = first.into_iter().chain(more);
    all.filter(|reference| !reference.is_empty()).collect()
}

fn validate_headers(protocol: &str, row: &Row) -> Result<(), Reply> {
    let headers = row.get("insert_headers").and_then(Value::as_object);
    let names: Vec<&str> = headers
        .into_iter()
        .flatten()
        .map(|(name, _)| name.as_str())
        .collect();
    let invalid = |value: &str, option: &str| {
        Err(Reply::balancer(
            400,
            format!("{value} is not a valid option for {option}"),
        ))
    };
    if names.is_empty() {
        return Ok(());
    }
    if !["HTTP", "TERMINATED_HTTPS"].contains(&protocol) {
        return invalid(
            "insert-headers",
            &format!("a {protocol} protocol listener."),
        );
    }
    let listed = |names: &[&str]| format!("{names:?}").replace('"', "'");
    if names
        .iter()
        .any(|name| !HTTP_HEADERS.contains(name) && !SSL_HEADERS.contains(name))
    {
        return invalid(&format!("dict_keys({})", listed(&names)), "insert_headers");
    }
    let secret = names
        .iter()
        .copied()
        .filter(|name| SSL_HEADERS.contains(name));
    let secret: Vec<&str> = secret.collect();
    if protocol == "HTTP" && !secret.is_empty() {
        return invalid(&listed(&secret), "HTTP protocol listener.");
    }
    Ok(())
}

impl World {
    /// Puts a listener below a load balancer.
    pub(super) fn insert_listener(&mut self, parent: &str, project: &str, mut row: Row) -> String {
        let id = self.dice.uuid();
        child::common(self, &id, project, &mut row);
        row.insert("loadbalancers".to_owned(), json!([{"id": parent}]));
        row.insert("l7policies".to_owned(), json!([]));
        if row.get("allowed_cidrs") == Some(&json!([])) {
            row.insert("allowed_cidrs".to_owned(), Value::Null);
        }
        let balancer = parent.to_owned();
        self.listeners.insert(&id, Listener { row, balancer });
        if let Some(parent) = self.balancers.get_mut(parent) {
            parent.listeners.push(id.clone());
        }
        id
    }

    pub(super) fn count_listeners(&self, project: &str) -> usize {
        let all = self.listeners.values();
        all.filter(|listener| text(&listener.row, "project_id") == project)
            .count()
    }
}

pub(super) fn create(world: &mut World, ask: &Ask<'_>) -> Handled {
    let given = envelope(ask, "listener")?;
    let row = schema::create(LISTENER, given, world.settings.api_minor)?;
    let parent = text(given, "loadbalancer_id");
    if parent.is_empty() {
        let text = "Invalid input for field/attribute loadbalancer_id. Value: 'None'. Mandatory \
                   field missing.";
        return Err(Reply::balancer(400, text));
    }
    let around = Around::of(world.own_balancer(parent, &ask.project)?);
    let most = world.settings.quota.listeners;
    if most.is_some_and(|most| world.count_listeners(&ask.project) >= most) {
        return Err(over_quota("Listener"));
    }
    let pool = text(&row, "default_pool_id").to_owned();
    if !pool.is_empty() {
        suits(world, parent, &pool, &row)?;
    }
    world.child_writable(parent)?;
    validate_listener(world, &around, &row)?;
    let port = row.get("protocol_port").and_then(Value::as_u64);
    let below = layer4(text(&row, "protocol"));
    let siblings = world.balancers.get(parent).map(|b| b.listeners.as_slice());
    for other in siblings.unwrap_or_default() {
        let Some(other) = world.listeners.get(other) else {
            continue;
        };
        let protocol = text(&other.row, "protocol");
        let same = other.row.get("protocol_port").and_then(Value::as_u64) == port;
        if same && layer4(protocol) == below {
            return Err(duplicate(protocol, port.unwrap_or(0)));
        }
    }
    let id = world.insert_listener(parent, &ask.project, row);
    if !pool.is_empty() {
        world.attach(&id, Some(&pool));
    }
    world.lock(
        parent,
        "listener",
        PENDING_UPDATE,
        vec![Touched::Listener(id.clone())],
    );
    shown(world, 201, &id)
}

/// Whether a pool of the load balancer can be the listener's.
fn suits(world: &World, parent: &str, pool: &str, listener: &Row) -> Result<(), Reply> {
    let found = world
        .pools
        .get(pool)
        .filter(|found| found.balancer == parent);
    matrix(listener, &found.ok_or_else(|| missing("Pool", pool))?.row)
}

pub(super) fn update(world: &mut World, ask: &Ask<'_>, id: &str) -> Handled {
    let found = world
        .listeners
        .get(id)
        .ok_or_else(|| missing("Listener", id))?;
    own(&found.row, ask)?;
    let parent = found.balancer.clone();
    let given = envelope(ask, "listener")?;
    let mut changes = schema::update(LISTENER, given, world.settings.api_minor)?;
    let mut after = found.row.clone();
    after.extend(changes.clone());
    let around = Around::of(world.own_balancer(&parent, &ask.project)?);
    validate_listener(world, &around, &after)?;
    let pool = changes.remove("default_pool_id");
    if let Some(pool) = pool.as_ref().and_then(Value::as_str) {
        suits(world, &parent, pool, &after)?;
    }
    world.child_writable(&parent)?;
    if changes.get("allowed_cidrs") == Some(&json!([])) {
        changes.insert("allowed_cidrs".to_owned(), Value::Null);
    }
    if let Some(found) = world.listeners.get_mut(id) {
        found.row.extend(changes);
        set_status(&mut found.row, PENDING_UPDATE);
    }
    if let Some(pool) = pool {
        world.attach(id, pool.as_str());
    }
    world.lock(
        &parent,
        "listener",
        PENDING_UPDATE,
        vec![Touched::Listener(id.to_owned())],
    );
    shown(world, 200, id)
}

pub(super) fn delete(world: &mut World, ask: &Ask<'_>, id: &str) -> Handled {
    let found = world
        .listeners
        .get(id)
        .ok_or_else(|| missing("Listener", id))?;
    own(&found.row, ask)?;
    let parent = found.balancer.clone();
    world.child_writable(&parent)?;
    if let Some(found) = world.listeners.get_mut(id) {
        set_status(&mut found.row, PENDING_DELETE);
    }
    world.lock(
        &parent,
        "listener",
        PENDING_UPDATE,
        vec![Touched::Listener(id.to_owned())],
    );
    Ok(Reply::empty(204))
}

fn shown(world: &World, status: u16, id: &str) -> Handled {
    let found = world
        .listeners
        .get(id)
        .ok_or_else(|| missing("Listener", id))?;
    Ok(Reply::json(status, &json!({"listener": found.row})))
}
