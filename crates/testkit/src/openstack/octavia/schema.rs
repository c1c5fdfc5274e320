//! Which attributes Octavia knows, since which minor version, and what they may hold.

use serde_json::{Value, json};

use super::super::wire::{Reply, Row};

/// What an attribute may hold.
pub(super) enum Shape {
    Text(usize),
    Id,
    Flag,
    Number(i64, i64),
    Choice(&'static [&'static str]),
    Tags,
    Cidrs,
    Headers,
    Address,
    /// Anything: validated elsewhere.
    Any,
    /// Anything, and not kept with the object.
    Link,
}

/// One attribute.
pub(super) struct Field {
    pub name: &'static str,
    pub shape: Shape,
    /// First minor version that knows it.
    pub since: u16,
    /// Whether a PUT may name it.
    pub update: bool,
    pub required: bool,
    /// The value if nothing is given, as JSON.
    pub default: fn() -> Value,
}

const fn field(name: &'static str, shape: Shape, default: fn() -> Value) -> Field {
    Field {
        name,
        shape,
        since: 0,
        update: true,
        required: false,
        default,
    }
}

impl Field {
    const fn since(mut self, minor: u16) -> Self {
        self.since = minor;
        self
    }

    const fn fixed(mut self) -> Self {
        self.update = false;
        self
    }

    const fn required(mut self) -> Self {
        self.required = true;
        self
    }
}

fn null() -> Value {
    Value::Null
}
fn yes() -> Value {
    json!(true)
}
fn no() -> Value {
    json!(false)
}
fn empty() -> Value {
    json!("")
}
fn list() -> Value {
    json!([])
}
fn map() -> Value {
    json!({})
}

const TIMEOUT: Shape = Shape::Number(0, 2_073_600_000);
const PORT: Shape = Shape::Number(1, 65_535);
const WIDE: i64 = i64::MAX;

pub(super) static BALANCER: &[Field] = &[
    field("name", Shape::Text(255), empty),
    field("description", Shape::Text(255), empty),
    field("admin_state_up", Shape::Flag, yes),
    field("vip_address", Shape::Address, null).fixed(),
    field("vip_port_id", Shape::Id, null).fixed(),
    field("vip_subnet_id", Shape::Id, null).fixed(),
    field("vip_network_id", Shape::Id, null).fixed(),
    field("vip_qos_policy_id", Shape::Id, null),
    field("vip_sg_ids", Shape::Any, list).since(29),
    field("additional_vips", Shape::Any, list).fixed().since(26),
    field("provider", Shape::Text(64), null).fixed(),
    field("flavor_id", Shape::Id, null).fixed().since(6),
    field("availability_zone", Shape::Text(255), null)
        .fixed()
        .since(14),
    field("tags", Shape::Tags, list).since(5),
    field("listeners", Shape::Link, null).fixed(),
    field("pools", Shape::Link, null).fixed(),
    field("project_id", Shape::Link, null).fixed(),
    field("tenant_id", Shape::Link, null).fixed(),
];

pub(super) static LISTENER: &[Field] = &[
    field("name", Shape::Text(255), empty),
    field("description", Shape::Text(255), empty),
    field("admin_state_up", Shape::Flag, yes),
    field("protocol", Shape::Choice(LISTENER_PROTOCOLS), null)
        .fixed()
        .required(),
    field("protocol_port", PORT, null).fixed().required(),
    field("connection_limit", Shape::Number(-1, WIDE), || json!(-1)),
    field("default_tls_container_ref", Shape::Text(255), null),
    field("sni_container_refs", Shape::Any, list),
    field("default_pool_id", Shape::Id, null),
    field("insert_headers", Shape::Headers, map),
    field("timeout_client_data", TIMEOUT, || json!(50_000)).since(1),
    field("timeout_member_connect", TIMEOUT, || json!(5000)).since(1),
    field("timeout_member_data", TIMEOUT, || json!(50_000)).since(1),
    field("timeout_tcp_inspect", TIMEOUT, || json!(0)).since(1),
    field("tags", Shape::Tags, list).since(5),
    field("client_ca_tls_container_ref", Shape::Text(255), null).since(8),
    field("client_authentication", Shape::Choice(CLIENT_AUTH), || {
        json!("NONE")
    })
    .since(8),
    field("client_crl_container_ref", Shape::Text(255), null).since(8),
    field("allowed_cidrs", Shape::Cidrs, null).since(12),
    field("tls_ciphers", Shape::Text(2048), null).since(15),
    field("tls_versions", Shape::Any, null).since(17),
    field("alpn_protocols", Shape::Any, null).since(20),
    field("hsts_max_age", Shape::Number(0, WIDE), null).since(27),
    field("hsts_include_subdomains", Shape::Flag, no).since(27),
    field("hsts_preload", Shape::Flag, no).since(27),
    field("loadbalancer_id", Shape::Link, null).fixed(),
    field("default_pool", Shape::Link, null).fixed(),
    field("l7policies", Shape::Link, null).fixed(),
    field("project_id", Shape::Link, null).fixed(),
    field("tenant_id", Shape::Link, null).fixed(),
];

