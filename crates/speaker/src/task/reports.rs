//! The events of a speaker about the addresses that it announces.

use std::net::IpAddr;
use std::sync::Arc;

use landfall_engine::report::{Event, OwnReport};
use landfall_l2::driver::Report;
use landfall_l2::fsm::{self, Start};

use super::Speaker;

// === impl Speaker ===

impl<R: OwnReport> Speaker<R> {
    /// Reports what happened to an address.
    pub(super) async fn report(&mut self, report: Report) {
        let Report { address, event } = report;
        let node = Arc::clone(&self.parts.node);
        let (reason, warning, message) = match event {
            fsm::Event::Announced if self.initial.remove(&address) => return,
            // Nothing moved: the ServiceL2Status says where a new address is.
            fsm::Event::Announced if self.is_new(address) => return,
            fsm::Event::Announced => {
                let message =
                    format!("{address} is announced by node {node:?}, protocol \"layer2\"");
                ("nodeAssigned", false, message)
            }
            fsm::Event::Refused(conflict) => {
                let mac = conflict.mac;
                let message = format!("{address} is not announced: host {mac} has it");
                ("addressConflict", true, message)
            }
            fsm::Event::RefusedOn(conflict) => {
                let message = self.withheld(address, conflict);
                ("addressConflict", true, message)
            }
            // Two speakers may overlap for a moment while an address moves.
            fsm::Event::Disputed(conflict) if conflict.is_peer => return,
            fsm::Event::Disputed(conflict) => {
                let mac = conflict.mac;
                let message = format!("{address} is used by host {mac}, too");
                ("addressConflict", true, message)
            }
        };
        self.event(address, reason, warning, message).await;
    }

    fn withheld(&self, address: IpAddr, conflict: fsm::Conflict) -> String {
        let links = self.parts.announcer.links();
        let table = links.borrow();
        let link = table.links.get(&conflict.interface);
        let interface = link.map_or("an interface", |it| &it.name);
        let mac = conflict.mac;
        format!("{address} is not announced on {interface}, but on others: host {mac} has it there")
    }

    /// No node announced it before, as far as this one knows.
    fn is_new(&self, address: IpAddr) -> bool {
        let wanted = self.wanted.announcements.get(&address);
        wanted.is_some_and(|it| it.start == Start::Probe)
    }

    pub(super) async fn event(
        &self,
        address: IpAddr,
        reason: &'static str,
        warning: bool,
        message: String,
    ) {
        let event = Event {
            reason,
            warning,
            message,
        };
        for (key, uid) in self.decider.holders(address) {
            self.parts.reporter.own_event(&key, &uid, &event).await;
        }
    }
}
