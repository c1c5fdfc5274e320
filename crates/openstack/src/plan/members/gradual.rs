//! Members of a pool that is too large for one request, where Octavia can't add to those that are
//! there (before version 2.11 of its API): a batch says all that shall be in the pool then, and
//! what it leaves out goes.
//!
//! As many as one request carries are set by a batch, as long as it says all that are there and
//! stay. The others come one by one.

use landfall_model::plan::Plan;

use super::{Comparison, Writer, as_it_stays, carried, differs, is_elsewhere, unnamed, weighing};
use crate::graph::{MemberKey, key_of};
use crate::requests::MemberRequest;
use crate::step::Step;

/// Appends what brings the pool nearer to these members. No member that serves and stays is taken
/// out meanwhile.
pub(super) fn plan(writer: Writer<'_>, compared: &Comparison<'_>, plan: &mut Plan<Step>) {
    let find = |key: &MemberKey| compared.find(key);
    let (wanted, gone) = (compared.wanted, &compared.gone);
    let members = || wanted.members.iter();
    let (staying, coming): (Vec<_>, Vec<_>) = members().partition(|(key, _)| find(key).is_some());
    let both: Vec<_> = staying
        .iter()
        .filter_map(|(key, member)| Some((*key, *member, find(key)?)))
        .collect();
    let elsewhere = both
        .iter()
        .filter(|(_, member, it)| is_elsewhere(it, member));
    let different = both
        .iter()
        .filter(|(_, member, it)| differs(it, member, wanted.pods) && !is_elsewhere(it, member));
    // A batch that carries all that stay.
    let (mut list, mut leaves) = (Vec::new(), Vec::new());
    for (key, member) in staying.iter().chain(&coming) {
        let (mut body, mut after) = as_it_stays(key.0, member, find(key));
        unnamed(&mut body);
        after.name.clear();
        list.push(body);
        leaves.push(after);
    }
    let carried = carried(&list, writer.body_limit);
    let helps = carried > staying.len() || !gone.is_empty() || different.clone().next().is_some();
    if carried >= staying.len() && helps {
        list.truncate(carried);
        leaves.truncate(carried);
        let because = format!(
            "{} members are needed, and {carried} fit into a request",
            wanted.members.len()
        );
        plan.push_members(writer.set(list, false, leaves), because);
    } else {
        for (address, port) in gone.iter().copied().filter_map(key_of) {
            let step = writer.delete(address, port);
            plan.push_members(step, "it is no member of the Service any more");
        }
        for ((address, _), member, _) in different {
            let changes = MemberRequest {
                name: Some(member.name.clone()),
                monitor_port: Some(member.monitor_port.into()),
                ..weighing(member)
            };
            let step = writer.update(*address, member.port, changes);
            plan.push_members(step, "the member differs from what is wanted");
        }
    }
    for ((address, _), member) in coming
        .into_iter()
        .skip(carried.saturating_sub(staying.len()))
    {
        let step = writer.add(MemberRequest::new(*address, member, None));
        plan.push_members(
            step,
            "it is not there yet, and the pool is too large for a batch",
        );
    }
    // It comes back as one that is not there.
    for ((address, _), member, _) in elsewhere {
        let step = writer.delete(*address, member.port);
        plan.push_members(step, "the member has another subnet");
    }
}