pub(super) static POOL: &[Field] = &[
    field("name", Shape::Text(255), empty),
    field("description", Shape::Text(255), empty),
    field("admin_state_up", Shape::Flag, yes),
    field("protocol", Shape::Choice(POOL_PROTOCOLS), null)
        .fixed()
        .required(),
    field("lb_algorithm", Shape::Choice(ALGORITHMS), null).required(),
    field("session_persistence", Shape::Any, null),
    field("tags", Shape::Tags, list).since(5),
    field("tls_container_ref", Shape::Text(255), null).since(8),
    field("ca_tls_container_ref", Shape::Text(255), null).since(8),
    field("crl_container_ref", Shape::Text(255), null).since(8),
    field("tls_enabled", Shape::Flag, no).since(8),
    field("tls_ciphers", Shape::Text(2048), null).since(15),
    field("tls_versions", Shape::Any, null).since(17),
    field("alpn_protocols", Shape::Any, null).since(24),
    field("loadbalancer_id", Shape::Link, null).fixed(),
    field("listener_id", Shape::Link, null).fixed(),
    field("members", Shape::Link, null).fixed(),
    field("healthmonitor", Shape::Link, null).fixed(),
    field("project_id", Shape::Link, null).fixed(),
    field("tenant_id", Shape::Link, null).fixed(),
];

pub(super) static MEMBER: &[Field] = &[
    field("name", Shape::Text(255), empty),
    field("admin_state_up", Shape::Flag, yes),
    field("address", Shape::Address, null).fixed().required(),
    field("protocol_port", PORT, null).fixed().required(),
    field("weight", Shape::Number(0, 256), || json!(1)),
    field("backup", Shape::Flag, no).since(1),
    field("subnet_id", Shape::Id, null).fixed(),
    field("monitor_port", PORT, null),
    field("monitor_address", Shape::Address, null),
    field("tags", Shape::Tags, list).since(5),
    field("request_sriov", Shape::Link, null).fixed().since(30),
    field("project_id", Shape::Link, null).fixed(),
    field("tenant_id", Shape::Link, null).fixed(),
];

pub(super) static MONITOR: &[Field] = &[
    field("name", Shape::Text(255), empty),
    field("type", Shape::Choice(MONITOR_TYPES), null)
        .fixed()
        .required(),
    field("delay", Shape::Number(0, WIDE), null).required(),
    field("timeout", Shape::Number(0, WIDE), null).required(),
    field("max_retries", Shape::Number(1, 10), null).required(),
    field("max_retries_down", Shape::Number(1, 10), || json!(3)),
    field("http_method", Shape::Choice(METHODS), null),
    field("url_path", Shape::Text(255), null),
    field("expected_codes", Shape::Text(64), null),
    field("admin_state_up", Shape::Flag, yes),
    field("tags", Shape::Tags, list).since(5),
    field("http_version", Shape::Any, null).since(10),
    field("domain_name", Shape::Text(255), null).since(10),
    field("pool_id", Shape::Link, null).fixed(),
    field("project_id", Shape::Link, null).fixed(),
    field("tenant_id", Shape::Link, null).fixed(),
];

const LISTENER_PROTOCOLS: &[&str] = &[
    "TCP",
    "HTTP",
    "HTTPS",
    "TERMINATED_HTTPS",
    "UDP",
    "SCTP",
    "PROMETHEUS",
];
const POOL_PROTOCOLS: &[&str] = &["TCP", "HTTP", "HTTPS", "PROXY", "PROXYV2", "UDP", "SCTP"];
const ALGORITHMS: &[&str] = &[
    "ROUND_ROBIN",
    "LEAST_CONNECTIONS",
    "SOURCE_IP",
    "SOURCE_IP_PORT",
];
const CLIENT_AUTH: &[&str] = &["NONE", "OPTIONAL", "MANDATORY"];
const MONITOR_TYPES: &[&str] = &[
    "HTTP",
    "HTTPS",
    "PING",
    "TCP",
    "TLS-HELLO",
    "UDP-CONNECT",
    "SCTP",
];
const METHODS: &[&str] = &[
    "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "OPTIONS", "PATCH", "CONNECT",
];

/// Values that came later than the field which holds them.
fn value_since(value: &str) -> u16 {
    match value {
        "SOURCE_IP_PORT" => 13,
        "PROXYV2" => 22,
        "SCTP" => 23,
        "PROMETHEUS" => 25,
        _ => 0,
    }
}

/// Reads the attributes of a POST: everything is there afterwards, except links.
pub(super) fn create(fields: &[Field], given: &Row, minor: u16) -> Result<Row, Reply> {
    let mut row = accepted(fields, given, minor, true)?;
    for field in fields.iter().filter(|field| field.since <= minor) {
        if field.required && row.get(field.name).is_none_or(Value::is_null) {
            return Err(invalid(field.name, "None", "Mandatory field missing."));
        }
        if !matches!(field.shape, Shape::Link) && row.get(field.name).is_none_or(Value::is_null) {
            row.insert(field.name.to_owned(), (field.default)());
        }
    }
    Ok(row)
}

