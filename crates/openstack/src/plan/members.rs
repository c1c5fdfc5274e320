//! The members that are wanted against those that are there. Pure.
//!
//! What was set by hand on a member (weight, backup, administrative state) stays, unless the
//! Service says what it shall be. A member's subnet can't change: it is taken out and added again,
//! one half of them at a time.

mod gradual;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use landfall_model::plan::Plan;

use crate::graph::{MemberKey, key_of};
use crate::names::cut;
use crate::objects::{Id, Member, Provisioning};
use crate::requests::MemberRequest;
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
    /// Batches follow each other with pauses.
    pub(crate) paced: bool,
    /// Members of another kind stay although all that is wanted is there.
    pub(crate) keep: bool,
}

/// The members that are wanted against those that are there.
struct Comparison<'a> {
    index: HashMap<MemberKey, &'a Member>,
    wanted: &'a WantedPool,
    /// Those that are not there yet.
    added: Vec<(MemberKey, &'a WantedMember)>,
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
    let wanted = &*with_predecessors(wanted, there, writer.keep);
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
        let bodies = added.map(|((address, _), it)| MemberRequest::new(*address, it, None));
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
        plan.push_members(step, "it is no member of the Service any more");
    }
    // Only the first of several requests is sent before the next look: it must get the pool further
    // each time.
    let needed = |(key, member): &(&MemberKey, &WantedMember)| match compared.find(key) {
        Some(it) => differs(it, member, wanted.pods),
        None => true,
    };
    let members = wanted.members.iter().filter(needed);
    let bodies = members.map(|(key, member)| as_it_stays(key.0, member, compared.find(key)).0);
    add(writer, wanted, there, bodies.collect(), plan);
}

// === impl Writer ===

impl Writer<'_> {
    fn set(self, members: Vec<MemberRequest>, additive: bool, leaves: Vec<Member>) -> Step {
        Step::SetMembers {
            load_balancer: self.load_balancer.clone(),
            pool: self.pool.clone(),
            members,
            additive,
            leaves,
            paced: self.paced,
        }
    }

    fn add(self, member: MemberRequest) -> Step {
        Step::AddMember {
            load_balancer: self.load_balancer.clone(),
            pool: self.pool.clone(),
            member,
        }
    }

    fn update(self, address: IpAddr, port: u16, changes: MemberRequest) -> Step {
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
        let gone = there
            .iter()
            .filter(|it| key_of(it).is_none_or(|key| !wanted.members.contains_key(&key)));
        let mut compared = Self {
            index: index.collect(),
            wanted,
            added: Vec::new(),
            gone: gone.collect(),
            changed: false,
            moved: 0,
        };
        for (key, member) in &wanted.members {
            match compared.find(key) {
                None => compared.added.push((*key, member)),
                Some(it) if is_elsewhere(it, member) => compared.moved += 1,
                Some(it) => compared.changed |= differs(it, member, wanted.pods),
            }
        }
        compared
    }

    fn is_equal(&self) -> bool {
        self.added.is_empty() && self.gone.is_empty() && !self.changed && self.moved == 0
    }

    /// The member that is there for one that is wanted.
    fn find(&self, key: &MemberKey) -> Option<&'a Member> {
        self.index.get(key).copied()
    }

    fn reason(&self) -> String {
        match (self.added.len(), self.gone.len(), self.moved) {
            (0, 0, 0) => format!("members differ from the {}", self.kind()),
            (0, 0, moved) => format!("{moved} members have another subnet"),
            (added, gone, _) => format!("{added} {} were added, {gone} removed", self.kind()),
        }
    }

    fn kind(&self) -> &'static str {
        kind(self.wanted)
    }

    /// The requests for all members, as small as they can be.
    fn all_unnamed(&self) -> Vec<MemberRequest> {
        let members = self.wanted.members.iter();
        let mut all: Vec<MemberRequest> = members
            .map(|(key, member)| as_it_stays(key.0, member, self.find(key)).0)
            .collect();
        all.iter_mut().for_each(unnamed);
        all
    }

    /// The members that one batch sets, and what is in the pool afterwards.
    fn batch(&self, body_limit: usize) -> (Vec<MemberRequest>, Vec<Member>) {
        // With members that move, and none to add before, half of all go now and come back in the
        // next batch.
        let mut going = if self.added.is_empty() {
            self.moved.min(self.wanted.members.len().div_ceil(2))
        } else {
            0
        };
        let mut list = Vec::new();
        let mut leaves = Vec::new();
        for (key, member) in &self.wanted.members {
            let there = self.find(key);
            if there.is_some_and(|it| is_elsewhere(it, member)) && going > 0 {
                going -= 1;
                continue;
            }
            let (body, after) = as_it_stays(key.0, member, there);
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

/// The members that are there and of another kind than those that are wanted: nodes where pods
/// shall be, or pods where nodes shall be. Only the name of a pod contains a `/`; members without a
/// name are of another kind if no address that is wanted is there.
pub(crate) fn predecessors<'a>(
    wanted: &'a WantedPool,
    there: &'a [Member],
) -> impl Iterator<Item = &'a Member> {
    let is_wanted = |it: &Member| key_of(it).is_some_and(|key| wanted.members.contains_key(&key));
    let addresses: HashSet<IpAddr> = wanted.members.keys().map(|(address, _)| *address).collect();
    let mut known = there.iter().filter_map(|it| it.address);
    let replaced = !known.any(|address| addresses.contains(&address));
    there.iter().filter(move |it| {
        let other = if it.name.is_empty() {
            replaced
        } else {
            it.name.contains('/') != wanted.pods
        };
        other && !is_wanted(it)
    })
}

