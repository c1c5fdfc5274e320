//! The members that are wanted against those that are there. Pure.
//!
//! What somebody set by hand on a member (weight, backup, administrative state) stays, unless the
//! Service says what it shall be. A member's subnet can't change: it is taken out and added again,
//! one half of them at a time.

mod gradual;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use landfall_model::plan::Plan;
use serde_json::{Map, Value};

use crate::bodies;
use crate::graph::{MemberKey, key_of};
use crate::names::cut;
use crate::objects::{Id, Member, Provisioning};
use crate::step::Step;
use crate::target::{WantedMember, WantedPool};

/// What the envelope of a batch takes of the limit.
const ENVELOPE: usize = 64;
/// So many members are taken out of a large pool one by one.
const FEW: usize = 32;

/// A pool, and how its members are written.
#[derive(Clone, Copy)]
pub(crate) struct Writer<'a> {
    pub(crate) load_balancer: &'a Id,
    pub(crate) pool: &'a Id,
    /// Members can be added to those that are there.
    pub(crate) additive: bool,
    /// Bodies above this many bytes are refused.
    pub(crate) body_limit: usize,
    /// Members are added and taken out one by one.
    pub(crate) serial: bool,
}

/// The members that are wanted against those that are there.
struct Comparison<'a> {
    index: HashMap<MemberKey, &'a Member>,
    wanted: &'a WantedPool,
    /// Those that are not there yet.
    added: Vec<(IpAddr, &'a WantedMember)>,
    /// Those that are not wanted any more.
    gone: Vec<&'a Member>,
    /// Whether one that stays differs.
    changed: bool,
    /// How many are wanted in another subnet.
    moved: usize,
}

/// Appends what makes a pool have these members.
pub(crate) fn plan(
    writer: Writer<'_>,
    wanted: &WantedPool,
    there: &[Member],
    plan: &mut Plan<Step>,
) {
    if writer.serial {
        one_by_one(writer, wanted, there, plan);
        return;
    }
    let compared = Comparison::of(wanted, there);
    if compared.is_equal() {
        return;
    }
    let only_added = !compared.added.is_empty() && compared.gone.is_empty() && !compared.changed;
    if only_added && !there.is_empty() && writer.additive {
        let added = compared.added.iter();
        let bodies = added.map(|(address, member)| bodies::member(*address, member, None));
        add(writer, wanted, there, bodies.collect(), plan);
        return;
    }
    if !writer.additive && !fits(&compared.all_unnamed(), writer.body_limit) {
        gradual::plan(writer, &compared, plan);
        return;
    }
    let (members, leaves) = compared.batch(writer.body_limit);
    if fits(&members, writer.body_limit) {
        plan.push_members(writer.set(members, false, leaves), compared.reason());
        return;
    }
    for (address, port) in compared.gone.iter().copied().filter_map(key_of) {
        let step = writer.delete(address, port);
        plan.push_members(step, "no node of the Service has this address");
    }
    // Only the first of several requests is sent before the next look: it must get the pool further
    // each time.
    let needed = |(address, member): &(&IpAddr, &WantedMember)| match compared.find(address, member)
    {
        Some(it) => differs(it, member),
        None => true,
    };
    let members = wanted.members.iter().filter(needed);
    let bodies = members.map(|(address, member)| {
        let there = compared.find(address, member);
        as_it_stays(*address, member, there).0
    });
    add(writer, wanted, there, bodies.collect(), plan);
}

// === impl Writer ===

impl Writer<'_> {
    fn set(self, members: Vec<Value>, additive: bool, leaves: Vec<Member>) -> Step {
        Step::SetMembers {
            load_balancer: self.load_balancer.clone(),
            pool: self.pool.clone(),
            members,
            additive,
            leaves,
        }
    }

    fn add(self, member: Value) -> Step {
        Step::AddMember {
            load_balancer: self.load_balancer.clone(),
            pool: self.pool.clone(),
            member,
        }
    }

    fn update(self, address: IpAddr, port: u16, changes: Map<String, Value>) -> Step {
        Step::UpdateMember {
            load_balancer: self.load_balancer.clone(),
            pool: self.pool.clone(),
            address,
            port,
            changes,
        }
    }

    fn delete(self, address: IpAddr, port: u16) -> Step {
        Step::DeleteMember {
            load_balancer: self.load_balancer.clone(),
            pool: self.pool.clone(),
            address,
            port,
        }
    }
}

// === impl Comparison ===

impl<'a> Comparison<'a> {
    fn of(wanted: &'a WantedPool, there: &'a [Member]) -> Self {
        let index = there.iter().filter_map(|it| Some((key_of(it)?, it)));
        let gone = there.iter().filter(|it| {
            let key = key_of(it);
            let member =
                key.and_then(|(address, port)| Some((wanted.members.get(&address)?, port)));
            member.is_none_or(|(member, port)| member.port != port)
        });
        let mut compared = Self {
            index: index.collect(),
            wanted,
            added: Vec::new(),
            gone: gone.collect(),
            changed: false,
            moved: 0,
        };
        for (address, member) in &wanted.members {
            match compared.find(address, member) {
                None => compared.added.push((*address, member)),
                Some(it) if is_elsewhere(it, member) => compared.moved += 1,
                Some(it) => compared.changed |= differs(it, member),
            }
        }
        compared
    }