/// Reads the attributes of a PUT: only what was given; null resets to the default.
pub(super) fn update(fields: &[Field], given: &Row, minor: u16) -> Result<Row, Reply> {
    let mut row = accepted(fields, given, minor, false)?;
    for field in fields {
        if let Some(value) = row.get_mut(field.name)
            && value.is_null()
        {
            *value = (field.default)();
        }
    }
    Ok(row)
}

fn accepted(fields: &[Field], given: &Row, minor: u16, create: bool) -> Result<Row, Reply> {
    let mut row = Row::new();
    for (name, value) in given {
        let known = fields
            .iter()
            .find(|field| field.name == name && field.since <= minor && (create || field.update));
        let Some(field) = known else {
            let text = format!(
                "Unknown attribute for argument {}: {name}",
                argument(fields)
            );
            return Err(Reply::balancer(400, text));
        };
        if !value.is_null() {
            validate(field, value, minor)?;
        }
        if !matches!(field.shape, Shape::Link) {
            row.insert(name.clone(), value.clone());
        }
    }
    Ok(row)
}

/// The server's own name of a body.
fn argument(fields: &[Field]) -> &'static str {
    let known: [(&[Field], &str); 5] = [
        (BALANCER, "load_balancer.loadbalancer"),
        (LISTENER, "listener_.listener"),
        (POOL, "pool_.pool"),
        (MEMBER, "members_.members"),
        (MONITOR, "health_monitor_.healthmonitor"),
    ];
    let found = known.iter().find(|(all, _)| std::ptr::eq(*all, fields));
    found.map_or("body", |(_, name)| name)
}

fn invalid(name: &str, value: &str, why: &str) -> Reply {
    let text = format!("Invalid input for field/attribute {name}. Value: '{value}'. {why}");
    Reply::balancer(400, text)
}

fn validate(field: &Field, value: &Value, minor: u16) -> Result<(), Reply> {
    let shown = value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned);
    let bad = |why: &str| Err(invalid(field.name, &shown, why));
    match &field.shape {
        Shape::Text(most) => match value.as_str() {
            Some(text) if text.chars().count() <= *most => Ok(()),
            Some(_) => bad(&format!(
                "Value should have a maximum character requirement of {most}"
            )),
            None => bad("Value should be string"),
        },
        Shape::Id => match value.as_str() {
            Some(text) if is_id(text) => Ok(()),
            _ => bad("Value should be UUID format"),
        },
        Shape::Flag if value.is_boolean() => Ok(()),
        Shape::Flag => bad(&format!("Unable to convert value {shown} to boolean")),
        Shape::Number(least, most) => match value.as_i64() {
            Some(number) if number < *least => {
                bad(&format!("Value should be greater or equal to {least}"))
            }
            Some(number) if number > *most => {
                bad(&format!("Value should be lower or equal to {most}"))
            }
            Some(_) => Ok(()),
            None => bad(&format!(
                "invalid literal for int() with base 10: '{shown}'"
            )),
        },
        Shape::Choice(all) => {
            let usable = || all.iter().filter(|one| value_since(one) <= minor);
            if usable().any(|one| Some(*one) == value.as_str()) {
                return Ok(());
            }
            let all: Vec<&str> = usable().copied().collect();
            bad(&format!("Value should be one of: {}", all.join(", ")))
        }
        Shape::Tags => match value.as_array() {
            Some(tags)
                if tags
                    .iter()
                    .all(|tag| tag.as_str().is_some_and(|t| t.len() <= 255)) =>
            {
                Ok(())
            }
            _ => bad("Value should have a maximum character requirement of 255"),
        },
        Shape::Cidrs => {
            let all = value.as_array().map(Vec::as_slice).unwrap_or_default();
            for one in all {
                let text = one.as_str().unwrap_or_default();
                if text.parse::<ipnet::IpNet>().is_err() {
                    let why = "Value should be IPv4 or IPv6 CIDR format";
                    return Err(invalid(field.name, &format!("['{text}']"), why));
                }
            }
            if value.is_array() {
                Ok(())
            } else {
                bad("Value should be a list")
            }
        }
        Shape::Headers => match value.as_object() {
            Some(headers) if headers.values().all(Value::is_string) => Ok(()),
            _ => bad("Value should be a dictionary of strings"),
        },
        Shape::Address => match value.as_str().map(str::parse::<std::net::IpAddr>) {
            Some(Ok(_)) => Ok(()),
            _ => bad("Value should be IPv4 or IPv6 format"),
        },
        Shape::Any | Shape::Link => Ok(()),
    }
}

fn is_id(text: &str) -> bool {
    let hex = text.bytes().filter(|byte| *byte != b'-');
    hex.clone().count() == 32 && hex.clone().all(|byte| byte.is_ascii_hexdigit())
}