/// What is wanted, and beside it, as long as some of that is not there, its predecessors: what
/// serves goes once all that takes its place has come.
///
/// Where nothing is wanted, nothing takes their place, and those whose names say what they are
/// stay; the others may as well be what was wanted until now.
fn with_predecessors<'a>(
    wanted: &'a WantedPool,
    there: &[Member],
    keep: bool,
) -> Cow<'a, WantedPool> {
    let known: HashSet<MemberKey> = there.iter().filter_map(key_of).collect();
    let mut both = Cow::Borrowed(wanted);
    let none = wanted.members.is_empty();
    if !none && !keep && wanted.members.keys().all(|key| known.contains(key)) {
        return both;
    }
    for it in predecessors(wanted, there).filter(|it| !none || !it.name.is_empty()) {
        let Some(key) = key_of(it) else { continue };
        let stays = WantedMember {
            name: it.name.clone(),
            port: it.protocol_port,
            subnet: it.subnet_id.clone(),
            monitor_port: it.monitor_port,
            weight: None,
            backup: None,
        };
        both.to_mut().members.insert(key, stays);
    }
    both
}

/// What the members of a pool are called in reasons.
fn kind(wanted: &WantedPool) -> &'static str {
    if wanted.pods { "pods" } else { "nodes" }
}

/// For providers that take no batches. Members are identified by address and port alone, as they
/// have names of another kind then.
fn one_by_one(writer: Writer<'_>, wanted: &WantedPool, there: &[Member], plan: &mut Plan<Step>) {
    for (key, member) in &wanted.members {
        let address = &key.0;
        let mut same = there
            .iter()
            .filter(|it| key_of(it) == Some(*key))
            .peekable();
        if same.peek().is_some() {
            if same.any(|it| stays(it, member) && weighs_otherwise(it, member)) {
                let step = writer.update(*address, member.port, weighing(member));
                plan.push_members(step, "the Service sets the member's weight");
            }
            continue;
        }
        let mut body = MemberRequest::new(*address, member, None);
        let name = format!("member_{}_{address}_{}", member.name, member.port);
        body.name = Some(cut(name));
        plan.push_members(writer.add(body), "it is not there yet");
    }
    for key in there.iter().filter_map(key_of) {
        let (address, port) = key;
        let member_stays = wanted.members.get(&key).is_some_and(|wanted| {
            let mut same = there.iter().filter(|it| key_of(it) == Some(key));
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
    mut bodies: Vec<MemberRequest>,
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
            let Some(key) = body.address.zip(body.protocol_port) else {
                continue;
            };
            if let Some(member) = wanted.members.get(&key) {
                let (_, mut after) = as_it_stays(key.0, member, leaves.get(&key));
                if body.name.is_none() {
                    after.name.clear();
                }
                leaves.insert(key, after);
            }
        }
        let step = writer.set(members, true, leaves.values().cloned().collect());
        plan.push_members(step, format!("{total} {} were added", kind(wanted)));
    }
}

/// The request for a member that stays where it is, though it may be wanted in another subnet; and
/// what is there afterwards.
fn as_it_stays(
    address: IpAddr,
    wanted: &WantedMember,
    there: Option<&Member>,
) -> (MemberRequest, Member) {
    let mut body = MemberRequest::new(address, wanted, there);
    let mut after = as_member(address, wanted, there);
    if let Some(it) = there.filter(|it| is_elsewhere(it, wanted)) {
        after.subnet_id.clone_from(&it.subnet_id);
        body.subnet_id.clone_from(&it.subnet_id);
    }
    (body, after)
}

/// As Octavia would list it afterwards.
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
        .map(|((address, _), it)| as_member(*address, it, None))
        .collect()
}

fn differs(there: &Member, wanted: &WantedMember, pods: bool) -> bool {
    // Without a name, a request for very many members was too large with names. A pod may have the
    // address of an earlier one: its name follows with the next change.
    let renamed = !pods && !there.name.is_empty() && there.name != wanted.name;
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
fn weighing(wanted: &WantedMember) -> MemberRequest {
    MemberRequest {
        weight: wanted.weight,
        backup: wanted.backup,
        ..MemberRequest::default()
    }
}

/// A member without a subnet is reached through the VIP's, which may well be the one that is
/// wanted.
fn is_elsewhere(there: &Member, wanted: &WantedMember) -> bool {
    matches!((&there.subnet_id, &wanted.subnet), (Some(is), Some(shall)) if is != shall)
}

/// Names are for people, and the first to go where a request is too large.
fn unnamed(body: &mut MemberRequest) {
    body.name = None;
}

/// How many of a list fit into one request.
fn carried(list: &[MemberRequest], limit: usize) -> usize {
    let sizes = list.iter().scan(ENVELOPE, |size, it| {
        *size += it.size() + 1;
        Some(*size)
    });
    sizes.take_while(|size| *size <= limit).count()
}

fn fits(list: &[MemberRequest], limit: usize) -> bool {
    let sizes = list.iter().map(|it| it.size() + 1);
    sizes.sum::<usize>() + ENVELOPE <= limit
}

fn chunks(bodies: Vec<MemberRequest>, limit: usize) -> Vec<Vec<MemberRequest>> {
    let mut chunks = Vec::new();
    let mut chunk = Vec::new();
    let mut size = ENVELOPE;
    for body in bodies {
        let length = body.size() + 1;
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