    fn is_equal(&self) -> bool {
        self.added.is_empty() && self.gone.is_empty() && !self.changed && self.moved == 0
    }

    /// The member that is there for one that is wanted.
    fn find(&self, address: &IpAddr, member: &WantedMember) -> Option<&'a Member> {
        self.index.get(&(*address, member.port)).copied()
    }

    fn reason(&self) -> String {
        match (self.added.len(), self.gone.len(), self.moved) {
            (0, 0, 0) => "members differ from the nodes".to_owned(),
            (0, 0, moved) => format!("{moved} members have another subnet"),
            (added, gone, _) => format!("{added} nodes were added, {gone} removed"),
        }
    }

    /// The requests for all members, as small as they can be.
    fn all_unnamed(&self) -> Vec<Value> {
        let members = self.wanted.members.iter();
        let mut all: Vec<Value> = members
            .map(|(address, member)| as_it_stays(*address, member, self.find(address, member)).0)
            .collect();
        all.iter_mut().for_each(unnamed);
        all
    }

    /// The members that one batch sets, and what is in the pool afterwards.
    fn batch(&self, body_limit: usize) -> (Vec<Value>, Vec<Member>) {
        // With members that move, and none to add before, half of all go now and come back in the
        // next batch.
        let mut going = if self.added.is_empty() {
            self.moved.min(self.wanted.members.len().div_ceil(2))
        } else {
            0
        };
        let mut list = Vec::new();
        let mut leaves = Vec::new();
        for (address, member) in &self.wanted.members {
            let there = self.find(address, member);
            if there.is_some_and(|it| is_elsewhere(it, member)) && going > 0 {
                going -= 1;
                continue;
            }
            let (body, after) = as_it_stays(*address, member, there);
            list.push(body);
            leaves.push(after);
        }
        if !fits(&list, body_limit) {
            list.iter_mut().for_each(unnamed);
            for member in &mut leaves {
                member.name.clear();
            }
        }
        // Of more members than one batch can carry, as many go as it takes. So it is where very
        // many are gone, which one request each would take out too late: as far as a batch can
        // carry them, those that serve stay.
        if (self.moved > 0 && self.added.is_empty()) || self.gone.len() > FEW {
            let serves =
                |after: &Member| key_of(after).is_some_and(|key| self.index.contains_key(&key));
            let mut both: Vec<_> = list.into_iter().zip(leaves).collect();
            both.sort_by_key(|(_, after)| !serves(after));
            (list, leaves) = both.into_iter().unzip();
            let carried = carried(&list, body_limit);
            list.truncate(carried);
            leaves.truncate(carried);
        }
        (list, leaves)
    }
}

/// For providers that take no batches. Members are told apart by address and port alone, as they
/// have names of another kind then.
fn one_by_one(writer: Writer<'_>, wanted: &WantedPool, there: &[Member], plan: &mut Plan<Step>) {
    for (address, member) in &wanted.members {
        let key = Some((*address, member.port));
        let mut same = there.iter().filter(|it| key_of(it) == key).peekable();
        if same.peek().is_some() {
            if same.any(|it| stays(it, member) && weighs_otherwise(it, member)) {
                let step = writer.update(*address, member.port, weighing(member));
                plan.push_members(step, "the Service sets the member's weight");
            }
            continue;
        }
        let mut body = bodies::member(*address, member, None);
        let name = format!("member_{}_{address}_{}", member.name, member.port);
        body["name"] = cut(name).into();
        plan.push_members(writer.add(body), "a node was added");
    }
    for (address, port) in there.iter().filter_map(key_of) {
        let member = wanted.members.get(&address);
        let member_stays = member.filter(|it| it.port == port).is_some_and(|wanted| {
            let mut same = there
                .iter()
                .filter(|it| key_of(it) == Some((address, port)));
            same.all(|it| stays(it, wanted))
        });
        if !member_stays {
            let step = writer.delete(address, port);
            plan.push_members(step, "it is no member any more, or was replaced");
        }
    }
}

/// Whether a member need not be taken out to become what is wanted.
fn stays(there: &Member, wanted: &WantedMember) -> bool {
    !is_elsewhere(there, wanted) && there.monitor_port == wanted.monitor_port
}

