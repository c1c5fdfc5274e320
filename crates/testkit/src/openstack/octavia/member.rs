//! Writes on members: single ones and the batch.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use super::super::load_balancers::{ACTIVE, Member, PENDING_DELETE, PENDING_UPDATE, Touched};
use super::super::wire::{Ask, Handled, Reply, Row, text};
use super::super::world::World;
use super::lock::set_status;
use super::schema::{self, MEMBER};
use super::show::own;
use super::{envelope, missing, over_quota, ovn, refuse};

/// 409 for a second member at one address and port.
pub(super) fn duplicate(row: &Row) -> Reply {
    let port = row.get("protocol_port").cloned().unwrap_or_default();
    let text = format!(
        "Another member on this pool is already using ip {} on protocol_port {port}",
        text(row, "address")
    );
    Reply::balancer(409, text)
}

/// Reads members of a request; their subnets must exist.
pub(super) fn validate_members(
    world: &World,
    provider: &str,
    given: &[&Row],
) -> Result<Vec<Row>, Reply> {
    let rows = read_members(world, provider, given)?;
    match unknown_subnet(world, &rows) {
        Some(subnet) => Err(Reply::balancer(400, format!("Subnet {subnet} not found."))),
        None => Ok(rows),
    }
}

/// Reads members of a request, whatever their subnets.
pub(super) fn read_members(
    world: &World,
    provider: &str,
    given: &[&Row],
) -> Result<Vec<Row>, Reply> {
    let mut rows = Vec::with_capacity(given.len());
    for one in given {
        let row = schema::create(MEMBER, one, world.settings.api_minor)?;
        ovn::member(provider, &row)?;
        rows.push(row);
    }
    Ok(rows)
}

/// The first subnet that members name and that does not exist.
pub(super) fn unknown_subnet<'a>(world: &World, rows: &'a [Row]) -> Option<&'a str> {
    let mut last = "";
    let mut named = rows.iter().map(|row| text(row, "subnet_id"));
    named.find(|subnet| {
        // Mostly it is the same one for all.
        let known = subnet.is_empty() || *subnet == last || world.subnets.contains(subnet);
        last = subnet;
        !known
    })
}

impl World {
    pub(super) fn count_of_members(&self, project: &str) -> usize {
        self.member_count.get(project).copied().unwrap_or(0)
    }

    /// The load balancer of a pool whose members may be written.
    fn members_writable(&self, pool: &str, ask: &Ask<'_>) -> Result<(String, String), Reply> {
        let found = self.pools.get(pool).ok_or_else(|| missing("Pool", pool))?;
        own(&found.row, ask)?;
        let balancer = self.own_balancer(&found.balancer, &ask.project)?;
        let provider = text(balancer, "provider").to_owned();
        // The pool is checked first: one that is busy names itself.
        if text(&found.row, "provisioning_status") != ACTIVE {
            let text = format!("Pool {pool} is immutable and cannot be updated.");
            return Err(Reply::balancer(409, text));
        }
        self.child_writable(&found.balancer)?;
        Ok((found.balancer.clone(), provider))
    }

    /// Locks for a write on the pool's members.
    fn lock_members(&mut self, balancer: &str, pool: &str) {
        let mut touched = self.touch_users(pool);
        if let Some(found) = self.pools.get_mut(pool) {
            set_status(&mut found.row, PENDING_UPDATE);
        }
        touched.push(Touched::Pool(pool.to_owned()));
        touched.push(Touched::Members(pool.to_owned()));
        self.lock(balancer, "members", PENDING_UPDATE, touched);
    }
}

pub(super) fn create(world: &mut World, ask: &Ask<'_>, pool: &str) -> Handled {
    let given = envelope(ask, "member")?;
    let found = world.pools.get(pool).ok_or_else(|| missing("Pool", pool))?;
    let balancer = world.own_balancer(&found.balancer, &ask.project)?;
    let rows = validate_members(world, text(balancer, "provider"), &[given])?;
    if over(world, &ask.project, 1) {
        return Err(over_quota("Member"));
    }
    let (parent, _) = world.members_writable(pool, ask)?;
    let mut made = None;
    for row in rows {
        let member = Member::of(&row, world.dice.uuid(), world.clock.seconds());
        let Some(found) = world.pools.get_mut(pool) else {
            break;
        };
        let same = |other: &Member| other.address == member.address && other.port == member.port;
        if found.members.iter().any(same) {
            return Err(duplicate(&row));
        }
        found.members.push(member.clone());
        made = Some(member);
    }
    world.count_members(&ask.project, 1, 0);
    world.lock_members(&parent, pool);
    let project = json!(ask.project);
    let made = made.ok_or_else(|| missing("Pool", pool))?;
    Ok(Reply::json(201, &json!({"member": made.show(&project)})))
}

fn over(world: &World, project: &str, more: usize) -> bool {
    let have = world.count_of_members(project);
    let most = world.settings.quota.members;
    more > 0 && most.is_some_and(|most| have + more > most)
}

/// What a batch makes of a pool's members.
#[derive(Default)]
struct Differences {
    /// Places in the batch of members that the pool does not have.
    fresh: Vec<usize>,
    /// Places of members in the pool, and in the batch.
    changed: Vec<(usize, usize)>,
}

