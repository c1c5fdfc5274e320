//! The members that are wanted against those that are there. Pure.
//!
//! What somebody set by hand on a member (weight, backup, administrative state) stays. A member's subnet can't
//! change: it is taken out and added again, one half of them at a time.

use std::net::IpAddr;

use landfall_model::plan::Plan;
use serde_json::Value;

use crate::bodies;
use crate::diff::Diff;
use crate::graph::key_of;
use crate::objects::{Id, Member};
use crate::step::Step;
use crate::wanted::{WantedMember, WantedPool};

/// What the envelope of a batch takes of the limit.
const ENVELOPE: usize = 64;

/// Appends what makes a pool have these members.
pub(crate) fn plan(
    diff: &Diff<'_>,
    pool: &Id,
    wanted: &WantedPool,
    there: &[Member],
    plan: &mut Plan<Step>,
) {
    let find = |address: &IpAddr, member: &WantedMember| {
        let key = Some((*address, member.port));
        there.iter().find(|it| key_of(it) == key)
    };
    let mut added = Vec::new();
    let mut changed = false;
    let mut moved: usize = 0;
    for (address, member) in &wanted.members {
        match find(address, member) {
            None => added.push((*address, member)),
            Some(it) if is_elsewhere(it, member) => moved += 1,
            Some(it) => changed |= differs(it, member),
        }
    }
    let gone: Vec<&Member> = there
        .iter()
        .filter(|it| {
            let key = key_of(it);
            let member =
                key.and_then(|(address, port)| Some((wanted.members.get(&address)?, port)));
            !member.is_some_and(|(member, port)| member.port == port)
        })
        .collect();
    if added.is_empty() && gone.is_empty() && !changed && moved == 0 {
        return;
    }
    let batch = Batch {
        diff,
        pool,
        wanted,
        there,
    };
    if gone.is_empty()
        && !changed
        && !added.is_empty()
        && !there.is_empty()
        && diff.features.additive()
    {
        let bodies = added
            .iter()
            .map(|(address, member)| bodies::member(*address, member, None));
        batch.add(bodies.collect(), plan);
        return;
    }
    // With members that move, and none to add before, half of them go now and come back in the next batch.
    let mut going = if added.is_empty() {
        moved.div_ceil(2)
    } else {
        0
    };
    let mut list = Vec::new();
    let mut leaves = Vec::new();
    for (address, member) in &wanted.members {
        let there = find(address, member);
        if there.is_some_and(|it| is_elsewhere(it, member)) && going > 0 {
            going -= 1;
            continue;
        }
        let mut body = bodies::member(*address, member, there);
        let mut after = as_member(*address, member, there);
        if let Some(it) = there.filter(|it| is_elsewhere(it, member)) {
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
        list.push(body);
        leaves.push(after);
    }
    let because = reason(added.len(), gone.len(), moved);
    if fits(&list, diff.body_limit) {
        let step = Step::SetMembers {
            load_balancer: diff.balancer.id.clone(),
            pool: pool.clone(),
            members: list,
            additive: false,
            leaves,
        };
        plan.push_members(step, because);
        return;
    }
    for member in gone {
        if let Some((address, port)) = key_of(member) {
            let step = Step::DeleteMember {
                load_balancer: diff.balancer.id.clone(),
                pool: pool.clone(),
                address,
                port,
            };
            plan.push_members(step, "no node of the Service has this address");
        }
    }
    batch.add(list, plan);
}

fn reason(added: usize, gone: usize, moved: usize) -> String {
    match (added, gone, moved) {
        (0, 0, 0) => "members are not as the nodes are".to_owned(),
        (0, 0, moved) => format!("{moved} members have another subnet"),
        (added, gone, _) => format!("{added} nodes came, {gone} went"),
    }
}

struct Batch<'a, 'd> {
    diff: &'a Diff<'d>,
    pool: &'a Id,
    wanted: &'a WantedPool,
    there: &'a [Member],
}

// === impl Batch ===

impl Batch<'_, '_> {
    /// Adds members to those that are there, in as many requests as it takes.
    fn add(&self, bodies: Vec<Value>, plan: &mut Plan<Step>) {
        let mut leaves = self.there.to_vec();
        let total = bodies.len();
        for members in chunks(bodies, self.diff.body_limit) {
            for body in &members {
                let address = body["address"].as_str().and_then(|text| text.parse().ok());
                let Some(address) = address else { continue };
                if let Some(member) = self.wanted.members.get(&address) {
                    let key = Some((address, member.port));
                    let there = leaves.iter().find(|it| key_of(it) == key).cloned();
                    leaves.retain(|it| key_of(it) != key);
                    leaves.push(as_member(address, member, there.as_ref()));
                }
            }
            let step = Step::SetMembers {
                load_balancer: self.diff.balancer.id.clone(),
                pool: self.pool.clone(),
                members,
                additive: true,
                leaves: leaves.clone(),
            };
            plan.push_members(step, format!("{total} nodes came"));
        }
    }
}

/// As Octavia would tell of it afterwards.
fn as_member(address: IpAddr, wanted: &WantedMember, there: Option<&Member>) -> Member {
    Member {
        name: wanted.name.clone(),
        address: Some(address),
        protocol_port: wanted.port,
        subnet_id: wanted.subnet.clone(),
        monitor_port: wanted.monitor_port,
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
    there.name != wanted.name || there.monitor_port != wanted.monitor_port
}

/// A member without a subnet is reached through the VIP's, which may well be the one that is wanted.
fn is_elsewhere(there: &Member, wanted: &WantedMember) -> bool {
    matches!((&there.subnet_id, &wanted.subnet), (Some(is), Some(shall)) if is != shall)
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
