//! Tags that users want on what is made in Neutron for their Services. Pure.

use landfall_model::Intent;
use landfall_model::plan::Plan;

use crate::client::Tagged;
use crate::objects::Id;
use crate::observed::Observed;
use crate::ownership::is_made;
use crate::step::Step;

/// Appends what gives the Service's floating IP and its group the tags that they lack. What a
/// person made is left alone, and so is the group that all nodes share.
pub(super) fn plan(intent: &Intent, have: &Observed, owner: bool, plan: &mut Plan<Step>) {
    let cloud = &intent.extensions.openstack;
    let attached = have.addressing.attached.as_ref();
    if let (Some(given), Some(floating_ip)) = (&cloud.floating_ip_tags, attached)
        && owner
        && is_made(floating_ip)
    {
        let name = format!("floating IP {}", floating_ip.floating_ip_address);
        let of = (Tagged::FloatingIp, &floating_ip.id, name);
        add(of, &floating_ip.tags, &given.value, plan);
    }
    let view = have.groups.as_ref().filter(|view| view.own && view.managed);
    let group = view.and_then(|view| view.group.as_ref());
    if let (Some(given), Some(group)) = (&cloud.group_tags, group) {
        let name = format!("security group {}", group.name);
        let of = (Tagged::SecurityGroup, &group.id, name);
        add(of, &group.tags, &given.value, plan);
    }
}

fn add(
    (of, id, name): (Tagged, &Id, String),
    there: &[String],
    wanted: &[String],
    plan: &mut Plan<Step>,
) {
    let missing = wanted.iter().filter(|tag| !there.contains(tag));
    let mut tags = there.to_vec();
    tags.extend(missing.cloned());
    if tags.len() > there.len() {
        let step = Step::SetTags {
            of,
            id: id.clone(),
            name,
            tags,
        };
        plan.push(step, "the Service wants it tagged");
    }
}