/// Compares the members of a pool with those of a batch, none of which may be named twice.
fn compare(members: &[Member], validated: &[Row]) -> Result<Differences, Reply> {
    let at = |member: &Member| (member.address.clone(), u64::from(member.port));
    let old: HashMap<(String, u64), usize> = members
        .iter()
        .enumerate()
        .map(|(place, member)| (at(member), place))
        .collect();
    let (mut seen, mut differences) = (HashSet::new(), Differences::default());
    for (place, row) in validated.iter().enumerate() {
        let port = row.get("protocol_port").and_then(Value::as_u64);
        let key = (text(row, "address").to_owned(), port.unwrap_or(0));
        let known = old.get(&key).copied();
        if !seen.insert(key) {
            return Err(if known.is_some() {
                refuse("Member must be updated only once in the same request.")
            } else {
                duplicate(row)
            });
        }
        match known {
            Some(member) => differences.changed.push((member, place)),
            None => differences.fresh.push(place),
        }
    }
    Ok(differences)
}

/// Returns what a batch changes of a member: what isn't named goes back to its default, but for the
/// fields that no update changes.
fn replacement(validated: &Row, given: Option<&Row>) -> Row {
    let mut row = validated.clone();
    row.retain(|key, _| {
        let is_named = || given.is_some_and(|given| given.contains_key(key));
        key != "subnet_id" && (!["name", "tags"].contains(&key.as_str()) || is_named())
    });
    row
}

pub(super) fn batch(world: &mut World, ask: &Ask<'_>, pool: &str) -> Handled {
    let additive = world.settings.api_minor >= 11
        && ask.param("additive_only").is_some_and(|flag| {
            ["1", "t", "true", "on", "y", "yes"].contains(&flag.to_lowercase().as_str())
        });
    let given = ask.body.get("members").and_then(Value::as_array);
    let given = given.ok_or_else(|| {
        let text =
            "Invalid input for field/attribute members. Value: 'None'. Mandatory field missing.";
        Reply::balancer(400, text)
    })?;
    let given: Vec<&Row> = given.iter().filter_map(Value::as_object).collect();
    let minor = world.settings.api_minor;
    let validated: Result<Vec<Row>, Reply> = given
        .iter()
        .map(|one| schema::create(MEMBER, one, minor))
        .collect();
    let validated = validated?;
    let (parent, provider) = world.members_writable(pool, ask)?;
    let found = world.pools.get(pool).ok_or_else(|| missing("Pool", pool))?;
    let Differences { fresh, changed } = compare(&found.members, &validated)?;
    let gone = if additive {
        0
    } else {
        found.members.len() - changed.len()
    };
    if fresh.is_empty() && changed.is_empty() && found.members.is_empty() {
        return Ok(Reply::empty(202));
    }
    if over(world, &ask.project, fresh.len().saturating_sub(gone)) {
        return Err(over_quota("Member"));
    }
    let picked = |places: &[usize]| -> Vec<&Row> {
        places
            .iter()
            .filter_map(|place| given.get(*place).copied())
            .collect()
    };
    let rows = validate_members(world, &provider, &picked(&fresh))?;
    for (_, place) in &changed {
        if let Some(row) = validated.get(*place) {
            ovn::member(&provider, row)?;
        }
    }
    let seconds = world.clock.seconds();
    let made: Vec<Member> = rows
        .iter()
        .map(|row| Member::of(row, world.dice.uuid(), seconds))
        .collect();
    world.count_members(&ask.project, made.len(), 0);
    let Some(found) = world.pools.get_mut(pool) else {
        return Err(missing("Pool", pool));
    };
    if !additive {
        for member in &mut found.members {
            member.status = PENDING_DELETE;
        }
    }
    for (place, from) in changed {
        let (Some(member), Some(row)) = (found.members.get_mut(place), validated.get(from)) else {
            continue;
        };
        let named = given.get(from).copied();
        member.take(&replacement(row, named));
        member.status = PENDING_UPDATE;
    }
    found.members.extend(made);
    world.lock_members(&parent, pool);
    Ok(Reply::empty(202))
}

pub(super) fn update(world: &mut World, ask: &Ask<'_>, pool: &str, id: &str) -> Handled {
    let given = envelope(ask, "member")?;
    let changes = schema::update(MEMBER, given, world.settings.api_minor)?;
    let found = world.pools.get(pool).ok_or_else(|| missing("Pool", pool))?;
    let place = found.members.iter().position(|member| member.id == id);
    let place = place.ok_or_else(|| missing("Member", id))?;
    let (parent, provider) = world.members_writable(pool, ask)?;
    ovn::member(&provider, &changes)?;
    let mut shown = Row::new();
    let found = world.pools.get_mut(pool);
    if let Some(member) = found.and_then(|found| found.members.get_mut(place)) {
        member.take(&changes);
        member.status = PENDING_UPDATE;
        shown = member.show(&json!(ask.project));
    }
    world.lock_members(&parent, pool);
    Ok(Reply::json(200, &json!({"member": shown})))
}

pub(super) fn delete(world: &mut World, ask: &Ask<'_>, pool: &str, id: &str) -> Handled {
    let found = world.pools.get(pool).ok_or_else(|| missing("Pool", pool))?;
    let place = found.members.iter().position(|member| member.id == id);
    let place = place.ok_or_else(|| missing("Member", id))?;
    let (parent, _) = world.members_writable(pool, ask)?;
    let found = world.pools.get_mut(pool);
    if let Some(member) = found.and_then(|found| found.members.get_mut(place)) {
        member.status = PENDING_DELETE;
    }
    world.lock_members(&parent, pool);
    Ok(Reply::empty(204))
}