/// Adds members to those that are there, in as many requests as it takes.
fn add(
    writer: Writer<'_>,
    wanted: &WantedPool,
    there: &[Member],
    mut bodies: Vec<Value>,
    plan: &mut Plan<Step>,
) {
    let there = there.iter();
    let mut leaves: BTreeMap<MemberKey, Member> = there
        .filter_map(|it| Some((key_of(it)?, it.clone())))
        .collect();
    let total = bodies.len();
    if !fits(&bodies, writer.body_limit) {
        bodies.iter_mut().for_each(unnamed);
    }
    for members in chunks(bodies, writer.body_limit) {
        for body in &members {
            let address = body["address"].as_str().and_then(|text| text.parse().ok());
            let Some(address) = address else { continue };
            if let Some(member) = wanted.members.get(&address) {
                let key = (address, member.port);
                let (_, mut after) = as_it_stays(address, member, leaves.get(&key));
                if body.get("name").is_none() {
                    after.name.clear();
                }
                leaves.insert(key, after);
            }
        }
        let step = writer.set(members, true, leaves.values().cloned().collect());
        plan.push_members(step, format!("{total} nodes were added"));
    }
}

/// The request for a member that stays where it is, though it may be wanted in another subnet; and
/// what is there afterwards.
fn as_it_stays(address: IpAddr, wanted: &WantedMember, there: Option<&Member>) -> (Value, Member) {
    let mut body = bodies::member(address, wanted, there);
    let mut after = as_member(address, wanted, there);
    if let Some(it) = there.filter(|it| is_elsewhere(it, wanted)) {
        after.subnet_id.clone_from(&it.subnet_id);
        match &it.subnet_id {
            Some(subnet) => body["subnet_id"] = subnet.as_str().into(),
            None => {
                if let Some(fields) = body.as_object_mut() {
                    fields.remove("subnet_id");
                }
            }
        }
    }
    (body, after)
}

/// As Octavia would tell of it afterwards.
fn as_member(address: IpAddr, wanted: &WantedMember, there: Option<&Member>) -> Member {
    Member {
        name: wanted.name.clone(),
        address: Some(address),
        protocol_port: wanted.port,
        subnet_id: wanted.subnet.clone(),
        monitor_port: wanted.monitor_port,
        provisioning_status: Provisioning::Active,
        weight: wanted.weight.or(there.and_then(|it| it.weight)),
        backup: wanted.backup.unwrap_or(there.is_some_and(|it| it.backup)),
        ..there.cloned().unwrap_or_default()
    }
}

/// What a list of wanted members looks like once it is there.
pub(crate) fn as_members(wanted: &WantedPool) -> Vec<Member> {
    let members = wanted.members.iter();
    members
        .map(|(address, it)| as_member(*address, it, None))
        .collect()
}

fn differs(there: &Member, wanted: &WantedMember) -> bool {
    // Without a name, a request for very many members was too large with names.
    let renamed = !there.name.is_empty() && there.name != wanted.name;
    let failed = there.provisioning_status == Provisioning::Error;
    failed
        || renamed
        || there.monitor_port != wanted.monitor_port
        || weighs_otherwise(there, wanted)
}

/// Whether the Service says of its weight, or of it as a backup, what is not so.
fn weighs_otherwise(there: &Member, wanted: &WantedMember) -> bool {
    wanted
        .weight
        .is_some_and(|it| it != there.weight.unwrap_or(1))
        || wanted.backup.is_some_and(|it| it != there.backup)
}

/// The request for what the Service says of its weight, and of it as a backup.
fn weighing(wanted: &WantedMember) -> Map<String, Value> {
    let weight = wanted.weight.map(|it| ("weight".to_owned(), it.into()));
    let backup = wanted.backup.map(|it| ("backup".to_owned(), it.into()));
    weight.into_iter().chain(backup).collect()
}

/// A member without a subnet is reached through the VIP's, which may well be the one that is
/// wanted.
fn is_elsewhere(there: &Member, wanted: &WantedMember) -> bool {
    matches!((&there.subnet_id, &wanted.subnet), (Some(is), Some(shall)) if is != shall)
}

/// Names are for people, and the first to go where a request is too large.
fn unnamed(body: &mut Value) {
    if let Some(fields) = body.as_object_mut() {
        fields.remove("name");
    }
}

/// How many of a list fit into one request.
fn carried(list: &[Value], limit: usize) -> usize {
    let sizes = list.iter().scan(ENVELOPE, |size, it| {
        *size += it.to_string().len() + 1;
        Some(*size)
    });
    sizes.take_while(|size| *size <= limit).count()
}

fn fits(list: &[Value], limit: usize) -> bool {
    let sizes = list.iter().map(|it| it.to_string().len() + 1);
    sizes.sum::<usize>() + ENVELOPE <= limit
}

fn chunks(bodies: Vec<Value>, limit: usize) -> Vec<Vec<Value>> {
    let mut chunks = Vec::new();
    let mut chunk = Vec::new();
    let mut size = ENVELOPE;
    for body in bodies {
        let length = body.to_string().len() + 1;
        if size + length > limit && !chunk.is_empty() {
            chunks.push(std::mem::take(&mut chunk));
            size = ENVELOPE;
        }
        size += length;
        chunk.push(body);
    }
    if !chunk.is_empty() {
        chunks.push(chunk);
    }
    chunks
}
